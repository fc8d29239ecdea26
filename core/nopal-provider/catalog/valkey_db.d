/*
 * valkey_db: expiry, eviction and defragmentation of Valkey (USE_LTTNG=yes). All fire at the end, with a duration.
 */
provider valkey_db {
    /**
     * Deletion of a key that expired.
     * @param duration how long it took, in us
     */
    probe expire_del(uint64_t duration);

    /**
     * One cycle of active defragmentation.
     * @param duration how long it took, in us
     */
    probe active_defrag_cycle(uint64_t duration);

    /**
     * Deletion of a key to make room.
     * @param duration how long it took, in us
     */
    probe eviction_del(uint64_t duration);

    /**
     * Waiting for memory that is freed in the background.
     * @param duration how long it took, in us
     */
    probe eviction_lazyfree(uint64_t duration);

    /**
     * One cycle of eviction.
     * @param duration how long it took, in us
     */
    probe eviction_cycle(uint64_t duration);

    /**
     * One active expiry cycle.
     * @param duration how long it took, in us
     */
    probe expire_cycle(uint64_t duration);

    /**
     * The part of an expiry cycle for keys.
     * @param duration how long it took, in us
     */
    probe expire_cycle_keys(uint64_t duration);

    /**
     * The part of an expiry cycle for hash fields.
     * @param duration how long it took, in us
     */
    probe expire_cycle_fields(uint64_t duration);
};
