"""The command line of `mlagents-learn`.

`FLAGS` maps each flag to the key of a setting in the YAML file. Types, defaults and help come from
the models of the settings. The parser returns only the flags given; `settings.load` merges them
into the settings of the file.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from mlagents.trainers.settings.reading import read_change
from mlagents.trainers.settings.run_options import RunOptions
from mlagents.trainers.settings.schema import configuration_schema
from mlagents.trainers.settings.typed import DEPRECATED_FLAGS, Change, CommandLine
from mlagents.viewing.page import DEFAULT_PORT
from mlagents_envs import __version__
from mlagents_envs.argument_types import port
from mlagents_envs.completion import add_completion

FLAGS: dict[str, dict[str, str]] = {
    "environment": {
        "--env": "env_settings.env_path",
        "--env-args": "env_settings.env_args",
        "--num-envs": "env_settings.num_envs",
        "--players-per-process": "env_settings.players_per_process",
        "--num-areas": "env_settings.num_areas",
        "--base-port": "env_settings.base_port",
        "--timeout-wait": "env_settings.timeout_wait",
        "--seed": "env_settings.seed",
        "--max-lifetime-restarts": "env_settings.max_lifetime_restarts",
        "--restarts-rate-limit-n": "env_settings.restarts_rate_limit_n",
        "--restarts-rate-limit-period-s": "env_settings.restarts_rate_limit_period_s",
    },
    "results and checkpoints": {
        "--run-id": "checkpoint_settings.run_id",
        "--results-dir": "checkpoint_settings.results_dir",
        "--resume": "checkpoint_settings.resume",
        "--force": "checkpoint_settings.force",
        "--initialize-from": "checkpoint_settings.initialize_from",
        "--inference": "checkpoint_settings.inference",
        "--film-every": "checkpoint_settings.film_every",
        "--track": "track",
    },
    "Unity engine": {
        "--width": "engine_settings.width",
        "--height": "engine_settings.height",
        "--quality-level": "engine_settings.quality_level",
        "--time-scale": "engine_settings.time_scale",
        "--target-frame-rate": "engine_settings.target_frame_rate",
        "--capture-frame-rate": "engine_settings.capture_frame_rate",
        "--no-graphics": "engine_settings.no_graphics",
        "--no-graphics-monitor": "engine_settings.no_graphics_monitor",
    },
    "PyTorch": {
        "--torch-device": "torch_settings.device",
        "--learners": "torch_settings.learners",
    },
    "rollout workers": {"--workers": "cluster.workers", "--cluster": "cluster.address"},
    "diagnosis": {"--debug": "debug", "--verbose": "verbose"},
}
"""Key of each flag that sets a single key, in the groups of the help."""

DETERMINISTIC_HELP = (
    "Take the most likely action instead of a sampled one, in every behavior "
    "(network_settings.deterministic)."
)

STOP_AT_REWARD_HELP = (
    "End the training of each behavior when the mean reward of its last 100 episodes reaches this "
    "value (stop_at_reward)."
)

SET_HELP = (
    "Set any setting by its path in the file, such as "
    "behaviors.3DBall.hyperparameters.learning_rate=1e-4. The value is read as YAML and overrides "
    "the file. The flag may be repeated."
)

VIEW_HELP = (
    "Show the run in a browser on this machine, at this port (default: %(const)s; 0 for any free "
    "port): the first player, its agents and the statistics."
)

PRINT_SCHEMA_HELP = "Print the JSON schema of the configuration file, for editors, and exit."

EPILOG = """\
examples:
  mlagents-learn --env 3DBall --run-id first
  mlagents-learn --env 3DBall --run-id first --resume
  mlagents-learn config/sac/3DBall.yaml --env 3DBall --run-id sac
  mlagents-learn my.yaml --env builds/MyGame --no-graphics --num-envs 4

A flag overrides the same setting in the file. It may be abbreviated if the
abbreviation is unambiguous. All settings: docs/configuration.md
"""


class _PrintSchema(argparse.Action):
    """Prints the JSON schema and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *_typed: Any) -> None:
        print(json.dumps(configuration_schema(), indent=2))
        parser.exit()


def parse_command_line(argv: Sequence[str] | None = None) -> CommandLine:
    """Read the arguments of `mlagents-learn`.

    Args:
        argv: Arguments without the program's name; None for the arguments of this process.

    Raises:
        SystemExit: With status 2 after a usage error, 0 after `--help`, `--version` or
            `--print-schema`.
    """
    parser = make_parser()
    typed = vars(parser.parse_args(argv))
    changes = tuple(typed["set"])
    settings = nested(typed | _with_flags(changes, typed, parser))
    deprecated = tuple(flag for flag in DEPRECATED_FLAGS if flag in typed)
    return CommandLine(
        typed["trainer_config_path"],
        settings,
        deterministic=typed["deterministic"],
        deprecated=deprecated,
        stop_at_reward=typed["stop_at_reward"],
        changes=changes,
        view=typed["view"],
    )


