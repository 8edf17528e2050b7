"""CPython's own tests of process pools, with `loxley.Executor` in place of `ProcessPoolExecutor`.

They come with the interpreter or from the folder in `LOXLEY_CPYTHON_TESTS`. What does not pass must be in
the list of deliberate differences below, and the guide must give the reason. Some of them look at a clock (a
first result within five seconds, processes included): one that fails beside all the others is tried again alone."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

import pytest

# They share one run of the suite: where tests run side by side, these stay together.
pytestmark = pytest.mark.xdist_group("cpython")

METHODS = ("fresh", "fork", "forkserver", "spawn")

#: What is meant to be different, by the words with which the guide says why.
DIFFERENT = {
    "ProcessPoolExecutor.test_killed_child": "`test_killed_child`",
    "ProcessPoolShutdown.test_del_shutdown": "`test_del_shutdown`",
    "ProcessPoolShutdown.test_shutdown_no_wait": "`test_shutdown_no_wait`",
}
#: What passes or not depending on whether a process is up before it is cancelled.
BY_CHANCE = {"ProcessPoolShutdown.test_cancel_futures": "`test_cancel_futures`"}

GUIDE = pathlib.Path(__file__).parents[3] / "docs/guide/python.md"


def folder():
    given = os.environ.get("LOXLEY_CPYTHON_TESTS")
    if given:
        return given
    try:
        found = importlib.util.find_spec("test.test_concurrent_futures")
    except ImportError:
        found = None
    if found is None or found.origin is None or not found.origin.endswith("futures.py"):
        return None
    return str(pathlib.Path(found.origin).parents[1])


class Run:
    """A run of the suite, or of some tests of it."""

    def __init__(self, method, *names):
        runner = pathlib.Path(__file__).with_name("cpython_suite.py")
        command = [sys.executable, str(runner), folder(), method, *names]
        # Files and no pipes: a process that a test left behind would keep those open.
        self._out, self._err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdout=self._out, stderr=self._err, text=True)

    def outcome(self):
        """How each test ended; nothing, and a warning, if the run did not come to its end."""
        try:
            self.process.wait(900)
        finally:
            self.process.kill()
        self._out.seek(0)
        self._err.seek(0)
        if self.process.returncode != 0:
            warnings.warn(f"a run ended with {self.process.returncode}:\n{self._err.read()}")
            return None
        return json.loads(self._out.read().splitlines()[-1])


def unmeant(ended):
    """What went wrong and should not have."""
    meant = {**DIFFERENT, **BY_CHANCE}
    return {name: how for name, how in ended.items() if how not in ("passed", "skipped") and name not in meant}


@pytest.fixture(scope="module")
def outcomes():
    """All start methods side by side: most of the suite is waiting."""
    if folder() is None:
        pytest.skip("CPython's test_concurrent_futures is not here: LOXLEY_CPYTHON_TESTS names no folder")
    runs = {method: Run(method) for method in METHODS}
    try:
        return {method: run.outcome() for method, run in runs.items()}
    finally:
        for run in runs.values():
            run.process.kill()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("method", METHODS)
def test_what_does_not_pass_is_meant_to_be_different(outcomes, method):
    ended = outcomes[method] or Run(method).outcome()
    assert ended is not None and len(ended) > 50
    for _ in range(3):
        for name in unmeant(ended):
            ended.update(Run(method, name).outcome() or {})
    wrong = unmeant(ended)
    assert not wrong, "\n".join(f"{name}: {how}" for name, how in wrong.items())
    assert not [name for name in DIFFERENT if ended[name] == "passed"], "no longer different"


def test_the_guide_says_why():
    if not GUIDE.exists():
        pytest.skip("the guide is not here")
    text = GUIDE.read_text()
    assert not [words for words in {**DIFFERENT, **BY_CHANCE}.values() if words not in text]
