"""The example runs and finds something."""

import pathlib
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples"


def test_the_search_example():
    script = [sys.executable, str(EXAMPLES / "tfidf_search.py"), "300"]
    run = subprocess.run(script, capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stderr
    assert "advice: work_stealing" in run.stdout
    assert "indexed 300 documents" in run.stdout
    assert "50 queries answered, 50 with documents" in run.stdout
    assert run.stderr == ""
