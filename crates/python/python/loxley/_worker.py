"""What runs inside a worker process of an executor."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import signal
import sys
import types
from typing import Any, Callable, Dict, List, Optional, Tuple

from loxley._core import WorkerLine
from loxley._packing import CALL, ITEMS, dumps_exception, dumps_result, loads


def main() -> None:
    """Serves the line on standard input until it ends."""
    line = WorkerLine()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    # Ctrl-C is for the process in front of which somebody sits; it decides what becomes of this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What is defined in the main module over there must not be looked for in this one.
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        limit = _set_up(line.setup())
    except BaseException as error:
        line.ready(dumps_exception(error))
        return
    line.ready(None)
    _serve(line, limit)


def _set_up(setup: bytes) -> Optional[int]:
    folder, arguments, limit, packed = pickle.loads(setup)
    sys.argv = arguments
    with contextlib.suppress(OSError):
        os.chdir(folder or ".")
    initializer, initargs = loads(packed)
    if initializer is not None:
        initializer(*initargs)
    return limit  # type: ignore[no-any-return]


def _serve(line: WorkerLine, limit: Optional[int]) -> None:
    functions: Dict[int, Callable[..., Any]] = {}
    count = 0
    while limit is None or count < limit:
        call = line.next()
        if call is None:
            return
        lease, number, shape, payload, forgotten = call
        del call
        for old in forgotten or ():
            functions.pop(old, None)
        try:
            function = functions.get(number)
            if function is None:
                function = functions[number] = loads(line.function(number))
            result = _run(function, shape, payload)
            line.done(lease, True, result)
        except BaseException as error:
            line.done(lease, False, dumps_exception(error))
        # Nothing of a call stays here while the next one is waited for.
        function = result = payload = b""  # type: ignore[assignment]
        count += 1
    line.retire()


def _run(function: Callable[..., Any], shape: int, payload: bytes) -> bytes:
    if shape == CALL:
        arguments, keywords = loads(payload)
        return dumps_result(function(*arguments, **keywords))
    items = loads(payload)
    values: List[Any] = []
    calls = map(function, items) if shape == ITEMS else itertools.starmap(function, items)
    error: Optional[BaseException] = None
    try:
        values.extend(calls)
    except BaseException as raised:
        error = raised
    return _packed(values, error)


def _packed(values: List[Any], error: Optional[BaseException]) -> bytes:
    """Results of several calls, and what was raised after them; what came before it counts."""
    try:
        return dumps_result((values, None if error is None else dumps_exception(error)))
    except Exception as problem:
        # One of them cannot travel: as many as can, and why the next one cannot.
        error = problem
    good = 0
    with contextlib.suppress(Exception):
        for good, value in enumerate(values):
            dumps_result(value)
    return dumps_result((values[:good], dumps_exception(error)))
