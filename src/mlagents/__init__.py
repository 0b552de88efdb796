"""Training: rollout, algorithms, checkpoints, export and the command `mlagents-learn`."""

from mlagents_envs import __version__

__all__ = ["__version__"]
