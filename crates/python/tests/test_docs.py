"""The examples in the documentation run."""

import doctest
import importlib
import pkgutil

import loxley
import pytest


def documented():
    """Every object of the package that has an example, those written in Rust included."""
    finder = doctest.DocTestFinder(recurse=True, exclude_empty=True)
    names = [module.name for module in pkgutil.iter_modules(loxley.__path__)]
    namespace = dict(vars(loxley))
    for name in names:
        module = importlib.import_module(f"loxley.{name}")
        namespace_here = {**namespace, **vars(module)}
        for key, value in sorted(vars(module).items()):
            home = getattr(value, "__module__", None) or ""
            if key.startswith("__") or not home.startswith("loxley"):
                continue
            if name != "_core" and home != module.__name__:
                continue
            for test in finder.find(value, f"{name}.{key}", module=False, globs=namespace_here):
                if test.examples:
                    yield test


TESTS = list(documented())


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.name)
def test_an_example(test):
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)


def test_there_are_examples():
    assert len(TESTS) >= 4
