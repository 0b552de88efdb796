"""Side channel that reports the versions of Python and this package to the simulation."""

import platform
from uuid import UUID

from mlagents_envs import __version__
from mlagents_envs.exception import UnityCommunicationException
from mlagents_envs.messages import TrainingEnvironmentInitialized, field
from mlagents_envs.side_channel.messages import IncomingMessage, OutgoingMessage
from mlagents_envs.side_channel.side_channel import SideChannel

_TYPE_URL = b"type.googleapis.com/communicator_objects.TrainingEnvironmentInitialized"


class DefaultTrainingAnalyticsSideChannel(SideChannel):
    """Send-only channel that reports the versions of Python and this package once.

    Unity may forward them to its analytics. The channel is off unless you add it to
    `side_channels`. Its message is then sent with the first reset.
    """

    CHANNEL_ID = UUID("b664a4a9-d86f-5a5f-95cb-e8353a7e8356")

    def __init__(self) -> None:
        super().__init__(self.CHANNEL_ID)
        told: bytes = TrainingEnvironmentInitialized(
            mlagents_version="Custom",  # the protocol's value for scripts that are not the trainer
            mlagents_envs_version=__version__,
            python_version=platform.python_version(),
            torch_version="Unknown",
            torch_device_type="Unknown",
        ).SerializeToString()
        message = OutgoingMessage()
        message.set_raw_bytes(field(1, _TYPE_URL) + field(2, told))  # a google.protobuf.Any
        self.queue_message_to_send(message)

    def on_message_received(self, msg: IncomingMessage) -> None:
        """Raise an error: simulations never send on this channel."""
        raise UnityCommunicationException(
            "the simulation sent a message on the training analytics channel, which only carries "
            "messages to the simulation"
        )
