"""What runs inside a worker process of an executor."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import pickle
import signal
import sys
import types
from typing import Any, Callable, Dict, List, Optional, Tuple

from loxley._core import WorkerLine
from loxley._main_globals import Brought, MainGlobals
from loxley._packing import (
    CALL,
    ITEMS,
    Arrived,
    Packed,
    dumps_exception,
    pack_result,
    unpack_error,
)


def main(initializer: Optional[Callable[[MainGlobals], None]], is_forked: bool) -> None:
    """Serves the line on standard input until it ends."""
    line = WorkerLine()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    # Ctrl-C is for the process in front of which somebody sits; it decides what becomes of this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    # What is defined in the main module over there must not be looked for in the one that started this process; what
    # comes from there is found in its place. A process that was forked has it already.
    if not is_forked:
        sys.modules["__main__"] = types.ModuleType("__main__")
    folder, arguments, limit, source = pickle.loads(line.setup())
    space = MainGlobals(sys.modules["__main__"].__dict__, source)
    sys.argv = arguments
    with contextlib.suppress(OSError):
        os.chdir(folder or ".")
    try:
        if initializer is not None:
            initializer(space)
    except BaseException as error:
        # Told where a program that knows `ProcessPoolExecutor` listens for it.
        logger = logging.getLogger("concurrent.futures")
        logger.critical("Exception in initializer:", exc_info=True)
        line.ready(dumps_exception(error))
        return
    del initializer
    line.ready(None)
    _serve(line, limit, space)


def _serve(line: WorkerLine, limit: Optional[int], space: MainGlobals) -> None:
    functions: Dict[int, Tuple[Callable[..., Any], Brought]] = {}
    count = 0
    while limit is None or count < limit:
        call = line.next()
        if call is None:
            return
        lease, number, shape, payload, segment, forgotten = call
        del call
        for old in forgotten or ():
            if old in functions:
                space.forget(functions.pop(old)[1])
        try:
            arrived = Arrived(payload, segment)
            del payload
            if number not in functions:
                functions[number] = _unpickled_function(line.function(number), space)
            function, brought = functions[number]
            space.enter(brought)
            result = _run(function, shape, arrived, space)
            bytes_, shared = result.ship(line)
            line.done(lease, True, bytes_, shared is not None)
        except BaseException as error:
            line.done(lease, False, dumps_exception(error), False)
        # Nothing of a call stays here while the next one is waited for.
        function = brought = result = arrived = bytes_ = b""  # type: ignore[assignment]
        count += 1
    line.retire()


def _unpickled_function(payload: bytes, space: MainGlobals) -> Tuple[Callable[..., Any], Brought]:
    try:
        return space.loads(payload)
    except BaseException as problem:
        raise unpack_error("the function", problem) from problem


def _run(
    function: Callable[..., Any], shape: int, arrived: Arrived, space: MainGlobals
) -> Packed:
    try:
        given, _ = arrived.unpack(space.loads)
    except BaseException as problem:
        raise unpack_error("the arguments of the call", problem) from problem
    if shape == CALL:
        arguments, keywords = given
        del given
        return pack_result(function(*arguments, **keywords))
    values: List[Any] = []
    calls = map(function, given) if shape == ITEMS else itertools.starmap(function, given)
    del given
    error: Optional[BaseException] = None
    try:
        values.extend(calls)
    except BaseException as raised:
        error = raised
    return _packed(values, error)


def _packed(values: List[Any], error: Optional[BaseException]) -> Packed:
    """Results of several calls, and what was raised after them; what came before it counts."""
    try:
        return pack_result((values, None if error is None else dumps_exception(error)))
    except BaseException as problem:
        # One of them cannot travel: as many as can, and why the next one cannot.
        error = problem
    good = 0
    with contextlib.suppress(BaseException):
        for good, value in enumerate(values):
            pack_result(value)
    return pack_result((values[:good], dumps_exception(error)))
