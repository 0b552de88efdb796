"""Receives the statistics a simulation records about itself."""

from collections.abc import Mapping
from enum import Enum
from typing import Protocol, runtime_checkable
from uuid import UUID

from mlagents_envs.exception import UnitySideChannelException
from mlagents_envs.side_channel.messages import IncomingMessage
from mlagents_envs.side_channel.side_channel import SideChannel


class StatsAggregationMethod(Enum):
    """How the values of one statistic become one number (wire protocol, section 4.7)."""

    AVERAGE = 0
    MOST_RECENT = 1
    SUM = 2
    HISTOGRAM = 3
    """The mean, and beside it the distribution of all values."""


EnvironmentStats = Mapping[str, list[tuple[float, StatsAggregationMethod]]]
"""By name, the values recorded and how to aggregate each, in order of arrival."""


@runtime_checkable
class StatsSource(Protocol):
    """Records statistics about itself: this channel, or an environment in this process."""

    def get_and_reset_stats(self) -> EnvironmentStats:
        """Return what was recorded since the last call."""


class StatsSideChannel(SideChannel):
    """Receives the statistics a simulation records about itself. Never sends."""

    CHANNEL_ID = UUID("a1d8f7b7-cec8-50f9-b78b-d3e165a78520")

    def __init__(self) -> None:
        super().__init__(self.CHANNEL_ID)
        self._stats: dict[str, list[tuple[float, StatsAggregationMethod]]] = {}

    def on_message_received(self, msg: IncomingMessage) -> None:
        """Keep one value until the next `get_and_reset_stats`.

        Raises:
            UnitySideChannelException: The message cannot be read or aggregates in an unknown way.
        """
        key = msg.read_string()
        value = msg.read_float32()
        number = msg.read_int32()
        try:
            method = StatsAggregationMethod(number)
        except ValueError:
            raise UnitySideChannelException(
                f"statistic {key!r}: unknown aggregation {number}; "
                f"known are {[f'{known.value} {known.name}' for known in StatsAggregationMethod]}"
            ) from None
        self._stats.setdefault(key, []).append((value, method))

    def get_and_reset_stats(self) -> EnvironmentStats:
        """Return what arrived since the last call."""
        stats, self._stats = self._stats, {}
        return stats
