"""Agents and tasks as an orchestrator keeps them: two lists."""

from __future__ import annotations

import graphlib
import json
import os
import time
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Union

if TYPE_CHECKING:
    from loxley._scheduling import Agent, Task, WorkStealingScheduler

#: What may be said of an agent and of a task, and what it is called here.
_AGENT = {"id": "agent_id", "capabilities": "capabilities"}
_TASK = {
    "id": "task_id",
    "skills": "skill_requirements",
    "priority": "priority",
    "dependencies": "dependencies",
    "expected_cost_sec": "expected_cost",
    "deadline_sec": "deadline",
    "payload": "data",
}
_ROOM = {name: name for name in ("cpu", "memory", "resources")}

Plan = Union[str, "os.PathLike[str]", Mapping[str, Any]]


class PlanError(ValueError):
    """A plan that cannot be taken over. Nothing changed."""


def import_plan(scheduler: WorkStealingScheduler, plan: Plan) -> List[Task]:
    """Registers the agents that are not there yet and submits the tasks: all of it or nothing."""
    agents, tasks = _read(plan)
    newcomers = [agent for agent in agents if agent.agent_id not in scheduler.agents]
    for agent in newcomers:
        scheduler.register_agent(agent)
    submitted: List[Task] = []
    for task in _in_order(tasks):
        try:
            is_accepted = scheduler.submit_task(task)
        except ValueError as error:
            _undo(scheduler, newcomers, submitted)
            raise PlanError(str(error)) from None
        if not is_accepted:
            _undo(scheduler, newcomers, submitted)
            raise PlanError(f"nobody can do task {task.task_id!r}")
        submitted.append(task)
    return tasks


def _in_order(tasks: List[Task]) -> List[Task]:
    """What comes first first, and else as they are."""
    by_name = {task.task_id: task for task in tasks}
    graph = {task.task_id: list(task.dependencies) for task in tasks}
    return [by_name[name] for name in graphlib.TopologicalSorter(graph).static_order()]


def _undo(scheduler: WorkStealingScheduler, newcomers: List[Agent], tasks: List[Task]) -> None:
    wanted = {id(task) for task in tasks}
    scheduler._dependencies.withdraw(tasks)
    for agent in newcomers:
        scheduler.unregister_agent(agent.agent_id)
    for other in scheduler.agents.values():
        for task in list(other.task_queue):
            if id(task) in wanted:
                other.task_queue.remove(task)


def _read(plan: Plan) -> "tuple[List[Agent], List[Task]]":
    from loxley._scheduling import Agent, Task

    lists = plan if isinstance(plan, Mapping) else _load(plan)
    unknown = set(lists) - {"agents", "tasks"}
    if unknown:
        raise PlanError(f"a plan has agents and tasks, not {', '.join(sorted(unknown))}")
    agents = [
        Agent(**_arguments("agent", entry, {**_AGENT, **_ROOM}))
        for entry in lists.get("agents", ())
    ]
    tasks = []
    for entry in lists.get("tasks", ()):
        arguments = _arguments("task", entry, {**_TASK, **_ROOM})
        if "deadline" in arguments:
            arguments["deadline"] += time.time()
        tasks.append(Task(**arguments))
    _check_names("agent", [agent.agent_id for agent in agents])
    names = _check_names("task", [task.task_id for task in tasks])
    for task in tasks:
        for name in task.dependencies:
            if name not in names:
                raise PlanError(f"task {task.task_id!r} waits for {name!r}, which nobody knows")
    try:
        _in_order(tasks)
    except graphlib.CycleError as error:
        circle = " -> ".join(map(repr, reversed(error.args[1])))
        raise PlanError(f"the tasks wait for each other in a circle: {circle}") from None
    return agents, tasks


def _load(path: Union[str, os.PathLike[str]]) -> Mapping[str, Any]:
    with open(path, encoding="utf-8") as file:
        return json.load(file)  # type: ignore[no-any-return]


def _arguments(what: str, entry: Mapping[str, Any], fields: Mapping[str, str]) -> Dict[str, Any]:
    """The arguments that make what an entry describes."""
    if "id" not in entry:
        raise PlanError(f"an {what} without an id" if what == "agent" else "a task without an id")
    unknown = [name for name in entry if name not in fields]
    if unknown:
        known = ", ".join(fields)
        raise PlanError(f"{what} {entry['id']!r} has a field {unknown[0]!r}; there are {known}")
    return {fields[name]: value for name, value in entry.items()}


def _check_names(what: str, names: List[Any]) -> "set[Any]":
    seen = set()
    for name in names:
        if name in seen:
            raise PlanError(f"{what} {name!r} is there twice")
        seen.add(name)
    return seen
