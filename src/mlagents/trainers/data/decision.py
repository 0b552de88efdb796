"""`Decision`: the decisions of a policy for a batch of agents."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import ActionTuple

CONTINUOUS_LIMIT = 3.0
"""Limit of unsquashed samples. Before they are sent to the environment, they are clamped to plus
and minus this limit and divided by it."""

LOG_STD_LIMITS = -20.0, 2.0
"""Smallest and largest log-deviation of a squashed action."""

MASKED_LOGIT = -1e8
"""Logit of a masked action."""


class Decision(NamedTuple):
    """Actions of N agents, and the quantities needed to learn from them.

    Attributes:
        action: Actions to send to the environment.
        continuous: (N, A) continuous actions for learning: the samples before they are clamped or,
            if squashed, the actions sent to the environment.
        discrete: (N, K) chosen index of each branch.
        log_probs: (N, A + K) log-probability of each component: each continuous action, then each
            branch.
        entropy: Mean entropy of the distributions, in nats.
        memory: (N, memory size) memory of the agents after the decision.
    """

    action: ActionTuple
    continuous: NDArray[np.float32]
    discrete: NDArray[np.int32]
    log_probs: NDArray[np.float32]
    entropy: float
    memory: NDArray[np.float32]

    def of(self, rows: slice) -> "Decision":
        """Return the decisions for some of the agents; `entropy` still covers all agents."""
        action = ActionTuple(self.action.continuous[rows], self.action.discrete[rows])
        return Decision(
            action,
            self.continuous[rows],
            self.discrete[rows],
            self.log_probs[rows],
            self.entropy,
            self.memory[rows],
        )
