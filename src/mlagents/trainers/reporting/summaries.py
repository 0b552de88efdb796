"""Texts for the user before and after a run: its setup, its outcome, and the next commands."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from mlagents.trainers.cli_args import FLAGS
from mlagents.trainers.reporting.progress import hours
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.run_options import RunOptions
from mlagents.trainers.settings.typed import CommandLine
from mlagents_envs.base_env import (
    ActionSpec,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)
from mlagents_envs.launcher import LAST_LINES
from mlagents_envs.programs import command, program

Lines = list[tuple[str, str]]


def run_in_words(options: RunOptions, *, device: str, threads: int) -> str:
    """Return a description of a run before it starts.

    Args:
        options: Options of the run, with its final seed.
        device: Name of the PyTorch device.
        threads: Number of PyTorch's threads.
    """
    environment, checkpoints = options.env_settings, options.checkpoint_settings
    path = Path(checkpoints.results_dir, checkpoints.run_id)
    what = "Acting, without learning or saving" if checkpoints.inference else "Training"
    areas = f", {environment.num_areas} areas each" if environment.num_areas > 1 else ""
    n_learners = 1 if checkpoints.inference else options.torch_settings.learners
    learners = f" for each of {n_learners} learners" if n_learners > 1 else ""
    workers, players = options.cluster.workers, str(environment.num_envs)
    if workers is not None:
        players = f"{players} in each of {_number(workers, 'rollout worker')}"
    begins = "a resumed run" if checkpoints.resume else "an untrained policy"
    if checkpoints.initialize_from and not checkpoints.resume:
        begins = f"the weights of {Path(checkpoints.results_dir, checkpoints.initialize_from)}"
    no_path = "the Unity Editor, on port 5004"
    if options.is_offline:
        no_path = "none: learns from demonstrations alone"
    return f"{what}:\n" + _aligned(
        [
            ("environment", environment.env_path or no_path),
            ("players", f"{players}{areas}{learners}"),
            ("seed", str(environment.seed)),
            ("begins with", begins),
            ("computes on", f"{device}, {_number(threads, 'thread')}"),
            ("results", str(path)),
        ]
    )


def behavior_in_words(name: str, spec: BehaviorSpec, settings: BehaviorSettings) -> str:
    """Return a description of a behavior: observations, actions and training."""
    observes = [_observation_in_words(observation) for observation in spec.observation_specs]
    return f"Behavior {name}:\n" + _aligned(
        [
            ("trained by", _training_in_words(settings)),
            *(("observes", text) for text in observes),
            ("does", _actions_in_words(spec.action_spec)),
        ]
    )


def _training_in_words(settings: BehaviorSettings) -> str:
    text = f"{settings.trainer_type} for {settings.max_steps:,} steps"
    if settings.stop_at_reward is None:
        return text
    return f"{text}, or until the mean reward is {settings.stop_at_reward:g}"


def _observation_in_words(spec: ObservationSpec) -> str:
    size = " x ".join(map(str, spec.shape))
    varies = DimensionProperty.VARIABLE_SIZE
    match len(spec.shape):
        case 1:
            kind = _number(spec.shape[0], "number")
        case 2 if spec.dimension_property and spec.dimension_property[0] & varies:
            n_entities, n_numbers = spec.shape
            kind = f"up to {n_entities} entities of {_number(n_numbers, 'number')}"
        case 3:
            kind = f"image, {size} (channels, height, width)"
        case _:
            kind = f"array of {size}"
    goal = ", the goal" if spec.observation_type is ObservationType.GOAL_SIGNAL else ""
    return f"{spec.name}: {kind}{goal}"


def _actions_in_words(spec: ActionSpec) -> str:
    parts = []
    if spec.continuous_size:
        parts.append(_number(spec.continuous_size, "continuous action"))
    if spec.discrete_branches:
        choices = " x ".join(map(str, spec.discrete_branches))
        parts.append(f"{_number(spec.discrete_size, 'discrete action')} of {choices} choices")
    return " and ".join(parts) or "nothing"


class Outcome(NamedTuple):
    """Outcome of training one behavior.

    Attributes:
        name: Name of the behavior.
        step: Final step count.
        max_steps: Step count at which training ends.
        mean_reward: Mean reward of the last episodes; None if no episode ended.
        n_episodes: Number of these episodes.
        model: Path of the exported policy; None if it could not be written.
        ended_by: Setting that ended training before `max_steps`; None if none did.
        mean_group_reward: Mean reward of the last groups; None if no group's episode ended.
        best: Reward, step and model of the best evaluation; None without evaluations.
        is_offline: Whether it was cloned from demonstrations, without an environment.
    """

    name: str
    step: int
    max_steps: int
    mean_reward: float | None
    n_episodes: int
    model: Path | None
    ended_by: str | None = None
    mean_group_reward: float | None = None
    best: str | None = None
    is_offline: bool = False


def outcomes_in_words(outcomes: Iterable[Outcome], *, elapsed_s: float) -> str:
    """Return a description of a run's outcome."""
    return f"Trained for {hours(elapsed_s)}:\n" + "\n".join(
        f"  {outcome.name}\n" + _aligned(_outcome_lines(outcome), indent=4) for outcome in outcomes
    )


