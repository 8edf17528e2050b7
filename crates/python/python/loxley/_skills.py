"""Skills that tell their agent when they change."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, List, Set

if TYPE_CHECKING:
    from loxley._core import Agent


class Skills(Set[str]):
    """The capabilities of an agent: a set whose changes count at once.

    It keeps the order in which its names came, for programs that gave a list and expect one: they may index
    it, append to it, and compare it with a list.
    """

    def __init__(self, agent: Agent, names: Iterable[str] = ()) -> None:
        # A set has no order that a person would recognize.
        ordered = sorted(names) if isinstance(names, (set, frozenset)) else names
        self._order: List[str] = list(dict.fromkeys(ordered))
        super().__init__(self._order)
        self._agent = weakref.ref(agent)

    def _changed(self) -> None:
        there = set(set.__iter__(self))
        kept = [name for name in self._order if name in there]
        self._order = [*kept, *sorted(there.difference(kept))]
        agent = self._agent()
        if agent is not None and agent.capabilities is self:
            agent._skills_changed()

    def append(self, name: str) -> None:
        """As `add`."""
        self.add(name)

    def extend(self, names: Iterable[str]) -> None:
        """As `add`, for each name."""
        for name in names:
            self.add(name)

    def index(self, name: str) -> int:
        """Where a name is in the order in which they came."""
        return self._order.index(name)

    def __getitem__(self, at: Any) -> Any:
        return self._order[at]

    def __iter__(self) -> Iterator[str]:
        return iter(self._order)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._order)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (list, tuple)):
            return self._order == list(other)
        return set.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __repr__(self) -> str:
        return f"Skills({self._order!r})"

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
