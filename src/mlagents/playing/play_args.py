"""The command line of `mlagents-play`."""

import argparse
import re
from functools import partial
from pathlib import Path

from mlagents import __version__
from mlagents.playing.film import MAX_FPS, SUFFIXES
from mlagents.viewing.page import DEFAULT_PORT
from mlagents_envs.argument_types import count, parameter, port, positive, whole_number
from mlagents_envs.completion import add_completion
from mlagents_envs.demonstration_file import demonstration_path
from mlagents_envs.exception import UnityDemonstrationException


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="mlagents-play",
        description="Let trained policies act; count, film and record their episodes.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"mlagents-next {__version__}")
    add_completion(parser)
    _add_environment(parser.add_argument_group("environment"))
    parser.add_argument(
        "--model",
        type=_model,
        action="append",
        default=[],
        metavar="[BEHAVIOR=]PATH",
        help=(
            "trained policy: an .onnx file; the folder or name of a run, for the run's newest "
            "model of the behavior; or zoo, for the policy that comes with this package. Give the "
            "flag once for all behaviors, or once for each. A behavior without a model acts at "
            "random"
        ),
    )
    parser.add_argument(
        "--results-dir",
        type=Path,
        default=Path("results"),
        metavar="FOLDER",
        help="folder of all runs (default: %(default)s)",
    )
    parser.add_argument(
        "--episodes",
        type=count,
        metavar="N",
        help=(
            "number of episodes of each behavior in the results (default: 20; with --view, no "
            "limit)"
        ),
    )
    parser.add_argument(
        "--behavior", metavar="NAME", help="report only this behavior; the others still act"
    )
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="take the most likely action instead of a sampled one",
    )
    parser.add_argument(
        "--record",
        type=_demonstration,
        metavar="FILE",
        help=(
            "record observations, actions and rewards into a .demo file to learn from; if there "
            "are several behaviors, those of --behavior"
        ),
    )
    _add_view(parser.add_argument_group("live view"))
    _add_tournament(parser.add_argument_group("tournament"))
    _add_film(parser.add_argument_group("film"))
    _add_build(parser.add_argument_group("Unity builds and the Editor"))
    return parser


def _add_environment(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--env",
        metavar="NAME",
        help=(
            "environment: the path to an executable, a registered name such as 3DBall, gym:ID with "
            "the id of a Gymnasium environment, or module:function; without it, the Unity Editor "
            "on port 5004"
        ),
    )
    group.add_argument(
        "--seed",
        type=whole_number,
        default=0,
        metavar="N",
        help="seed of the environment and of sampled actions (default: %(default)s)",
    )
    group.add_argument(
        "--num-areas",
        type=count,
        default=1,
        metavar="N",
        help="number of copies of the training area (default: %(default)s)",
    )
    group.add_argument(
        "--parameter",
        type=parameter,
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="value of an environment parameter; the flag may be repeated",
    )


def _add_view(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--view",
        nargs="?",
        type=partial(port, lowest=0),
        const=DEFAULT_PORT,
        metavar="PORT",
        help=(
            "show the environment in a browser on this machine, at this port (default: %(const)s; "
            "0 for any free port); speed, policies and parameters can be changed there"
        ),
    )
    group.add_argument(
        "--human",
        action="store_true",
        help=(
            "play the first agent of --behavior yourself, with the keys of the live view; --record "
            "then records only this agent"
        ),
    )


def _add_tournament(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--tournament",
        nargs="+",
        metavar="PATH",
        help=(
            "let these models or runs play against each other in a game of two teams: --episodes "
            "games for each pair, half of them with sides exchanged"
        ),
    )
    group.add_argument(
        "--picture",
        type=_picture,
        metavar="FILE",
        help="draw the results of the tournament into this .png file",
    )


def _add_film(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--render",
        type=_film,
        metavar="FILE",
        help="film the environment: .mp4, .gif, .webp, or .png for nine pictures side by side",
    )
    group.add_argument(
        "--size", type=_size, metavar="WIDTHxHEIGHT", help="size of the pictures, in pixels"
    )
    group.add_argument(
        "--fps",
        type=_frame_rate,
        metavar="N",
        help="number of decisions shown per second (default: real time)",
    )
    group.add_argument(
        "--agents",
        type=count,
        metavar="N",
        help=(
            "film the areas of the first N agents (default: as many areas as the picture shows at "
            "a recognizable size)"
        ),
    )
    group.add_argument(
        "--zoom",
        type=positive,
        default=1.0,
        metavar="N",
        help="magnification; above 1, the film follows the first agent (default: %(default)g)",
    )
    group.add_argument(
        "--film-seconds",
        type=positive,
        default=float("inf"),
        metavar="N",
        help="longest duration of the film, in seconds (default: no limit)",
    )


def _add_build(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--no-graphics", action="store_true", help="run the build without graphics")
    group.add_argument(
        "--base-port",
        type=partial(port, lowest=0),
        metavar="PORT",
        help="port to listen on (default: any free port; 5004 for the Editor)",
    )
    group.add_argument(
        "--timeout-wait",
        type=count,
        default=60,
        metavar="SECONDS",
        help="longest time to wait for a message from the build (default: %(default)s)",
    )
    group.add_argument(
        "--time-scale",
        type=positive,
        default=1.0,
        metavar="N",
        help="number of simulated seconds per real second (default: %(default)g)",
    )
    group.add_argument(
        "--env-args",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="arguments for the build: all that follow, so this flag must be the last one",
    )


def _model(text: str) -> tuple[str | None, str]:
    behavior, separator, path = text.partition("=")
    if not separator or Path(text).exists():
        return None, text
    if not behavior or not path:
        raise argparse.ArgumentTypeError(f"{text!r} is invalid: expected PATH or BEHAVIOR=PATH")
    return behavior, path


def _demonstration(text: str) -> Path:
    try:
        return demonstration_path(text)
    except UnityDemonstrationException as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _film(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() not in SUFFIXES:
        raise argparse.ArgumentTypeError(f"{text!r} does not end in {', '.join(SUFFIXES)}")
    return path


def _picture(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() != ".png":
        raise argparse.ArgumentTypeError(f"{text!r} does not end in .png")
    return path


def _size(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([1-9]\d{0,3})x([1-9]\d{0,3})", text)
    if not found:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size: expected WIDTHxHEIGHT, for example 640x480"
        )
    return int(found[1]), int(found[2])


def _frame_rate(text: str) -> float:
    number = positive(text)
    if number > MAX_FPS:
        raise argparse.ArgumentTypeError(f"{text!r} is too large: expected at most {MAX_FPS}")
    return number
