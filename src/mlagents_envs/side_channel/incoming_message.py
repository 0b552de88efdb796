"""`IncomingMessage` at the import path that existing programs use."""

from mlagents_envs.side_channel.messages import IncomingMessage

__all__ = ["IncomingMessage"]
