"""Conversion of a YAML file and a command line to settings, and back to a file.

    YAML ─► old spellings ─► flags ─► default_settings ─► RunOptions

All steps except the last work on plain mappings of written values, so a default never overrides a
written value. All problems are reported together, one per line. Each has its origin (file or
command line), the full path of its key, the given value and the allowed values.
"""

import copy
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.settings.base import quoted
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.configurations import (
    configuration_of,
    find_configuration,
    typed_name,
)
from mlagents.trainers.settings.hyperparameters import hyperparameters_of, names_code
from mlagents.trainers.settings.paths import put
from mlagents.trainers.settings.reading import Written, read_configuration
from mlagents.trainers.settings.run_options import RunOptions, holds_run
from mlagents.trainers.settings.typed import DEPRECATED_FLAGS, Change, CommandLine
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.folder_names import downloaded_folder
from mlagents_envs.logging_util import get_logger
from mlagents_envs.programs import command, python
from mlagents_envs.suggestions import did_you_mean

logger = get_logger(__name__)


def load_run_options(command_line: CommandLine) -> RunOptions:
    """Return the settings of a run: defaults, overridden by the file and then by flags.

    If the settings contain a seed, all samplers of environment parameters have seeds too.
    Otherwise, call `RunOptions.with_seed`.

    Raises:
        TrainerConfigError: The file cannot be read, or one of its settings or a flag is invalid.
    """
    for flag in command_line.deprecated:
        logger.warning("%s is deprecated: %s.", flag, DEPRECATED_FLAGS[flag])
    file = _configuration_file(command_line)
    written = {"default_settings": {}} if file is None else read_configuration(file)
    return check_run_options(written, command_line)


def _configuration_file(command_line: CommandLine) -> Path | None:
    """Return the given file or the environment's own; None if there is neither."""
    typed = command_line.config_path
    if typed is not None:
        file = find_configuration(typed)
        if file != typed:
            logger.info("Configuration: %s of this package, %s.", typed.as_posix(), file)
        return file
    environment = command_line.settings.get("env_settings", {}).get("env_path")
    own = None if environment is None else configuration_of(environment)
    if own is None:
        logger.warning("No configuration file: every behavior is trained with PPO's defaults.")
    else:
        logger.info("Configuration: %s, the default for %s.", typed_name(own), environment)
    return own


def check_run_options(written: Written, command_line: CommandLine) -> RunOptions:
    """Return the settings of a run from the content of its file, with flags merged over it.

    Args:
        written: Content of the file `command_line.config_path`, changed in place.
        command_line: Flags and arguments that the user gave.

    Raises:
        TrainerConfigError: A setting or a flag is invalid.
    """
    asks_to_load = _asks_to_load(written, command_line)
    options = validated(written, command_line)
    _warn_of_last_lessons(options)
    _warn_of_large_batches(options)
    if asks_to_load and not options.checkpoint_settings.resume:
        options = _resume_if_there(options)
    options = _resume_or_initialize(options, command_line)
    seed = options.env_settings.seed
    return options if seed == -1 else options.with_seed(seed)


def validated(written: Written, command_line: CommandLine) -> RunOptions:
    """Return settings from the content of a file, with flags merged over it.

    Unlike `check_run_options`, this neither warns nor looks for earlier runs.

    Args:
        written: Content of the file `command_line.config_path`, changed in place.
        command_line: Flags and arguments that the user gave.

    Raises:
        TrainerConfigError: A setting or a flag is invalid.
    """
    _refuse_old_form(written, command_line.config_path)
    _refuse_what_must_be_typed(written, command_line)
    typed_at: TypedAt = {}
    try:
        _replace_old_spellings(written)
        _put_flags_over(written, command_line)
        typed_at = _put_changes_over(written, command_line)
        _put_defaults_under_behaviors(written)
        return RunOptions.model_validate(written)
    except ValidationError as error:
        raise TrainerConfigError(_report(error, command_line, typed_at)) from None
    except RecursionError:
        raise TrainerConfigError(
            f"{command_line.config_path}: is nested too deeply, or has an alias that refers to "
            "itself"
        ) from None


def dump_configuration(options: RunOptions) -> str:
    """Return `options` as YAML with every value explicit, which can be loaded again."""
    written = options.as_dict()
    results = Path(options.checkpoint_settings.results_dir)
    if ".." in results.parts:  # not allowed in a file
        written["checkpoint_settings"]["results_dir"] = str(results.resolve())
    return yaml.safe_dump(written, sort_keys=False, allow_unicode=True)


_OF_TODAY = {"hyperparameters", "network_settings"}
"""Keys that behaviors have only since ML-Agents 0.18."""


