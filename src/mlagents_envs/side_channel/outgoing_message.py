"""`OutgoingMessage` at the import path that existing programs use."""

from mlagents_envs.side_channel.messages import OutgoingMessage

__all__ = ["OutgoingMessage"]
