"""`SideChannelManager`: the side-channel router under the names that existing programs use."""

from collections.abc import Iterable

from mlagents_envs.side_channel.side_channel import SideChannel, SideChannelRouter


class SideChannelManager(SideChannelRouter):
    """A `SideChannelRouter` with the method names of ML-Agents.

    Args:
        side_channels: Channels, in the order in which their messages are sent.

    Raises:
        UnityEnvironmentException: Two channels have the same id.
    """

    def __init__(self, side_channels: Iterable[SideChannel]) -> None:
        super().__init__(side_channels)

    generate_side_channel_messages = SideChannelRouter.collect
    process_side_channel_message = SideChannelRouter.deliver
