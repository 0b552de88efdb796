"""The former import path of `mlagents_envs.demonstration_recorder`."""

from mlagents_envs.demonstration_recorder import DemonstrationRecorder as DemonstrationRecorder
