/*
 * valkey_cluster: the cluster configuration file of Valkey (USE_LTTNG=yes). All fire at the end, with a duration.
 */
provider valkey_cluster {
    /**
     * fork() for a child of the cluster code.
     * @param duration how long it took, in us
     */
    probe fork(uint64_t duration);

    /**
     * Opening of the temporary configuration file.
     * @param duration how long it took, in us
     */
    probe cluster_config_open(uint64_t duration);

    /**
     * Writing of the configuration.
     * @param duration how long it took, in us
     */
    probe cluster_config_write(uint64_t duration);

    /**
     * Making the configuration durable.
     * @param duration how long it took, in us
     */
    probe cluster_config_fsync(uint64_t duration);

    /**
     * Renaming of the temporary file.
     * @param duration how long it took, in us
     */
    probe cluster_config_rename(uint64_t duration);

    /**
     * Making the rename durable.
     * @param duration how long it took, in us
     */
    probe cluster_config_dir_fsync(uint64_t duration);

    /**
     * Closing of the configuration file.
     * @param duration how long it took, in us
     */
    probe cluster_config_close(uint64_t duration);

    /**
     * Removal of the temporary file.
     * @param duration how long it took, in us
     */
    probe cluster_config_unlink(uint64_t duration);
};