def _refuse_old_form(written: Written, file: Path | None) -> None:
    """Refuse a file in the form used before ML-Agents 0.18, which has few keys in common."""
    below = {f"behaviors.{name}": each for name, each in _mapping(written.get("behaviors")).items()}
    above = {name: each for name, each in written.items() if name not in RunOptions.model_fields}
    old = [
        str(key)
        for key, each in (above | below).items()
        if (isinstance(each, dict) and "trainer" in each and not _OF_TODAY & each.keys())
        or key in ("curriculum", "parameter_randomization")
        or (key == "default" and "trainer_type" not in _mapping(each))
    ]
    if old:
        upgrade = [*python(), "-m", "mlagents.trainers.upgrade_config"]
        raise TrainerConfigError(
            f"{file}: has the form used before ML-Agents 0.18 ({', '.join(old)}). Convert it with: "
            f"{command(*upgrade, str(file), 'NEW.yaml')}"
        )


# Merging: each function changes written settings in place. Values of a wrong type are left
# unchanged, because the models refuse them later.


def _mapping(value: Any) -> Written:
    return value if isinstance(value, dict) else {}


def _behaviors(written: Written) -> Iterator[tuple[str, Written]]:
    """Yield the path and the settings of `default_settings` and of each behavior."""
    yield "default_settings", _mapping(written.get("default_settings"))
    for name, behavior in _mapping(written.get("behaviors")).items():
        yield f"behaviors.{name}", _mapping(behavior)


_ENVIRONMENT_WITHOUT_CODE = re.compile(r"gym:[\w.+-]+(/[\w.+-]+)?|[\w.+-]+")
"""Pattern of a registered name, or of a Gymnasium id without a module."""


def is_code(env_path: str) -> bool:
    """Return whether the environment is a module or a program rather than a registered name."""
    return not _ENVIRONMENT_WITHOUT_CODE.fullmatch(env_path)


def _refuse_what_must_be_typed(written: Written, command_line: CommandLine) -> None:
    """Refuse settings allowed only on the command line: unsafe folders, code in downloads."""
    file, typed = command_line.config_path, command_line.settings
    if file is None:
        return
    download = downloaded_folder(file)
    results = _mapping(written.get("checkpoint_settings")).get("results_dir")
    if isinstance(results, str) and "results_dir" not in typed.get("checkpoint_settings", {}):
        leads_out = ".." in re.split(r"[/\\]", results)
        if leads_out or (download and (Path(results).is_absolute() or ":" in results)):
            raise TrainerConfigError(
                f"{file}: checkpoint_settings.results_dir: {quoted(results)} is outside the "
                "working folder. To write results there, use the command line: --results-dir "
                f"{shlex.quote(results)}"
            )
    if download:
        _refuse_code_of_behaviors(written, file, download)
    if download and written.get("callbacks"):
        raise TrainerConfigError(
            f"{file}: callbacks: {quoted(written['callbacks'])} names code to run, but {download} "
            "was downloaded. Remove the key. If you trust that code, use the command line: --set "
            "'callbacks=[module:function]'"
        )
    env = _mapping(written.get("env_settings")).get("env_path")
    if not download or not isinstance(env, str) or "env_path" in typed.get("env_settings", {}):
        return
    if is_code(env):
        raise TrainerConfigError(
            f"{file}: env_settings.env_path: {quoted(env)} names code to run, but {download} was "
            "downloaded. If you trust that code, use the command line: --env "
            f"{shlex.quote(env)}"
        )


def _refuse_code_of_behaviors(written: Written, file: Path, download: Path) -> None:
    """Refuse a downloaded file whose trainer types or scripted opponents name code."""
    for path, behavior in _behaviors(written):
        named = {"trainer_type": behavior.get("trainer_type")}
        named["self_play.opponent"] = _mapping(behavior.get("self_play")).get("opponent")
        for key, name in named.items():
            if isinstance(name, str) and names_code(name):
                raise TrainerConfigError(
                    f"{file}: {path}.{key}: {quoted(name)} names code to run, but {download} was "
                    "downloaded. If you trust that code, copy the file to another folder."
                )


def _replace_old_spellings(written: Written) -> None:
    """Replace deprecated keys with their current names."""
    for path, behavior in _behaviors(written):
        if "framework" in behavior:
            del behavior["framework"]
            logger.warning("%s.framework is deprecated: PyTorch is the only framework.", path)
        _replace_old_network(path, behavior)
        for name, signal in _mapping(behavior.get("reward_signals")).items():
            _replace_old_network(f"{path}.reward_signals.{name}", _mapping(signal))
            if name in ("curiosity", "gail", "rnd"):
                _replace_old_signal(f"{path}.reward_signals.{name}", _mapping(signal))
    checkpoints = _mapping(written.get("checkpoint_settings"))
    if str(checkpoints.pop("train_model", False)).lower() == "true":
        logger.warning("checkpoint_settings.train_model is deprecated: remove it.")


