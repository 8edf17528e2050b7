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


@pytest.mark.parametrize("method", ["fresh", "fork", "forkserver", "spawn"])
def test_what_is_changed_in_place_stays_changed(run, method):
    program = """
        import collections, multiprocessing, sys, loxley

        state, counts, SIZE = {}, collections.Counter(), [1]

        class Config:
            path, options, size = None, {}, 1

        class Plain:
            pass

        plain = Plain()

        def prepare(path):
            state["path"] = Config.path = Config.options["path"] = plain.path = path

        def paths():
            return state["path"], Config.path, Config.options["path"], plain.path

        def count(name):
            counts[name] += 1
            return counts[name]

        def count_too(name):
            return count(name)

        def sizes():
            return SIZE[0], Config.size

        def main():
            method = sys.argv[1]
            context = None if method == "fresh" else multiprocessing.get_context(method)
            with loxley.Executor(1, context, initializer=prepare, initargs=("p",)) as executor:
                print(*executor.submit(paths).result(), executor.submit(sizes).result())
                print(*(executor.submit(f, "a").result() for f in (count, count_too, count, count_too)))
                # What the caller changes counts, as ever.
                SIZE[0] = Config.size = 2
                print(executor.submit(sizes).result(), *executor.submit(paths).result())
            print(state, Config.path, dict(counts))

        if __name__ == "__main__":
            main()
    """
    told = " ".join(run(program, method))
    assert told == "p p p p (1, 1) 1 2 3 4 (2, 2) p p p p {} None {}"


def test_a_value_that_holds_a_function_is_never_taken_for_the_one_before(run):
    program = """
        import loxley

        def old():
            return "old"

        handlers = {"it": old}

        def handle():
            return handlers["it"]()

        def both():
            return handlers["it"]() + old()

        with loxley.Executor(1) as executor:
            print(executor.submit(handle).result(), executor.submit(both).result())
            exec("def old(): return 'new'")
            handlers["it"] = old
            print(executor.submit(handle).result(), executor.submit(both).result())
    """
    assert run(program) == ["old", "oldold", "new", "newnew"]


def test_what_is_read_inside_itself_is_compared_when_it_is_whole(run):
    program = """
        import loxley

        class Member:
            everybody = []

        def meet(members):
            return len(members), len(Member.everybody)

        with loxley.Executor(1) as executor:
            for number in range(3):
                Member.everybody.append(Member())
                print(*executor.submit(meet, Member.everybody).result())
    """
    assert run(program) == ["1", "1", "2", "2", "3", "3"]


def test_cached_functions_and_properties_travel(run):
    program = """
        import functools, loxley

        @functools.lru_cache(maxsize=None)
        def fibonacci(number):
            return number if number < 2 else fibonacci(number - 1) + fibonacci(number - 2)

        class Circle:
            @functools.cached_property
            def area(self):
                return 3

            @functools.lru_cache(maxsize=5)
            def scaled(self, factor):
                return factor * self.area

        def indirectly(number):
            return fibonacci(number), fibonacci.cache_parameters()["maxsize"]

        def area(circle):
            return circle.area

        with loxley.Executor(1) as executor:
            print(executor.submit(fibonacci, 90).result(), *executor.submit(indirectly, 80).result())
            print(executor.submit(area, Circle()).result(), executor.submit(Circle().scaled, 2).result())
    """
    assert run(program) == ["2880067194370816120", "23416728348467685", "None", "3", "6"]


def test_what_only_has_a_name_is_had_in_each_process(run):
    program = """
        import functools, loxley, threading

        class Missing:
            def __reduce__(self):
                return "MISSING"

        MISSING = Missing()
        lock = threading.Lock()
        ready = False

        def is_missing(value):
            return value is MISSING

        @functools.singledispatch
        def kind(value):
            return "object"

        @kind.register
        def _(value: int):
            return "number"

        def prepare():
            global ready
            with lock:
                ready = True

        def kinds(*values):
            return [kind(value) for value in values] + [ready]

        if __name__ == "__main__":
            with loxley.Executor(1, initializer=prepare) as executor:
                print(executor.submit(is_missing, MISSING).result(), executor.submit(is_missing, 0).result())
                print(executor.submit(kind, 1).result(), *executor.submit(kinds, 1, "a").result())
    """
    assert run(program) == ["True", "False", "number", "number", "object", "True"]


def test_an_open_file_is_refused_and_not_copied(run):
    program = """
        import sys, loxley

        def tell(file=sys.stdout):
            print("told", file=file, flush=True)

        with open(__file__) as file, loxley.Executor(1) as executor:
            executor.submit(tell).result()
            for error in (executor.submit(len, file).exception(), executor.submit(lambda: open(__file__)).exception()):
                print(type(error).__name__)
    """
    assert run(program) == ["told", "TypeError", "TypeError"]
