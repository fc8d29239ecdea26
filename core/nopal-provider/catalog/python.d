/*
 * python: functions, lines, garbage collection, imports and audit events of the CPython interpreter
 * (configure with --with-dtrace; Debian's python3 has it).
 */
provider python {
    /**
     * A Python function is entered.
     * @param filename file the code was read from
     * @param funcname name of the function
     * @param lineno line number
     * @pair function__return
     */
    probe function__entry(const char *filename, const char *funcname, int lineno);

    /**
     * A Python function returns or is left by an exception.
     * @param filename file the code was read from
     * @param funcname name of the function
     * @param lineno line number
     * @pair function__entry
     */
    probe function__return(const char *filename, const char *funcname, int lineno);

    /**
     * A line of Python is about to be executed.
     * @param filename file the code was read from
     * @param funcname name of the function
     * @param lineno line number
     */
    probe line(const char *filename, const char *funcname, int lineno);

    /**
     * The cyclic garbage collector begins.
     * @param generation generation that is collected, 0 to 2
     * @pair gc__done
     */
    probe gc__start(int generation);

    /**
     * The cyclic garbage collector is done.
     * @param collected objects that were found unreachable
     * @pair gc__start
     */
    probe gc__done(long collected);

    /**
     * A module that is not loaded yet is looked for.
     * @param modulename full name of the module
     * @pair import__find__load__done
     */
    probe import__find__load__start(const char *modulename);

    /**
     * A module was looked for and, if found, loaded.
     * @param modulename full name of the module
     * @param found whether it was found
     * @pair import__find__load__start
     */
    probe import__find__load__done(const char *modulename, int found);

    /**
     * An audit event is raised (sys.audit).
     * @param event name of the event
     * @param tuple the Python tuple with the arguments of the event
     */
    probe audit(const char *event, void *tuple);

    /**
     * The creation of an instance begins. Older interpreters only.
     * @param classname name of the class
     * @pair instance__new__done
     */
    probe instance__new__start(const char *classname);

    /**
     * The creation of an instance is over. Older interpreters only.
     * @param classname name of the class
     * @pair instance__new__start
     */
    probe instance__new__done(const char *classname);

    /**
     * The destruction of an instance begins. Older interpreters only.
     * @param classname name of the class
     * @pair instance__delete__done
     */
    probe instance__delete__start(const char *classname);

    /**
     * The destruction of an instance is over. Older interpreters only.
     * @param classname name of the class
     * @pair instance__delete__start
     */
    probe instance__delete__done(const char *classname);
};
