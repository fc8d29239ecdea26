import signal

import nopal

provider = nopal.Provider("global")
hello = provider.add_probe("hello_test", str)
provider.load()
signal.signal(signal.SIGUSR2, lambda *_: hello.fire("Hello world"))

print("ready", flush=True)
while True:
    signal.pause()
