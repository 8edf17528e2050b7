"""The examples in the documentation run."""

import ast
import doctest
import importlib
import pathlib
import pkgutil
import re

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


def guide_blocks():
    guide = pathlib.Path(__file__).parents[3] / "docs/guide/python.md"
    return re.findall(r"```python\n(.*?)```", guide.read_text(), re.DOTALL)


@pytest.mark.parametrize("block", guide_blocks(), ids=lambda block: block.split("\n")[0][:40])
def test_code_in_the_guide_is_code_and_names_what_there_is(block):
    tree = ast.parse(block, feature_version=(3, 9))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("loxley"):
            module = importlib.import_module(node.module)
            for name in node.names:
                assert hasattr(module, name.name), name.name
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "loxley":
                assert hasattr(loxley, node.attr), node.attr
