"""`SideChannel`, and the router that delivers messages by channel id.

Each reset and step carries the messages of all side channels in one bytes field: for each message
the channel id, the length and the message itself.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from uuid import UUID

from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.logging_util import get_logger
from mlagents_envs.side_channel.messages import IncomingMessage, OutgoingMessage

logger = get_logger(__name__)

# Channel id in the byte order of a Microsoft GUID (`UUID.bytes_le`), and length of the message.
_RECORD_HEAD = struct.Struct("<16si")


class SideChannel(ABC):
    """Base class of channels for messages besides observations and actions.

    Both sides register a channel with the same id. Each `reset()` and `step()` sends the queued
    messages, and delivers the received messages before it returns.

    Args:
        channel_id: Id that both sides use, unique among an environment's channels.

    Attributes:
        message_queue: Messages to send with the next reset or step.
    """

    def __init__(self, channel_id: UUID) -> None:
        self._channel_id = channel_id
        self.message_queue: list[bytes] = []

    @property
    def channel_id(self) -> UUID:
        """Id that both sides use for this channel."""
        return self._channel_id

    def queue_message_to_send(self, msg: OutgoingMessage) -> None:
        """Queue the current content of `msg`, to be sent with the next reset or step."""
        self.message_queue.append(bytes(msg.buffer))

    @abstractmethod
    def on_message_received(self, msg: IncomingMessage) -> None:
        """Handle a message from the other side.

        The caller of `reset()` or `step()` gets any exception that this method raises.

        Args:
            msg: Message to read. Read the types in the order in which the other side wrote them.
        """


class SideChannelRouter:
    """Router of messages between the side channels of one environment and the wire.

    Args:
        channels: Channels, in the order in which their messages are sent.

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
                    f"{type(channel).__name__}; use a different id for each channel"
                )
            self._channels[channel.channel_id.bytes_le] = channel

    @property
    def channels(self) -> tuple[SideChannel, ...]:
        """All channels, in the order in which their messages are sent."""
        return tuple(self._channels.values())

    def collect(self) -> bytes:
        """Remove the messages from all queues, and return the bytes to send."""
        parts: list[bytes] = []
        for channel_id, channel in self._channels.items():
            for message in channel.message_queue:
                parts += (_RECORD_HEAD.pack(channel_id, len(message)), message)
            channel.message_queue.clear()
        return b"".join(parts)

    def deliver(self, data: bytes) -> None:
        """Deliver every message in `data` to its channel, in order.

        Messages of unknown channels are skipped, with one log line for each channel.

        Raises:
            UnityEnvironmentException: The data are malformed. No message was delivered.
        """
        for channel_id, message in list(records(data)):
            channel = self._channels.get(channel_id)
            if channel is not None:
                channel.on_message_received(IncomingMessage(message))
            elif channel_id not in self._unknown_ids:
                self._unknown_ids.add(channel_id)
                _log_skipped(UUID(bytes_le=channel_id))


def _log_skipped(channel_id: UUID) -> None:
    """Log that messages of a channel that is not registered are skipped."""
    from mlagents_envs.side_channel.stats_side_channel import StatsSideChannel  # derives from ours

    if channel_id == StatsSideChannel.CHANNEL_ID:  # most Unity players send statistics: no warning
        logger.info(
            "The simulation's statistics are skipped. To receive them, add a StatsSideChannel to "
            "`side_channels`."
        )
        return
    logger.warning(
        "Messages of side channel %s are skipped, because no channel with this id is registered. "
        "To receive them, add one to `side_channels`.",
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
