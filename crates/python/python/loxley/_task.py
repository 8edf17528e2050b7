"""What is said of calls on a server besides what they do, and functions that say it themselves."""

from __future__ import annotations

import functools
import sys
import types
from typing import TYPE_CHECKING, Any, Callable, Dict, Generic, Optional, Sequence, TypeVar, overload

from loxley._wishes import check_priority

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec
elif sys.version_info >= (3, 10):
    from typing import ParamSpec
else:
    # Only who checks types has to know more than that it is a parameter.
    ParamSpec = TypeVar


__all__ = ["ParamSpec", "RemoteTask", "RemoteWishes", "task"]

P = ParamSpec("P")
Q = ParamSpec("Q")
T = TypeVar("T")


class RemoteWishes:
    """Skills, priority, time limit, retries and the like."""

    def __init__(
        self,
        skills: Sequence[str] = (),
        priority: int = 3,
        timeout: Optional[float] = None,
        retries: int = 0,
        speculate: bool = False,
        cost: Optional[float] = None,
        deadline: Optional[float] = None,
        group: Optional[str] = None,
    ) -> None:
        if isinstance(skills, str):
            raise TypeError("skills is a collection of names, not one name")
        check_priority(priority)
        self._said: Dict[str, Any] = {
            "skills": list(skills),
            "priority": priority,
            "time_limit_sec": timeout,
            "retry": {"retries": retries} if retries else None,
            "speculate": speculate,
            "cost_sec": cost,
            "deadline_sec": deadline,
            "group": group,
        }

    def described(self) -> Dict[str, Any]:
        """As the server takes it, without what goes without saying."""
        return {key: value for key, value in self._said.items() if value not in (None, [], False)}

    def __repr__(self) -> str:
        return f"RemoteWishes({self.described()})"


class RemoteTask(Generic[P, T]):
    """A function with what it needs when it runs on a server. Called here, it is the function it was."""

    __wrapped__: Callable[P, T]

    def __init__(self, function: Callable[P, T], wishes: RemoteWishes) -> None:
        functools.update_wrapper(self, function)
        #: What it needs.
        self.wishes = wishes

    def __call__(self, *arguments: P.args, **keywords: P.kwargs) -> T:
        return self.__wrapped__(*arguments, **keywords)

    @overload
    def __get__(self, owner: None, kind: Any = None) -> RemoteTask[P, T]: ...

    @overload
    def __get__(
        self: RemoteTask[Concatenate[Any, Q], T], owner: object, kind: Any = None
    ) -> Callable[Q, T]: ...

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else types.MethodType(self, owner)

    def __reduce__(self) -> Any:
        if _is_there(self):
            # By its name, as any function.
            return self.__qualname__  # type: ignore[attr-defined]
        return RemoteTask, (self.__wrapped__, self.wishes)

    def __repr__(self) -> str:
        name = getattr(self, "__qualname__", repr(self.__wrapped__))
        return f"<task {name} with {self.wishes.described()}>"


def _is_there(decorated: Any) -> bool:
    """Whether another process finds it by its name."""
    module = getattr(decorated, "__module__", None)
    if module in (None, "__main__"):
        return False
    found: Any = sys.modules.get(module)
    for part in decorated.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is decorated


@overload
def task(function: Callable[P, T], /) -> RemoteTask[P, T]: ...


@overload
def task(
    *,
    skills: Sequence[str] = (),
    priority: int = 3,
    timeout: Optional[float] = None,
    retries: int = 0,
    speculate: bool = False,
    cost: Optional[float] = None,
    deadline: Optional[float] = None,
    group: Optional[str] = None,
) -> Callable[[Callable[P, T]], RemoteTask[P, T]]: ...


def task(function: Optional[Callable[..., Any]] = None, /, **wishes: Any) -> Any:
    """Says what a function needs when it runs on a server.

    >>> @task(skills=["gpu"], priority=5)
    ... def train(rows):
    ...     return len(rows)
    >>> train([1, 2, 3])  # here, it is the function it was
    3

    ``client.submit(train, rows)`` then asks for an agent with the skill. ``timeout``, ``retries``,
    ``speculate``, ``cost``, ``deadline`` (all in seconds) and ``group`` mean what they mean for tasks.
    """
    said = RemoteWishes(**wishes)
    if function is not None:
        return RemoteTask(function, said)
    return lambda decorated: RemoteTask(decorated, said)
