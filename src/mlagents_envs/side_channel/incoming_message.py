"""`IncomingMessage`, at an import path of existing programs."""

from mlagents_envs.side_channel.messages import IncomingMessage

__all__ = ["IncomingMessage"]
