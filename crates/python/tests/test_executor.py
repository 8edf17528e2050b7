"""The executor, held to what `ProcessPoolExecutor` promises, and to what it does not."""

import asyncio
import concurrent.futures
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from concurrent.futures.process import BrokenProcessPool

import loxley
import pytest


def square(number):
    return number * number


def fail(message):
    raise LookupError(message)


def nap(seconds, value=None):
    time.sleep(seconds)
    return value


class Awkward(Exception):
    """Cannot be unpickled: its arguments do not fit its constructor."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def raise_awkward():
    raise Awkward(1, 2)


@pytest.fixture(scope="module")
def executor():
    with loxley.Executor(2) as executor:
        # Both processes have imported this module before any test looks at a clock.
        list(executor.map(nap, [0.1] * 4, chunksize=1))
        yield executor


def test_submit_with_arguments_and_keywords(executor):
    future = executor.submit(int, "ff", base=16)
    assert isinstance(future, concurrent.futures.Future)
    assert future.result(10) == 255 and future.done() and not future.running()


def test_what_others_cannot_import_travels_by_value(executor):
    offset = 10

    class Local:
        def __init__(self, value):
            self.value = value

    result = executor.submit(lambda item: Local(item.value + offset), Local(1)).result(10)
    assert type(result) is Local and result.value == 11


def test_calls_run_in_other_processes_at_the_same_time(executor):
    begin = time.monotonic()
    ids = list(executor.map(lambda _: (time.sleep(0.3), os.getpid())[1], range(2)))
    assert os.getpid() not in ids and len(set(ids)) == 2
    assert time.monotonic() - begin < 0.6


def test_an_exception_comes_with_its_remote_traceback(executor):
    with pytest.raises(LookupError, match="no such thing") as caught:
        executor.submit(fail, "no such thing").result(10)
    assert "raise LookupError(message)" in str(caught.value.__cause__)


def test_nested_exceptions_are_told_with_what_led_to_them(executor):
    def outer():
        try:
            fail("at the bottom")
        except LookupError as error:
            raise ValueError("at the top") from error

    with pytest.raises(ValueError, match="at the top") as caught:
        executor.submit(outer).result(10)
    told = str(caught.value.__cause__)
    assert "LookupError: at the bottom" in told and "direct cause" in told
    # It can be raised and printed here like any other.
    assert "at the bottom" in "".join(traceback.format_exception(None, caught.value, None))


def test_an_exception_that_cannot_travel_is_told_in_words(executor):
    with pytest.raises(loxley.RemoteError, match="Awkward: 1 and 2"):
        executor.submit(raise_awkward).result(10)
    with pytest.raises(TypeError, match="pickle"):
        executor.submit(threading.Lock).result(10)
    with pytest.raises(TypeError, match="pickle"):
        executor.submit(square, threading.Lock())
    assert executor.submit(square, 3).result(10) == 9


def test_wait_and_as_completed(executor):
    slow, fast = executor.submit(nap, 0.4, "slow"), executor.submit(nap, 0.0, "fast")
    done, pending = concurrent.futures.wait([slow, fast], return_when="FIRST_COMPLETED")
    assert done == {fast} and pending == {slow}
    order = [future.result() for future in concurrent.futures.as_completed([slow, fast])]
    assert order == ["fast", "slow"]


def test_a_cancelled_call_never_runs(tmp_path):
    with loxley.Executor(1) as executor:
        running = executor.submit(nap, 0.5)
        while not running.running():
            time.sleep(0.01)
        files = [tmp_path / str(number) for number in range(6)]
        futures = [executor.submit(str(file) and file.write_text, "ran") for file in files]
        assert not running.cancel()
        # Some of these wait in the other process already.
        assert all(future.cancel() for future in futures[:5])
        assert all(future.cancelled() for future in futures[:5])
        done, _ = concurrent.futures.wait(futures[:5], timeout=1)
        assert len(done) == 5
    assert [file.exists() for file in files] == [False] * 5 + [True]


def test_callbacks_run_and_their_mistakes_do_not_stop_anything(executor):
    seen = []
    future = executor.submit(square, 4)
    future.add_done_callback(lambda future: seen.append(future.result()))
    future.add_done_callback(lambda future: 1 / 0)
    future.result(10)
    assert executor.submit(square, 5).result(10) == 25
    assert seen == [16]


def test_asyncio(executor):
    async def work():
        loop = asyncio.get_running_loop()
        calls = [loop.run_in_executor(executor, square, number) for number in range(20)]
        return await asyncio.gather(*calls)

    assert asyncio.run(work()) == [number * number for number in range(20)]


def test_asyncio_hears_of_exceptions_and_cancels(executor):
    async def work():
        loop = asyncio.get_running_loop()
        with pytest.raises(LookupError, match="told"):
            await loop.run_in_executor(executor, fail, "told")
        busy = [loop.run_in_executor(executor, nap, 0.5) for _ in range(4)]
        late = loop.run_in_executor(executor, square, 3)
        await asyncio.sleep(0.1)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        await asyncio.gather(*busy)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(loop.run_in_executor(executor, nap, 1.0), 0.1)

    asyncio.run(work())


def test_higher_priorities_go_first():
    with loxley.Executor(1) as executor:
        executor.submit(square, 0).result(20)
        order = []
        block = executor.submit(nap, 0.5)
        futures = []
        for priority in (1, 2, 3, 4, 5):
            for _ in range(3):
                future = executor.options(priority=priority).submit(square, priority)
                future.add_done_callback(lambda _, priority=priority: order.append(priority))
                futures.append(future)
        block.result(10)
        concurrent.futures.wait(futures, timeout=10)
    # One call was on its way when the others came.
    rest = order[1:]
    assert rest == sorted(rest, reverse=True)


@pytest.mark.parametrize("priority", [0, 6, 2.5])
def test_wishes_that_make_no_sense(executor, priority):
    with pytest.raises(ValueError, match="between 1"):
        executor.options(priority=priority)
    with pytest.raises(ValueError):
        executor.options(timeout=0)


@pytest.mark.parametrize(
    "end, how",
    [
        (lambda: os._exit(3), "exit code 3"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "SIGSEGV"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL"),
    ],
    ids=["exit", "segfault", "kill"],
)
def test_a_process_that_dies_fails_its_call_alone(end, how):
    with loxley.Executor(2) as executor:
        before = [executor.submit(nap, 0.05, number) for number in range(10)]
        deadly = executor.submit(end)
        after = [executor.submit(nap, 0.01, number) for number in range(30)]
        with pytest.raises(loxley.WorkerLost, match=how) as caught:
            deadly.result(20)
        assert isinstance(caught.value, BrokenProcessPool)
        assert [future.result(20) for future in before] == list(range(10))
        assert [future.result(20) for future in after] == list(range(30))
        assert len(executor.process_ids()) == 2


def test_a_call_that_runs_too_long_is_stopped():
    with loxley.Executor(1) as executor:
        begin = time.monotonic()
        slow = executor.options(timeout=0.3).submit(nap, 60)
        queued = executor.submit(square, 3)
        with pytest.raises(loxley.TaskTimeout):
            slow.result(20)
        assert queued.result(20) == 9
        assert time.monotonic() - begin < 15
        values = executor.options(timeout=0.4).map(nap, [0, 60, 0])
        assert next(values) is None
        with pytest.raises(TimeoutError):
            next(values)


def test_a_call_is_stopped_with_its_process():
    with loxley.Executor(1) as executor:
        running, waiting = executor.submit(nap, 60), executor.submit(square, 3)
        while not running.running():
            time.sleep(0.01)
        (process,) = executor.process_ids()
        running.stop()
        with pytest.raises(concurrent.futures.CancelledError):
            running.result(10)
        assert waiting.result(20) == 9
        assert executor.process_ids() != [process]
        waiting.stop()


@pytest.mark.parametrize("slow", [0, 1, 7, 11])
def test_a_straggler_is_given_a_second_chance(tmp_path, slow):
    """Wherever it is: first, when nobody knows yet how long calls take, or with others behind it."""
    flag = tmp_path / "first"

    def sometimes_slow(number):
        if number == slow and not flag.exists():
            flag.write_text("")
            time.sleep(30)
        time.sleep(0.02)
        return number

    with loxley.Executor(2) as executor:
        executor.submit(square, 1).result(20)
        begin = time.monotonic()
        values = list(executor.options(speculate=True).map(sometimes_slow, range(12)))
        assert values == list(range(12))
        assert time.monotonic() - begin < 5
        assert executor.statistics()["speculations"] >= 1


def test_short_calls_do_not_wait_behind_a_straggler(tmp_path):
    """Calls of a tenth of a millisecond are sent in advance, many at a time: those behind a slow one
    must come back, and the slow one still gets its second chance."""
    flag = tmp_path / "first"

    def sometimes_slow(number):
        if number == 300 and not flag.exists():
            flag.write_text("")
            time.sleep(30)
        return number

    with loxley.Executor(2) as executor:
        options = executor.options(speculate=True)
        futures = [options.submit(sometimes_slow, number) for number in range(600)]
        begin = time.monotonic()
        assert [future.result(20) for future in futures] == list(range(600))
        assert time.monotonic() - begin < 10
        assert executor.statistics()["speculations"] >= 1


def test_the_initializer_runs_in_each_process():
    def remember(value):
        loxley.local.value = value

    with loxley.Executor(2, initializer=remember, initargs=("set",)) as executor:
        values = executor.map(lambda _: loxley.local.value, range(10), chunksize=1)
        assert set(values) == {"set"}


def test_processes_that_die_while_they_start_break_the_executor():
    executor = loxley.Executor(2, initializer=os._exit, initargs=(7,))
    with pytest.raises(BrokenProcessPool, match="do not start: the last one ended with exit code 7"):
        executor.submit(square, 1).result(30)
    executor.shutdown()


def test_an_initializer_with_a_great_deal_to_remember():
    blob = os.urandom(1 << 20)

    def remember(value):
        sys.loxley_test_value = len(value)

    with loxley.Executor(2, initializer=remember, initargs=(blob,)) as executor:
        assert executor.submit(lambda: sys.loxley_test_value).result(20) == 1 << 20


def test_an_initializer_that_fails_breaks_the_executor():
    executor = loxley.Executor(2, initializer=fail, initargs=("not today",))
    future = executor.submit(square, 1)
    with pytest.raises(BrokenProcessPool) as caught:
        future.result(20)
    assert "not today" in str(caught.value.__cause__)
    with pytest.raises(BrokenProcessPool):
        executor.submit(square, 1)
    executor.shutdown()


def test_a_process_is_replaced_after_so_many_calls():
    with loxley.Executor(1, max_tasks_per_child=3) as executor:
        ids = [executor.submit(os.getpid).result(20) for _ in range(7)]
    assert [ids.count(each) for each in dict.fromkeys(ids)] == [3, 3, 1]
    with loxley.Executor(2, max_tasks_per_child=1) as executor:
        assert list(executor.map(square, range(6), chunksize=1)) == [n * n for n in range(6)]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_by_multiprocessing(method):
    context = multiprocessing.get_context(method)
    with loxley.Executor(2, context) as executor:
        assert list(executor.map(square, range(50))) == [n * n for n in range(50)]
        with pytest.raises(loxley.WorkerLost):
            executor.submit(os._exit, 1).result(20)
        assert executor.submit(square, 3).result(20) == 9


def test_shutdown():
    executor = loxley.Executor(1)
    futures = [executor.submit(nap, 0.1, number) for number in range(5)]
    executor.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(square, 1)
    assert [future.result(10) for future in futures] == list(range(5))
    executor = loxley.Executor(1)
    futures = [executor.submit(nap, 0.3, number) for number in range(5)]
    while not futures[0].running():
        time.sleep(0.01)
    executor.shutdown(cancel_futures=True)
    assert futures[0].result(0) == 0
    assert all(future.cancelled() for future in futures[2:])
    loxley.Executor(2).shutdown()


def test_an_executor_that_is_forgotten_ends_its_processes():
    executor = loxley.Executor(1)
    assert executor.submit(square, 2).result(20) == 4
    (process,) = executor.process_ids()
    del executor
    gc.collect()
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    pytest.fail("the process is still there")


def test_large_things_travel():
    with loxley.Executor(1) as executor:
        blob = os.urandom(1 << 20) * 40
        assert executor.submit(len, blob).result(30) == len(blob)
        assert executor.submit(bytes, 30 << 20).result(30) == bytes(30 << 20)


def test_a_call_without_memory_fails_and_its_process_goes_on():
    def limit():
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

    with loxley.Executor(1, initializer=limit) as executor:
        (process,) = [executor.submit(os.getpid).result(20)]
        with pytest.raises(MemoryError):
            executor.submit(bytes, 4 << 30).result(20)
        assert executor.submit(os.getpid).result(20) == process


def test_functions_that_travel_by_value_are_not_kept_for_ever():
    def calling(number):
        blob = bytes([number % 256]) * (1 << 20) + number.to_bytes(4, "big")
        return lambda: len(blob)

    def resident_megabytes():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") >> 20

    with loxley.Executor(1) as executor:
        assert executor.submit(calling(0)).result(20) == (1 << 20) + 4
        before, there = resident_megabytes(), executor.submit(resident_megabytes).result(20)
        for number in range(300):
            executor.submit(calling(number)).result(20)
        assert resident_megabytes() - before < 200
        assert executor.submit(resident_megabytes).result(20) - there < 200


def test_many_threads_submit():
    with loxley.Executor(2) as executor:
        results = []

        def work(base):
            futures = [executor.submit(square, base + number) for number in range(200)]
            results.extend(future.result(30) for future in futures)

        threads = [threading.Thread(target=work, args=(base,)) for base in range(0, 1000, 200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(results) == [number * number for number in range(1000)]


def test_the_report_counts_processes_that_were_replaced():
    with loxley.Executor(2, max_tasks_per_child=2) as executor:
        list(executor.map(nap, [0.05] * 12, chunksize=1))
        report = executor.report()
    assert report.load_imbalance < 1.5
    assert 0.05 < report.utilization <= 1.0


def test_the_report(executor):
    list(executor.map(nap, [0.01] * 40))
    report = executor.report()
    assert 1.0 <= report.load_imbalance <= 2.0 and 0.0 < report.utilization <= 1.0
    assert "load imbalance" in str(report) and "target" in str(report)
    assert set(report.as_dict()) == {
        "load_imbalance", "straggler_ratio", "utilization", "queue_depth_variance",
    }  # fmt: skip
