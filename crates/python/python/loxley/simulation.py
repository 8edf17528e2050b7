"""The simulator: what a fleet or a pool would do, in virtual time.

The scheduler inside is the one that runs in production. One seed decides everything.

>>> run = simulate("basic", seed=7)
>>> run.statistics["executed"]
10
>>> sorted(run.workers[0])[:3]
['busy_s', 'executed', 'queue_max']
"""

from __future__ import annotations

import collections.abc
import json
import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from loxley import _core
from loxley._html import table

Record = Dict[str, Any]

_COLOURS = {"own": "#4878a8", "stolen": "#e0913a", "failed": "#b03a3a", "stopped": "#999999"}


class Run:
    """What one run did. Lists of records become a table by ``pandas.DataFrame(run.spans)``."""

    def __init__(self, shown: Record, timeline: Record) -> None:
        (variant,) = shown["variants"]
        (statistics,) = variant["runs"]
        #: The scenario's name.
        self.scenario: str = shown["scenario"]
        #: What it shows, and what to look for.
        self.about: str = shown["about"]
        self.look_for: str = shown["look_for"]
        #: What each worker did: one record each.
        self.workers: List[Record] = statistics.pop("workers")
        #: The figures of the run: makespan, steals, waiting, the lower bound and the balance.
        self.statistics: Record = statistics
        #: The four balance figures.
        self.balance: Record = statistics["balance"]
        #: Every piece of work: lane, slot, start, end, task, kind (unless there were too many).
        self.spans: List[Record] = timeline["spans"]
        #: Every task that changed hands: at, from, to, task.
        self.steals: List[Record] = timeline["steals"]
        #: Crashes, partitions, arrivals and departures.
        self.incidents: List[Record] = timeline["incidents"]
        self._timeline = timeline

    @property
    def queues(self) -> List[Record]:
        """Queue lengths over time: one record for each lane and moment."""
        column = self._timeline["column"]
        return [
            {"lane": number, "name": lane["name"], "at": position * column, "queue": length}
            for number, lane in enumerate(self._timeline["lanes"])
            for position, length in enumerate(lane["queue"])
        ]

    def plot(self, axes: Any = None) -> Any:
        """Draws who did what when. Needs matplotlib. Returns the axes."""
        try:
            from matplotlib import pyplot
        except ImportError:
            raise ImportError("drawing needs matplotlib: pip install loxley[plot]") from None
        names = [lane["name"] for lane in self._timeline["lanes"]]
        if axes is None:
            size = (10, 1 + 0.4 * len(names))
            _, axes = pyplot.subplots(figsize=size, layout="constrained")
        for kind, colour in _COLOURS.items():
            self._draw_spans(axes, kind, colour)
        for number, what in enumerate(sorted({each["what"] for each in self.incidents})):
            these = [incident for incident in self.incidents if incident["what"] == what]
            where = [incident["at"] for incident in these], [incident["lane"] for incident in these]
            axes.plot(*where, f"C{number + 2}X", markersize=9, label=what)
        axes.set_yticks(range(len(names)), labels=names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlim(left=0)
        axes.set_xlabel("seconds")
        axes.set_title(f"{self.scenario}: {self.statistics['makespan_s']:.2f} s")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return axes

    def _draw_spans(self, axes: Any, kind: str, colour: str) -> None:
        """Bars for the work of one kind; the slots of a lane are below each other."""
        spans = [span for span in self.spans if span["kind"] == kind]
        slots = 1 + max((span["slot"] for span in self.spans), default=0)
        if spans:
            axes.barh(
                [span["lane"] - 0.4 + 0.8 * (span["slot"] + 0.5) / slots for span in spans],
                [span["end"] - span["start"] for span in spans],
                height=0.8 / slots,
                left=[span["start"] for span in spans],
                color=colour,
                edgecolor="white",
                linewidth=0.3,
                label=kind,
            )

    def _repr_html_(self) -> str:
        flat = [(name, value) for name, value in self.statistics.items() if not isinstance(value, (dict, list))]
        return table(repr(self), ["figure", "value"], flat)

    def __repr__(self) -> str:
        seconds = self.statistics["makespan_s"]
        return f"<Run of {self.scenario}: {self.statistics['executed']} tasks in {seconds:.3f} s>"


def scenarios() -> Dict[str, str]:
    """The ready scenarios, each with the sentence that says what it shows.

    >>> "hot_spot" in scenarios()
    True
    """
    return dict(_core.ready_scenarios())


def simulate(
    scenario: Union[str, os.PathLike[str], Mapping[str, Any]],
    *,
    seed: int = 1,
    policy: Optional[str] = None,
    changes: Sequence[str] = (),
    workers: Optional[int] = None,
) -> Run:
    """Runs a scenario once.

    ``scenario`` is the name of a ready one, a scenario or workload file, or a scenario as a mapping.
    ``policy`` and ``changes`` are those of ``loxley sim``: ``policy="most_loaded+half"``,
    ``changes=["workers=8"]``. ``workers`` counts for workload files.

    >>> stolen = simulate("adaptive", policy="random").statistics["makespan_s"]
    >>> alone = simulate("adaptive", policy="none").statistics["makespan_s"]
    >>> stolen < alone
    True
    """
    what, is_text = _what(scenario)
    shown, timeline = _core.run_scenario(what, is_text, seed, policy, list(changes), workers)
    return Run(json.loads(shown), json.loads(timeline))


def compare(
    scenario: Union[str, os.PathLike[str], Mapping[str, Any]],
    policies: Sequence[str],
    *,
    seeds: Sequence[int] = (1, 2, 3, 4, 5),
    changes: Sequence[str] = (),
    workers: Optional[int] = None,
) -> List[Record]:
    """Runs a scenario under several policies with the same seeds: one record for each run.

    >>> records = compare("bursty", ["pull", "push"], seeds=[1, 2])
    >>> [(record["policy"], record["seed"]) for record in records]
    [('pull', 1), ('pull', 2), ('push', 1), ('push', 2)]
    """
    what, is_text = _what(scenario)
    shown = json.loads(
        _core.compare_policies(what, is_text, list(policies), list(seeds), list(changes), workers)
    )
    records = []
    for variant in shown["variants"]:
        for run in variant["runs"]:
            balance = run.pop("balance")
            wait = {f"wait_{name}_s": value for name, value in run.pop("wait_s").items()}
            del run["workers"]
            records.append({"policy": variant["label"], **run, **wait, **balance})
    return records


def _what(scenario: Any) -> "tuple[str, bool]":
    if isinstance(scenario, collections.abc.Mapping):
        return json.dumps(scenario), True
    return os.fspath(scenario), False
