/*
 * gobject: types, objects and signals of the GObject library (build with -Dsystemtap=enabled).
 */
provider gobject {
    /**
     * A type was registered.
     * @param name name of the type
     * @param parent number of the parent type
     * @param gtype number of its type
     */
    probe type__new(const char *name, unsigned long parent, unsigned long gtype);

    /**
     * An object was made.
     * @param object the object
     * @param gtype number of its type
     */
    probe object__new(void *object, unsigned long gtype);

    /**
     * A reference to an object is taken.
     * @param object the object
     * @param gtype number of its type
     * @param refs references before the call
     */
    probe object__ref(void *object, unsigned long gtype, unsigned int refs);

    /**
     * A reference to an object is dropped.
     * @param object the object
     * @param gtype number of its type
     * @param refs references before the call
     */
    probe object__unref(void *object, unsigned long gtype, unsigned int refs);

    /**
     * An object is about to let go of other objects.
     * @param object the object
     * @param gtype number of its type
     * @param last 1 after the last reference went, 0 if dispose was asked for
     * @pair object__dispose__end
     */
    probe object__dispose(void *object, unsigned long gtype, unsigned int last);

    /**
     * An object has let go of other objects.
     * @param object the object
     * @param gtype number of its type
     * @param last 1 after the last reference went, 0 if dispose was asked for
     * @pair object__dispose
     */
    probe object__dispose__end(void *object, unsigned long gtype, unsigned int last);

    /**
     * An object is about to be finalized.
     * @param object the object
     * @param gtype number of its type
     * @pair object__finalize__end
     */
    probe object__finalize(void *object, unsigned long gtype);

    /**
     * An object was finalized; its memory is gone next.
     * @param object the object
     * @param gtype number of its type
     * @pair object__finalize
     */
    probe object__finalize__end(void *object, unsigned long gtype);

    /**
     * A signal was registered.
     * @param signal number of the signal
     * @param name name of the signal
     * @param gtype type it belongs to
     */
    probe signal__new(unsigned int signal, const char *name, unsigned long gtype);

    /**
     * A signal is emitted.
     * @param signal number of the signal
     * @param detail quark of the detail; 0 if none
     * @param instance object the signal belongs to
     * @param gtype number of its type
     * @pair signal__emit__end
     */
    probe signal__emit(unsigned int signal, unsigned int detail, void *instance, unsigned long gtype);

    /**
     * A signal was emitted and its handlers have run.
     * @param signal number of the signal
     * @param detail quark of the detail; 0 if none
     * @param instance object the signal belongs to
     * @param gtype number of its type
     * @pair signal__emit
     */
    probe signal__emit__end(unsigned int signal, unsigned int detail, void *instance, unsigned long gtype);
};
