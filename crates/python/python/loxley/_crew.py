"""The processes of an executor and the thread that settles futures.

One thread waits for events of the hub, without the interpreter's lock, and does everything that needs
Python: it settles futures, starts a process in place of one that died, and lets maps cut their next
pieces. Whoever submits only packs the call and hands it to the hub.

What must stay true: no code of others runs while the crew's lock is held.
"""

from __future__ import annotations

import atexit
import functools
import os
import pickle
import sys
import threading
import weakref
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, Union

from loxley._core import Hub
from loxley._functions import FunctionTable
from loxley._futures import CallFuture, TaskTimeout, WorkerLost
from loxley._packing import CALL, dumps, dumps_call, loads_exception
from loxley._processes import Worker
from loxley._wishes import Wishes

if TYPE_CHECKING:
    from loxley._mapping import Mapping, Piece

#: So many processes in a row may end before they are set up.
_FALSE_STARTS_MAX = 3

_LIVING: weakref.WeakSet[Crew] = weakref.WeakSet()

#: What is to be done when the lock is no longer held.
Later = List[Callable[[], None]]


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
        self._calls_per_process = calls_per_process
        self._initializer = dumps((initializer, initargs))
        self._lock = threading.RLock()
        self._workers: Dict[int, Worker] = {}
        #: What each call is for.
        self._targets: Dict[int, Union[CallFuture, Piece]] = {}
        self._functions = FunctionTable(self.hub)
        #: Maps that have something to send, or may have.
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
        """Submits one call."""
        payload, packed = dumps_call(arguments, keywords), self._functions.packed(function)
        future = CallFuture(self)
        with self._lock:
            self._check()
            number = self._number(function, packed)
            self.send(future, number, CALL, 1, payload, wishes)
        return future

    def start_map(self, mapping: Mapping, function: Callable[..., Any]) -> None:
        """Sends what a map has, now and whenever there is room for more."""
        packed = self._functions.packed(function)
        with self._lock:
            self._check()
            mapping.function = self._number(function, packed)
            self._maps.append(mapping)
        mapping.refill()

    def send(
        self,
        target: Union[CallFuture, Piece],
        function: int,
        shape: int,
        count: int,
        payload: bytes,
        wishes: Wishes,
    ) -> None:
        """Hands calls to the hub; the target hears what becomes of them."""
        with self._lock:
            target.call = self.hub.submit(
                function,
                shape,
                count,
                payload,
                wishes.priority,
                wishes.timeout,
                wishes.speculate,
                wishes.cost,
            )
            # The settling thread takes the lock before it looks a target up.
            self._targets[target.call] = target

    def cancel_call(self, call: int) -> bool:
        """Cancels a call that has not begun."""
        if not self.hub.cancel(call):
            return False
        with self._lock:
            self._targets.pop(call, None)
        self.hub.wake()
        return True

    def _number(self, function: Callable[..., Any], packed: Optional[bytes]) -> int:
        in_use = {mapping.function for mapping in self._maps}
        return self._functions.number(function, packed, in_use)

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
            self._start_worker()
        self._thread = threading.Thread(target=self._settle_all, name="loxley-crew", daemon=True)
        self._thread.start()
        _LIVING.add(self)

    def _start_worker(self) -> None:
        setup = (_folder(), sys.argv, self._calls_per_process, self._initializer)
        line, descriptor = self.hub.open_line(pickle.dumps(setup))
        try:
            self._workers[line] = Worker(self._context, descriptor)
        finally:
            os.close(descriptor)

    def process_ids(self) -> List[int]:
        """The ids of the processes that are there."""
        with self._lock:
            return [worker.pid for worker in self._workers.values()]

    # The thread that settles futures.

    def _settle_all(self) -> None:
        while not self._is_over():
            events = self.hub.wait(1.0)
            later: Later = []
            with self._lock:
                for kind, number, payload, extra in events:
                    self._take_in(kind, number, payload, extra, later)
                maps = list(self._maps)
            del events
            for work in later:
                work()
            del later
            for mapping in maps:
                if not mapping.refill():
                    with self._lock:
                        self._maps.remove(mapping)
        self._end()

    def _is_over(self) -> bool:
        with self._lock:
            has_work = self._targets or any(mapping.has_work for mapping in self._maps)
            return self._closing and not has_work

    def _take_in(self, kind: str, number: int, payload: Any, extra: float, later: Later) -> None:
        if kind == "gone":
            return self._replace(number, bool(extra), later)
        if kind == "ready":
            self._false_starts = 0
            return None
        if kind == "unfit":
            cause = loads_exception(payload)
            return self._break("the initializer of a worker process failed", cause, later)
        target = self._targets.pop(number, None)
        if target is None:
            return None
        error: Optional[BaseException] = None
        if kind == "timed_out":
            error = TaskTimeout("the call ran longer than its timeout, and was stopped")
        elif kind == "lost":
            worker = self._workers.get(int(extra))
            how = worker.how_it_ended() if worker else "is gone"
            error = WorkerLost(f"the process that ran the call {how}")
        later.append(functools.partial(target.settle, kind, payload, error, extra))

    def _replace(self, line: int, was_ready: bool, later: Later) -> None:
        worker = self._workers.pop(line, None)
        how = worker.how_it_ended() if worker else "is gone"
        if self._broken is not None or self._is_over():
            return
        if not was_ready:
            self._false_starts += 1
            if self._false_starts >= _FALSE_STARTS_MAX:
                self._break(f"worker processes do not start: the last one {how}", None, later)
                return
        try:
            self._start_worker()
        except OSError as error:
            self._break(f"a worker process cannot be started: {error}", error, later)

    def _break(self, message: str, cause: Optional[BaseException], later: Later) -> None:
        """Nothing can be done any more: every call fails."""
        if self._broken is not None:
            return
        error = BrokenProcessPool(message)
        error.__cause__ = cause
        self._broken = error
        targets, self._targets = self._targets, {}
        for target in targets.values():
            later.append(functools.partial(target.settle, "lost", None, error, 0.0))
        for mapping in self._maps:
            mapping.fail(error)

    # The end.

    def close(self, cancel: bool = False) -> None:
        """No more calls. What was accepted is done, unless it is to be cancelled."""
        with self._lock:
            self._closing = True
            targets, maps = list(self._targets.values()), list(self._maps)
        if cancel:
            for mapping in maps:
                mapping.cancel()
            for target in targets:
                target.cancel()
        self.hub.wake()

    def kill(self) -> None:
        """Ends every process now, and every call with it."""
        later: Later = []
        with self._lock:
            self._closing = True
            self._break("the executor was ended", None, later)
            for worker in self._workers.values():
                worker.kill()
        for work in later:
            work()
        self.hub.wake()

    def join(self) -> None:
        """Waits until everything is done and every process is gone."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _end(self) -> None:
        with self._lock:
            maps = list(self._maps)
        for mapping in maps:
            mapping.fail(RuntimeError("cannot schedule new futures after shutdown"))
        self.hub.stop_lines()
        for worker in list(self._workers.values()):
            worker.wait()
        self._workers.clear()
        self.hub.close()
        _LIVING.discard(self)


def _folder() -> Optional[str]:
    """Where this process is; None if somebody has removed that."""
    try:
        return os.getcwd()
    except OSError:
        return None


@atexit.register
def _finish_all() -> None:
    # A program that ends by Ctrl-C does not wait for what nobody will look at.
    is_interrupted = isinstance(getattr(sys, "last_value", None), KeyboardInterrupt)
    for crew in list(_LIVING):
        if is_interrupted and not hasattr(sys, "ps1"):
            crew.kill()
        else:
            crew.close()
    for crew in list(_LIVING):
        crew.join()
