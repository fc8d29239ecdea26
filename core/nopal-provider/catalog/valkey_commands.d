/*
 * valkey_commands: each command of a Valkey server built with USE_LTTNG=yes.
 */
provider valkey_commands {
    /**
     * A command was carried out.
     * @param prot transport of the connection
     * @param addr address of the client
     * @param laddr address of the server the client reached
     * @param name name of the command; of one with parts (CONFIG GET) that of the part
     * @param duration how long it took, in us
     * @enum prot 0=SOCKET 1=UNIX 2=TLS 3=RDMA
     */
    probe command_call(int prot, const char *addr, const char *laddr, const char *name, uint64_t duration);
};
