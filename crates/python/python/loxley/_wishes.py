"""How calls of an executor are to be treated."""

from __future__ import annotations

from typing import Optional


class Wishes:
    """Priority, time limit, a second copy, and how long a call is expected to run."""

    __slots__ = ("priority", "timeout", "speculate", "cost")

    def __init__(
        self,
        priority: int = 3,
        timeout: Optional[float] = None,
        speculate: bool = False,
        cost: Optional[float] = None,
    ) -> None:
        check_priority(priority)
        if timeout is not None and timeout <= 0:
            raise ValueError(f"a timeout of {timeout} seconds leaves no time")
        self.priority = priority
        self.timeout = timeout
        self.speculate = speculate
        self.cost = cost

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"Wishes({said})"


def check_priority(priority: int) -> None:
    """Refuses what is no priority."""
    if priority not in (1, 2, 3, 4, 5):
        raise ValueError(f"priority {priority} is not between 1 (lowest) and 5 (highest)")
