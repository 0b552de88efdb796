"""Side channel that shares named numbers between a script and a simulation."""

from uuid import UUID

from mlagents_envs.side_channel.messages import IncomingMessage, OutgoingMessage
from mlagents_envs.side_channel.side_channel import SideChannel


class FloatPropertiesChannel(SideChannel):
    """Channel that shares named numbers with the simulation; either side may set them.

    Args:
        channel_id: Id of the channel; None for the default of simulations.
    """

    CHANNEL_ID = UUID("60ccf7d0-4f7e-11ea-b238-784f4387d1f7")

    def __init__(self, channel_id: UUID | None = None) -> None:
        super().__init__(self.CHANNEL_ID if channel_id is None else channel_id)
        self._properties: dict[str, float] = {}

    def on_message_received(self, msg: IncomingMessage) -> None:
        """Store the number that the simulation set."""
        key = msg.read_string()
        self._properties[key] = msg.read_float32()

    def set_property(self, key: str, value: float) -> None:
        """Set a number. The simulation receives it with the next reset or step."""
        message = OutgoingMessage()
        message.write_string(key)
        message.write_float32(value)
        self.queue_message_to_send(message)
        self._properties[key] = value

    def get_property(self, key: str) -> float | None:
        """Return the value that either side set last; None if the number was never set."""
        return self._properties.get(key)

    def list_properties(self) -> list[str]:
        """Return the names of all numbers, in the order in which they were first set."""
        return list(self._properties)

    def get_property_dict_copy(self) -> dict[str, float]:
        """Return a copy of all numbers by name."""
        return dict(self._properties)
