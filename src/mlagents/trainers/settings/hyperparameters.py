"""The hyperparameters of every algorithm: all the numbers you can tune.

*Steps* are agent steps: one decision of one agent. *Experiences* are the same, once stored.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from mlagents.trainers.settings.base import Float, Int, Settings, problem, refuse

Schedule = Literal["linear", "constant"]


def _as_learning_rate(validated: dict[str, Any]) -> Schedule:
    schedule: Schedule = validated.get("learning_rate_schedule", "linear")
    return schedule


class HyperparameterSettings(Settings):
    """What every algorithm has; a plug-in's settings derive from this."""

    batch_size: Int = Field(1024, ge=1)
    """Experiences in one gradient step."""
    buffer_size: Int = Field(10240, ge=1)
    """Experiences collected before an update."""
    learning_rate: Float = Field(3e-4, ge=0.0)
    """Step size of the Adam optimizer at the start of training; 0 learns nothing."""
    learning_rate_schedule: Schedule = "constant"
    """Whether the learning rate falls linearly until `max_steps` or stays."""
    max_grad_norm: Float | None = Field(None, gt=0.0)
    """Norm that the gradient of one step is scaled down to when it is longer; null never does."""


class OnPolicySettings(HyperparameterSettings):
    """What PPO and MA-POCA share: they learn from fresh experience, then drop it."""

    learning_rate_schedule: Schedule = "linear"
    """Whether the learning rate falls linearly until `max_steps` or stays."""
    beta: Float = Field(5e-3, ge=0.0)
    """Weight of the entropy bonus; more keeps the policy exploring for longer."""
    beta_schedule: Schedule = Field(default_factory=_as_learning_rate)
    """Schedule of `beta`; unless written, that of the learning rate."""
    beta_floor: Float = Field(1e-5, ge=0.0)
    """Where a linear `beta_schedule` ends, unless `beta` begins below it."""
    epsilon: Float = Field(0.2, ge=0.0)
    """Largest relative change of an action's probability that one update rewards."""
    epsilon_schedule: Schedule = Field(default_factory=_as_learning_rate)
    """Schedule of `epsilon`; unless written, that of the learning rate."""
    epsilon_floor: Float = Field(0.1, ge=0.0)
    """Where a linear `epsilon_schedule` ends, unless `epsilon` begins below it."""
    joint_ratio: bool = False
    """Whether `epsilon` limits the probability of an action as a whole; else of every component,
    each continuous action and each branch, by itself."""
    joint_entropy: bool = False
    """Whether `beta` pays for the entropy of an action as a whole, the sum over its components;
    else continuous actions count with their mean, branches with their sum."""
    clip_values: bool = False
    """Whether `epsilon` also limits how far one update moves a value, in units of reward."""
    normalize_each_signal: bool = False
    """Whether the advantages of every reward signal are normalized, so that `strength` is its share
    however large its rewards are; else only their sum is."""
    lambd: Float = Field(0.95, ge=0.0, le=1.0)
    """Trust in rewards over values when advantages are estimated: 0 values only, 1 rewards only."""
    num_epoch: Int = Field(3, ge=1)
    """Passes over the buffer in one update."""


class PPOSettings(OnPolicySettings):
    """Proximal policy optimization (arXiv:1707.06347)."""

    shared_critic: bool = False
    """Whether policy and value function share one network body."""


class POCASettings(OnPolicySettings):
    """MA-POCA: posthumous credit in groups that share a reward (arXiv:2111.05992)."""


class SACSettings(HyperparameterSettings):
    """Soft actor-critic (arXiv:1801.01290)."""

    batch_size: Int = Field(128, ge=1)
    """Experiences in one gradient step."""
    buffer_size: Int = Field(50000, ge=1)
    """Experiences the replay buffer holds before the oldest are dropped."""
    buffer_init_steps: Int = Field(0, ge=0)
    """Steps taken before the first update."""
    tau: Float = Field(0.005, gt=0.0, le=1.0)
    """Share of the value network that moves into the target network at each gradient step."""
    steps_per_update: Float = Field(1.0, gt=0.0)
    """Steps taken for each gradient step; with many agents, about their number."""
    reward_signal_steps_per_update: Float = Field(
        default_factory=lambda validated: validated.get("steps_per_update", 1.0), gt=0.0
    )
    """Steps taken for each update of the reward signals; unless written, `steps_per_update`."""
    save_replay_buffer: bool = False
    """Whether the replay buffer is saved with the checkpoints, to resume with it."""
    init_entcoef: Float = Field(1.0, gt=0.0)
    """Entropy coefficient at the start; more explores more."""

    @model_validator(mode="after")
    def _keeps_more_than_a_batch(self) -> Self:
        if self.buffer_size <= self.batch_size:
            says = (
                f"must be above batch_size ({self.batch_size}), to be learned from again, "
                f"got {self.buffer_size}"
            )
            refuse([problem("buffer_size", says=says)])
        return self


class BCSettings(HyperparameterSettings):
    """Behavioral cloning: supervised learning from demonstrations alone, no environment needed."""

    batch_size: Int = Field(128, ge=1)
    """Demonstrated steps in one gradient step."""
    buffer_size: Int = Field(10240, ge=1)
    """Demonstrated steps to learn from before the next look at those held out."""
    held_out: Float = Field(0.1, ge=0.0, lt=1.0)
    """Share of the demonstrated episodes that is only predicted, to see what was learned."""


BUILT_IN: Mapping[str, type[HyperparameterSettings]] = {
    "ppo": PPOSettings,
    "sac": SACSettings,
    "poca": POCASettings,
    "bc": BCSettings,
}
"""Values of `trainer_type` that are built in, and the model that `hyperparameters` then follows."""

_OF_PLUGINS: ContextVar[Mapping[str, type[HyperparameterSettings]]] = ContextVar(
    "trainer types of plug-ins", default=MappingProxyType({})
)


def hyperparameter_models() -> dict[str, type[HyperparameterSettings]]:
    """Return what `trainer_type` may be here, and the model that `hyperparameters` then follows."""
    return {**BUILT_IN, **_OF_PLUGINS.get()}


@contextmanager
def with_trainer_types(of_plugins: Mapping[str, type[HyperparameterSettings]]) -> Iterator[None]:
    """Let `trainer_type` be a name of a plug-in too, for settings read in this context.

    Args:
        of_plugins: Model of `hyperparameters` by `trainer_type`.

    Raises:
        ValueError: A name is built in.
        TypeError: A model does not derive from `HyperparameterSettings`.
    """
    for name, model in of_plugins.items():
        check_trainer_type(name, model)
    token = _OF_PLUGINS.set(of_plugins)
    try:
        yield
    finally:
        _OF_PLUGINS.reset(token)


def check_trainer_type(name: str, model: object) -> None:
    """Raise unless a plug-in may bring a trainer type of this name with these settings.

    Raises:
        ValueError: The name is built in.
        TypeError: The model does not derive from `HyperparameterSettings`.
    """
    if not (isinstance(model, type) and issubclass(model, HyperparameterSettings)):
        raise TypeError(
            f"trainer_type {name!r}: its settings must be a class derived from "
            f"{HyperparameterSettings.__module__}.HyperparameterSettings, got {model!r}"
        )
    if name in BUILT_IN:
        raise ValueError(f"trainer_type {name!r} is built in; choose another name")
