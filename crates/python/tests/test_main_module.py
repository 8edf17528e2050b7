"""Programs whose functions are in their main module, which travel by value: what is global there is global in a process
of the pool, as it is with `ProcessPoolExecutor`."""

import subprocess
import sys
import textwrap

import pytest
from gates import PATIENCE


@pytest.fixture
def run(tmp_path):
    """Runs a program; what it printed."""

    def run(program, *arguments):
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(program))
        command = [sys.executable, str(path), *arguments]
        told = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert told.returncode == 0, told.stderr
        return told.stdout.split()

    return run


@pytest.mark.parametrize("method", ["fresh", "fork", "forkserver", "spawn"])
def test_what_an_initializer_sets_is_seen_by_calls(run, method):
    program = """
        import multiprocessing, sys, loxley

        DATABASE, SIZE = None, 1

        def connect(name):
            global DATABASE
            DATABASE = {"name": name}

        def size(number):
            return SIZE * number

        def query(number):
            return f"{DATABASE['name']}:{size(number)}"

        def main():
            global SIZE
            SIZE = 10
            method = sys.argv[1]
            context = None if method == "fresh" else multiprocessing.get_context(method)
            with loxley.Executor(2, context, initializer=connect, initargs=("rows",)) as executor:
                print(*executor.map(query, range(3)), executor.submit(query, 4).result())
                # As it is now, though the processes have begun before.
                SIZE = 100
                print(executor.submit(query, 5).result(), executor.submit(lambda: DATABASE["name"]).result())

        if __name__ == "__main__":
            main()
    """
    assert run(program, method) == ["rows:0", "rows:10", "rows:20", "rows:40", "rows:500", "rows"]


def test_what_a_call_sets_is_seen_by_other_functions_in_its_process(run):
    program = """
        import loxley

        model = None

        def load():
            global model
            if model is None:
                model = ["loaded", 0]
            model[1] += 1
            return model[1]

        def one(_):
            return load()

        def other(_):
            return load()

        class Holder:
            def method(self):
                return load()

        def apply(function):
            return function(0)

        with loxley.Executor(1) as executor:
            print(*executor.map(one, range(2), chunksize=1), executor.submit(other, 0).result())
            print(executor.submit(Holder().method).result(), executor.submit(lambda: load()).result())
            print(executor.submit(apply, one).result(), model)
    """
    assert run(program) == ["1", "2", "3", "4", "5", "6", "None"]


def test_a_call_sees_the_globals_as_they_were_when_it_was_submitted(run):
    program = """
        import loxley, os, time

        K = 1

        def plus(number):
            return K + number

        def held(path):
            while not os.path.exists(path):
                time.sleep(0.005)

        path = __file__ + ".open"
        with loxley.Executor(1) as executor:
            executor.submit(plus, 0).result()
            blocker = executor.submit(held, path)
            futures = []
            for K in range(1, 5):
                # The later ones overtake the earlier ones, and of each there are several.
                urgent = executor.options(priority=K)
                futures += [urgent.submit(plus, number) for number in (0, 10)]
            open(path, "w").close()
            print(*(future.result() for future in futures))
    """
    assert run(program) == ["1", "11", "2", "12", "3", "13", "4", "14"]


def test_globals_that_cannot_travel_are_had_in_each_process(run):
    program = """
        import contextvars, loxley, sqlite3, tempfile, threading

        lock = threading.Lock()
        depth = contextvars.ContextVar("depth", default=3)
        database = sqlite3.connect(":memory:", check_same_thread=False)
        log = tempfile.TemporaryFile()
        given = None

        def locked(number):
            with lock:
                return number + depth.get()

        def asked(number):
            log.write(b"asked")
            return database.execute("select 2 * ?", [number]).fetchone()[0]

        class Row:
            def __init__(self, number):
                self.number = number

        def is_row(row):
            with lock:
                return isinstance(row, Row) and row.number

        if __name__ == "__main__":
            with loxley.Executor(2) as executor:
                print(*executor.map(locked, range(2)), executor.submit(asked, 4).result())
                print(executor.submit(is_row, Row(5)).result())
                try:
                    executor.submit(lambda: given).result()
                    given = threading.Lock()
                    executor.submit(len, given).result()
                except TypeError:
                    print("refused")
    """
    assert run(program) == ["3", "4", "8", "5", "refused"]


def test_a_main_module_that_would_start_again_is_told_what_it_lacks(run):
    program = """
        import loxley, threading

        lock = threading.Lock()

        def locked(number):
            with lock:
                return number

        with loxley.Executor(1) as executor:
            try:
                print(executor.submit(locked, 1).result())
            except loxley.UnpackError as error:
                print("lacks" if "if __name__ ==" in str(error) else error)
    """
    assert run(program) == ["lacks"]


def test_objects_of_classes_with_slots_travel_both_ways(run):
    program = """
        import dataclasses, sys, typing, loxley

        class Slotted:
            __slots__ = ("one", "__weakref__")

        class Hidden:
            __slots__ = ("__two",)

            def __init__(self):
                self.__two = 2

            def two(self):
                return self.__two

        class Named(typing.NamedTuple):
            three: int

        slotted = {"slots": True} if sys.version_info >= (3, 10) else {}

        @dataclasses.dataclass(**slotted)
        class Data:
            four: int

        def same(value):
            return value

        one = Slotted()
        one.one = 1
        with loxley.Executor(1) as executor:
            back = list(executor.map(same, [one, Hidden(), Named(3), Data(4)]))
            print(back[0].one, back[1].two(), back[2].three, back[3].four, type(back[3]) is Data)
    """
    assert run(program) == ["1", "2", "3", "4", "True"]


def test_a_call_may_use_multiprocessing_itself(run):
    program = """
        import loxley, multiprocessing

        def double(number):
            return 2 * number

        def inside(count):
            with multiprocessing.get_context("fork").Pool(1) as pool:
                return sum(pool.map(double, range(count)))

        with loxley.Executor(1) as executor:
            print(executor.submit(inside, 4).result())
    """
    assert run(program) == ["12"]


def test_what_is_defined_in_no_module_at_all_comes_back(run):
    program = """
        import loxley

        space = {"__name__": "__main__"}
        exec("class Row:\\n    pass\\ndef make():\\n    return Row()\\nclass Bad(Exception):\\n    pass\\n"
             "def fail():\\n    raise Bad(3)\\n", space)
        with loxley.Executor(1) as executor:
            print(type(executor.submit(space["make"]).result()) is space["Row"])
            print(type(executor.submit(space["fail"]).exception()) is space["Bad"])
    """
    assert run(program) == ["True", "True"]


def test_globals_of_functions_that_nobody_calls_any_more_are_forgotten(run):
    program = """
        import gc, loxley

        class Counted:
            pass

        kept = None

        def use():
            return kept is not None

        def there():
            gc.collect()
            return sum(type(value).__name__ == "Counted" for value in gc.get_objects())

        with loxley.Executor(1) as executor:
            for number in range(200):
                kept = Counted()
                kept.number = number
                assert executor.submit(use).result()
            print(executor.submit(there).result() <= 70, executor.submit(use).result())
    """
    assert run(program) == ["True", "True"]
