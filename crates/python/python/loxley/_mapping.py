"""A function over many items, in pieces that size themselves.

A piece should take so long that its overhead does not matter, and no longer: then the last pieces end
together. So the first pieces are few calls, which are timed; later ones are as large as that time
allows, and never more than a share of what is left.

The thread that settles futures cuts pieces and packs them; whoever iterates over the results gathers the
items, if they come from a stream, and unpacks the results.
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence, Tuple

from loxley._items import Items, Streamed
from loxley._packing import Arrived, loads_exception, pack, unpack_error
from loxley._progress import Progress

if TYPE_CHECKING:
    from loxley._process_pool import ProcessPool
    from loxley._wishes import Wishes

#: A piece should take this long, in seconds: some fifteen times what sending it costs. Whoever takes the results
#: unpacks those of the first pieces while the later ones run, so they must not be long.
_PIECE_SECONDS = 0.0015
#: Longer, while that is a small part of what each process has left: whoever sends needs a processor too.
_LONGEST_SECONDS = 0.05
_SMALL_PART = 32
#: And not less than this, near the end.
_SMALLEST_SECONDS = 0.001
#: No piece is more than this share of what each process has left.
_SHARES = 2
#: While nobody knows how long calls take, a piece is this share of all, and no more than so many calls:
#: too little to matter if they are long. The very first is a single call, so that its result is there soon.
_FIRST_SHARES = 1000
_FIRST_MAX = 32
#: So many seconds of a piece are not its calls: unpacking, packing, loading the function.
_PIECE_OVERHEAD = 0.00005
#: So many pieces for each process are under way: one runs, the others wait for it, there or here.
_AHEAD = 4
#: And not more than so many bytes, unless a process has nothing to do.
_AHEAD_BYTES = 32 << 20
#: A piece so many times larger than any that came back waits until a process has nothing to do: by
#: then more may be known.
_LEAP = 256


class Piece:
    """Some calls of a map, sent together; what came back is unpacked by whoever wants it."""

    __slots__ = ("call", "size", "bytes", "_mapping", "_outcome")

    def __init__(self, mapping: Mapping, size: int, bytes: int) -> None:
        self.call = 0
        self.size = size
        self.bytes = bytes
        self._mapping = mapping
        self._outcome: Optional[Tuple[str, Optional[Arrived], Optional[BaseException]]] = None

    def settle(
        self, kind: str, arrived: Optional[Arrived], error: Optional[BaseException], seconds: float
    ) -> None:
        """Takes in what became of it."""
        self._outcome = (kind, arrived, error)
        self._mapping.settled(self, seconds if kind == "value" else 0.0)

    def cancel(self) -> None:
        """Cancels it if it has not begun."""
        if self._outcome is None and self._mapping.pool.cancel_call(self.call):
            self.settle("cancelled", None, CancelledError(), 0.0)

    @property
    def is_settled(self) -> bool:
        """Whether it is known what became of it."""
        return self._outcome is not None

    def unpack(self) -> Tuple[Iterator[Any], Optional[BaseException]]:
        """The results, each of which is forgotten when it is given out, and what was raised after them."""
        assert self._outcome is not None
        kind, arrived, error = self._outcome
        if kind != "value" or arrived is None:
            return iter(()), error or CancelledError()
        try:
            values, packed = arrived.unpack()
            # Of numbers nobody can tell whether they are forgotten, and that is the quicker way.
            given = iter(values) if arrived.is_plain() else _let_go(values)
            return given, None if packed is None else loads_exception(packed)
        except KeyboardInterrupt:
            raise
        except BaseException as problem:
            return iter(()), unpack_error("the results of some calls", problem)


class Mapping:
    """One map: its items, the pieces under way, and what came back of them."""

    def __init__(
        self,
        pool: ProcessPool,
        wishes: Wishes,
        items: Items,
        shape: int,
        chunksize: Optional[int],
        buffersize: Optional[int],
        progress: Optional[Progress],
    ) -> None:
        self.pool = pool
        self.wishes = wishes
        #: The number of its function. The pool sets it.
        self.function = 0
        self._items = items
        self._shape = shape
        self._chunksize = chunksize
        self._buffersize = buffersize
        self._progress = progress
        #: Held while pieces are cut and packed.
        self._cutting = threading.Lock()
        #: Guards everything below.
        self._news = threading.Condition()
        #: Pieces by the position of their first item, until their results are taken.
        self._pieces: Dict[int, Piece] = {}
        self._under_way = 0
        self._bytes = 0
        self._sent = 0
        self._largest = 0
        self._timed_calls = 0
        self._timed_seconds = 0.0
        self._error: Optional[BaseException] = None

    @property
    def has_work(self) -> bool:
        """Whether there are items that can be sent."""
        return self._error is None and self._items.waiting > 0

    # Sending.

    def refill(self) -> bool:
        """Sends pieces until enough are under way. False when there is nothing left to send."""
        with self._cutting:
            while self._error is None and self._under_way < _AHEAD * self.pool.size:
                size, waiting = self._next_size(), self._items.waiting
                if waiting == 0 and not self._items.is_open:
                    return False
                if not self._is_worth_sending(size, waiting):
                    return True
                self._send(self._items.take(size))
            return self._error is None

    def _next_size(self) -> int:
        if self._chunksize is not None:
            return self._chunksize
        if self._timed_calls == 0:
            share = self._items.waiting // _FIRST_SHARES if self._sent else 1
            return max(1, min(share, _FIRST_MAX))
        size = self._calls_in(_PIECE_SECONDS)
        if self._buffersize is not None:
            size = min(size, self._buffersize / (_AHEAD * self.pool.size))
        elif not self._items.is_open:
            rest = self._items.waiting / self.pool.size
            size = max(size, min(rest / _SMALL_PART, self._calls_in(_LONGEST_SECONDS)))
            # What few calls say of how long they take is not worth a large part of the rest.
            smallest = min(self._calls_in(_SMALLEST_SECONDS), 4 * self._largest)
            size = min(size, max(rest / _SHARES, smallest))
        return max(1, int(size))

    def _calls_in(self, seconds: float) -> float:
        """How many calls take so long, as far as is known."""
        return seconds * self._timed_calls / max(self._timed_seconds, 1e-9)

    def _is_worth_sending(self, size: int, waiting: int) -> bool:
        is_whole = waiting >= size or not self._items.is_open
        if self._chunksize is not None:
            return is_whole
        # Less than a piece, or a piece of which little is known, for a process with nothing to do.
        is_idle = self._under_way < self.pool.size
        is_known = size <= _LEAP * self._largest and self._bytes < _AHEAD_BYTES
        return waiting > 0 and (is_idle or (is_whole and is_known))

    def _send(self, items: Sequence[Any]) -> None:
        try:
            packed = pack(items)
            payload, segment = packed.ship(self.pool.hub)
        except BaseException as error:
            return self.fail(error)
        piece = Piece(self, len(items), packed.nbytes)
        del packed
        with self._news:
            self._bytes += piece.bytes
            self._pieces[self._sent] = piece
            self._sent += piece.size
            self._under_way += 1
        try:
            self.pool.send(
                piece, self.function, self._shape, piece.size, payload, segment, self.wishes
            )
        except Exception as error:
            piece.settle("lost", None, error, 0.0)
            self.fail(error)

    def settled(self, piece: Piece, seconds: float) -> None:
        """A piece came back: it took so long, if that is known."""
        # First, so that whoever has all results has heard of all of them.
        if self._progress is not None:
            total = None if self._items.is_open else self._items.gathered
            self._progress.add(piece.size, total)
        with self._news:
            self._under_way -= 1
            self._bytes -= piece.bytes
            if seconds > 0.0:
                self._note_time(piece.size, max(seconds - _PIECE_OVERHEAD, 0.1 * seconds))
            self._news.notify_all()

    def _note_time(self, calls: int, seconds: float) -> None:
        if calls >= 2 * self._largest:
            # Many calls tell more than the few before them, which may have been held up.
            self._timed_calls, self._timed_seconds = 0, 0.0
        self._largest = max(self._largest, calls)
        self._timed_calls += calls
        self._timed_seconds += seconds

    def fail(self, error: BaseException) -> None:
        """Nothing more is sent; whoever wants more gets the error."""
        with self._news:
            if self._error is None:
                self._error = error
            self._news.notify_all()

    def cancel(self) -> None:
        """Nobody wants the rest: what has not begun is cancelled."""
        if not self.pool.is_here:
            return
        self.fail(CancelledError())
        with self._news:
            pieces = list(self._pieces.values())
        for piece in pieces:
            piece.cancel()
        self.pool.hub.wake()

    # The caller's side.

    def gather(self, taken: int) -> None:
        """Takes items from the stream, if there is one, as far as may be; ``taken`` have gone out."""
        while isinstance(self._items, Streamed) and self._items.is_open and self._error is None:
            most = float("inf")
            if self._buffersize is not None:
                most = self._buffersize - (self._items.gathered - taken)
                if most <= 0:
                    return
            # No lock: what is behind the stream may take its time, or use this very executor.
            self._items.gather(most)
            if self._under_way < _AHEAD * self.pool.size:
                self.refill()

    def results(self, end: Optional[float]) -> Iterator[Iterator[Any]]:
        """The results of one piece after the other, in the order of the items."""
        at = 0
        try:
            while True:
                self.gather(at)
                piece = self._take(at, end)
                if piece is None:
                    return
                at += piece.size
                values, error = piece.unpack()
                del piece
                yield values
                del values
                if error is not None:
                    raise error
        finally:
            self.cancel()

    def _take(self, at: int, end: Optional[float]) -> Optional[Piece]:
        """Waits for the piece that begins with this item; None when there is none."""
        with self._news:
            while True:
                piece = self._pieces.get(at)
                if piece is not None and piece.is_settled:
                    return self._pieces.pop(at)
                if at == self._items.gathered and not self._items.is_open:
                    return None
                if piece is None and self._error is not None:
                    raise self._error
                rest = None if end is None else end - time.monotonic()
                if rest is not None and rest <= 0:
                    raise FutureTimeout()
                self._news.wait(rest)


def _let_go(values: List[Any]) -> Iterator[Any]:
    """The values, each of which is forgotten when it is given out."""
    values.reverse()
    return map(list.pop, itertools.repeat(values, len(values)))


def run(mapping: Mapping, function: Any, timeout: Optional[float]) -> Iterator[Any]:
    """Starts a map now, and returns an iterator over its results."""
    end = None if timeout is None else time.monotonic() + timeout
    mapping.pool.start_map(mapping, function)
    try:
        mapping.gather(0)
    except BaseException:
        mapping.cancel()
        raise
    pieces = mapping.results(end)
    # An iterator that nobody began has no `finally` to run.
    weakref.finalize(pieces, mapping.cancel)
    return itertools.chain.from_iterable(pieces)