def make_parser() -> argparse.ArgumentParser:
    """Return the parser. The destination of an argument is the dotted key of its setting."""
    parser = argparse.ArgumentParser(
        prog="mlagents-learn",
        usage="%(prog)s [CONFIG] [flags]",
        description="Train policies for the behaviors of an environment, or let trained ones act.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "trainer_config_path",
        nargs="?",
        type=Path,
        metavar="CONFIG",
        help="YAML file of settings. Without it, a world of this package uses the file that comes "
        "with it. Other environments use the defaults of PPO.",
    )
    parser.add_argument("--version", action="version", version=f"mlagents-next {__version__}")
    add_completion(parser)
    add_set(parser)
    parser.add_argument("--print-schema", action=_PrintSchema, nargs=0, help=PRINT_SCHEMA_HELP)
    for title, group in add_flags(parser, *FLAGS).items():
        if title == "results and checkpoints":
            group.add_argument(
                "--stop-at-reward", type=float, metavar="REWARD", help=STOP_AT_REWARD_HELP
            )
            group.add_argument("--deterministic", action="store_true", help=DETERMINISTIC_HELP)
        if title == "diagnosis":
            group.add_argument(
                "--view",
                nargs="?",
                type=partial(port, lowest=0),
                const=DEFAULT_PORT,
                metavar="PORT",
                help=VIEW_HELP,
            )
    for flag in DEPRECATED_FLAGS:
        parser.add_argument(
            flag,
            dest=flag,
            action="store_true",
            default=argparse.SUPPRESS,
            help=argparse.SUPPRESS,
        )
    return parser


def add_flags(
    parser: argparse.ArgumentParser, *titles: str
) -> "dict[str, argparse._ArgumentGroup]":
    """Add groups of `FLAGS` to a parser; return the groups by title.

    The destination of a flag is the dotted key of its setting. A flag that is not given has no
    value in the parsed arguments.
    """
    groups = {title: parser.add_argument_group(title) for title in titles}
    for title, group in groups.items():
        for flag, key in FLAGS[title].items():
            group.add_argument(flag, dest=key, default=argparse.SUPPRESS, **_arguments(key))
    return groups


def _with_flags(
    changes: Sequence[Change], typed: Mapping[str, Any], parser: argparse.ArgumentParser
) -> dict[str, Any]:
    """Return the values of `changes` to settings that have their own flags, by key."""
    flag_of = {key: flag for flags in FLAGS.values() for flag, key in flags.items()}
    found = {}
    for change in changes:
        if change.path in flag_of:
            if change.path in typed:
                parser.error(
                    f"{change} and {flag_of[change.path]} set the same setting; remove one"
                )
            found[change.path] = change.value
    return found


def add_set(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    """Add `--set` to a parser, with the destination `set`, a list of `Change`."""
    parser.add_argument(
        "--set", type=_change, action="append", default=[], metavar="KEY=VALUE", help=SET_HELP
    )


def _change(text: str) -> Change:
    try:
        return read_change(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def nested(typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings among parsed arguments, nested as in the file.

    Args:
        typed: Values by destination, as the parser returns them.
    """
    settings: dict[str, Any] = {}
    for flags in FLAGS.values():
        for key in flags.values():
            if key in typed:
                *sections, name = key.split(".")
                section = settings
                for part in sections:
                    section = section.setdefault(part, {})
                section[name] = typed[key]
    return settings


def field_of(key: str) -> FieldInfo:
    """Return the field of `RunOptions` at a dotted key, such as `env_settings.seed`."""
    model: type[BaseModel] = RunOptions
    *sections, name = key.split(".")
    for section in sections:
        annotation = model.model_fields[section].annotation
        assert isinstance(annotation, type) and issubclass(annotation, BaseModel)
        model = annotation
    return model.model_fields[name]


def _arguments(key: str) -> dict[str, Any]:
    """Return the arguments of `add_argument` for the setting at `key`."""
    field = field_of(key)
    sentence = " ".join((field.description or "").split()).replace("`", "").replace("%", "%%")
    kind = _not_none(field.annotation)
    if key == "track":
        default = ",".join(field.default)
        return {"metavar": "NAMES", "help": f"{sentence} (default: {default})"}
    if kind is bool:
        return {"action": "store_true", "help": sentence}
    if get_origin(kind) is tuple:
        return {"nargs": argparse.REMAINDER, "metavar": "...", "help": sentence}
    default = "" if field.default is None else f" (default: {field.default})"
    metavar = key.rpartition(".")[2].upper() if kind is str else "N"
    return {"type": kind, "metavar": metavar, "help": sentence + default}


def _not_none(annotation: Any) -> Any:
    """Return T for `T | None`, and any other annotation unchanged."""
    if get_origin(annotation) in (Union, UnionType):
        return next(option for option in get_args(annotation) if option is not type(None))
    return annotation
