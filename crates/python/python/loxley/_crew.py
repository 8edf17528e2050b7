"""The processes of an executor and the thread that settles futures.

One thread waits for events of the hub, without the interpreter's lock, and does everything that needs
Python: it unpickles results, settles futures, starts a process in place of one that died, and cuts the
next pieces of a map. Whoever submits only packs the call and hands it to the hub.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import subprocess
import sys
import threading
import weakref
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, Union

from loxley._core import Hub
from loxley._futures import CallFuture, TaskTimeout, WorkerLost
from loxley._packing import CALL, dumps, dumps_call, is_importable, loads, loads_exception

if TYPE_CHECKING:
    from loxley._mapping import Mapping

#: So many processes in a row may end before they are set up.
_FALSE_STARTS_MAX = 3

_LIVING: weakref.WeakSet[Crew] = weakref.WeakSet()


class Wishes:
    """How calls are to be treated."""

    __slots__ = ("priority", "timeout", "speculate", "cost")

    def __init__(
        self,
        priority: int = 3,
        timeout: Optional[float] = None,
        speculate: bool = False,
        cost: Optional[float] = None,
    ) -> None:
        if priority not in (1, 2, 3, 4, 5):
            raise ValueError(f"priority {priority} is not between 1 (lowest) and 5 (highest)")
        if timeout is not None and timeout <= 0:
            raise ValueError(f"a timeout of {timeout} seconds leaves no time")
        self.priority = priority
        self.timeout = timeout
        self.speculate = speculate
        self.cost = cost


class Crew:
    """Worker processes, and what was asked of them."""

    def __init__(
        self,
        size: int,
        context: Any,
        initializer: Optional[Callable[..., Any]],
        initargs: Tuple[Any, ...],
        calls_per_process: Optional[int],
    ) -> None:
        self.size = size
        self.hub = Hub()
        self._context = context
        self._setup = (initializer, initargs, calls_per_process)
        self._lock = threading.RLock()
        self._processes: Dict[int, Any] = {}
        #: What each call is for: a future, or a piece of a map.
        self._targets: Dict[int, Union[CallFuture, Tuple[Mapping, int]]] = {}
        self._functions: Dict[Any, Tuple[int, Any]] = {}
        self._values: Dict[bytes, int] = {}
        self._maps: List[Mapping] = []
        self._false_starts = 0
        self._thread: Optional[threading.Thread] = None
        self._process_id = os.getpid()
        self._broken: Optional[BaseException] = None
        self._closing = False

    # What callers do.

    def submit(
        self, wishes: Wishes, function: Callable[..., Any], arguments: Tuple[Any, ...], keywords: Any
    ) -> CallFuture:
        payload = dumps_call(arguments, keywords)
        future = CallFuture(self)
        with self._lock:
            self._check()
            number = self.function_number(function)
            self._send(future, number, CALL, 1, payload, wishes, future)
        return future

    def start_map(self, mapping: Mapping) -> None:
        with self._lock:
            self._check()
            self._maps.append(mapping)
            mapping.refill()

    def send_piece(
        self, mapping: Mapping, at: int, function: int, shape: int, count: int, payload: bytes
    ) -> int:
        with self._lock:
            return self._send((mapping, at), function, shape, count, payload, mapping.wishes, None)

    def _send(
        self,
        target: Union[CallFuture, Tuple[Mapping, int]],
        function: int,
        shape: int,
        count: int,
        payload: bytes,
        wishes: Wishes,
        future: Optional[CallFuture],
    ) -> int:
        call = self.hub.submit(
            function,
            shape,
            count,
            payload,
            wishes.priority,
            wishes.timeout,
            wishes.speculate,
            wishes.cost,
        )
        if future is not None:
            future.call = call
        # The settling thread takes the lock before it looks a target up.
        self._targets[call] = target
        return call

    def function_number(self, function: Callable[..., Any]) -> int:
        """The number of a function. One that others can import is packed once."""
        with self._lock:
            try:
                known = self._functions.get(function)
            except TypeError:
                known = None
            if known is not None:
                return known[0]
            packed = dumps(function)
            number = self._values.get(packed)
            if number is None:
                number = self._values[packed] = self.hub.define(packed)
            if is_importable(function):
                self._functions[function] = (number, function)
            return number

    def _check(self) -> None:
        if self._broken is not None:
            raise type(self._broken)(*self._broken.args)
        if self._closing:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if self._process_id != os.getpid():
            raise RuntimeError("an executor cannot be used in a process that was forked from its own")
        if self._thread is None:
            self._start()

    # Processes.

    def _start(self) -> None:
        for _ in range(self.size):
            self._start_process()
        self._thread = threading.Thread(target=self._settle_all, name="loxley-crew", daemon=True)
        self._thread.start()
        _LIVING.add(self)

    def _start_process(self) -> None:
        initializer, initargs, limit = self._setup
        packed = dumps((initializer, initargs))
        setup = pickle.dumps((os.getcwd(), sys.argv, limit, packed))
        line, descriptor = self.hub.open_line(setup)
        try:
            if self._context is None:
                self._processes[line] = _spawn(descriptor)
            else:
                self._processes[line] = _spawn_in(self._context, descriptor)
        finally:
            os.close(descriptor)

    def process_ids(self) -> List[int]:
        with self._lock:
            return [process.pid for process in self._processes.values()]

    # The thread that settles futures.

    def _settle_all(self) -> None:
        while True:
            events = self.hub.wait(1.0)
            settle: List[Callable[[], None]] = []
            with self._lock:
                for kind, number, payload, extra in events:
                    self._take_in(kind, number, payload, extra, settle)
                for mapping in list(self._maps):
                    if not mapping.refill():
                        self._maps.remove(mapping)
            # Code of others runs here, so no lock is held.
            for work in settle:
                work()
            del settle, events
            with self._lock:
                if self._closing and not self._targets and not self._maps:
                    break
        self._end()

    def _take_in(
        self, kind: str, number: int, payload: Any, extra: float, settle: List[Callable[[], None]]
    ) -> None:
        if kind == "gone":
            self._replace(number, bool(extra), settle)
            return
        if kind == "ready":
            self._false_starts = 0
            return
        if kind == "unfit":
            cause = loads_exception(payload)
            self._break("the initializer of a worker process failed", cause, settle)
            return
        target = self._targets.pop(number, None)
        if target is None:
            return
        error: Optional[BaseException] = None
        if kind == "timed_out":
            error = TaskTimeout("the call ran longer than its timeout, and was stopped")
        elif kind == "lost":
            error = WorkerLost(f"the process that ran the call {self._how_it_ended(int(extra))}")
        if isinstance(target, CallFuture):
            settle.append(lambda: _settle_future(target, kind, payload, error))
        else:
            mapping, at = target
            mapping.settle(at, kind, payload, error, extra)

    def _how_it_ended(self, line: int) -> str:
        process = self._processes.get(line)
        if process is None:
            return "is gone"
        if isinstance(process, subprocess.Popen):
            try:
                code: Optional[int] = process.wait(5)
            except subprocess.TimeoutExpired:
                code = None
        else:
            process.join(5)
            code = process.exitcode
        if code is None:
            return "closed its line"
        if code < 0:
            try:
                return f"was killed by {signal.Signals(-code).name}"
            except ValueError:
                return f"was killed by signal {-code}"
        return f"ended with exit code {code}"

    def _replace(self, line: int, was_ready: bool, settle: List[Callable[[], None]]) -> None:
        how = self._how_it_ended(line)
        self._processes.pop(line, None)
        if self._broken is not None or (self._closing and not self._targets):
            return
        if not was_ready:
            self._false_starts += 1
            if self._false_starts >= _FALSE_STARTS_MAX:
                self._break(f"worker processes do not start: the last one {how}", None, settle)
                return
        self._start_process()

    def _break(
        self, message: str, cause: Optional[BaseException], settle: List[Callable[[], None]]
    ) -> None:
        if self._broken is not None:
            return
        error = BrokenProcessPool(message)
        error.__cause__ = cause
        self._broken = error
        targets, self._targets = self._targets, {}
        for target in targets.values():
            if isinstance(target, CallFuture):
                settle.append(lambda target=target: _settle_future(target, "lost", None, error))  # type: ignore[misc]
            else:
                target[0].settle(target[1], "lost", None, error, 0.0)
        for mapping in self._maps:
            mapping.fail(error)
        self._maps.clear()

    # The end.

    def close(self, cancel: bool, kill: bool) -> None:
        """No more calls. What was accepted is done, unless it is to be cancelled or killed."""
        with self._lock:
            self._closing = True
        if kill:
            self._kill()
        elif cancel:
            with self._lock:
                targets, maps = list(self._targets.values()), list(self._maps)
            for mapping in maps:
                mapping.close()
            for target in targets:
                if isinstance(target, CallFuture):
                    target.cancel()
        self.hub.wake()

    def _kill(self) -> None:
        settle: List[Callable[[], None]] = []
        with self._lock:
            self._break("the executor was ended", None, settle)
            for process in self._processes.values():
                try:
                    process.kill()
                except (OSError, ValueError):
                    pass
        for work in settle:
            work()

    def join(self) -> None:
        """Waits until everything is done and every process is gone."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _end(self) -> None:
        self.hub.stop_lines()
        for process in list(self._processes.values()):
            if isinstance(process, subprocess.Popen):
                process.wait()
            else:
                process.join()
        self._processes.clear()
        self.hub.close()
        _LIVING.discard(self)

    def cancel_call(self, call: int) -> bool:
        """Cancels a call that has not begun."""
        if not self.hub.cancel(call):
            return False
        with self._lock:
            self._targets.pop(call, None)
        self.hub.wake()
        return True