def _replace_old_network(path: str, section: Written) -> None:
    network = _mapping(section.get("network_settings"))
    if "conditioning_type" in network:
        logger.warning(
            "%s.network_settings.conditioning_type is deprecated: write goal_conditioning_type "
            "instead.",
            path,
        )
        network.setdefault("goal_conditioning_type", network.pop("conditioning_type"))


def _asks_to_load(written: Written, command_line: CommandLine) -> bool:
    """Return whether `--load` or `load_model` requests to resume the run if there is one."""
    checkpoints = _mapping(written.get("checkpoint_settings"))
    asks = str(checkpoints.pop("load_model", False)).lower() == "true"
    if asks:
        logger.warning("checkpoint_settings.load_model is deprecated: write resume instead.")
    return asks or "--load" in command_line.deprecated


def _replace_old_signal(path: str, signal: Written) -> None:
    size = signal.pop("encoding_size", None)
    if size is not None:
        logger.warning(
            "%s.encoding_size is deprecated: write network_settings.hidden_units instead.", path
        )
        signal.setdefault("network_settings", {"hidden_units": size})
    if _mapping(signal.get("network_settings")).pop("memory", None) is not None:
        logger.warning(
            "%s.network_settings.memory is ignored: reward signals do not support memory.", path
        )


def _put_flags_over(written: Written, command_line: CommandLine) -> None:
    for section, value in command_line.settings.items():
        if not isinstance(value, dict):
            written[section] = value
        elif isinstance(below := written.setdefault(section, {}), dict):
            below.update(value)
    for _, behavior in _behaviors(written):
        if command_line.deterministic:
            network = behavior.setdefault("network_settings", {})
            _mapping(network)["deterministic"] = True
        if command_line.stop_at_reward is not None:
            behavior["stop_at_reward"] = command_line.stop_at_reward


TypedAt = dict[tuple[str, ...], Change]
"""Changes by `--set`, by the keys of the topmost setting that each created or replaced."""


def _put_changes_over(written: Written, command_line: CommandLine) -> TypedAt:
    typed_at: TypedAt = {}
    _refuse_unlikely_behaviors(written, command_line)
    for change in command_line.changes:
        try:
            typed_at[put(written, change.path, change.value)] = change
        except ValueError as error:
            raise TrainerConfigError(
                f"{change}: {error}. docs/configuration.md lists all settings."
            ) from None
    return typed_at


def _refuse_unlikely_behaviors(written: Written, command_line: CommandLine) -> None:
    """Refuse names of behaviors that are missing from the file and probably misspelled."""
    known = [str(name) for name in _mapping(written.get("behaviors"))]
    for change in command_line.changes:
        section, _, rest = change.path.partition(".")
        if section != "behaviors" or any(rest == n or rest.startswith(f"{n}.") for n in known):
            continue
        hint = did_you_mean(rest.partition(".")[0], known)
        if hint or (known and not isinstance(written.get("default_settings"), dict)):
            raise TrainerConfigError(
                f"{change}: there is no behavior {rest.partition('.')[0]!r} in "
                f"{command_line.config_path}{hint or '.'} It has {', '.join(map(repr, known))}."
            )


_MOST_DEFAULTS = 500
"""Largest number of default settings. The limit is generous, but each behavior gets a copy."""


def _put_defaults_under_behaviors(written: Written) -> None:
    defaults, behaviors = _mapping(written.get("default_settings")), written.get("behaviors")
    if not isinstance(behaviors, dict):
        return
    if _n_values(defaults) > _MOST_DEFAULTS:
        return  # refused later, without a copy for each behavior
    if isinstance(written.get("default_settings"), dict):
        # As in the original, default settings include the default reward signal, `extrinsic`.
        # Without default settings, a behavior's own signals replace it.
        defaults = {"reward_signals": {"extrinsic": {}}} | defaults
    written["behaviors"] = {
        str(name): _merge(_defaults_for(behavior, defaults), behavior)
        if isinstance(behavior, dict)
        else behavior
        for name, behavior in behaviors.items()
    }


