"""Side channel that exchanges bytes in a format of your own."""

from uuid import UUID

from mlagents_envs.side_channel.messages import IncomingMessage, OutgoingMessage
from mlagents_envs.side_channel.side_channel import SideChannel


class RawBytesChannel(SideChannel):
    """Channel that exchanges bytes in a format of your own.

    Args:
        channel_id: Id that both sides use.
    """

    def __init__(self, channel_id: UUID) -> None:
        super().__init__(channel_id)
        self._received: list[bytes] = []

    def on_message_received(self, msg: IncomingMessage) -> None:
        """Store the message until the next `get_and_clear_received_messages`."""
        self._received.append(msg.get_raw_bytes())

    def send_raw_data(self, data: bytes | bytearray) -> None:
        """Send one message with the next reset or step."""
        message = OutgoingMessage()
        message.set_raw_bytes(data)
        self.queue_message_to_send(message)

    def get_and_clear_received_messages(self) -> list[bytes]:
        """Return the messages that arrived since the last call, oldest first."""
        received, self._received = self._received, []
        return received
