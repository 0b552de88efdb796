"""Side channel that configures the engine: window, quality, time scale, frame rates."""

from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from mlagents_envs.exception import UnityCommunicationException, UnitySideChannelException
from mlagents_envs.side_channel.messages import IncomingMessage, OutgoingMessage
from mlagents_envs.side_channel.side_channel import SideChannel


class ConfigurationType(IntEnum):
    """Setting that a message of this channel changes: an int32 before the new values."""

    SCREEN_RESOLUTION = 0
    QUALITY_LEVEL = 1
    TIME_SCALE = 2
    TARGET_FRAME_RATE = 3
    CAPTURE_FRAME_RATE = 4


class EngineConfig(NamedTuple):
    """Complete configuration of the engine.

    Attributes:
        width: Width of the window, in pixels.
        height: Height of the window, in pixels.
        quality_level: Quality level of the engine; 0 is the lowest.
        time_scale: Maximum number of simulated seconds per second.
        target_frame_rate: Maximum number of rendered frames per second; -1 for no limit.
        capture_frame_rate: Frames per simulated second, so that every frame advances the
            simulation by the same time however long it takes; 0 turns this off.
    """

    width: int
    height: int
    quality_level: int
    time_scale: float
    target_frame_rate: int
    capture_frame_rate: int

    @staticmethod
    def default_config() -> "EngineConfig":
        """Return the default: a small window of medium quality at 20 times real time."""
        return EngineConfig(80, 80, 1, 20.0, -1, 60)


class EngineConfigurationChannel(SideChannel):
    """Send-only channel that configures the engine of the simulation."""

    ConfigurationType = ConfigurationType
    CHANNEL_ID = UUID("e951342c-4f7e-11ea-b238-784f4387d1f7")

    def __init__(self) -> None:
        super().__init__(self.CHANNEL_ID)

    def on_message_received(self, msg: IncomingMessage) -> None:
        """Raise an error: simulations never send on this channel."""
        raise UnityCommunicationException(
            "the simulation sent a message on the engine configuration channel, which only carries "
            "messages to the simulation"
        )

    def set_configuration_parameters(
        self,
        width: int | None = None,
        height: int | None = None,
        quality_level: int | None = None,
        time_scale: float | None = None,
        target_frame_rate: int | None = None,
        capture_frame_rate: int | None = None,
    ) -> None:
        """Change the given settings and keep the others; `EngineConfig` has their units.

        Raises:
            UnitySideChannelException: Only one of width and height is given.
        """
        if (width is None) != (height is None):
            raise UnitySideChannelException(
                f"width is {width} and height is {height}: set both or neither"
            )
        if width is not None and height is not None:
            self._send_ints(ConfigurationType.SCREEN_RESOLUTION, width, height)
        if quality_level is not None:
            self._send_ints(ConfigurationType.QUALITY_LEVEL, quality_level)
        if time_scale is not None:
            message = OutgoingMessage()
            message.write_int32(ConfigurationType.TIME_SCALE)
            message.write_float32(time_scale)
            self.queue_message_to_send(message)
        if target_frame_rate is not None:
            self._send_ints(ConfigurationType.TARGET_FRAME_RATE, target_frame_rate)
        if capture_frame_rate is not None:
            self._send_ints(ConfigurationType.CAPTURE_FRAME_RATE, capture_frame_rate)

    def set_configuration(self, config: EngineConfig) -> None:
        """Change all settings."""
        self.set_configuration_parameters(**config._asdict())

    def _send_ints(self, *values: int) -> None:
        message = OutgoingMessage()
        for value in values:
            message.write_int32(value)
        self.queue_message_to_send(message)
