"""Whatever a payload does, its own call ends and the others go on; and what is large travels by memory."""

import concurrent.futures
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import weakref

import loxley
import numpy
import pytest
from gates import PATIENCE, Gate, wait_until
from loxley import _process_pool


def square(number):
    return number * number


class ExitWhenUnpickled:
    def __reduce__(self):
        return sys.exit, (3,)


class ExitWhenPickled:
    def __reduce__(self):
        sys.exit(4)


class BlockWhenUnpickled:
    begun, goes_on = threading.Event(), threading.Event()

    def __reduce__(self):
        return block, ()


def block():
    BlockWhenUnpickled.begun.set()
    BlockWhenUnpickled.goes_on.wait(PATIENCE)


class ExitError(Exception):
    def __reduce__(self):
        return sys.exit, (5,)

    def __str__(self):
        raise SystemExit(6)


class Deep:
    """An object in an object in an object."""

    def __init__(self, levels):
        self.inner = None
        for _ in range(levels):
            outer = Deep(0)
            outer.inner, self.inner = self.inner, outer


def raise_exit_error():
    raise ExitError()


@pytest.fixture(scope="module")
def executor():
    with loxley.Executor(2) as executor:
        yield executor


def test_a_result_that_ends_whoever_unpickles_it_fails_its_own_call(executor):
    futures = [executor.submit(ExitWhenUnpickled), executor.submit(square, 3)]
    with pytest.raises(loxley.UnpackError, match="the result of the call .* SystemExit: 3"):
        futures[0].result(PATIENCE)
    assert isinstance(futures[0].exception(), concurrent.futures.process.BrokenProcessPool)
    assert futures[1].result(PATIENCE) == 9
    values = executor.map(lambda number: ExitWhenUnpickled() if number == 2 else number, range(3))
    with pytest.raises(loxley.UnpackError):
        list(values)
    assert executor.submit(square, 4).result(PATIENCE) == 16


def test_arguments_and_functions_that_end_whoever_unpickles_them_fail_their_own_call(executor):
    with pytest.raises(loxley.UnpackError, match="the arguments of the call .* SystemExit: 3"):
        executor.submit(square, ExitWhenUnpickled()).result(PATIENCE)
    bad = ExitWhenUnpickled()
    with pytest.raises(loxley.UnpackError, match="the function could not be unpickled"):
        executor.submit(lambda: bad).result(PATIENCE)
    with pytest.raises(SystemExit):
        executor.submit(ExitWhenPickled).result(PATIENCE)
    with pytest.raises(SystemExit):
        executor.submit(square, ExitWhenPickled()).result(PATIENCE)
    with pytest.raises(loxley.RemoteError, match="ExitError"):
        executor.submit(raise_exit_error).result(PATIENCE)
    with pytest.raises(SystemExit):
        list(executor.map(square, [1, ExitWhenPickled()], chunksize=1))
    assert executor.submit(square, 5).result(PATIENCE) == 25


def test_a_result_that_is_never_unpickled_holds_up_only_who_asks_for_it(executor):
    slow = executor.submit(BlockWhenUnpickled)
    concurrent.futures.wait([slow], PATIENCE)
    assert slow.done()
    asking = threading.Thread(target=slow.result, daemon=True)
    asking.start()
    assert BlockWhenUnpickled.begun.wait(PATIENCE)
    with pytest.raises(concurrent.futures.TimeoutError):
        slow.result(0.1)
    assert executor.submit(square, 6).result(PATIENCE) == 36
    BlockWhenUnpickled.goes_on.set()
    asking.join(PATIENCE)
    assert slow.result(PATIENCE) is None


def test_a_callback_that_exits_ends_nothing_else(executor, tmp_path):
    # A callback that is added to a future which is done already runs in the caller, as everywhere: the calls
    # wait until every callback is in its place.
    gate = Gate(tmp_path)
    futures = [executor.submit(gate.come, number) for number in range(20)]
    called = []
    for number, future in enumerate(futures):
        future.add_done_callback(lambda _, number=number: (called.append(number), sys.exit(1)))
    gate.open()
    assert [future.result(PATIENCE) for future in futures] == list(range(20))
    assert executor.submit(square, 5).result(PATIENCE) == 25
    assert sorted(called) == list(range(20))


