"""The executor, held to what `ProcessPoolExecutor` promises, and to what it does not."""

import asyncio
import concurrent.futures
import gc
import multiprocessing
import os
import pathlib
import signal
import sys
import threading
import time
import traceback
from concurrent.futures.process import BrokenProcessPool

import loxley
import pytest
from gates import PATIENCE, Gate, wait_until


def square(number):
    return number * number


def fail(message):
    raise LookupError(message)


def nap(seconds, value=None):
    time.sleep(seconds)
    return value


class Awkward(Exception):
    """Cannot be unpickled as it is: its arguments do not fit its constructor."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")
        self.two = two


def raise_awkward(two):
    raise Awkward(1, two)


@pytest.fixture(scope="module")
def executor():
    with loxley.Executor(2) as executor:
        yield executor


@pytest.fixture
def gate(tmp_path):
    """A gate that is open when the test is over, however that ends: else nobody could shut an executor down."""
    gate = Gate(tmp_path)
    yield gate
    gate.open()


def test_submit_with_arguments_and_keywords(executor):
    future = executor.submit(int, "ff", base=16)
    assert isinstance(future, concurrent.futures.Future)
    assert future.result(PATIENCE) == 255 and future.done() and not future.running()


def test_what_others_cannot_import_travels_by_value(executor):
    offset = 10

    class Local:
        def __init__(self, value):
            self.value = value

    result = executor.submit(lambda item: Local(item.value + offset), Local(1)).result(PATIENCE)
    assert type(result) is Local and result.value == 11


def test_calls_run_in_other_processes_at_the_same_time(executor, gate):
    ids = executor.map(lambda _: (gate.come(), os.getpid())[1], range(2))
    gate.wait_for(2)
    gate.open()
    assert len({os.getpid(), *ids}) == 3


def test_an_exception_comes_with_its_remote_traceback(executor):
    with pytest.raises(LookupError, match="no such thing") as caught:
        executor.submit(fail, "no such thing").result(PATIENCE)
    assert "raise LookupError(message)" in str(caught.value.__cause__)


def test_nested_exceptions_are_told_with_what_led_to_them(executor):
    def outer():
        try:
            fail("at the bottom")
        except LookupError as error:
            raise ValueError("at the top") from error

    with pytest.raises(ValueError, match="at the top") as caught:
        executor.submit(outer).result(PATIENCE)
    told = str(caught.value.__cause__)
    assert "LookupError: at the bottom" in told and "direct cause" in told
    # It can be raised and printed here like any other.
    assert "at the bottom" in "".join(traceback.format_exception(None, caught.value, None))


def test_an_exception_that_its_class_cannot_make_again_is_what_it_was(executor):
    with pytest.raises(Awkward, match="^1 and 2$") as caught:
        executor.submit(raise_awkward, 2).result(PATIENCE)
    assert caught.value.two == 2 and "raise_awkward" in str(caught.value.__cause__)
    with pytest.raises(Awkward, match="^1 and 3$"):
        list(executor.map(raise_awkward, [3]))


def test_an_exception_that_cannot_travel_is_told_in_words(executor):
    with pytest.raises(loxley.RemoteError, match="Awkward: 1 and <unlocked _thread.lock"):
        executor.submit(lambda: raise_awkward(threading.Lock())).result(PATIENCE)
    with pytest.raises(TypeError, match="pickle"):
        executor.submit(threading.Lock).result(PATIENCE)
    # As with `ProcessPoolExecutor`, it is the future that says so.
    refused = executor.submit(square, threading.Lock())
    with pytest.raises(TypeError, match="pickle"):
        refused.result(PATIENCE)
    assert executor.submit(square, 3).result(PATIENCE) == 9


def test_a_future_says_how_far_it_is(executor, gate):
    held = executor.submit(gate.come, 3)
    gate.wait_for(1)
    assert "state=running" in repr(held)
    gate.open()
    concurrent.futures.wait([held], PATIENCE)
    assert repr(held).endswith("state=finished>")
    assert held.result() == 3 and repr(held).endswith("state=finished returned int>")


def test_wait_and_as_completed(executor, gate):
    slow, fast = executor.submit(gate.come, "slow"), executor.submit(square, 2)
    done, pending = concurrent.futures.wait([slow, fast], PATIENCE, "FIRST_COMPLETED")
    assert done == {fast} and pending == {slow}
    order = []
    for future in concurrent.futures.as_completed([slow, fast], PATIENCE):
        order.append(future.result())
        gate.open()
    assert order == [4, "slow"]


def test_a_cancelled_call_never_runs(tmp_path, gate):
    with loxley.Executor(1) as executor:
        running = executor.submit(gate.come)
        wait_until(running.running)
        files = [tmp_path / str(number) for number in range(6)]
        futures = [executor.submit(str(file) and file.write_text, "ran") for file in files]
        assert not running.cancel()
        # Some of these wait in the other process already.
        assert all(future.cancel() for future in futures[:5])
        assert all(future.cancelled() for future in futures[:5])
        done, _ = concurrent.futures.wait(futures[:5], PATIENCE)
        assert len(done) == 5
        gate.open()
    assert [file.exists() for file in files] == [False] * 5 + [True]


def test_callbacks_run_and_their_mistakes_do_not_stop_anything(executor):
    seen = []
    future = executor.submit(square, 4)
    future.add_done_callback(lambda future: seen.append(future.result()))
    future.add_done_callback(lambda future: 1 / 0)
    future.result(PATIENCE)
    assert executor.submit(square, 5).result(PATIENCE) == 25
    assert seen == [16]


def test_asyncio(executor):
    async def work():
        loop = asyncio.get_running_loop()
        calls = [loop.run_in_executor(executor, square, number) for number in range(20)]
        return await asyncio.gather(*calls)

    assert asyncio.run(work()) == [number * number for number in range(20)]


def test_asyncio_hears_of_exceptions_and_cancels(executor, gate):
    async def work():
        loop = asyncio.get_running_loop()
        with pytest.raises(LookupError, match="told"):
            await loop.run_in_executor(executor, fail, "told")
        busy = [loop.run_in_executor(executor, gate.come) for _ in range(4)]
        late = loop.run_in_executor(executor, square, 3)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(busy[0]), 0.1)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        gate.open()
        await asyncio.gather(*busy)

    asyncio.run(work())


def test_higher_priorities_go_first(gate):
    with loxley.Executor(1) as executor:
        order = []
        block = executor.submit(gate.come)
        gate.wait_for(1)
        futures = []
        for priority in (1, 2, 3, 4, 5):
            for _ in range(3):
                future = executor.options(priority=priority).submit(square, priority)
                future.add_done_callback(lambda _, priority=priority: order.append(priority))
                futures.append(future)
        gate.open()
        block.result(PATIENCE)
        concurrent.futures.wait(futures, PATIENCE)
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
        before = [executor.submit(nap, 0.01, number) for number in range(10)]
        deadly = executor.submit(end)
        after = [executor.submit(nap, 0.01, number) for number in range(30)]
        with pytest.raises(loxley.WorkerLost, match=how) as caught:
            deadly.result(PATIENCE)
        assert isinstance(caught.value, BrokenProcessPool)
        assert [future.result(PATIENCE) for future in before] == list(range(10))
        assert [future.result(PATIENCE) for future in after] == list(range(30))
        assert len(executor.process_ids()) == 2


def test_a_call_that_runs_too_long_is_stopped():
    with loxley.Executor(1) as executor:
        slow = executor.options(timeout=0.1).submit(nap, 2 * PATIENCE)
        queued = executor.submit(square, 3)
        with pytest.raises(loxley.TaskTimeout):
            slow.result(PATIENCE)
        assert queued.result(PATIENCE) == 9
        # The process has what it needs now: a call that does nothing takes no time to speak of.
        values = executor.options(timeout=1.5).map(nap, [0, 2 * PATIENCE, 0])
        assert next(values) is None
        with pytest.raises(TimeoutError):
            next(values)


def test_a_call_is_stopped_with_its_process(tmp_path):
    def begin(path):
        path.touch()
        time.sleep(2 * PATIENCE)

    with loxley.Executor(1) as executor:
        running, waiting = executor.submit(begin, tmp_path / "begun"), executor.submit(square, 3)
        wait_until((tmp_path / "begun").exists)
        assert running.running()
        (process,) = executor.process_ids()
        running.stop()
        with pytest.raises(concurrent.futures.CancelledError):
            running.result(PATIENCE)
        assert waiting.result(PATIENCE) == 9
        assert executor.process_ids() != [process]
        waiting.stop()


@pytest.mark.parametrize("slow", [0, 1, 7, 11])
def test_a_straggler_is_given_a_second_chance(tmp_path, slow):
    """Wherever it is: first, when nobody knows yet how long calls take, or with others behind it."""
    flag, waited = tmp_path / "first", tmp_path / "waited"

    def sometimes_slow(number):
        if number == slow and not flag.exists():
            flag.write_text("")
            time.sleep(PATIENCE)
            waited.touch()
        time.sleep(0.02)
        return number

    with loxley.Executor(2) as executor:
        values = list(executor.options(speculate=True).map(sometimes_slow, range(12)))
        assert values == list(range(12)) and not waited.exists()
        assert executor.statistics()["speculations"] >= 1


def test_short_calls_do_not_wait_behind_a_straggler(tmp_path):
    """Calls of a tenth of a millisecond are sent in advance, many at a time: those behind a slow one
    must come back, and the slow one still gets its second chance."""
    flag, waited = tmp_path / "first", tmp_path / "waited"

    def sometimes_slow(number):
        if number == 300 and not flag.exists():
            flag.write_text("")
            time.sleep(PATIENCE)
            waited.touch()
        return number

    with loxley.Executor(2) as executor:
        options = executor.options(speculate=True)
        futures = [options.submit(sometimes_slow, number) for number in range(600)]
        assert [future.result(PATIENCE) for future in futures] == list(range(600))
        assert not waited.exists()
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
        executor.submit(square, 1).result(PATIENCE)
    executor.shutdown()


def test_an_initializer_with_a_great_deal_to_remember():
    blob = os.urandom(1 << 20)

    def remember(value):
        sys.loxley_test_value = len(value)

    with loxley.Executor(2, initializer=remember, initargs=(blob,)) as executor:
        assert executor.submit(lambda: sys.loxley_test_value).result(PATIENCE) == 1 << 20


def test_an_initializer_that_fails_breaks_the_executor():
    executor = loxley.Executor(2, initializer=fail, initargs=("not today",))
    future = executor.submit(square, 1)
    with pytest.raises(BrokenProcessPool) as caught:
        future.result(PATIENCE)
    assert "not today" in str(caught.value.__cause__)
    with pytest.raises(BrokenProcessPool):
        executor.submit(square, 1)
    executor.shutdown()


def test_a_process_is_replaced_after_so_many_calls():
    with loxley.Executor(1, max_tasks_per_child=3) as executor:
        ids = [executor.submit(os.getpid).result(PATIENCE) for _ in range(7)]
    assert [ids.count(each) for each in dict.fromkeys(ids)] == [3, 3, 1]
    with loxley.Executor(2, max_tasks_per_child=1) as executor:
        assert list(executor.map(square, range(6), chunksize=1)) == [n * n for n in range(6)]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_by_multiprocessing(method):
    context = multiprocessing.get_context(method)
    with loxley.Executor(2, context) as executor:
        assert list(executor.map(square, range(50))) == [n * n for n in range(50)]
        with pytest.raises(loxley.WorkerLost):
            executor.submit(os._exit, 1).result(PATIENCE)
        assert executor.submit(square, 3).result(PATIENCE) == 9


def test_shutdown(gate):
    executor = loxley.Executor(1)
    futures = [executor.submit(nap, 0.01, number) for number in range(5)]
    executor.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(square, 1)
    assert [future.result(PATIENCE) for future in futures] == list(range(5))
    executor = loxley.Executor(1)
    futures = [executor.submit(gate.come, number) for number in range(5)]
    gate.wait_for(1)
    executor.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in futures[1:])
    gate.open()
    executor.shutdown()
    assert futures[0].result(0) == 0 and gate.arrivals == 1
    loxley.Executor(2).shutdown()


def test_an_executor_that_is_forgotten_ends_its_processes():
    executor = loxley.Executor(1)
    assert executor.submit(square, 2).result(PATIENCE) == 4
    (process,) = executor.process_ids()
    del executor
    gc.collect()
    wait_until(lambda: not pathlib.Path(f"/proc/{process}").exists())


def test_large_things_travel():
    with loxley.Executor(1) as executor:
        blob = os.urandom(1 << 20) * 40
        assert executor.submit(len, blob).result(PATIENCE) == len(blob)
        assert executor.submit(bytes, 30 << 20).result(PATIENCE) == bytes(30 << 20)


def test_a_call_without_memory_fails_and_its_process_goes_on():
    def limit():
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

    with loxley.Executor(1, initializer=limit) as executor:
        (process,) = [executor.submit(os.getpid).result(PATIENCE)]
        with pytest.raises(MemoryError):
            executor.submit(bytes, 4 << 30).result(PATIENCE)
        assert executor.submit(os.getpid).result(PATIENCE) == process


def test_functions_that_travel_by_value_are_not_kept_for_ever():
    def calling(number):
        blob = bytes([number % 256]) * (1 << 20) + number.to_bytes(4, "big")
        return lambda: len(blob)

    def resident_megabytes():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") >> 20

    with loxley.Executor(1) as executor:
        assert executor.submit(calling(0)).result(PATIENCE) == (1 << 20) + 4
        before, there = resident_megabytes(), executor.submit(resident_megabytes).result(PATIENCE)
        for number in range(300):
            executor.submit(calling(number)).result(PATIENCE)
        assert resident_megabytes() - before < 200
        assert executor.submit(resident_megabytes).result(PATIENCE) - there < 200


def test_many_threads_submit():
    with loxley.Executor(2) as executor:
        results = []

        def work(base):
            futures = [executor.submit(square, base + number) for number in range(200)]
            results.extend(future.result(PATIENCE) for future in futures)

        threads = [threading.Thread(target=work, args=(base,)) for base in range(0, 1000, 200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(results) == [number * number for number in range(1000)]


def test_the_report_counts_processes_that_were_replaced():
    begin = time.monotonic()
    with loxley.Executor(2, max_tasks_per_child=2) as executor:
        list(executor.map(nap, [0.02] * 12, chunksize=1))
        seconds = time.monotonic() - begin
        report = executor.report()
    # Two places at work for no longer than it took; whoever was in them, all they did counts.
    assert 12 * 0.02 / (2 * seconds) <= report.utilization <= 1.0
    assert 1.0 <= report.load_imbalance <= 2.0


def test_the_report(executor):
    list(executor.map(nap, [0.01] * 40))
    report = executor.report()
    assert 1.0 <= report.load_imbalance <= 2.0 and 0.0 < report.utilization <= 1.0
    assert "load imbalance" in str(report) and "target" in str(report)
    assert set(report.as_dict()) == {
        "load_imbalance", "straggler_ratio", "utilization", "queue_depth_variance",
    }  # fmt: skip
