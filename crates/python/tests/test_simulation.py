"""The simulator from Python."""

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


def test_drawing_needs_matplotlib_only_when_asked_for():
    run = simulation.simulate("basic")
    try:
        import matplotlib
    except ImportError:
        with pytest.raises(ImportError, match="matplotlib"):
            run.plot()
        return
    matplotlib.use("agg")
    axes = run.plot()
    assert len(axes.patches) == len(run.spans)
