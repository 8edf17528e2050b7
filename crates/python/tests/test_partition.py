"""Dividing work up front, on sequences and on arrays."""

import random

import numpy
import pytest
from loxley import Router, partition


def test_arrays_are_divided_into_arrays():
    rows = numpy.arange(20).reshape(10, 2)
    parts = partition.chunks(rows, 3)
    assert [part.shape for part in parts] == [(4, 2), (3, 2), (3, 2)]
    assert numpy.array_equal(numpy.concatenate(parts), rows)
    weights = numpy.array([9.0, 1, 1, 1, 1, 1, 1, 1, 1, 1])
    parts = partition.largest_first(rows, 2, weights)
    assert [part.tolist() for part in parts][0] == [[0, 1]]
    assert sum(len(part) for part in parts) == 10
    dealt = partition.round_robin(rows, 4)
    assert [len(part) for part in dealt] == [3, 3, 2, 2]
    assert [len(part) for part in partition.ranges(rows, 2, weights)] == [1, 9]


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_and_the_parts_are_even(seed):
    rng = random.Random(seed)
    costs = [rng.expovariate(1.0) for _ in range(200)]
    groups = partition.largest_first(costs, 4)
    assert sorted(cost for group in groups for cost in group) == sorted(costs)
    loads = [sum(group) for group in groups]
    assert max(loads) / (sum(loads) / 4) < 1.05
    speeds = [1.0, 2.0, 4.0]
    groups = partition.largest_first(costs, 3, speeds=speeds)
    times = [sum(group) / speed for group, speed in zip(groups, speeds)]
    assert max(times) / min(times) < 1.2
    in_order = partition.ranges(costs, 4)
    assert [cost for group in in_order for cost in group] == costs


def test_memory_is_a_limit():
    with pytest.raises(partition.DoesNotFit, match="item 1 needs more memory") as caught:
        partition.within_memory("abc", [10, 90, 20], [40, 80])
    assert caught.value.items == [1]
    groups = partition.within_memory([10, 20, 30, 40], lambda size: size, [50, 50])
    assert sorted(map(sum, groups)) == [50, 50]


def test_mistakes_are_told():
    with pytest.raises(ValueError, match="part"):
        partition.chunks([1, 2], 0)
    with pytest.raises(ValueError):
        partition.largest_first([1.0, float("nan")], 2)
    with pytest.raises(ValueError, match="2 weights for 3 items"):
        partition.ranges("abc", 2, [1, 2])
    with pytest.raises(ValueError, match="smallest and largest"):
        partition.batches([1], float)
    with pytest.raises(ZeroDivisionError):
        partition.batches([1], lambda item: 1 / 0, smallest=1, largest=2)
    with pytest.raises(ZeroDivisionError):
        partition.batches([9], float, smallest=1, largest=2, split=lambda item: 1 / 0)
    with pytest.raises(ValueError):
        partition.advise([], 2)


def test_batches_fit_parts_and_overhead():
    found = partition.batches([1.0] * 8000, float, parts=10, overhead=1.0)
    assert {len(batch) for batch in found} == {20}


def test_a_hot_key_does_not_overload_one_worker():
    router = Router([f"w{number}" for number in range(4)])
    for _ in range(100):
        router.place("hot")
    loads = router.loads()
    assert sum(loads.values()) == 100 and max(loads.values()) <= 32
    home = router.home("hot")
    router.release(home, loads[home])
    assert router.loads()[home] == 0
    assert router.leave(home) and not router.leave(home) and len(router) == 3
    assert router.home("hot") != home
    with pytest.raises(ValueError):
        router.join("w1" if home != "w1" else "w2")


def test_keys_stay_when_a_worker_leaves():
    router = Router(["a", "b", "c", "d"])
    before = {key: router.home(key) for key in range(2000)}
    router.leave("b")
    moved = [key for key, home in before.items() if router.home(key) != home]
    assert moved and all(before[key] == "b" for key in moved)


def test_advice_says_why():
    advice = partition.advise(numpy.full(100, 2.0), 4)
    assert advice.strategy == "equal_chunks" and "same" in advice.explanation
    tail = [1.0] * 990 + [200.0] * 10
    random.Random(1).shuffle(tail)
    advice = partition.advise(tail, 4, predictable=False)
    assert advice.strategy == "work_stealing" and advice.time_limit is not None
    assert {trial["strategy"] for trial in advice.trials} >= {"equal_chunks", "work_stealing"}
    assert "advised" in str(advice)


def test_every_way_takes_arrays():
    costs = numpy.array([9, 1, 4, 4, 2, 2], dtype="int32")
    rows = numpy.arange(12).reshape(6, 2)
    ways = {
        "chunks": partition.chunks(rows, 2),
        "round_robin": partition.round_robin(rows, 2),
        "largest_first": partition.largest_first(rows, 2, costs, numpy.array([1.0, 2.0])),
        "ranges": partition.ranges(rows, 2, costs),
        "within_memory": partition.within_memory(rows, costs * 10, numpy.array([120, 120]), costs),
        "near_data": partition.near_data(rows, 2, numpy.zeros((6, 1), "int64"), costs, costs),
        "one transfer": partition.near_data(rows, 2, numpy.zeros((6, 1), "int64"), costs[1], costs),
    }
    for way, groups in ways.items():
        assert len(groups) == 2 and all(type(group) is numpy.ndarray for group in groups), way
        found = numpy.concatenate(groups)
        assert numpy.array_equal(found[found[:, 0].argsort()], rows), way
    assert [part for part, _ in partition.deal(iter(costs), 2)] == [0, 1, 0, 1, 0, 1]
    batches = partition.batches(costs, float, smallest=4, largest=9)
    assert [sum(batch) for batch in batches] and sorted(sum(batches, [])) == sorted(costs)
    router = Router(["a", "b", "c"])
    assert all(router.home(int(key)) == router.home(key) for key in costs)
