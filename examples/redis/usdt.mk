# Static probes, only with BUILD_USDT=yes: the header before anything is compiled, the semaphores into the server.
DTRACE?=dtrace
ifeq ($(BUILD_USDT),yes)
$(REDIS_SERVER_OBJ) $(REDIS_CLI_OBJ) $(REDIS_BENCHMARK_OBJ): redis_dtrace.h

redis_dtrace.h: redis_dtrace.d | .make-prerequisites
	$(DTRACE) -h -s $< -o $@

redis_dtrace.o: redis_dtrace.d $(REDIS_SERVER_OBJ)
	$(DTRACE) -G -s $< -o $@ $(REDIS_SERVER_OBJ)

$(REDIS_SERVER_NAME): redis_dtrace.o
endif

clean: clean-usdt

clean-usdt:
	rm -f redis_dtrace.h redis_dtrace.o

.PHONY: clean-usdt
