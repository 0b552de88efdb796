"""The trainer. Read `learn.py` first, `controller.py` second."""

from mlagents_envs import __version__

__all__ = ["__version__"]
