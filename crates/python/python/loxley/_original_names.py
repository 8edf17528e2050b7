"""Names by which programs and tests that were written for the original of this interface know things.

They begin with an underscore and are nobody's business, yet tests look at them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping

if TYPE_CHECKING:
    from loxley import _core
    from loxley._config import Config


class OriginalNames:
    """What a scheduler also answers to."""

    if TYPE_CHECKING:

        @property
        def agents(self) -> Mapping[Any, _core.Agent]:
            """As the scheduler has it."""

        @property
        def config(self) -> Config:
            """As the scheduler has it."""

    def _get_busy_agents(self) -> List[_core.Agent]:
        threshold = self.config["thresholds"]["busy_threshold"]
        return [agent for agent in self.agents.values() if agent.queue_length > threshold]

    def _get_idle_agents(self) -> List[_core.Agent]:
        threshold = self.config["thresholds"]["idle_threshold"]
        return [agent for agent in self.agents.values() if agent.queue_length < threshold]

    def _check_severe_imbalance(self) -> bool:
        lengths = [agent.queue_length for agent in self.agents.values()]
        if len(lengths) < 2:
            return False
        thresholds = self.config["thresholds"]
        if min(lengths) == 0:
            return bool(max(lengths) > thresholds["busy_threshold"])
        return bool(max(lengths) / min(lengths) > thresholds["severe_imbalance_ratio"])

    def _default_config(self) -> Dict[str, Any]:
        return type(self)().config
