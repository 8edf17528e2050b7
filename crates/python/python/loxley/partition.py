"""Dividing work up front.

Each function takes items (a list, a tuple, a range, a numpy array: anything with a length that can be
sliced) and returns one group of items for each part. Arrays are divided into arrays.

>>> chunks(range(10), 3)
[range(0, 4), range(4, 7), range(7, 10)]
"""

from __future__ import annotations

import numbers
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence, Tuple, TypeVar, Union

from loxley import _core
from loxley._core import Advice, Router

T = TypeVar("T")
Weights = Union[Sequence[float], Callable[[Any], float], None]


class DoesNotFit(ValueError):
    """Some items have no place within the memory there is. ``items`` are their positions."""

    def __init__(self, items: List[int], message: str) -> None:
        super().__init__(message)
        self.items = items


def chunks(items: Sequence[T], parts: int) -> List[Sequence[T]]:
    """Equal contiguous chunks, for items that cost the same: sizes differ by at most one.

    >>> chunks("abcdefg", 3)
    ['abc', 'de', 'fg']
    """
    return [items[start:end] for start, end in _core.equal_chunks(len(items), parts)]


def round_robin(items: Sequence[T], parts: int) -> List[Sequence[T]]:
    """One to each in turn.

    >>> round_robin([1, 2, 3, 4, 5], 2)
    [[1, 3, 5], [2, 4]]
    """
    if parts < 1:
        raise ValueError("there are no parts")
    return [items[part::parts] for part in range(parts)]


def deal(stream: Iterable[T], parts: int) -> Iterator[Tuple[int, T]]:
    """One to each in turn, for a stream whose length is unknown: pairs of a part and an item.

    >>> list(deal(iter("abc"), 2))
    [(0, 'a'), (1, 'b'), (0, 'c')]
    """
    if parts < 1:
        raise ValueError("there are no parts")
    return ((position % parts, item) for position, item in enumerate(stream))


def largest_first(
    items: Sequence[T],
    parts: int,
    weights: Weights = None,
    speeds: Optional[Sequence[float]] = None,
) -> List[Sequence[T]]:
    """The largest item first, to the part that will be done with it first.

    ``weights`` are what items cost, or a function that tells; without them an item is its own weight.
    A part of speed 2 needs half as long.

    >>> largest_first([2, 7, 3, 4], 2)
    [[2, 7], [3, 4]]
    """
    if speeds is not None and len(speeds) != parts:
        raise ValueError(f"{len(speeds)} speeds for {parts} parts")
    known = [1.0] * parts if speeds is None else _floats(speeds)
    return _groups(items, _core.largest_to_least(_weights(items, weights), known), parts)


def ranges(items: Sequence[T], parts: int, weights: Weights = None) -> List[Sequence[T]]:
    """Contiguous ranges of equal weight, for items whose order matters.

    >>> ranges([1, 1, 1, 1, 4], 2)
    [[1, 1, 1, 1], [4]]
    """
    found = _core.weighted_ranges(_weights(items, weights), parts)
    return [items[start:end] for start, end in found]


def within_memory(
    items: Sequence[T],
    memory: Union[Sequence[int], Callable[[T], int]],
    limits: Sequence[int],
    weights: Weights = None,
) -> List[Sequence[T]]:
    """Groups that fit into the memory of their parts; :class:`DoesNotFit` names what has no place.

    >>> within_memory(["a", "b", "c"], [10, 90, 20], [40, 100], weights=[9, 1, 1])
    [['a', 'c'], ['b']]
    """
    needs = [memory(item) for item in items] if callable(memory) else list(memory)
    costs = [1.0] * len(items) if weights is None else _weights(items, weights)
    if not len(needs) == len(costs) == len(items):
        raise ValueError("every item needs its memory and its weight")
    found = _core.fit_memory(costs, [int(need) for need in needs], [int(limit) for limit in limits])
    part_of, left_over, message = found
    if part_of is None:
        raise DoesNotFit(left_over, message)
    return _groups(items, part_of, len(limits))


