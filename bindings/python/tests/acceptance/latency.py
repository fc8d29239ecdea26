import signal

import nopal


@nopal.latency("expensive_operation")
def execute(*, size):
    return [1] * size


signal.signal(signal.SIGUSR2, lambda *_: execute(size=100_000))

print("ready", flush=True)
while True:
    signal.pause()
