/*
 * libvirt: objects, event loop, RPC, TLS, keepalive and the QEMU monitor of the libvirt library and daemons.
 * All numbers are passed as 64-bit values, whatever their type.
 */
provider libvirt {
    /**
     * A reference-counted object was made.
     * @param obj the object
     * @param klass name of its class
     * @pair object_dispose
     */
    probe object_new(void *obj, const char *klass);

    /**
     * A reference to an object was taken.
     * @param obj the object
     */
    probe object_ref(void *obj);

    /**
     * A reference to an object was dropped.
     * @param obj the object
     */
    probe object_unref(void *obj);

    /**
     * The last reference is gone; the object is freed.
     * @param obj the object
     * @pair object_new
     */
    probe object_dispose(void *obj);

    /**
     * A file descriptor is to be watched.
     * @param watch number of the watch
     * @param fd file descriptor
     * @param events wanted or ready events: bit 0 readable, 1 writable, 2 error, 3 hang-up
     * @param cb function that is called
     * @param opaque data handed to that function
     * @param ff function that frees the data
     */
    probe event_glib_add_handle(int watch, int fd, int events, void *cb, void *opaque, void *ff);

    /**
     * The events of a watch were changed.
     * @param watch number of the watch
     * @param events wanted or ready events: bit 0 readable, 1 writable, 2 error, 3 hang-up
     */
    probe event_glib_update_handle(int watch, int events);

    /**
     * A watch is to end.
     * @param watch number of the watch
     */
    probe event_glib_remove_handle(int watch);

    /**
     * The function of a watch is called.
     * @param watch number of the watch
     * @param events wanted or ready events: bit 0 readable, 1 writable, 2 error, 3 hang-up
     * @param cb function that is called
     * @param opaque data handed to that function
     */
    probe event_glib_dispatch_handle(int watch, int events, void *cb, void *opaque);

    /**
     * A timer was made.
     * @param timer number of the timer
     * @param frequency interval in ms; -1 is off
     * @param cb function that is called
     * @param opaque data handed to that function
     * @param ff function that frees the data
     */
    probe event_glib_add_timeout(int timer, int frequency, void *cb, void *opaque, void *ff);

    /**
     * The interval of a timer was changed.
     * @param timer number of the timer
     * @param frequency interval in ms; -1 is off
     */
    probe event_glib_update_timeout(int timer, int frequency);

    /**
     * A timer is to end.
     * @param timer number of the timer
     */
    probe event_glib_remove_timeout(int timer);

    /**
     * The function of a timer is called.
     * @param timer number of the timer
     * @param cb function that is called
     * @param opaque data handed to that function
     */
    probe event_glib_dispatch_timeout(int timer, void *cb, void *opaque);

    /**
     * A watch has ended and its data is freed.
     * @param watch number of the watch
     * @param ff function that frees the data
     * @param opaque data handed to that function
     */
    probe event_glib_remove_handle_idle(int watch, void *ff, void *opaque);

    /**
     * A timer has ended and its data is freed.
     * @param timer number of the timer
     * @param ff function that frees the data
     * @param opaque data handed to that function
     */
    probe event_glib_remove_timeout_idle(int timer, void *ff, void *opaque);

    /**
     * A file descriptor is to be watched. Older releases.
     * @param watch number of the watch
     * @param fd file descriptor
     * @param events wanted or ready events: bit 0 readable, 1 writable, 2 error, 3 hang-up
     * @param cb function that is called
     * @param opaque data handed to that function
     * @param ff function that frees the data
     */
    probe event_poll_add_handle(int watch, int fd, int events, void *cb, void *opaque, void *ff);

    /**
     * The events of a watch were changed. Older releases.
     * @param watch number of the watch
     * @param events wanted or ready events: bit 0 readable, 1 writable, 2 error, 3 hang-up
     */
    probe event_poll_update_handle(int watch, int events);

    /**
     * A watch is to end. Older releases.
     * @param watch number of the watch
     */
    probe event_poll_remove_handle(int watch);

    /**
     * The function of a watch is called. Older releases.
     * @param watch number of the watch
     * @param events wanted or ready events: bit 0 readable, 1 writable, 2 error, 3 hang-up
     */
    probe event_poll_dispatch_handle(int watch, int events);

    /**
     * A timer was made. Older releases.
     * @param timer number of the timer
     * @param frequency interval in ms; -1 is off
     * @param cb function that is called
     * @param opaque data handed to that function
     * @param ff function that frees the data
     */
    probe event_poll_add_timeout(int timer, int frequency, void *cb, void *opaque, void *ff);

    /**
     * The interval of a timer was changed. Older releases.
     * @param timer number of the timer
     * @param frequency interval in ms; -1 is off
     */
    probe event_poll_update_timeout(int timer, int frequency);

    /**
     * A timer is to end. Older releases.
     * @param timer number of the timer
     */
    probe event_poll_remove_timeout(int timer);

    /**
     * The function of a timer is called. Older releases.
     * @param timer number of the timer
     */
    probe event_poll_dispatch_timeout(int timer);

    /**
     * A watch was removed for good. Older releases.
     * @param watch number of the watch
     */
    probe event_poll_purge_handle(int watch);

    /**
     * A timer was removed for good. Older releases.
     * @param timer number of the timer
     */
    probe event_poll_purge_timeout(int timer);

    /**
     * The event loop is about to wait. Older releases.
     * @param nhandles file descriptors it watches
     * @param timeout longest wait in ms; -1 is forever
     */
    probe event_poll_run(int nhandles, int timeout);

    /**
     * An RPC socket was made.
     * @param sock the socket object
     * @param fd file descriptor
     * @param errfd descriptor for error output of a tunnel; -1 if none
     * @param pid process at the other end of a tunnel; 0 if none
     * @param localAddr local address
     * @param remoteAddr address of the peer
     * @pair rpc_socket_dispose
     */
    probe rpc_socket_new(void *sock, int fd, int errfd, int pid, const char *localAddr, const char *remoteAddr);

    /**
     * A file descriptor was sent over an RPC socket.
     * @param sock the socket object
     * @param fd file descriptor
     */
    probe rpc_socket_send_fd(void *sock, int fd);

    /**
     * A file descriptor was received over an RPC socket.
     * @param sock the socket object
     * @param fd file descriptor
     */
    probe rpc_socket_recv_fd(void *sock, int fd);

    /**
     * An RPC socket is freed.
     * @param sock the socket object
     * @pair rpc_socket_new
     */
    probe rpc_socket_dispose(void *sock);

    /**
     * The server end of an RPC connection was made.
     * @param client the client object
     * @param sock the socket object
     * @pair rpc_server_client_dispose
     */
    probe rpc_server_client_new(void *client, void *sock);

    /**
     * The server end received a message.
     * @param client the client object
     * @param length length of the message in bytes
     * @param prog RPC program number
     * @param vers RPC program version
     * @param proc RPC procedure number
     * @param type kind of the message
     * @param status status of the message
     * @param serial serial number of the message; a reply carries that of its call
     * @enum type 0=CALL 1=REPLY 2=MESSAGE 3=STREAM 4=CALL_WITH_FDS 5=REPLY_WITH_FDS 6=STREAM_HOLE
     * @enum status 0=OK 1=ERROR 2=CONTINUE
     * @pair rpc_server_client_msg_tx_queue
     */
    probe rpc_server_client_msg_rx(
        void *client, int length, int prog, int vers, int proc, int type, int status, int serial);

    /**
     * The server end queues a message for sending.
     * @param client the client object
     * @param length length of the message in bytes
     * @param prog RPC program number
     * @param vers RPC program version
     * @param proc RPC procedure number
     * @param type kind of the message
     * @param status status of the message
     * @param serial serial number of the message; a reply carries that of its call
     * @enum type 0=CALL 1=REPLY 2=MESSAGE 3=STREAM 4=CALL_WITH_FDS 5=REPLY_WITH_FDS 6=STREAM_HOLE
     * @enum status 0=OK 1=ERROR 2=CONTINUE
     * @pair rpc_server_client_msg_rx
     */
    probe rpc_server_client_msg_tx_queue(
        void *client, int length, int prog, int vers, int proc, int type, int status, int serial);

    /**
     * The server end of an RPC connection is freed.
     * @param client the client object
     * @pair rpc_server_client_new
     */
    probe rpc_server_client_dispose(void *client);

    /**
     * The client end of an RPC connection was made.
     * @param client the client object
     * @param sock the socket object
     * @pair rpc_client_dispose
     */
    probe rpc_client_new(void *client, void *sock);

    /**
     * The client end queues a message for sending.
     * @param client the client object
     * @param length length of the message in bytes
     * @param prog RPC program number
     * @param vers RPC program version
     * @param proc RPC procedure number
     * @param type kind of the message
     * @param status status of the message
     * @param serial serial number of the message; a reply carries that of its call
     * @enum type 0=CALL 1=REPLY 2=MESSAGE 3=STREAM 4=CALL_WITH_FDS 5=REPLY_WITH_FDS 6=STREAM_HOLE
     * @enum status 0=OK 1=ERROR 2=CONTINUE
     * @pair rpc_client_msg_rx
     */
    probe rpc_client_msg_tx_queue(
        void *client, int length, int prog, int vers, int proc, int type, int status, int serial);

    /**
     * The client end received a message.
     * @param client the client object
     * @param length length of the message in bytes
     * @param prog RPC program number
     * @param vers RPC program version
     * @param proc RPC procedure number
     * @param type kind of the message
     * @param status status of the message
     * @param serial serial number of the message; a reply carries that of its call
     * @enum type 0=CALL 1=REPLY 2=MESSAGE 3=STREAM 4=CALL_WITH_FDS 5=REPLY_WITH_FDS 6=STREAM_HOLE
     * @enum status 0=OK 1=ERROR 2=CONTINUE
     * @pair rpc_client_msg_tx_queue
     */
    probe rpc_client_msg_rx(void *client, int length, int prog, int vers, int proc, int type, int status, int serial);

    /**
     * The client end of an RPC connection is freed.
     * @param client the client object
     * @pair rpc_client_new
     */
    probe rpc_client_dispose(void *client);

    /**
     * A client is let in.
     * @param client the client object
     * @param auth how the client authenticates
     * @param ident name of the client
     * @enum auth 0=NONE 1=SASL 2=POLKIT
     */
    probe rpc_server_client_auth_allow(void *client, int auth, const char *ident);

    /**
     * A client is turned away.
     * @param client the client object
     * @param auth how the client authenticates
     * @param ident name of the client
     * @enum auth 0=NONE 1=SASL 2=POLKIT
     */
    probe rpc_server_client_auth_deny(void *client, int auth, const char *ident);

    /**
     * Authentication of a client failed.
     * @param client the client object
     * @param auth how the client authenticates
     * @enum auth 0=NONE 1=SASL 2=POLKIT
     */
    probe rpc_server_client_auth_fail(void *client, int auth);

    /**
     * A TLS context was made.
     * @param ctxt the TLS context
     * @param cacert file with the CA certificate
     * @param cacrl file with the revocation list
     * @param cert file with the certificate
     * @param key file with the private key
     * @param sanityCheckCert whether the certificates were checked
     * @param requireValidCert whether the peer must have a valid certificate
     * @param isServer whether this is the server end
     * @pair rpc_tls_context_dispose
     */
    probe rpc_tls_context_new(
        void *ctxt, const char *cacert, const char *cacrl, const char *cert, const char *key, int sanityCheckCert,
        int requireValidCert, int isServer);

    /**
     * A TLS context is freed.
     * @param ctxt the TLS context
     * @pair rpc_tls_context_new
     */
    probe rpc_tls_context_dispose(void *ctxt);

    /**
     * The certificate of a peer is accepted.
     * @param ctxt the TLS context
     * @param sess the TLS session
     * @param dname distinguished name of the peer
     */
    probe rpc_tls_context_session_allow(void *ctxt, void *sess, const char *dname);

    /**
     * The certificate of a peer is refused.
     * @param ctxt the TLS context
     * @param sess the TLS session
     * @param dname distinguished name of the peer
     */
    probe rpc_tls_context_session_deny(void *ctxt, void *sess, const char *dname);

    /**
     * The certificate of a peer could not be checked.
     * @param ctxt the TLS context
     * @param sess the TLS session
     */
    probe rpc_tls_context_session_fail(void *ctxt, void *sess);

    /**
     * A TLS session was made.
     * @param sess the TLS session
     * @param ctxt the TLS context
     * @param hostname name of the host that is expected
     * @param isServer whether this is the server end
     * @pair rpc_tls_session_dispose
     */
    probe rpc_tls_session_new(void *sess, void *ctxt, const char *hostname, int isServer);

    /**
     * A TLS session is freed.
     * @param sess the TLS session
     * @pair rpc_tls_session_new
     */
    probe rpc_tls_session_dispose(void *sess);

    /**
     * A TLS handshake worked.
     * @param sess the TLS session
     */
    probe rpc_tls_session_handshake_pass(void *sess);

    /**
     * A TLS handshake failed.
     * @param sess the TLS session
     */
    probe rpc_tls_session_handshake_fail(void *sess);

    /**
     * Keepalive of a connection was set up.
     * @param ka the keepalive object
     * @param client the client object
     * @pair rpc_keepalive_dispose
     */
    probe rpc_keepalive_new(void *ka, void *client);

    /**
     * Keepalive of a connection is freed.
     * @param ka the keepalive object
     * @pair rpc_keepalive_new
     */
    probe rpc_keepalive_dispose(void *ka);

    /**
     * Keepalive of a connection starts.
     * @param ka the keepalive object
     * @param client the client object
     * @param interval seconds between messages
     * @param count unanswered messages after which the connection is dead
     * @pair rpc_keepalive_stop
     */
    probe rpc_keepalive_start(void *ka, void *client, int interval, int count);

    /**
     * Keepalive of a connection stops.
     * @param ka the keepalive object
     * @param client the client object
     * @pair rpc_keepalive_start
     */
    probe rpc_keepalive_stop(void *ka, void *client);

    /**
     * A keepalive message is sent.
     * @param ka the keepalive object
     * @param client the client object
     * @param prog RPC program number
     * @param vers RPC program version
     * @param proc RPC procedure number
     * @enum proc 1=PING 2=PONG
     */
    probe rpc_keepalive_send(void *ka, void *client, int prog, int vers, int proc);

    /**
     * A keepalive message came in.
     * @param ka the keepalive object
     * @param client the client object
     * @param prog RPC program number
     * @param vers RPC program version
     * @param proc RPC procedure number
     * @enum proc 1=PING 2=PONG
     */
    probe rpc_keepalive_received(void *ka, void *client, int prog, int vers, int proc);

    /**
     * Nothing was heard from the peer for a while.
     * @param ka the keepalive object
     * @param client the client object
     * @param countLeft messages that may still go unanswered
     * @param idle seconds without a packet
     */
    probe rpc_keepalive_timeout(void *ka, void *client, int countLeft, int idle);

    /**
     * A monitor connection to a QEMU process was opened.
     * @param mon the monitor object
     * @param fd file descriptor
     * @pair qemu_monitor_close
     */
    probe qemu_monitor_new(void *mon, int fd);

    /**
     * A monitor connection to a QEMU process is closed.
     * @param mon the monitor object
     * @pair qemu_monitor_new
     */
    probe qemu_monitor_close(void *mon);

    /**
     * A reference to a monitor was taken.
     * @param mon the monitor object
     */
    probe qemu_monitor_ref(void *mon);

    /**
     * A reference to a monitor was dropped.
     * @param mon the monitor object
     */
    probe qemu_monitor_unref(void *mon);

    /**
     * A command is sent to QEMU.
     * @param mon the monitor object
     * @param msg the command as JSON
     * @param fd file descriptor that goes with it; -1 if none
     * @pair qemu_monitor_recv_reply
     */
    probe qemu_monitor_send_msg(void *mon, const char *msg, int fd);

    /**
     * QEMU answered a command.
     * @param mon the monitor object
     * @param reply the answer as JSON
     * @pair qemu_monitor_send_msg
     */
    probe qemu_monitor_recv_reply(void *mon, const char *reply);

    /**
     * QEMU sent an event.
     * @param mon the monitor object
     * @param event the event as JSON
     */
    probe qemu_monitor_recv_event(void *mon, const char *event);

    /**
     * Data from QEMU is about to be parsed.
     * @param mon the monitor object
     * @param buf the data
     * @param len its length in bytes
     * @length buf len
     */
    probe qemu_monitor_io_process(void *mon, const char *buf, unsigned int len);

    /**
     * Data was read from QEMU.
     * @param mon the monitor object
     * @param buf the data
     * @param len its length in bytes
     * @param ret bytes that were transferred; -1 after an error
     * @param errnum error number, if it failed
     */
    probe qemu_monitor_io_read(void *mon, const char *buf, unsigned int len, int ret, int errnum);

    /**
     * Data was written to QEMU.
     * @param mon the monitor object
     * @param buf the data
     * @param len bytes that were to be written
     * @param ret bytes that were transferred; -1 after an error
     * @param errnum error number, if it failed
     * @length buf len
     */
    probe qemu_monitor_io_write(void *mon, const char *buf, unsigned int len, int ret, int errnum);

    /**
     * A file descriptor was sent to QEMU.
     * @param mon the monitor object
     * @param fd file descriptor
     * @param ret bytes that were transferred; -1 after an error
     * @param errnum error number, if it failed
     */
    probe qemu_monitor_io_send_fd(void *mon, int fd, int ret, int errnum);

    /**
     * A D-Bus method is called. Older releases.
     * @param interface D-Bus interface
     * @param member D-Bus method
     * @param object D-Bus object path
     * @param destination D-Bus name of the callee
     */
    probe dbus_method_call(const char *interface, const char *member, const char *object, const char *destination);

    /**
     * A D-Bus call failed. Older releases.
     * @param interface D-Bus interface
     * @param member D-Bus method
     * @param object D-Bus object path
     * @param destination D-Bus name of the callee
     * @param name name of the error
     * @param message text of the error
     */
    probe dbus_method_error(
        const char *interface, const char *member, const char *object, const char *destination, const char *name,
        const char *message);

    /**
     * A D-Bus call was answered. Older releases.
     * @param interface D-Bus interface
     * @param member D-Bus method
     * @param object D-Bus object path
     * @param destination D-Bus name of the callee
     */
    probe dbus_method_reply(const char *interface, const char *member, const char *object, const char *destination);
};