def _outcome_lines(outcome: Outcome) -> Lines:
    reward = "no episode ended"
    if outcome.is_offline:
        reward = "unknown: learned from demonstrations alone"
    if outcome.mean_reward is not None:
        episodes = _number(outcome.n_episodes, "episode")
        reward = f"{outcome.mean_reward:.3f}, mean of the last {episodes}"
    steps = f"{outcome.step:,} of {outcome.max_steps:,}"
    if outcome.ended_by is not None:
        steps += f"; ended by {outcome.ended_by}"
    of_groups = []
    if outcome.mean_group_reward is not None:
        of_groups = [("group reward", f"{outcome.mean_group_reward:.3f}")]
    return [
        ("reward", reward),
        *of_groups,
        ("steps", steps),
        ("model", str(outcome.model) if outcome.model else "could not be written"),
        *([("best", outcome.best)] if outcome.best else []),
    ]


def next_commands(
    command_line: CommandLine,
    options: RunOptions,
    *,
    has_learned: bool = False,
    has_finished: bool = False,
) -> str:
    """Return the commands to continue a run, in the form in which the user started it.

    Args:
        command_line: Command line of the run.
        options: Options of the run.
        has_learned: Whether the training of a behavior ended before `max_steps`. If resumed with
            the same settings, it would end at once.
        has_finished: Whether all behaviors have reached `max_steps`, with the same effect.
    """
    checkpoints = options.checkpoint_settings
    folder = Path(checkpoints.results_dir, checkpoints.run_id)
    to_resume = "to resume"
    if has_learned and command_line.stop_at_reward is not None:
        command_line = replace(command_line, stop_at_reward=None)
        to_resume += ", without --stop-at-reward"
    elif has_learned:
        to_resume += ", after raising stop_at_reward"
        to_resume += " or patience" if options.evaluation else ""
    elif has_finished:
        to_resume = "to train longer, after raising max_steps"
    commands = [
        (to_resume, _typed_again(command_line, "--resume")),
        *([] if options.is_offline else [("to see it act", _acting(command_line))]),
        ("to see its curves", [*program("tensorboard"), "--logdir", str(folder)]),
    ]
    return "Next:\n" + "\n".join(f"  {why}:\n    {command(*words)}" for why, words in commands)


def _acting(command_line: CommandLine) -> list[str]:
    return _typed_again(command_line, "--resume", "--inference")


SAVED = "The training progress until then is saved."
"""Note of an error that ended a resumable run."""


def is_resumable(error: BaseException) -> bool:
    """Return whether the run that this error ended was saved and can be resumed."""
    return SAVED in getattr(error, "__notes__", ())


def failure_in_words(error: Exception) -> list[str]:
    """Return the messages about an error that ended a run: a player's last output, then the error.

    The error comes last because the output may be long.
    """
    failure, _, output = str(error).partition(LAST_LINES)
    if not output:
        return [failure]
    return [f"Last lines of a player's output:\n{output}", f"{failure}."]


BEGIN_FLAGS = {"--resume", "--force", "--inference", "--initialize-from"}
"""Flags for the start of a run. Commands that continue the run replace them."""


def _typed_again(command_line: CommandLine, *begin_flags: str) -> list[str]:
    """Return the words of the command line, with other `BEGIN_FLAGS`."""
    words = program("mlagents-learn")
    if command_line.config_path:
        words.append(str(command_line.config_path))
    env_args = FLAGS["environment"]["--env-args"]
    by_path = {change.path for change in command_line.changes}
    begin = {key for flags in FLAGS.values() for f, key in flags.items() if f in BEGIN_FLAGS}
    for flags in FLAGS.values():
        for flag, key in flags.items():
            value = _value_at(command_line, key)
            if value is not None and key not in {*begin, *by_path, env_args}:
                words += _words(flag, value)
    if command_line.stop_at_reward is not None and "--inference" not in begin_flags:
        words += _words("--stop-at-reward", command_line.stop_at_reward)
    for change in command_line.changes:
        words += ["--set", change.text] if change.path not in begin else []
    words += ["--deterministic"] if command_line.deterministic else []
    words += begin_flags
    of_player = _value_at(command_line, env_args)
    return (
        words if of_player is None or env_args in by_path else [*words, "--env-args", *of_player]
    )  # must be last


def _value_at(command_line: CommandLine, key: str) -> Any:
    value: Any = command_line.settings
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _words(flag: str, value: Any) -> list[str]:
    if value is True:
        return [flag]
    # Join with `=` if the value looks like a flag.
    return [f"{flag}={value}"] if str(value).startswith("-") else [flag, str(value)]


def _number(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _aligned(lines: Lines, *, indent: int = 2) -> str:
    """Return one line per pair, with aligned texts; a repeated label is shown once."""
    width = max(len(about) for about, _ in lines)
    previous, rows = "", []
    for about, says in lines:
        rows.append(f"{'':{indent}}{'' if about == previous else about:{width}}  {says}")
        previous = about
    return "\n".join(rows)
