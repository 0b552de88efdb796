"""Demonstrations of scripted experts."""

from contextlib import closing
from pathlib import Path

import numpy as np

from guess_environment import GuessEnvironment
from mlagents_envs.base_env import ActionSpec, ActionTuple
from mlagents_envs.demonstration_recorder import DemonstrationRecorder
from tasks import Task


def record_guesses(
    path: Path, spec: ActionSpec, *, n_steps: int, shown: str | None = None, recall: bool = False
) -> Path:
    """Record eight agents that always guess right, for `n_steps` steps each.

    Args:
        path: Of the file.
        spec: How they answer.
        n_steps: Of every agent.
        shown: A way of `tasks.SHOWN`; without it, the environment is `GuessEnvironment`.
        recall: Of `Task`.
    """
    env = (
        GuessEnvironment(spec, seed=99)
        if shown is None
        else Task(shown, spec, recall=recall, seed=99)
    )
    with closing(DemonstrationRecorder(env, path)) as recorder:
        recorder.reset()
        for _ in range(n_steps):
            number = env._number
            sides = (number > 0).astype(np.int32)
            action = ActionTuple(
                np.repeat(number, spec.continuous_size, axis=1),
                np.repeat(sides, spec.discrete_size, axis=1),
            )
            recorder.set_actions(env.BEHAVIOR, action)
            recorder.step()
    return path
