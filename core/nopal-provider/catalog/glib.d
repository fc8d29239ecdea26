/*
 * glib: memory, quarks, main loops, sources and threads of the GLib library (build with -Dsystemtap=enabled).
 */
provider glib {
    /**
     * Memory was allocated.
     * @param mem the memory
     * @param size size in bytes
     * @param zeroed whether it was filled with zeros
     * @param failable whether NULL was an allowed answer
     * @pair mem__free
     */
    probe mem__alloc(void *mem, unsigned int size, unsigned int zeroed, unsigned int failable);

    /**
     * The size of a piece of memory was changed.
     * @param mem the memory
     * @param old where it was before
     * @param size size in bytes
     * @param failable whether NULL was an allowed answer
     */
    probe mem__realloc(void *mem, void *old, unsigned int size, unsigned int failable);

    /**
     * Memory is given back.
     * @param mem the memory
     * @pair mem__alloc
     */
    probe mem__free(void *mem);

    /**
     * A slice was allocated.
     * @param mem the memory
     * @param size size in bytes
     * @pair slice__free
     */
    probe slice__alloc(void *mem, unsigned int size);

    /**
     * A slice is given back.
     * @param mem the memory
     * @param size size in bytes
     * @pair slice__alloc
     */
    probe slice__free(void *mem, unsigned int size);

    /**
     * A quark was made for a text.
     * @param text the text
     * @param quark its number
     */
    probe quark__new(const char *text, unsigned int quark);

    /**
     * A source was asked to prepare for the wait.
     * @param source the source
     * @param prepare prepare function of the source
     * @param timeout longest wait in ms; -1 is forever
     */
    probe main__after_prepare(void *source, void *prepare, unsigned int timeout);

    /**
     * A source was asked whether it is ready.
     * @param source the source
     * @param check check function of the source
     * @param isReady whether the source is ready
     */
    probe main__after_check(void *source, void *check, unsigned int isReady);

    /**
     * A source is about to be dispatched.
     * @param name name of the source, or NULL
     * @param source the source
     * @param dispatch dispatch function of the source
     * @param callback function that is called
     * @param data data handed to that function
     * @pair main__after_dispatch
     */
    probe main__before_dispatch(const char *name, void *source, void *dispatch, void *callback, void *data);

    /**
     * A source was dispatched.
     * @param name name of the source, or NULL
     * @param source the source
     * @param dispatch dispatch function of the source
     * @param isDestroyed whether the source asked to be removed
     * @pair main__before_dispatch
     */
    probe main__after_dispatch(const char *name, void *source, void *dispatch, unsigned int isDestroyed);

    /**
     * A source was added to a context.
     * @param name name of the source, or NULL
     * @param source the source
     * @param context the main context
     * @param id number of the source in that context
     * @pair main__source_destroy
     */
    probe main__source_attach(const char *name, void *source, void *context, unsigned int id);

    /**
     * A source was taken out of its context.
     * @param name name of the source, or NULL
     * @param source the source
     * @param context the main context
     * @pair main__source_attach
     */
    probe main__source_destroy(const char *name, void *source, void *context);

    /**
     * The default main context was made.
     * @param context the main context
     */
    probe main__context_default(void *context);

    /**
     * A main context was made.
     * @param context the main context
     * @pair main__context_free
     */
    probe main__context_new(void *context);

    /**
     * A thread tried to become the owner of a context.
     * @param context the main context
     * @param isOwner whether it worked
     * @pair main__context_release
     */
    probe main__context_acquire(void *context, int isOwner);

    /**
     * A thread gave up a context.
     * @param context the main context
     * @pair main__context_acquire
     */
    probe main__context_release(void *context);

    /**
     * A main context is freed.
     * @param context the main context
     * @pair main__context_new
     */
    probe main__context_free(void *context);

    /**
     * A context became the default of its thread.
     * @param context the main context
     * @pair main__context_pop_thread_default
     */
    probe main__context_push_thread_default(void *context);

    /**
     * A context is no longer the default of its thread.
     * @param context the main context
     * @pair main__context_push_thread_default
     */
    probe main__context_pop_thread_default(void *context);

    /**
     * The sources are about to be prepared.
     * @param context the main context
     * @pair main__context_after_prepare
     */
    probe main__context_before_prepare(void *context);

    /**
     * The sources are prepared.
     * @param context the main context
     * @param priority highest priority that is ready
     * @param nReady sources that are ready already
     * @pair main__context_before_prepare
     */
    probe main__context_after_prepare(void *context, int priority, unsigned int nReady);

    /**
     * The descriptors to wait for are about to be gathered.
     * @param context the main context
     * @param priority priority; lower is sooner
     * @pair main__context_after_query
     */
    probe main__context_before_query(void *context, int priority);

    /**
     * The descriptors to wait for are gathered.
     * @param context the main context
     * @param timeout longest wait in ms; -1 is forever
     * @param fds array of poll descriptors
     * @param nfds number of poll descriptors
     * @pair main__context_before_query
     */
    probe main__context_after_query(void *context, unsigned int timeout, void *fds, unsigned int nfds);

    /**
     * The sources are about to be checked after the wait.
     * @param context the main context
     * @param priority priority; lower is sooner
     * @param fds array of poll descriptors
     * @param nfds number of poll descriptors
     * @pair main__context_after_check
     */
    probe main__context_before_check(void *context, int priority, void *fds, unsigned int nfds);

    /**
     * The sources were checked.
     * @param context the main context
     * @param nReady sources that are ready
     * @pair main__context_before_check
     */
    probe main__context_after_check(void *context, unsigned int nReady);

    /**
     * The ready sources are about to be dispatched.
     * @param context the main context
     * @pair main__context_after_dispatch
     */
    probe main__context_before_dispatch(void *context);

    /**
     * The ready sources were dispatched.
     * @param context the main context
     * @pair main__context_before_dispatch
     */
    probe main__context_after_dispatch(void *context);

    /**
     * A context is woken from its wait.
     * @param context the main context
     * @pair main__context_wakeup_acknowledge
     */
    probe main__context_wakeup(void *context);

    /**
     * A context noticed that it was woken.
     * @param context the main context
     * @pair main__context_wakeup
     */
    probe main__context_wakeup_acknowledge(void *context);

    /**
     * A main loop was made.
     * @param loop the main loop
     * @param context the main context
     */
    probe main__loop_new(void *loop, void *context);

    /**
     * A main loop is to end.
     * @param loop the main loop
     */
    probe main__loop_quit(void *loop);

    /**
     * An idle function was added.
     * @param source the source
     * @param context the main context
     * @param id number of the source
     * @param priority priority; lower is sooner
     * @param callback function that is called
     * @param data data handed to that function
     */
    probe idle__add(void *source, void *context, unsigned int id, int priority, void *callback, void *data);

    /**
     * An idle function was called.
     * @param source the source
     * @param context the main context
     * @param callback function that is called
     * @param data data handed to that function
     * @param again whether the source stays
     */
    probe idle__dispatch(void *source, void *context, void *callback, void *data, unsigned int again);

    /**
     * A timeout was added.
     * @param source the source
     * @param context the main context
     * @param id number of the source
     * @param priority priority; lower is sooner
     * @param interval interval in ms
     * @param callback function that is called
     * @param data data handed to that function
     */
    probe timeout__add(
        void *source, void *context, unsigned int id, int priority, unsigned int interval, void *callback,
        void *data);

    /**
     * The function of a timeout was called.
     * @param source the source
     * @param context the main context
     * @param callback function that is called
     * @param data data handed to that function
     * @param again whether the source stays
     */
    probe timeout__dispatch(void *source, void *context, void *callback, void *data, unsigned int again);

    /**
     * A source was made.
     * @param source the source
     * @param prepare prepare function of the source
     * @param check check function of the source
     * @param dispatch dispatch function of the source
     * @param finalize finalize function of the source
     * @param size size in bytes
     * @pair source__before_free
     */
    probe source__new(void *source, void *prepare, void *check, void *dispatch, void *finalize, size_t size);

    /**
     * The function of a source was set.
     * @param source the source
     * @param callback function that is called
     * @param data data handed to that function
     * @param notify function that frees the data
     */
    probe source__set_callback(void *source, void *callback, void *data, void *notify);

    /**
     * The function of a source was set through a table.
     * @param source the source
     * @param data data handed to that function
     * @param ref takes a reference to the data
     * @param unref drops a reference to the data
     * @param get gives function and data
     */
    probe source__set_callback_indirect(void *source, void *data, void *ref, void *unref, void *get);

    /**
     * The time at which a source becomes ready was set.
     * @param source the source
     * @param readyTime monotonic time in us
     */
    probe source__set_ready_time(void *source, unsigned int readyTime);

    /**
     * The priority of a source was set.
     * @param source the source
     * @param context the main context
     * @param priority priority; lower is sooner
     */
    probe source__set_priority(void *source, void *context, unsigned int priority);

    /**
     * A source got a child.
     * @param source the source
     * @param child the child source
     */
    probe source__add_child_source(void *source, void *child);

    /**
     * A source got a name.
     * @param source the source
     * @param name name of the source, or NULL
     */
    probe source__set_name(void *source, const char *name);

    /**
     * A source is about to be freed.
     * @param source the source
     * @param context the main context
     * @param finalize finalize function of the source
     * @pair source__new
     */
    probe source__before_free(void *source, void *context, void *finalize);

    /**
     * A thread was started; fires in that thread.
     * @param function function it runs
     * @param data data handed to that function
     * @param name name of the thread, or NULL
     */
    probe thread__spawned(void *function, void *data, const char *name);

    /**
     * A reference-counted box was allocated.
     * @param mem the memory
     * @param size size in bytes
     * @param atomic whether counting is atomic
     * @param zeroed whether it was filled with zeros
     * @pair rcbox__free
     */
    probe rcbox__alloc(void *mem, unsigned int size, unsigned int atomic, unsigned int zeroed);

    /**
     * A reference to a box was taken.
     * @param mem the memory
     * @param atomic whether counting is atomic
     */
    probe rcbox__acquire(void *mem, unsigned int atomic);

    /**
     * A reference to a box was dropped.
     * @param mem the memory
     * @param atomic whether counting is atomic
     */
    probe rcbox__release(void *mem, unsigned int atomic);

    /**
     * A reference-counted box is freed.
     * @param mem the memory
     * @pair rcbox__alloc
     */
    probe rcbox__free(void *mem);
};
