"""The executor, held to what `ProcessPoolExecutor` promises, and to what it does not."""

import asyncio
import concurrent.futures
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
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


def test_an_exception_that_cannot_travel_is_told_in_words(executor):
    with pytest.raises(loxley.RemoteError, match="Awkward: 1 and 2"):
        executor.submit(raise_awkward).result(10)
    with pytest.raises(TypeError, match="pickle"):
        executor.submit(threading.Lock).result(10)
    with pytest.raises(TypeError, match="pickle"):
        executor.submit(square, threading.Lock())
    assert executor.submit(square, 3).result(10) == 9


@pytest.mark.parametrize("count", [0, 1, 2, 7, 1000])
@pytest.mark.parametrize("chunksize", [None, 1, 3, 5000])
def test_map_keeps_the_order_of_items(executor, count, chunksize):
    results = list(executor.map(square, range(count), chunksize=chunksize))
    assert results == [number * number for number in range(count)]


def test_map_over_several_iterables(executor):
    assert list(executor.map(pow, [2, 3, 4], [5, 2, 1, 9])) == [32, 9, 4]
    assert list(executor.map(lambda a, b, c: a + b + c, "ab", "cd", "ef")) == ["ace", "bdf"]


def test_map_yields_what_came_before_an_exception(executor):
    results = executor.map(lambda number: 10 // (3 - number), range(10), chunksize=10)
    assert [next(results) for _ in range(3)] == [3, 5, 10]
    with pytest.raises(ZeroDivisionError):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


def test_map_with_a_timeout():
    executor = loxley.Executor(1)
    results = executor.map(nap, [0.0, 60.0], timeout=2.0)
    assert next(results) is None
    begin = time.monotonic()
    with pytest.raises(concurrent.futures.TimeoutError):
        next(results)
    assert time.monotonic() - begin < 10
    executor.kill_workers()


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


def test_a_map_in_which_a_process_dies():
    with loxley.Executor(2) as executor:
        results = executor.map(lambda n: os._exit(1) if n == 5 else n, range(20), chunksize=1)
        assert [next(results) for _ in range(5)] == list(range(5))
        with pytest.raises(loxley.WorkerLost):
            next(results)
        assert list(executor.map(square, range(100))) == [n * n for n in range(100)]


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


def test_a_straggler_is_given_a_second_chance(tmp_path):
    flag = tmp_path / "first"

    def sometimes_slow(number):
        if number == 7 and not flag.exists():
            flag.write_text("")
            time.sleep(30)
        time.sleep(0.02)
        return number

    with loxley.Executor(2) as executor:
        begin = time.monotonic()
        values = list(executor.options(speculate=True).map(sometimes_slow, range(12)))
        assert values == list(range(12))
        assert time.monotonic() - begin < 15
        assert executor.statistics()["speculations"] >= 1


def test_the_initializer_runs_in_each_process():
    def remember(value):
        loxley.local.value = value

    with loxley.Executor(2, initializer=remember, initargs=("set",)) as executor:
        values = executor.map(lambda _: loxley.local.value, range(10), chunksize=1)
        assert set(values) == {"set"}


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


@pytest.mark.parametrize("method", ["fork", "spawn"])
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


def test_the_report(executor):
    list(executor.map(nap, [0.01] * 40))
    report = executor.report()
    assert 1.0 <= report.load_imbalance <= 2.0 and 0.0 < report.utilization <= 1.0
    assert "load imbalance" in str(report) and "target" in str(report)
    assert set(report.as_dict()) == {
        "load_imbalance", "straggler_ratio", "utilization", "queue_depth_variance",
    }  # fmt: skip


def run_script(text, **options):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_what_is_pending_is_done_before_the_interpreter_ends():
    script = run_script(
        """
        import loxley, time
        executor = loxley.Executor(1)
        for number in range(3):
            executor.submit(lambda n: (time.sleep(0.1), print("did", n, flush=True)), number)
        """
    )
    out, err = script.communicate(timeout=30)
    assert (out, err) == ("did 0\ndid 1\ndid 2\n", "")


def test_ctrl_c_ends_the_program_and_its_processes():
    script = run_script(
        """
        import loxley, time
        with loxley.Executor(2) as executor:
            futures = [executor.submit(time.sleep, 60) for _ in range(4)]
            while not futures[0].running():
                time.sleep(0.01)
            print(*executor.process_ids(), flush=True)
            futures[0].result()
        """,
        start_new_session=True,
    )
    processes = [int(number) for number in script.stdout.readline().split()]
    time.sleep(0.2)
    os.killpg(script.pid, signal.SIGINT)
    _, err = script.communicate(timeout=20)
    assert script.returncode != 0
    assert err.rstrip().endswith("KeyboardInterrupt") and err.count("Traceback") == 1
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_processes_end_with_their_parent():
    script = run_script(
        """
        import loxley, time
        executor = loxley.Executor(2)
        executor.submit(time.sleep, 60)
        executor.submit(pow, 1, 1).result()
        print(*executor.process_ids(), flush=True)
        time.sleep(60)
        """
    )
    processes = [int(number) for number in script.stdout.readline().split()]
    script.kill()
    script.communicate()
    end = time.monotonic() + 20
    while processes and time.monotonic() < end:
        processes = [process for process in processes if _is_there(process)]
        time.sleep(0.02)
    assert not processes


def _is_there(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
