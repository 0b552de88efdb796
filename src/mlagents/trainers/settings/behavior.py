"""Settings of a behavior: network, reward signals, imitation and self-play."""

import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, SerializeAsAny, ValidationInfo, field_validator, model_validator
from pydantic_core import InitErrorDetails

from mlagents.trainers.settings.base import (
    Float,
    Int,
    Settings,
    one_of,
    problem,
    quoted,
    read_each,
    refuse,
)
from mlagents.trainers.settings.hyperparameters import (
    HyperparameterSettings,
    PPOSettings,
    hyperparameter_models,
    hyperparameters_of,
)
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.suggestions import did_you_mean


class MemorySettings(Settings):
    """Recurrent memory: an LSTM between the body and the heads of the network."""

    sequence_length: Int = Field(64, ge=1)
    """Number of consecutive steps in a training sequence of the LSTM. Longer sequences allow longer
    memory."""
    memory_size: Int = Field(128, ge=2, multiple_of=2)
    """Size of an agent's memory: hidden state plus cell state, so it must be even."""


class NetworkSettings(Settings):
    """Body of a network: encoders of observations and the layers that follow."""

    normalize: bool = False
    """Whether vector observations are normalized with their running mean and variance."""
    hidden_units: Int = Field(128, ge=1)
    """Width of every hidden layer."""
    num_layers: Int = Field(2, ge=0)
    """Number of hidden layers; 0 also creates one."""
    vis_encode_type: Literal["simple", "nature_cnn", "resnet", "match3", "fully_connected"] = (
        "simple"
    )
    """Encoder of images. The shorter side must have at least 20, 36, 15, 5 or 1 pixels,
    respectively."""
    memory: MemorySettings | None = None
    """Recurrent memory; `{}` enables it with defaults."""
    goal_conditioning_type: Literal["hyper", "none"] = "hyper"
    """Use of goal observations: `hyper` computes weights from them, `none` treats them as ordinary
    inputs."""
    deterministic: bool = False
    """Whether agents take the most likely action instead of a sampled one."""


class RewardSignalSettings(Settings):
    """Settings shared by all reward signals."""

    gamma: Float = Field(0.99, ge=0.0, le=1.0)
    """Discount of the signal per step. Values closer to 1 give later rewards more weight."""
    strength: Float = Field(1.0, ge=0.0)
    """Factor applied to the reward of the signal."""
    network_settings: NetworkSettings = NetworkSettings()
    """Network of the signal. `extrinsic` has no network and ignores this setting."""


class ExtrinsicSettings(RewardSignalSettings):
    """Reward from the environment."""


class CuriositySettings(RewardSignalSettings):
    """Reward for transitions that a learned model predicts badly (arXiv:1705.05363)."""

    learning_rate: Float = Field(3e-4, ge=0.0)
    """Step size of the curiosity module's optimizer."""


class GailSettings(RewardSignalSettings):
    """Reward for behaving as in demonstrations (arXiv:1606.03476)."""

    learning_rate: Float = Field(3e-4, ge=0.0)
    """Step size of the discriminator's optimizer."""
    demo_path: str = Field(min_length=1)
    """Path to a `.demo` file, or to a folder of `.demo` files."""
    use_actions: bool = False
    """Whether the discriminator receives actions in addition to observations."""
    use_vail: bool = False
    """Whether a variational bottleneck slows the discriminator's learning."""


class RNDSettings(RewardSignalSettings):
    """Reward for observations unlike those seen before (arXiv:1810.12894)."""

    learning_rate: Float = Field(1e-4, ge=0.0)
    """Step size of the predictor's optimizer."""


REWARD_SIGNALS: dict[str, type[RewardSignalSettings]] = {
    "extrinsic": ExtrinsicSettings,
    "curiosity": CuriositySettings,
    "gail": GailSettings,
    "rnd": RNDSettings,
}
"""Models of the settings of reward signals, by key of `reward_signals`."""


def _read_reward_signal(name: str, written: Any) -> RewardSignalSettings:
    if name not in REWARD_SIGNALS:
        hint = did_you_mean(name, REWARD_SIGNALS)
        refuse(
            [problem(says=f"unknown reward signal{hint or '.'} Allowed: {one_of(REWARD_SIGNALS)}")]
        )
    return REWARD_SIGNALS[name].model_validate(written)


