"""All settings of a run, as one immutable tree."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails

from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.settings.base import (
    LARGEST_INT32,
    Float,
    Float32,
    Int,
    Settings,
    list_of,
    problem,
    quoted,
    refuse,
)
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.evaluation import EvaluationSettings
from mlagents.trainers.settings.parameters import EnvironmentParameter, read_parameters, with_seeds
from mlagents.trainers.settings.search import SearchSettings
from mlagents_envs.base_env import behavior_name_problem
from mlagents_envs.folder_names import folder_name_problem
from mlagents_envs.suggestions import did_you_mean


class EnvironmentSettings(Settings):
    """Environment to train in, number of players, and restarts."""

    env_path: str | None = None
    """Environment: the path to an executable, a registered name such as `3DBall`, `gym:ID` with the
    id of a Gymnasium environment, or `module:function`, which is Python code to run. Without it,
    the environment is the Unity Editor on port 5004. A configuration downloaded by
    `mlagents-load-from-hf` may only use registered names and Gymnasium ids."""
    env_args: Annotated[
        tuple[str, ...] | None, list_of("texts, as in [--level, '3']", or_null=True)
    ] = None
    """Arguments for the executable. On the command line, this flag takes all arguments that follow
    it, so it must be the last one."""
    base_port: Int = Field(0, ge=0, le=65535)
    """Port of the first player that `--env` starts. Other players use the following ports. With
    0, each player uses any free port. The Editor always uses 5004."""
    num_envs: Int = Field(1, ge=1)
    """Number of environments that run in parallel."""
    players_per_process: Int | None = Field(None, ge=1)
    """Largest number of environments that share a process. With null, each has its own process, but
    worlds that only compute share at most one process per core. A build never shares its
    process."""
    num_areas: Int = Field(1, ge=1, le=LARGEST_INT32)
    """Number of copies of the training area in each environment."""
    timeout_wait: Int = Field(60, ge=1, le=LARGEST_INT32 // 1000)
    """Longest time to wait for a message from the environment, in seconds."""
    seed: Int = Field(-1, ge=-1, le=LARGEST_INT32)
    """Seed of all random numbers; -1 draws a seed and records it. Environments and samplers use
    this seed and the numbers that follow it."""
    max_lifetime_restarts: Int = Field(10, ge=-1)
    """Largest number of restarts of an environment in the run; -1 for no limit."""
    restarts_rate_limit_n: Int = Field(1, ge=-1)
    """Largest number of restarts of an environment within `restarts_rate_limit_period_s`; -1 for no
    limit."""
    restarts_rate_limit_period_s: Int = Field(60, ge=1)
    """Length of the period for `restarts_rate_limit_n`, in seconds."""

    @model_validator(mode="after")
    def _can_be_started_more_than_once(self) -> Self:
        if self.num_envs > 1 and not self.env_path:
            says = f"needs env_path (--env) when above 1: there is one Editor; got {self.num_envs}"
            refuse([problem("num_envs", says=says)])
        if self.base_port and self.base_port + self.num_envs - 1 > 65535:
            says = f"plus num_envs ({self.num_envs}) exceeds the last port, 65535"
            refuse([problem("base_port", says=says)])
        refuse(_problem_of_seeds(self.seed, self.num_envs, "environments (num_envs)"))
        return self


def _problem_of_seeds(
    seed: int, number: int, of_what: str, *section: str
) -> list[InitErrorDetails]:
    """Return a problem if any of `number` seeds, starting at `seed`, is too large to send."""
    largest = LARGEST_INT32 - max(number - 1, 0)
    if seed <= largest:
        return []
    says = (
        f"must be at most {largest}: {number} {of_what} are seeded with it and the numbers that "
        f"follow; got {seed}"
    )
    return [problem(*section, "seed", says=says)]


class EngineSettings(Settings):
    """Settings of the Unity engine."""

    width: Int = Field(84, ge=1, le=LARGEST_INT32)
    """Width of the window in pixels."""
    height: Int = Field(84, ge=1, le=LARGEST_INT32)
    """Height of the window in pixels."""
    quality_level: Int = Field(5, ge=0, le=LARGEST_INT32)
    """Unity's quality level."""
    time_scale: Float32 = Field(20.0, gt=0.0)
    """Number of simulated seconds per real second, if the machine is fast enough."""
    target_frame_rate: Int = Field(-1, ge=-1, le=LARGEST_INT32)
    """Largest number of frames rendered per second; -1 for no limit."""
    capture_frame_rate: Int = Field(60, ge=0, le=LARGEST_INT32)
    """Frames per simulated second; 0 couples simulated time to the clock."""
    no_graphics: bool = False
    """Run the players without graphics. Camera observations are then empty."""
    no_graphics_monitor: bool = False
    """Run all players except the first without graphics."""


