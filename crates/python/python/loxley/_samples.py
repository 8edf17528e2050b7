"""Queue lengths at one moment."""

from __future__ import annotations

from typing import Any, Dict, Union, cast


class UtilizationSample(tuple):  # type: ignore[type-arg]
    """A timestamp and the queue length of each agent, by position, by name or as attributes.

    >>> sample = UtilizationSample(12.5, {"ann": 3})
    >>> sample.timestamp, sample["queue_lengths"], sample[1]["ann"]
    (12.5, {'ann': 3}, 3)
    """

    def __new__(cls, timestamp: float, queue_lengths: Dict[str, int]) -> UtilizationSample:
        return super().__new__(cls, (timestamp, queue_lengths))

    @property
    def timestamp(self) -> float:
        """When, in seconds since the epoch."""
        return cast(float, tuple.__getitem__(self, 0))

    @property
    def queue_lengths(self) -> Dict[str, int]:
        """How many tasks each agent had on its queue."""
        return cast(Dict[str, int], tuple.__getitem__(self, 1))

    def __getitem__(self, key: Union[int, slice, str]) -> Any:  # type: ignore[override]
        if key == "timestamp":
            return self.timestamp
        if key == "queue_lengths":
            return self.queue_lengths
        return tuple.__getitem__(self, key)  # type: ignore[index]
