"""Runs CPython's own tests of process pools with `loxley.Executor` in the place of `ProcessPoolExecutor`.

    python cpython_suite.py FOLDER METHOD [TEST …]

FOLDER holds CPython's package `test`; METHOD is a start method of multiprocessing, or `fresh` for the
executor's own; TESTs are names as they are printed, all when there are none. Prints a JSON object: how each
test ended (`passed`, `skipped`, or what went wrong).
"""

import concurrent.futures
import faulthandler
import json
import os
import sys
import unittest

import loxley

#: The classes of the suite that are about process pools, without what their names begin with.
KINDS = (
    "Initializer", "FailingInitializer", "ProcessPoolShutdown", "Wait", "AsCompleted",
    "ProcessPoolExecutor", "ExecutorDeadlock",
)  # fmt: skip


class ProcessPoolExecutor(loxley.Executor):
    """By the name under which the suite and the programs in it look for it."""


#: A run takes about one minute, most of which it sleeps. One that hangs says where, and ends.
SECONDS_MAX = 400


def main(folder, method, *names):
    faulthandler.dump_traceback_later(SECONDS_MAX, exit=True)
    # Programs of the suite run isolated: what they import is said in their first lines.
    begin = (
        f"import sys; sys.path[:0] = {[folder, *sys.path]!r}\n"
        "import concurrent.futures, loxley\n"
        "class ProcessPoolExecutor(loxley.Executor): pass\n"
        "concurrent.futures.ProcessPoolExecutor = ProcessPoolExecutor\n"
    )
    sys.path.insert(0, folder)
    for name in [name for name in sys.modules if name.split(".")[0] == "test"]:
        del sys.modules[name]
    concurrent.futures.ProcessPoolExecutor = ProcessPoolExecutor
    from test import test_concurrent_futures as suite

    plain = suite.assert_python_ok
    suite.assert_python_ok = lambda flag, code: plain(flag, begin + code)
    is_fresh = method == "fresh"
    prefix = {"fork": "Fork", "forkserver": "Forkserver"}.get(method, "Spawn")
    results = {}
    for kind in KINDS:
        case = getattr(suite, f"ProcessPool{prefix}{kind}Test")
        if is_fresh:
            case = type(case.__name__, (case,), {"get_context": fresh_context})
        tests = unittest.defaultTestLoader.loadTestsFromTestCase(case)
        wanted = [test for test in tests if not names or f"{kind}.{test._testMethodName}" in names]
        unittest.TestSuite(wanted).run(Outcome(kind, results))
    # The suite itself prints now and then, without an end of line.
    print("\n" + json.dumps(results))
    sys.stdout.flush()
    os._exit(0)


def fresh_context(_test):
    from loxley._processes import FreshContext

    return FreshContext()


class Outcome(unittest.TestResult):
    def __init__(self, kind, results):
        super().__init__()
        self._kind, self._results = kind, results

    def _note(self, test, how):
        name = f"{self._kind}.{test._testMethodName}"
        # The first thing that went wrong counts.
        if self._results.get(name) in (None, "passed"):
            self._results[name] = how

    def addSuccess(self, test):
        self._note(test, "passed")

    def addSkip(self, test, reason):
        self._note(test, "skipped")

    def addFailure(self, test, error):
        self._note(test, self._exc_info_to_string(error, test))

    addError = addFailure


if __name__ == "__main__":
    main(*sys.argv[1:])
