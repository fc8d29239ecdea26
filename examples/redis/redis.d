/*
 * redis: calls, connections, commands, the key space and output buffers of a Redis server built with BUILD_USDT=yes
 * (examples/redis puts the probes into a source tree). Keys are not NUL-terminated: the length is the argument beside.
 */
provider redis {
    /**
     * A command is about to be called.
     * @param id number of the command, given when the server starts; the same at start and end
     * @pair call__end
     */
    probe call__start(int id);

    /**
     * A command was called.
     * @param id number of the command, given when the server starts; the same at start and end
     * @pair call__start
     */
    probe call__end(int id);

    /**
     * A connection structure was made, for either end.
     * @param conn the connection structure
     * @pair conn__close
     */
    probe conn__create(void *conn);

    /**
     * A connection from a peer was accepted.
     * @param conn the connection structure
     * @param fd file descriptor; -1 if there is none
     */
    probe conn__accept(void *conn, int fd);

    /**
     * A connection to a peer is about to be made.
     * @param conn the connection structure
     * @param addr address of the peer
     * @param port port of the peer
     */
    probe conn__connect(void *conn, const char *addr, int port);

    /**
     * A connection from a peer got a client and may send commands.
     * @param conn the connection structure
     * @param fd file descriptor; -1 if there is none
     * @param clientid number of the client, as in CLIENT LIST
     * @pair conn__closing
     */
    probe conn__dispatch(void *conn, int fd, uint64_t clientid);

    /**
     * A client is about to be freed and its connection closed.
     * @param clientid number of the client, as in CLIENT LIST
     * @pair conn__dispatch
     */
    probe conn__closing(uint64_t clientid);

    /**
     * A connection is about to be closed; the structure may outlive this.
     * @param conn the connection structure
     * @param fd file descriptor; -1 if there is none
     * @pair conn__create
     */
    probe conn__close(void *conn, int fd);

    /**
     * A request was read and is about to be checked and carried out.
     * @param clientid number of the client, as in CLIENT LIST
     * @param name the command as the client spelled it
     * @param namelen its length in bytes
     * @param argc number of words, the command included
     * @length name namelen
     * @pair process__command__end
     */
    probe process__command__start(uint64_t clientid, const char *name, int namelen, int argc);

    /**
     * A request was carried out, queued or refused.
     * @param clientid number of the client, as in CLIENT LIST
     * @param status 0 if the client goes on; -1 if it is gone or must be closed
     * @pair process__command__start
     */
    probe process__command__end(uint64_t clientid, int status);

    /**
     * A text was read (GET and its relatives).
     * @param clientid number of the client, as in CLIENT LIST
     * @param key the key
     * @param keylen length of the key in bytes
     * @param size size of the value in bytes; -1 if there is none
     * @length key keylen
     */
    probe command__get(uint64_t clientid, const char *key, int keylen, int64_t size);

    /**
     * A text is about to be stored (SET and its relatives).
     * @param clientid number of the client, as in CLIENT LIST
     * @param key the key
     * @param keylen length of the key in bytes
     * @param size size of the value in bytes
     * @length key keylen
     */
    probe command__set(uint64_t clientid, const char *key, int keylen, int64_t size);

    /**
     * A key was deleted on request (DEL, UNLINK).
     * @param clientid number of the client, as in CLIENT LIST
     * @param key the key
     * @param keylen length of the key in bytes
     * @param deleted whether it was there
     * @length key keylen
     */
    probe command__del(uint64_t clientid, const char *key, int keylen, int deleted);

    /**
     * MGET begins.
     * @param clientid number of the client, as in CLIENT LIST
     * @param nkeys number of keys that are asked for
     * @pair command__mget__end
     */
    probe command__mget__start(uint64_t clientid, int nkeys);

    /**
     * MGET is over.
     * @param clientid number of the client, as in CLIENT LIST
     * @param nkeys number of keys that are asked for
     * @pair command__mget__start
     */
    probe command__mget__end(uint64_t clientid, int nkeys);

    /**
     * Clients are paused.
     * @param purpose who asked for it
     * @param type which commands have to wait
     * @param until end of the pause, in ms since the epoch
     * @enum purpose 0=BY_CLIENT_COMMAND 1=DURING_SHUTDOWN 2=DURING_FAILOVER
     * @enum type 0=OFF 1=WRITE 2=ALL
     */
    probe clients__paused(int purpose, int type, int64_t until);

    /**
     * A key was added to a database.
     * @param db number of the database
     * @param key the key
     * @param keylen length of the key in bytes
     * @length key keylen
     */
    probe db__add__key(int db, const char *key, int keylen);

    /**
     * The value of a key is about to be replaced.
     * @param db number of the database
     * @param key the key
     * @param keylen length of the key in bytes
     * @length key keylen
     */
    probe db__overwrite__key(int db, const char *key, int keylen);

    /**
     * A key was found and is about to be removed, for whatever reason.
     * @param db number of the database
     * @param key the key
     * @param keylen length of the key in bytes
     * @length key keylen
     */
    probe db__delete__key(int db, const char *key, int keylen);

    /**
     * A database is about to be emptied.
     * @param db number of the database; -1 for all
     * @param isAsync whether memory is given back in the background
     * @pair db__flush__end
     */
    probe db__flush__start(int db, int isAsync);

    /**
     * A database was emptied.
     * @param db number of the database; -1 for all
     * @param isAsync whether memory is given back in the background
     * @param removed number of keys that were removed
     * @pair db__flush__start
     */
    probe db__flush__end(int db, int isAsync, int64_t removed);

    /**
     * Output was written to the socket of a client.
     * @param clientid number of the client, as in CLIENT LIST
     * @param bytes number of bytes
     */
    probe client__output__buffer__written(uint64_t clientid, int64_t bytes);

    /**
     * A client takes its output too slowly and is closed.
     * @param clientid number of the client, as in CLIENT LIST
     * @param bytes bytes that wait in its buffer
     */
    probe client__output__buffer__overflow(uint64_t clientid, uint64_t bytes);

    /**
     * Output was written to the socket of a replica.
     * @param clientid number of the client, as in CLIENT LIST
     * @param bytes number of bytes
     */
    probe replica__output__buffer__flushed(uint64_t clientid, int64_t bytes);
};
