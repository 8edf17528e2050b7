"""An executor over local processes, with work stealing between them."""

from __future__ import annotations

import concurrent.futures
import os
import weakref
from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple, TypeVar

from loxley._core import BalanceReport
from loxley._crew import Crew, Wishes
from loxley._futures import CallFuture
from loxley._mapping import Mapping, run

T = TypeVar("T")


class _Submitting(concurrent.futures.Executor):
    """What an executor and a view of it with other wishes have in common."""

    _crew: Crew
    _wishes: Wishes

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[T]:
        """Calls ``fn(*args, **kwargs)`` in another process and returns the future of its result."""
        return self._crew.submit(self._wishes, fn, args, kwargs)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: Optional[float] = None,
        chunksize: Optional[int] = None,
    ) -> Iterator[T]:
        """Calls ``fn`` with each item and returns an iterator over the results, in order.

        Items travel in pieces that size themselves: single calls where they are long, thousands
        where they are short. ``chunksize`` fixes the size instead. ``timeout`` counts from now, in
        seconds, until the last result is there.
        """
        if chunksize is not None and chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        single = len(iterables) == 1
        items: List[Any] = list(iterables[0]) if single else list(zip(*iterables))
        wishes = self._wishes
        if chunksize is None and (wishes.timeout is not None or wishes.speculate):
            # A time limit is for one call, and a second copy is of one call.
            chunksize = 1
        return run(Mapping(self._crew, wishes, fn, items, single, chunksize), timeout)


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
        if max_tasks_per_child is not None and max_tasks_per_child < 1:
            raise ValueError("max_tasks_per_child must be >= 1")
        size = max_workers or _usable_processors()
        self._crew = Crew(size, mp_context, initializer, initargs, max_tasks_per_child)
        self._wishes = Wishes()
        # An executor that is forgotten finishes what it has.
        self._finalizer = weakref.finalize(self, Crew.close, self._crew, False, False)
        self._finalizer.atexit = False

    @property
    def max_workers(self) -> int:
        """How many processes there are."""
        return self._crew.size

    def options(
        self,
        *,
        priority: int = 3,
        timeout: Optional[float] = None,
        speculate: bool = False,
        cost: Optional[float] = None,
    ) -> concurrent.futures.Executor:
        """The same executor for calls with other wishes.

        ``priority`` is 1 to 5, 5 first. ``timeout`` is how long one call may run, in seconds: then its
        process is stopped and the call raises :class:`TaskTimeout`. ``speculate`` allows a second copy
        of a call that takes twice as long as others of its function; the first result counts. ``cost``
        is how long a call is expected to run.
        """
        return _View(self, Wishes(priority, timeout, speculate, cost))

    def report(self) -> BalanceReport:
        """Was the run balanced? Four figures, from the first call to the last result so far."""
        return self._crew.hub.report()

    def statistics(self) -> dict[str, int]:
        """How many calls were stolen, and how many second copies were started."""
        stolen, speculations = self._crew.hub.steals()
        return {"stolen": stolen, "speculations": speculations}

    def process_ids(self) -> List[int]:
        """The ids of the processes that are there now."""
        return self._crew.process_ids()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more calls. What was accepted is done first, unless futures are cancelled."""
        self._finalizer.detach()
        self._crew.close(cancel=cancel_futures, kill=False)
        if wait:
            self._crew.join()

    def kill_workers(self) -> None:
        """Ends every process now, and every call with it."""
        self._finalizer.detach()
        self._crew.close(cancel=True, kill=True)
        self._crew.join()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            # Somebody wants out: not after the last call, but now.
            self.kill_workers()
        else:
            self.shutdown(wait=True)


class _View(_Submitting):
    """An executor as seen by calls with other wishes."""

    def __init__(self, executor: Executor, wishes: Wishes) -> None:
        self._executor = executor
        self._crew = executor._crew
        self._wishes = wishes

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Shuts the executor itself down."""
        self._executor.shutdown(wait, cancel_futures=cancel_futures)


def _usable_processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


__all__ = ["CallFuture", "Executor"]
