"""Ctrl-C, wherever a program may be waiting; and what is left of its processes."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from gates import PATIENCE, wait_until


def hear_ctrl_c():
    """Whoever runs the tests in the background does not hear it, nor would what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def start():
    """Starts scripts in sessions of their own, as from a shell. None outlives its test."""
    scripts = []

    def start_script(text):
        script = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(text)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=hear_ctrl_c,
        )
        scripts.append(script)
        return script

    yield start_script
    for script in scripts:
        script.kill()
        script.wait()


def is_there(process):
    try:
        stat = pathlib.Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # Gone before it was opened, or before it was read.
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_until_gone(processes):
    wait_until(lambda: not any(map(is_there, processes)))


BEGIN = """
    import asyncio, loxley, time
    def ready(executor):
        while not any(future.running() for future in futures):
            time.sleep(0.01)
        print(*executor.process_ids(), flush=True)
    futures = []
"""

WAITS = {
    "a result in a with block": """
    with loxley.Executor(2) as executor:
        futures += [executor.submit(time.sleep, 60) for _ in range(8)]
        ready(executor)
        futures[0].result()
    """,
    "a result without a with block": """
    executor = loxley.Executor(2)
    futures += [executor.submit(time.sleep, 60) for _ in range(8)]
    ready(executor)
    futures[0].result()
    """,
    "a map": """
    executor = loxley.Executor(2)
    futures.append(executor.submit(time.sleep, 60))
    ready(executor)
    for _ in executor.map(time.sleep, [60] * 8):
        pass
    """,
    "a shutdown": """
    executor = loxley.Executor(2)
    futures.append(executor.submit(time.sleep, 60))
    ready(executor)
    executor.shutdown()
    """,
    "the end of a with block": """
    with loxley.Executor(2) as executor:
        futures.append(executor.submit(time.sleep, 60))
        ready(executor)
    """,
    "asyncio": """
    async def main():
        with loxley.Executor(2) as executor:
            futures.append(executor.submit(time.sleep, 60))
            ready(executor)
            await asyncio.get_running_loop().run_in_executor(executor, time.sleep, 60)
    asyncio.run(main())
    """,
    "the end of the program": """
    executor = loxley.Executor(2)
    futures.append(executor.submit(time.sleep, 60))
    ready(executor)
    """,
}


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_ends_the_program_and_its_processes(start, wait):
    script = start(BEGIN + WAITS[wait])
    processes = [int(number) for number in script.stdout.readline().split()]
    assert processes, script.communicate()[1]
    time.sleep(0.3)
    os.killpg(script.pid, signal.SIGINT)
    _, err = script.communicate(timeout=PATIENCE)
    assert "KeyboardInterrupt" in err and err.count("Traceback") <= 2, err
    wait_until_gone(processes)


def test_ctrl_c_ends_a_simulation(start):
    script = start(
        """
        from loxley import simulation
        print("runs", flush=True)
        simulation.compare("bursty", ["pull", "push"], seeds=range(1_000_000))
        """
    )
    assert script.stdout.readline() == "runs\n"
    time.sleep(0.3)
    script.send_signal(signal.SIGINT)
    _, err = script.communicate(timeout=PATIENCE)
    assert err.rstrip().endswith("KeyboardInterrupt"), err


def test_what_is_pending_is_done_before_the_interpreter_ends(start):
    script = start(
        """
        import loxley, time
        executor = loxley.Executor(1)
        for number in range(3):
            executor.submit(lambda n: (time.sleep(0.1), print("did", n, flush=True)), number)
        """
    )
    assert script.communicate(timeout=PATIENCE) == ("did 0\ndid 1\ndid 2\n", "")


@pytest.mark.parametrize("method", ["fresh", "fork", "forkserver", "spawn"])
def test_processes_end_with_their_parent(start, method):
    script = start(
        f"""
        import loxley, multiprocessing, os, time
        context = None if {method!r} == "fresh" else multiprocessing.get_context({method!r})
        executor = loxley.Executor(2, context)
        executor.submit(time.sleep, 600)
        executor.submit(pow, 1, 1).result()
        # Nor does it matter that somebody else was forked meanwhile.
        child = os.fork()
        if child == 0:
            os.closerange(0, 3)
            time.sleep(600)
        print(child, *executor.process_ids(), flush=True)
        time.sleep(600)
        """
    )
    child, *processes = [int(number) for number in script.stdout.readline().split()]
    try:
        script.kill()
        script.wait()
        assert processes
        wait_until_gone(processes)
    finally:
        os.kill(child, signal.SIGKILL)
