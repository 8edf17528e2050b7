"""A server from Python. Most of this needs the `loxley` program with its server: its path is in
`LOXLEY_PROGRAM`; without that these tests are skipped."""

import asyncio
import concurrent.futures
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import loxley
import pytest

PROGRAM = os.environ.get("LOXLEY_PROGRAM")
NEEDS_SERVER = pytest.mark.skipif(not PROGRAM, reason="LOXLEY_PROGRAM names no program")


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
    folder = tmp_path_factory.mktemp("server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = open(folder / "log", "w")
    server = subprocess.Popen(
        [PROGRAM, "server", "start", "--dir", str(folder), "--listen", f"127.0.0.1:{port}"],
        stdout=log,
        stderr=log,
    )
    path = pathlib.Path(folder) / "access.json"
    end = time.monotonic() + 30
    while not path.exists():
        assert server.poll() is None and time.monotonic() < end, (folder / "log").read_text()
        time.sleep(0.05)
    time.sleep(0.3)
    yield path
    server.send_signal(signal.SIGINT)
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        server.kill()


@pytest.fixture(scope="module")
def service(access):
    agent = loxley.Agent("ann", {"arithmetic", "python"})
    with agent.serve(access, functions={"double": lambda number: 2 * number}, processes=2) as it:
        yield it


@pytest.fixture
def client(access, service):
    with loxley.Client(access) as client:
        yield client


@NEEDS_SERVER
def test_submit_map_and_gather(client):
    assert client.submit(pow, 2, 10).result(30) == 1024
    assert client.submit(int, "ff", base=16).result(30) == 255
    futures = client.map(square, range(50))
    assert client.gather(futures, timeout=60) == [number * number for number in range(50)]
    offset = 3
    assert client.gather(client.map(lambda a, b: a * b + offset, [1, 2], [3, 4]), 30) == [6, 11]
    assert client.map(square, []) == []
    told = []
    client.gather(client.map(square, range(5), progress=lambda *far: told.append(far)), 30)
    end = time.monotonic() + 10
    while len(told) < 5 and time.monotonic() < end:
        time.sleep(0.01)
    assert told == [(number, 5) for number in range(1, 6)]
    assert client.submit("double", 21).result(30) == 42


@NEEDS_SERVER
def test_as_completed_and_wait(client):
    slow = client.submit(time.sleep, 1.0)
    fast = client.submit(time.sleep, 0.0)
    assert [future is fast for future in client.as_completed([slow, fast], 30)] == [True, False]
    done, pending = client.wait([slow, fast])
    assert done == {slow, fast} and not pending


@NEEDS_SERVER
def test_exceptions_come_with_their_traceback(client):
    with pytest.raises(LookupError, match="no such thing") as caught:
        client.submit(fail, "no such thing").result(30)
    assert "raise LookupError(message)" in str(caught.value.__cause__)
    with pytest.raises(loxley.WorkerLost):
        client.submit(os._exit, 3).result(30)
    assert client.submit(square, 3).result(30) == 9


@NEEDS_SERVER
def test_what_nobody_can_do_waits_and_says_why(client):
    future = client.options(skills=["alchemy"]).submit(pow, 1, 1)
    time.sleep(0.3)
    assert not future.done() and "alchemy" in future.explain()
    assert client.cancel([future]) == 1
    with pytest.raises(concurrent.futures.CancelledError):
        future.result(30)


@NEEDS_SERVER
@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_a_task_that_is_stopped_ends_with_its_process(client, tmp_path, how):
    path = tmp_path / "process"

    def work(path):
        path.write_text(str(os.getpid()))
        time.sleep(60)

    future = client.options(timeout=2.0 if how == "timeout" else None).submit(work, path)
    end = time.monotonic() + 30
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < end
        time.sleep(0.02)
    if how == "cancel":
        assert future.cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            future.result(20)
    else:
        with pytest.raises(loxley.TaskTimeout):
            future.result(20)
    process = int(path.read_text())
    while pathlib.Path(f"/proc/{process}").exists():
        assert time.monotonic() < end, "the process still works for nobody"
        time.sleep(0.02)
    assert client.gather(client.map(square, range(4)), 30) == [0, 1, 4, 9]


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
        _, err = script.communicate(timeout=20)
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
