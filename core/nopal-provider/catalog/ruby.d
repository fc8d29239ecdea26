/*
 * ruby: methods, objects, loading, parsing and garbage collection of the Ruby interpreter
 * (configure with --enable-dtrace; Debian's libruby has it). method__entry and method__return stay silent in recent
 * releases unless a TracePoint of :call or :return is enabled; cmethod__entry and cmethod__return always fire.
 */
provider ruby {
    /**
     * A method written in Ruby is entered.
     * @param classname name of the class
     * @param methodname name of the method
     * @param filename file that is running, or an empty text
     * @param lineno line that is running
     * @pair method__return
     */
    probe method__entry(const char *classname, const char *methodname, const char *filename, int lineno);

    /**
     * A method written in Ruby is left.
     * @param classname name of the class
     * @param methodname name of the method
     * @param filename file that is running, or an empty text
     * @param lineno line that is running
     * @pair method__entry
     */
    probe method__return(const char *classname, const char *methodname, const char *filename, int lineno);

    /**
     * A method written in C is entered.
     * @param classname name of the class
     * @param methodname name of the method
     * @param filename file that is running, or an empty text
     * @param lineno line that is running
     * @pair cmethod__return
     */
    probe cmethod__entry(const char *classname, const char *methodname, const char *filename, int lineno);

    /**
     * A method written in C is left.
     * @param classname name of the class
     * @param methodname name of the method
     * @param filename file that is running, or an empty text
     * @param lineno line that is running
     * @pair cmethod__entry
     */
    probe cmethod__return(const char *classname, const char *methodname, const char *filename, int lineno);

    /**
     * A require begins.
     * @param path file that is wanted
     * @param filename file that is running, or an empty text
     * @param lineno line that is running
     * @pair require__return
     */
    probe require__entry(const char *path, const char *filename, int lineno);

    /**
     * A require is over.
     * @param path file that is wanted
     * @param filename file that is running, or an empty text
     * @param lineno line that is running
     * @pair require__entry
     */
    probe require__return(const char *path, const char *filename, int lineno);

    /**
     * The search for the file of a require begins.
     * @param path file that is wanted
     * @param filename file that is running, or an empty text
     * @param lineno line that is running
     * @pair find__require__return
     */
    probe find__require__entry(const char *path, const char *filename, int lineno);

    /**
     * The search for the file of a require is over.
     * @param path file that is wanted
     * @param filename file that is running, or an empty text
     * @param lineno line that is running
     * @pair find__require__entry
     */
    probe find__require__return(const char *path, const char *filename, int lineno);

    /**
     * A load begins.
     * @param path file that is wanted
     * @param filename file that is running, or an empty text
     * @param lineno line that is running
     * @pair load__return
     */
    probe load__entry(const char *path, const char *filename, int lineno);

    /**
     * A load is over.
     * @param path file that is wanted
     * @param filename file that is running, or an empty text
     * @param lineno line that is running
     * @pair load__entry
     */
    probe load__return(const char *path, const char *filename, int lineno);

    /**
     * An exception is raised.
     * @param classname class of the exception
     * @param filename file that is running, or an empty text
     * @param lineno line that is running
     */
    probe raise(const char *classname, const char *filename, int lineno);

    /**
     * An object is made with new.
     * @param classname name of the class
     * @param filename file that is running, or an empty text
     * @param lineno line that is running
     */
    probe object__create(const char *classname, const char *filename, int lineno);

    /**
     * An array is made.
     * @param length number of elements asked for
     * @param filename file that is running, or an empty text
     * @param lineno line that is running
     */
    probe array__create(long length, const char *filename, int lineno);

    /**
     * A hash is made.
     * @param length number of elements asked for
     * @param filename file that is running, or an empty text
     * @param lineno line that is running
     */
    probe hash__create(long length, const char *filename, int lineno);

    /**
     * A string is made.
     * @param length number of elements asked for
     * @param filename file that is running, or an empty text
     * @param lineno line that is running
     */
    probe string__create(long length, const char *filename, int lineno);

    /**
     * A symbol is made from a text.
     * @param symbol the text of the symbol
     * @param filename file that is running, or an empty text
     * @param lineno line that is running
     */
    probe symbol__create(const char *symbol, const char *filename, int lineno);

    /**
     * Parsing of a source begins.
     * @param source name of the source
     * @param lineno line the parser is at
     * @pair parse__end
     */
    probe parse__begin(const char *source, int lineno);

    /**
     * Parsing of a source is over.
     * @param source name of the source
     * @param lineno line the parser is at
     * @pair parse__begin
     */
    probe parse__end(const char *source, int lineno);

    /**
     * The mark phase of garbage collection begins.
     * @pair gc__mark__end
     */
    probe gc__mark__begin();

    /**
     * The mark phase of garbage collection is over.
     * @pair gc__mark__begin
     */
    probe gc__mark__end();

    /**
     * The sweep phase of garbage collection begins.
     * @pair gc__sweep__end
     */
    probe gc__sweep__begin();

    /**
     * The sweep phase of garbage collection is over.
     * @pair gc__sweep__begin
     */
    probe gc__sweep__end();

    /**
     * A method cache is cleared. Before Ruby 3.0.
     * @param classname class whose cache goes, or global
     * @param filename file that is running, or an empty text
     * @param lineno line that is running
     */
    probe method__cache__clear(const char *classname, const char *filename, int lineno);

    /**
     * An instruction of the virtual machine is executed. Only in interpreters built to collect statistics.
     * @param insn name of the instruction
     */
    probe insn(const char *insn);

    /**
     * An operand of an instruction. Only in interpreters built to collect statistics.
     * @param value the operand as text
     * @param insn name of the instruction
     */
    probe insn__operand(const char *value, const char *insn);
};
