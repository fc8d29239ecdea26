/*
 * valkey_aof: the append-only file of Valkey (USE_LTTNG=yes). All fire at the end, with a duration.
 */
provider valkey_aof {
    /**
     * fork() for the child that rewrites the file.
     * @param duration how long it took, in us
     */
    probe fork(uint64_t duration);

    /**
     * A write while an fsync was pending.
     * @param duration how long it took, in us
     */
    probe aof_write_pending_fsync(uint64_t duration);

    /**
     * A write while a child was active.
     * @param duration how long it took, in us
     */
    probe aof_write_active_child(uint64_t duration);

    /**
     * A write with neither fsync nor child in the way.
     * @param duration how long it took, in us
     */
    probe aof_write_alone(uint64_t duration);

    /**
     * Any write.
     * @param duration how long it took, in us
     */
    probe aof_write(uint64_t duration);

    /**
     * fsync() under appendfsync always.
     * @param duration how long it took, in us
     */
    probe aof_fsync_always(uint64_t duration);

    /**
     * fstat() on the file.
     * @param duration how long it took, in us
     */
    probe aof_fstat(uint64_t duration);

    /**
     * Renaming of a rewritten file.
     * @param duration how long it took, in us
     */
    probe aof_rename(uint64_t duration);

    /**
     * Flushing of the buffer to the file.
     * @param duration how long it took, in us
     */
    probe aof_flush(uint64_t duration);
};
