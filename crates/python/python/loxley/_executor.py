"""An executor over local processes, with work stealing between them."""

from __future__ import annotations

import concurrent.futures
import os
import sys
import threading
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple, TypeVar, Union

from loxley._core import BalanceReport
from loxley._futures import CallFuture
from loxley._process_pool import ProcessPool
from loxley._items import items_of
from loxley._mapping import Mapping, run
from loxley._packing import ITEMS, TUPLES
from loxley._progress import Callback, Progress
from loxley._task import ParamSpec
from loxley._wishes import Wishes

T = TypeVar("T")
P = ParamSpec("P")


class _Submitting(concurrent.futures.Executor):
    """What an executor and a view of it with other wishes have in common."""

    _pool: ProcessPool
    _wishes: Wishes

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> CallFuture[T]:
        """Calls ``fn(*args, **kwargs)`` in another process and returns the future of its result."""
        return self._pool.submit(self._wishes, fn, args, kwargs)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: Optional[float] = None,
        chunksize: Optional[int] = None,
        buffersize: Optional[int] = None,
        progress: Optional[Callback] = None,
    ) -> Iterator[T]:
        """Calls ``fn`` with each item and returns an iterator over the results, in order.

        Items travel in pieces that size themselves: single calls where they are long, thousands
        where they are short. ``chunksize`` fixes the size instead. ``timeout`` counts from now, in
        seconds, until the last result is there.

        The items of a generator are gathered at once, and work begins with the first of them. With
        ``buffersize`` so many at most are taken ahead of the results, so it may go on for ever.

        ``progress`` is called, from another thread, with how many calls are done and how many there
        are (None while a stream goes on), whenever some are.
        """
        if chunksize is not None and chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        wishes = self._wishes
        if chunksize is None and (wishes.timeout is not None or wishes.speculate):
            # A time limit is for one call, and a second copy is of one call.
            chunksize = 1
        is_single = len(iterables) == 1
        items = items_of(iterables[0] if is_single else zip(*iterables))
        shape = ITEMS if is_single else TUPLES
        told = None if progress is None else Progress(progress)
        mapping = Mapping(self._pool, wishes, items, shape, chunksize, buffersize, told)
        return run(mapping, fn, timeout)


