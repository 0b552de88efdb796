"""Side channels: messages between a script and a simulation, beside observations and actions."""

from mlagents_envs.side_channel.messages import IncomingMessage, OutgoingMessage
from mlagents_envs.side_channel.side_channel import SideChannel

__all__ = ["IncomingMessage", "OutgoingMessage", "SideChannel"]
