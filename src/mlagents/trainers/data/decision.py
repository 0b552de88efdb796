"""What a policy decided for a batch of agents."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import ActionTuple

CONTINUOUS_LIMIT = 3.0
"""Samples that are not squashed are clamped to plus and minus this and divided by it before an
environment sees them."""

LOG_STD_LIMITS = -20.0, 2.0
"""Least and largest log-deviation of an action that is squashed."""

MASKED_LOGIT = -1e8
"""Logit of an action that is not allowed."""


class Decision(NamedTuple):
    """Actions of N agents and what learning needs to know of how they were chosen.

    Attributes:
        action: What the environment is sent.
        continuous: (N, A) as learning is to see them: the sample itself before it was limited for
            the environment, or, of squashed actions, what the environment is sent.
        discrete: (N, K) chosen index of every branch.
        log_probs: (N, A + K) log-probability of each component: every continuous action, then
            every branch.
        entropy: Mean entropy of the distributions, in nats.
        memory: (N, memory size) what the agents remember from here on.
    """

    action: ActionTuple
    continuous: NDArray[np.float32]
    discrete: NDArray[np.int32]
    log_probs: NDArray[np.float32]
    entropy: float
    memory: NDArray[np.float32]

    def of(self, rows: slice) -> "Decision":
        """Return what was decided for some of the agents; the entropy stays that of all."""
        action = ActionTuple(self.action.continuous[rows], self.action.discrete[rows])
        return Decision(
            action,
            self.continuous[rows],
            self.discrete[rows],
            self.log_probs[rows],
            self.entropy,
            self.memory[rows],
        )