def _n_values(written: Any) -> int:
    """Return the number of keys and values, including nested ones."""
    n_values, left = 0, [written]
    while left:
        value = left.pop()
        n_values += 1
        if isinstance(value, dict):
            n_values += len(value)
            left += value.values()
        elif isinstance(value, list):
            left += value
    return n_values


def _defaults_for(behavior: Written, defaults: Written) -> Written:
    """Return `defaults` without hyperparameters that the behavior's trainer does not have."""
    trainer, inherited = behavior.get("trainer_type"), defaults.get("hyperparameters")
    if not isinstance(trainer, str) or not isinstance(inherited, dict):
        return defaults
    if trainer == defaults.get("trainer_type"):
        return defaults
    try:
        model = hyperparameters_of(trainer)
    except (UnityEnvironmentException, TypeError):
        model = None  # refused later, with the reason
    if model is None:
        return defaults
    shared = {key: value for key, value in inherited.items() if key in model.model_fields}
    return {**defaults, "hyperparameters": shared}


def _merge(under: Written, over: Written) -> Written:
    """Return `under` merged recursively with `over`, which takes precedence."""
    merged = copy.deepcopy(under)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            value = _merge(below, value)
        merged[key] = value
    return merged


# Error messages


def _report(error: ValidationError, command_line: CommandLine, typed_at: TypedAt) -> str:
    """Return the problems, one per line; problems of inherited settings are reported once."""
    found = [(details["loc"], details["msg"]) for details in error.errors(include_url=False)]
    inherited = {(path[1:], says) for path, says in found if path[0] == "default_settings"}
    return "\n".join(
        f"{_origin(path, command_line, typed_at)}: {_dotted(path)}: {says}"
        for path, says in found
        if path[0] != "behaviors" or (path[2:], says) not in inherited
    )


def _origin(path: tuple[str | int, ...], command_line: CommandLine, typed_at: TypedAt) -> str:
    """Return the origin of the setting at `path`: `--set`, the command line or the file."""
    keys = tuple(map(str, path))
    for owned, change in reversed(typed_at.items()):
        if keys[: len(owned)] == owned:
            return str(change)
    value: Any = command_line.settings
    # A section that has another type in the file is refused as a whole.
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    typed = not (value is None or isinstance(value, dict)) or command_line.config_path is None
    return "command line" if typed else str(command_line.config_path)


def _dotted(path: tuple[str | int, ...]) -> str:
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.removeprefix(".")


def _warn_of_last_lessons(options: RunOptions) -> None:
    for name, parameter in (options.environment_parameters or {}).items():
        if parameter.curriculum[-1].completion_criteria:
            logger.warning(
                "environment_parameters.%s: completion_criteria of the last lesson are ignored.",
                name,
            )


def _warn_of_large_batches(options: RunOptions) -> None:
    for path, behavior in _behavior_settings(options).items():
        numbers = behavior.hyperparameters
        if numbers.batch_size > numbers.buffer_size:
            logger.warning(
                "%s.hyperparameters: batch_size (%d) is above buffer_size (%d), so batches are "
                "never full. Choose a buffer_size of several batches.",
                path,
                numbers.batch_size,
                numbers.buffer_size,
            )


def _behavior_settings(options: RunOptions) -> dict[str, BehaviorSettings]:
    """Return the settings of all behaviors and the default settings, by the path of their key."""
    behaviors = {f"behaviors.{name}": behavior for name, behavior in options.behaviors.items()}
    if options.default_settings:
        behaviors["default_settings"] = options.default_settings
    return behaviors


def _resume_if_there(options: RunOptions) -> RunOptions:
    settings = options.checkpoint_settings
    folder = Path(settings.write_path)
    if not holds_run(folder):
        logger.warning("There is no run to load in %s; a new run is started.", folder)
        return options
    settings = settings.model_copy(update={"resume": True})
    return options.model_copy(update={"checkpoint_settings": settings})


def _resume_or_initialize(options: RunOptions, command_line: CommandLine) -> RunOptions:
    """If both resume and initialize_from are set, keep the one given by a flag, or else resume."""
    settings = options.checkpoint_settings
    if not settings.resume or settings.initialize_from is None:
        return options
    typed = command_line.settings.get("checkpoint_settings", {})
    asks_to_resume = "resume" in typed or "--load" in command_line.deprecated
    if "initialize_from" in typed and not asks_to_resume:
        logger.warning("--initialize-from is given, so resume in the file is ignored.")
        settings = settings.model_copy(update={"resume": False})
    else:
        logger.warning(
            "The run is resumed: initialize_from (%s) is ignored.", settings.initialize_from
        )
        settings = settings.model_copy(update={"initialize_from": None})
    return options.model_copy(update={"checkpoint_settings": settings})