class BehavioralCloningSettings(Settings):
    """Supervised learning from demonstrations, in addition to reinforcement learning."""

    demo_path: str = Field(min_length=1)
    """Path to a `.demo` file, or to a folder of `.demo` files."""
    steps: Int = Field(0, ge=0)
    """Number of steps over which cloning fades out; 0 for cloning that does not fade out."""
    strength: Float = Field(1.0, gt=0.0)
    """Learning rate of cloning, relative to the policy's learning rate."""
    samples_per_update: Int = Field(0, ge=0)
    """Largest number of demonstrated steps in one pass; 0 for all."""
    num_epoch: Int | None = Field(None, ge=1)
    """Number of passes over the demonstrations in an update; null for 3."""
    batch_size: Int | None = Field(None, ge=1)
    """Number of demonstrated steps in one gradient step; null for the trainer's `batch_size`."""


class LeagueSettings(Settings):
    """Exploiters of self-play, which learn only to beat the current policy."""

    exploiters: Int = Field(0, ge=0, le=8)
    """Number of exploiters. Each needs as much memory as the behavior's policy and its learning."""
    exploiter_ratio: Float = Field(0.25, gt=0.0, lt=1.0)
    """Probability that a game trains an exploiter, if there are any, instead of the policy."""
    restart_at: Float = Field(0.7, gt=0.5, le=1.0)
    """Score against the current policy, over 50 games, at which an exploiter restarts. A draw
    counts as half a win."""
    restart_steps: Int = Field(100000, ge=1)
    """Number of its own steps after which an exploiter restarts at the latest."""
    restart_from: Literal["initial", "latest"] = "initial"
    """Weights with which an exploiter restarts: those of a new network, or of `init_path` if it is
    set, or the latest weights of the policy."""


class SelfPlaySettings(Settings):
    """Training against past versions of the policy."""

    save_steps: Int = Field(20000, ge=1)
    """Number of trainer steps between snapshots of the policy."""
    team_change: Int = Field(
        default_factory=lambda validated: 5 * validated.get("save_steps", 1), ge=1
    )
    """Number of trainer steps after which the learning team changes; defaults to 5 times
    `save_steps`."""
    swap_steps: Int = Field(2000, ge=1)
    """Number of steps of opponents after which they change their snapshots."""
    swap_at: Literal["episode", "step"] = "episode"
    """Time at which opponents change: at the end of their episode, or immediately. With `step`, the
    environments are reset when the learning team changes."""
    window: Int = Field(10, ge=1)
    """Number of snapshots to keep. Opponents are drawn from them."""
    play_against_latest_model_ratio: Float = Field(0.5, ge=0.0, le=1.0)
    """Probability of playing the current policy instead of a snapshot."""
    opponents: Literal["uniform", "pfsp", "even"] = "uniform"
    """Choice among the snapshots: `uniform` prefers none, `pfsp` prefers snapshots that beat the
    learner, `even` prefers snapshots of equal strength."""
    learn_from_both: bool = True
    """Whether to also learn from the steps of opponents that act with the current policy of the
    learning behavior. Requires `swap_at: episode`."""
    opponent: str | None = None
    """Scripted opponent, as `module:function`. The function gets the observations and the action
    mask of N agents and returns their actions."""
    opponent_ratio: Float = Field(0.1, ge=0.0, le=1.0)
    """Probability of playing the scripted opponent, if there is one."""
    keep_results: Int = Field(2000, ge=1)
    """Number of most recent games that count in the rating of the current policy."""
    initial_elo: Float = Field(1200.0, allow_inf_nan=False)
    """Rating of the first snapshot."""
    league: LeagueSettings = LeagueSettings()
    """Exploiters, which learn to beat the current policy."""

    @field_validator("opponent")
    @classmethod
    def _is_a_function(cls, name: str | None) -> str | None:
        if name is not None and not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name):
            says = f"must be module:function, such as my_bots:chase_ball, got {quoted(name)}"
            refuse([problem(says=says)])
        return name

    @model_validator(mode="after")
    def _exploiters_play_whole_episodes(self) -> Self:
        if self.league.exploiters and self.swap_at == "step":
            says = (
                "must be 'episode' with league.exploiters, which learn from whole games against "
                "one policy, got 'step'"
            )
            refuse([problem("swap_at", says=says)])
        return self


