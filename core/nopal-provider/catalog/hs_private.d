/*
 * hs_private: what HotSpot's own developers watch in OpenJDK's virtual machine (libjvm.so). Not a stable interface.
 */
provider hs_private {
    /**
     * All Java threads are being stopped.
     * @pair safepoint__end
     */
    probe safepoint__begin();

    /**
     * All Java threads may run again.
     * @pair safepoint__begin
     */
    probe safepoint__end();

    /**
     * An entry was made in a table of the virtual machine. Older releases.
     * @param table the table
     * @param hash hash value of the entry
     * @param entry the entry
     */
    probe hashtable__new_entry(void *table, uintptr_t hash, void *entry);

    /**
     * The initial mark pause of the concurrent collector begins. Older releases.
     * @pair cms__initmark__end
     */
    probe cms__initmark__begin();

    /**
     * The initial mark pause of the concurrent collector is over. Older releases.
     * @pair cms__initmark__begin
     */
    probe cms__initmark__end();

    /**
     * The remark pause of the concurrent collector begins. Older releases.
     * @pair cms__remark__end
     */
    probe cms__remark__begin();

    /**
     * The remark pause of the concurrent collector is over. Older releases.
     * @pair cms__remark__begin
     */
    probe cms__remark__end();
};
