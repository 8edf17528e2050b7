"""Tables for notebooks."""

from __future__ import annotations

import html
from typing import Any, Iterable, Sequence


def table(title: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table with a title. What is in it is text, whatever it looks like."""

    def line(kind: str, cells: Sequence[Any]) -> str:
        inner = "".join(f"<{kind}>{_shown(cell)}</{kind}>" for cell in cells)
        return f"<tr>{inner}</tr>"

    body = "".join(line("td", row) for row in rows)
    caption = f"<caption>{html.escape(title)}</caption>"
    return f"<table>{caption}<thead>{line('th', names)}</thead><tbody>{body}</tbody></table>"


def _shown(cell: Any) -> str:
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return html.escape("–" if cell is None else str(cell))


def balance_table(report: Any) -> str:
    """The four figures of balance."""
    targets = {
        "load_imbalance": "below 1.2",
        "straggler_ratio": "below 2",
        "utilization": "above 0.9",
        "queue_depth_variance": "",
    }
    words = {True: "met", False: "missed", None: ""}
    rows = [
        (name.replace("_", " "), figure["value"], targets.get(name, ""), words[figure["met"]])
        for name, figure in report.as_dict().items()
    ]
    return table("Was the run balanced?", ["figure", "value", "target", ""], rows)


def advice_table(advice: Any) -> str:
    """What every way of dividing came to."""
    rows = [tuple(trial.values()) for trial in advice.trials]
    names = list(advice.trials[0]) if advice.trials else []
    return table(f"{advice.strategy}: {advice.explanation}", names, rows)