def _settle_future(
    future: CallFuture, kind: str, payload: Any, error: Optional[BaseException]
) -> None:
    if future.done():
        return
    if kind == "cancelled":
        future.cancel_here()
        return
    try:
        if error is None and kind == "value":
            future.set_result(loads(payload))
            return
        future.set_exception(error if error is not None else loads_exception(payload))
    except Exception as problem:
        if not future.done():
            future.set_exception(problem)


def _spawn(descriptor: int) -> subprocess.Popen[bytes]:
    """A fresh interpreter with the line as its standard input."""
    start = f"import sys; sys.path[:] = {sys.path!r}; from loxley._worker import main; main()"
    # In a session of its own, so that Ctrl-C in the terminal reaches only who waits there.
    return subprocess.Popen(
        [sys.executable, "-c", start], stdin=descriptor, start_new_session=True
    )


def _spawn_in(context: Any, descriptor: int) -> Any:
    """A process of a multiprocessing context. It finds the line in place of its standard input."""
    import socket

    line = socket.socket(fileno=os.dup(descriptor))
    try:
        process = context.Process(target=_serve_socket, args=(line,), daemon=False)
        process.start()
    finally:
        line.close()
    return process


def _serve_socket(line: Any) -> None:
    from loxley import _worker

    # A forked process has the lines of others too; only its own must stay open in it.
    os.dup2(line.fileno(), 0)
    line.close()
    _worker.main()


@atexit.register
def _finish_all() -> None:
    for crew in list(_LIVING):
        crew.close(cancel=False, kill=False)
    for crew in list(_LIVING):
        crew.join()
