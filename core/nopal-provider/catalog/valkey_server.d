/*
 * valkey_server: event loop, cron and command times of Valkey (USE_LTTNG=yes). All fire at the end, with a duration.
 */
provider valkey_server {
    /**
     * One turn of the event loop.
     * @param duration how long it took, in us
     */
    probe eventloop(uint64_t duration);

    /**
     * The cron part of the event loop.
     * @param duration how long it took, in us
     */
    probe eventloop_cron(uint64_t duration);

    /**
     * Cron work done while a long command or load blocks the server.
     * @param duration how long it took, in us
     */
    probe while_blocked_cron(uint64_t duration);

    /**
     * Waiting for the lock that modules share.
     * @param duration how long it took, in us
     */
    probe module_acquire_gil(uint64_t duration);

    /**
     * A blocked command went on and ended.
     * @param duration how long it took, in us
     */
    probe command_unblocking(uint64_t duration);

    /**
     * A command that is marked fast.
     * @param duration how long it took, in us
     */
    probe fast_command(uint64_t duration);

    /**
     * A command that is not marked fast.
     * @param duration how long it took, in us
     */
    probe command(uint64_t duration);
};
