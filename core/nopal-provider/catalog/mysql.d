/*
 * mysql: connections, commands, queries, rows, locks, statements, network and key cache of MySQL 5.5 to 5.7 and
 * MariaDB (build with -DENABLE_DTRACE=ON).
 */
provider mysql {
    /**
     * A client connected.
     * @param connectionid connection number, as in SHOW PROCESSLIST
     * @param user user name
     * @param host host of the client
     * @pair connection__done
     */
    probe connection__start(unsigned long connectionid, char *user, char *host);

    /**
     * A connection is over.
     * @param status 0 if it worked
     * @param connectionid connection number, as in SHOW PROCESSLIST
     * @pair connection__start
     */
    probe connection__done(int status, unsigned long connectionid);

    /**
     * A command from a client begins.
     * @param connectionid connection number, as in SHOW PROCESSLIST
     * @param command number of the command
     * @param user user name
     * @param host host of the client
     * @enum command 0=SLEEP 1=QUIT 2=INIT_DB 3=QUERY 4=FIELD_LIST 5=CREATE_DB 6=DROP_DB 7=REFRESH 8=SHUTDOWN 9=STATISTICS 10=PROCESS_INFO 11=CONNECT 12=PROCESS_KILL 13=DEBUG 14=PING 15=TIME 16=DELAYED_INSERT 17=CHANGE_USER 18=BINLOG_DUMP 22=STMT_PREPARE 23=STMT_EXECUTE 24=STMT_SEND_LONG_DATA 25=STMT_CLOSE 26=STMT_RESET 27=SET_OPTION 28=STMT_FETCH
     * @pair command__done
     */
    probe command__start(unsigned long connectionid, int command, char *user, char *host);

    /**
     * A command is done.
     * @param status 0 if it worked
     * @pair command__start
     */
    probe command__done(int status);

    /**
     * A query begins.
     * @param query text of the statement
     * @param connectionid connection number, as in SHOW PROCESSLIST
     * @param database name of the database
     * @param user user name
     * @param host host of the client
     * @pair query__done
     */
    probe query__start(char *query, unsigned long connectionid, char *database, char *user, char *host);

    /**
     * A query is done.
     * @param status 0 if it worked
     * @pair query__start
     */
    probe query__done(int status);

    /**
     * Parsing begins.
     * @param query text of the statement
     * @pair query__parse__done
     */
    probe query__parse__start(char *query);

    /**
     * Parsing is over.
     * @param status 0 if it worked
     * @pair query__parse__start
     */
    probe query__parse__done(int status);

    /**
     * The answer was in the query cache.
     * @param query text of the statement
     * @param rows number of rows
     */
    probe query__cache__hit(char *query, unsigned long rows);

    /**
     * The answer was not in the query cache.
     * @param query text of the statement
     */
    probe query__cache__miss(char *query);

    /**
     * Execution begins, after parsing.
     * @param query text of the statement
     * @param connectionid connection number, as in SHOW PROCESSLIST
     * @param database name of the database
     * @param user user name
     * @param host host of the client
     * @param execType where the statement comes from
     * @enum execType 0=query 1=prepared 2=cursor 3=procedure
     * @pair query__exec__done
     */
    probe query__exec__start(
        char *query, unsigned long connectionid, char *database, char *user, char *host, int execType);

    /**
     * Execution is over.
     * @param status 0 if it worked
     * @pair query__exec__start
     */
    probe query__exec__done(int status);

    /**
     * A row is about to be inserted.
     * @param database name of the database
     * @param table name of the table
     * @pair insert__row__done
     */
    probe insert__row__start(char *database, char *table);

    /**
     * A row was inserted.
     * @param status 0 if it worked
     * @pair insert__row__start
     */
    probe insert__row__done(int status);

    /**
     * A row is about to be updated.
     * @param database name of the database
     * @param table name of the table
     * @pair update__row__done
     */
    probe update__row__start(char *database, char *table);

    /**
     * A row was updated.
     * @param status 0 if it worked
     * @pair update__row__start
     */
    probe update__row__done(int status);

    /**
     * A row is about to be deleted.
     * @param database name of the database
     * @param table name of the table
     * @pair delete__row__done
     */
    probe delete__row__start(char *database, char *table);

    /**
     * A row was deleted.
     * @param status 0 if it worked
     * @pair delete__row__start
     */
    probe delete__row__done(int status);

    /**
     * A row is about to be read.
     * @param database name of the database
     * @param table name of the table
     * @param scan whether the whole table is scanned
     * @pair read__row__done
     */
    probe read__row__start(char *database, char *table, int scan);

    /**
     * A row was read.
     * @param status 0 if it worked
     * @pair read__row__start
     */
    probe read__row__done(int status);

    /**
     * A row is about to be read through an index.
     * @param database name of the database
     * @param table name of the table
     * @pair index__read__row__done
     */
    probe index__read__row__start(char *database, char *table);

    /**
     * A row was read through an index.
     * @param status 0 if it worked
     * @pair index__read__row__start
     */
    probe index__read__row__done(int status);

    /**
     * A read lock on a table is asked for.
     * @param database name of the database
     * @param table name of the table
     * @pair handler__rdlock__done
     */
    probe handler__rdlock__start(char *database, char *table);

    /**
     * A read lock on a table was answered.
     * @param status 0 if it worked
     * @pair handler__rdlock__start
     */
    probe handler__rdlock__done(int status);

    /**
     * A write lock on a table is asked for.
     * @param database name of the database
     * @param table name of the table
     * @pair handler__wrlock__done
     */
    probe handler__wrlock__start(char *database, char *table);

    /**
     * A write lock on a table was answered.
     * @param status 0 if it worked
     * @pair handler__wrlock__start
     */
    probe handler__wrlock__done(int status);

    /**
     * A table is about to be unlocked.
     * @param database name of the database
     * @param table name of the table
     * @pair handler__unlock__done
     */
    probe handler__unlock__start(char *database, char *table);

    /**
     * A table was unlocked.
     * @param status 0 if it worked
     * @pair handler__unlock__start
     */
    probe handler__unlock__done(int status);

    /**
     * A sort of rows begins.
     * @param database name of the database
     * @param table name of the table
     * @pair filesort__done
     */
    probe filesort__start(char *database, char *table);

    /**
     * A sort of rows is over.
     * @param status 0 if it worked
     * @param rows number of rows
     * @pair filesort__start
     */
    probe filesort__done(int status, unsigned long rows);

    /**
     * A SELECT begins.
     * @param query text of the statement
     * @pair select__done
     */
    probe select__start(char *query);

    /**
     * A SELECT is over.
     * @param status 0 if it worked
     * @param rows number of rows
     * @pair select__start
     */
    probe select__done(int status, unsigned long rows);

    /**
     * An INSERT begins.
     * @param query text of the statement
     * @pair insert__done
     */
    probe insert__start(char *query);

    /**
     * An INSERT is over.
     * @param status 0 if it worked
     * @param rows number of rows
     * @pair insert__start
     */
    probe insert__done(int status, unsigned long rows);

    /**
     * An INSERT ... SELECT begins.
     * @param query text of the statement
     * @pair insert__select__done
     */
    probe insert__select__start(char *query);

    /**
     * An INSERT ... SELECT is over.
     * @param status 0 if it worked
     * @param rows number of rows
     * @pair insert__select__start
     */
    probe insert__select__done(int status, unsigned long rows);

    /**
     * A DELETE begins.
     * @param query text of the statement
     * @pair delete__done
     */
    probe delete__start(char *query);

    /**
     * A DELETE is over.
     * @param status 0 if it worked
     * @param rows number of rows
     * @pair delete__start
     */
    probe delete__done(int status, unsigned long rows);

    /**
     * A DELETE over several tables begins.
     * @param query text of the statement
     * @pair multi__delete__done
     */
    probe multi__delete__start(char *query);

    /**
     * A DELETE over several tables is over.
     * @param status 0 if it worked
     * @param rows number of rows
     * @pair multi__delete__start
     */
    probe multi__delete__done(int status, unsigned long rows);

    /**
     * An UPDATE begins.
     * @param query text of the statement
     * @pair update__done
     */
    probe update__start(char *query);

    /**
     * An UPDATE is over.
     * @param status 0 if it worked
     * @param matches rows that matched
     * @param changes rows that changed
     * @pair update__start
     */
    probe update__done(int status, unsigned long matches, unsigned long changes);

    /**
     * An UPDATE over several tables begins.
     * @param query text of the statement
     * @pair multi__update__done
     */
    probe multi__update__start(char *query);

    /**
     * An UPDATE over several tables is over.
     * @param status 0 if it worked
     * @param matches rows that matched
     * @param changes rows that changed
     * @pair multi__update__start
     */
    probe multi__update__done(int status, unsigned long matches, unsigned long changes);

    /**
     * The server waits for data from a client.
     * @pair net__read__done
     */
    probe net__read__start();

    /**
     * Data from a client was read.
     * @param status 0 if it worked
     * @param bytes number of bytes
     * @pair net__read__start
     */
    probe net__read__done(int status, unsigned long bytes);

    /**
     * Data is about to be sent to a client.
     * @param bytes number of bytes
     * @pair net__write__done
     */
    probe net__write__start(unsigned long bytes);

    /**
     * Data was sent to a client.
     * @param status 0 if it worked
     * @pair net__write__start
     */
    probe net__write__done(int status);

    /**
     * Blocks are about to be read from the key cache.
     * @param filepath file of the index
     * @param bytes number of bytes
     * @param memUsed blocks of the key cache in use
     * @param memFree blocks of the key cache not in use
     * @pair keycache__read__done
     */
    probe keycache__read__start(char *filepath, unsigned long bytes, unsigned long memUsed, unsigned long memFree);

    /**
     * Blocks were read from the key cache.
     * @param memUsed blocks of the key cache in use
     * @param memFree blocks of the key cache not in use
     * @pair keycache__read__start
     */
    probe keycache__read__done(unsigned long memUsed, unsigned long memFree);

    /**
     * One block was read from the key cache.
     * @param bytes number of bytes
     */
    probe keycache__read__block(unsigned long bytes);

    /**
     * Blocks are about to be written to the key cache.
     * @param filepath file of the index
     * @param bytes number of bytes
     * @param memUsed blocks of the key cache in use
     * @param memFree blocks of the key cache not in use
     * @pair keycache__write__done
     */
    probe keycache__write__start(char *filepath, unsigned long bytes, unsigned long memUsed, unsigned long memFree);

    /**
     * Blocks were written to the key cache.
     * @param memUsed blocks of the key cache in use
     * @param memFree blocks of the key cache not in use
     * @pair keycache__write__start
     */
    probe keycache__write__done(unsigned long memUsed, unsigned long memFree);

    /**
     * One block was written to the key cache.
     * @param bytes number of bytes
     */
    probe keycache__write__block(unsigned long bytes);

    /**
     * A block was in the key cache.
     */
    probe keycache__read__hit();

    /**
     * A block was not in the key cache and comes from the file.
     */
    probe keycache__read__miss();
};
