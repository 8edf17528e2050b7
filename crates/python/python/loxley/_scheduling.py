"""The embedded scheduler: the classes of the core with what is easier said in Python."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any, Callable, Iterable, List, Mapping, Optional, Union

from loxley import _core
from loxley._config import Config
from loxley._core import TaskQueue
from loxley._dependencies import Dependencies, TellsOfEnds
from loxley._html import table
from loxley._original_names import OriginalNames
from loxley._plan import Plan, import_plan
from loxley._serving import Service
from loxley._skills import Skills

Sequence.register(TaskQueue)


class Task(_core.Task):
    __doc__ = _core.Task.__doc__

    #: Who hears that it is done.
    _dependencies: Optional[Dependencies] = None

    @property
    def completed_at(self) -> Optional[float]:
        """When it was done. Setting it tells the scheduler: what waited for the task may begin."""
        return _COMPLETED_AT.__get__(self)  # type: ignore[no-any-return]

    @completed_at.setter
    def completed_at(self, moment: Optional[float]) -> None:
        _COMPLETED_AT.__set__(self, moment)
        if moment is not None and self._dependencies is not None:
            self._dependencies.completed(self.task_id)

    def __lt__(self, other: Any) -> bool:
        # The more urgent one comes first, as on a queue.
        return bool(self.priority > other.priority)


_COMPLETED_AT: Any = _core.Task.__dict__["completed_at"]


class Agent(TellsOfEnds):
    __doc__ = _core.Agent.__doc__

    def __init__(
        self, agent_id: Any, capabilities: Optional[Iterable[str]] = None, **profile: Any
    ) -> None:
        # The base class has taken the arguments already; only the names are made to tell of changes.
        super().__init__()
        names = super().capabilities
        self.capabilities = set(names) if isinstance(capabilities, (set, frozenset)) else names

    @property
    def capabilities(self) -> Skills:
        """What it can do: a set of names, in the order in which they were given if that was a list (and then
        equal to it). Changing it counts at once."""
        return super().capabilities  # type: ignore[return-value]

    @capabilities.setter
    def capabilities(self, names: Iterable[str]) -> None:
        skills = Skills(self, names)
        _core.Agent.capabilities.__set__(self, skills)  # type: ignore[attr-defined]

    def serve(
        self,
        access: Optional[Union[str, os.PathLike[str]]] = None,
        *,
        functions: Optional[Mapping[str, Callable[..., Any]]] = None,
        processes: int = 1,
        speed: float = 1.0,
        zone: Optional[str] = None,
    ) -> Service:
        """Serves a Loxley server with this agent's name and skills, in ``processes`` processes.

        Whoever submits Python functions to the server may have them run here; ``functions`` are
        offered by name besides. The queue of such an agent is on the server.

            with loxley.Agent("ann", {"python", "gpu"}).serve(processes=4) as service:
                service.wait()
        """
        profile = {
            "skills": sorted(self.capabilities),
            "speed": speed,
            "zone": zone,
            **self._profile(),
        }
        path = None if access is None else os.fspath(access)
        return Service(path, str(self.agent_id), profile, functions or {}, processes)


class WorkStealingScheduler(OriginalNames, _core.WorkStealingScheduler):
    __doc__ = _core.WorkStealingScheduler.__doc__

    def __init__(self, config_path: Optional[Union[str, os.PathLike[str]]] = None) -> None:
        super().__init__()
        self._config: Optional[Config] = None
        self._dependencies = Dependencies(super().submit_task, self._is_queued)
        #: The thread in which time passes, once there was one.
        self.rebalance_thread: Optional[threading.Thread] = None

    def start(self) -> None:
        """Lets time pass in the background: rebalancing and samples, at their intervals. Everything else
        works without it."""
        ticker = self._begin()
        if ticker is not None:
            self.rebalance_thread = threading.Thread(
                target=ticker, name="loxley-ticker", daemon=True
            )
            self.rebalance_thread.start()

    def stop(self) -> None:
        """Ends what ``start`` began. Nothing is forgotten."""
        self._end()

    def _is_queued(self, task_id: Any) -> bool:
        queues = [agent.task_queue for agent in list(self.agents.values())]
        return any(task.task_id == task_id for queue in queues for task in queue)

    def register_agent(
        self, agent: Union[_core.Agent, Any], capabilities: Optional[Iterable[str]] = None
    ) -> None:
        """Registers an agent with whatever is on its queue. Another agent of the same id is replaced,
        and its tasks go to others. Instead of an agent, an id and its capabilities will do."""
        super().register_agent(agent, capabilities)
        name = agent.agent_id if isinstance(agent, _core.Agent) else agent
        registered = self.agents.get(name)
        if isinstance(registered, TellsOfEnds):
            registered._dependencies = self._dependencies
        self._dependencies.place_held()

    def submit_task(self, task: _core.Task) -> bool:
        """Puts a task on the queue of the agent that suits it best. False when nobody can do it.

        A task with ``dependencies`` waits until all of them are done (:meth:`complete_task` says how
        the scheduler hears of that). One that depends on a task that nobody submitted, or that failed,
        is refused with a ``ValueError``.
        """
        if task.dependencies:
            return self._submit_dependent(task)
        if not super().submit_task(task):
            return False
        self._expect_end_of(task)
        return True

    def _submit_dependent(self, task: _core.Task) -> bool:
        if self._find_best_agent(task) is None:
            return False
        if not self._dependencies.add(task):
            super().submit_task(task)
        self._expect_end_of(task)
        return True

    def _expect_end_of(self, task: _core.Task) -> None:
        self._dependencies.note(task)
        if isinstance(task, Task):
            task._dependencies = self._dependencies

    def complete_task(self, task: _core.Task) -> None:
        """The task is done: whatever waited for it alone goes on a queue now.

        The same is understood when ``task.completed_at`` is set, or when the agent whose
        ``current_task`` it is or was last counts its ``total_completed`` up.

        >>> scheduler = WorkStealingScheduler()
        >>> scheduler.register_agent(Agent("ann"))
        >>> fetch, clean = Task("fetch"), Task("clean", dependencies=["fetch"])
        >>> scheduler.submit_task(fetch), scheduler.submit_task(clean)
        (True, True)
        >>> scheduler.agents["ann"].dequeue_task() is fetch, scheduler.agents["ann"].dequeue_task()
        (True, None)
        >>> scheduler.complete_task(fetch)
        >>> scheduler.agents["ann"].dequeue_task() is clean
        True
        """
        self._dependencies.completed(task.task_id)

    def fail_task(self, task: _core.Task) -> List[Any]:
        """The task failed for good. The tasks that waited for it, which now never run, are returned.

        The same is understood when the agent whose ``current_task`` it is or was last counts its
        ``total_failed`` up.
        """
        return self._dependencies.failed(task.task_id)

    @property
    def waiting_tasks(self) -> List[Any]:
        """The tasks that were accepted and are on no queue yet: they wait for others."""
        return self._dependencies.waiting

    def explain(self, task: _core.Task) -> Optional[str]:
        """Where a task is and why, in a sentence; None when the scheduler does not have it."""
        return self._dependencies.reason(task) or super().explain(task)

    @property
    def config(self) -> Config:
        """The settings in force, by group. Setting one applies it at once."""
        if self._config is None:
            self._config = Config(self._config_yaml(), self._reload)
        return self._config

    def reload_file(self, path: Union[str, os.PathLike[str]]) -> None:
        """Applies the configuration in a file, or none of it if there is a mistake in it."""
        super().reload_file(path)
        self._config = None

    def import_plan(self, plan: Plan) -> List[Task]:
        """Takes over the lists of an orchestrator, and returns its tasks in order.

        ``plan`` is a mapping, or a JSON file of one. Agents that are registered already stay as they
        are. If anything is wrong with it, :class:`PlanError` says what, and nothing changes.

        >>> scheduler = WorkStealingScheduler()
        >>> tasks = scheduler.import_plan({
        ...     "agents": [{"id": "ann", "capabilities": ["python"]}],
        ...     "tasks": [
        ...         {"id": "fetch", "skills": ["python"]},
        ...         {"id": "clean", "skills": ["python"], "priority": 4, "dependencies": ["fetch"],
        ...          "expected_cost_sec": 1.5, "payload": {"table": "users"}},
        ...     ],
        ... })
        >>> [task.task_id for task in scheduler.agents["ann"].task_queue]
        ['fetch']
        >>> scheduler.explain(tasks[1])
        '`clean` waits for `fetch`'
        """
        return import_plan(self, plan)

    def __repr__(self) -> str:
        figures = self.get_metrics()
        agents, queued = figures["agent_count"], figures["total_queued"]
        return f"<WorkStealingScheduler: {agents} agents, {queued} tasks queued>"

    def _repr_html_(self) -> str:
        rows = [
            [name, status["queue_length"], ", ".join(status["capabilities"]),
             f"{status['success_rate']:.2f}", status["total_completed"]]
            for name, status in self.get_agent_status().items()
        ]  # fmt: skip
        names = ["agent", "queue", "capabilities", "success rate", "completed"]
        return table(repr(self), names, rows)

    def __enter__(self) -> WorkStealingScheduler:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
