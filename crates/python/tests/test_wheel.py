"""The wheel in a fresh environment, as somebody has it who typed `pip install loxley`: the package, the command,
and `python -m loxley`."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import cloudpickle
import loxley
import pytest
from gates import PATIENCE

WHEEL = os.environ.get("LOXLEY_WHEEL")


def run(*command, **options):
    # Nothing of this environment, nor of who runs the tests, but the way to `echo` and the like.
    bare = {"PATH": os.defpath, "HOME": str(options["cwd"])}
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=PATIENCE, env=bare, **options
    )


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """The folder of an environment with the wheel, and nothing else but what it needs."""
    if not WHEEL:
        pytest.skip("LOXLEY_WHEEL names no wheel")
    folder = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, WHEEL], check=True)
    # What it needs from the package index, without the network.
    (packages,) = folder.glob("lib/*/site-packages")
    source = pathlib.Path(cloudpickle.__file__).parent
    shutil.copytree(source, packages / "cloudpickle")
    return folder


@pytest.mark.parametrize("way", ["command", "module"])
def test_the_program_runs(fresh, tmp_path, way):
    loxley_ = [fresh / "bin/loxley"] if way == "command" else [fresh / "bin/python", "-m", "loxley"]
    told = run(*loxley_, "--version", cwd=tmp_path)
    assert told.stdout == f"loxley {loxley.__version__}\n", told.stderr
    told = run(*loxley_, "run", "echo", "item {}", ":::", "one", "two", cwd=tmp_path)
    assert sorted(told.stdout.splitlines()) == ["item one", "item two"], told.stderr
    assert told.returncode == 0
    assert run(*loxley_, "run", "false", ":::", "one", cwd=tmp_path).returncode == 1
    assert run(*loxley_, "walk", cwd=tmp_path).returncode == 2


def test_the_package_works(fresh, tmp_path):
    program = (
        "import json, loxley\n"
        "with loxley.Executor(2) as executor:\n"
        "    print(json.dumps(list(executor.map(lambda number: 2 * number, range(5)))))\n"
    )
    told = run(fresh / "bin/python", "-c", program, cwd=tmp_path)
    assert told.returncode == 0 and json.loads(told.stdout) == [0, 2, 4, 6, 8], told.stderr


def test_without_the_program_it_is_said_where_it_comes_from(fresh, tmp_path):
    program = fresh / "bin/loxley"
    aside = program.rename(tmp_path / "loxley")
    try:
        told = run(fresh / "bin/python", "-m", "loxley", "--version", cwd=tmp_path)
    finally:
        shutil.move(aside, program)
    assert told.returncode == 1 and "comes with the wheel" in told.stderr