def _below_results(run_id: str) -> str:
    """Accept names of folders below the results folder, such as `group/run`."""
    for part in run_id.split("/") if run_id else ():
        if problem := folder_name_problem(part):
            where = "" if part == run_id else f" ({part[:80]!r} in it)"
            raise ValueError(f"must be the name of a folder{where}: {problem}")
    return run_id


class CheckpointSettings(Settings):
    """Folder of the results, and checkpoints to start from."""

    run_id: Annotated[str, AfterValidator(_below_results)] = Field("ppo", min_length=1)
    """Name of the run: its folder below `results_dir`, such as `first` or `group/first`."""
    initialize_from: str | None = None
    """Name of an earlier run whose weights this run starts from. The step count starts at 0."""
    resume: bool = False
    """Continue the run of this name from its last checkpoint."""
    force: bool = False
    """Start from scratch even if a run of this name exists. The folder of that run is kept: it is
    renamed to a backup."""
    inference: bool = False
    """Only act until interrupted, without learning or saving."""
    film_every: Int | None = Field(None, ge=1)
    """Number of steps between films of the current policy; null for no films. A film is at most ten
    seconds long and is written to the run's folder `films`. A separate process with its own
    environment makes it, so training does not wait. The environment must be able to draw itself, as
    all worlds of this package can."""
    results_dir: str = Field("results", min_length=1)
    """Folder of all runs, relative to the working directory. It may contain `..` only if it is
    given on the command line."""

    @property
    def write_path(self) -> str:
        """Folder of the run."""
        return str(Path(self.results_dir, self.run_id))

    @property
    def run_logs_dir(self) -> str:
        """Folder of the run's logs."""
        return str(Path(self.write_path, "run_logs"))


def holds_run(folder: Path) -> bool:
    """Return whether the folder contains an earlier run that can be resumed."""
    return (folder / "run_logs" / "training_status.json").exists() or any(folder.glob("*/*.pt"))


class TorchSettings(Settings):
    """Settings of PyTorch."""

    device: str | None = None
    """Device to train on, such as `cpu` or `cuda:1`; by default, a GPU if one is available."""
    threads: Int | None = Field(None, ge=1)
    """Number of PyTorch's threads on the CPU; null for half of the CPUs, at most four."""
    learners: Int = Field(1, ge=1)
    """Number of learners: processes on this machine, each with its own `num_envs` environments and
    an equal share of `batch_size` and `buffer_size`. They combine their gradients, so they learn as
    one. This pays off for large networks and images."""
    mixed_precision: bool = False
    """Learn in bfloat16 where the loss of precision is small. This is faster for networks with at
    least 256 hidden units and for images, on a GPU or CPU that supports bfloat16; otherwise it is
    slower. Agents act in float32."""
    compile: bool = False
    """Compile the losses of PPO and SAC with a C++ compiler or, on a GPU, Triton. Compilation takes
    minutes and pays off in runs of hours. If it fails, a warning gives the reason and learning
    continues without it."""
    dense: Literal["auto", "native", "torch"] = "auto"
    """Library for the gradient steps of PPO and SAC with dense layers over vectors on the CPU.
    `native` is the native library, several times as fast for narrow networks; if it is missing, the
    run ends with an error. `torch` is PyTorch. `auto` is the native library if it is available and
    faster. Networks with images, memory or attention always use PyTorch, as do `mixed_precision`
    and `compile`."""


