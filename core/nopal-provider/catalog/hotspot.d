/*
 * hotspot: life cycle, classes, threads, garbage collection, compilation and monitors of OpenJDK's HotSpot virtual
 * machine (libjvm.so). Texts are modified UTF-8, not NUL-terminated: the length is the argument behind each.
 * method__entry and method__return need -XX:+DTraceMethodProbes, object__alloc -XX:+DTraceAllocProbes, monitor__*
 * -XX:+DTraceMonitorProbes, or all of them -XX:+ExtendedDTraceProbes.
 */
provider hotspot {
    /**
     * Initialization of the virtual machine begins.
     * @pair vm__init__end
     */
    probe vm__init__begin();

    /**
     * Initialization is over; application code is about to run.
     * @pair vm__init__begin
     */
    probe vm__init__end();

    /**
     * The virtual machine shuts down.
     */
    probe vm__shutdown();

    /**
     * A thread starts.
     * @param threadName name of the thread
     * @param threadLen its length in bytes
     * @param javaId ID of the Java thread
     * @param osId ID of the operating system thread
     * @param isDaemon whether it is a daemon thread
     * @length threadName threadLen
     * @pair thread__stop
     */
    probe thread__start(char *threadName, int threadLen, long javaId, unsigned long osId, bool isDaemon);

    /**
     * A thread has ended.
     * @param threadName name of the thread
     * @param threadLen its length in bytes
     * @param javaId ID of the Java thread
     * @param osId ID of the operating system thread
     * @param isDaemon whether it is a daemon thread
     * @length threadName threadLen
     * @pair thread__start
     */
    probe thread__stop(char *threadName, int threadLen, long javaId, unsigned long osId, bool isDaemon);

    /**
     * A thread begins to sleep.
     * @param millis time to sleep, in ms
     * @pair thread__sleep__end
     */
    probe thread__sleep__begin(int64_t millis);

    /**
     * A thread is done sleeping.
     * @param interrupted whether the sleep was interrupted
     * @pair thread__sleep__begin
     */
    probe thread__sleep__end(int interrupted);

    /**
     * A thread gives the processor away.
     */
    probe thread__yield();

    /**
     * A thread parks itself.
     * @param parker identifies the parker of the thread
     * @param isAbsolute whether the time is a point in time (ms since the epoch)
     * @param timeout how long or until when; 0 is forever
     * @pair thread__park__end
     */
    probe thread__park__begin(void *parker, int isAbsolute, int64_t timeout);

    /**
     * A thread is no longer parked.
     * @param parker identifies the parker of the thread
     * @pair thread__park__begin
     */
    probe thread__park__end(void *parker);

    /**
     * A parked thread is to go on.
     * @param parker identifies the parker of the thread
     */
    probe thread__unpark(void *parker);

    /**
     * A class was loaded.
     * @param className name of the class, with slashes
     * @param classLen its length in bytes
     * @param loader identifies the class loader
     * @param isShared whether the class comes from the shared archive
     * @length className classLen
     * @pair class__unloaded
     */
    probe class__loaded(char *className, int classLen, void *loader, bool isShared);

    /**
     * A class is unloaded.
     * @param className name of the class, with slashes
     * @param classLen its length in bytes
     * @param loader identifies the class loader
     * @param isShared whether the class comes from the shared archive
     * @length className classLen
     * @pair class__loaded
     */
    probe class__unloaded(char *className, int classLen, void *loader, bool isShared);

    /**
     * A class that needs initialization is used.
     * @param className name of the class, with slashes
     * @param classLen its length in bytes
     * @param loader identifies the class loader
     * @param threadType always -1 today
     * @length className classLen
     * @pair class__initialization__end
     */
    probe class__initialization__required(char *className, int classLen, void *loader, int threadType);

    /**
     * The thread is initializing this class already.
     * @param className name of the class, with slashes
     * @param classLen its length in bytes
     * @param loader identifies the class loader
     * @param threadType always -1 today
     * @param waited whether the thread had to wait for another one that initialized the class
     * @length className classLen
     */
    probe class__initialization__recursive(char *className, int classLen, void *loader, int threadType, bool waited);

    /**
     * Another thread has initialized the class meanwhile.
     * @param className name of the class, with slashes
     * @param classLen its length in bytes
     * @param loader identifies the class loader
     * @param threadType always -1 today
     * @param waited whether the thread had to wait for another one that initialized the class
     * @length className classLen
     */
    probe class__initialization__concurrent(char *className, int classLen, void *loader, int threadType, bool waited);

    /**
     * The class failed to initialize earlier.
     * @param className name of the class, with slashes
     * @param classLen its length in bytes
     * @param loader identifies the class loader
     * @param threadType always -1 today
     * @param waited whether the thread had to wait for another one that initialized the class
     * @length className classLen
     */
    probe class__initialization__erroneous(char *className, int classLen, void *loader, int threadType, bool waited);

    /**
     * The superclass failed to initialize.
     * @param className name of the class, with slashes
     * @param classLen its length in bytes
     * @param loader identifies the class loader
     * @param threadType always -1 today
     * @param waited whether the thread had to wait for another one that initialized the class
     * @length className classLen
     */
    probe class__initialization__super__failed(
        char *className, int classLen, void *loader, int threadType, bool waited);

    /**
     * The static initializer is about to run.
     * @param className name of the class, with slashes
     * @param classLen its length in bytes
     * @param loader identifies the class loader
     * @param threadType always -1 today
     * @param waited whether the thread had to wait for another one that initialized the class
     * @length className classLen
     */
    probe class__initialization__clinit(char *className, int classLen, void *loader, int threadType, bool waited);

    /**
     * The static initializer threw an exception.
     * @param className name of the class, with slashes
     * @param classLen its length in bytes
     * @param loader identifies the class loader
     * @param threadType always -1 today
     * @param waited whether the thread had to wait for another one that initialized the class
     * @length className classLen
     */
    probe class__initialization__error(char *className, int classLen, void *loader, int threadType, bool waited);

    /**
     * The class is initialized.
     * @param className name of the class, with slashes
     * @param classLen its length in bytes
     * @param loader identifies the class loader
     * @param threadType always -1 today
     * @param waited whether the thread had to wait for another one that initialized the class
     * @length className classLen
     * @pair class__initialization__required
     */
    probe class__initialization__end(char *className, int classLen, void *loader, int threadType, bool waited);

    /**
     * A garbage collection begins.
     * @param isFull whether it is a full collection
     * @pair gc__end
     */
    probe gc__begin(bool isFull);

    /**
     * A garbage collection is over.
     * @pair gc__begin
     */
    probe gc__end();

    /**
     * Collection of one memory pool begins.
     * @param manager name of the memory manager
     * @param managerLen its length in bytes
     * @param pool name of the memory pool
     * @param poolLen its length in bytes
     * @param initialSize initial size in bytes
     * @param used bytes in use
     * @param committed bytes committed
     * @param maxSize maximum size in bytes
     * @length manager managerLen
     * @length pool poolLen
     * @pair mem__pool__gc__end
     */
    probe mem__pool__gc__begin(
        char *manager, size_t managerLen, char *pool, size_t poolLen, size_t initialSize, size_t used,
        size_t committed, size_t maxSize);

    /**
     * Collection of one memory pool is over.
     * @param manager name of the memory manager
     * @param managerLen its length in bytes
     * @param pool name of the memory pool
     * @param poolLen its length in bytes
     * @param initialSize initial size in bytes
     * @param used bytes in use
     * @param committed bytes committed
     * @param maxSize maximum size in bytes
     * @length manager managerLen
     * @length pool poolLen
     * @pair mem__pool__gc__begin
     */
    probe mem__pool__gc__end(
        char *manager, size_t managerLen, char *pool, size_t poolLen, size_t initialSize, size_t used,
        size_t committed, size_t maxSize);

    /**
     * Compilation of a method begins.
     * @param compiler name of the compiler
     * @param compilerLen its length in bytes
     * @param className name of the class, with slashes
     * @param classLen its length in bytes
     * @param methodName name of the method
     * @param methodLen its length in bytes
     * @param signature signature of the method
     * @param signatureLen its length in bytes
     * @length compiler compilerLen
     * @length className classLen
     * @length methodName methodLen
     * @length signature signatureLen
     * @pair method__compile__end
     */
    probe method__compile__begin(
        char *compiler, size_t compilerLen, char *className, int classLen, char *methodName, int methodLen,
        char *signature, int signatureLen);

    /**
     * Compilation of a method is over.
     * @param compiler name of the compiler
     * @param compilerLen its length in bytes
     * @param className name of the class, with slashes
     * @param classLen its length in bytes
     * @param methodName name of the method
     * @param methodLen its length in bytes
     * @param signature signature of the method
     * @param signatureLen its length in bytes
     * @param isOk whether the compilation worked
     * @length compiler compilerLen
     * @length className classLen
     * @length methodName methodLen
     * @length signature signatureLen
     * @pair method__compile__begin
     */
    probe method__compile__end(
        char *compiler, size_t compilerLen, char *className, int classLen, char *methodName, int methodLen,
        char *signature, int signatureLen, bool isOk);

    /**
     * Compiled code of a method becomes active.
     * @param className name of the class, with slashes
     * @param classLen its length in bytes
     * @param methodName name of the method
     * @param methodLen its length in bytes
     * @param signature signature of the method
     * @param signatureLen its length in bytes
     * @param code start of the machine code
     * @param codeSize its size in bytes
     * @length className classLen
     * @length methodName methodLen
     * @length signature signatureLen
     * @pair compiled__method__unload
     */
    probe compiled__method__load(
        char *className, int classLen, char *methodName, int methodLen, char *signature, int signatureLen, void *code,
        int codeSize);

    /**
     * Compiled code of a method is dropped.
     * @param className name of the class, with slashes
     * @param classLen its length in bytes
     * @param methodName name of the method
     * @param methodLen its length in bytes
     * @param signature signature of the method
     * @param signatureLen its length in bytes
     * @length className classLen
     * @length methodName methodLen
     * @length signature signatureLen
     * @pair compiled__method__load
     */
    probe compiled__method__unload(
        char *className, int classLen, char *methodName, int methodLen, char *signature, int signatureLen);

    /**
     * A method is entered.
     * @param javaId ID of the Java thread
     * @param className name of the class, with slashes
     * @param classLen its length in bytes
     * @param methodName name of the method
     * @param methodLen its length in bytes
     * @param signature signature of the method
     * @param signatureLen its length in bytes
     * @length className classLen
     * @length methodName methodLen
     * @length signature signatureLen
     * @pair method__return
     */
    probe method__entry(
        long javaId, char *className, int classLen, char *methodName, int methodLen, char *signature,
        int signatureLen);

    /**
     * A method is left, normally or by an exception.
     * @param javaId ID of the Java thread
     * @param className name of the class, with slashes
     * @param classLen its length in bytes
     * @param methodName name of the method
     * @param methodLen its length in bytes
     * @param signature signature of the method
     * @param signatureLen its length in bytes
     * @length className classLen
     * @length methodName methodLen
     * @length signature signatureLen
     * @pair method__entry
     */
    probe method__return(
        long javaId, char *className, int classLen, char *methodName, int methodLen, char *signature,
        int signatureLen);

    /**
     * An object is allocated.
     * @param javaId ID of the Java thread
     * @param className name of the class, with slashes
     * @param classLen its length in bytes
     * @param objectSize size in bytes
     * @length className classLen
     */
    probe object__alloc(long javaId, char *className, int classLen, int objectSize);

    /**
     * A thread wants a monitor that another one holds.
     * @param javaId ID of the Java thread
     * @param monitor identifies the monitor
     * @param className class of the object the monitor belongs to
     * @param classLen its length in bytes
     * @length className classLen
     * @pair monitor__contended__entered
     */
    probe monitor__contended__enter(long javaId, uintptr_t monitor, char *className, int classLen);

    /**
     * A thread got a monitor it had to wait for.
     * @param javaId ID of the Java thread
     * @param monitor identifies the monitor
     * @param className class of the object the monitor belongs to
     * @param classLen its length in bytes
     * @length className classLen
     * @pair monitor__contended__enter
     */
    probe monitor__contended__entered(long javaId, uintptr_t monitor, char *className, int classLen);

    /**
     * A thread leaves a monitor others wait for.
     * @param javaId ID of the Java thread
     * @param monitor identifies the monitor
     * @param className class of the object the monitor belongs to
     * @param classLen its length in bytes
     * @length className classLen
     */
    probe monitor__contended__exit(long javaId, uintptr_t monitor, char *className, int classLen);

    /**
     * A thread wakes one waiter (Object.notify).
     * @param javaId ID of the Java thread
     * @param monitor identifies the monitor
     * @param className class of the object the monitor belongs to
     * @param classLen its length in bytes
     * @length className classLen
     */
    probe monitor__notify(long javaId, uintptr_t monitor, char *className, int classLen);

    /**
     * A thread wakes all waiters (Object.notifyAll).
     * @param javaId ID of the Java thread
     * @param monitor identifies the monitor
     * @param className class of the object the monitor belongs to
     * @param classLen its length in bytes
     * @length className classLen
     */
    probe monitor__notifyAll(long javaId, uintptr_t monitor, char *className, int classLen);

    /**
     * Object.wait begins.
     * @param javaId ID of the Java thread
     * @param monitor identifies the monitor
     * @param className class of the object the monitor belongs to
     * @param classLen its length in bytes
     * @param timeout longest time to wait, in ms; 0 is forever
     * @length className classLen
     * @pair monitor__waited
     */
    probe monitor__wait(long javaId, uintptr_t monitor, char *className, int classLen, long timeout);

    /**
     * Object.wait is over.
     * @param javaId ID of the Java thread
     * @param monitor identifies the monitor
     * @param className class of the object the monitor belongs to
     * @param classLen its length in bytes
     * @length className classLen
     * @pair monitor__wait
     */
    probe monitor__waited(long javaId, uintptr_t monitor, char *className, int classLen);

    /**
     * A thread asks for a VM operation.
     * @param op name of the operation
     * @param opLen its length in bytes
     * @param opMode where the operation runs
     * @length op opLen
     * @enum opMode 0=safepoint 1=no_safepoint 2=concurrent 3=async_safepoint
     */
    probe vmops__request(char *op, size_t opLen, int opMode);

    /**
     * A VM operation begins.
     * @param op name of the operation
     * @param opLen its length in bytes
     * @param opMode where the operation runs
     * @length op opLen
     * @enum opMode 0=safepoint 1=no_safepoint 2=concurrent 3=async_safepoint
     * @pair vmops__end
     */
    probe vmops__begin(char *op, size_t opLen, int opMode);

    /**
     * A VM operation is over.
     * @param op name of the operation
     * @param opLen its length in bytes
     * @param opMode where the operation runs
     * @length op opLen
     * @enum opMode 0=safepoint 1=no_safepoint 2=concurrent 3=async_safepoint
     * @pair vmops__begin
     */
    probe vmops__end(char *op, size_t opLen, int opMode);
};
