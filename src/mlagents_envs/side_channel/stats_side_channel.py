"""Side channel that receives the statistics of a simulation."""

from collections.abc import Mapping
from enum import Enum
from typing import Protocol, runtime_checkable
from uuid import UUID

from mlagents_envs.exception import UnitySideChannelException
from mlagents_envs.side_channel.messages import IncomingMessage
from mlagents_envs.side_channel.side_channel import SideChannel


class StatsAggregationMethod(Enum):
    """Method that reduces the values of a statistic to one number: the last int32 of a message."""

    AVERAGE = 0
    MOST_RECENT = 1
    SUM = 2
    HISTOGRAM = 3
    """Mean, shown together with the distribution of all values."""


EnvironmentStats = Mapping[str, list[tuple[float, StatsAggregationMethod]]]
"""Pairs (value, aggregation method) of each statistic by name, in order of arrival."""


@runtime_checkable
class StatsSource(Protocol):
    """Source of statistics: this channel, or an environment in this process."""

    def get_and_reset_stats(self) -> EnvironmentStats:
        """Return the statistics recorded since the last call."""


class StatsSideChannel(SideChannel):
    """Receive-only channel for the statistics of a simulation."""

    CHANNEL_ID = UUID("a1d8f7b7-cec8-50f9-b78b-d3e165a78520")

    def __init__(self) -> None:
        super().__init__(self.CHANNEL_ID)
        self._stats: dict[str, list[tuple[float, StatsAggregationMethod]]] = {}

    def on_message_received(self, msg: IncomingMessage) -> None:
        """Store one value until the next `get_and_reset_stats`.

        Raises:
            UnitySideChannelException: The message cannot be read, or its aggregation method is
                unknown.
        """
        key = msg.read_string()
        value = msg.read_float32()
        number = msg.read_int32()
        try:
            method = StatsAggregationMethod(number)
        except ValueError:
            raise UnitySideChannelException(
                f"statistic {key!r}: unknown aggregation method {number}; expected one of "
                f"{[f'{known.value} {known.name}' for known in StatsAggregationMethod]}"
            ) from None
        self._stats.setdefault(key, []).append((value, method))

    def get_and_reset_stats(self) -> EnvironmentStats:
        """Return the statistics that arrived since the last call."""
        stats, self._stats = self._stats, {}
        return stats
