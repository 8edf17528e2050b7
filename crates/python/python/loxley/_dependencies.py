"""Tasks that wait for other tasks of an embedded scheduler.

A scheduler inside a program does not run anything, so the program says what is done: by
``complete_task`` and ``fail_task``, by setting ``task.completed_at``, or by counting its agent's
``total_completed`` or ``total_failed`` up after ``current_task`` was set.

What must stay true: a task is here exactly from when it is accepted until every task that it waits for
is done, and then it is on a queue, or held until an agent that can do it registers.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Hashable, List, Optional, Set

from loxley import _core

#: How far a task is that somebody may wait for.
OPEN, COMPLETED, FAILED = "open", "completed", "failed"


class Dependencies:
    """How far every task is, and which wait for which. May be used from any thread."""

    def __init__(
        self, place: Callable[[Any], bool], is_queued: Callable[[Hashable], bool]
    ) -> None:
        #: Puts a task on a queue; false when nobody can do it.
        self._place = place
        #: Whether somebody put a task of this id on a queue by hand.
        self._is_queued = is_queued
        self._lock = threading.RLock()
        self._states: Dict[Hashable, str] = {}
        #: What each task that waits still waits for, by its id.
        self._missing: Dict[Hashable, Set[Hashable]] = {}
        self._waiting: Dict[Hashable, Any] = {}
        #: Who waits for a task.
        self._dependents: Dict[Hashable, List[Hashable]] = {}
        #: Ready, but nobody can do them at present.
        self._held: List[Any] = []

    def note(self, task: Any) -> None:
        """A task is on a queue."""
        try:
            self._states[task.task_id] = OPEN
        except TypeError:
            # An id that cannot be looked up is one that nobody can wait for.
            pass

    def add(self, task: Any) -> bool:
        """Takes a task. True when it waits; false when nothing keeps it from being placed."""
        with self._lock:
            missing = self._check(task)
            if not missing:
                return False
            for dependency in missing:
                self._dependents.setdefault(dependency, []).append(task.task_id)
            self._states[task.task_id] = OPEN
            self._missing[task.task_id] = missing
            self._waiting[task.task_id] = task
            return True

    def _check(self, task: Any) -> Set[Hashable]:
        missing: Set[Hashable] = set()
        for dependency in task.dependencies or ():
            if dependency == task.task_id:
                raise ValueError(
                    f"the tasks wait for each other in a circle: {dependency!r} -> {dependency!r}"
                )
            state = self._state(dependency)
            if state is None and self._is_queued(dependency):
                state = self._states[dependency] = OPEN
            if state is None:
                raise ValueError(
                    f"task {task.task_id!r} depends on {dependency!r}, which nobody submitted:"
                    " submit what comes first first"
                )
            if state is FAILED:
                raise ValueError(
                    f"task {task.task_id!r} depends on {dependency!r}, which did not succeed"
                )
            if state is OPEN:
                missing.add(dependency)
        return missing

    def _state(self, task_id: Hashable) -> Optional[str]:
        try:
            return self._states.get(task_id)
        except TypeError:
            return None

    def completed(self, task_id: Hashable) -> None:
        """A task is done: what waited for nothing else is placed."""
        with self._lock:
            if self._state(task_id) is not OPEN or task_id in self._missing:
                return
            self._states[task_id] = COMPLETED
            ready = []
            for dependent in self._dependents.pop(task_id, ()):
                missing = self._missing.get(dependent)
                if missing is None:
                    continue
                missing.discard(task_id)
                if not missing:
                    del self._missing[dependent]
                    ready.append(self._waiting.pop(dependent))
            self._held.extend(ready)
        if ready:
            self.place_held()

    def failed(self, task_id: Hashable) -> List[Any]:
        """A task did not succeed. Whatever waited for it never will: those tasks are returned."""
        with self._lock:
            if self._state(task_id) is not OPEN or task_id in self._missing:
                return []
            lost: List[Any] = []
            unlucky = [task_id]
            while unlucky:
                one = unlucky.pop()
                self._states[one] = FAILED
                self._missing.pop(one, None)
                task = self._waiting.pop(one, None)
                if task is not None:
                    lost.append(task)
                unlucky.extend(
                    dependent
                    for dependent in self._dependents.pop(one, ())
                    if dependent in self._missing
                )
            return lost

    def place_held(self) -> None:
        """Tries to place what is ready and was not."""
        with self._lock:
            held, self._held = self._held, []
            self._held.extend(task for task in held if not self._place(task))

    def withdraw(self, tasks: List[Any]) -> None:
        """Forgets tasks that wait, as if nobody had submitted them."""
        with self._lock:
            for task in tasks:
                self._states.pop(task.task_id, None)
                self._missing.pop(task.task_id, None)
                self._waiting.pop(task.task_id, None)
                self._held = [held for held in self._held if held is not task]

    def reason(self, task: Any) -> Optional[str]:
        """Why a task is on no queue, if it is here."""
        with self._lock:
            if any(held is task for held in self._held):
                return f"`{task.task_id}` is ready, and no registered agent can do it"
            waits = [name for name, other in self._waiting.items() if other is task]
            if not waits:
                return None
            missing = ", ".join(f"`{name}`" for name in sorted(map(str, self._missing[waits[0]])))
            return f"`{task.task_id}` waits for {missing}"

    @property
    def waiting(self) -> List[Any]:
        """The tasks that are on no queue yet."""
        with self._lock:
            return [*self._waiting.values(), *self._held]


class TellsOfEnds(_core.Agent):
    """An agent whose counting tells a scheduler which task has ended."""

    _dependencies: Optional[Dependencies] = None
    _last: Any = None

    @property
    def current_task(self) -> Any:
        """What it does now. The program sets it."""
        return _CURRENT.__get__(self)

    @current_task.setter
    def current_task(self, task: Any) -> None:
        if task is not None:
            self._last = task
        _CURRENT.__set__(self, task)

    @property
    def total_completed(self) -> int:
        """Tasks it completed. The program counts them; its current or last task is done then."""
        return _COMPLETED.__get__(self)  # type: ignore[no-any-return]

    @total_completed.setter
    def total_completed(self, count: int) -> None:
        is_one_more = count > _COMPLETED.__get__(self)
        _COMPLETED.__set__(self, count)
        if is_one_more:
            self._tell(Dependencies.completed)

    @property
    def total_failed(self) -> int:
        """Tasks it failed. The program counts them; its current or last task has failed then."""
        return _FAILED.__get__(self)  # type: ignore[no-any-return]

    @total_failed.setter
    def total_failed(self, count: int) -> None:
        is_one_more = count > _FAILED.__get__(self)
        _FAILED.__set__(self, count)
        if is_one_more:
            self._tell(Dependencies.failed)

    def _tell(self, what: Callable[[Dependencies, Hashable], Any]) -> None:
        task, self._last = self._last, None
        if task is not None and self._dependencies is not None:
            what(self._dependencies, task.task_id)


_CURRENT: Any = _core.Agent.__dict__["current_task"]
_COMPLETED: Any = _core.Agent.__dict__["total_completed"]
_FAILED: Any = _core.Agent.__dict__["total_failed"]
