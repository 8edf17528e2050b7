"""A server from Python. Most of this needs the `loxley` program with its server (see `servers.py`)."""

import asyncio
import concurrent.futures
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading
import time

import loxley
import pytest
from gates import PATIENCE, Gate, wait_until
from servers import NEEDS_SERVER, PROGRAM, Server

# They share a server: where tests run side by side, these stay together.
pytestmark = pytest.mark.xdist_group("client")


@loxley.task(skills=["arithmetic"], priority=4, retries=1)
def square(number):
    """Squares."""
    return number * number


def fail(message):
    raise LookupError(message)


def test_a_task_is_still_its_function():
    assert square(4) == 16 and square.__doc__ == "Squares."
    with pytest.raises(TypeError, match="collection"):
        loxley.task(skills="gpu")
    with pytest.raises(ValueError, match="between 1"):
        loxley.task(priority=9)


def test_without_a_server_it_is_said_where_it_was_looked_for(tmp_path):
    with pytest.raises(ConnectionError, match="nowhere.json"):
        loxley.Client(tmp_path / "nowhere.json")
    with pytest.raises(ConnectionError, match="nowhere.json"):
        loxley.Agent("a").serve(tmp_path / "nowhere.json")


@pytest.fixture(scope="module")
def access(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server"))
    yield server.access
    server.stop()


@pytest.fixture(scope="module")
def service(access):
    agent = loxley.Agent("ann", {"arithmetic", "python"})
    with agent.serve(access, functions={"double": lambda number: 2 * number}, processes=2) as it:
        yield it


@pytest.fixture
def client(access, service):
    with loxley.Client(access) as client:
        yield client


@pytest.fixture
def gate(tmp_path):
    """A gate that is open when the test is over, so that nobody waits at it for ever."""
    gate = Gate(tmp_path)
    yield gate
    gate.open()


@NEEDS_SERVER
def test_submit_map_and_gather(client):
    assert client.submit(pow, 2, 10).result(PATIENCE) == 1024
    assert client.submit(int, "ff", base=16).result(PATIENCE) == 255
    futures = client.map(square, range(50))
    assert client.gather(futures, timeout=PATIENCE) == [number * number for number in range(50)]
    offset = 3
    assert client.gather(client.map(lambda a, b: a * b + offset, [1, 2], [3, 4]), PATIENCE) == [6, 11]
    assert client.map(square, []) == []
    told = []
    client.gather(client.map(square, range(5), progress=lambda *far: told.append(far)), PATIENCE)
    wait_until(lambda: len(told) >= 5)
    assert told == [(number, 5) for number in range(1, 6)]
    assert client.submit("double", 21).result(PATIENCE) == 42


@NEEDS_SERVER
def test_as_completed_and_wait(client, gate):
    slow, fast = client.submit(gate.come), client.submit(pow, 1, 1)
    order = []
    for future in client.as_completed([slow, fast], PATIENCE):
        order.append(future)
        gate.open()
    assert order == [fast, slow]
    done, pending = client.wait([slow, fast])
    assert done == {slow, fast} and not pending


@NEEDS_SERVER
def test_exceptions_come_with_their_traceback(client):
    with pytest.raises(LookupError, match="no such thing") as caught:
        client.submit(fail, "no such thing").result(PATIENCE)
    assert "raise LookupError(message)" in str(caught.value.__cause__)
    with pytest.raises(loxley.WorkerLost):
        client.submit(os._exit, 3).result(PATIENCE)
    assert client.submit(square, 3).result(PATIENCE) == 9


@NEEDS_SERVER
def test_what_nobody_can_do_waits_and_says_why(client):
    future = client.options(skills=["alchemy"]).submit(pow, 1, 1)
    assert client.submit(pow, 2, 2).result(PATIENCE) == 4
    assert not future.done() and "alchemy" in future.explain()
    assert client.cancel([future]) == 1
    with pytest.raises(concurrent.futures.CancelledError):
        future.result(PATIENCE)


@NEEDS_SERVER
@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_a_task_that_is_stopped_ends_with_its_process(client, tmp_path, gate, how):
    path = tmp_path / "process"

    def work(path):
        path.write_text(str(os.getpid()))
        time.sleep(2 * PATIENCE)

    # Both processes are up, so that no time limit has to be long enough for that.
    both = [client.submit(gate.come), client.submit(gate.come)]
    gate.wait_for(2)
    gate.open()
    client.gather(both, PATIENCE)
    future = client.options(timeout=1.5 if how == "timeout" else None).submit(work, path)
    wait_until(lambda: path.exists() and path.read_text())
    if how == "cancel":
        assert future.cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            future.result(PATIENCE)
    else:
        with pytest.raises(loxley.TaskTimeout):
            future.result(PATIENCE)
    process = int(path.read_text())
    wait_until(lambda: not pathlib.Path(f"/proc/{process}").exists())
    assert client.gather(client.map(square, range(4)), PATIENCE) == [0, 1, 4, 9]


@NEEDS_SERVER
def test_asyncio(client):
    async def work():
        one = await client.submit(square, 5)
        return one, await client.gather_async(client.map(square, range(5)))

    assert asyncio.run(work()) == (25, [0, 1, 4, 9, 16])


@NEEDS_SERVER
def test_the_fleet_is_seen(client):
    (agent,) = client.agents()
    assert agent["name"] == "ann" and "arithmetic" in agent["capabilities"]
    assert client.server()["fleet"]["agent_count"] == 1
    assert "problems" in client.health()


@NEEDS_SERVER
def test_ctrl_c_ends_a_wait(access, service):
    script = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import loxley, sys, time\n"
            "client = loxley.Client(sys.argv[1])\n"
            "future = client.options(skills=['alchemy']).submit(pow, 1, 1)\n"
            "print('waits', flush=True)\n"
            "future.result()\n",
            str(access),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in the background does not hear it, nor would what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert script.stdout.readline() == "waits\n"
        time.sleep(0.2)
        script.send_signal(signal.SIGINT)
        _, err = script.communicate(timeout=PATIENCE)
    finally:
        script.kill()
    assert err.rstrip().endswith("KeyboardInterrupt")


@NEEDS_SERVER
def test_errors_have_the_words_of_the_program(tmp_path):
    config = tmp_path / "loxley.yaml"
    config.write_text("load_balancing:\n  thresholds:\n    buzy_threshold: 2\n")
    access = str(tmp_path / "nowhere.json")
    cases = [
        (["sim", "nothing"], lambda: loxley.simulate("nothing")),
        (["sim", "basic", "--policy", "x"], lambda: loxley.simulate("basic", policy="x")),
        (["job", "list", "--access", access], lambda: loxley.Client(access)),
    ]
    for command, call in cases:
        told = subprocess.run([PROGRAM, *command], capture_output=True, text=True)
        with pytest.raises((ValueError, ConnectionError)) as caught:
            call()
        assert str(caught.value) in told.stderr
    # The program draws the line of a mistake; an exception has its position instead.
    told = subprocess.run([PROGRAM, "config", "check", config], capture_output=True, text=True)
    with pytest.raises(ValueError) as caught:
        loxley.WorkStealingScheduler(config)
    for words in ("there is no key `buzy_threshold` here", "did you mean `busy_threshold`?"):
        assert words in str(caught.value) and words in told.stderr


def add(one, other):
    return one + other


@NEEDS_SERVER
def test_many_futures_take_no_thread_each_and_their_function_travels_once(client):
    blob = os.urandom(50_000)
    before = threading.active_count()
    futures = client.map(lambda number: (number, len(blob)), range(1200))
    assert threading.active_count() <= before + 1
    assert client.gather(futures, timeout=PATIENCE) == [(number, 50_000) for number in range(1200)]
    singles = [client.submit(square, number) for number in range(100)]
    assert threading.active_count() <= before + 1
    assert client.gather(singles, timeout=PATIENCE) == [number * number for number in range(100)]


@NEEDS_SERVER
def test_large_results_come_in_pieces_and_large_calls_are_refused_with_the_limit(client):
    def make(megabytes):
        return bytes([megabytes]) * (megabytes << 20)

    assert client.submit(make, 100).result(PATIENCE) == make(100)
    sizes = client.gather(client.map(make, [3, 4, 5, 9]), timeout=PATIENCE)
    assert [len(result) >> 20 for result in sizes] == [3, 4, 5, 9]
    # Items of any size up to the limit, in one map.
    blobs = [os.urandom(1 << shift) for shift in (4, 17, 20, 22)]
    assert client.gather(client.map(len, blobs), PATIENCE) == [len(blob) for blob in blobs]
    with pytest.raises(ValueError, match="too large for the server, which takes 8,388,608"):
        client.submit(len, os.urandom(9 << 20))
    # What is larger is made where it is used.
    assert client.submit(len, client.submit(make, 20)).result(PATIENCE) == 20 << 20


@NEEDS_SERVER
def test_futures_are_arguments_of_other_calls(client):
    one, two = client.submit(add, 1, 2), client.submit(add, 3, 4)
    total = client.submit(add, one, two)
    nested = client.submit(lambda things, key: things["list"][1] + key, {"list": [0, total]}, key=one)
    squares = client.map(square, range(20))
    summed = client.submit(sum, squares)
    chained = client.map(add, squares, squares)
    closed_over = client.submit(lambda: total)
    named = client.submit("double", total)
    assert total.result(PATIENCE) == 10 and nested.result(PATIENCE) == 13
    assert summed.result(PATIENCE) == sum(number * number for number in range(20))
    assert client.gather(chained, PATIENCE) == [2 * number * number for number in range(20)]
    assert named.result(PATIENCE) == 20 and closed_over.result(PATIENCE) == 10
    # Also on what is long over.
    assert client.submit(add, one, 1).result(PATIENCE) == 4


@NEEDS_SERVER
def test_a_call_waits_for_the_future_it_depends_on_and_fails_with_it(client, gate):
    slow = client.submit(gate.come, 5)
    after = client.submit(add, slow, 1)
    gate.wait_for(1)
    assert not after.done() and after.info()["state"] == "waiting"
    gate.open()
    assert after.result(PATIENCE) == 6
    bad = client.submit(fail, "no such thing")
    last = client.submit(add, client.submit(add, bad, 1), 1)
    with pytest.raises(LookupError, match="no such thing"):
        last.result(PATIENCE)
    # Its failure is known here: the call says so, and nothing is submitted.
    with pytest.raises(LookupError, match="no such thing"):
        client.submit(add, bad, 1).result(PATIENCE)


@NEEDS_SERVER
def test_a_future_far_down_a_large_map_can_be_an_argument(client):
    futures = client.map(square, range(1200))
    assert client.submit(add, futures[0], futures[1100]).result(PATIENCE) == 1100 * 1100
    client.gather(futures, PATIENCE)


@NEEDS_SERVER
def test_a_result_that_ends_whoever_unpickles_it_fails_its_own_call(client):
    class Bad:
        def __reduce__(self):
            return sys.exit, (3,)

    bad = client.submit(lambda: Bad())
    with pytest.raises(loxley.UnpackError):
        bad.result(PATIENCE)
    with pytest.raises(TypeError, match="cannot leave its process"):
        pickle.dumps(bad)
    assert client.submit(square, 3).result(PATIENCE) == 9


class Multiplier:
    def __init__(self, factor):
        self.factor = factor

    @loxley.task(retries=1)
    def times(self, number):
        """Multiplies."""
        return self.factor * number


def test_a_task_keeps_its_name_its_signature_and_its_pickling():
    import inspect

    assert (square.__name__, square.__module__) == ("square", __name__)
    assert str(inspect.signature(square)) == "(number)" and "square" in repr(square)
    assert pickle.loads(pickle.dumps(square)) is square
    assert Multiplier(3).times(4) == 12 and Multiplier.times.__doc__ == "Multiplies."
    assert str(inspect.signature(Multiplier.times)) == "(self, number)"
    with loxley.Executor(1) as executor:
        assert executor.submit(square, 5).result(PATIENCE) == 25
        assert executor.submit(Multiplier(2).times, 5).result(PATIENCE) == 10


@NEEDS_SERVER
def test_a_method_can_be_a_task(client):
    assert client.submit(Multiplier(3).times, 4).result(PATIENCE) == 12
