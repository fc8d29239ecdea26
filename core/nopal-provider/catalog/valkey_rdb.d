/*
 * valkey_rdb: snapshots of Valkey (USE_LTTNG=yes). All fire at the end, with a duration.
 */
provider valkey_rdb {
    /**
     * fork() for the child that writes a snapshot.
     * @param duration how long it took, in us
     */
    probe fork(uint64_t duration);

    /**
     * Removal of a temporary snapshot file.
     * @param duration how long it took, in us
     */
    probe rdb_unlink_temp_file(uint64_t duration);
};
