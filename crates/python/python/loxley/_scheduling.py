"""The embedded scheduler: the classes of the core with what is easier said in Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Callable, Iterable, List, Mapping, Optional, Set, Union

from loxley import _core
from loxley._config import Config
from loxley._core import TaskQueue
from loxley._plan import Plan, import_plan
from loxley._serving import Service
from loxley._skills import Skills

Sequence.register(TaskQueue)


class Task(_core.Task):
    __doc__ = _core.Task.__doc__


class Agent(_core.Agent):
    __doc__ = _core.Agent.__doc__

    def __init__(
        self, agent_id: Any, capabilities: Optional[Iterable[str]] = None, **profile: Any
    ) -> None:
        # The base class has taken the arguments already; only the set is made to tell of changes.
        super().__init__()
        self.capabilities = set(super().capabilities)

    @property
    def capabilities(self) -> Set[str]:
        """What it can do: a set of names. Changing it counts at once."""
        return super().capabilities

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


class WorkStealingScheduler(_core.WorkStealingScheduler):
    __doc__ = _core.WorkStealingScheduler.__doc__

    def __init__(self, config_path: Optional[Union[str, os.PathLike[str]]] = None) -> None:
        super().__init__()
        self._config: Optional[Config] = None

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
        ['clean', 'fetch']
        """
        return import_plan(self, plan)

    def __enter__(self) -> WorkStealingScheduler:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
