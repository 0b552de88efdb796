"""`ScriptedPolicy`: a user's function that acts instead of a network."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlagents.trainers.data.decision import Decision
from mlagents.trainers.exception import UnityTrainerException
from mlagents_envs.base_env import ActionSpec, ActionTuple

FloatArray = NDArray[np.float32]

Script = Callable[[Sequence[NDArray[Any]], NDArray[np.bool_]], ActionTuple]
"""Function that decides for N agents. Its arguments are a list with one array (N, *shape) per
observation, and the action mask (N, sum of branches). The mask is True where an action is not
allowed."""


class ScriptedPolicy:
    """Policy that calls a function for every decision.

    Args:
        name: Name of the function, for messages.
        script: The function.
        spec: Specification of the actions.

    Attributes:
        name: Name of the function.
        spec: Specification of the actions.
    """

    def __init__(self, name: str, script: Script, spec: ActionSpec) -> None:
        self.spec = spec
        self.name = name
        self._script = script

    def act(
        self,
        obs: Sequence[NDArray[Any]],
        action_mask: NDArray[np.bool_],
        memory: FloatArray | None = None,
    ) -> Decision:
        """Decide for N agents; see `ActingPolicy.act`.

        Raises:
            UnityTrainerException: The function did not return one action for each agent.
        """
        action: object = self._script(obs, action_mask)
        n_agents, spec = len(obs[0]), self.spec
        expected = [(n_agents, spec.continuous_size), (n_agents, spec.discrete_size)]
        if not isinstance(action, ActionTuple):
            came = f"a {type(action).__name__}"
        else:
            shapes = [action.continuous.shape, action.discrete.shape]
            came = f"an ActionTuple of {shapes[0]} continuous and {shapes[1]} discrete actions"
            if shapes == expected:
                log_probs = np.zeros((n_agents, spec.continuous_size + spec.discrete_size))
                return Decision(
                    action,
                    action.continuous,
                    action.discrete,
                    log_probs.astype(np.float32),
                    0.0,
                    np.zeros((n_agents, 0), np.float32) if memory is None else memory,
                )
        raise UnityTrainerException(
            f"the scripted opponent {self.name} returned {came}; expected an "
            f"mlagents_envs.base_env.ActionTuple of {expected[0]} continuous and {expected[1]} "
            "discrete actions: one row for each agent."
        )
