"""`OutgoingMessage`, at an import path of existing programs."""

from mlagents_envs.side_channel.messages import OutgoingMessage

__all__ = ["OutgoingMessage"]
