"""Loxley takes work from the busy and gives it to the idle.

- :class:`WorkStealingScheduler`, :class:`Agent`, :class:`Task`: a scheduler inside this process.
- :class:`Executor`: calls in other processes of this machine, in place of ``ProcessPoolExecutor``.
"""

from loxley._core import VERSION as __version__
from loxley._core import BalanceReport, Metrics, TaskQueue
from loxley._executor import Executor
from loxley._futures import TaskTimeout, WorkerLost
from loxley._packing import RemoteError, RemoteTraceback
from loxley._samples import UtilizationSample
from loxley._scheduling import Agent, Task, WorkStealingScheduler

__all__ = [
    "Agent",
    "BalanceReport",
    "Executor",
    "Metrics",
    "RemoteError",
    "RemoteTraceback",
    "Task",
    "TaskQueue",
    "TaskTimeout",
    "UtilizationSample",
    "WorkStealingScheduler",
    "WorkerLost",
    "__version__",
]