class Executor(_Submitting):
    """Runs calls in processes of this machine; takes the place of ``ProcessPoolExecutor``.

    An idle process takes calls from a busy one. A process that dies fails the call it ran, with
    :class:`WorkerLost`, and is replaced; the others go on. Functions need not be importable: lambdas and
    what is defined in a notebook travel by value.

    >>> with Executor(max_workers=2) as executor:
    ...     future = executor.submit(pow, 2, 10)
    ...     squares = list(executor.map(lambda number: number * number, range(5)))
    >>> future.result(), squares
    (1024, [0, 1, 4, 9, 16])

    Calls of higher priority go first, a call that runs too long is stopped, and one that is slow where
    others were not may be given a second chance elsewhere:

    >>> with Executor(max_workers=2) as executor:
    ...     urgent = executor.options(priority=5, timeout=30).submit(sum, [1, 2, 3])
    ...     urgent.result()
    6

    ``initializer`` is called with ``initargs`` in each process; ``loxley.local`` is a place for what it
    prepares. ``max_tasks_per_child`` is after how many
    calls (pieces of a map count as one) a process is replaced. ``mp_context`` starts the processes by
    ``multiprocessing``; without it each is a fresh interpreter.
    """

    def __init__(
        self,
        max_workers: Optional[int] = None,
        mp_context: Any = None,
        initializer: Optional[Callable[..., Any]] = None,
        initargs: Tuple[Any, ...] = (),
        *,
        max_tasks_per_child: Optional[int] = None,
    ) -> None:
        if max_workers is not None and max_workers < 1:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if max_tasks_per_child is not None:
            if max_tasks_per_child < 1:
                raise ValueError("max_tasks_per_child must be >= 1")
            if mp_context is not None and mp_context.get_start_method() == "fork":
                raise ValueError(
                    "max_tasks_per_child is incompatible with the start method 'fork': processes"
                    " that take the place of others would be forked while threads run"
                )
        size = max_workers or _usable_processors()
        self._pool = ProcessPool(size, mp_context, initializer, initargs, max_tasks_per_child)
        self._wishes = Wishes()
        # An executor that is forgotten finishes what it has.
        self._finalizer = weakref.finalize(self, ProcessPool.close, self._pool)
        self._finalizer.atexit = False

    @property
    def max_workers(self) -> int:
        """How many processes there are."""
        return self._pool.size

    def options(
        self,
        *,
        priority: int = 3,
        timeout: Optional[float] = None,
        speculate: bool = False,
        cost: Optional[float] = None,
    ) -> ExecutorView:
        """The same executor for calls with other wishes.

        ``priority`` is 1 to 5, 5 first. ``timeout`` is how long one call may run, in seconds: then its
        process is stopped and the call raises :class:`TaskTimeout`. ``speculate`` allows a second copy
        of a call that takes twice as long as others of its function; the first result counts. ``cost``
        is how long a call is expected to run.
        """
        return ExecutorView(self, Wishes(priority, timeout, speculate, cost))

    def report(self) -> BalanceReport:
        """Was the run balanced? Four figures, from the first call to the last result so far."""
        return self._pool.hub.report()

    def statistics(self) -> dict[str, int]:
        """How many calls were sent to processes (a piece of a map is one), how many of them were
        stolen by another process, and how many second copies were started."""
        sent, stolen, speculations = self._pool.hub.counts()
        return {"sent": sent, "stolen": stolen, "speculations": speculations}

    def process_ids(self) -> List[int]:
        """The ids of the processes that are there now. They start as calls need them."""
        return self._pool.process_ids()

    # What programs look at though it is nobody's business.

    @property
    def _max_workers(self) -> int:
        return self._pool.size

    @property
    def _mp_context(self) -> Any:
        return self._pool.context

    @property
    def _processes(self) -> Dict[int, Any]:
        return self._pool.processes()

    @property
    def _broken(self) -> Union[bool, str]:
        return False if self._pool.broken is None else str(self._pool.broken)

    @property
    def _executor_manager_thread(self) -> Optional[threading.Thread]:
        return self._pool.thread

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more calls. What was accepted is done first, unless futures are cancelled."""
        self._finalizer.detach()
        self._pool.close(cancel=cancel_futures)
        if wait:
            self._pool.join()

    def kill_workers(self) -> None:
        """Ends every process now, and every call with it."""
        self._finalizer.detach()
        self._pool.kill()
        self._pool.join()

    def __repr__(self) -> str:
        there, size = len(self._pool.process_ids()), self._pool.size
        sent, state = self._pool.hub.counts()[0], self._pool.state
        return f"<Executor: {there} of {size} processes, {sent} calls sent, {state}>"

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        # Nobody has to wait for a module that only some programs use, so it is looked for.
        asyncio = sys.modules.get("asyncio")
        cancelled = asyncio.CancelledError if asyncio else SystemExit
        if isinstance(error, (KeyboardInterrupt, SystemExit, cancelled)):
            # Somebody wants out: not after the last call, but now.
            self.kill_workers()
        else:
            self.shutdown(wait=True)


class ExecutorView(_Submitting):
    """An executor as seen by calls with other wishes."""

    def __init__(self, executor: Executor, wishes: Wishes) -> None:
        self._executor = executor
        self._pool = executor._pool
        self._wishes = wishes

    def __repr__(self) -> str:
        return f"<{self._executor!r} with {self._wishes!r}>"

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Shuts the executor itself down."""
        self._executor.shutdown(wait, cancel_futures=cancel_futures)


def _usable_processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


__all__ = ["Executor"]
