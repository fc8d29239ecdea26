"""Who calls a function: a decorator that fires the callers."""

import functools
import inspect
import sys

from .shared import function_probe

LIMIT_FRAMES = 100


def stack(provider, name=None):
    """Has a function or coroutine function fire ``(name, stack)`` before each call. ``stack`` has a line for each caller, the
    nearest first: ``file:line in function``. While nobody listens, no frame is looked at.
    """

    def decorate(function):
        probe, shown = function_probe(provider, name, "stack", function, name=str, stack=str)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def traced(*args, **kwargs):
                if probe.is_enabled:
                    probe.fire(shown, _callers(2))
                return await function(*args, **kwargs)

        else:

            @functools.wraps(function)
            def traced(*args, **kwargs):
                if probe.is_enabled:
                    probe.fire(shown, _callers(2))
                return function(*args, **kwargs)

        return traced

    return decorate


def _callers(skip):
    lines = []
    frame = sys._getframe(skip)
    while frame is not None and len(lines) < LIMIT_FRAMES:
        lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}")
        frame = frame.f_back
    return "\n".join(lines)
