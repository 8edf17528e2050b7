"""Futures of calls, and what can go wrong with a call."""

from __future__ import annotations

import concurrent.futures
import sys
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any, Optional

from loxley._packing import loads, loads_exception

if TYPE_CHECKING:
    from loxley._crew import Crew


class WorkerLost(BrokenProcessPool):
    """The process that ran a call died: ``os._exit``, a crash, out of memory. The pool goes on."""


if sys.version_info >= (3, 11):

    class TaskTimeout(TimeoutError):
        """A call ran longer than it may."""

else:

    class TaskTimeout(concurrent.futures.TimeoutError, TimeoutError):
        """A call ran longer than it may."""


class CallFuture(concurrent.futures.Future):  # type: ignore[type-arg]
    """The future of one call."""

    def __init__(self, crew: Crew) -> None:
        super().__init__()
        self._crew = crew
        self.call = 0
        self._is_told = False

    def cancel(self) -> bool:
        """Cancels the call if it has not begun. A cancelled call never runs."""
        if self.done():
            return self.cancelled()
        if not self._crew.cancel_call(self.call):
            return self.cancelled()
        return self._cancel_here()

    def stop(self) -> None:
        """Ends the call, running or not. If it runs, its process ends with it and is replaced."""
        self._crew.hub.stop(self.call)

    def _cancel_here(self) -> bool:
        """Marks the future as cancelled, and tells whoever waits for it."""
        with self._condition:
            is_first, self._is_told = not self._is_told, True
        if not is_first:
            return self.cancelled()
        if not super().cancel():
            return False
        self.set_running_or_notify_cancel()
        return True

    def running(self) -> bool:
        """Whether the call has begun and is not over."""
        return not self.done() and self._crew.hub.is_running(self.call)

    def settle(
        self, kind: str, payload: Any, error: Optional[BaseException], seconds: float
    ) -> None:
        """Takes in what became of the call."""
        if self.done():
            return
        if kind == "cancelled":
            self._cancel_here()
            return
        try:
            if kind == "value":
                self.set_result(loads(payload))
            else:
                self.set_exception(error or loads_exception(payload))
        except Exception as problem:
            if not self.done():
                self.set_exception(problem)

    def __reduce__(self) -> Any:
        raise TypeError("a future cannot leave its process")
