/*
 * staprun: loading of modules and messages from the kernel in SystemTap's runtime.
 */
provider staprun {
    /**
     * A module is about to be loaded.
     * @param path path of the module
     * @pair remove__module
     */
    probe insert__module(const char *path);

    /**
     * A module is about to be unloaded.
     * @param name name of the module
     * @pair insert__module
     */
    probe remove__module(const char *name);

    /**
     * A control message from the module came in.
     * @param type type of the message
     * @param data its bytes
     * @param len its length in bytes
     * @length data len
     */
    probe recv__ctlmsg(unsigned int type, void *data, long len);
};
