"""The processes of an executor and the thread that settles futures.

One thread waits for events of the hub, without the interpreter's lock, and does everything that needs
Python: it settles futures, starts a process in place of one that died, and lets maps cut their next
pieces. Whoever submits starts a process where none is idle, packs the call and hands it to the hub.

What must stay true: no code of others runs while the pool's lock is held, and nothing that such code
raises ends the thread.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import multiprocessing
import os
import pickle
import sys
import threading
import time
import weakref
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, Union

from loxley._core import Hub
from loxley._functions import FunctionTable
from loxley._futures import CallFuture, TaskTimeout, WorkerLost, raised
from loxley._main_again import main_source
from loxley._main_globals import classes_of
from loxley._packing import CALL, Arrived, know_classes, pack_call, unpack_error
from loxley._processes import FreshContext, Initializer, NeedsFork, Worker
from loxley._wishes import Wishes

if TYPE_CHECKING:
    from loxley._mapping import Mapping, Piece

#: So many processes in a row may end before they are set up.
_FALSE_STARTS_MAX = 3
#: How often somebody looks whether processes are still there that have not said that they go.
_LOOK_SECONDS = 1.0

_LIVING: weakref.WeakSet[ProcessPool] = weakref.WeakSet()

#: What is to be done when the lock is no longer held.
Later = List[Callable[[], None]]


class ProcessPool:
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
        self.context = context or FreshContext()
        self._calls_per_process = calls_per_process
        self._initializer = initializer and Initializer(initializer, initargs)
        self._lock = threading.RLock()
        self._workers: Dict[int, Worker] = {}
        #: This end of each line: which socket it is, and its descriptors.
        self._sockets: Dict[int, Tuple[int, List[int]]] = {}
        #: What each call is for.
        self._targets: Dict[int, Union[CallFuture[Any], Piece]] = {}
        self._functions = FunctionTable(self.hub)
        #: Maps that have something to send, or may have.
        self._maps: List[Mapping] = []
        self._false_starts = 0
        #: Processes that have done something and wait for more.
        self._idle = 0
        #: Why a process could not set itself up, until it is gone.
        self._unfit: Dict[int, Arrived] = {}
        self._thread: Optional[threading.Thread] = None
        self._process_id = os.getpid()
        self._broken: Optional[BaseException] = None
        self._closing = False

    # What callers do.

    def submit(
        self, wishes: Wishes, function: Callable[..., Any], arguments: Tuple[Any, ...], keywords: Any
    ) -> CallFuture[Any]:
        """Submits one call. If it cannot be packed, the future says so."""
        future: CallFuture[Any] = CallFuture(self)
        with self._lock:
            self._check()
            # The process starts while the call is being packed.
            self._want_process()
        try:
            packed = self._functions.packed(function)
            payload, segment = pack_call(arguments, keywords).ship(self.hub)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            future.set_exception(error)
            return future
        try:
            with self._lock:
                self._check()
                number = self._number(function, packed)
                self._send(future, number, CALL, 1, payload, segment, wishes)
        except BaseException:
            if segment is not None:
                self.hub.drop_segment(segment)
            raise
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
        target: Piece,
        function: int,
        shape: int,
        count: int,
        payload: bytes,
        segment: Optional[int],
        wishes: Wishes,
    ) -> None:
        """Hands calls to the hub; the target hears what becomes of them."""
        with self._lock:
            self._want_process()
            self._send(target, function, shape, count, payload, segment, wishes)

    def _send(
        self,
        target: Union[CallFuture[Any], Piece],
        function: int,
        shape: int,
        count: int,
        payload: bytes,
        segment: Optional[int],
        wishes: Wishes,
    ) -> None:
        target.call = self.hub.submit(
            function,
            shape,
            count,
            payload,
            segment,
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
            raise type(self._broken)(*self._broken.args) from self._broken.__cause__
        if self._closing:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if _is_exiting:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")
        if not self.is_here:
            raise RuntimeError("an executor cannot be used in a process that was forked from its own")
        if self._thread is None:
            self._start()

    # Processes.

    def _start(self) -> None:
        _LIVING.add(self)
        if self._initializer is not None and isinstance(self.context, FreshContext):
            try:
                self._start_worker()
                self._idle += 1
            except NeedsFork:
                self.context = multiprocessing.get_context("fork")
        if self.context.get_start_method() == "fork":
            # The classes that are forked are those of which objects come.
            know_classes(classes_of(sys.modules["__main__"].__dict__))
            # A process should not be forked once there are threads.
            for _ in range(self.size):
                self._start_worker()
        self._thread = threading.Thread(target=self._settle_all, name="loxley-pool", daemon=True)
        self._thread.start()

    def _want_process(self) -> None:
        """A call is about to be sent: somebody should be there for it."""
        if self._idle > 0:
            self._idle -= 1
        elif len(self._workers) < self.size and self._broken is None:
            self._start_worker()

    def _start_worker(self) -> None:
        setup = (_folder(), sys.argv, self._calls_per_process, main_source())
        line, descriptor, here = self.hub.open_line(pickle.dumps(setup))
        self._sockets[line] = os.fstat(here[0]).st_ino, here
        try:
            self._workers[line] = Worker(self.context, descriptor, self._initializer)
        except BaseException:
            self.hub.hang_up(line)
            raise
        finally:
            os.close(descriptor)

    def let_go_of_lines(self) -> None:
        """Closes this end of every line, in a process that was forked from the one they belong to: else the
        other end would not hear of it when that one dies."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for socket, descriptors in self._sockets.values():
            for descriptor in descriptors:
                # It may be gone, and its number somebody else's.
                with contextlib.suppress(OSError):
                    if os.fstat(descriptor).st_ino == socket:
                        # Not closed: whoever owns it here will, and must not close something else.
                        os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)

    def processes(self) -> Dict[int, Any]:
        """The processes that are there, by their ids."""
        with self._lock:
            return {worker.pid: worker.process for worker in self._workers.values()}

    def process_ids(self) -> List[int]:
        """The ids of the processes that are there."""
        with self._lock:
            return [worker.pid for worker in self._workers.values()]

    # The thread that settles futures.

    def _settle_all(self) -> None:
        looked_at = time.monotonic()
        while not self._is_over():
            # Nothing of what was settled stays here while more is waited for.
            self._settle_some(self.hub.wait(_LOOK_SECONDS))
            if time.monotonic() - looked_at > _LOOK_SECONDS:
                looked_at = time.monotonic()
                self._look_for_the_dead()
        self._end()

    def _settle_some(self, events: List[Any]) -> None:
        later: Later = []
        arrived = [(event, _arrived(event)) for event in events]
        with self._lock:
            for (kind, number, _, extra, _), (payload, problem) in arrived:
                self._take_in(kind, number, payload, problem, extra, later)
            maps = list(self._maps)
        del events, arrived
        for work in later:
            _guarded(work)
        for mapping in maps:
            if not _guarded(mapping.refill):
                with self._lock:
                    self._maps.remove(mapping)

    def _look_for_the_dead(self) -> None:
        """A process may be gone while a child of it keeps its line open."""
        with self._lock:
            for line, worker in self._workers.items():
                if worker.has_ended():
                    self.hub.hang_up(line)

    def _is_over(self) -> bool:
        with self._lock:
            has_work = self._targets or any(mapping.has_work for mapping in self._maps)
            return self._closing and not has_work

    def _take_in(
        self,
        kind: str,
        number: int,
        arrived: Optional[Arrived],
        problem: Optional[BaseException],
        extra: float,
        later: Later,
    ) -> None:
        if kind == "gone":
            return self._replace(number, bool(extra), later)
        if kind == "ready":
            self._false_starts = 0
            return None
        if kind == "unfit":
            assert arrived is not None
            self._unfit[number] = arrived
            return None
        if kind in ("value", "raised"):
            self._idle = min(self._idle + 1, len(self._workers))
        target = self._targets.pop(number, None)
        if target is None:
            return None
        error = problem
        if kind == "timed_out":
            error = TaskTimeout("the call ran longer than its timeout, and was stopped")
        elif kind == "lost":
            worker = self._workers.get(int(extra))
            how = worker.how_it_ended() if worker else "is gone"
            error = WorkerLost(f"the process that ran the call {how}")
        later.append(functools.partial(_settle, target, kind, arrived, error, extra))

    def _replace(self, line: int, was_ready: bool, later: Later) -> None:
        worker = self._workers.pop(line, None)
        self._sockets.pop(line, None)
        if worker is None:
            # It could not be started: whoever tried knows.
            return
        self._idle = min(self._idle, len(self._workers))
        how = worker.how_it_ended()
        reason = self._unfit.pop(line, None)
        if reason is not None:
            # Said only now, when everything that the process had to tell has been told.
            message = "the initializer of a worker process failed"
            return self._break(message, reason, later)
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
            self._break(f"a worker process cannot be started: {error}", None, later)

    def _break(self, message: str, reason: Optional[Arrived], later: Later) -> None:
        """Nothing can be done any more: every call fails."""
        if self._broken is not None:
            return
        error = self._broken = BrokenProcessPool(message)
        if reason is not None:
            later.append(lambda: setattr(error, "__cause__", raised(reason)))
        targets, self._targets = self._targets, {}
        for target in targets.values():
            later.append(functools.partial(target.settle, "lost", None, error, 0.0))
        for mapping in self._maps:
            later.append(functools.partial(mapping.fail, error))

    @property
    def state(self) -> str:
        """How far it is, in a word."""
        if self._broken is not None:
            return "broken"
        return "shut down" if self._closing else "open"

    @property
    def thread(self) -> Optional[threading.Thread]:
        """The thread that settles futures, once there is one."""
        return self._thread

    @property
    def broken(self) -> Optional[BaseException]:
        """Why nothing can be done any more; None while something can."""
        return self._broken

    # The end.

    @property
    def is_here(self) -> bool:
        """Whether it belongs to this process, and not to the one that this was forked from: then its locks may be
        held for ever, by threads that are not here."""
        return self._process_id == os.getpid()

    def close(self, cancel: bool = False) -> None:
        """No more calls. What was accepted is done, unless it is to be cancelled."""
        if not self.is_here:
            return
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
        if not self.is_here:
            return
        later: Later = []
        with self._lock:
            self._closing = True
            self._break("the executor was ended", None, later)
            for worker in self._workers.values():
                worker.kill()
        for work in later:
            _guarded(work)
        self.hub.wake()

    def join(self) -> None:
        """Waits until everything is done and every process is gone."""
        thread = self._thread if self.is_here else None
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


