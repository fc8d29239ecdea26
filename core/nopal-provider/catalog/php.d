/*
 * php: requests, compilation, execution, functions, errors and exceptions of the PHP engine (configure with
 * --enable-dtrace; Debian's PHP has it). compile, execute and function probes
 * need USE_ZEND_DTRACE=1 in the environment.
 */
provider php {
    /**
     * A request begins.
     * @param request_file path of the script
     * @param request_uri URI of the request; - if there is none
     * @param request_method HTTP method; - if there is none
     * @pair request__shutdown
     */
    probe request__startup(const char *request_file, const char *request_uri, const char *request_method);

    /**
     * A request is over.
     * @param request_file path of the script
     * @param request_uri URI of the request; - if there is none
     * @param request_method HTTP method; - if there is none
     * @pair request__startup
     */
    probe request__shutdown(const char *request_file, const char *request_uri, const char *request_method);

    /**
     * The compilation of a script begins.
     * @param compile_file file as it was named
     * @param compile_file_translated file as it was resolved
     * @pair compile__file__return
     */
    probe compile__file__entry(const char *compile_file, const char *compile_file_translated);

    /**
     * The execution of a block of opcodes begins.
     * @param request_file file that is executed
     * @param lineno line number
     * @pair execute__return
     */
    probe execute__entry(const char *request_file, int lineno);

    /**
     * A call of a function begins.
     * @param function_name name of the function
     * @param request_file file of the caller
     * @param lineno line number
     * @param classname name of the class, or an empty text
     * @param scope the operator between class and function: ::, -> or an empty text
     * @pair function__return
     */
    probe function__entry(
        const char *function_name, const char *request_file, int lineno, const char *classname, const char *scope);

    /**
     * The compilation of a script is over.
     * @param compile_file file as it was named
     * @param compile_file_translated file as it was resolved
     * @pair compile__file__entry
     */
    probe compile__file__return(const char *compile_file, const char *compile_file_translated);

    /**
     * The execution of a block of opcodes is over.
     * @param request_file file that is executed
     * @param lineno line number
     * @pair execute__entry
     */
    probe execute__return(const char *request_file, int lineno);

    /**
     * A call of a function is over.
     * @param function_name name of the function
     * @param request_file file of the caller
     * @param lineno line number
     * @param classname name of the class, or an empty text
     * @param scope the operator between class and function: ::, -> or an empty text
     * @pair function__entry
     */
    probe function__return(
        const char *function_name, const char *request_file, int lineno, const char *classname, const char *scope);

    /**
     * An error, warning or notice is reported.
     * @param errormsg text of the error
     * @param request_file file it happened in
     * @param lineno line number
     */
    probe error(const char *errormsg, const char *request_file, unsigned int lineno);

    /**
     * An exception is thrown.
     * @param classname class of the exception, or an empty text
     */
    probe exception__thrown(const char *classname);

    /**
     * An exception is caught.
     * @param classname class of the exception, or an empty text
     */
    probe exception__caught(const char *classname);
};
