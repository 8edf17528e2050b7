"""A set of skills that tells its agent when it changes."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterable, Set

if TYPE_CHECKING:
    from loxley._core import Agent


class Skills(Set[str]):
    """The capabilities of an agent: a set like any other, but a change counts at once."""

    def __init__(self, agent: Agent, names: Iterable[str] = ()) -> None:
        super().__init__(names)
        self._agent = weakref.ref(agent)

    def _changed(self) -> None:
        agent = self._agent()
        if agent is not None and agent.capabilities is self:
            agent._skills_changed()

    def __reduce__(self) -> Any:
        return (set, (list(self),))


def _telling(name: str) -> Callable[..., Any]:
    plain = getattr(set, name)

    def changed(self: Skills, *arguments: Any) -> Any:
        result = plain(self, *arguments)
        self._changed()
        return result

    changed.__name__ = name
    changed.__doc__ = plain.__doc__
    return changed


for _name in (
    "add discard remove pop clear update intersection_update difference_update "
    "symmetric_difference_update __ior__ __iand__ __isub__ __ixor__"
).split():
    setattr(Skills, _name, _telling(_name))
