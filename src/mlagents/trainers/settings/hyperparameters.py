"""Hyperparameters of all algorithms.

A *step* is one decision of one agent. An *experience* is a stored step.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from mlagents.trainers.settings.base import Float, Int, Settings, problem, refuse
from mlagents_envs.factories import GYMNASIUM, find_factory, is_factory_name

Schedule = Literal["linear", "constant"]


def _as_learning_rate(validated: dict[str, Any]) -> Schedule:
    return "linear" if validated.get("learning_rate_schedule", "linear") == "linear" else "constant"


class HyperparameterSettings(Settings):
    """Hyperparameters shared by all algorithms. Settings of plug-ins derive from this class."""

    legacy_defaults: ClassVar[Mapping[str, Any]] = {}
    """Defaults of the original ML-Agents that differ, by key."""

    batch_size: Int = Field(1024, ge=1)
    """Number of experiences in one gradient step."""
    buffer_size: Int = Field(10240, ge=1)
    """Number of experiences to collect before an update."""
    learning_rate: Float = Field(3e-4, ge=0.0)
    """Step size of the Adam optimizer at the start of training. With 0, nothing is learned."""
    learning_rate_schedule: Schedule = "constant"
    """Schedule of the learning rate: `linear` decreases until `max_steps`, `constant` does not
    change."""
    max_grad_norm: Float | None = Field(None, gt=0.0)
    """Largest norm of the gradient of one step; a larger gradient is scaled down. null sets no
    limit."""


class OnPolicySettings(HyperparameterSettings):
    """Hyperparameters of PPO and MA-POCA. Both use each experience in only one update."""

    legacy_defaults: ClassVar[Mapping[str, Any]] = {"policy_head_gain": 1.0}

    learning_rate_schedule: Schedule | Literal["adaptive"] = "linear"  # type: ignore[assignment]  # wider
    """Schedule of the learning rate: `linear` decreases until `max_steps`, `constant` does not
    change, `adaptive` keeps the change of the policy near `desired_kl`."""
    desired_kl: Float = Field(0.01, gt=0.0)
    """Target KL divergence of the policy from the policy that acted, with `learning_rate_schedule:
    adaptive`. After a pass that ends above twice this value, the learning rate is divided by 1.5.
    After a pass that ends below half of it, the rate is multiplied by 1.5. It stays between 1e-5
    and 1e-2."""
    target_kl: Float | None = Field(None, gt=0.0)
    """Largest KL divergence of the policy from the policy that acted; null for no limit. If a pass
    ends above it, the update ends."""
    policy_head_gain: Float | None = Field(None, gt=0.0)
    """Factor applied to the initial weights of the policy's output layers. With a small factor, the
    first actions hardly depend on observations: choices are equally likely and means are near
    0. null is 0.05 for continuous actions and 1 for discrete actions."""
    normalize_advantages: Literal["buffer", "minibatch"] = "buffer"
    """Steps over which advantages are normalized: all steps of an update, or each minibatch."""
    normalize_values: bool = False
    """Whether the critic predicts returns in units of their running deviation, so that its gradient
    does not depend on the scale of rewards."""
    beta: Float = Field(5e-3, ge=0.0)
    """Weight of the entropy bonus. A larger weight keeps the policy exploring for longer."""
    beta_schedule: Schedule = Field(default_factory=_as_learning_rate)
    """Schedule of `beta`; defaults to `learning_rate_schedule`, or to `constant` with
    `adaptive`."""
    beta_floor: Float = Field(1e-5, ge=0.0)
    """Final value of `beta` with a linear `beta_schedule`, unless `beta` begins below it."""
    epsilon: Float = Field(0.2, ge=0.0)
    """Clipping range: relative change of an action's probability, in one update, beyond which the
    policy gains nothing."""
    epsilon_schedule: Schedule = Field(default_factory=_as_learning_rate)
    """Schedule of `epsilon`; defaults to `learning_rate_schedule`, or to `constant` with
    `adaptive`."""
    epsilon_floor: Float = Field(0.1, ge=0.0)
    """Final value of `epsilon` with a linear `epsilon_schedule`, unless `epsilon` begins below
    it."""
    joint_ratio: bool = False
    """Whether `epsilon` limits the probability of the whole action. If false, it limits each
    component: each continuous action and each branch."""
    joint_entropy: bool = False
    """Whether the entropy bonus uses the entropy of the whole action: the sum over its components.
    If false, it uses the mean over continuous actions plus the sum over branches."""
    clip_values: bool = False
    """Whether `epsilon` also limits the change of a value in one update, in units of reward."""
    normalize_each_signal: bool = False
    """Whether the advantages of each reward signal are normalized, so that the effect of `strength`
    does not depend on the scale of rewards. If false, only the sum over all signals is
    normalized."""
    lambd: Float = Field(0.95, ge=0.0, le=1.0)
    """Weight of rewards relative to values in advantage estimates: 0 for values only, 1 for rewards
    only."""
    num_epoch: Int = Field(3, ge=1)
    """Number of passes over the buffer in an update."""


class PPOSettings(OnPolicySettings):
    """Proximal policy optimization (arXiv:1707.06347)."""

    shared_critic: bool = False
    """Whether the policy and the value function share a network body."""


class POCASettings(OnPolicySettings):
    """MA-POCA: posthumous credit assignment in groups that share a reward (arXiv:2111.05992)."""


class SACSettings(HyperparameterSettings):
    """Soft actor-critic (arXiv:1801.01290)."""

    batch_size: Int = Field(128, ge=1)
    """Number of experiences in one gradient step."""
    buffer_size: Int = Field(50000, ge=1)
    """Number of experiences in the replay buffer. New ones replace the oldest."""
    buffer_init_steps: Int = Field(0, ge=0)
    """Number of steps before the first update."""
    tau: Float = Field(0.005, gt=0.0, le=1.0)
    """Fraction by which the target network moves toward the value network at each gradient
    step."""
    steps_per_update: Float = Field(1.0, gt=0.0)
    """Number of steps per gradient step. With many agents, set it to about their number."""
    reward_signal_steps_per_update: Float = Field(
        default_factory=lambda validated: validated.get("steps_per_update", 1.0), gt=0.0
    )
    """Number of steps per update of the reward signals; defaults to `steps_per_update`."""
    save_replay_buffer: bool = False
    """Whether checkpoints include the replay buffer, so that a resumed run continues with it."""
    init_entcoef: Float = Field(1.0, gt=0.0)
    """Initial entropy coefficient. A larger value leads to more exploration."""
    critic_norm: Literal["none", "layer"] = "none"
    """Normalization in the Q networks and the value network: `layer` normalizes the outputs of each
    dense layer."""
    n_step: Int = Field(1, ge=1)
    """Number of rewards in a target of Q before it uses a value. The sum ends earlier at the end of
    an episode or of a stored segment of at most 16 steps. More than 1 requires `extrinsic` as the
    only reward signal, and no memory."""

    @model_validator(mode="after")
    def _keeps_more_than_a_batch(self) -> Self:
        if self.buffer_size <= self.batch_size:
            says = (
                f"must be above batch_size ({self.batch_size}), so that experience is reused, "
                f"got {self.buffer_size}"
            )
            refuse([problem("buffer_size", says=says)])
        return self


class BCSettings(HyperparameterSettings):
    """Behavioral cloning: supervised learning from demonstrations only, without an environment."""

    batch_size: Int = Field(128, ge=1)
    """Number of demonstrated steps in one gradient step."""
    buffer_size: Int = Field(10240, ge=1)
    """Number of demonstrated steps to learn from before each evaluation on held-out episodes."""
    held_out: Float = Field(0.1, ge=0.0, lt=1.0)
    """Fraction of the demonstrated episodes that is held out for evaluation."""


BUILT_IN: Mapping[str, type[HyperparameterSettings]] = {
    "ppo": PPOSettings,
    "sac": SACSettings,
    "poca": POCASettings,
    "bc": BCSettings,
}
"""Models of `hyperparameters`, by built-in `trainer_type`."""

_OF_PLUGINS: ContextVar[Mapping[str, type[HyperparameterSettings]]] = ContextVar(
    "trainer types of plug-ins", default=MappingProxyType({})
)


def hyperparameter_models() -> dict[str, type[HyperparameterSettings]]:
    """Return the models of `hyperparameters`, by `trainer_type`, including plug-ins."""
    return {**BUILT_IN, **_OF_PLUGINS.get()}


def hyperparameters_of(trainer_type: str) -> type[HyperparameterSettings] | None:
    """Return the model of a trainer type's `hyperparameters`; None if the type is unknown.

    If the trainer type is `module:name`, the module is imported.

    Raises:
        UnityEnvironmentException: The module or the name does not exist, or must not be imported.
        TypeError: The imported object is not a trainer type.
    """
    if not names_code(trainer_type):
        return hyperparameter_models().get(trainer_type)
    model = getattr(find_factory(trainer_type), "settings", None)
    check_trainer_type(trainer_type, model)
    assert model is not None
    return model


def names_code(trainer_type: str) -> bool:
    """Return whether a trainer type is `module:name`."""
    return is_factory_name(trainer_type) and not trainer_type.startswith(GYMNASIUM)


@contextmanager
def with_trainer_types(of_plugins: Mapping[str, type[HyperparameterSettings]]) -> Iterator[None]:
    """Accept the trainer types of plug-ins in settings that are read in this context.

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
    """Raise unless a plug-in may define a trainer type of this name with these settings.

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
