"""Converts trainer configurations from before ML-Agents 0.18 to the current form.

    trainer configuration   behaviors at the top level, or flat ones below `behaviors:`; `default:`
    curricula               a section, a file for all behaviors, or files or a folder of them, each
                            named after its behavior
    samplers                a section `parameter_randomization:`, or a file

Sections in the current form are not changed. A warning names each key that cannot be converted.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.settings.base import one_of
from mlagents.trainers.settings.behavior import BehaviorSettings, NetworkSettings
from mlagents.trainers.settings.hyperparameters import hyperparameter_models
from mlagents.trainers.settings.load import check_run_options
from mlagents.trainers.settings.reading import Written, read_configuration
from mlagents.trainers.settings.run_options import RunOptions
from mlagents.trainers.settings.typed import CommandLine
from mlagents_envs.logging_util import get_logger
from mlagents_envs.suggestions import did_you_mean

logger = get_logger(__name__)

RENAMED_OF_BEHAVIORS = {"trainer": "trainer_type", "pretraining": "behavioral_cloning"}
RENAMED_OF_SELF_PLAY = {
    "play_against_current_self_ratio": "play_against_latest_model_ratio",
    "play_against_current_best_ratio": "play_against_latest_model_ratio",
}
RENAMED_SAMPLERS = {"multirange_uniform": "multirangeuniform"}
RENAMED_ENCODERS = {"default": "simple"}

GONE = {
    "summary_path": "results are stored below --results-dir",
    "model_path": "results are stored below --results-dir",
    "output_path": "results are stored below --results-dir",
    "resampling-interval": "parameters are drawn again for every episode",
}
"""Old keys without a replacement, with the reason why none is needed."""

_MEMORY = {"use_recurrent", "memory_size", "sequence_length"}
_SIGNALS = {"gamma", "use_curiosity", "curiosity_strength", "curiosity_enc_size"}
"""Keys of before 0.9, when there was no `reward_signals`."""
_CURIOSITY_STRENGTH = 0.01
"""What `curiosity_strength` was unless written."""
_INTERVALS = {"train_interval", "num_update", "reward_signal_num_update"}
_AMONG_SIGNALS = ("reward_signal_num_update", "reward_signal_steps_per_update")
"""Hyperparameters that were keys of `reward_signals`."""

_NETWORK = NetworkSettings.model_fields.keys() - {"memory"}
_HYPERPARAMETERS = {key for model in hyperparameter_models().values() for key in model.model_fields}
_KNOWN = {*BehaviorSettings.model_fields, *_NETWORK, *_HYPERPARAMETERS, *_MEMORY, *_SIGNALS}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status, 1 when it failed."""
    parser = argparse.ArgumentParser(
        prog="python -m mlagents.trainers.upgrade_config",
        description="Convert a configuration from before ML-Agents 0.18 to the current format.",
    )
    parser.add_argument("input", type=Path, metavar="IN", help="file with the old configuration")
    parser.add_argument(
        "output", type=Path, metavar="OUT", help="file to write the new configuration to"
    )
    parser.add_argument(
        "--curriculum",
        type=Path,
        metavar="FILE",
        help="file with the curricula of all behaviors or of the behavior in its name, or a folder "
        "of such files",
    )
    parser.add_argument(
        "--sampler", type=Path, metavar="FILE", help="file with the samplers of parameters"
    )
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")
    arguments = parser.parse_args(argv)
    try:
        upgraded = upgrade(
            _read(arguments.input),
            curricula=read_curricula(arguments.curriculum) if arguments.curriculum else {},
            samplers=_read(arguments.sampler) if arguments.sampler else {},
        )
        text = yaml.safe_dump(upgraded, sort_keys=False, allow_unicode=True)
        check_run_options(upgraded, CommandLine(arguments.input, {}))
        with arguments.output.open("w" if arguments.force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        logger.error(f"{arguments.output} exists; --force replaces it.")
        return 1
    except (TrainerConfigError, OSError) as error:
        logger.error(str(error))
        return 1
    logger.info(f"Wrote {arguments.output}.")
    return 0


def _read(file: Path) -> Written:
    return read_configuration(file, last_key_counts=True)


def read_curricula(path: Path) -> Written:
    """Read curricula, by behavior.

    Raises:
        TrainerConfigError: A file cannot be read, or a folder holds none.
    """
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in (".json", ".yaml", ".yml"))
        if not files:
            raise TrainerConfigError(f"{path}: holds no curriculum, a .json or .yaml file")
    else:
        files = [path]
    curricula: Written = {}
    for file in files:
        written = _read(file)
        curricula |= {file.stem: written} if "thresholds" in written else written
    return curricula


