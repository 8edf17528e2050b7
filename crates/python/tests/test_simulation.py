"""The simulator from Python."""

import functools
import sys
import threading
import time

import pytest
from loxley import simulation


@pytest.mark.parametrize("name", sorted(simulation.scenarios()))
def test_every_ready_scenario_runs(name):
    run = simulation.simulate(name)
    assert run.statistics["executed"] > 0 and run.statistics["ratio_to_bound"] >= 1.0
    assert len(run.workers) >= 2 and run.about and run.look_for


def test_a_seed_decides_everything():
    one, same = simulation.simulate("spawning", seed=3), simulation.simulate("spawning", seed=3)
    assert one.spans == same.spans and one.statistics == same.statistics
    assert simulation.simulate("spawning", seed=4).spans != one.spans


def test_records_describe_the_run():
    run = simulation.simulate("adaptive")
    assert {"lane", "slot", "start", "end", "task", "kind"} <= set(run.spans[0])
    assert len(run.spans) == run.statistics["executed"] == 15
    assert sum(worker["stolen"] for worker in run.workers) == len(run.steals)
    busy = sum(worker["busy_s"] for worker in run.workers)
    assert busy == pytest.approx(sum(span["end"] - span["start"] for span in run.spans))
    assert {"lane", "name", "at", "queue"} == set(run.queues[0])
    assert run.balance["load_imbalance"] >= 1.0


def test_a_scenario_of_ones_own():
    own = {
        "about": "Two workers and one pile.",
        "look_for": "the second takes half.",
        "deque": {"workers": 2, "load": {"tasks": {"count": 8, "work": {"uniform": [1.0, 2.0]}}}},
    }
    run = simulation.simulate(own)
    assert run.statistics["executed"] == 8


def test_mistakes_are_told():
    with pytest.raises(ValueError, match="no_such_thing"):
        simulation.simulate("no_such_thing")
    with pytest.raises(ValueError, match="teleport"):
        simulation.simulate("basic", policy="teleport")
    with pytest.raises(ValueError):
        simulation.simulate("basic", changes=["workers"])
    with pytest.raises(ValueError):
        simulation.simulate({"about": "nothing"})


def test_a_run_is_drawn(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    run = simulation.simulate("cascading_failure")
    axes = run.plot()
    assert len(axes.patches) == len(run.spans)
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert {"own", "stolen", "crashed"} <= set(labels)
    assert [label.get_text() for label in axes.get_yticklabels()][0] == run.queues[0]["name"]
    axes.figure.savefig(tmp_path / "run.png")
    pixels = matplotlib.image.imread(tmp_path / "run.png")
    # Something is drawn in the colour of stolen work.
    orange = abs(pixels[..., :3] - [0xE0 / 255, 0x91 / 255, 0x3A / 255]).max(axis=-1) < 0.02
    assert orange.mean() > 0.01


def test_drawing_needs_matplotlib_only_when_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    run = simulation.simulate("basic")
    with pytest.raises(ImportError, match=r"pip install loxley\[plot\]"):
        run.plot()


def test_records_become_tables():
    pandas = pytest.importorskip("pandas")
    run = simulation.simulate("adaptive")
    spans = pandas.DataFrame(run.spans)
    assert (spans["end"] > spans["start"]).all() and len(spans) == run.statistics["executed"]
    assert len(pandas.DataFrame(run.workers)) == len(run.workers)
    records = simulation.compare("bursty", ["pull", "push"], seeds=[1, 2])
    assert pandas.DataFrame(records).groupby("policy")["makespan_s"].mean().shape == (2,)


def test_other_threads_go_on_while_a_simulation_runs():
    runs = functools.partial(simulation.compare, "bursty", ["pull", "push"], seeds=range(100))
    thread = threading.Thread(target=runs)
    thread.start()
    turns = 0
    while thread.is_alive():
        time.sleep(0.001)
        turns += 1
    # Otherwise, it would be one before, and one after.
    assert turns >= 5
