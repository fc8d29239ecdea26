/*
 * sssd: cache transactions, LDAP searches, nested groups and data provider requests of the System Security Services
 * Daemon.
 */
provider sssd {
    /**
     * A transaction of the cache begins.
     * @param nesting depth of the transaction
     * @pair sysdb_transaction_commit_after
     */
    probe sysdb_transaction_start(int nesting);

    /**
     * A transaction of the cache is about to be committed.
     * @param nesting depth of the transaction
     */
    probe sysdb_transaction_commit_before(int nesting);

    /**
     * A transaction of the cache was committed.
     * @param nesting depth of the transaction
     * @pair sysdb_transaction_start
     */
    probe sysdb_transaction_commit_after(int nesting);

    /**
     * A transaction of the cache was given up.
     * @param nesting depth of the transaction
     */
    probe sysdb_transaction_cancel(int nesting);

    /**
     * An LDAP search begins.
     * @param base where in the directory the search begins
     * @param scope how deep it goes
     * @param filter the filter, or NULL
     * @param attrs NULL-terminated array of attribute names, or NULL
     * @enum scope 0=base 1=onelevel 2=subtree
     * @pair sdap_get_generic_ext_recv
     */
    probe sdap_get_generic_ext_send(const char *base, int scope, const char *filter, void *attrs);

    /**
     * An LDAP search is over.
     * @param base where in the directory the search begins
     * @param scope how deep it goes
     * @param filter the filter, or NULL
     * @enum scope 0=base 1=onelevel 2=subtree
     * @pair sdap_get_generic_ext_send
     */
    probe sdap_get_generic_ext_recv(const char *base, int scope, const char *filter);

    /**
     * A value of an LDAP entry was read.
     * @param attr name of the attribute
     * @param value its value
     * @param valueLen length of the value in bytes
     * @length value valueLen
     */
    probe sdap_parse_entry(const char *attr, const char *value, size_t valueLen);

    /**
     * An LDAP entry was read.
     */
    probe sdap_parse_entry_done();

    /**
     * A search that follows references begins.
     * @param base where in the directory the search begins
     * @param derefAttr attribute that is followed
     * @pair sdap_deref_search_recv
     */
    probe sdap_deref_search_send(const char *base, const char *derefAttr);

    /**
     * An account request begins.
     * @param entryType what is looked up
     * @param filterType what it is looked up by
     * @param filterValue the value that is looked for
     * @param extraValue what else is known, or NULL
     * @enum entryType 0x1=user 0x2=group 0x3=initgroups 0x4=netgroups 0x5=services 0x6=sudo_full 0x7=sudo_rules 0x8=host 0x9=ip_network 0x10=subid_ranges 0x11=by_secid 0x12=user_and_group 0x13=by_uuid 0x14=by_cert
     * @pair sdap_acct_req_recv
     */
    probe sdap_acct_req_send(
        unsigned int entryType, unsigned int filterType, const char *filterValue, const char *extraValue);

    /**
     * A search for users begins.
     * @param filter the filter, or NULL
     * @pair sdap_search_user_recv
     */
    probe sdap_search_user_send(const char *filter);

    /**
     * The resolution of nested groups begins.
     * @pair sdap_nested_group_recv
     */
    probe sdap_nested_group_send();

    /**
     * Work on one nested group begins.
     * @param dn distinguished name of the group
     * @pair sdap_nested_group_process_recv
     */
    probe sdap_nested_group_process_send(const char *dn);

    /**
     * Nested groups: dereferencing of members begins.
     * @pair sdap_nested_group_deref_recv
     */
    probe sdap_nested_group_deref_send();

    /**
     * Nested groups: lookup of a user begins.
     * @pair sdap_nested_group_lookup_user_recv
     */
    probe sdap_nested_group_lookup_user_send();

    /**
     * Nested groups: lookup of a group begins.
     * @pair sdap_nested_group_lookup_group_recv
     */
    probe sdap_nested_group_lookup_group_send();

    /**
     * Nested groups: lookup of a member of unknown kind begins.
     * @pair sdap_nested_group_lookup_unknown_recv
     */
    probe sdap_nested_group_lookup_unknown_send();

    /**
     * A search that follows references is over.
     * @param base where in the directory the search begins
     * @param derefAttr attribute that is followed
     * @pair sdap_deref_search_send
     */
    probe sdap_deref_search_recv(const char *base, const char *derefAttr);

    /**
     * An account request is over.
     * @param entryType what is looked up
     * @param filterType what it is looked up by
     * @param filterValue the value that is looked for
     * @param extraValue what else is known, or NULL
     * @enum entryType 0x1=user 0x2=group 0x3=initgroups 0x4=netgroups 0x5=services 0x6=sudo_full 0x7=sudo_rules 0x8=host 0x9=ip_network 0x10=subid_ranges 0x11=by_secid 0x12=user_and_group 0x13=by_uuid 0x14=by_cert
     * @pair sdap_acct_req_send
     */
    probe sdap_acct_req_recv(
        unsigned int entryType, unsigned int filterType, const char *filterValue, const char *extraValue);

    /**
     * A search for users is over.
     * @param filter the filter, or NULL
     * @pair sdap_search_user_send
     */
    probe sdap_search_user_recv(const char *filter);

    /**
     * The resolution of nested groups is over.
     * @pair sdap_nested_group_send
     */
    probe sdap_nested_group_recv();

    /**
     * Work on one nested group is over.
     * @param dn distinguished name of the group
     * @pair sdap_nested_group_process_send
     */
    probe sdap_nested_group_process_recv(const char *dn);

    /**
     * Nested groups: dereferencing of members is over.
     * @pair sdap_nested_group_deref_send
     */
    probe sdap_nested_group_deref_recv();

    /**
     * Nested groups: lookup of a user is over.
     * @pair sdap_nested_group_lookup_user_send
     */
    probe sdap_nested_group_lookup_user_recv();

    /**
     * Nested groups: lookup of a group is over.
     * @pair sdap_nested_group_lookup_group_send
     */
    probe sdap_nested_group_lookup_group_recv();

    /**
     * Nested groups: lookup of a member of unknown kind is over.
     * @pair sdap_nested_group_lookup_unknown_send
     */
    probe sdap_nested_group_lookup_unknown_recv();

    /**
     * Saving of the users that were found begins.
     * @param filter the filter, or NULL
     * @pair sdap_search_user_save_end
     */
    probe sdap_search_user_save_begin(const char *filter);

    /**
     * Saving of the users that were found is over.
     * @param filter the filter, or NULL
     * @pair sdap_search_user_save_begin
     */
    probe sdap_search_user_save_end(const char *filter);

    /**
     * Nested groups: filling of the groups begins.
     * @pair sdap_nested_group_populate_post
     */
    probe sdap_nested_group_populate_pre();

    /**
     * Nested groups: saving of the groups begins.
     * @pair sdap_nested_group_save_post
     */
    probe sdap_nested_group_save_pre();

    /**
     * Nested groups: work on dereferenced members begins.
     * @pair sdap_nested_group_deref_process_post
     */
    probe sdap_nested_group_deref_process_pre();

    /**
     * Nested groups: splitting of the members by kind begins.
     * @pair sdap_nested_group_process_split_post
     */
    probe sdap_nested_group_process_split_pre();

    /**
     * Nested groups: check of the cache begins.
     * @pair sdap_nested_group_check_cache_post
     */
    probe sdap_nested_group_check_cache_pre();

    /**
     * Nested groups: search for users in the cache begins.
     * @pair sdap_nested_group_sysdb_search_users_post
     */
    probe sdap_nested_group_sysdb_search_users_pre();

    /**
     * Nested groups: search for groups in the cache begins.
     * @pair sdap_nested_group_sysdb_search_groups_post
     */
    probe sdap_nested_group_sysdb_search_groups_pre();

    /**
     * Nested groups: search for the users of a group begins.
     * @pair sdap_nested_group_populate_search_users_post
     */
    probe sdap_nested_group_populate_search_users_pre();

    /**
     * Nested groups: filling of the groups is over.
     * @pair sdap_nested_group_populate_pre
     */
    probe sdap_nested_group_populate_post();

    /**
     * Nested groups: saving of the groups is over.
     * @pair sdap_nested_group_save_pre
     */
    probe sdap_nested_group_save_post();

    /**
     * Nested groups: work on dereferenced members is over.
     * @pair sdap_nested_group_deref_process_pre
     */
    probe sdap_nested_group_deref_process_post();

    /**
     * Nested groups: splitting of the members by kind is over.
     * @pair sdap_nested_group_process_split_pre
     */
    probe sdap_nested_group_process_split_post();

    /**
     * Nested groups: check of the cache is over.
     * @pair sdap_nested_group_check_cache_pre
     */
    probe sdap_nested_group_check_cache_post();

    /**
     * Nested groups: search for users in the cache is over.
     * @pair sdap_nested_group_sysdb_search_users_pre
     */
    probe sdap_nested_group_sysdb_search_users_post();

    /**
     * Nested groups: search for groups in the cache is over.
     * @pair sdap_nested_group_sysdb_search_groups_pre
     */
    probe sdap_nested_group_sysdb_search_groups_post();

    /**
     * Nested groups: search for the users of a group is over.
     * @pair sdap_nested_group_populate_search_users_pre
     */
    probe sdap_nested_group_populate_search_users_post();

    /**
     * A request to the data provider begins.
     * @param domain name of the domain
     * @param request name of the request
     * @param target part of the data provider that is asked
     * @param method method of that part
     * @pair dp_req_done
     */
    probe dp_req_send(const char *domain, const char *request, unsigned int target, unsigned int method);

    /**
     * A request to the data provider is over.
     * @param request name of the request
     * @param target part of the data provider that is asked
     * @param method method of that part
     * @param ret 0, or an error number
     * @param errorMessage text for the user
     * @pair dp_req_send
     */
    probe dp_req_done(
        const char *request, unsigned int target, unsigned int method, int ret, const char *errorMessage);
};
