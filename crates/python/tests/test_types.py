"""The types say what fits and what does not, to `mypy --strict` and to `pyright`."""

import json
import pathlib
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent


def mypy(path):
    """The lines that it refuses."""
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--output=json", path.name]
    told = subprocess.run(command, cwd=path.parent, capture_output=True, text=True)
    found = [json.loads(line) for line in told.stdout.splitlines() if line.startswith("{")]
    assert told.returncode in (0, 1) and not told.stderr.strip(), told.stderr
    return {line["line"]: line["message"] for line in found if line["severity"] == "error"}


def pyright(path):
    """The lines that it refuses."""
    program = shutil.which("pyright", path=str(pathlib.Path(sys.executable).parent))
    if program is None:
        pytest.skip("pyright is not installed")
    command = [program, "--outputjson", "--pythonpath", sys.executable, path.name]
    told = subprocess.run(command, cwd=path.parent, capture_output=True, text=True)
    if not told.stdout.startswith("{"):
        # It fetches itself from a registry when it runs for the first time.
        pytest.skip(f"pyright does not run here: {told.stderr[-300:]}")
    found = json.loads(told.stdout)["generalDiagnostics"]
    # It counts lines from 0.
    errors = [each for each in found if each["severity"] == "error"]
    return {each["range"]["start"]["line"] + 1: each["message"] for each in errors}


def test_the_package_itself_is_typed():
    pytest.importorskip("mypy")
    folder = HERE.parent
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "python/loxley"]
    told = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_program_that_is_right_is_accepted(checker):
    assert checker(HERE / "typed_program.py") == {}


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_every_misuse_is_refused_and_nothing_else(checker):
    path = HERE / "typed_misuses.py"
    lines = path.read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    refused = checker(path)
    assert {lines[number - 1] for number in wrong - set(refused)} == set(), "accepted"
    assert {number: refused[number] for number in set(refused) - wrong} == {}, "refused"
