/*
 * hotspot_jni: calls into the Java Native Interface of OpenJDK's HotSpot virtual machine (libjvm.so).
 * Every function has a probe at its entry and one at its return; references are opaque handles, not object
 * addresses. Method arguments and floating-point values are not passed. No option of the machine is needed.
 */
provider hotspot_jni {
    /**
     * AllocObject begins: makes an object without running a constructor.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @pair AllocObject__return
     */
    probe AllocObject__entry(void *env, void *clazz);

    /**
     * AllocObject is over.
     * @param result what the call gives back; NULL after a failure
     * @pair AllocObject__entry
     */
    probe AllocObject__return(void *result);

    /**
     * AttachCurrentThread begins: attaches the calling thread.
     * @param vm the Java virtual machine
     * @param penv where the environment pointer goes
     * @param args thread name and group, or NULL
     * @pair AttachCurrentThread__return
     */
    probe AttachCurrentThread__entry(void *vm, void *penv, void *args);

    /**
     * AttachCurrentThread is over.
     * @param result 0, or a JNI error number below 0
     * @enum result 0=OK -1=ERR -2=EDETACHED -3=EVERSION -4=ENOMEM -5=EEXIST -6=EINVAL
     * @pair AttachCurrentThread__entry
     */
    probe AttachCurrentThread__return(int result);

    /**
     * AttachCurrentThreadAsDaemon begins: attaches the calling thread as a daemon.
     * @param vm the Java virtual machine
     * @param penv where the environment pointer goes
     * @param args thread name and group, or NULL
     * @pair AttachCurrentThreadAsDaemon__return
     */
    probe AttachCurrentThreadAsDaemon__entry(void *vm, void *penv, void *args);

    /**
     * AttachCurrentThreadAsDaemon is over.
     * @param result 0, or a JNI error number below 0
     * @enum result 0=OK -1=ERR -2=EDETACHED -3=EVERSION -4=ENOMEM -5=EEXIST -6=EINVAL
     * @pair AttachCurrentThreadAsDaemon__entry
     */
    probe AttachCurrentThreadAsDaemon__return(int result);

    /**
     * CallBooleanMethod begins: calls an instance method that returns a boolean; takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallBooleanMethod__return
     */
    probe CallBooleanMethod__entry(void *env, void *obj, void *methodID);

    /**
     * CallBooleanMethod is over.
     * @param result what the call gives back
     * @pair CallBooleanMethod__entry
     */
    probe CallBooleanMethod__return(bool result);

    /**
     * CallBooleanMethodA begins: calls an instance method that returns a boolean; takes an argument array.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallBooleanMethodA__return
     */
    probe CallBooleanMethodA__entry(void *env, void *obj, void *methodID);

    /**
     * CallBooleanMethodA is over.
     * @param result what the call gives back
     * @pair CallBooleanMethodA__entry
     */
    probe CallBooleanMethodA__return(bool result);

    /**
     * CallBooleanMethodV begins: calls an instance method that returns a boolean; takes a va_list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallBooleanMethodV__return
     */
    probe CallBooleanMethodV__entry(void *env, void *obj, void *methodID);

    /**
     * CallBooleanMethodV is over.
     * @param result what the call gives back
     * @pair CallBooleanMethodV__entry
     */
    probe CallBooleanMethodV__return(bool result);

    /**
     * CallByteMethod begins: calls an instance method that returns a byte; takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallByteMethod__return
     */
    probe CallByteMethod__entry(void *env, void *obj, void *methodID);

    /**
     * CallByteMethod is over.
     * @param result what the call gives back
     * @pair CallByteMethod__entry
     */
    probe CallByteMethod__return(int8_t result);

    /**
     * CallByteMethodA begins: calls an instance method that returns a byte; takes an argument array.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallByteMethodA__return
     */
    probe CallByteMethodA__entry(void *env, void *obj, void *methodID);

    /**
     * CallByteMethodA is over.
     * @param result what the call gives back
     * @pair CallByteMethodA__entry
     */
    probe CallByteMethodA__return(int8_t result);

    /**
     * CallByteMethodV begins: calls an instance method that returns a byte; takes a va_list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallByteMethodV__return
     */
    probe CallByteMethodV__entry(void *env, void *obj, void *methodID);

    /**
     * CallByteMethodV is over.
     * @param result what the call gives back
     * @pair CallByteMethodV__entry
     */
    probe CallByteMethodV__return(int8_t result);

    /**
     * CallCharMethod begins: calls an instance method that returns a char; takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallCharMethod__return
     */
    probe CallCharMethod__entry(void *env, void *obj, void *methodID);

    /**
     * CallCharMethod is over.
     * @param result what the call gives back
     * @pair CallCharMethod__entry
     */
    probe CallCharMethod__return(unsigned short result);

    /**
     * CallCharMethodA begins: calls an instance method that returns a char; takes an argument array.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallCharMethodA__return
     */
    probe CallCharMethodA__entry(void *env, void *obj, void *methodID);

    /**
     * CallCharMethodA is over.
     * @param result what the call gives back
     * @pair CallCharMethodA__entry
     */
    probe CallCharMethodA__return(unsigned short result);

    /**
     * CallCharMethodV begins: calls an instance method that returns a char; takes a va_list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallCharMethodV__return
     */
    probe CallCharMethodV__entry(void *env, void *obj, void *methodID);

    /**
     * CallCharMethodV is over.
     * @param result what the call gives back
     * @pair CallCharMethodV__entry
     */
    probe CallCharMethodV__return(unsigned short result);

    /**
     * CallDoubleMethod begins: calls an instance method that returns a double; takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallDoubleMethod__return
     */
    probe CallDoubleMethod__entry(void *env, void *obj, void *methodID);

    /**
     * CallDoubleMethod is over. The floating-point result is not passed.
     * @pair CallDoubleMethod__entry
     */
    probe CallDoubleMethod__return();

    /**
     * CallDoubleMethodA begins: calls an instance method that returns a double; takes an argument array.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallDoubleMethodA__return
     */
    probe CallDoubleMethodA__entry(void *env, void *obj, void *methodID);

    /**
     * CallDoubleMethodA is over. The floating-point result is not passed.
     * @pair CallDoubleMethodA__entry
     */
    probe CallDoubleMethodA__return();

    /**
     * CallDoubleMethodV begins: calls an instance method that returns a double; takes a va_list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallDoubleMethodV__return
     */
    probe CallDoubleMethodV__entry(void *env, void *obj, void *methodID);

    /**
     * CallDoubleMethodV is over. The floating-point result is not passed.
     * @pair CallDoubleMethodV__entry
     */
    probe CallDoubleMethodV__return();

    /**
     * CallFloatMethod begins: calls an instance method that returns a float; takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallFloatMethod__return
     */
    probe CallFloatMethod__entry(void *env, void *obj, void *methodID);

    /**
     * CallFloatMethod is over. The floating-point result is not passed.
     * @pair CallFloatMethod__entry
     */
    probe CallFloatMethod__return();

    /**
     * CallFloatMethodA begins: calls an instance method that returns a float; takes an argument array.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallFloatMethodA__return
     */
    probe CallFloatMethodA__entry(void *env, void *obj, void *methodID);

    /**
     * CallFloatMethodA is over. The floating-point result is not passed.
     * @pair CallFloatMethodA__entry
     */
    probe CallFloatMethodA__return();

    /**
     * CallFloatMethodV begins: calls an instance method that returns a float; takes a va_list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallFloatMethodV__return
     */
    probe CallFloatMethodV__entry(void *env, void *obj, void *methodID);

    /**
     * CallFloatMethodV is over. The floating-point result is not passed.
     * @pair CallFloatMethodV__entry
     */
    probe CallFloatMethodV__return();

    /**
     * CallIntMethod begins: calls an instance method that returns an int; takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallIntMethod__return
     */
    probe CallIntMethod__entry(void *env, void *obj, void *methodID);

    /**
     * CallIntMethod is over.
     * @param result what the call gives back
     * @pair CallIntMethod__entry
     */
    probe CallIntMethod__return(int result);

    /**
     * CallIntMethodA begins: calls an instance method that returns an int; takes an argument array.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallIntMethodA__return
     */
    probe CallIntMethodA__entry(void *env, void *obj, void *methodID);

    /**
     * CallIntMethodA is over.
     * @param result what the call gives back
     * @pair CallIntMethodA__entry
     */
    probe CallIntMethodA__return(int result);

    /**
     * CallIntMethodV begins: calls an instance method that returns an int; takes a va_list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallIntMethodV__return
     */
    probe CallIntMethodV__entry(void *env, void *obj, void *methodID);

    /**
     * CallIntMethodV is over.
     * @param result what the call gives back
     * @pair CallIntMethodV__entry
     */
    probe CallIntMethodV__return(int result);

    /**
     * CallLongMethod begins: calls an instance method that returns a long; takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallLongMethod__return
     */
    probe CallLongMethod__entry(void *env, void *obj, void *methodID);

    /**
     * CallLongMethod is over.
     * @param result what the call gives back
     * @pair CallLongMethod__entry
     */
    probe CallLongMethod__return(int64_t result);

    /**
     * CallLongMethodA begins: calls an instance method that returns a long; takes an argument array.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallLongMethodA__return
     */
    probe CallLongMethodA__entry(void *env, void *obj, void *methodID);

    /**
     * CallLongMethodA is over.
     * @param result what the call gives back
     * @pair CallLongMethodA__entry
     */
    probe CallLongMethodA__return(int64_t result);

    /**
     * CallLongMethodV begins: calls an instance method that returns a long; takes a va_list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallLongMethodV__return
     */
    probe CallLongMethodV__entry(void *env, void *obj, void *methodID);

    /**
     * CallLongMethodV is over.
     * @param result what the call gives back
     * @pair CallLongMethodV__entry
     */
    probe CallLongMethodV__return(int64_t result);

    /**
     * CallNonvirtualBooleanMethod begins: calls an instance method without virtual dispatch that returns a boolean;
     * takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualBooleanMethod__return
     */
    probe CallNonvirtualBooleanMethod__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualBooleanMethod is over.
     * @param result what the call gives back
     * @pair CallNonvirtualBooleanMethod__entry
     */
    probe CallNonvirtualBooleanMethod__return(bool result);

    /**
     * CallNonvirtualBooleanMethodA begins: calls an instance method without virtual dispatch that returns a boolean;
     * takes an argument array.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualBooleanMethodA__return
     */
    probe CallNonvirtualBooleanMethodA__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualBooleanMethodA is over.
     * @param result what the call gives back
     * @pair CallNonvirtualBooleanMethodA__entry
     */
    probe CallNonvirtualBooleanMethodA__return(bool result);

    /**
     * CallNonvirtualBooleanMethodV begins: calls an instance method without virtual dispatch that returns a boolean;
     * takes a va_list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualBooleanMethodV__return
     */
    probe CallNonvirtualBooleanMethodV__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualBooleanMethodV is over.
     * @param result what the call gives back
     * @pair CallNonvirtualBooleanMethodV__entry
     */
    probe CallNonvirtualBooleanMethodV__return(bool result);

    /**
     * CallNonvirtualByteMethod begins: calls an instance method without virtual dispatch that returns a byte;
     * takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualByteMethod__return
     */
    probe CallNonvirtualByteMethod__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualByteMethod is over.
     * @param result what the call gives back
     * @pair CallNonvirtualByteMethod__entry
     */
    probe CallNonvirtualByteMethod__return(int8_t result);

    /**
     * CallNonvirtualByteMethodA begins: calls an instance method without virtual dispatch that returns a byte;
     * takes an argument array.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualByteMethodA__return
     */
    probe CallNonvirtualByteMethodA__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualByteMethodA is over.
     * @param result what the call gives back
     * @pair CallNonvirtualByteMethodA__entry
     */
    probe CallNonvirtualByteMethodA__return(int8_t result);

    /**
     * CallNonvirtualByteMethodV begins: calls an instance method without virtual dispatch that returns a byte;
     * takes a va_list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualByteMethodV__return
     */
    probe CallNonvirtualByteMethodV__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualByteMethodV is over.
     * @param result what the call gives back
     * @pair CallNonvirtualByteMethodV__entry
     */
    probe CallNonvirtualByteMethodV__return(int8_t result);

    /**
     * CallNonvirtualCharMethod begins: calls an instance method without virtual dispatch that returns a char;
     * takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualCharMethod__return
     */
    probe CallNonvirtualCharMethod__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualCharMethod is over.
     * @param result what the call gives back
     * @pair CallNonvirtualCharMethod__entry
     */
    probe CallNonvirtualCharMethod__return(unsigned short result);

    /**
     * CallNonvirtualCharMethodA begins: calls an instance method without virtual dispatch that returns a char;
     * takes an argument array.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualCharMethodA__return
     */
    probe CallNonvirtualCharMethodA__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualCharMethodA is over.
     * @param result what the call gives back
     * @pair CallNonvirtualCharMethodA__entry
     */
    probe CallNonvirtualCharMethodA__return(unsigned short result);

    /**
     * CallNonvirtualCharMethodV begins: calls an instance method without virtual dispatch that returns a char;
     * takes a va_list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualCharMethodV__return
     */
    probe CallNonvirtualCharMethodV__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualCharMethodV is over.
     * @param result what the call gives back
     * @pair CallNonvirtualCharMethodV__entry
     */
    probe CallNonvirtualCharMethodV__return(unsigned short result);

    /**
     * CallNonvirtualDoubleMethod begins: calls an instance method without virtual dispatch that returns a double;
     * takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualDoubleMethod__return
     */
    probe CallNonvirtualDoubleMethod__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualDoubleMethod is over. The floating-point result is not passed.
     * @pair CallNonvirtualDoubleMethod__entry
     */
    probe CallNonvirtualDoubleMethod__return();

    /**
     * CallNonvirtualDoubleMethodA begins: calls an instance method without virtual dispatch that returns a double;
     * takes an argument array.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualDoubleMethodA__return
     */
    probe CallNonvirtualDoubleMethodA__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualDoubleMethodA is over. The floating-point result is not passed.
     * @pair CallNonvirtualDoubleMethodA__entry
     */
    probe CallNonvirtualDoubleMethodA__return();

    /**
     * CallNonvirtualDoubleMethodV begins: calls an instance method without virtual dispatch that returns a double;
     * takes a va_list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualDoubleMethodV__return
     */
    probe CallNonvirtualDoubleMethodV__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualDoubleMethodV is over. The floating-point result is not passed.
     * @pair CallNonvirtualDoubleMethodV__entry
     */
    probe CallNonvirtualDoubleMethodV__return();

    /**
     * CallNonvirtualFloatMethod begins: calls an instance method without virtual dispatch that returns a float;
     * takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualFloatMethod__return
     */
    probe CallNonvirtualFloatMethod__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualFloatMethod is over. The floating-point result is not passed.
     * @pair CallNonvirtualFloatMethod__entry
     */
    probe CallNonvirtualFloatMethod__return();

    /**
     * CallNonvirtualFloatMethodA begins: calls an instance method without virtual dispatch that returns a float;
     * takes an argument array.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualFloatMethodA__return
     */
    probe CallNonvirtualFloatMethodA__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualFloatMethodA is over. The floating-point result is not passed.
     * @pair CallNonvirtualFloatMethodA__entry
     */
    probe CallNonvirtualFloatMethodA__return();

    /**
     * CallNonvirtualFloatMethodV begins: calls an instance method without virtual dispatch that returns a float;
     * takes a va_list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualFloatMethodV__return
     */
    probe CallNonvirtualFloatMethodV__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualFloatMethodV is over. The floating-point result is not passed.
     * @pair CallNonvirtualFloatMethodV__entry
     */
    probe CallNonvirtualFloatMethodV__return();

    /**
     * CallNonvirtualIntMethod begins: calls an instance method without virtual dispatch that returns an int;
     * takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualIntMethod__return
     */
    probe CallNonvirtualIntMethod__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualIntMethod is over.
     * @param result what the call gives back
     * @pair CallNonvirtualIntMethod__entry
     */
    probe CallNonvirtualIntMethod__return(int result);

    /**
     * CallNonvirtualIntMethodA begins: calls an instance method without virtual dispatch that returns an int;
     * takes an argument array.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualIntMethodA__return
     */
    probe CallNonvirtualIntMethodA__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualIntMethodA is over.
     * @param result what the call gives back
     * @pair CallNonvirtualIntMethodA__entry
     */
    probe CallNonvirtualIntMethodA__return(int result);

    /**
     * CallNonvirtualIntMethodV begins: calls an instance method without virtual dispatch that returns an int;
     * takes a va_list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualIntMethodV__return
     */
    probe CallNonvirtualIntMethodV__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualIntMethodV is over.
     * @param result what the call gives back
     * @pair CallNonvirtualIntMethodV__entry
     */
    probe CallNonvirtualIntMethodV__return(int result);

    /**
     * CallNonvirtualLongMethod begins: calls an instance method without virtual dispatch that returns a long;
     * takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualLongMethod__return
     */
    probe CallNonvirtualLongMethod__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualLongMethod is over.
     * @param result what the call gives back
     * @pair CallNonvirtualLongMethod__entry
     */
    probe CallNonvirtualLongMethod__return(int64_t result);

    /**
     * CallNonvirtualLongMethodA begins: calls an instance method without virtual dispatch that returns a long;
     * takes an argument array.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualLongMethodA__return
     */
    probe CallNonvirtualLongMethodA__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualLongMethodA is over.
     * @param result what the call gives back
     * @pair CallNonvirtualLongMethodA__entry
     */
    probe CallNonvirtualLongMethodA__return(int64_t result);

    /**
     * CallNonvirtualLongMethodV begins: calls an instance method without virtual dispatch that returns a long;
     * takes a va_list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualLongMethodV__return
     */
    probe CallNonvirtualLongMethodV__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualLongMethodV is over.
     * @param result what the call gives back
     * @pair CallNonvirtualLongMethodV__entry
     */
    probe CallNonvirtualLongMethodV__return(int64_t result);

    /**
     * CallNonvirtualObjectMethod begins: calls an instance method without virtual dispatch that returns an object;
     * takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualObjectMethod__return
     */
    probe CallNonvirtualObjectMethod__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualObjectMethod is over.
     * @param result what the call gives back; NULL after a failure
     * @pair CallNonvirtualObjectMethod__entry
     */
    probe CallNonvirtualObjectMethod__return(void *result);

    /**
     * CallNonvirtualObjectMethodA begins: calls an instance method without virtual dispatch that returns an object;
     * takes an argument array.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualObjectMethodA__return
     */
    probe CallNonvirtualObjectMethodA__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualObjectMethodA is over.
     * @param result what the call gives back; NULL after a failure
     * @pair CallNonvirtualObjectMethodA__entry
     */
    probe CallNonvirtualObjectMethodA__return(void *result);

    /**
     * CallNonvirtualObjectMethodV begins: calls an instance method without virtual dispatch that returns an object;
     * takes a va_list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualObjectMethodV__return
     */
    probe CallNonvirtualObjectMethodV__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualObjectMethodV is over.
     * @param result what the call gives back; NULL after a failure
     * @pair CallNonvirtualObjectMethodV__entry
     */
    probe CallNonvirtualObjectMethodV__return(void *result);

    /**
     * CallNonvirtualShortMethod begins: calls an instance method without virtual dispatch that returns a short;
     * takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualShortMethod__return
     */
    probe CallNonvirtualShortMethod__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualShortMethod is over.
     * @param result what the call gives back
     * @pair CallNonvirtualShortMethod__entry
     */
    probe CallNonvirtualShortMethod__return(short result);

    /**
     * CallNonvirtualShortMethodA begins: calls an instance method without virtual dispatch that returns a short;
     * takes an argument array.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualShortMethodA__return
     */
    probe CallNonvirtualShortMethodA__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualShortMethodA is over.
     * @param result what the call gives back
     * @pair CallNonvirtualShortMethodA__entry
     */
    probe CallNonvirtualShortMethodA__return(short result);

    /**
     * CallNonvirtualShortMethodV begins: calls an instance method without virtual dispatch that returns a short;
     * takes a va_list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualShortMethodV__return
     */
    probe CallNonvirtualShortMethodV__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualShortMethodV is over.
     * @param result what the call gives back
     * @pair CallNonvirtualShortMethodV__entry
     */
    probe CallNonvirtualShortMethodV__return(short result);

    /**
     * CallNonvirtualVoidMethod begins: calls an instance method without virtual dispatch that returns nothing;
     * takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualVoidMethod__return
     */
    probe CallNonvirtualVoidMethod__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualVoidMethod is over.
     * @pair CallNonvirtualVoidMethod__entry
     */
    probe CallNonvirtualVoidMethod__return();

    /**
     * CallNonvirtualVoidMethodA begins: calls an instance method without virtual dispatch that returns nothing;
     * takes an argument array.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualVoidMethodA__return
     */
    probe CallNonvirtualVoidMethodA__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualVoidMethodA is over.
     * @pair CallNonvirtualVoidMethodA__entry
     */
    probe CallNonvirtualVoidMethodA__return();

    /**
     * CallNonvirtualVoidMethodV begins: calls an instance method without virtual dispatch that returns nothing;
     * takes a va_list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallNonvirtualVoidMethodV__return
     */
    probe CallNonvirtualVoidMethodV__entry(void *env, void *obj, void *clazz, void *methodID);

    /**
     * CallNonvirtualVoidMethodV is over.
     * @pair CallNonvirtualVoidMethodV__entry
     */
    probe CallNonvirtualVoidMethodV__return();

    /**
     * CallObjectMethod begins: calls an instance method that returns an object; takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallObjectMethod__return
     */
    probe CallObjectMethod__entry(void *env, void *obj, void *methodID);

    /**
     * CallObjectMethod is over.
     * @param result what the call gives back; NULL after a failure
     * @pair CallObjectMethod__entry
     */
    probe CallObjectMethod__return(void *result);

    /**
     * CallObjectMethodA begins: calls an instance method that returns an object; takes an argument array.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallObjectMethodA__return
     */
    probe CallObjectMethodA__entry(void *env, void *obj, void *methodID);

    /**
     * CallObjectMethodA is over.
     * @param result what the call gives back; NULL after a failure
     * @pair CallObjectMethodA__entry
     */
    probe CallObjectMethodA__return(void *result);

    /**
     * CallObjectMethodV begins: calls an instance method that returns an object; takes a va_list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallObjectMethodV__return
     */
    probe CallObjectMethodV__entry(void *env, void *obj, void *methodID);

    /**
     * CallObjectMethodV is over.
     * @param result what the call gives back; NULL after a failure
     * @pair CallObjectMethodV__entry
     */
    probe CallObjectMethodV__return(void *result);

    /**
     * CallShortMethod begins: calls an instance method that returns a short; takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallShortMethod__return
     */
    probe CallShortMethod__entry(void *env, void *obj, void *methodID);

    /**
     * CallShortMethod is over.
     * @param result what the call gives back
     * @pair CallShortMethod__entry
     */
    probe CallShortMethod__return(short result);

    /**
     * CallShortMethodA begins: calls an instance method that returns a short; takes an argument array.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallShortMethodA__return
     */
    probe CallShortMethodA__entry(void *env, void *obj, void *methodID);

    /**
     * CallShortMethodA is over.
     * @param result what the call gives back
     * @pair CallShortMethodA__entry
     */
    probe CallShortMethodA__return(short result);

    /**
     * CallShortMethodV begins: calls an instance method that returns a short; takes a va_list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallShortMethodV__return
     */
    probe CallShortMethodV__entry(void *env, void *obj, void *methodID);

    /**
     * CallShortMethodV is over.
     * @param result what the call gives back
     * @pair CallShortMethodV__entry
     */
    probe CallShortMethodV__return(short result);

    /**
     * CallStaticBooleanMethod begins: calls a static method that returns a boolean; takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticBooleanMethod__return
     */
    probe CallStaticBooleanMethod__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticBooleanMethod is over.
     * @param result what the call gives back
     * @pair CallStaticBooleanMethod__entry
     */
    probe CallStaticBooleanMethod__return(bool result);

    /**
     * CallStaticBooleanMethodA begins: calls a static method that returns a boolean; takes an argument array.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticBooleanMethodA__return
     */
    probe CallStaticBooleanMethodA__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticBooleanMethodA is over.
     * @param result what the call gives back
     * @pair CallStaticBooleanMethodA__entry
     */
    probe CallStaticBooleanMethodA__return(bool result);

    /**
     * CallStaticBooleanMethodV begins: calls a static method that returns a boolean; takes a va_list.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticBooleanMethodV__return
     */
    probe CallStaticBooleanMethodV__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticBooleanMethodV is over.
     * @param result what the call gives back
     * @pair CallStaticBooleanMethodV__entry
     */
    probe CallStaticBooleanMethodV__return(bool result);

    /**
     * CallStaticByteMethod begins: calls a static method that returns a byte; takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticByteMethod__return
     */
    probe CallStaticByteMethod__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticByteMethod is over.
     * @param result what the call gives back
     * @pair CallStaticByteMethod__entry
     */
    probe CallStaticByteMethod__return(int8_t result);

    /**
     * CallStaticByteMethodA begins: calls a static method that returns a byte; takes an argument array.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticByteMethodA__return
     */
    probe CallStaticByteMethodA__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticByteMethodA is over.
     * @param result what the call gives back
     * @pair CallStaticByteMethodA__entry
     */
    probe CallStaticByteMethodA__return(int8_t result);

    /**
     * CallStaticByteMethodV begins: calls a static method that returns a byte; takes a va_list.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticByteMethodV__return
     */
    probe CallStaticByteMethodV__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticByteMethodV is over.
     * @param result what the call gives back
     * @pair CallStaticByteMethodV__entry
     */
    probe CallStaticByteMethodV__return(int8_t result);

    /**
     * CallStaticCharMethod begins: calls a static method that returns a char; takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticCharMethod__return
     */
    probe CallStaticCharMethod__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticCharMethod is over.
     * @param result what the call gives back
     * @pair CallStaticCharMethod__entry
     */
    probe CallStaticCharMethod__return(unsigned short result);

    /**
     * CallStaticCharMethodA begins: calls a static method that returns a char; takes an argument array.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticCharMethodA__return
     */
    probe CallStaticCharMethodA__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticCharMethodA is over.
     * @param result what the call gives back
     * @pair CallStaticCharMethodA__entry
     */
    probe CallStaticCharMethodA__return(unsigned short result);

    /**
     * CallStaticCharMethodV begins: calls a static method that returns a char; takes a va_list.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticCharMethodV__return
     */
    probe CallStaticCharMethodV__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticCharMethodV is over.
     * @param result what the call gives back
     * @pair CallStaticCharMethodV__entry
     */
    probe CallStaticCharMethodV__return(unsigned short result);

    /**
     * CallStaticDoubleMethod begins: calls a static method that returns a double; takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticDoubleMethod__return
     */
    probe CallStaticDoubleMethod__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticDoubleMethod is over. The floating-point result is not passed.
     * @pair CallStaticDoubleMethod__entry
     */
    probe CallStaticDoubleMethod__return();

    /**
     * CallStaticDoubleMethodA begins: calls a static method that returns a double; takes an argument array.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticDoubleMethodA__return
     */
    probe CallStaticDoubleMethodA__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticDoubleMethodA is over. The floating-point result is not passed.
     * @pair CallStaticDoubleMethodA__entry
     */
    probe CallStaticDoubleMethodA__return();

    /**
     * CallStaticDoubleMethodV begins: calls a static method that returns a double; takes a va_list.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticDoubleMethodV__return
     */
    probe CallStaticDoubleMethodV__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticDoubleMethodV is over. The floating-point result is not passed.
     * @pair CallStaticDoubleMethodV__entry
     */
    probe CallStaticDoubleMethodV__return();

    /**
     * CallStaticFloatMethod begins: calls a static method that returns a float; takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticFloatMethod__return
     */
    probe CallStaticFloatMethod__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticFloatMethod is over. The floating-point result is not passed.
     * @pair CallStaticFloatMethod__entry
     */
    probe CallStaticFloatMethod__return();

    /**
     * CallStaticFloatMethodA begins: calls a static method that returns a float; takes an argument array.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticFloatMethodA__return
     */
    probe CallStaticFloatMethodA__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticFloatMethodA is over. The floating-point result is not passed.
     * @pair CallStaticFloatMethodA__entry
     */
    probe CallStaticFloatMethodA__return();

    /**
     * CallStaticFloatMethodV begins: calls a static method that returns a float; takes a va_list.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticFloatMethodV__return
     */
    probe CallStaticFloatMethodV__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticFloatMethodV is over. The floating-point result is not passed.
     * @pair CallStaticFloatMethodV__entry
     */
    probe CallStaticFloatMethodV__return();

    /**
     * CallStaticIntMethod begins: calls a static method that returns an int; takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticIntMethod__return
     */
    probe CallStaticIntMethod__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticIntMethod is over.
     * @param result what the call gives back
     * @pair CallStaticIntMethod__entry
     */
    probe CallStaticIntMethod__return(int result);

    /**
     * CallStaticIntMethodA begins: calls a static method that returns an int; takes an argument array.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticIntMethodA__return
     */
    probe CallStaticIntMethodA__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticIntMethodA is over.
     * @param result what the call gives back
     * @pair CallStaticIntMethodA__entry
     */
    probe CallStaticIntMethodA__return(int result);

    /**
     * CallStaticIntMethodV begins: calls a static method that returns an int; takes a va_list.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticIntMethodV__return
     */
    probe CallStaticIntMethodV__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticIntMethodV is over.
     * @param result what the call gives back
     * @pair CallStaticIntMethodV__entry
     */
    probe CallStaticIntMethodV__return(int result);

    /**
     * CallStaticLongMethod begins: calls a static method that returns a long; takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticLongMethod__return
     */
    probe CallStaticLongMethod__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticLongMethod is over.
     * @param result what the call gives back
     * @pair CallStaticLongMethod__entry
     */
    probe CallStaticLongMethod__return(int64_t result);

    /**
     * CallStaticLongMethodA begins: calls a static method that returns a long; takes an argument array.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticLongMethodA__return
     */
    probe CallStaticLongMethodA__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticLongMethodA is over.
     * @param result what the call gives back
     * @pair CallStaticLongMethodA__entry
     */
    probe CallStaticLongMethodA__return(int64_t result);

    /**
     * CallStaticLongMethodV begins: calls a static method that returns a long; takes a va_list.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticLongMethodV__return
     */
    probe CallStaticLongMethodV__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticLongMethodV is over.
     * @param result what the call gives back
     * @pair CallStaticLongMethodV__entry
     */
    probe CallStaticLongMethodV__return(int64_t result);

    /**
     * CallStaticObjectMethod begins: calls a static method that returns an object; takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticObjectMethod__return
     */
    probe CallStaticObjectMethod__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticObjectMethod is over.
     * @param result what the call gives back; NULL after a failure
     * @pair CallStaticObjectMethod__entry
     */
    probe CallStaticObjectMethod__return(void *result);

    /**
     * CallStaticObjectMethodA begins: calls a static method that returns an object; takes an argument array.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticObjectMethodA__return
     */
    probe CallStaticObjectMethodA__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticObjectMethodA is over.
     * @param result what the call gives back; NULL after a failure
     * @pair CallStaticObjectMethodA__entry
     */
    probe CallStaticObjectMethodA__return(void *result);

    /**
     * CallStaticObjectMethodV begins: calls a static method that returns an object; takes a va_list.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticObjectMethodV__return
     */
    probe CallStaticObjectMethodV__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticObjectMethodV is over.
     * @param result what the call gives back; NULL after a failure
     * @pair CallStaticObjectMethodV__entry
     */
    probe CallStaticObjectMethodV__return(void *result);

    /**
     * CallStaticShortMethod begins: calls a static method that returns a short; takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticShortMethod__return
     */
    probe CallStaticShortMethod__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticShortMethod is over.
     * @param result what the call gives back
     * @pair CallStaticShortMethod__entry
     */
    probe CallStaticShortMethod__return(short result);

    /**
     * CallStaticShortMethodA begins: calls a static method that returns a short; takes an argument array.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticShortMethodA__return
     */
    probe CallStaticShortMethodA__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticShortMethodA is over.
     * @param result what the call gives back
     * @pair CallStaticShortMethodA__entry
     */
    probe CallStaticShortMethodA__return(short result);

    /**
     * CallStaticShortMethodV begins: calls a static method that returns a short; takes a va_list.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticShortMethodV__return
     */
    probe CallStaticShortMethodV__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticShortMethodV is over.
     * @param result what the call gives back
     * @pair CallStaticShortMethodV__entry
     */
    probe CallStaticShortMethodV__return(short result);

    /**
     * CallStaticVoidMethod begins: calls a static method that returns nothing; takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticVoidMethod__return
     */
    probe CallStaticVoidMethod__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticVoidMethod is over.
     * @pair CallStaticVoidMethod__entry
     */
    probe CallStaticVoidMethod__return();

    /**
     * CallStaticVoidMethodA begins: calls a static method that returns nothing; takes an argument array.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticVoidMethodA__return
     */
    probe CallStaticVoidMethodA__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticVoidMethodA is over.
     * @pair CallStaticVoidMethodA__entry
     */
    probe CallStaticVoidMethodA__return();

    /**
     * CallStaticVoidMethodV begins: calls a static method that returns nothing; takes a va_list.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair CallStaticVoidMethodV__return
     */
    probe CallStaticVoidMethodV__entry(void *env, void *clazz, void *methodID);

    /**
     * CallStaticVoidMethodV is over.
     * @pair CallStaticVoidMethodV__entry
     */
    probe CallStaticVoidMethodV__return();

    /**
     * CallVoidMethod begins: calls an instance method that returns nothing; takes a variable argument list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallVoidMethod__return
     */
    probe CallVoidMethod__entry(void *env, void *obj, void *methodID);

    /**
     * CallVoidMethod is over.
     * @pair CallVoidMethod__entry
     */
    probe CallVoidMethod__return();

    /**
     * CallVoidMethodA begins: calls an instance method that returns nothing; takes an argument array.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallVoidMethodA__return
     */
    probe CallVoidMethodA__entry(void *env, void *obj, void *methodID);

    /**
     * CallVoidMethodA is over.
     * @pair CallVoidMethodA__entry
     */
    probe CallVoidMethodA__return();

    /**
     * CallVoidMethodV begins: calls an instance method that returns nothing; takes a va_list.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param methodID identifies the method
     * @pair CallVoidMethodV__return
     */
    probe CallVoidMethodV__entry(void *env, void *obj, void *methodID);

    /**
     * CallVoidMethodV is over.
     * @pair CallVoidMethodV__entry
     */
    probe CallVoidMethodV__return();

    /**
     * CreateJavaVM begins: loads and starts a virtual machine.
     * @param vm the Java virtual machine
     * @param penv where the environment pointer goes
     * @param args JNI version and options
     * @pair CreateJavaVM__return
     */
    probe CreateJavaVM__entry(void *vm, void *penv, void *args);

    /**
     * CreateJavaVM is over.
     * @param result 0, or a JNI error number below 0
     * @enum result 0=OK -1=ERR -2=EDETACHED -3=EVERSION -4=ENOMEM -5=EEXIST -6=EINVAL
     * @pair CreateJavaVM__entry
     */
    probe CreateJavaVM__return(int result);

    /**
     * DefineClass begins: defines a class from class file bytes.
     * @param env JNI environment of the calling thread
     * @param name name, NUL-terminated modified UTF-8
     * @param loader class loader to define the class in
     * @param buffer address of the data
     * @param length size of the class file in bytes
     * @length buffer length
     * @pair DefineClass__return
     */
    probe DefineClass__entry(void *env, char *name, void *loader, void *buffer, int length);

    /**
     * DefineClass is over.
     * @param result what the call gives back; NULL after a failure
     * @pair DefineClass__entry
     */
    probe DefineClass__return(void *result);

    /**
     * DeleteGlobalRef begins: drops a global reference.
     * @param env JNI environment of the calling thread
     * @param ref the reference
     * @pair DeleteGlobalRef__return
     */
    probe DeleteGlobalRef__entry(void *env, void *ref);

    /**
     * DeleteGlobalRef is over.
     * @pair DeleteGlobalRef__entry
     */
    probe DeleteGlobalRef__return();

    /**
     * DeleteLocalRef begins: drops a local reference.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @pair DeleteLocalRef__return
     */
    probe DeleteLocalRef__entry(void *env, void *obj);

    /**
     * DeleteLocalRef is over.
     * @pair DeleteLocalRef__entry
     */
    probe DeleteLocalRef__return();

    /**
     * DeleteWeakGlobalRef begins: drops a weak global reference.
     * @param env JNI environment of the calling thread
     * @param ref the reference
     * @pair DeleteWeakGlobalRef__return
     */
    probe DeleteWeakGlobalRef__entry(void *env, void *ref);

    /**
     * DeleteWeakGlobalRef is over.
     * @pair DeleteWeakGlobalRef__entry
     */
    probe DeleteWeakGlobalRef__return();

    /**
     * DestroyJavaVM begins: unloads the virtual machine.
     * @param vm the Java virtual machine
     * @pair DestroyJavaVM__return
     */
    probe DestroyJavaVM__entry(void *vm);

    /**
     * DestroyJavaVM is over.
     * @param result 0, or a JNI error number below 0
     * @enum result 0=OK -1=ERR -2=EDETACHED -3=EVERSION -4=ENOMEM -5=EEXIST -6=EINVAL
     * @pair DestroyJavaVM__entry
     */
    probe DestroyJavaVM__return(int result);

    /**
     * DetachCurrentThread begins: detaches the calling thread.
     * @param vm the Java virtual machine
     * @pair DetachCurrentThread__return
     */
    probe DetachCurrentThread__entry(void *vm);

    /**
     * DetachCurrentThread is over.
     * @param result 0, or a JNI error number below 0
     * @enum result 0=OK -1=ERR -2=EDETACHED -3=EVERSION -4=ENOMEM -5=EEXIST -6=EINVAL
     * @pair DetachCurrentThread__entry
     */
    probe DetachCurrentThread__return(int result);

    /**
     * EnsureLocalCapacity begins: reserves room for local references.
     * @param env JNI environment of the calling thread
     * @param capacity room asked for, in local references
     * @pair EnsureLocalCapacity__return
     */
    probe EnsureLocalCapacity__entry(void *env, int capacity);

    /**
     * EnsureLocalCapacity is over.
     * @param result 0, or a JNI error number below 0
     * @enum result 0=OK -1=ERR -2=EDETACHED -3=EVERSION -4=ENOMEM -5=EEXIST -6=EINVAL
     * @pair EnsureLocalCapacity__entry
     */
    probe EnsureLocalCapacity__return(int result);

    /**
     * ExceptionCheck begins: asks whether an exception is pending.
     * @param env JNI environment of the calling thread
     * @pair ExceptionCheck__return
     */
    probe ExceptionCheck__entry(void *env);

    /**
     * ExceptionCheck is over.
     * @param result the answer
     * @pair ExceptionCheck__entry
     */
    probe ExceptionCheck__return(bool result);

    /**
     * ExceptionClear begins: clears the pending exception.
     * @param env JNI environment of the calling thread
     * @pair ExceptionClear__return
     */
    probe ExceptionClear__entry(void *env);

    /**
     * ExceptionClear is over.
     * @pair ExceptionClear__entry
     */
    probe ExceptionClear__return();

    /**
     * ExceptionDescribe begins: prints the pending exception.
     * @param env JNI environment of the calling thread
     * @pair ExceptionDescribe__return
     */
    probe ExceptionDescribe__entry(void *env);

    /**
     * ExceptionDescribe is over.
     * @pair ExceptionDescribe__entry
     */
    probe ExceptionDescribe__return();

    /**
     * ExceptionOccurred begins: asks for the pending exception.
     * @param env JNI environment of the calling thread
     * @pair ExceptionOccurred__return
     */
    probe ExceptionOccurred__entry(void *env);

    /**
     * ExceptionOccurred is over.
     * @param result what the call gives back; NULL after a failure
     * @pair ExceptionOccurred__entry
     */
    probe ExceptionOccurred__return(void *result);

    /**
     * FatalError begins: ends the virtual machine with a message; it does not return.
     * @param env JNI environment of the calling thread
     * @param message text, NUL-terminated
     */
    probe FatalError__entry(void *env, char *message);

    /**
     * FindClass begins: looks a class up by name.
     * @param env JNI environment of the calling thread
     * @param name class name with slashes, NUL-terminated
     * @pair FindClass__return
     */
    probe FindClass__entry(void *env, char *name);

    /**
     * FindClass is over.
     * @param result what the call gives back; NULL after a failure
     * @pair FindClass__entry
     */
    probe FindClass__return(void *result);

    /**
     * FromReflectedField begins: turns a reflected field into a field ID.
     * @param env JNI environment of the calling thread
     * @param field reference to a reflected field
     * @pair FromReflectedField__return
     */
    probe FromReflectedField__entry(void *env, void *field);

    /**
     * FromReflectedField is over.
     * @param result what the call gives back; NULL after a failure
     * @pair FromReflectedField__entry
     */
    probe FromReflectedField__return(void *result);

    /**
     * FromReflectedMethod begins: turns a reflected method into a method ID.
     * @param env JNI environment of the calling thread
     * @param method reference to a reflected method or constructor
     * @pair FromReflectedMethod__return
     */
    probe FromReflectedMethod__entry(void *env, void *method);

    /**
     * FromReflectedMethod is over.
     * @param result what the call gives back; NULL after a failure
     * @pair FromReflectedMethod__entry
     */
    probe FromReflectedMethod__return(void *result);

    /**
     * GetArrayLength begins: asks for the length of an array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @pair GetArrayLength__return
     */
    probe GetArrayLength__entry(void *env, void *array);

    /**
     * GetArrayLength is over.
     * @param result what the call gives back
     * @pair GetArrayLength__entry
     */
    probe GetArrayLength__return(int result);

    /**
     * GetBooleanArrayElements begins: gets a pointer to the elements of a boolean array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param isCopy where the callee says whether it made a copy, or NULL
     * @pair GetBooleanArrayElements__return
     */
    probe GetBooleanArrayElements__entry(void *env, void *array, void *isCopy);

    /**
     * GetBooleanArrayElements is over.
     * @param result what the call gives back; NULL after a failure
     * @pair GetBooleanArrayElements__entry
     */
    probe GetBooleanArrayElements__return(void *result);

    /**
     * GetBooleanArrayRegion begins: copies a range out of a boolean array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param start index of the first element
     * @param length number of elements
     * @param buffer address of the data
     * @pair GetBooleanArrayRegion__return
     */
    probe GetBooleanArrayRegion__entry(void *env, void *array, int start, int length, void *buffer);

    /**
     * GetBooleanArrayRegion is over.
     * @pair GetBooleanArrayRegion__entry
     */
    probe GetBooleanArrayRegion__return();

    /**
     * GetBooleanField begins: reads an instance field of type boolean.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param fieldID identifies the field
     * @pair GetBooleanField__return
     */
    probe GetBooleanField__entry(void *env, void *obj, void *fieldID);

    /**
     * GetBooleanField is over.
     * @param result what the call gives back
     * @pair GetBooleanField__entry
     */
    probe GetBooleanField__return(bool result);

    /**
     * GetByteArrayElements begins: gets a pointer to the elements of a byte array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param isCopy where the callee says whether it made a copy, or NULL
     * @pair GetByteArrayElements__return
     */
    probe GetByteArrayElements__entry(void *env, void *array, void *isCopy);

    /**
     * GetByteArrayElements is over.
     * @param result what the call gives back; NULL after a failure
     * @pair GetByteArrayElements__entry
     */
    probe GetByteArrayElements__return(void *result);

    /**
     * GetByteArrayRegion begins: copies a range out of a byte array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param start index of the first element
     * @param length number of elements
     * @param buffer address of the data
     * @pair GetByteArrayRegion__return
     */
    probe GetByteArrayRegion__entry(void *env, void *array, int start, int length, void *buffer);

    /**
     * GetByteArrayRegion is over.
     * @pair GetByteArrayRegion__entry
     */
    probe GetByteArrayRegion__return();

    /**
     * GetByteField begins: reads an instance field of type byte.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param fieldID identifies the field
     * @pair GetByteField__return
     */
    probe GetByteField__entry(void *env, void *obj, void *fieldID);

    /**
     * GetByteField is over.
     * @param result what the call gives back
     * @pair GetByteField__entry
     */
    probe GetByteField__return(int8_t result);

    /**
     * GetCharArrayElements begins: gets a pointer to the elements of a char array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param isCopy where the callee says whether it made a copy, or NULL
     * @pair GetCharArrayElements__return
     */
    probe GetCharArrayElements__entry(void *env, void *array, void *isCopy);

    /**
     * GetCharArrayElements is over.
     * @param result what the call gives back; NULL after a failure
     * @pair GetCharArrayElements__entry
     */
    probe GetCharArrayElements__return(void *result);

    /**
     * GetCharArrayRegion begins: copies a range out of a char array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param start index of the first element
     * @param length number of elements
     * @param buffer address of the data
     * @pair GetCharArrayRegion__return
     */
    probe GetCharArrayRegion__entry(void *env, void *array, int start, int length, void *buffer);

    /**
     * GetCharArrayRegion is over.
     * @pair GetCharArrayRegion__entry
     */
    probe GetCharArrayRegion__return();

    /**
     * GetCharField begins: reads an instance field of type char.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param fieldID identifies the field
     * @pair GetCharField__return
     */
    probe GetCharField__entry(void *env, void *obj, void *fieldID);

    /**
     * GetCharField is over.
     * @param result what the call gives back
     * @pair GetCharField__entry
     */
    probe GetCharField__return(unsigned short result);

    /**
     * GetCreatedJavaVMs begins: lists the virtual machines of this process.
     * @param vms where the machines go
     * @param capacity room for that many machines
     * @param count where the number of machines goes
     * @pair GetCreatedJavaVMs__return
     */
    probe GetCreatedJavaVMs__entry(void *vms, int capacity, void *count);

    /**
     * GetCreatedJavaVMs is over.
     * @param result 0, or a JNI error number below 0
     * @enum result 0=OK -1=ERR -2=EDETACHED -3=EVERSION -4=ENOMEM -5=EEXIST -6=EINVAL
     * @pair GetCreatedJavaVMs__entry
     */
    probe GetCreatedJavaVMs__return(int result);

    /**
     * GetDefaultJavaVMInitArgs begins: asks for the default start arguments.
     * @param args JNI version and options
     * @pair GetDefaultJavaVMInitArgs__return
     */
    probe GetDefaultJavaVMInitArgs__entry(void *args);

    /**
     * GetDefaultJavaVMInitArgs is over.
     * @param result 0, or a JNI error number below 0
     * @enum result 0=OK -1=ERR -2=EDETACHED -3=EVERSION -4=ENOMEM -5=EEXIST -6=EINVAL
     * @pair GetDefaultJavaVMInitArgs__entry
     */
    probe GetDefaultJavaVMInitArgs__return(int result);

    /**
     * GetDirectBufferAddress begins: asks for the address of a direct buffer.
     * @param env JNI environment of the calling thread
     * @param buffer address of the data
     * @pair GetDirectBufferAddress__return
     */
    probe GetDirectBufferAddress__entry(void *env, void *buffer);

    /**
     * GetDirectBufferAddress is over.
     * @param result what the call gives back; NULL after a failure
     * @pair GetDirectBufferAddress__entry
     */
    probe GetDirectBufferAddress__return(void *result);

    /**
     * GetDirectBufferCapacity begins: asks for the capacity of a direct buffer.
     * @param env JNI environment of the calling thread
     * @param buffer address of the data
     * @pair GetDirectBufferCapacity__return
     */
    probe GetDirectBufferCapacity__entry(void *env, void *buffer);

    /**
     * GetDirectBufferCapacity is over.
     * @param result what the call gives back
     * @pair GetDirectBufferCapacity__entry
     */
    probe GetDirectBufferCapacity__return(int64_t result);

    /**
     * GetDoubleArrayElements begins: gets a pointer to the elements of a double array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param isCopy where the callee says whether it made a copy, or NULL
     * @pair GetDoubleArrayElements__return
     */
    probe GetDoubleArrayElements__entry(void *env, void *array, void *isCopy);

    /**
     * GetDoubleArrayElements is over.
     * @param result what the call gives back; NULL after a failure
     * @pair GetDoubleArrayElements__entry
     */
    probe GetDoubleArrayElements__return(void *result);

    /**
     * GetDoubleArrayRegion begins: copies a range out of a double array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param start index of the first element
     * @param length number of elements
     * @param buffer address of the data
     * @pair GetDoubleArrayRegion__return
     */
    probe GetDoubleArrayRegion__entry(void *env, void *array, int start, int length, void *buffer);

    /**
     * GetDoubleArrayRegion is over.
     * @pair GetDoubleArrayRegion__entry
     */
    probe GetDoubleArrayRegion__return();

    /**
     * GetDoubleField begins: reads an instance field of type double.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param fieldID identifies the field
     * @pair GetDoubleField__return
     */
    probe GetDoubleField__entry(void *env, void *obj, void *fieldID);

    /**
     * GetDoubleField is over. The floating-point result is not passed.
     * @pair GetDoubleField__entry
     */
    probe GetDoubleField__return();

    /**
     * GetEnv begins: asks for the environment of the calling thread.
     * @param vm the Java virtual machine
     * @param penv where the environment pointer goes
     * @param version JNI version that is asked for
     * @pair GetEnv__return
     */
    probe GetEnv__entry(void *vm, void *penv, int version);

    /**
     * GetEnv is over.
     * @param result 0, or a JNI error number below 0
     * @enum result 0=OK -1=ERR -2=EDETACHED -3=EVERSION -4=ENOMEM -5=EEXIST -6=EINVAL
     * @pair GetEnv__entry
     */
    probe GetEnv__return(int result);

    /**
     * GetFieldID begins: looks up an instance field.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param name name, NUL-terminated modified UTF-8
     * @param sig type signature, NUL-terminated
     * @pair GetFieldID__return
     */
    probe GetFieldID__entry(void *env, void *clazz, char *name, char *sig);

    /**
     * GetFieldID is over.
     * @param result what the call gives back; NULL after a failure
     * @pair GetFieldID__entry
     */
    probe GetFieldID__return(void *result);

    /**
     * GetFloatArrayElements begins: gets a pointer to the elements of a float array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param isCopy where the callee says whether it made a copy, or NULL
     * @pair GetFloatArrayElements__return
     */
    probe GetFloatArrayElements__entry(void *env, void *array, void *isCopy);

    /**
     * GetFloatArrayElements is over.
     * @param result what the call gives back; NULL after a failure
     * @pair GetFloatArrayElements__entry
     */
    probe GetFloatArrayElements__return(void *result);

    /**
     * GetFloatArrayRegion begins: copies a range out of a float array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param start index of the first element
     * @param length number of elements
     * @param buffer address of the data
     * @pair GetFloatArrayRegion__return
     */
    probe GetFloatArrayRegion__entry(void *env, void *array, int start, int length, void *buffer);

    /**
     * GetFloatArrayRegion is over.
     * @pair GetFloatArrayRegion__entry
     */
    probe GetFloatArrayRegion__return();

    /**
     * GetFloatField begins: reads an instance field of type float.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param fieldID identifies the field
     * @pair GetFloatField__return
     */
    probe GetFloatField__entry(void *env, void *obj, void *fieldID);

    /**
     * GetFloatField is over. The floating-point result is not passed.
     * @pair GetFloatField__entry
     */
    probe GetFloatField__return();

    /**
     * GetIntArrayElements begins: gets a pointer to the elements of a int array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param isCopy where the callee says whether it made a copy, or NULL
     * @pair GetIntArrayElements__return
     */
    probe GetIntArrayElements__entry(void *env, void *array, void *isCopy);

    /**
     * GetIntArrayElements is over.
     * @param result what the call gives back; NULL after a failure
     * @pair GetIntArrayElements__entry
     */
    probe GetIntArrayElements__return(void *result);

    /**
     * GetIntArrayRegion begins: copies a range out of a int array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param start index of the first element
     * @param length number of elements
     * @param buffer address of the data
     * @pair GetIntArrayRegion__return
     */
    probe GetIntArrayRegion__entry(void *env, void *array, int start, int length, void *buffer);

    /**
     * GetIntArrayRegion is over.
     * @pair GetIntArrayRegion__entry
     */
    probe GetIntArrayRegion__return();

    /**
     * GetIntField begins: reads an instance field of type int.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param fieldID identifies the field
     * @pair GetIntField__return
     */
    probe GetIntField__entry(void *env, void *obj, void *fieldID);

    /**
     * GetIntField is over.
     * @param result what the call gives back
     * @pair GetIntField__entry
     */
    probe GetIntField__return(int result);

    /**
     * GetJavaVM begins: asks for the virtual machine of an environment.
     * @param env JNI environment of the calling thread
     * @param vm the Java virtual machine
     * @pair GetJavaVM__return
     */
    probe GetJavaVM__entry(void *env, void *vm);

    /**
     * GetJavaVM is over.
     * @param result 0, or a JNI error number below 0
     * @enum result 0=OK -1=ERR -2=EDETACHED -3=EVERSION -4=ENOMEM -5=EEXIST -6=EINVAL
     * @pair GetJavaVM__entry
     */
    probe GetJavaVM__return(int result);

    /**
     * GetLongArrayElements begins: gets a pointer to the elements of a long array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param isCopy where the callee says whether it made a copy, or NULL
     * @pair GetLongArrayElements__return
     */
    probe GetLongArrayElements__entry(void *env, void *array, void *isCopy);

    /**
     * GetLongArrayElements is over.
     * @param result what the call gives back; NULL after a failure
     * @pair GetLongArrayElements__entry
     */
    probe GetLongArrayElements__return(void *result);

    /**
     * GetLongArrayRegion begins: copies a range out of a long array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param start index of the first element
     * @param length number of elements
     * @param buffer address of the data
     * @pair GetLongArrayRegion__return
     */
    probe GetLongArrayRegion__entry(void *env, void *array, int start, int length, void *buffer);

    /**
     * GetLongArrayRegion is over.
     * @pair GetLongArrayRegion__entry
     */
    probe GetLongArrayRegion__return();

    /**
     * GetLongField begins: reads an instance field of type long.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param fieldID identifies the field
     * @pair GetLongField__return
     */
    probe GetLongField__entry(void *env, void *obj, void *fieldID);

    /**
     * GetLongField is over.
     * @param result what the call gives back
     * @pair GetLongField__entry
     */
    probe GetLongField__return(int64_t result);

    /**
     * GetMethodID begins: looks up an instance method.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param name name, NUL-terminated modified UTF-8
     * @param sig type signature, NUL-terminated
     * @pair GetMethodID__return
     */
    probe GetMethodID__entry(void *env, void *clazz, char *name, char *sig);

    /**
     * GetMethodID is over.
     * @param result what the call gives back; NULL after a failure
     * @pair GetMethodID__entry
     */
    probe GetMethodID__return(void *result);

    /**
     * GetObjectArrayElement begins: reads an element of an object array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param index index of the element
     * @pair GetObjectArrayElement__return
     */
    probe GetObjectArrayElement__entry(void *env, void *array, int index);

    /**
     * GetObjectArrayElement is over.
     * @param result what the call gives back; NULL after a failure
     * @pair GetObjectArrayElement__entry
     */
    probe GetObjectArrayElement__return(void *result);

    /**
     * GetObjectClass begins: asks for the class of an object.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @pair GetObjectClass__return
     */
    probe GetObjectClass__entry(void *env, void *obj);

    /**
     * GetObjectClass is over.
     * @param result what the call gives back; NULL after a failure
     * @pair GetObjectClass__entry
     */
    probe GetObjectClass__return(void *result);

    /**
     * GetObjectField begins: reads an instance field of type object.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param fieldID identifies the field
     * @pair GetObjectField__return
     */
    probe GetObjectField__entry(void *env, void *obj, void *fieldID);

    /**
     * GetObjectField is over.
     * @param result what the call gives back; NULL after a failure
     * @pair GetObjectField__entry
     */
    probe GetObjectField__return(void *result);

    /**
     * GetObjectRefType begins: asks what kind of reference this is.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @pair GetObjectRefType__return
     */
    probe GetObjectRefType__entry(void *env, void *obj);

    /**
     * GetObjectRefType is over.
     * @param result what the call gives back
     * @enum result 0=INVALID 1=LOCAL 2=GLOBAL 3=WEAK_GLOBAL
     * @pair GetObjectRefType__entry
     */
    probe GetObjectRefType__return(int result);

    /**
     * GetPrimitiveArrayCritical begins: gets a direct pointer to a primitive array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param isCopy where the callee says whether it made a copy, or NULL
     * @pair GetPrimitiveArrayCritical__return
     */
    probe GetPrimitiveArrayCritical__entry(void *env, void *array, void *isCopy);

    /**
     * GetPrimitiveArrayCritical is over.
     * @param result what the call gives back; NULL after a failure
     * @pair GetPrimitiveArrayCritical__entry
     */
    probe GetPrimitiveArrayCritical__return(void *result);

    /**
     * GetShortArrayElements begins: gets a pointer to the elements of a short array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param isCopy where the callee says whether it made a copy, or NULL
     * @pair GetShortArrayElements__return
     */
    probe GetShortArrayElements__entry(void *env, void *array, void *isCopy);

    /**
     * GetShortArrayElements is over.
     * @param result what the call gives back; NULL after a failure
     * @pair GetShortArrayElements__entry
     */
    probe GetShortArrayElements__return(void *result);

    /**
     * GetShortArrayRegion begins: copies a range out of a short array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param start index of the first element
     * @param length number of elements
     * @param buffer address of the data
     * @pair GetShortArrayRegion__return
     */
    probe GetShortArrayRegion__entry(void *env, void *array, int start, int length, void *buffer);

    /**
     * GetShortArrayRegion is over.
     * @pair GetShortArrayRegion__entry
     */
    probe GetShortArrayRegion__return();

    /**
     * GetShortField begins: reads an instance field of type short.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param fieldID identifies the field
     * @pair GetShortField__return
     */
    probe GetShortField__entry(void *env, void *obj, void *fieldID);

    /**
     * GetShortField is over.
     * @param result what the call gives back
     * @pair GetShortField__entry
     */
    probe GetShortField__return(short result);

    /**
     * GetStaticBooleanField begins: reads a static field of type boolean.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param fieldID identifies the field
     * @pair GetStaticBooleanField__return
     */
    probe GetStaticBooleanField__entry(void *env, void *clazz, void *fieldID);

    /**
     * GetStaticBooleanField is over.
     * @param result what the call gives back
     * @pair GetStaticBooleanField__entry
     */
    probe GetStaticBooleanField__return(bool result);

    /**
     * GetStaticByteField begins: reads a static field of type byte.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param fieldID identifies the field
     * @pair GetStaticByteField__return
     */
    probe GetStaticByteField__entry(void *env, void *clazz, void *fieldID);

    /**
     * GetStaticByteField is over.
     * @param result what the call gives back
     * @pair GetStaticByteField__entry
     */
    probe GetStaticByteField__return(int8_t result);

    /**
     * GetStaticCharField begins: reads a static field of type char.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param fieldID identifies the field
     * @pair GetStaticCharField__return
     */
    probe GetStaticCharField__entry(void *env, void *clazz, void *fieldID);

    /**
     * GetStaticCharField is over.
     * @param result what the call gives back
     * @pair GetStaticCharField__entry
     */
    probe GetStaticCharField__return(unsigned short result);

    /**
     * GetStaticDoubleField begins: reads a static field of type double.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param fieldID identifies the field
     * @pair GetStaticDoubleField__return
     */
    probe GetStaticDoubleField__entry(void *env, void *clazz, void *fieldID);

    /**
     * GetStaticDoubleField is over. The floating-point result is not passed.
     * @pair GetStaticDoubleField__entry
     */
    probe GetStaticDoubleField__return();

    /**
     * GetStaticFieldID begins: looks up a static field.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param name name, NUL-terminated modified UTF-8
     * @param sig type signature, NUL-terminated
     * @pair GetStaticFieldID__return
     */
    probe GetStaticFieldID__entry(void *env, void *clazz, char *name, char *sig);

    /**
     * GetStaticFieldID is over.
     * @param result what the call gives back; NULL after a failure
     * @pair GetStaticFieldID__entry
     */
    probe GetStaticFieldID__return(void *result);

    /**
     * GetStaticFloatField begins: reads a static field of type float.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param fieldID identifies the field
     * @pair GetStaticFloatField__return
     */
    probe GetStaticFloatField__entry(void *env, void *clazz, void *fieldID);

    /**
     * GetStaticFloatField is over. The floating-point result is not passed.
     * @pair GetStaticFloatField__entry
     */
    probe GetStaticFloatField__return();

    /**
     * GetStaticIntField begins: reads a static field of type int.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param fieldID identifies the field
     * @pair GetStaticIntField__return
     */
    probe GetStaticIntField__entry(void *env, void *clazz, void *fieldID);

    /**
     * GetStaticIntField is over.
     * @param result what the call gives back
     * @pair GetStaticIntField__entry
     */
    probe GetStaticIntField__return(int result);

    /**
     * GetStaticLongField begins: reads a static field of type long.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param fieldID identifies the field
     * @pair GetStaticLongField__return
     */
    probe GetStaticLongField__entry(void *env, void *clazz, void *fieldID);

    /**
     * GetStaticLongField is over.
     * @param result what the call gives back
     * @pair GetStaticLongField__entry
     */
    probe GetStaticLongField__return(int64_t result);

    /**
     * GetStaticMethodID begins: looks up a static method.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param name name, NUL-terminated modified UTF-8
     * @param sig type signature, NUL-terminated
     * @pair GetStaticMethodID__return
     */
    probe GetStaticMethodID__entry(void *env, void *clazz, char *name, char *sig);

    /**
     * GetStaticMethodID is over.
     * @param result what the call gives back; NULL after a failure
     * @pair GetStaticMethodID__entry
     */
    probe GetStaticMethodID__return(void *result);

    /**
     * GetStaticObjectField begins: reads a static field of type object.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param fieldID identifies the field
     * @pair GetStaticObjectField__return
     */
    probe GetStaticObjectField__entry(void *env, void *clazz, void *fieldID);

    /**
     * GetStaticObjectField is over.
     * @param result what the call gives back; NULL after a failure
     * @pair GetStaticObjectField__entry
     */
    probe GetStaticObjectField__return(void *result);

    /**
     * GetStaticShortField begins: reads a static field of type short.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param fieldID identifies the field
     * @pair GetStaticShortField__return
     */
    probe GetStaticShortField__entry(void *env, void *clazz, void *fieldID);

    /**
     * GetStaticShortField is over.
     * @param result what the call gives back
     * @pair GetStaticShortField__entry
     */
    probe GetStaticShortField__return(short result);

    /**
     * GetStringChars begins: gets a pointer to the UTF-16 units of a string.
     * @param env JNI environment of the calling thread
     * @param str reference to the string
     * @param isCopy where the callee says whether it made a copy, or NULL
     * @pair GetStringChars__return
     */
    probe GetStringChars__entry(void *env, void *str, void *isCopy);

    /**
     * GetStringChars is over.
     * @param result what the call gives back; NULL after a failure
     * @pair GetStringChars__entry
     */
    probe GetStringChars__return(void *result);

    /**
     * GetStringCritical begins: gets a direct pointer to the UTF-16 units of a string.
     * @param env JNI environment of the calling thread
     * @param string reference to the string
     * @param isCopy where the callee says whether it made a copy, or NULL
     * @pair GetStringCritical__return
     */
    probe GetStringCritical__entry(void *env, void *string, void *isCopy);

    /**
     * GetStringCritical is over.
     * @param result what the call gives back; NULL after a failure
     * @pair GetStringCritical__entry
     */
    probe GetStringCritical__return(void *result);

    /**
     * GetStringLength begins: asks for the length of a string in UTF-16 units.
     * @param env JNI environment of the calling thread
     * @param str reference to the string
     * @pair GetStringLength__return
     */
    probe GetStringLength__entry(void *env, void *str);

    /**
     * GetStringLength is over.
     * @param result what the call gives back
     * @pair GetStringLength__entry
     */
    probe GetStringLength__return(int result);

    /**
     * GetStringRegion begins: copies a range of UTF-16 units out of a string.
     * @param env JNI environment of the calling thread
     * @param str reference to the string
     * @param start index of the first element
     * @param length number of elements
     * @param buffer address of the data
     * @pair GetStringRegion__return
     */
    probe GetStringRegion__entry(void *env, void *str, int start, int length, void *buffer);

    /**
     * GetStringRegion is over.
     * @pair GetStringRegion__entry
     */
    probe GetStringRegion__return();

    /**
     * GetStringUTFChars begins: gets a pointer to a string as modified UTF-8.
     * @param env JNI environment of the calling thread
     * @param str reference to the string
     * @param isCopy where the callee says whether it made a copy, or NULL
     * @pair GetStringUTFChars__return
     */
    probe GetStringUTFChars__entry(void *env, void *str, void *isCopy);

    /**
     * GetStringUTFChars is over.
     * @param result the text, NUL-terminated modified UTF-8; NULL after a failure
     * @pair GetStringUTFChars__entry
     */
    probe GetStringUTFChars__return(char *result);

    /**
     * GetStringUTFLength begins: asks for the length of a string in modified UTF-8 bytes.
     * @param env JNI environment of the calling thread
     * @param str reference to the string
     * @pair GetStringUTFLength__return
     */
    probe GetStringUTFLength__entry(void *env, void *str);

    /**
     * GetStringUTFLength is over.
     * @param result what the call gives back
     * @pair GetStringUTFLength__entry
     */
    probe GetStringUTFLength__return(int result);

    /**
     * GetStringUTFRegion begins: copies a range of a string out as modified UTF-8.
     * @param env JNI environment of the calling thread
     * @param str reference to the string
     * @param start index of the first element
     * @param length number of elements
     * @param buffer address of the data
     * @pair GetStringUTFRegion__return
     */
    probe GetStringUTFRegion__entry(void *env, void *str, int start, int length, void *buffer);

    /**
     * GetStringUTFRegion is over.
     * @pair GetStringUTFRegion__entry
     */
    probe GetStringUTFRegion__return();

    /**
     * GetSuperclass begins: asks for the superclass.
     * @param env JNI environment of the calling thread
     * @param subclass class that is tested
     * @pair GetSuperclass__return
     */
    probe GetSuperclass__entry(void *env, void *subclass);

    /**
     * GetSuperclass is over.
     * @param result what the call gives back; NULL after a failure
     * @pair GetSuperclass__entry
     */
    probe GetSuperclass__return(void *result);

    /**
     * GetVersion begins: asks for the JNI version.
     * @param env JNI environment of the calling thread
     * @pair GetVersion__return
     */
    probe GetVersion__entry(void *env);

    /**
     * GetVersion is over.
     * @param result what the call gives back
     * @pair GetVersion__entry
     */
    probe GetVersion__return(int result);

    /**
     * IsAssignableFrom begins: asks whether one class can be assigned to another.
     * @param env JNI environment of the calling thread
     * @param subclass class that is tested
     * @param superclass class it might be assigned to
     * @pair IsAssignableFrom__return
     */
    probe IsAssignableFrom__entry(void *env, void *subclass, void *superclass);

    /**
     * IsAssignableFrom is over.
     * @param result the answer
     * @pair IsAssignableFrom__entry
     */
    probe IsAssignableFrom__return(bool result);

    /**
     * IsInstanceOf begins: asks whether an object is an instance of a class.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param clazz reference to the class
     * @pair IsInstanceOf__return
     */
    probe IsInstanceOf__entry(void *env, void *obj, void *clazz);

    /**
     * IsInstanceOf is over.
     * @param result the answer
     * @pair IsInstanceOf__entry
     */
    probe IsInstanceOf__return(bool result);

    /**
     * IsSameObject begins: asks whether two references mean one object.
     * @param env JNI environment of the calling thread
     * @param obj1 first reference
     * @param obj2 second reference
     * @pair IsSameObject__return
     */
    probe IsSameObject__entry(void *env, void *obj1, void *obj2);

    /**
     * IsSameObject is over.
     * @param result the answer
     * @pair IsSameObject__entry
     */
    probe IsSameObject__return(bool result);

    /**
     * MonitorEnter begins: enters the monitor of an object.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @pair MonitorEnter__return
     */
    probe MonitorEnter__entry(void *env, void *obj);

    /**
     * MonitorEnter is over.
     * @param result 0, or a JNI error number below 0
     * @enum result 0=OK -1=ERR -2=EDETACHED -3=EVERSION -4=ENOMEM -5=EEXIST -6=EINVAL
     * @pair MonitorEnter__entry
     */
    probe MonitorEnter__return(int result);

    /**
     * MonitorExit begins: leaves the monitor of an object.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @pair MonitorExit__return
     */
    probe MonitorExit__entry(void *env, void *obj);

    /**
     * MonitorExit is over.
     * @param result 0, or a JNI error number below 0
     * @enum result 0=OK -1=ERR -2=EDETACHED -3=EVERSION -4=ENOMEM -5=EEXIST -6=EINVAL
     * @pair MonitorExit__entry
     */
    probe MonitorExit__return(int result);

    /**
     * NewBooleanArray begins: makes a boolean array.
     * @param env JNI environment of the calling thread
     * @param length number of elements
     * @pair NewBooleanArray__return
     */
    probe NewBooleanArray__entry(void *env, int length);

    /**
     * NewBooleanArray is over.
     * @param result what the call gives back; NULL after a failure
     * @pair NewBooleanArray__entry
     */
    probe NewBooleanArray__return(void *result);

    /**
     * NewByteArray begins: makes a byte array.
     * @param env JNI environment of the calling thread
     * @param length number of elements
     * @pair NewByteArray__return
     */
    probe NewByteArray__entry(void *env, int length);

    /**
     * NewByteArray is over.
     * @param result what the call gives back; NULL after a failure
     * @pair NewByteArray__entry
     */
    probe NewByteArray__return(void *result);

    /**
     * NewCharArray begins: makes a char array.
     * @param env JNI environment of the calling thread
     * @param length number of elements
     * @pair NewCharArray__return
     */
    probe NewCharArray__entry(void *env, int length);

    /**
     * NewCharArray is over.
     * @param result what the call gives back; NULL after a failure
     * @pair NewCharArray__entry
     */
    probe NewCharArray__return(void *result);

    /**
     * NewDirectByteBuffer begins: wraps memory in a direct byte buffer.
     * @param env JNI environment of the calling thread
     * @param address start of the memory
     * @param capacity size of the memory in bytes
     * @pair NewDirectByteBuffer__return
     */
    probe NewDirectByteBuffer__entry(void *env, void *address, int64_t capacity);

    /**
     * NewDirectByteBuffer is over.
     * @param result what the call gives back; NULL after a failure
     * @pair NewDirectByteBuffer__entry
     */
    probe NewDirectByteBuffer__return(void *result);

    /**
     * NewDoubleArray begins: makes a double array.
     * @param env JNI environment of the calling thread
     * @param length number of elements
     * @pair NewDoubleArray__return
     */
    probe NewDoubleArray__entry(void *env, int length);

    /**
     * NewDoubleArray is over.
     * @param result what the call gives back; NULL after a failure
     * @pair NewDoubleArray__entry
     */
    probe NewDoubleArray__return(void *result);

    /**
     * NewFloatArray begins: makes a float array.
     * @param env JNI environment of the calling thread
     * @param length number of elements
     * @pair NewFloatArray__return
     */
    probe NewFloatArray__entry(void *env, int length);

    /**
     * NewFloatArray is over.
     * @param result what the call gives back; NULL after a failure
     * @pair NewFloatArray__entry
     */
    probe NewFloatArray__return(void *result);

    /**
     * NewGlobalRef begins: makes a global reference.
     * @param env JNI environment of the calling thread
     * @param ref the reference
     * @pair NewGlobalRef__return
     */
    probe NewGlobalRef__entry(void *env, void *ref);

    /**
     * NewGlobalRef is over.
     * @param result what the call gives back; NULL after a failure
     * @pair NewGlobalRef__entry
     */
    probe NewGlobalRef__return(void *result);

    /**
     * NewIntArray begins: makes a int array.
     * @param env JNI environment of the calling thread
     * @param length number of elements
     * @pair NewIntArray__return
     */
    probe NewIntArray__entry(void *env, int length);

    /**
     * NewIntArray is over.
     * @param result what the call gives back; NULL after a failure
     * @pair NewIntArray__entry
     */
    probe NewIntArray__return(void *result);

    /**
     * NewLocalRef begins: makes a local reference.
     * @param env JNI environment of the calling thread
     * @param ref the reference
     * @pair NewLocalRef__return
     */
    probe NewLocalRef__entry(void *env, void *ref);

    /**
     * NewLocalRef is over.
     * @param result what the call gives back; NULL after a failure
     * @pair NewLocalRef__entry
     */
    probe NewLocalRef__return(void *result);

    /**
     * NewLongArray begins: makes a long array.
     * @param env JNI environment of the calling thread
     * @param length number of elements
     * @pair NewLongArray__return
     */
    probe NewLongArray__entry(void *env, int length);

    /**
     * NewLongArray is over.
     * @param result what the call gives back; NULL after a failure
     * @pair NewLongArray__entry
     */
    probe NewLongArray__return(void *result);

    /**
     * NewObject begins: makes an object; constructor arguments come as a variable argument list.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair NewObject__return
     */
    probe NewObject__entry(void *env, void *clazz, void *methodID);

    /**
     * NewObject is over.
     * @param result what the call gives back; NULL after a failure
     * @pair NewObject__entry
     */
    probe NewObject__return(void *result);

    /**
     * NewObjectA begins: makes an object; constructor arguments come as an array.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair NewObjectA__return
     */
    probe NewObjectA__entry(void *env, void *clazz, void *methodID);

    /**
     * NewObjectA is over.
     * @param result what the call gives back; NULL after a failure
     * @pair NewObjectA__entry
     */
    probe NewObjectA__return(void *result);

    /**
     * NewObjectArray begins: makes an array of objects.
     * @param env JNI environment of the calling thread
     * @param length number of elements
     * @param clazz reference to the class
     * @param init initial value of each element, or NULL
     * @pair NewObjectArray__return
     */
    probe NewObjectArray__entry(void *env, int length, void *clazz, void *init);

    /**
     * NewObjectArray is over.
     * @param result what the call gives back; NULL after a failure
     * @pair NewObjectArray__entry
     */
    probe NewObjectArray__return(void *result);

    /**
     * NewObjectV begins: makes an object; constructor arguments come as a va_list.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @pair NewObjectV__return
     */
    probe NewObjectV__entry(void *env, void *clazz, void *methodID);

    /**
     * NewObjectV is over.
     * @param result what the call gives back; NULL after a failure
     * @pair NewObjectV__entry
     */
    probe NewObjectV__return(void *result);

    /**
     * NewShortArray begins: makes a short array.
     * @param env JNI environment of the calling thread
     * @param length number of elements
     * @pair NewShortArray__return
     */
    probe NewShortArray__entry(void *env, int length);

    /**
     * NewShortArray is over.
     * @param result what the call gives back; NULL after a failure
     * @pair NewShortArray__entry
     */
    probe NewShortArray__return(void *result);

    /**
     * NewString begins: makes a string from UTF-16 units.
     * @param env JNI environment of the calling thread
     * @param unicode address of the UTF-16 units
     * @param length number of elements
     * @pair NewString__return
     */
    probe NewString__entry(void *env, void *unicode, int length);

    /**
     * NewString is over.
     * @param result what the call gives back; NULL after a failure
     * @pair NewString__entry
     */
    probe NewString__return(void *result);

    /**
     * NewStringUTF begins: makes a string from modified UTF-8.
     * @param env JNI environment of the calling thread
     * @param utf text, NUL-terminated modified UTF-8
     * @pair NewStringUTF__return
     */
    probe NewStringUTF__entry(void *env, char *utf);

    /**
     * NewStringUTF is over.
     * @param result what the call gives back; NULL after a failure
     * @pair NewStringUTF__entry
     */
    probe NewStringUTF__return(void *result);

    /**
     * NewWeakGlobalRef begins: makes a weak global reference.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @pair NewWeakGlobalRef__return
     */
    probe NewWeakGlobalRef__entry(void *env, void *obj);

    /**
     * NewWeakGlobalRef is over.
     * @param result what the call gives back; NULL after a failure
     * @pair NewWeakGlobalRef__entry
     */
    probe NewWeakGlobalRef__return(void *result);

    /**
     * PopLocalFrame begins: closes a frame of local references.
     * @param env JNI environment of the calling thread
     * @param result reference to carry into the outer frame
     * @pair PopLocalFrame__return
     */
    probe PopLocalFrame__entry(void *env, void *result);

    /**
     * PopLocalFrame is over.
     * @param result what the call gives back; NULL after a failure
     * @pair PopLocalFrame__entry
     */
    probe PopLocalFrame__return(void *result);

    /**
     * PushLocalFrame begins: opens a frame of local references.
     * @param env JNI environment of the calling thread
     * @param capacity room asked for, in local references
     * @pair PushLocalFrame__return
     */
    probe PushLocalFrame__entry(void *env, int capacity);

    /**
     * PushLocalFrame is over.
     * @param result 0, or a JNI error number below 0
     * @enum result 0=OK -1=ERR -2=EDETACHED -3=EVERSION -4=ENOMEM -5=EEXIST -6=EINVAL
     * @pair PushLocalFrame__entry
     */
    probe PushLocalFrame__return(int result);

    /**
     * RegisterNatives begins: binds native functions to the native methods of a class.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methods table of names, signatures and native functions
     * @param nMethods entries in the table
     * @pair RegisterNatives__return
     */
    probe RegisterNatives__entry(void *env, void *clazz, void *methods, int nMethods);

    /**
     * RegisterNatives is over.
     * @param result 0, or a JNI error number below 0
     * @enum result 0=OK -1=ERR -2=EDETACHED -3=EVERSION -4=ENOMEM -5=EEXIST -6=EINVAL
     * @pair RegisterNatives__entry
     */
    probe RegisterNatives__return(int result);

    /**
     * ReleaseBooleanArrayElements begins: gives back the pointer to the elements of a boolean array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param elems address of the elements
     * @param mode what becomes of the copy
     * @enum mode 0=COPY_BACK_AND_FREE 1=COMMIT 2=ABORT
     * @pair ReleaseBooleanArrayElements__return
     */
    probe ReleaseBooleanArrayElements__entry(void *env, void *array, void *elems, int mode);

    /**
     * ReleaseBooleanArrayElements is over.
     * @pair ReleaseBooleanArrayElements__entry
     */
    probe ReleaseBooleanArrayElements__return();

    /**
     * ReleaseByteArrayElements begins: gives back the pointer to the elements of a byte array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param elems address of the elements
     * @param mode what becomes of the copy
     * @enum mode 0=COPY_BACK_AND_FREE 1=COMMIT 2=ABORT
     * @pair ReleaseByteArrayElements__return
     */
    probe ReleaseByteArrayElements__entry(void *env, void *array, void *elems, int mode);

    /**
     * ReleaseByteArrayElements is over.
     * @pair ReleaseByteArrayElements__entry
     */
    probe ReleaseByteArrayElements__return();

    /**
     * ReleaseCharArrayElements begins: gives back the pointer to the elements of a char array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param elems address of the elements
     * @param mode what becomes of the copy
     * @enum mode 0=COPY_BACK_AND_FREE 1=COMMIT 2=ABORT
     * @pair ReleaseCharArrayElements__return
     */
    probe ReleaseCharArrayElements__entry(void *env, void *array, void *elems, int mode);

    /**
     * ReleaseCharArrayElements is over.
     * @pair ReleaseCharArrayElements__entry
     */
    probe ReleaseCharArrayElements__return();

    /**
     * ReleaseDoubleArrayElements begins: gives back the pointer to the elements of a double array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param elems address of the elements
     * @param mode what becomes of the copy
     * @enum mode 0=COPY_BACK_AND_FREE 1=COMMIT 2=ABORT
     * @pair ReleaseDoubleArrayElements__return
     */
    probe ReleaseDoubleArrayElements__entry(void *env, void *array, void *elems, int mode);

    /**
     * ReleaseDoubleArrayElements is over.
     * @pair ReleaseDoubleArrayElements__entry
     */
    probe ReleaseDoubleArrayElements__return();

    /**
     * ReleaseFloatArrayElements begins: gives back the pointer to the elements of a float array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param elems address of the elements
     * @param mode what becomes of the copy
     * @enum mode 0=COPY_BACK_AND_FREE 1=COMMIT 2=ABORT
     * @pair ReleaseFloatArrayElements__return
     */
    probe ReleaseFloatArrayElements__entry(void *env, void *array, void *elems, int mode);

    /**
     * ReleaseFloatArrayElements is over.
     * @pair ReleaseFloatArrayElements__entry
     */
    probe ReleaseFloatArrayElements__return();

    /**
     * ReleaseIntArrayElements begins: gives back the pointer to the elements of a int array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param elems address of the elements
     * @param mode what becomes of the copy
     * @enum mode 0=COPY_BACK_AND_FREE 1=COMMIT 2=ABORT
     * @pair ReleaseIntArrayElements__return
     */
    probe ReleaseIntArrayElements__entry(void *env, void *array, void *elems, int mode);

    /**
     * ReleaseIntArrayElements is over.
     * @pair ReleaseIntArrayElements__entry
     */
    probe ReleaseIntArrayElements__return();

    /**
     * ReleaseLongArrayElements begins: gives back the pointer to the elements of a long array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param elems address of the elements
     * @param mode what becomes of the copy
     * @enum mode 0=COPY_BACK_AND_FREE 1=COMMIT 2=ABORT
     * @pair ReleaseLongArrayElements__return
     */
    probe ReleaseLongArrayElements__entry(void *env, void *array, void *elems, int mode);

    /**
     * ReleaseLongArrayElements is over.
     * @pair ReleaseLongArrayElements__entry
     */
    probe ReleaseLongArrayElements__return();

    /**
     * ReleasePrimitiveArrayCritical begins: gives back a direct pointer to a primitive array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param carray address of the elements
     * @param mode what becomes of the copy
     * @enum mode 0=COPY_BACK_AND_FREE 1=COMMIT 2=ABORT
     * @pair ReleasePrimitiveArrayCritical__return
     */
    probe ReleasePrimitiveArrayCritical__entry(void *env, void *array, void *carray, int mode);

    /**
     * ReleasePrimitiveArrayCritical is over.
     * @pair ReleasePrimitiveArrayCritical__entry
     */
    probe ReleasePrimitiveArrayCritical__return();

    /**
     * ReleaseShortArrayElements begins: gives back the pointer to the elements of a short array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param elems address of the elements
     * @param mode what becomes of the copy
     * @enum mode 0=COPY_BACK_AND_FREE 1=COMMIT 2=ABORT
     * @pair ReleaseShortArrayElements__return
     */
    probe ReleaseShortArrayElements__entry(void *env, void *array, void *elems, int mode);

    /**
     * ReleaseShortArrayElements is over.
     * @pair ReleaseShortArrayElements__entry
     */
    probe ReleaseShortArrayElements__return();

    /**
     * ReleaseStringChars begins: gives back a pointer from GetStringChars.
     * @param env JNI environment of the calling thread
     * @param str reference to the string
     * @param chars address of the UTF-16 units
     * @pair ReleaseStringChars__return
     */
    probe ReleaseStringChars__entry(void *env, void *str, void *chars);

    /**
     * ReleaseStringChars is over.
     * @pair ReleaseStringChars__entry
     */
    probe ReleaseStringChars__return();

    /**
     * ReleaseStringCritical begins: gives back a direct pointer to a string.
     * @param env JNI environment of the calling thread
     * @param string reference to the string
     * @param cstring address of the UTF-16 units
     * @pair ReleaseStringCritical__return
     */
    probe ReleaseStringCritical__entry(void *env, void *string, void *cstring);

    /**
     * ReleaseStringCritical is over.
     * @pair ReleaseStringCritical__entry
     */
    probe ReleaseStringCritical__return();

    /**
     * ReleaseStringUTFChars begins: gives back a pointer from GetStringUTFChars.
     * @param env JNI environment of the calling thread
     * @param str reference to the string
     * @param chars text, NUL-terminated modified UTF-8
     * @pair ReleaseStringUTFChars__return
     */
    probe ReleaseStringUTFChars__entry(void *env, void *str, char *chars);

    /**
     * ReleaseStringUTFChars is over.
     * @pair ReleaseStringUTFChars__entry
     */
    probe ReleaseStringUTFChars__return();

    /**
     * SetBooleanArrayRegion begins: copies a range into a boolean array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param start index of the first element
     * @param length number of elements
     * @param buffer address of the data
     * @pair SetBooleanArrayRegion__return
     */
    probe SetBooleanArrayRegion__entry(void *env, void *array, int start, int length, void *buffer);

    /**
     * SetBooleanArrayRegion is over.
     * @pair SetBooleanArrayRegion__entry
     */
    probe SetBooleanArrayRegion__return();

    /**
     * SetBooleanField begins: writes an instance field of type boolean.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param fieldID identifies the field
     * @param val value that is stored
     * @pair SetBooleanField__return
     */
    probe SetBooleanField__entry(void *env, void *obj, void *fieldID, bool val);

    /**
     * SetBooleanField is over.
     * @pair SetBooleanField__entry
     */
    probe SetBooleanField__return();

    /**
     * SetByteArrayRegion begins: copies a range into a byte array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param start index of the first element
     * @param length number of elements
     * @param buffer address of the data
     * @pair SetByteArrayRegion__return
     */
    probe SetByteArrayRegion__entry(void *env, void *array, int start, int length, void *buffer);

    /**
     * SetByteArrayRegion is over.
     * @pair SetByteArrayRegion__entry
     */
    probe SetByteArrayRegion__return();

    /**
     * SetByteField begins: writes an instance field of type byte.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param fieldID identifies the field
     * @param val value that is stored
     * @pair SetByteField__return
     */
    probe SetByteField__entry(void *env, void *obj, void *fieldID, int8_t val);

    /**
     * SetByteField is over.
     * @pair SetByteField__entry
     */
    probe SetByteField__return();

    /**
     * SetCharArrayRegion begins: copies a range into a char array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param start index of the first element
     * @param length number of elements
     * @param buffer address of the data
     * @pair SetCharArrayRegion__return
     */
    probe SetCharArrayRegion__entry(void *env, void *array, int start, int length, void *buffer);

    /**
     * SetCharArrayRegion is over.
     * @pair SetCharArrayRegion__entry
     */
    probe SetCharArrayRegion__return();

    /**
     * SetCharField begins: writes an instance field of type char.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param fieldID identifies the field
     * @param val value that is stored
     * @pair SetCharField__return
     */
    probe SetCharField__entry(void *env, void *obj, void *fieldID, unsigned short val);

    /**
     * SetCharField is over.
     * @pair SetCharField__entry
     */
    probe SetCharField__return();

    /**
     * SetDoubleArrayRegion begins: copies a range into a double array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param start index of the first element
     * @param length number of elements
     * @param buffer address of the data
     * @pair SetDoubleArrayRegion__return
     */
    probe SetDoubleArrayRegion__entry(void *env, void *array, int start, int length, void *buffer);

    /**
     * SetDoubleArrayRegion is over.
     * @pair SetDoubleArrayRegion__entry
     */
    probe SetDoubleArrayRegion__return();

    /**
     * SetDoubleField begins: writes an instance field of type double.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param fieldID identifies the field
     * @pair SetDoubleField__return
     */
    probe SetDoubleField__entry(void *env, void *obj, void *fieldID);

    /**
     * SetDoubleField is over.
     * @pair SetDoubleField__entry
     */
    probe SetDoubleField__return();

    /**
     * SetFloatArrayRegion begins: copies a range into a float array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param start index of the first element
     * @param length number of elements
     * @param buffer address of the data
     * @pair SetFloatArrayRegion__return
     */
    probe SetFloatArrayRegion__entry(void *env, void *array, int start, int length, void *buffer);

    /**
     * SetFloatArrayRegion is over.
     * @pair SetFloatArrayRegion__entry
     */
    probe SetFloatArrayRegion__return();

    /**
     * SetFloatField begins: writes an instance field of type float.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param fieldID identifies the field
     * @pair SetFloatField__return
     */
    probe SetFloatField__entry(void *env, void *obj, void *fieldID);

    /**
     * SetFloatField is over.
     * @pair SetFloatField__entry
     */
    probe SetFloatField__return();

    /**
     * SetIntArrayRegion begins: copies a range into a int array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param start index of the first element
     * @param length number of elements
     * @param buffer address of the data
     * @pair SetIntArrayRegion__return
     */
    probe SetIntArrayRegion__entry(void *env, void *array, int start, int length, void *buffer);

    /**
     * SetIntArrayRegion is over.
     * @pair SetIntArrayRegion__entry
     */
    probe SetIntArrayRegion__return();

    /**
     * SetIntField begins: writes an instance field of type int.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param fieldID identifies the field
     * @param val value that is stored
     * @pair SetIntField__return
     */
    probe SetIntField__entry(void *env, void *obj, void *fieldID, int val);

    /**
     * SetIntField is over.
     * @pair SetIntField__entry
     */
    probe SetIntField__return();

    /**
     * SetLongArrayRegion begins: copies a range into a long array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param start index of the first element
     * @param length number of elements
     * @param buffer address of the data
     * @pair SetLongArrayRegion__return
     */
    probe SetLongArrayRegion__entry(void *env, void *array, int start, int length, void *buffer);

    /**
     * SetLongArrayRegion is over.
     * @pair SetLongArrayRegion__entry
     */
    probe SetLongArrayRegion__return();

    /**
     * SetLongField begins: writes an instance field of type long.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param fieldID identifies the field
     * @param val value that is stored
     * @pair SetLongField__return
     */
    probe SetLongField__entry(void *env, void *obj, void *fieldID, int64_t val);

    /**
     * SetLongField is over.
     * @pair SetLongField__entry
     */
    probe SetLongField__return();

    /**
     * SetObjectArrayElement begins: writes an element of an object array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param index index of the element
     * @param val value that is stored
     * @pair SetObjectArrayElement__return
     */
    probe SetObjectArrayElement__entry(void *env, void *array, int index, void *val);

    /**
     * SetObjectArrayElement is over.
     * @pair SetObjectArrayElement__entry
     */
    probe SetObjectArrayElement__return();

    /**
     * SetObjectField begins: writes an instance field of type object.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param fieldID identifies the field
     * @param val value that is stored
     * @pair SetObjectField__return
     */
    probe SetObjectField__entry(void *env, void *obj, void *fieldID, void *val);

    /**
     * SetObjectField is over.
     * @pair SetObjectField__entry
     */
    probe SetObjectField__return();

    /**
     * SetShortArrayRegion begins: copies a range into a short array.
     * @param env JNI environment of the calling thread
     * @param array reference to the array
     * @param start index of the first element
     * @param length number of elements
     * @param buffer address of the data
     * @pair SetShortArrayRegion__return
     */
    probe SetShortArrayRegion__entry(void *env, void *array, int start, int length, void *buffer);

    /**
     * SetShortArrayRegion is over.
     * @pair SetShortArrayRegion__entry
     */
    probe SetShortArrayRegion__return();

    /**
     * SetShortField begins: writes an instance field of type short.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @param fieldID identifies the field
     * @param val value that is stored
     * @pair SetShortField__return
     */
    probe SetShortField__entry(void *env, void *obj, void *fieldID, short val);

    /**
     * SetShortField is over.
     * @pair SetShortField__entry
     */
    probe SetShortField__return();

    /**
     * SetStaticBooleanField begins: writes a static field of type boolean.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param fieldID identifies the field
     * @param value value that is stored
     * @pair SetStaticBooleanField__return
     */
    probe SetStaticBooleanField__entry(void *env, void *clazz, void *fieldID, bool value);

    /**
     * SetStaticBooleanField is over.
     * @pair SetStaticBooleanField__entry
     */
    probe SetStaticBooleanField__return();

    /**
     * SetStaticByteField begins: writes a static field of type byte.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param fieldID identifies the field
     * @param value value that is stored
     * @pair SetStaticByteField__return
     */
    probe SetStaticByteField__entry(void *env, void *clazz, void *fieldID, int8_t value);

    /**
     * SetStaticByteField is over.
     * @pair SetStaticByteField__entry
     */
    probe SetStaticByteField__return();

    /**
     * SetStaticCharField begins: writes a static field of type char.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param fieldID identifies the field
     * @param value value that is stored
     * @pair SetStaticCharField__return
     */
    probe SetStaticCharField__entry(void *env, void *clazz, void *fieldID, unsigned short value);

    /**
     * SetStaticCharField is over.
     * @pair SetStaticCharField__entry
     */
    probe SetStaticCharField__return();

    /**
     * SetStaticDoubleField begins: writes a static field of type double.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param fieldID identifies the field
     * @pair SetStaticDoubleField__return
     */
    probe SetStaticDoubleField__entry(void *env, void *clazz, void *fieldID);

    /**
     * SetStaticDoubleField is over.
     * @pair SetStaticDoubleField__entry
     */
    probe SetStaticDoubleField__return();

    /**
     * SetStaticFloatField begins: writes a static field of type float.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param fieldID identifies the field
     * @pair SetStaticFloatField__return
     */
    probe SetStaticFloatField__entry(void *env, void *clazz, void *fieldID);

    /**
     * SetStaticFloatField is over.
     * @pair SetStaticFloatField__entry
     */
    probe SetStaticFloatField__return();

    /**
     * SetStaticIntField begins: writes a static field of type int.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param fieldID identifies the field
     * @param value value that is stored
     * @pair SetStaticIntField__return
     */
    probe SetStaticIntField__entry(void *env, void *clazz, void *fieldID, int value);

    /**
     * SetStaticIntField is over.
     * @pair SetStaticIntField__entry
     */
    probe SetStaticIntField__return();

    /**
     * SetStaticLongField begins: writes a static field of type long.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param fieldID identifies the field
     * @param value value that is stored
     * @pair SetStaticLongField__return
     */
    probe SetStaticLongField__entry(void *env, void *clazz, void *fieldID, int64_t value);

    /**
     * SetStaticLongField is over.
     * @pair SetStaticLongField__entry
     */
    probe SetStaticLongField__return();

    /**
     * SetStaticObjectField begins: writes a static field of type object.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param fieldID identifies the field
     * @param value value that is stored
     * @pair SetStaticObjectField__return
     */
    probe SetStaticObjectField__entry(void *env, void *clazz, void *fieldID, void *value);

    /**
     * SetStaticObjectField is over.
     * @pair SetStaticObjectField__entry
     */
    probe SetStaticObjectField__return();

    /**
     * SetStaticShortField begins: writes a static field of type short.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param fieldID identifies the field
     * @param value value that is stored
     * @pair SetStaticShortField__return
     */
    probe SetStaticShortField__entry(void *env, void *clazz, void *fieldID, short value);

    /**
     * SetStaticShortField is over.
     * @pair SetStaticShortField__entry
     */
    probe SetStaticShortField__return();

    /**
     * Throw begins: throws an exception object.
     * @param env JNI environment of the calling thread
     * @param obj reference to the object
     * @pair Throw__return
     */
    probe Throw__entry(void *env, void *obj);

    /**
     * Throw is over.
     * @param result 0, or a JNI error number below 0
     * @enum result 0=OK -1=ERR -2=EDETACHED -3=EVERSION -4=ENOMEM -5=EEXIST -6=EINVAL
     * @pair Throw__entry
     */
    probe Throw__return(int result);

    /**
     * ThrowNew begins: makes an exception with a message and throws it.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param message text, NUL-terminated
     * @pair ThrowNew__return
     */
    probe ThrowNew__entry(void *env, void *clazz, char *message);

    /**
     * ThrowNew is over.
     * @param result 0, or a JNI error number below 0
     * @enum result 0=OK -1=ERR -2=EDETACHED -3=EVERSION -4=ENOMEM -5=EEXIST -6=EINVAL
     * @pair ThrowNew__entry
     */
    probe ThrowNew__return(int result);

    /**
     * ToReflectedField begins: turns a field ID into a reflected field.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param fieldID identifies the field
     * @param isStatic whether the member is static
     * @pair ToReflectedField__return
     */
    probe ToReflectedField__entry(void *env, void *clazz, void *fieldID, bool isStatic);

    /**
     * ToReflectedField is over.
     * @param result what the call gives back; NULL after a failure
     * @pair ToReflectedField__entry
     */
    probe ToReflectedField__return(void *result);

    /**
     * ToReflectedMethod begins: turns a method ID into a reflected method.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @param methodID identifies the method
     * @param isStatic whether the member is static
     * @pair ToReflectedMethod__return
     */
    probe ToReflectedMethod__entry(void *env, void *clazz, void *methodID, bool isStatic);

    /**
     * ToReflectedMethod is over.
     * @param result what the call gives back; NULL after a failure
     * @pair ToReflectedMethod__entry
     */
    probe ToReflectedMethod__return(void *result);

    /**
     * UnregisterNatives begins: unbinds the native methods of a class.
     * @param env JNI environment of the calling thread
     * @param clazz reference to the class
     * @pair UnregisterNatives__return
     */
    probe UnregisterNatives__entry(void *env, void *clazz);

    /**
     * UnregisterNatives is over.
     * @param result 0, or a JNI error number below 0
     * @enum result 0=OK -1=ERR -2=EDETACHED -3=EVERSION -4=ENOMEM -5=EEXIST -6=EINVAL
     * @pair UnregisterNatives__entry
     */
    probe UnregisterNatives__return(int result);
};