def _extrinsic_only() -> dict[str, RewardSignalSettings]:
    return {"extrinsic": ExtrinsicSettings()}


_NO_TRAINER = object()
"""Marks hyperparameters without a `trainer_type`."""


class BehaviorSettings(Settings):
    """Training of one behavior. Agents of the same behavior share one policy."""

    trainer_type: str = "ppo"
    """Algorithm: `ppo`, `sac`, `poca`, `bc`, the name of a plug-in's trainer type, or `module:name`
    of your own `TrainerType`."""
    legacy_defaults: bool = False
    """Whether hyperparameters have the defaults of the original ML-Agents: `policy_head_gain` is 1
    unless set."""
    hyperparameters: SerializeAsAny[HyperparameterSettings] = Field(
        default_factory=lambda validated: _read_hyperparameters({}, validated)
    )
    """Hyperparameters of the algorithm. They require `trainer_type` in the same mapping."""
    checkpoint_interval: Int = Field(500000, ge=1)
    """Number of steps between checkpoints."""
    network_settings: NetworkSettings = NetworkSettings()
    """Network of policy and critic."""
    reward_signals: dict[str, SerializeAsAny[RewardSignalSettings]] = Field(
        default_factory=_extrinsic_only
    )
    """Reward signals, by name. Without `default_settings`, this mapping replaces the default, so
    include `extrinsic` if it is needed."""
    init_path: str | None = None
    """Checkpoint to start from: a path, or a file name in the run given by `--initialize-from`."""
    keep_checkpoints: Int = 5
    """Number of checkpoints to keep. Older ones are deleted. 0 or less keeps all."""
    even_checkpoints: bool = False
    """Whether to spread `keep_checkpoints` checkpoints evenly over `max_steps`, instead of using
    `checkpoint_interval`."""
    max_steps: Int = Field(500000, ge=1)
    """Number of training steps of all agents in all environments together."""
    stop_at_reward: Float | None = Field(None, allow_inf_nan=False)
    """Mean reward of the last 100 episodes at which training ends; null to train until `max_steps`.
    MA-POCA adds the mean reward of the last 100 groups. With a curriculum, training does not end
    before the last lessons."""
    time_horizon: Int = Field(64, ge=1)
    """Number of steps of one agent after which its experience is passed to the trainer."""
    summary_freq: Int = Field(50000, ge=1)
    """Number of steps between two points of the training statistics."""
    threaded: bool = False
    """Whether to train the behavior in its own thread while the environment continues."""
    self_play: SelfPlaySettings | None = None
    """Training against past versions of the policy; `{}` enables it with defaults."""
    behavioral_cloning: BehavioralCloningSettings | None = None
    """Learning from demonstrations, in addition to the reward signals. With `bc`, demonstrations
    are the only source."""

    @model_validator(mode="before")
    @classmethod
    def _mark_hyperparameters_of_no_trainer(cls, written: Any) -> Any:
        if not isinstance(written, Mapping) or "trainer_type" in written:
            return written
        if not isinstance(written.get("hyperparameters"), Mapping):
            return written
        return {**written, "hyperparameters": _NO_TRAINER}

    @field_validator("trainer_type")
    @classmethod
    def _trainer_exists(cls, name: str) -> str:
        try:
            model = hyperparameters_of(name)
        except (UnityEnvironmentException, TypeError) as error:
            refuse([problem(says=str(error))])
        if model is None:
            known = hyperparameter_models()
            hint = did_you_mean(name, known) or "; no installed plug-in provides it"
            says = f"must be {one_of(known)}, got {name!r}{hint}"
            refuse([problem(says=says)])
        return name

    @field_validator("hyperparameters", mode="before")
    @classmethod
    def _follow_trainer_type(cls, written: Any, info: ValidationInfo) -> Any:
        if written is _NO_TRAINER:
            says = f"needs trainer_type ({one_of(hyperparameter_models())}) in the same mapping"
            refuse([problem(says=says)])
        if "trainer_type" not in info.data:
            return PPOSettings()  # trainer_type was refused, so the allowed keys are unknown
        return _read_hyperparameters(written, info.data)

    @field_validator("reward_signals", mode="before")
    @classmethod
    def _by_name(cls, written: Any) -> Any:
        if not isinstance(written, Mapping):
            return written
        if not written:
            refuse([problem(says=f"needs at least one of {one_of(REWARD_SIGNALS)}")])
        signals = read_each(written, _read_reward_signal)
        return {name: signals[name] for name in REWARD_SIGNALS if name in signals}

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = []
        batch_size, memory = self.hyperparameters.batch_size, self.network_settings.memory
        if memory and memory.sequence_length > batch_size:
            says = (
                f"must be at most hyperparameters.batch_size ({batch_size}), "
                f"got {memory.sequence_length}"
            )
            problems.append(problem("network_settings", "memory", "sequence_length", says=says))
        width = self.network_settings.hidden_units
        if self.trainer_type == "poca" and width % 4:
            says = f"must be a multiple of 4 for poca, whose attention has 4 heads, got {width}"
            problems.append(problem("network_settings", "hidden_units", says=says))
        if self.even_checkpoints and not 1 <= self.keep_checkpoints <= self.max_steps:
            says = (
                f"must be 1 to max_steps ({self.max_steps}) with even_checkpoints, "
                f"got {self.keep_checkpoints}"
            )
            problems.append(problem("keep_checkpoints", says=says))
        if getattr(self.hyperparameters, "n_step", 1) > 1 and (
            memory or list(self.reward_signals) != ["extrinsic"]
        ):
            says = "must be 1 with memory, or with reward signals other than extrinsic"
            problems.append(problem("hyperparameters", "n_step", says=says))
        if self.trainer_type == "bc" and self.self_play is not None:
            says = "does not apply to trainer_type bc, which learns only from demonstrations"
            problems.append(problem("self_play", says=says))
        refuse(problems + self._problems_of_cloning_alone())
        return self

    def _problems_of_cloning_alone(self) -> list[InitErrorDetails]:
        """Return problems of missing and of ignored settings with `trainer_type: bc`."""
        if self.trainer_type != "bc":
            return []
        problems = []
        if self.behavioral_cloning is None:
            says = "is required for trainer_type bc; set its demo_path"
            problems.append(problem("behavioral_cloning", says=says))
        else:
            for key, field in BehavioralCloningSettings.model_fields.items():
                value = getattr(self.behavioral_cloning, key)
                if key != "demo_path" and value != field.default:
                    says = f"does not apply to trainer_type bc; use hyperparameters; got {value}"
                    problems.append(problem("behavioral_cloning", key, says=says))
        if self.stop_at_reward is not None:
            says = "does not apply to trainer_type bc, which learns without rewards"
            problems.append(problem("stop_at_reward", says=says))
        for name in self.reward_signals.keys() - {"extrinsic"}:
            says = "does not apply to trainer_type bc, which learns only from demonstrations"
            problems.append(problem("reward_signals", name, says=says))
        return problems

    @model_validator(mode="after")
    def _spread_checkpoints(self) -> Self:
        if self.even_checkpoints:
            interval = self.max_steps // self.keep_checkpoints
            # The model is frozen, but this object is not in use yet.
            self.__dict__["checkpoint_interval"] = interval
        return self


def _hyperparameters_of(validated: Mapping[str, Any]) -> type[HyperparameterSettings]:
    """Return the model of the trainer type's hyperparameters, or of PPO if the type is unknown."""
    return hyperparameters_of(validated.get("trainer_type", "ppo")) or PPOSettings


def _read_hyperparameters(written: Any, validated: Mapping[str, Any]) -> HyperparameterSettings:
    """Return the hyperparameters of the trainer type, with legacy defaults if requested."""
    model = _hyperparameters_of(validated)
    if validated.get("legacy_defaults") and isinstance(written, Mapping):
        written = {**model.legacy_defaults, **written}
    return model.model_validate(written)