def upgrade(written: Written, *, curricula: Written, samplers: Written) -> Written:
    """Return the configuration in the current form, unchecked.

    Args:
        written: The old configuration, which may include sections for curricula and samplers.
        curricula: Curricula by behavior, from `read_curricula`.
        samplers: Samplers by parameter.

    Raises:
        TrainerConfigError: A section has a form that no version accepted.
    """
    rest = dict(written)
    curricula = _take(rest, "curriculum") | curricula
    samplers = _take(rest, "parameter_randomization") | samplers
    default = _take(rest, "default") | _take(rest, "default_settings")
    behaviors, parameters = _take(rest, "behaviors"), _take(rest, "environment_parameters")
    sections = {key: rest.pop(key) for key in RunOptions.model_fields if key in rest}
    behaviors |= rest

    flat_default, default = default, _with_reward_signals("default_settings", default, default)
    upgraded: Written = {}
    if default:
        upgraded["default_settings"] = _behavior("default_settings", default, default)
    upgraded["behaviors"] = {}
    for name, behavior in behaviors.items():
        path = f"behaviors.{name}"
        own = _mapping(path, behavior)
        own = _with_reward_signals(path, own, {**flat_default, **own})
        # A behavior inherited missing keys from the default; nested mappings were not merged.
        upgraded["behaviors"][str(name)] = _behavior(path, own, {**default, **own})
        _warn_of_inherited_signals(path, own, default)
    for name, value in (*_samplers(samplers).items(), *_lessons(curricula)):
        if name in parameters:
            raise TrainerConfigError(
                f"environment_parameters.{name}: is set twice, by samplers, by the curricula of "
                "behaviors, or by both. Keep one definition and remove the others."
            )
        parameters[name] = value
    if parameters:
        upgraded["environment_parameters"] = parameters
    return upgraded | sections


def _take(section: Written, key: str) -> Written:
    """Remove a mapping from a section and return it; return an empty one if it is missing."""
    return dict(_mapping(key, section.pop(key, None)))


def _mapping(path: str, value: Any) -> Written:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TrainerConfigError(f"{path}: must be a mapping of keys to values, got {value!r:.80}")
    return value


def _with_reward_signals(path: str, own: Written, effective: Written) -> Written:
    """Return a behavior's section with `reward_signals` in place of the keys before there were any.

    Args:
        path: Path of the section, for messages.
        own: Keys and values written in the section.
        effective: Keys and values of the section, merged over those of the default.
    """
    written = own.keys() & _SIGNALS
    if not written:
        return own
    rest = {key: value for key, value in own.items() if key not in _SIGNALS}
    if effective.get("reward_signals"):
        for key in sorted(written):
            _drop(path, key, why="reward_signals counts where both are written")
        return rest
    discount = {"gamma": effective["gamma"]} if "gamma" in effective else {}
    signals: Written = {"extrinsic": {"strength": 1.0, **discount}}
    if str(effective.get("use_curiosity")).lower() == "true":
        strength = effective.get("curiosity_strength", _CURIOSITY_STRENGTH)
        signals["curiosity"] = {"strength": strength, **discount}
        if "curiosity_enc_size" in effective:
            signals["curiosity"]["encoding_size"] = effective["curiosity_enc_size"]
    return {**rest, "reward_signals": signals}


def _behavior(path: str, own: Written, effective: Written) -> Written:
    """Return a behavior's section.

    Args:
        path: Path of the section, for messages.
        own: Keys written in the section.
        effective: Keys of the section, completed by those of the default.
    """
    upgraded: Written = {}
    trainer = effective.get("trainer", effective.get("trainer_type"))
    if trainer is None:
        logger.warning("%s: has no trainer; ppo is used.", path)
        trainer = upgraded["trainer_type"] = "ppo"
    models = hyperparameter_models()
    if str(trainer) not in models:
        raise TrainerConfigError(
            f"{path}.trainer: must be {one_of(models)}, got {trainer!r}. To imitate "
            "without an environment, as offline_bc did, use bc with behavioral_cloning."
        )
    known = models[trainer].model_fields
    signals = _mapping(f"{path}.reward_signals", own.get("reward_signals"))
    among_signals = {name: signals[name] for name in _AMONG_SIGNALS if name in signals}
    for key, value in (own | among_signals).items():
        key = RENAMED_OF_BEHAVIORS.get(key, key)
        if key in _MEMORY or (key in _INTERVALS and trainer == "sac"):
            continue  # converted below, because they depend on each other
        elif key == "reward_signals":
            upgraded[key] = {
                name: _reward_signal(f"{path}.{key}.{name}", signal)
                for name, signal in signals.items()
                if name not in _AMONG_SIGNALS
            }
        elif key == "self_play":
            self_play = _mapping(f"{path}.{key}", value)
            upgraded[key] = {RENAMED_OF_SELF_PLAY.get(k, k): v for k, v in self_play.items()}
        elif key in BehaviorSettings.model_fields:
            _put(upgraded, key, value)
        elif key in _NETWORK:
            if key == "vis_encode_type":
                value = RENAMED_ENCODERS.get(str(value), value)
            _put(upgraded, "network_settings", {key: value})
        elif key in known:
            _put(upgraded, "hyperparameters", {key: value})
        else:
            of_other_trainers = key in _HYPERPARAMETERS | _INTERVALS
            _drop(path, key, why=f"{trainer} does not have it" if of_other_trainers else "")
    if own.keys() & _MEMORY:
        _put(upgraded, "network_settings", {"memory": _memory(effective)})
    if trainer == "sac" and (steps := _steps_per_update(path, own | signals, effective)):
        _put(upgraded, "hyperparameters", steps)
    if "hyperparameters" in upgraded:
        upgraded = {"trainer_type": trainer} | upgraded
    return upgraded


