#!/usr/bin/env python3
"""What probes cost a Python program. Prints one line of JSON.

python.py           while nobody listens, and to declare them
python.py enabled   while somebody does: says `ready PID`, waits for a tracer of bench:event, measures
"""

import json
import os
import platform
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bindings/python/src"))

import nopal  # noqa: E402

ROUNDS = 7


def measured(function, count):
    """The best of some rounds, in ns a call, without what an empty loop takes."""

    def best(body):
        took = []
        for _ in range(ROUNDS):
            started = time.perf_counter_ns()
            body()
            took.append(time.perf_counter_ns() - started)
        return min(took) / count

    def empty():
        for _ in range(count):
            pass

    def full():
        for _ in range(count):
            function()

    return round(best(full) - best(empty), 1)


def disabled():
    provider = nopal.Provider("bench")
    event = provider.add_probe("event", int, int)
    text = provider.add_probe("text", str, int)
    provider.load()

    def plain(value):
        return value

    decorated = nopal.latency("bench")(plain)
    block = nopal.latency("bench", "block")

    def within():
        with block:
            pass

    n = 200_000
    call = measured(lambda: None, n)
    cases = {
        "is_enabled_ns": lambda: event.is_enabled,
        "fire_ns": lambda: event.fire(1, 2),
        "fire_text_ns": lambda: text.fire("text", 2),
        "fire_lazy_ns": lambda: event.fire_lazy(tuple),
        "function_ns": lambda: plain(value=1),
        "function_with_latency_ns": lambda: decorated(value=1),
        "with_latency_ns": within,
    }
    return {name: round(measured(function, n) - call, 1) for name, function in cases.items()}


def registration():
    costs = {}
    for count in (1, 10, 100, 1000):
        took = []
        for _ in range(ROUNDS):
            provider = nopal.Provider(f"registered_{count}")
            started = time.perf_counter_ns()
            for i in range(count):
                provider.add_probe(f"probe{i}", int, int)
            provider.load()
            took.append(time.perf_counter_ns() - started)
            provider.close()
        costs[count] = round(min(took) / 1000, 1)
    return costs


def enabled():
    provider = nopal.Provider("bench")
    event = provider.add_probe("event", int, int)
    provider.load()
    print("ready", os.getpid(), flush=True)
    end = time.monotonic() + 30
    while not event.is_enabled:
        if time.monotonic() > end:
            sys.exit("no tracer came")
        time.sleep(0.01)
    time.sleep(0.3)
    return {"enabled_fire_ns": measured(lambda: event.fire(1, 2), 20_000)}


def main():
    about = {"language": "python", "version": platform.python_version()}
    result = enabled() if sys.argv[1:] == ["enabled"] else {**disabled(), "registration_us": registration()}
    print(json.dumps({**about, **result}))


main()
