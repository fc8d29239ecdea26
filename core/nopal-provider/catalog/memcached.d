/*
 * memcached: connections, slab memory, the hash table, items and commands of the memcached server
 * (configure with --enable-dtrace). Keys are not NUL-terminated: the length is the argument beside them.
 */
provider memcached {
    /**
     * A connection structure was taken for a new connection.
     * @param connid connection number, which is its file descriptor
     * @pair conn__release
     */
    probe conn__allocate(int connid);

    /**
     * A connection was closed and its structure is free again.
     * @param connid connection number, which is its file descriptor
     * @pair conn__allocate
     */
    probe conn__release(int connid);

    /**
     * Memory for a connection structure was allocated.
     * @param ptr the connection structure
     * @pair conn__destroy
     */
    probe conn__create(void *ptr);

    /**
     * The memory of a connection structure is given back.
     * @param ptr the connection structure
     * @pair conn__create
     */
    probe conn__destroy(void *ptr);

    /**
     * The listening thread hands a new connection to a worker thread.
     * @param connid connection number, which is its file descriptor
     * @param threadid worker thread that takes the connection
     */
    probe conn__dispatch(int connid, int64_t threadid);

    /**
     * Memory for an item was taken from a slab class.
     * @param size bytes asked for
     * @param slabclass slab class number
     * @param slabsize size of the chunks of that class, in bytes
     * @param ptr the chunk
     * @pair slabs__free
     */
    probe slabs__allocate(int size, int slabclass, int slabsize, void *ptr);

    /**
     * No memory for an item could be had from a slab class.
     * @param size bytes asked for
     * @param slabclass slab class number
     */
    probe slabs__allocate__failed(int size, int slabclass);

    /**
     * A slab class got another page.
     * @param slabclass slab class number
     */
    probe slabs__slabclass__allocate(int slabclass);

    /**
     * A slab class could not get another page.
     * @param slabclass slab class number
     */
    probe slabs__slabclass__allocate__failed(int slabclass);

    /**
     * Memory of an item went back to its slab class.
     * @param size size in bytes
     * @param slabclass slab class number
     * @param ptr the chunk
     * @pair slabs__allocate
     */
    probe slabs__free(int size, int slabclass, void *ptr);

    /**
     * A key was looked up in the hash table. A large depth means long chains.
     * @param key the key
     * @param keylen length of the key in bytes
     * @param depth entries looked at in the hash chain
     * @length key keylen
     */
    probe assoc__find(const char *key, int keylen, int depth);

    /**
     * A key was put into the hash table.
     * @param key the key
     * @param keylen length of the key in bytes
     * @length key keylen
     */
    probe assoc__insert(const char *key, int keylen);

    /**
     * A key was taken out of the hash table.
     * @param key the key
     * @param keylen length of the key in bytes
     * @length key keylen
     */
    probe assoc__delete(const char *key, int keylen);

    /**
     * An item becomes part of the cache.
     * @param key the key
     * @param keylen length of the key in bytes
     * @param size size of the value in bytes
     * @length key keylen
     * @pair item__unlink
     */
    probe item__link(const char *key, int keylen, int size);

    /**
     * An item is taken out of the cache.
     * @param key the key
     * @param keylen length of the key in bytes
     * @param size size of the value in bytes
     * @length key keylen
     * @pair item__link
     */
    probe item__unlink(const char *key, int keylen, int size);

    /**
     * A reference to an item is dropped; the last one frees it.
     * @param key the key
     * @param keylen length of the key in bytes
     * @param size size of the value in bytes
     * @length key keylen
     */
    probe item__remove(const char *key, int keylen, int size);

    /**
     * The last-used time of an item is renewed.
     * @param key the key
     * @param keylen length of the key in bytes
     * @param size size of the value in bytes
     * @length key keylen
     */
    probe item__update(const char *key, int keylen, int size);

    /**
     * An item takes the place of another.
     * @param oldkey key of the item that goes
     * @param oldkeylen its length in bytes
     * @param oldsize size of the item that goes, in bytes
     * @param newkey key of the item that comes
     * @param newkeylen its length in bytes
     * @param newsize size of the item that comes, in bytes
     * @length oldkey oldkeylen
     * @length newkey newkeylen
     */
    probe item__replace(
        const char *oldkey, int oldkeylen, int oldsize, const char *newkey, int newkeylen, int newsize);

    /**
     * A request was read and is about to be carried out.
     * @param connid connection number, which is its file descriptor
     * @param request the request as it came in
     * @param size its length in bytes
     * @length request size
     * @pair process__command__end
     */
    probe process__command__start(int connid, const char *request, int size);

    /**
     * A request was carried out.
     * @param connid connection number, which is its file descriptor
     * @param response the response that goes out, or NULL
     * @param size its length in bytes
     * @length response size
     * @pair process__command__start
     */
    probe process__command__end(int connid, const char *response, int size);

    /**
     * A key was read. The size is -1 when it was not there.
     * @param connid connection number, which is its file descriptor
     * @param key the key
     * @param keylen length of the key in bytes
     * @param size size of the value in bytes; -1 if there is none
     * @param casid compare-and-swap number of the item
     * @length key keylen
     */
    probe command__get(int connid, const char *key, int keylen, int size, int64_t casid);

    /**
     * A value was stored because the key was not there yet.
     * @param connid connection number, which is its file descriptor
     * @param key the key
     * @param keylen length of the key in bytes
     * @param size size of the value in bytes; -1 if there is none
     * @param casid compare-and-swap number of the item
     * @length key keylen
     */
    probe command__add(int connid, const char *key, int keylen, int size, int64_t casid);

    /**
     * A value was stored.
     * @param connid connection number, which is its file descriptor
     * @param key the key
     * @param keylen length of the key in bytes
     * @param size size of the value in bytes; -1 if there is none
     * @param casid compare-and-swap number of the item
     * @length key keylen
     */
    probe command__set(int connid, const char *key, int keylen, int size, int64_t casid);

    /**
     * A value was stored in place of one that was there.
     * @param connid connection number, which is its file descriptor
     * @param key the key
     * @param keylen length of the key in bytes
     * @param size size of the value in bytes; -1 if there is none
     * @param casid compare-and-swap number of the item
     * @length key keylen
     */
    probe command__replace(int connid, const char *key, int keylen, int size, int64_t casid);

    /**
     * Data was put in front of a value.
     * @param connid connection number, which is its file descriptor
     * @param key the key
     * @param keylen length of the key in bytes
     * @param size size of the value in bytes; -1 if there is none
     * @param casid compare-and-swap number of the item
     * @length key keylen
     */
    probe command__prepend(int connid, const char *key, int keylen, int size, int64_t casid);

    /**
     * Data was put behind a value.
     * @param connid connection number, which is its file descriptor
     * @param key the key
     * @param keylen length of the key in bytes
     * @param size size of the value in bytes; -1 if there is none
     * @param casid compare-and-swap number of the item
     * @length key keylen
     */
    probe command__append(int connid, const char *key, int keylen, int size, int64_t casid);

    /**
     * The expiry time of a key was changed.
     * @param connid connection number, which is its file descriptor
     * @param key the key
     * @param keylen length of the key in bytes
     * @param size size of the value in bytes; -1 if there is none
     * @param casid compare-and-swap number of the item
     * @length key keylen
     */
    probe command__touch(int connid, const char *key, int keylen, int size, int64_t casid);

    /**
     * A value was stored if nobody else had changed it (compare and swap).
     * @param connid connection number, which is its file descriptor
     * @param key the key
     * @param keylen length of the key in bytes
     * @param size size of the value in bytes; -1 if there is none
     * @param casid compare-and-swap number of the item
     * @length key keylen
     */
    probe command__cas(int connid, const char *key, int keylen, int size, int64_t casid);

    /**
     * A number was increased.
     * @param connid connection number, which is its file descriptor
     * @param key the key
     * @param keylen length of the key in bytes
     * @param val value after the change
     * @length key keylen
     */
    probe command__incr(int connid, const char *key, int keylen, int64_t val);

    /**
     * A number was decreased.
     * @param connid connection number, which is its file descriptor
     * @param key the key
     * @param keylen length of the key in bytes
     * @param val value after the change
     * @length key keylen
     */
    probe command__decr(int connid, const char *key, int keylen, int64_t val);

    /**
     * A key is to be deleted.
     * @param connid connection number, which is its file descriptor
     * @param key the key
     * @param keylen length of the key in bytes
     * @length key keylen
     */
    probe command__delete(int connid, const char *key, int keylen);
};
