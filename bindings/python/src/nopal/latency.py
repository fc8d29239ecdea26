"""Latency of functions, coroutines and blocks of code, and the ids that tell concurrent ones apart.

An id belongs to one measured call. It is kept in a context variable, so each thread and each asyncio task has its own, and
a task knows the measured call that started it.
"""

import contextlib
import contextvars
import functools
import inspect
import itertools
import os
from time import perf_counter_ns

from ._types import Type
from .shared import function_probe, probe_of

_current = contextvars.ContextVar("nopal_id", default=0)
_numbers = itertools.count(1)
_process = os.getpid() << 32


def _after_fork():
    global _process
    _process = os.getpid() << 32


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def new_id():
    """A number that no other call in this or another living process has: the process, then a count."""
    return _process | (next(_numbers) & 0xFFFF_FFFF)


def current_id():
    """The id of the innermost measured call that is being traced, here and in this task; 0 if there is none."""
    return _current.get()


# The arguments of the probe of a measurement.
_ARGUMENTS = {"name": str, "duration_ns": int, "id": Type.UINT64, "parent_id": Type.UINT64}


class _Measured:
    """One measured call, from its beginning to its end."""

    __slots__ = ("_id", "_name", "_parent", "_probe", "_started")

    def __init__(self, probe, name):
        self._probe = probe
        self._name = name

    def __enter__(self):
        self._parent = _current.get()
        self._id = new_id()
        _current.set(self._id)
        self._started = perf_counter_ns()

    def __exit__(self, *_):
        duration = perf_counter_ns() - self._started
        _current.set(self._parent)
        self._probe.fire(self._name, duration, self._id, self._parent)


class _MeasuredGenerator:
    """One generator, synchronous or not: the time it spends running, without that of whoever takes its values."""

    __slots__ = ("_generator", "_id", "_name", "_parent", "_probe", "_spent")

    def __init__(self, probe, name, generator):
        self._probe = probe
        self._name = name
        self._generator = generator
        self._parent = _current.get()
        self._id = new_id()
        self._spent = 0

    def __iter__(self):
        return self

    def __next__(self):
        return self._resume(self._generator.__next__)

    def send(self, value):
        return self._resume(self._generator.send, value)

    def throw(self, *error):
        return self._resume(self._generator.throw, *error)

    def close(self):
        with self._running():
            self._generator.close()
        self.over()

    def _resume(self, step, *values):
        try:
            with self._running():
                return step(*values)
        except BaseException:
            self.over()
            raise

    async def resume(self, step):
        with self._running():
            return await step

    @contextlib.contextmanager
    def _running(self):
        before = _current.get()
        _current.set(self._id)
        started = perf_counter_ns()
        try:
            yield
        finally:
            self._spent += perf_counter_ns() - started
            _current.set(before)

    def over(self):
        self._probe.fire(self._name, self._spent, self._id, self._parent)


async def _awaited(step):
    return await step


class latency:
    """Fires how long something took, when it is over, be it by an exception: ``(name, duration_ns, id, parent_id)``.

    As a decorator, of functions, coroutine functions and generator functions, asynchronous ones, too; the probe has the
    function's name unless another is given. A generator is over when its last value was taken or it was closed; what
    counts is the time in which it ran, not that of whoever takes its values::

        @nopal.latency("shop")
        async def checkout(cart): ...

    As a context manager, also an asynchronous one::

        with nopal.latency("shop", "pay"): ...

    ``provider`` is a name, or a :class:`Provider` of one's own, to be loaded by its owner. While nobody listens, no clock
    is read and no id is made.
    """

    def __init__(self, provider, name=None):
        self._provider = provider
        self._name = name
        self._probe = probe_of(provider, name, "latency", **_ARGUMENTS) if name is not None else None
        # What `with` has begun in this task and not ended; None for what nobody listened to. One object may be in use
        # many times at once.
        self._begun = contextvars.ContextVar("nopal_begun", default=())

    def __call__(self, function):
        probe, shown = function_probe(self._provider, self._name, "latency", function, **_ARGUMENTS)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def measured(*args, **kwargs):
                if not probe.is_enabled:
                    return await function(*args, **kwargs)
                with _Measured(probe, shown):
                    return await function(*args, **kwargs)

        elif inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def measured(*args, **kwargs):
                generator = function(*args, **kwargs)
                if probe.is_enabled:
                    generator = _MeasuredGenerator(probe, shown, generator)
                return (yield from generator)

        elif inspect.isasyncgenfunction(function):

            @functools.wraps(function)
            async def measured(*args, **kwargs):
                generator = function(*args, **kwargs)
                times = _MeasuredGenerator(probe, shown, generator) if probe.is_enabled else None
                resume = times.resume if times else _awaited
                try:
                    value = await resume(generator.__anext__())
                    while True:
                        try:
                            answer = yield value
                        except GeneratorExit:
                            raise
                        except BaseException as error:  # noqa: BLE001: the generator decides what becomes of it
                            value = await resume(generator.athrow(error))
                        else:
                            value = await resume(generator.asend(answer))
                except StopAsyncIteration:
                    return
                finally:
                    await resume(generator.aclose())
                    if times:
                        times.over()

        else:

            @functools.wraps(function)
            def measured(*args, **kwargs):
                if not probe.is_enabled:
                    return function(*args, **kwargs)
                with _Measured(probe, shown):
                    return function(*args, **kwargs)

        return measured

    def __enter__(self):
        if self._probe is None:
            raise TypeError("as a context manager, latency needs the name of a probe: latency(provider, name)")
        measured = _Measured(self._probe, self._name) if self._probe.is_enabled else None
        self._begun.set((*self._begun.get(), measured))
        if measured:
            measured.__enter__()
        return self

    def __exit__(self, *_):
        begun = self._begun.get()
        # Empty if this is another context than that of the beginning, as when a generator is thrown away.
        if begun:
            self._begun.set(begun[:-1])
            if begun[-1]:
                begun[-1].__exit__()

    async def __aenter__(self):
        return self.__enter__()

    async def __aexit__(self, *_):
        self.__exit__()
