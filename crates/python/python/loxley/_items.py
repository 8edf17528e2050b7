"""The items of a map, from the first to the last: all there, or gathered from a stream."""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any, Iterator, List, Sequence, Union

#: Items are taken from a stream for about so long before somebody looks whether work can be sent.
_GATHER_SECONDS = 0.001


class Listed:
    """Items that are all there."""

    is_open = False

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = items
        self._next = 0
        #: How many there were from the beginning.
        self.gathered = len(items)

    @property
    def waiting(self) -> int:
        """How many items are there and not taken."""
        return len(self._items) - self._next

    def take(self, count: int) -> Sequence[Any]:
        """The next items. They cannot be taken again."""
        begin = self._next
        self._next = min(begin + count, len(self._items))
        return self._items[begin : self._next]


class Streamed:
    """Items of an iterator, which only the thread that owns it may run: it calls ``gather``."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator = iterator
        self._items: List[Any] = []
        self._batch = 1
        #: How many have come so far.
        self.gathered = 0
        #: Whether more may come.
        self.is_open = True

    @property
    def waiting(self) -> int:
        """How many items are there and not taken."""
        return len(self._items)

    def gather(self, most: float) -> None:
        """Takes some items from the iterator, no more than ``most``; fewer if they come slowly."""
        wanted = int(min(self._batch, most))
        begin = time.perf_counter()
        items = list(itertools.islice(self._iterator, wanted))
        seconds = time.perf_counter() - begin
        self.gathered += len(items)
        self._items.extend(items)
        self.is_open = len(items) == wanted
        growth = min(4.0, _GATHER_SECONDS / max(seconds, 1e-9))
        self._batch = max(1, int(self._batch * growth))

    def take(self, count: int) -> Sequence[Any]:
        """The next items. They cannot be taken again."""
        taken = self._items[:count]
        del self._items[:count]
        return taken


Items = Union[Listed, Streamed]


def items_of(iterable: Any) -> Items:
    """The items of an iterable, as they are now where that can be had without running it."""
    if isinstance(iterable, range):
        return Listed(iterable)
    if isinstance(iterable, (list, tuple)):
        return Listed(list(iterable))
    numpy = sys.modules.get("numpy")
    if numpy is not None and type(iterable) is numpy.ndarray and iterable.ndim > 0:
        # Travels as one block; iterating over a part of it gives what iterating over it gives.
        return Listed(iterable.copy())
    return Streamed(iter(iterable))
