"""`Executor.map`: what travels how, when work begins, and what is left when something goes wrong."""

import array
import concurrent.futures
import itertools
import os
import threading
import time

import loxley
import numpy
import pytest
from gates import PATIENCE, Gate, wait_until


def square(number):
    return number * number


def nap(seconds):
    time.sleep(seconds)
    return seconds


@pytest.fixture(scope="module")
def executor():
    with loxley.Executor(2) as executor:
        yield executor


@pytest.mark.parametrize("count", [0, 1, 2, 7, 1000])
@pytest.mark.parametrize("chunksize", [None, 1, 3, 5000])
def test_the_order_of_items_is_kept(executor, count, chunksize):
    results = list(executor.map(square, range(count), chunksize=chunksize))
    assert results == [number * number for number in range(count)]
    stream = (number for number in range(count))
    assert list(executor.map(square, stream, chunksize=chunksize)) == results


@pytest.mark.parametrize(
    "items",
    [
        [3, 1, 2],
        (3, 1, 2),
        range(9, 0, -2),
        "abc",
        b"abc",
        {"one": 1, "two": 2},
        array.array("d", [0.5, 1.5]),
        numpy.arange(7, dtype="int16"),
        numpy.arange(12.0).reshape(4, 3),
        numpy.array(["a", None, 3], dtype=object),
    ],
    ids=lambda items: type(items).__name__,
)
def test_items_arrive_as_iterating_gives_them(executor, items):
    found = list(executor.map(lambda item: (type(item), item), items))
    assert [kind for kind, _ in found] == [type(item) for item in items]
    assert all(numpy.array_equal(mine, item) for (_, mine), item in zip(found, items))


def test_items_are_taken_when_map_is_called(executor):
    numbers, row = list(range(1000)), numpy.arange(1000)
    of_list, of_array = executor.map(square, numbers), executor.map(square, row)
    numbers.clear()
    row[:] = 0
    assert list(of_list) == list(of_array) == [number * number for number in range(1000)]


def test_several_iterables(executor):
    assert list(executor.map(pow, [2, 3, 4], [5, 2, 1, 9])) == [32, 9, 4]
    assert list(executor.map(lambda a, b, c: a + b + c, "ab", "cd", "ef")) == ["ace", "bdf"]
    assert list(executor.map(square, [])) == list(executor.map(pow, [], [])) == []


def test_work_begins_before_a_stream_has_ended(executor, tmp_path):
    flag = tmp_path / "begun"

    def stream():
        yield flag
        wait_until(flag.exists)
        yield flag

    assert list(executor.map(lambda path: path.write_text("x"), stream())) == [1, 1]


def test_a_slow_stream_keeps_nobody_waiting(executor):
    goes_on = threading.Event()

    def stream():
        yield 1
        assert goes_on.wait(PATIENCE)
        yield 2

    found = []
    thread = threading.Thread(target=lambda: found.extend(executor.map(square, stream())))
    thread.start()
    assert executor.submit(square, 5).result(PATIENCE) == 25
    assert list(executor.map(square, range(100))) == [n * n for n in range(100)]
    goes_on.set()
    thread.join(PATIENCE)
    assert found == [1, 4]


def test_a_stream_that_fails_fails_the_map(executor):
    def stream():
        yield 1
        raise LookupError("dry")

    with pytest.raises(LookupError, match="dry"):
        executor.map(square, stream())
    assert list(executor.map(square, [3])) == [9]


@pytest.mark.parametrize("chunksize", [None, 2])
def test_an_endless_stream_with_a_buffer(chunksize):
    taken = []

    def stream():
        for number in itertools.count():
            taken.append(number)
            yield number

    with loxley.Executor(2) as executor:
        results = executor.map(square, stream(), buffersize=8, chunksize=chunksize)
        for count in range(1, 101):
            assert next(results) == (count - 1) ** 2
            assert len(taken) <= count + 8
        with pytest.raises(ValueError, match="buffersize"):
            executor.map(square, [1], buffersize=0)
    # The executor is closed: the map cannot go on, and says so after what it has.
    with pytest.raises(RuntimeError, match="after shutdown"):
        list(results)