def near_data(
    items: Sequence[T],
    parts: int,
    homes: Sequence[Sequence[int]],
    transfer: Union[float, Sequence[float]],
    weights: Weights = None,
    price: float = 0.0,
) -> List[Sequence[T]]:
    """Groups near their data: imbalance is traded against transfer.

    ``homes`` are the parts that hold the data of each item, ``transfer`` is how much longer an item
    takes elsewhere, and ``price`` is what a second of transfer costs besides that.

    >>> groups = near_data("abcd", 2, [[0]] * 4, 5.0, weights=[10.0] * 4)
    >>> [len(group) for group in groups]
    [3, 1]
    """
    costs = _weights(items, weights)
    transfers = (
        [float(transfer)] * len(items)
        if isinstance(transfer, numbers.Real)
        else _floats(transfer)
    )
    if not len(homes) == len(transfers) == len(items):
        raise ValueError("every item needs its homes and its transfer time")
    placed, _, _ = _core.near(costs, [list(home) for home in homes], transfers, parts, price)
    return _groups(items, placed, parts)


def batches(
    items: Iterable[T],
    cost: Callable[[T], float],
    *,
    smallest: Optional[float] = None,
    largest: Optional[float] = None,
    parts: Optional[int] = None,
    overhead: Optional[float] = None,
    split: Optional[Callable[[T], Optional[Tuple[T, T]]]] = None,
) -> List[List[T]]:
    """Small items gathered until a batch is worth its overhead, large ones split if they can be.

    Say how large batches should be (``smallest`` and ``largest``, in the unit of ``cost``), or for how
    many ``parts`` they are and what handing one out costs (``overhead``).

    >>> batches([range(0, 2), range(2, 4), range(4, 14)], len, smallest=3, largest=6,
    ...         split=lambda rows: (rows[: len(rows) // 2], rows[len(rows) // 2 :]))
    [[range(0, 2), range(2, 4)], [range(4, 9)], [range(9, 14)]]
    """
    items = list(items)
    if smallest is None or largest is None:
        if parts is None or overhead is None:
            raise ValueError("give smallest and largest, or parts and overhead")
        total = sum(cost(item) for item in items)
        smallest, largest = _core.fitting_grain(total, parts, overhead)
    return _core.batch_items(items, cost, split, smallest, largest)


def advise(
    costs: Sequence[float],
    parts: int,
    *,
    streaming: bool = False,
    order_matters: bool = False,
    predictable: Optional[bool] = None,
    overhead: float = 0.0,
) -> Advice:
    """Names the way of dividing work that fits a sample of costs, and why.

    >>> advise([2.0] * 100, 4).strategy
    'equal_chunks'
    >>> advise([1.0] * 95 + [60.0] * 5, 4, predictable=False).strategy
    'work_stealing'
    """
    return _core.advise_costs(
        _floats(costs), parts, streaming, order_matters, predictable, overhead
    )


def _floats(numbers: Any) -> List[float]:
    values = numbers.tolist() if hasattr(numbers, "tolist") else numbers
    return [float(value) for value in values]


def _weights(items: Sequence[Any], weights: Weights) -> List[float]:
    if weights is None:
        return _floats(items)
    if callable(weights):
        return [float(weights(item)) for item in items]
    if len(weights) != len(items):
        raise ValueError(f"{len(weights)} weights for {len(items)} items")
    return _floats(weights)


def _groups(items: Sequence[T], part_of: List[int], parts: int) -> List[Sequence[T]]:
    positions: List[List[int]] = [[] for _ in range(parts)]
    for position, part in enumerate(part_of):
        positions[part].append(position)
    if hasattr(items, "take") and hasattr(items, "shape"):
        return [items.take(group, axis=0) for group in positions]
    return [[items[position] for position in group] for group in positions]


__all__ = [
    "Advice",
    "DoesNotFit",
    "Router",
    "advise",
    "batches",
    "chunks",
    "deal",
    "largest_first",
    "near_data",
    "ranges",
    "round_robin",
    "within_memory",
]