def _names(written: Any) -> Any:
    """Split names joined by commas, without repetitions."""
    if isinstance(written, str):
        names = [name.strip() for name in written.split(",")]
        return () if names == ["none"] else tuple(dict.fromkeys(names))
    if not isinstance(written, list | tuple):
        raise ValueError("must be a list of names, as in [tensorboard, wandb]")
    return written


class ClusterSettings(Settings):
    """Rollout workers: processes that act and collect experience, on this or other machines."""

    workers: Int | None = Field(None, ge=1)
    """Number of rollout workers, each with `num_envs` environments. With null, agents act in the
    process that learns."""
    address: str | None = Field(None, min_length=1)
    """Ray cluster that runs the workers: its address, `auto` for the cluster that this machine
    belongs to, or `local` to start a cluster on this machine for this run. With null, workers are
    plain processes on this machine."""
    cpus_per_worker: Float = Field(1.0, gt=0.0)
    """Number of CPUs that the cluster reserves for each worker."""
    gpus_per_worker: Float = Field(0.0, ge=0.0)
    """Number of GPUs that the cluster reserves for each worker."""
    mode: Literal["sync", "async"] = "sync"
    """With `sync`, all workers act with the same policy, and wait while it learns. With `async`,
    workers do not wait, and act with a policy that may be some updates old."""
    max_staleness: Int = Field(1, ge=0)
    """With `async`, the largest number of updates by which the policy that took a step may be older
    than the policy that learns from it. Older steps are dropped and counted, except with SAC. Above
    1, PPO corrects for the age with V-trace."""
    start_timeout_s: Int = Field(60, ge=1)
    """Time to wait for the cluster and its workers to start, in seconds."""

    @property
    def corrects_staleness(self) -> bool:
        """Whether learning corrects for steps of older policies."""
        return self.workers is not None and self.mode == "async" and self.max_staleness > 1

    @model_validator(mode="after")
    def _needs_workers(self) -> Self:
        if self.workers is None and self.address is not None:
            says = f"needs cluster.workers (--workers), got {quoted(self.address)}"
            refuse([problem("address", says=says)])
        return self


_MOST_BEHAVIORS = 1000
_WITHOUT_GROUPS = {"ppo", "sac", "bc"}
"""Trainer types that do not measure group rewards."""


