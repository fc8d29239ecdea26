/*
 * postgresql: transactions, query phases, checkpoints, buffers, storage, locks, sorts and the write-ahead log of
 * the PostgreSQL server (configure with --enable-dtrace). One server process serves one connection.
 */
provider postgresql {
    /**
     * A transaction begins.
     * @param xid local part of the virtual transaction ID
     * @pair transaction__commit
     */
    probe transaction__start(unsigned int xid);

    /**
     * A transaction ended well.
     * @param xid local part of the virtual transaction ID
     * @pair transaction__start
     */
    probe transaction__commit(unsigned int xid);

    /**
     * A transaction failed or was rolled back.
     * @param xid local part of the virtual transaction ID
     * @pair transaction__start
     */
    probe transaction__abort(unsigned int xid);

    /**
     * A query begins to be worked on.
     * @param query the text of the SQL query
     * @pair query__done
     */
    probe query__start(const char *query);

    /**
     * A query is finished.
     * @param query the text of the SQL query
     * @pair query__start
     */
    probe query__done(const char *query);

    /**
     * Parsing of a query begins.
     * @param query the text of the SQL query
     * @pair query__parse__done
     */
    probe query__parse__start(const char *query);

    /**
     * Parsing of a query is over.
     * @param query the text of the SQL query
     * @pair query__parse__start
     */
    probe query__parse__done(const char *query);

    /**
     * Rewriting of a query by rules and views begins.
     * @param query the text of the SQL query
     * @pair query__rewrite__done
     */
    probe query__rewrite__start(const char *query);

    /**
     * Rewriting of a query is over.
     * @param query the text of the SQL query
     * @pair query__rewrite__start
     */
    probe query__rewrite__done(const char *query);

    /**
     * Planning of a query begins.
     * @pair query__plan__done
     */
    probe query__plan__start();

    /**
     * Planning of a query is over.
     * @pair query__plan__start
     */
    probe query__plan__done();

    /**
     * Execution of a query begins.
     * @pair query__execute__done
     */
    probe query__execute__start();

    /**
     * Execution of a query is over.
     * @pair query__execute__start
     */
    probe query__execute__done();

    /**
     * The process changed what it reports about its activity.
     * @param status what the process is doing, as in pg_stat_activity
     */
    probe statement__status(const char *status);

    /**
     * A checkpoint begins.
     * @param flags bits that say why the checkpoint happens and how urgent it is
     * @pair checkpoint__done
     */
    probe checkpoint__start(int flags);

    /**
     * A checkpoint is over.
     * @param buffersWritten buffers that were written
     * @param buffersTotal buffers in the pool
     * @param segsAdded WAL segments that were added
     * @param segsRemoved WAL segments that were removed
     * @param segsRecycled WAL segments that were taken again
     * @pair checkpoint__start
     */
    probe checkpoint__done(int buffersWritten, int buffersTotal, int segsAdded, int segsRemoved, int segsRecycled);

    /**
     * The commit log part of a checkpoint begins.
     * @param isCheckpoint whether this is a checkpoint; false at shutdown
     * @pair clog__checkpoint__done
     */
    probe clog__checkpoint__start(bool isCheckpoint);

    /**
     * The commit log part of a checkpoint is over.
     * @param isCheckpoint whether this is a checkpoint; false at shutdown
     * @pair clog__checkpoint__start
     */
    probe clog__checkpoint__done(bool isCheckpoint);

    /**
     * The subtransaction log part of a checkpoint begins.
     * @param isCheckpoint whether this is a checkpoint; false at shutdown
     * @pair subtrans__checkpoint__done
     */
    probe subtrans__checkpoint__start(bool isCheckpoint);

    /**
     * The subtransaction log part of a checkpoint is over.
     * @param isCheckpoint whether this is a checkpoint; false at shutdown
     * @pair subtrans__checkpoint__start
     */
    probe subtrans__checkpoint__done(bool isCheckpoint);

    /**
     * The multitransaction log part of a checkpoint begins.
     * @param isCheckpoint whether this is a checkpoint; false at shutdown
     * @pair multixact__checkpoint__done
     */
    probe multixact__checkpoint__start(bool isCheckpoint);

    /**
     * The multitransaction log part of a checkpoint is over.
     * @param isCheckpoint whether this is a checkpoint; false at shutdown
     * @pair multixact__checkpoint__start
     */
    probe multixact__checkpoint__done(bool isCheckpoint);

    /**
     * The part of a checkpoint for prepared transactions begins.
     * @pair twophase__checkpoint__done
     */
    probe twophase__checkpoint__start();

    /**
     * The part of a checkpoint for prepared transactions is over.
     * @pair twophase__checkpoint__start
     */
    probe twophase__checkpoint__done();

    /**
     * A block is about to be read or added.
     * @param forkNum fork of the relation
     * @param blockNum block number in the fork
     * @param tsOid OID of the tablespace
     * @param dbOid OID of the database
     * @param relOid relation file number
     * @param backend backend that owns a temporary relation; -1 for an ordinary one
     * @param isExtend whether the relation is being extended
     * @enum forkNum 0=main 1=fsm 2=vm 3=init
     * @pair buffer__read__done
     */
    probe buffer__read__start(
        int forkNum, unsigned int blockNum, unsigned int tsOid, unsigned int dbOid, unsigned int relOid, int backend,
        bool isExtend);

    /**
     * A block was read, from the buffer pool or from storage.
     * @param forkNum fork of the relation
     * @param blockNum block number in the fork
     * @param tsOid OID of the tablespace
     * @param dbOid OID of the database
     * @param relOid relation file number
     * @param backend backend that owns a temporary relation; -1 for an ordinary one
     * @param isExtend whether the relation is being extended
     * @param isHit whether the block was in the buffer pool
     * @enum forkNum 0=main 1=fsm 2=vm 3=init
     * @pair buffer__read__start
     */
    probe buffer__read__done(
        int forkNum, unsigned int blockNum, unsigned int tsOid, unsigned int dbOid, unsigned int relOid, int backend,
        bool isExtend, bool isHit);

    /**
     * A shared buffer is about to be written, for whatever reason.
     * @param forkNum fork of the relation
     * @param blockNum block number in the fork
     * @param tsOid OID of the tablespace
     * @param dbOid OID of the database
     * @param relOid relation file number
     * @enum forkNum 0=main 1=fsm 2=vm 3=init
     * @pair buffer__flush__done
     */
    probe buffer__flush__start(
        int forkNum, unsigned int blockNum, unsigned int tsOid, unsigned int dbOid, unsigned int relOid);

    /**
     * A shared buffer was handed to the kernel; it need not be on disk yet.
     * @param forkNum fork of the relation
     * @param blockNum block number in the fork
     * @param tsOid OID of the tablespace
     * @param dbOid OID of the database
     * @param relOid relation file number
     * @enum forkNum 0=main 1=fsm 2=vm 3=init
     * @pair buffer__flush__start
     */
    probe buffer__flush__done(
        int forkNum, unsigned int blockNum, unsigned int tsOid, unsigned int dbOid, unsigned int relOid);

    /**
     * The buffer part of a checkpoint begins.
     * @param flags bits that say why the checkpoint happens and how urgent it is
     * @pair buffer__checkpoint__done
     */
    probe buffer__checkpoint__start(int flags);

    /**
     * The buffer part of a checkpoint is over.
     * @pair buffer__checkpoint__start
     */
    probe buffer__checkpoint__done();

    /**
     * Dirty buffers were written; making them durable begins.
     */
    probe buffer__checkpoint__sync__start();

    /**
     * A checkpoint begins to write dirty buffers.
     * @param nbuffers buffers in the pool
     * @param ntowrite buffers that are dirty
     * @pair buffer__sync__done
     */
    probe buffer__sync__start(int nbuffers, int ntowrite);

    /**
     * A checkpoint has written the dirty buffers.
     * @param nbuffers buffers in the pool
     * @param nwritten buffers written so far
     * @param ntowrite buffers that are dirty
     * @pair buffer__sync__start
     */
    probe buffer__sync__done(int nbuffers, int nwritten, int ntowrite);

    /**
     * A checkpoint wrote one buffer.
     * @param buffer buffer number
     */
    probe buffer__sync__written(int buffer);

    /**
     * A server process has to write a dirty buffer itself. Often means shared_buffers is too small.
     * @param forkNum fork of the relation
     * @param blockNum block number in the fork
     * @param tsOid OID of the tablespace
     * @param dbOid OID of the database
     * @param relOid relation file number
     * @enum forkNum 0=main 1=fsm 2=vm 3=init
     * @pair buffer__write__dirty__done
     */
    probe buffer__write__dirty__start(
        int forkNum, unsigned int blockNum, unsigned int tsOid, unsigned int dbOid, unsigned int relOid);

    /**
     * A server process wrote a dirty buffer itself.
     * @param forkNum fork of the relation
     * @param blockNum block number in the fork
     * @param tsOid OID of the tablespace
     * @param dbOid OID of the database
     * @param relOid relation file number
     * @enum forkNum 0=main 1=fsm 2=vm 3=init
     * @pair buffer__write__dirty__start
     */
    probe buffer__write__dirty__done(
        int forkNum, unsigned int blockNum, unsigned int tsOid, unsigned int dbOid, unsigned int relOid);

    /**
     * A server process has to write a WAL buffer itself. Often means wal_buffers is too small.
     * @pair wal__buffer__write__dirty__done
     */
    probe wal__buffer__write__dirty__start();

    /**
     * A server process wrote a WAL buffer itself.
     * @pair wal__buffer__write__dirty__start
     */
    probe wal__buffer__write__dirty__done();

    /**
     * A WAL record was inserted.
     * @param rmid resource manager of the record
     * @param info flags of the record
     */
    probe wal__insert(uint8_t rmid, uint8_t info);

    /**
     * A switch to the next WAL segment was asked for.
     */
    probe wal__switch();

    /**
     * Reading of a block from storage begins.
     * @param forkNum fork of the relation
     * @param blockNum block number in the fork
     * @param tsOid OID of the tablespace
     * @param dbOid OID of the database
     * @param relOid relation file number
     * @param backend backend that owns a temporary relation; -1 for an ordinary one
     * @enum forkNum 0=main 1=fsm 2=vm 3=init
     * @pair smgr__md__read__done
     */
    probe smgr__md__read__start(
        int forkNum, unsigned int blockNum, unsigned int tsOid, unsigned int dbOid, unsigned int relOid, int backend);

    /**
     * A block was read from storage.
     * @param forkNum fork of the relation
     * @param blockNum block number in the fork
     * @param tsOid OID of the tablespace
     * @param dbOid OID of the database
     * @param relOid relation file number
     * @param backend backend that owns a temporary relation; -1 for an ordinary one
     * @param bytesDone bytes that were transferred
     * @param bytesAsked bytes that were asked for
     * @enum forkNum 0=main 1=fsm 2=vm 3=init
     * @pair smgr__md__read__start
     */
    probe smgr__md__read__done(
        int forkNum, unsigned int blockNum, unsigned int tsOid, unsigned int dbOid, unsigned int relOid, int backend,
        int bytesDone, int bytesAsked);

    /**
     * Writing of a block to storage begins.
     * @param forkNum fork of the relation
     * @param blockNum block number in the fork
     * @param tsOid OID of the tablespace
     * @param dbOid OID of the database
     * @param relOid relation file number
     * @param backend backend that owns a temporary relation; -1 for an ordinary one
     * @enum forkNum 0=main 1=fsm 2=vm 3=init
     * @pair smgr__md__write__done
     */
    probe smgr__md__write__start(
        int forkNum, unsigned int blockNum, unsigned int tsOid, unsigned int dbOid, unsigned int relOid, int backend);

    /**
     * A block was written to storage.
     * @param forkNum fork of the relation
     * @param blockNum block number in the fork
     * @param tsOid OID of the tablespace
     * @param dbOid OID of the database
     * @param relOid relation file number
     * @param backend backend that owns a temporary relation; -1 for an ordinary one
     * @param bytesDone bytes that were transferred
     * @param bytesAsked bytes that were asked for
     * @enum forkNum 0=main 1=fsm 2=vm 3=init
     * @pair smgr__md__write__start
     */
    probe smgr__md__write__done(
        int forkNum, unsigned int blockNum, unsigned int tsOid, unsigned int dbOid, unsigned int relOid, int backend,
        int bytesDone, int bytesAsked);

    /**
     * A sort begins.
     * @param kind what is sorted; the numbers differ between releases
     * @param unique whether equal values are an error
     * @param nkeys number of key columns
     * @param workMem memory it may use, in KiB
     * @param randomAccess whether the result is read in any order
     * @param parallel part in a parallel sort
     * @enum kind 0=heap 1=index 2=datum 3=cluster
     * @enum parallel 0=serial 1=worker 2=leader
     * @pair sort__done
     */
    probe sort__start(int kind, bool unique, int nkeys, int workMem, bool randomAccess, int parallel);

    /**
     * A sort is over.
     * @param external whether it spilled to disk
     * @param spaceUsed disk blocks if it spilled, else KiB of memory
     * @enum external 0=memory 1=disk
     * @pair sort__start
     */
    probe sort__done(bool external, long spaceUsed);

    /**
     * A lightweight lock was taken.
     * @param lwlock name of the tranche the lock belongs to
     * @param mode how the lock is wanted or held
     * @enum mode 0=EXCLUSIVE 1=SHARED 2=WAIT_UNTIL_FREE
     * @pair lwlock__release
     */
    probe lwlock__acquire(const char *lwlock, int mode);

    /**
     * A lightweight lock was given back. Waiters may still sleep.
     * @param lwlock name of the tranche the lock belongs to
     * @pair lwlock__acquire
     */
    probe lwlock__release(const char *lwlock);

    /**
     * A lightweight lock is taken and the process begins to wait.
     * @param lwlock name of the tranche the lock belongs to
     * @param mode how the lock is wanted or held
     * @enum mode 0=EXCLUSIVE 1=SHARED 2=WAIT_UNTIL_FREE
     * @pair lwlock__wait__done
     */
    probe lwlock__wait__start(const char *lwlock, int mode);

    /**
     * The process was woken; it need not have the lock yet.
     * @param lwlock name of the tranche the lock belongs to
     * @param mode how the lock is wanted or held
     * @enum mode 0=EXCLUSIVE 1=SHARED 2=WAIT_UNTIL_FREE
     * @pair lwlock__wait__start
     */
    probe lwlock__wait__done(const char *lwlock, int mode);

    /**
     * A lightweight lock was taken without waiting.
     * @param lwlock name of the tranche the lock belongs to
     * @param mode how the lock is wanted or held
     * @enum mode 0=EXCLUSIVE 1=SHARED 2=WAIT_UNTIL_FREE
     */
    probe lwlock__condacquire(const char *lwlock, int mode);

    /**
     * A lightweight lock was not free and the process did not wait.
     * @param lwlock name of the tranche the lock belongs to
     * @param mode how the lock is wanted or held
     * @enum mode 0=EXCLUSIVE 1=SHARED 2=WAIT_UNTIL_FREE
     */
    probe lwlock__condacquire__fail(const char *lwlock, int mode);

    /**
     * A lightweight lock was free and was taken.
     * @param lwlock name of the tranche the lock belongs to
     * @param mode how the lock is wanted or held
     * @enum mode 0=EXCLUSIVE 1=SHARED 2=WAIT_UNTIL_FREE
     */
    probe lwlock__acquire__or__wait(const char *lwlock, int mode);

    /**
     * A lightweight lock became free after a wait and was not taken.
     * @param lwlock name of the tranche the lock belongs to
     * @param mode how the lock is wanted or held
     * @enum mode 0=EXCLUSIVE 1=SHARED 2=WAIT_UNTIL_FREE
     */
    probe lwlock__acquire__or__wait__fail(const char *lwlock, int mode);

    /**
     * A heavyweight lock is taken and the process begins to wait.
     * @param field1 first part of the lock tag: database OID or transaction ID, after its type
     * @param field2 second part of the lock tag
     * @param field3 third part of the lock tag
     * @param field4 fourth part of the lock tag
     * @param locktype type of the locked object
     * @param lockmode lock mode number
     * @enum locktype 0=relation 1=extend 2=frozenid 3=page 4=tuple 5=transactionid 6=virtualxid 7=spectoken 8=object 9=userlock 10=advisory
     * @enum lockmode 1=AccessShare 2=RowShare 3=RowExclusive 4=ShareUpdateExclusive 5=Share 6=ShareRowExclusive 7=Exclusive 8=AccessExclusive
     * @pair lock__wait__done
     */
    probe lock__wait__start(
        unsigned int field1, unsigned int field2, unsigned int field3, unsigned int field4, int locktype,
        int lockmode);

    /**
     * The wait for a heavyweight lock is over.
     * @param field1 first part of the lock tag: database OID or transaction ID, after its type
     * @param field2 second part of the lock tag
     * @param field3 third part of the lock tag
     * @param field4 fourth part of the lock tag
     * @param locktype type of the locked object
     * @param lockmode lock mode number
     * @enum locktype 0=relation 1=extend 2=frozenid 3=page 4=tuple 5=transactionid 6=virtualxid 7=spectoken 8=object 9=userlock 10=advisory
     * @enum lockmode 1=AccessShare 2=RowShare 3=RowExclusive 4=ShareUpdateExclusive 5=Share 6=ShareRowExclusive 7=Exclusive 8=AccessExclusive
     * @pair lock__wait__start
     */
    probe lock__wait__done(
        unsigned int field1, unsigned int field2, unsigned int field3, unsigned int field4, int locktype,
        int lockmode);

    /**
     * The deadlock detector found a deadlock.
     */
    probe deadlock__found();
};
