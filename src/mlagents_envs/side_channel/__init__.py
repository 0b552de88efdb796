"""Side channels: messages between a script and a simulation besides observations and actions."""

from mlagents_envs.side_channel.default_training_analytics_side_channel import (
    DefaultTrainingAnalyticsSideChannel,
)
from mlagents_envs.side_channel.messages import IncomingMessage, OutgoingMessage
from mlagents_envs.side_channel.side_channel import SideChannel

__all__ = [
    "DefaultTrainingAnalyticsSideChannel",
    "IncomingMessage",
    "OutgoingMessage",
    "SideChannel",
]