def _arrived(event: Any) -> Tuple[Optional[Arrived], Optional[BaseException]]:
    """What an event brought along, or why that cannot be had."""
    _, _, payload, _, segment = event
    if payload is None:
        return None, None
    try:
        return Arrived(payload, segment), None
    except (OSError, ValueError) as problem:
        return None, unpack_error("the result of the call", problem)


def _settle(
    target: Union[CallFuture[Any], Piece],
    kind: str,
    arrived: Optional[Arrived],
    error: Optional[BaseException],
    seconds: float,
) -> None:
    if kind == "raised" and error is None:
        arrived, error = None, raised(arrived)
    if kind == "value" and error is not None:
        kind = "raised"
    target.settle(kind, arrived, error, seconds)


def _guarded(work: Callable[[], Any]) -> Any:
    """Does something in which code of others may run: whatever that raises, the thread goes on."""
    try:
        return work()
    except BaseException:
        logging.getLogger("loxley").exception("exception while futures were settled")
        return True


def _folder() -> Optional[str]:
    """Where this process is; None if somebody has removed that."""
    try:
        return os.getcwd()
    except OSError:
        return None


_is_exiting = False


def _finish_all() -> None:
    global _is_exiting
    _is_exiting = True
    # A program that ends by Ctrl-C does not wait for what nobody will look at.
    is_interrupted = isinstance(getattr(sys, "last_value", None), KeyboardInterrupt)
    for pool in list(_LIVING):
        if is_interrupted and not hasattr(sys, "ps1"):
            pool.kill()
        else:
            pool.close()
    try:
        for pool in list(_LIVING):
            pool.join()
    except BaseException:
        # Nobody wants to wait any more.
        for pool in list(_LIVING):
            pool.kill()
        raise


# Before what programs have to do at their end, which may wait for a future; as `concurrent.futures` has it.
getattr(threading, "_register_atexit", atexit.register)(_finish_all)


def _forget_all() -> None:
    """In a process that was forked: nothing of the other one's pools is its business, nor is their end."""
    for pool in list(_LIVING):
        pool.let_go_of_lines()
    _LIVING.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