def test_a_call_that_closes_what_is_not_its_own_is_heard_of():
    with loxley.Executor(1) as executor:
        with pytest.raises(loxley.WorkerLost):
            executor.submit(os.closerange, 3, 1024).result(PATIENCE)
        assert executor.submit(square, 3).result(PATIENCE) == 9


def leave_alone(executor, results):
    """In a process that was forked: what belongs to the other one is not touched."""
    executor.shutdown(cancel_futures=True)
    executor.kill_workers()
    del results
    with pytest.raises(RuntimeError, match="forked"):
        executor.submit(square, 2)
    os._exit(0 if not list(_process_pool._LIVING) else 1)


def test_a_process_that_was_forked_leaves_the_pools_of_the_other_one_alone(tmp_path):
    gate = Gate(tmp_path)
    with loxley.Executor(1) as executor:
        results = executor.map(gate.come, range(3), chunksize=1)
        gate.wait_for(1)
        process = multiprocessing.get_context("fork").Process(target=leave_alone, args=(executor, results))
        process.start()
        process.join(PATIENCE)
        gate.open()
        assert process.exitcode == 0 and list(results) == [0, 1, 2]


def test_a_process_that_left_a_child_behind_is_known_to_be_gone(tmp_path):
    def leave(path):
        if child := os.fork():
            path.write_text(str(child))
            os._exit(3)
        time.sleep(2 * PATIENCE)

    with loxley.Executor(1) as executor:
        path = tmp_path / "child"
        try:
            with pytest.raises(loxley.WorkerLost, match="exit code 3"):
                executor.submit(leave, path).result(PATIENCE)
            assert executor.submit(square, 3).result(PATIENCE) == 9
        finally:
            os.kill(int(path.read_text()), signal.SIGKILL)


def test_a_map_does_not_keep_its_results():
    class Thing:
        pass

    with loxley.Executor(1) as executor:
        for chunksize in (1, 7, None):
            for thing in executor.map(lambda _: Thing(), range(20), chunksize=chunksize):
                seen = weakref.ref(thing)
                del thing
                assert seen() is None


def test_processes_start_when_calls_need_them():
    with loxley.Executor(4) as executor:
        for number in range(5):
            assert executor.submit(square, number).result(PATIENCE) == number * number
        assert len(executor.process_ids()) == 1
        concurrent.futures.wait([executor.submit(time.sleep, 0.01) for _ in range(8)])
        assert len(executor.process_ids()) == 4


# What multiprocessing can hand over.


def remember(lock, queue, things, event):
    loxley.local.given = lock, queue, things, event


def use(number):
    lock, queue, things, event = loxley.local.given
    with lock:
        things.append(number)
    queue.put(number)
    event.set()


@pytest.mark.parametrize(
    "method, made_by",
    [(None, None), (None, "fork"), (None, "spawn"), ("fork", "fork"), ("forkserver", "forkserver"), ("spawn", "spawn")],
)
def test_locks_queues_and_proxies_can_be_given_to_an_initializer(method, made_by):
    # Without a name it is what `multiprocessing.Lock()` is made by.
    context = multiprocessing.get_context(made_by)
    lock, queue = context.Lock(), context.Queue()
    with context.Manager() as manager:
        things, event = manager.list(), manager.Event()
        with loxley.Executor(
            2,
            mp_context=method and context,
            initializer=remember,
            initargs=(lock, queue, things, event),
        ) as executor:
            list(executor.map(use, range(6), chunksize=1))
            # A proxy may also be an argument.
            executor.submit(things.append, 6).result(PATIENCE)
            assert len(executor.process_ids()) <= 2
        assert sorted(things) == list(range(7)) and event.is_set()
        assert sorted(queue.get(timeout=PATIENCE) for _ in range(6)) == list(range(6))


def test_an_initializer_may_travel_by_value_with_what_it_needs():
    queue = multiprocessing.get_context("spawn").Queue()
    offset = 3
    with loxley.Executor(1, initializer=lambda into: into.put(offset), initargs=(queue,)) as executor:
        executor.submit(square, 1).result(PATIENCE)
    assert queue.get(timeout=PATIENCE) == 3


