/*
 * libstdcxx: exceptions of C++ programs that use the GNU C++ runtime (libstdc++.so).
 */
provider libstdcxx {
    /**
     * An exception is thrown.
     * @param object address of the exception object
     * @param tinfo its std::type_info
     * @pair catch
     */
    probe throw(void *object, void *tinfo);

    /**
     * An exception is caught.
     * @param object address of the exception object
     * @param tinfo its std::type_info
     * @pair throw
     */
    probe catch(void *object, void *tinfo);

    /**
     * A caught exception is thrown on.
     * @param object address of the exception object
     * @param tinfo its std::type_info
     */
    probe rethrow(void *object, void *tinfo);
};
