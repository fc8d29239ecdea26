/*
 * stap: the passes, the cache and the children of SystemTap's front end.
 */
provider stap {
    /**
     * Pass 0 (reading the command line) begins.
     * @param session the session object of the translator
     * @pair pass0__end
     */
    probe pass0__start(void *session);

    /**
     * Pass 0 (reading the command line) is over.
     * @param session the session object of the translator
     * @pair pass0__start
     */
    probe pass0__end(void *session);

    /**
     * Pass 2 (elaboration) begins.
     * @param session the session object of the translator
     * @pair pass2__end
     */
    probe pass2__start(void *session);

    /**
     * Pass 2 (elaboration) is over.
     * @param session the session object of the translator
     * @pair pass2__start
     */
    probe pass2__end(void *session);

    /**
     * Pass 3 (translation to C) begins.
     * @param session the session object of the translator
     * @pair pass3__end
     */
    probe pass3__start(void *session);

    /**
     * Pass 3 (translation to C) is over.
     * @param session the session object of the translator
     * @pair pass3__start
     */
    probe pass3__end(void *session);

    /**
     * Pass 4 (compilation) begins.
     * @param session the session object of the translator
     * @pair pass4__end
     */
    probe pass4__start(void *session);

    /**
     * Pass 4 (compilation) is over.
     * @param session the session object of the translator
     * @pair pass4__start
     */
    probe pass4__end(void *session);

    /**
     * Pass 5 (running) begins.
     * @param session the session object of the translator
     * @pair pass5__end
     */
    probe pass5__start(void *session);

    /**
     * Pass 5 (running) is over.
     * @param session the session object of the translator
     * @pair pass5__start
     */
    probe pass5__end(void *session);

    /**
     * Pass 6 (cleaning up) begins.
     * @param session the session object of the translator
     * @pair pass6__end
     */
    probe pass6__start(void *session);

    /**
     * Pass 6 (cleaning up) is over.
     * @param session the session object of the translator
     * @pair pass6__start
     */
    probe pass6__end(void *session);

    /**
     * Parsing of the user script begins.
     * @param session the session object of the translator
     * @pair pass1__end
     */
    probe pass1a__start(void *session);

    /**
     * Parsing of the library scripts begins.
     * @param session the session object of the translator
     */
    probe pass1b__start(void *session);

    /**
     * Parsing is over.
     * @param session the session object of the translator
     * @pair pass1a__start
     */
    probe pass1__end(void *session);

    /**
     * A compiled module is moved into the cache.
     * @param source file as it is named now
     * @param dest file in the cache
     */
    probe cache__add__module(const char *source, const char *dest);

    /**
     * C code is moved into the cache.
     * @param source file as it is named now
     * @param dest file in the cache
     */
    probe cache__add__source(const char *source, const char *dest);

    /**
     * A signature is moved into the cache. Older releases.
     * @param source file as it is named now
     * @param dest file in the cache
     */
    probe cache__add__nss(const char *source, const char *dest);

    /**
     * A file is removed from the cache.
     * @param path the file
     */
    probe cache__clean(const char *path);

    /**
     * What is wanted was found in the cache.
     * @param source C code in the cache
     * @param module module in the cache
     */
    probe cache__get(const char *source, const char *module);

    /**
     * A child process is about to be started.
     * @param command the command line
     */
    probe stap_system__start(const char *command);

    /**
     * A child process was started.
     * @param ret 0, or an error number
     * @param pid process ID of the child
     */
    probe stap_system__spawn(int ret, int pid);

    /**
     * A child process was forked off.
     * @param pid process ID of the child
     */
    probe stap_system__fork(int pid);

    /**
     * A child process has ended.
     * @param status its exit status
     * @param pid process ID of the child
     */
    probe stap_system__complete(int status, int pid);

    /**
     * The client of a compile server begins.
     * @param session the session object of the translator
     * @pair client__end
     */
    probe client__start(void *session);

    /**
     * The client of a compile server is over.
     * @param session the session object of the translator
     * @pair client__start
     */
    probe client__end(void *session);

    /**
     * A benchmark begins.
     * @pair benchmark__end
     */
    probe benchmark__start();

    /**
     * A benchmark is over.
     * @pair benchmark__start
     */
    probe benchmark__end();

    /**
     * A thread of a benchmark begins.
     * @pair benchmark__thread__end
     */
    probe benchmark__thread__start();

    /**
     * A thread of a benchmark is over.
     * @pair benchmark__thread__start
     */
    probe benchmark__thread__end();

    /**
     * One turn of a benchmark.
     * @param count number of the turn
     */
    probe benchmark(unsigned long count);

    /**
     * One turn of a benchmark of floating-point arguments.
     * @param wide a double
     * @param narrow a float
     */
    probe benchmark__fp(double wide, float narrow);
};
