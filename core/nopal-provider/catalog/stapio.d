/*
 * stapio: messages to the kernel in SystemTap's runtime.
 */
provider stapio {
    /**
     * A control message is sent to the module.
     * @param type type of the message
     * @param data its bytes
     * @param len its length in bytes
     * @length data len
     */
    probe send__ctlmsg(int type, void *data, int len);
};
