"""Queue lengths at one moment."""

from __future__ import annotations

from typing import Any, Dict, Optional, Union, cast

_NAMES = ("timestamp", "queue_lengths", "total_queued")


class UtilizationSample(tuple):  # type: ignore[type-arg]
    """A pair of a timestamp and the queue length of each agent, and their sum by name.

    >>> sample = UtilizationSample(12.5, {"ann": 3, "bob": 1})
    >>> sample.timestamp, sample["queue_lengths"], sample[1]["ann"], sample["total_queued"]
    (12.5, {'ann': 3, 'bob': 1}, 3, 4)
    """

    def __new__(
        cls, timestamp: float, queue_lengths: Dict[Any, int], total_queued: Optional[int] = None
    ) -> UtilizationSample:
        sample = super().__new__(cls, (timestamp, queue_lengths))
        #: How many tasks were on queues, those of agents that have left since included.
        sample.total_queued = sum(queue_lengths.values()) if total_queued is None else total_queued
        return sample

    total_queued: int

    @property
    def timestamp(self) -> float:
        """When, in seconds since the epoch."""
        return cast(float, tuple.__getitem__(self, 0))

    @property
    def queue_lengths(self) -> Dict[Any, int]:
        """How many tasks each agent had on its queue, by id."""
        return cast(Dict[Any, int], tuple.__getitem__(self, 1))

    def __getitem__(self, key: Union[int, slice, str]) -> Any:  # type: ignore[override]
        if isinstance(key, str):
            if key not in _NAMES:
                raise KeyError(key)
            return getattr(self, key)
        return tuple.__getitem__(self, key)

    def __contains__(self, part: object) -> bool:
        return part in _NAMES if isinstance(part, str) else super().__contains__(part)

    def get(self, name: str, default: Any = None) -> Any:
        """A part by name, as a dictionary would give it."""
        return self[name] if name in self else default

    def __reduce__(self) -> Any:
        return (UtilizationSample, (*self, self.total_queued))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={self[name]!r}" for name in _NAMES)
        return f"UtilizationSample({shown})"
