"""Futures of calls, and what can go wrong with a call."""

from __future__ import annotations

import concurrent.futures
import sys
import threading
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any, Optional, TypeVar

from loxley._packing import Arrived, loads_exception, unpack_error

if TYPE_CHECKING:
    from loxley._process_pool import ProcessPool

T = TypeVar("T")


class WorkerLost(BrokenProcessPool):
    """The process that ran a call died: ``os._exit``, a crash, out of memory. The pool goes on."""


if sys.version_info >= (3, 11):

    class TaskTimeout(TimeoutError):
        """A call ran longer than it may."""

else:

    class TaskTimeout(concurrent.futures.TimeoutError, TimeoutError):
        """A call ran longer than it may."""


class LazyFuture(concurrent.futures.Future[T]):
    """A future whose result is unpickled by whoever asks for it first, so that nothing that happens then
    concerns anybody else."""

    def __init__(self) -> None:
        super().__init__()
        self._arrived: Optional[Arrived] = None
        self._unpacking = threading.RLock()
        self._is_told = False

    def result(self, timeout: Optional[float] = None) -> T:
        """What the call returned, as soon as that is known; what it raised is raised."""
        value = super().result(timeout)
        if self._arrived is None:
            return value
        self._unpack(timeout)
        return super().result(0)

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        """What the call raised, as soon as that is known; None if it returned something."""
        error = super().exception(timeout)
        if self._arrived is None:
            return error
        self._unpack(timeout)
        return super().exception(0)

    def _unpack(self, timeout: Optional[float]) -> None:
        if not self._unpacking.acquire(timeout=-1 if timeout is None else timeout):
            raise concurrent.futures.TimeoutError()
        try:
            arrived = self._arrived
            if arrived is None:
                return
            try:
                self._result = arrived.unpack()
            except KeyboardInterrupt:
                # Somebody does not want to wait for it now.
                raise
            except BaseException as problem:
                self._exception = unpack_error("the result of the call", problem)
            self._arrived = None
        finally:
            self._unpacking.release()

    def _cancel_here(self) -> bool:
        """Marks the future as cancelled, and tells whoever waits for it."""
        with self._condition:
            is_first, self._is_told = not self._is_told, True
        if not is_first:
            return self.cancelled()
        if not concurrent.futures.Future.cancel(self):
            return False
        self.set_running_or_notify_cancel()
        return True

    def _arrive(self, arrived: Optional[Arrived]) -> None:
        """There is a result."""
        self._arrived = arrived
        self.set_result(None)  # type: ignore[arg-type]


class CallFuture(LazyFuture[T]):
    """The future of one call of an :class:`Executor`."""

    def __init__(self, pool: ProcessPool) -> None:
        super().__init__()
        self._pool = pool
        #: The number of the call; 0 before it has one.
        self.call = 0

    def cancel(self) -> bool:
        """Cancels the call if it has not begun. A cancelled call never runs."""
        if self.done():
            return self.cancelled()
        if not self._pool.cancel_call(self.call):
            return self.cancelled()
        return self._cancel_here()

    def stop(self) -> None:
        """Ends the call, running or not. If it runs, its process ends with it and is replaced."""
        self._pool.hub.stop(self.call)

    def running(self) -> bool:
        """Whether the call has begun and is not over."""
        return not self.done() and self._pool.hub.is_running(self.call)

    def settle(
        self, kind: str, arrived: Optional[Arrived], error: Optional[BaseException], seconds: float
    ) -> None:
        """Takes in what became of the call."""
        if self.done():
            return
        if kind == "cancelled":
            self._cancel_here()
        elif kind == "value":
            self._arrive(arrived)
        else:
            self.set_exception(error)

    def __repr__(self) -> str:
        told = super().__repr__()
        if self._arrived is not None:
            # Nobody has looked at what it is.
            return told.replace(" returned NoneType", "")
        return told.replace("state=pending", "state=running") if self.running() else told

    def __reduce__(self) -> Any:
        raise TypeError("a future cannot leave its process")


def raised(arrived: Optional[Arrived]) -> BaseException:
    """The exception that a call raised, whatever happens when it is unpickled."""
    try:
        assert arrived is not None
        return loads_exception(arrived.payload)
    except BaseException as problem:
        return unpack_error("what the call raised", problem)
