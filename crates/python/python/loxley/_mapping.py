"""A function over many items, in pieces that size themselves.

A piece should take so long that its overhead does not matter, and no longer: then the last pieces end
together. So the first pieces are single calls, which are timed; later ones are as large as that time
allows, and never more than a share of what is left.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
import weakref
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from loxley._packing import ITEMS, TUPLES, dumps, loads, loads_exception

if TYPE_CHECKING:
    from loxley._crew import Crew, Wishes

#: A piece should take this long, in seconds: some twenty times what sending it costs.
_PIECE_SECONDS = 0.003
#: And not less than this, near the end.
_SMALLEST_SECONDS = 0.0005
#: No piece is more than this share of what each process has left.
_SHARES = 3
#: So many pieces for each process are under way: one runs, the others wait for it.
_AHEAD = 2


class Mapping:
    """One map: its items, the pieces under way, and the results that are here."""

    def __init__(
        self,
        crew: Crew,
        wishes: Wishes,
        function: Callable[..., Any],
        items: Sequence[Any],
        single: bool,
        piece: Optional[int],
    ) -> None:
        self.wishes = wishes
        self._crew = crew
        self._function = crew.function_number(function)
        self._items = items
        self._shape = ITEMS if single else TUPLES
        self._piece = piece
        self._next = 0
        self._sizes: Dict[int, int] = {}
        self._calls: Dict[int, int] = {}
        self._results: Dict[int, Tuple[List[Any], Optional[BaseException]]] = {}
        self._news = threading.Condition()
        self._done_count = 0
        self._done_seconds = 0.0
        self._closed = False
        self._error: Optional[BaseException] = None

    # The crew's side; the crew holds its lock.

    def refill(self) -> bool:
        """Sends pieces until enough are under way. False when there is nothing left to send."""
        while not self._closed and self._next < len(self._items):
            if len(self._calls) >= _AHEAD * self._crew.size:
                return True
            at, size = self._next, self._next_size()
            self._next += size
            try:
                payload = dumps(self._items[at : at + size])
                self._sizes[at] = size
                self._calls[at] = self._crew.send_piece(
                    self, at, self._function, self._shape, size, payload
                )
            except Exception as error:
                self.fail(error)
        return False

    def _next_size(self) -> int:
        left = len(self._items) - self._next
        if self._piece is not None:
            return min(self._piece, left)
        if self._done_count == 0:
            return 1
        each = max(self._done_seconds / self._done_count, 1e-9)
        share = max(left / (_SHARES * self._crew.size), _SMALLEST_SECONDS / each)
        return max(1, min(left, math.floor(min(_PIECE_SECONDS / each, share))))

    def settle(
        self, at: int, kind: str, payload: Any, error: Optional[BaseException], seconds: float
    ) -> None:
        """Takes in what became of a piece."""
        values: List[Any] = []
        if kind == "value":
            try:
                values, packed = loads(payload)
                error = loads_exception(packed) if packed is not None else None
            except Exception as problem:
                values, error = [], problem
        elif kind == "raised":
            error = loads_exception(payload)
        self._done_count += len(values)
        self._done_seconds += seconds
        with self._news:
            self._calls.pop(at, None)
            self._results[at] = (values, error)
            self._news.notify_all()

    def fail(self, error: BaseException) -> None:
        """Nothing more will come."""
        with self._news:
            self._error = error
            self._closed = True
            self._news.notify_all()

    # The caller's side.

    def results(self, end: Optional[float]) -> Iterator[List[Any]]:
        """The results of one piece after the other, in the order of the items."""
        at = 0
        try:
            while at < len(self._items):
                values, error = self._take(at, end)
                size = self._sizes.pop(at)
                yield values
                if error is not None:
                    raise error
                at += size
                del values
        finally:
            self.close()

    def _take(self, at: int, end: Optional[float]) -> Tuple[List[Any], Optional[BaseException]]:
        with self._news:
            while at not in self._results:
                if self._error is not None and at not in self._calls:
                    raise self._error
                if end is None:
                    self._news.wait()
                elif not self._news.wait(max(0.0, end - time.monotonic())):
                    if at not in self._results and time.monotonic() >= end:
                        raise FutureTimeout()
            return self._results.pop(at)

    def close(self) -> None:
        """Nobody wants the rest: what has not begun is cancelled."""
        self._closed = True
        with self._news:
            calls = list(self._calls.values())
        for call in calls:
            self._crew.cancel_call(call)
        self._crew.hub.wake()


def run(mapping: Mapping, timeout: Optional[float]) -> Iterator[Any]:
    """Starts a map now, and returns an iterator over its results."""
    end = None if timeout is None else time.monotonic() + timeout
    mapping._crew.start_map(mapping)
    pieces = mapping.results(end)
    # An iterator that nobody began has no `finally` to run.
    weakref.finalize(pieces, mapping.close)
    return itertools.chain.from_iterable(pieces)
