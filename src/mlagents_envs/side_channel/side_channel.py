"""`SideChannel`, and the router that delivers by UUID.

Messages of side channels ride along with resets and steps, many in one bytes field (wire
protocol, section 4.1): per message the id of the channel, the length and the message itself.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from uuid import UUID

from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.logging_util import get_logger
from mlagents_envs.side_channel.messages import IncomingMessage, OutgoingMessage

logger = get_logger(__name__)

# The id in the byte order of a Microsoft GUID (`UUID.bytes_le`), the length of the message.
_RECORD_HEAD = struct.Struct("<16si")


class SideChannel(ABC):
    """Messages between a script and a simulation, beside observations and actions.

    Both sides register a channel of the same id. Messages travel with `reset()` and `step()`
    only: what is queued goes out with the next one, what arrived is delivered before it returns.

    Args:
        channel_id: Id that both sides use, unique among an environment's channels.

    Attributes:
        message_queue: Messages that wait for the next reset or step.
    """

    def __init__(self, channel_id: UUID) -> None:
        self._channel_id = channel_id
        self.message_queue: list[bytes] = []

    @property
    def channel_id(self) -> UUID:
        """What tells this channel's messages from those of others."""
        return self._channel_id

    def queue_message_to_send(self, msg: OutgoingMessage) -> None:
        """Send `msg`, as it is now, with the next reset or step."""
        self.message_queue.append(bytes(msg.buffer))

    @abstractmethod
    def on_message_received(self, msg: IncomingMessage) -> None:
        """Handle a message from the other side; an exception ends the step and reaches the caller.

        Args:
            msg: To be read with the types the other side wrote.
        """


class SideChannelRouter:
    """Gathers what the channels of one environment send, and delivers what they receive.

    Args:
        channels: In the order in which their messages are sent.

    Raises:
        UnityEnvironmentException: Two channels have the same id.
    """

    def __init__(self, channels: Iterable[SideChannel]) -> None:
        self._channels: dict[bytes, SideChannel] = {}
        self._unknown_ids: set[bytes] = set()
        for channel in channels:
            if channel.channel_id.bytes_le in self._channels:
                raise UnityEnvironmentException(
                    f"two side channels have the id {channel.channel_id}, the second a "
                    f"{type(channel).__name__}; an environment has one channel per id"
                )
            self._channels[channel.channel_id.bytes_le] = channel

    @property
    def channels(self) -> tuple[SideChannel, ...]:
        """All channels, in the order in which their messages are sent."""
        return tuple(self._channels.values())

    def collect(self) -> bytes:
        """Empty all queues into the bytes to send."""
        parts: list[bytes] = []
        for channel_id, channel in self._channels.items():
            for message in channel.message_queue:
                parts += (_RECORD_HEAD.pack(channel_id, len(message)), message)
            channel.message_queue.clear()
        return b"".join(parts)

    def deliver(self, data: bytes) -> None:
        """Hand every message in `data` to its channel, in order.

        Messages of an unknown channel are skipped; each such channel is warned about once.

        Raises:
            UnityEnvironmentException: The data are malformed; then nothing was delivered.
        """
        for channel_id, message in list(records(data)):
            channel = self._channels.get(channel_id)
            if channel is not None:
                channel.on_message_received(IncomingMessage(message))
            elif channel_id not in self._unknown_ids:
                self._unknown_ids.add(channel_id)
                _tell_skipped(UUID(bytes_le=channel_id))


def _tell_skipped(channel_id: UUID) -> None:
    """Log that messages of a channel that is not registered are skipped."""
    from mlagents_envs.side_channel.stats_side_channel import StatsSideChannel  # derives from ours

    if channel_id == StatsSideChannel.CHANNEL_ID:  # most Unity players record some
        logger.info(
            "The simulation's statistics are skipped. Add a StatsSideChannel to `side_channels` to "
            "receive them."
        )
        return
    logger.warning(
        "Messages of side channel %s are skipped, for it is not registered at this end. Add a "
        "channel of that id to `side_channels`.",
        channel_id,
    )


def records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield (channel id as `UUID.bytes_le`, message) of each record in `data`.

    Raises:
        UnityEnvironmentException: The data are malformed.
    """
    position = 0
    while position < len(data):
        begin = position + _RECORD_HEAD.size
        if begin > len(data):
            raise UnityEnvironmentException(
                f"malformed side-channel data: {len(data) - position} bytes at byte {position}, "
                f"where a channel id and a length ({_RECORD_HEAD.size} bytes) were expected"
            )
        channel_id, length = _RECORD_HEAD.unpack_from(data, position)
        position = begin + length
        if not begin <= position <= len(data):
            raise UnityEnvironmentException(
                f"malformed side-channel data: channel {UUID(bytes_le=channel_id)} announces a "
                f"message of {length} bytes at byte {begin}, but {len(data) - begin} are left"
            )
        yield channel_id, data[begin:position]
