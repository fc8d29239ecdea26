/*
 * php: requests, compilation, execution, functions, errors and exceptions of the PHP engine (configure with
 * --enable-dtrace; Debian's PHP has it). compile, execute and function probes
 * need USE_ZEND_DTRACE=1 in the environment.
 */
provider php {
    /**
     * A request begins.
     * @param requestFile path of the script
     * @param requestUri URI of the request; - if there is none
     * @param requestMethod HTTP method; - if there is none
     * @pair request__shutdown
     */
    probe request__startup(const char *requestFile, const char *requestUri, const char *requestMethod);

    /**
     * A request is over.
     * @param requestFile path of the script
     * @param requestUri URI of the request; - if there is none
     * @param requestMethod HTTP method; - if there is none
     * @pair request__startup
     */
    probe request__shutdown(const char *requestFile, const char *requestUri, const char *requestMethod);

    /**
     * The compilation of a script begins.
     * @param compileFile file as it was named
     * @param compileFileTranslated file as it was resolved
     * @pair compile__file__return
     */
    probe compile__file__entry(const char *compileFile, const char *compileFileTranslated);

    /**
     * The execution of a block of opcodes begins.
     * @param requestFile file that is executed
     * @param lineno line number
     * @pair execute__return
     */
    probe execute__entry(const char *requestFile, int lineno);

    /**
     * A call of a function begins.
     * @param functionName name of the function
     * @param requestFile file of the caller
     * @param lineno line number
     * @param className name of the class, or an empty text
     * @param scope the operator between class and function: ::, -> or an empty text
     * @pair function__return
     */
    probe function__entry(
        const char *functionName, const char *requestFile, int lineno, const char *className, const char *scope);

    /**
     * The compilation of a script is over.
     * @param compileFile file as it was named
     * @param compileFileTranslated file as it was resolved
     * @pair compile__file__entry
     */
    probe compile__file__return(const char *compileFile, const char *compileFileTranslated);

    /**
     * The execution of a block of opcodes is over.
     * @param requestFile file that is executed
     * @param lineno line number
     * @pair execute__entry
     */
    probe execute__return(const char *requestFile, int lineno);

    /**
     * A call of a function is over.
     * @param functionName name of the function
     * @param requestFile file of the caller
     * @param lineno line number
     * @param className name of the class, or an empty text
     * @param scope the operator between class and function: ::, -> or an empty text
     * @pair function__entry
     */
    probe function__return(
        const char *functionName, const char *requestFile, int lineno, const char *className, const char *scope);

    /**
     * An error, warning or notice is reported.
     * @param message text of the error
     * @param requestFile file it happened in
     * @param lineno line number
     */
    probe error(const char *message, const char *requestFile, unsigned int lineno);

    /**
     * An exception is thrown.
     * @param className class of the exception, or an empty text
     */
    probe exception__thrown(const char *className);

    /**
     * An exception is caught.
     * @param className class of the exception, or an empty text
     */
    probe exception__caught(const char *className);
};