class RunOptions(Settings):
    """All settings of one run."""

    default_settings: BehaviorSettings | None = None
    """Settings of behaviors that are not listed, and defaults for listed behaviors."""
    behaviors: dict[str, BehaviorSettings] = Field(default_factory=dict)
    """Settings of each behavior, by its name in the environment."""
    env_settings: EnvironmentSettings = EnvironmentSettings()
    """The environment."""
    engine_settings: EngineSettings = EngineSettings()
    """The Unity engine."""
    environment_parameters: dict[str, EnvironmentParameter] | None = None
    """Parameters of the environment, by name: constants, samplers or curricula."""
    checkpoint_settings: CheckpointSettings = CheckpointSettings()
    """Results and checkpoints."""
    torch_settings: TorchSettings = TorchSettings()
    """PyTorch."""
    callbacks: Annotated[tuple[str, ...], list_of("names, as in [my_module:my_function]")] = ()
    """Callbacks that follow the run, as `module:function` or `module:Class`. This is code to
    run."""
    track: Annotated[
        tuple[Literal["tensorboard", "jsonl", "wandb", "mlflow", "trackio"], ...],
        BeforeValidator(_names),
    ] = ("tensorboard", "jsonl")
    """Trackers that receive the statistics, as a list or joined by commas: `tensorboard`, `jsonl`
    (the file `stats.jsonl`), `wandb`, `mlflow`, `trackio`; or `none`."""
    evaluation: EvaluationSettings | None = None
    """Evaluation of the policies during training; `{}` enables it with defaults."""
    cluster: ClusterSettings = ClusterSettings()
    """Rollout workers."""
    search: SearchSettings | None = None
    """Search for better settings, which `mlagents-search` runs."""
    debug: bool = False
    """Log everything, including the players' own output and tracebacks of errors."""
    verbose: bool = False
    """Log all settings of each behavior at the start."""

    @classmethod
    def _message(cls, found: ErrorDetails) -> str:
        value = found["input"]
        if found["type"] == "extra_forbidden" and isinstance(value, Mapping):
            is_near = did_you_mean(found["loc"][-1], cls.model_fields)
            if not is_near and BehaviorSettings.model_fields.keys() & value.keys():
                return "unknown key; if it is a behavior, put it below `behaviors:`"
        return super()._message(found)

    @field_validator("behaviors", mode="before")
    @classmethod
    def _can_be_saved(cls, written: Any) -> Any:
        if not isinstance(written, Mapping):
            return written
        if len(written) > _MOST_BEHAVIORS:
            refuse([problem(says=f"at most {_MOST_BEHAVIORS} are possible, got {len(written)}")])
        refuse(
            [
                problem(name, says=f"this name is not possible: {says}")
                for name in map(str, written)
                if (says := behavior_name_problem(name))
            ]
        )
        return written

    @field_validator("environment_parameters", mode="before")
    @classmethod
    def _in_any_form(cls, written: Any) -> Any:
        return read_parameters(written) if isinstance(written, Mapping) else written

    @model_validator(mode="after")
    def _lessons_end_by_behaviors_there_are(self) -> Self:
        if self.default_settings or not self.behaviors:
            return self
        refuse(
            [
                problem(
                    *("environment_parameters", name, "curriculum", i),
                    *("completion_criteria", "behavior"),
                    says=f"no behavior of this name is configured, got {criteria.behavior!r}"
                    f"{did_you_mean(criteria.behavior, self.behaviors)}",
                )
                for name, parameter in (self.environment_parameters or {}).items()
                for i, lesson in enumerate(parameter.curriculum)
                if (criteria := lesson.completion_criteria)
                and criteria.behavior not in self.behaviors
            ]
        )
        return self

    @model_validator(mode="after")
    def _rewards_of_groups_are_counted(self) -> Self:
        refuse(
            [
                problem(
                    *("environment_parameters", name, "curriculum", i),
                    *("completion_criteria", "measure"),
                    says="group_reward needs trainer_type: poca of behavior "
                    f"{criteria.behavior!r}, got {self.behaviors[criteria.behavior].trainer_type}",
                )
                for name, parameter in (self.environment_parameters or {}).items()
                for i, lesson in enumerate(parameter.curriculum)
                if (criteria := lesson.completion_criteria)
                and criteria.measure == "group_reward"
                and criteria.behavior in self.behaviors
                and self.behaviors[criteria.behavior].trainer_type in _WITHOUT_GROUPS
            ]
        )
        return self

    @model_validator(mode="after")
    def _every_lesson_has_a_seed(self) -> Self:
        parameters = (self.environment_parameters or {}).values()
        n_lessons = sum(len(parameter.curriculum) for parameter in parameters)
        what = "lessons of environment_parameters"
        refuse(_problem_of_seeds(self.env_settings.seed, n_lessons, what, "env_settings"))
        return self

    @model_validator(mode="after")
    def _can_be_evaluated(self) -> Self:
        if self.evaluation is None or self.checkpoint_settings.inference:
            return self
        environment, n_envs = self.env_settings, self.evaluation.num_envs
        listed = {f"behaviors.{name}": each for name, each in self.behaviors.items()}
        for path, each in {"default_settings": self.default_settings, **listed}.items():
            if each is not None and each.self_play:
                says = (
                    f"is not possible with {path}.self_play: the reward of a policy against itself "
                    "does not show its strength. Watch Self-play/ELO, and compare models with "
                    "mlagents-play --tournament"
                )
                refuse([problem("evaluation", says=says)])
        n_players = environment.num_envs + n_envs
        if environment.base_port:
            last = environment.base_port + n_players - 1
            if last > 65535:
                says = f"leads to port {last}, above the last one, 65535; lower base_port"
                refuse([problem("evaluation", "num_envs", says=says)])
        what = "environments (num_envs and evaluation.num_envs)"
        refuse(_problem_of_seeds(environment.seed, n_players, what, "env_settings"))
        return self

    @model_validator(mode="after")
    def _can_be_spread(self) -> Self:
        """Refuse workers for runs whose agents can act in only one process."""
        n_workers, environment = self.cluster.workers, self.env_settings
        if n_workers is None:
            return self
        where = "cluster", "workers"
        problems = []
        if environment.env_path is None:
            says = f"needs env_path (--env): there is one Editor, got {n_workers}"
            problems.append(problem(*where, says=says))
        for name, behavior in self.behaviors.items():
            if self.cluster.corrects_staleness:
                kind, memory = behavior.trainer_type, behavior.network_settings.memory
                if kind not in ("ppo", "sac") or (kind == "ppo" and memory):
                    says = (
                        "above 1 works with sac, and with ppo without memory; behavior "
                        f"{name!r} has {'memory' if kind == 'ppo' else f'trainer_type {kind}'}"
                    )
                    problems.append(problem("cluster", "max_staleness", says=says))
        listed = {f"behaviors.{name}": each for name, each in self.behaviors.items()}
        for path, each in {"default_settings": self.default_settings, **listed}.items():
            if each is not None and each.self_play and each.self_play.league.exploiters:
                says = (
                    f"does not work with {path}.self_play.league.exploiters yet, got {n_workers}. "
                    "Use one process with more environments (--num-envs)"
                )
                problems.append(problem(*where, says=says))
        if self.torch_settings.learners > 1:
            says = f"does not work with several learners (--learners) yet, got {n_workers}"
            problems.append(problem(*where, says=says))
        n_players = n_workers * environment.num_envs
        if environment.base_port and environment.base_port + n_players - 1 > 65535:
            says = f"plus {n_players} players exceeds the last port, 65535"
            problems.append(problem("env_settings", "base_port", says=says))
        refuse(
            problems
            or _problem_of_seeds(
                environment.seed, n_players, "environments (workers times num_envs)", "env_settings"
            )
        )
        return self

    def as_dict(self) -> dict[str, Any]:
        """Return all settings as plain values, nested as in `configuration.yaml`.

        A search is not part of any run, so its settings are left out.
        """
        return self.model_dump(mode="json", exclude={"search"})

    @property
    def is_offline(self) -> bool:
        """Whether the run learns only from demonstrations and needs no environment."""
        return (
            bool(self.behaviors)
            and all(behavior.trainer_type == "bc" for behavior in self.behaviors.values())
            and not (self.env_settings.env_path or self.checkpoint_settings.inference)
        )

    def behavior_settings(self, name: str) -> BehaviorSettings:
        """Return the settings of a behavior that the environment announced.

        Raises:
            TrainerConfigError: The behavior is not listed and there are no default settings.
        """
        settings = self.behaviors.get(name, self.default_settings)
        if settings is None:
            raise TrainerConfigError(
                f"the environment has a behavior {name!r} that is not configured"
                f"{did_you_mean(name, self.behaviors) or '.'} Configured: "
                f"{', '.join(map(repr, self.behaviors)) or 'none'}. Add it below `behaviors:`, "
                "or write `default_settings:` for all behaviors that are not listed."
            )
        return settings

    def with_learners(self, learners: int) -> "RunOptions":
        """Return options with the given number of learners."""
        settings = self.torch_settings.model_copy(update={"learners": learners})
        return self.model_copy(update={"torch_settings": settings})

    def with_seed(self, seed: int) -> "RunOptions":
        """Return options with this seed for the run, and seeds for all samplers without one."""
        environment = self.env_settings.model_copy(update={"seed": seed})
        parameters = self.environment_parameters
        return self.model_copy(
            update={
                "env_settings": environment,
                "environment_parameters": parameters and with_seeds(parameters, seed),
            }
        )
