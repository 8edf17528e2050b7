"""How functions, arguments and results travel between processes.

Everything goes by ``cloudpickle``, which sends what other processes cannot import (lambdas, functions and
classes of ``__main__``) by value. Plain data takes the short way through ``pickle``.
"""

from __future__ import annotations

import pickle
import sys
import traceback
from typing import Any, Callable, Tuple

import cloudpickle

PROTOCOL = pickle.HIGHEST_PROTOCOL

#: Arguments of one call: a tuple and a dictionary.
CALL = 0
#: Many calls: a list of single arguments.
ITEMS = 1
#: Many calls: a list of tuples of arguments.
TUPLES = 2

_PLAIN = frozenset([int, float, str, bytes, bool, type(None)])


class RemoteTraceback(Exception):
    """The traceback of an exception, as it was where it was raised."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class RemoteError(RuntimeError):
    """Stands for an exception that could not be brought here as it was."""


def dumps(value: Any) -> bytes:
    """Bytes for any value that can travel."""
    if type(value) in _PLAIN:
        return pickle.dumps(value, PROTOCOL)
    return bytes(cloudpickle.dumps(value, PROTOCOL))


def dumps_call(arguments: Tuple[Any, ...], keywords: Any) -> bytes:
    """Bytes for the arguments of one call."""
    for argument in arguments:
        if type(argument) not in _PLAIN:
            return bytes(cloudpickle.dumps((arguments, keywords), PROTOCOL))
    if keywords:
        return bytes(cloudpickle.dumps((arguments, keywords), PROTOCOL))
    return pickle.dumps((arguments, keywords), PROTOCOL)


def dumps_result(value: Any) -> bytes:
    """Bytes for a result. What this process knows by name only is sent by value."""
    try:
        return pickle.dumps(value, PROTOCOL)
    except Exception:
        return bytes(cloudpickle.dumps(value, PROTOCOL))


loads = pickle.loads


def is_importable(function: Callable[..., Any]) -> bool:
    """Whether another process finds the function by its name."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if module in (None, "__main__") or name is None:
        return False
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is function


def dumps_exception(error: BaseException) -> bytes:
    """Bytes for an exception, with its traceback as text."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        packed = dumps_result(error)
        loads(packed)
    except Exception:
        packed = dumps_result(RemoteError(f"{type(error).__name__}: {error}"))
    return pickle.dumps((packed, text), PROTOCOL)


def loads_exception(payload: bytes) -> BaseException:
    """The exception, with the traceback from where it was raised as its cause."""
    packed, text = loads(payload)
    try:
        error = loads(packed)
    except Exception as problem:
        error = RemoteError(f"an exception could not be brought here: {problem}")
    error.__cause__ = RemoteTraceback(text)
    return error  # type: ignore[no-any-return]
