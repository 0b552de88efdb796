"""Settings of evaluations: the key `evaluation`."""

from pydantic import Field

from mlagents.trainers.settings.base import Float, Int, Settings


class EvaluationSettings(Settings):
    """Evaluation of the policies during training, in separate players.

    The policies do not learn from these episodes. Training waits for them.
    """

    every: Int = Field(50000, ge=1)
    """Number of steps of a behavior between evaluations. All behaviors are evaluated together."""
    episodes: Int = Field(20, ge=1)
    """Number of episodes of each behavior in an evaluation. The episodes that begin first count."""
    deterministic: bool = False
    """Whether agents take the most likely action instead of a sampled one."""
    num_envs: Int = Field(1, ge=1)
    """Number of players for evaluation. Their worker ids and ports follow those of training."""
    most_steps: Int = Field(20000, ge=1)
    """Number of decisions of a player after which an evaluation ends, even if episodes are still
    running. Only finished episodes count."""
    stop_at_reward: Float | None = None
    """Mean reward of an evaluation at which the training of a behavior ends. With a curriculum,
    training does not end before the last lessons."""
    patience: Int | None = Field(None, ge=1)
    """Number of consecutive evaluations without a new best one after which the training of a
    behavior ends; null for no limit."""
