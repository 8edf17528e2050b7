"""Loxley takes work from the busy and gives it to the idle.

- :class:`WorkStealingScheduler`, :class:`Agent`, :class:`Task`: a scheduler inside this process.
"""

from loxley._core import VERSION as __version__
from loxley._core import Metrics, Task, TaskQueue
from loxley._samples import UtilizationSample
from loxley._scheduling import Agent, WorkStealingScheduler

__all__ = [
    "Agent",
    "Metrics",
    "Task",
    "TaskQueue",
    "UtilizationSample",
    "WorkStealingScheduler",
    "__version__",
]