def test_shared_memory_of_the_caller_is_there_after_the_pool(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import loxley, numpy\n"
        "from multiprocessing import shared_memory\n"
        "def total(name):\n"
        "    memory = shared_memory.SharedMemory(name)\n"
        "    array = numpy.ndarray((1000,), dtype='i8', buffer=memory.buf)\n"
        "    found = int(array.sum())\n"
        "    del array\n"
        "    memory.close()\n"
        "    return found\n"
        "memory = shared_memory.SharedMemory(create=True, size=8000)\n"
        "numpy.ndarray((1000,), dtype='i8', buffer=memory.buf)[:] = 2\n"
        "with loxley.Executor(2) as executor:\n"
        "    print(list(executor.map(total, [memory.name] * 4, chunksize=1)))\n"
        "again = shared_memory.SharedMemory(memory.name)\n"
        "print(again.size >= 8000)\n"
        "again.close()\n"
        "memory.close()\n"
        "memory.unlink()\n"
    )
    told = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=PATIENCE)
    assert told.stdout == "[2000, 2000, 2000, 2000]\nTrue\n", told.stderr


# Large things.


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def grow(array):
    array += 1
    return array


def freeze(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def test_large_arrays_travel_by_memory_that_is_the_receivers_own(executor):
    array = numpy.arange(1 << 20, dtype="f8").reshape(1024, 1024)
    before = array.copy()
    result = executor.submit(grow, array).result(PATIENCE)
    assert (result == before + 1).all() and (array == before).all()
    result[0, 0] = 7
    assert result.flags.writeable and result.flags.aligned
    many = list(executor.map(grow, [array, array.copy(), array.copy()], chunksize=2))
    assert all((other == before + 1).all() for other in many)
    many[0][:] = 0
    assert (many[1] == before + 1).all()
    # Also if the sender's must not be changed: large and small, there and back.
    for frozen in (before.copy(), before[0].copy()):
        frozen.flags.writeable = False
        assert (executor.submit(grow, frozen).result(PATIENCE) == frozen + 1).all()
        assert executor.submit(freeze, frozen).result(PATIENCE).flags.writeable
        assert list(executor.map(freeze, [frozen]))[0].flags.writeable
    slices = executor.submit(lambda given: given.sum(), array[::2, ::3])
    assert slices.result(PATIENCE) == array[::2, ::3].sum()


def test_descriptors_and_memory_are_given_back(executor):
    def mapped():
        with open("/proc/self/smaps_rollup") as file:
            return int([line for line in file if line.startswith("Pss_Shmem")][0].split()[1])

    array = numpy.ones(1 << 19)
    # As many as two processes can do at once: one that starts later would bring descriptors of its own.
    list(executor.map(grow, [array] * 20, chunksize=1))
    gc.collect()
    before, there = descriptors(), executor.submit(descriptors).result(PATIENCE)
    for _ in range(20):
        executor.submit(grow, array).result(PATIENCE)
    list(executor.map(grow, [array] * 20, chunksize=1))
    gc.collect()
    assert descriptors() <= before + 2
    assert executor.submit(descriptors).result(PATIENCE) <= there + 2
    assert executor.submit(mapped).result(PATIENCE) < 20_000


def test_more_large_calls_may_wait_than_there_are_descriptors():
    array = numpy.ones(40_000)
    with loxley.Executor(2) as executor:
        futures = [executor.submit(numpy.sum, array * number) for number in range(600)]
        assert descriptors() < 400
        assert [future.result(PATIENCE) for future in futures] == [40_000 * n for n in range(600)]


def test_long_pickles_travel_by_memory_too(executor):
    blob = os.urandom(1 << 20) * 8
    assert executor.submit(bytes.upper, blob).result(PATIENCE) == blob.upper()
    assert list(executor.map(len, [blob, blob[:-1]], chunksize=1)) == [len(blob), len(blob) - 1]


def test_a_result_is_let_go_with_its_future(executor):
    future = executor.submit(Deep, 0)
    seen = weakref.ref(future.result())
    del future
    wait_until(lambda: seen() is None)


def test_what_is_too_deep_to_be_packed_is_called_as_pickle_calls_it(executor):
    for future in (executor.submit(type, Deep(2000)), executor.submit(Deep, 2000)):
        assert isinstance(future.exception(PATIENCE), RecursionError)
    assert executor.submit(square, 3).result(PATIENCE) == 9
