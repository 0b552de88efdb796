"""The trainer. Start reading at `learn.py`, then `run/controller.py`."""

from mlagents_envs import __version__

__all__ = ["__version__"]
