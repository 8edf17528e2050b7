"""Loxley takes work from the busy and gives it to the idle.

- :class:`WorkStealingScheduler`, :class:`Agent`, :class:`Task`: a scheduler inside this process.
- :class:`Executor`: calls in other processes of this machine, in place of ``ProcessPoolExecutor``.
- :class:`Client`, :func:`task` and :meth:`Agent.serve`: calls that a Loxley server gives to agents.
- :mod:`loxley.partition`: dividing work up front, and advice on how.
- :mod:`loxley.simulation`: the same scheduler in virtual time.
"""

import types as _types

from loxley import partition, simulation
from loxley._client import Client, RemoteFuture
from loxley._core import VERSION as __version__
from loxley._core import Advice, BalanceReport, Metrics, Router, TaskQueue
from loxley._executor import Executor
from loxley._futures import CallFuture, TaskTimeout, WorkerLost
from loxley._packing import RemoteError, RemoteTraceback, UnpackError
from loxley._plan import PlanError
from loxley._samples import UtilizationSample
from loxley.partition import advise
from loxley.simulation import simulate
from loxley._scheduling import Agent, Task, WorkStealingScheduler
from loxley._task import task

#: The same, under the name by which existing programs know it.
WorkStealingMetrics = Metrics

#: A place for what an initializer prepares and calls in the same process use. Functions that travel by
#: value have globals of their own, so a global variable would not do.
local = _types.SimpleNamespace()

__all__ = [
    "Advice",
    "Agent",
    "BalanceReport",
    "CallFuture",
    "Client",
    "Executor",
    "Metrics",
    "PlanError",
    "RemoteError",
    "RemoteFuture",
    "RemoteTraceback",
    "Router",
    "Task",
    "TaskQueue",
    "TaskTimeout",
    "UnpackError",
    "UtilizationSample",
    "WorkStealingMetrics",
    "WorkStealingScheduler",
    "WorkerLost",
    "__version__",
    "advise",
    "local",
    "partition",
    "simulate",
    "simulation",
    "task",
]
