/*
 * node: connections, HTTP and garbage collection of Node.js up to release 18 (configure with --with-dtrace).
 */
provider node {
    /**
     * A server accepted a connection.
     * @param connection the connection object
     * @param remote address of the peer
     * @param port port of the peer
     * @param fd file descriptor of the connection; -1 if there is none
     * @pair net__stream__end
     */
    probe net__server__connection(void *connection, const char *remote, int port, int fd);

    /**
     * A connection was ended.
     * @param connection the connection object
     * @param remote address of the peer
     * @param port port of the peer
     * @param fd file descriptor of the connection; -1 if there is none
     * @pair net__server__connection
     */
    probe net__stream__end(void *connection, const char *remote, int port, int fd);

    /**
     * A server received a request.
     * @param request the request object: its fields differ between releases
     * @param connection the connection object
     * @param remote address of the peer
     * @param port port of the peer
     * @param method HTTP method
     * @param url URL that is asked for
     * @param fd file descriptor of the connection; -1 if there is none
     * @pair http__server__response
     */
    probe http__server__request(
        void *request, void *connection, const char *remote, int port, const char *method, const char *url, int fd);

    /**
     * A server finished its response.
     * @param connection the connection object
     * @param remote address of the peer
     * @param port port of the peer
     * @param fd file descriptor of the connection; -1 if there is none
     * @pair http__server__request
     */
    probe http__server__response(void *connection, const char *remote, int port, int fd);

    /**
     * A client sends a request.
     * @param request the request object: its fields differ between releases
     * @param connection the connection object
     * @param remote address of the peer
     * @param port port of the peer
     * @param method HTTP method
     * @param url URL that is asked for
     * @param fd file descriptor of the connection; -1 if there is none
     * @pair http__client__response
     */
    probe http__client__request(
        void *request, void *connection, const char *remote, int port, const char *method, const char *url, int fd);

    /**
     * A client received a response.
     * @param connection the connection object
     * @param remote address of the peer
     * @param port port of the peer
     * @param fd file descriptor of the connection; -1 if there is none
     * @pair http__client__request
     */
    probe http__client__response(void *connection, const char *remote, int port, int fd);

    /**
     * A garbage collection begins.
     * @param kind kind of the collection
     * @param flags V8 flags of the collection
     * @param isolate the V8 isolate
     * @enum kind 1=scavenge 2=mark_sweep_compact 4=incremental_marking 8=weak_callbacks
     * @pair gc__done
     */
    probe gc__start(int kind, int flags, void *isolate);

    /**
     * A garbage collection is over.
     * @param kind kind of the collection
     * @param flags V8 flags of the collection
     * @param isolate the V8 isolate
     * @enum kind 1=scavenge 2=mark_sweep_compact 4=incremental_marking 8=weak_callbacks
     * @pair gc__start
     */
    probe gc__done(int kind, int flags, void *isolate);
};