def test_what_came_before_an_exception_is_yielded(executor):
    results = executor.map(lambda number: 10 // (3 - number), range(10), chunksize=10)
    assert [next(results) for _ in range(3)] == [3, 5, 10]
    with pytest.raises(ZeroDivisionError):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


@pytest.mark.parametrize("chunksize", [None, 1, 4])
def test_a_result_that_cannot_travel_fails_alone(executor, chunksize):
    results = executor.map(
        lambda number: threading.Lock() if number == 2 else number, range(4), chunksize=chunksize
    )
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(TypeError, match="pickle"):
        next(results)


def test_an_item_that_cannot_travel_comes_after_the_others(executor):
    results = executor.map(type, [1, 2, 3, threading.Lock()], chunksize=1)
    assert [next(results) for _ in range(3)] == [int] * 3
    with pytest.raises(TypeError, match="pickle"):
        next(results)
    assert list(executor.map(square, [3])) == [9]


def test_a_timeout():
    executor = loxley.Executor(1)
    # Until the process has what it needs nobody looks at a clock.
    executor.submit(nap, 0.0).result(PATIENCE)
    results = executor.map(nap, [0.0, 2 * PATIENCE], timeout=1.5)
    assert next(results) == 0.0
    begin = time.monotonic()
    with pytest.raises(concurrent.futures.TimeoutError):
        next(results)
    assert time.monotonic() - begin < PATIENCE
    executor.kill_workers()


def test_a_map_in_which_a_process_dies():
    with loxley.Executor(2) as executor:
        results = executor.map(lambda n: os._exit(1) if n == 5 else n, range(20), chunksize=1)
        assert [next(results) for _ in range(5)] == list(range(5))
        with pytest.raises(loxley.WorkerLost):
            next(results)
        assert list(executor.map(square, range(100))) == [n * n for n in range(100)]


def test_whoever_waits_for_a_map_hears_that_it_was_cancelled(tmp_path):
    error = concurrent.futures.CancelledError
    executor, gate = loxley.Executor(1), Gate(tmp_path)
    outcome = []

    def consume():
        try:
            outcome.extend(executor.map(gate.come, range(50), chunksize=1))
        except error:
            outcome.append(error)

    thread = threading.Thread(target=consume)
    thread.start()
    gate.wait_for(1)
    executor.shutdown(wait=False, cancel_futures=True)
    gate.open()
    executor.shutdown()
    thread.join(PATIENCE)
    assert outcome == [0, error] and gate.arrivals == 1


def test_a_map_that_nobody_wants_any_more_stops(tmp_path):
    gate = Gate(tmp_path)
    with loxley.Executor(1) as executor:
        results = executor.map(lambda number: number and gate.come(number), range(100), chunksize=1)
        assert next(results) == 0
        gate.wait_for(1)
        del results
        gate.open()
    assert gate.arrivals == 1


def test_short_calls_travel_together_and_long_ones_alone():
    with loxley.Executor(2) as executor:
        list(executor.map(abs, range(4)))
        before = executor.statistics()["sent"]
        assert list(executor.map(abs, range(100_000))) == list(range(100_000))
        short = executor.statistics()["sent"] - before
        list(executor.map(nap, [0.01] * 40))
        long = executor.statistics()["sent"] - before - short
    # Without growing, the first would be a hundred thousand (it is about fifty, and more where calls are held
    # up by others); the second must not grow.
    assert short < 10_000 and long == 40


def test_progress_is_told(executor, caplog):
    told = []
    results = list(executor.map(square, range(500), progress=lambda *far: told.append(far)))
    assert len(results) == 500
    assert told[-1] == (500, 500) and told == sorted(told)
    told.clear()
    stream = (number for number in range(30))
    list(executor.map(square, stream, chunksize=10, progress=lambda done, _: told.append(done)))
    assert told == [10, 20, 30]
    assert list(executor.map(square, [2], progress=lambda done, total: 1 / 0)) == [4]
    assert "exception calling callback for progress" in caplog.text