def _put(section: Written, key: str, value: Any) -> None:
    """Set a key; merge with an existing mapping."""
    if isinstance(value, dict) and isinstance(section.get(key), dict):
        value = section[key] | value
    section[key] = value


def _memory(effective: Written) -> Written | None:
    if str(effective.get("use_recurrent")).lower() != "true":
        return None
    return {key: effective[key] for key in ("sequence_length", "memory_size") if key in effective}


def _steps_per_update(path: str, own: Written, effective: Written) -> Written:
    """Return SAC's hyperparameters that replace an interval and a number of updates."""
    intervals = {"train_interval": 1, "num_update": 1} | effective | own
    steps: Written = {}
    for key, count in (
        ("steps_per_update", "num_update"),
        ("reward_signal_steps_per_update", "reward_signal_num_update"),
    ):
        if not {count, "train_interval"} & own.keys() or count not in intervals:
            continue
        interval, n_updates = intervals["train_interval"], intervals[count]
        try:
            steps[key] = float(interval) / float(n_updates)
        except (TypeError, ValueError, ZeroDivisionError):
            raise TrainerConfigError(
                f"{path}: train_interval and {count} must be numbers above 0, got {interval!r} "
                f"and {n_updates!r}"
            ) from None
        logger.warning(
            "%s.hyperparameters.%s: was set to train_interval / %s. Steps now count all agents: "
            "multiply it by the number of agents.",
            *(path, key, count),
        )
    return steps


def _reward_signal(path: str, value: Any) -> Written:
    signal = dict(_mapping(path, value))
    if "encoding_size" in signal:
        _put(signal, "network_settings", {"hidden_units": signal.pop("encoding_size")})
    if "samples_per_update" in signal:
        del signal["samples_per_update"]
        _drop(path, "samples_per_update", why="it learns from as many samples as the policy")
    return signal


def _drop(path: str, key: object, *, why: str = "") -> None:
    if not why:
        why = GONE.get(str(key), f"nothing is known of it{did_you_mean(key, _KNOWN)}")
    logger.warning("%s.%s: dropped, %s", path, key, why)


def _warn_of_inherited_signals(path: str, own: Written, default: Written) -> None:
    if own.get("reward_signals") and default:
        inherited = default.get("reward_signals") or {"extrinsic": {}}
        added = inherited.keys() - own["reward_signals"].keys()
        for name in sorted(added - {*_AMONG_SIGNALS}, key=str):
            logger.warning(
                "%s.reward_signals: default_settings now adds %r. To prevent that, remove it from "
                "reward_signals there.",
                path,
                name,
            )


def _samplers(samplers: Mapping[str, Any]) -> Written:
    """Return environment parameters that are sampled."""
    upgraded: Written = {}
    for name, value in samplers.items():
        if name == "resampling-interval":
            _drop("parameter_randomization", name)
            continue
        sampler = dict(_mapping(f"parameter_randomization.{name}", value))
        if "sampler-type" in sampler:
            kind = str(sampler.pop("sampler-type"))
            kind = RENAMED_SAMPLERS.get(kind, kind)
            sampler = {"sampler_type": kind, "sampler_parameters": sampler}
        upgraded[name] = sampler
    return upgraded


def _lessons(curricula: Mapping[str, Any]) -> Iterable[tuple[str, Written]]:
    """Yield environment parameters with curricula."""
    for behavior, value in curricula.items():
        path = f"curriculum.{behavior}"
        curriculum = dict(_mapping(path, value))
        thresholds = curriculum.pop("thresholds", None)
        if not isinstance(thresholds, list):
            raise TrainerConfigError(f"{path}.thresholds: must be a list, got {thresholds!r:.80}")
        parameters = _mapping(f"{path}.parameters", curriculum.pop("parameters", {}))
        # In old versions, the environment was reset at every change of lesson.
        criteria = {"behavior": behavior, **curriculum, "require_reset": True}
        for name, values in parameters.items():
            if not isinstance(values, list) or len(values) != len(thresholds) + 1:
                raise TrainerConfigError(
                    f"{path}.parameters.{name}: expected one value more than there are thresholds "
                    f"({len(thresholds)}), got {values!r:.80}"
                )
            lessons: list[Written] = [
                {"name": f"Lesson{i}", "value": value} for i, value in enumerate(values)
            ]
            for lesson, threshold in zip(lessons, thresholds, strict=False):
                lesson["completion_criteria"] = {**criteria, "threshold": threshold}
            yield name, {"curriculum": lessons}


if __name__ == "__main__":
    sys.exit(main())
