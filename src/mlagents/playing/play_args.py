"""The command line of `mlagents-play`."""

import argparse
import math
import re
from pathlib import Path

from mlagents import __version__
from mlagents.playing.film import MAX_FPS, SUFFIXES
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
    _add_environment(parser.add_argument_group("environment"))
    parser.add_argument(
        "--model",
        type=_model,
        action="append",
        default=[],
        metavar="[BEHAVIOR=]PATH",
        help=(
            "an .onnx file, or the folder or id of a run, whose newest model of the behavior acts; "
            "once for all behaviors, or once for each. A behavior without a model acts at random"
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
        type=_count,
        default=20,
        metavar="N",
        help="episodes of each behavior in the results (default: %(default)s)",
    )
    parser.add_argument(
        "--behavior", metavar="NAME", help="report this behavior only; the others still act"
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
            "record what agents see, do and get into a .demo file to learn from; of several "
            "behaviors, that of --behavior"
        ),
    )
    _add_film(parser.add_argument_group("film"))
    _add_build(parser.add_argument_group("Unity builds and the Editor"))
    return parser


def _add_environment(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--env",
        metavar="NAME",
        help=(
            "path to an executable, a registered name (3DBall), gym: and the id of a Gymnasium "
            "environment, or module:function; without it, the Unity Editor on port 5004"
        ),
    )
    group.add_argument(
        "--seed",
        type=_whole_number,
        default=0,
        metavar="N",
        help="seed of the environment and of sampled actions (default: %(default)s)",
    )
    group.add_argument(
        "--num-areas",
        type=_count,
        default=1,
        metavar="N",
        help="copies of the training area (default: %(default)s)",
    )
    group.add_argument(
        "--parameter",
        type=_parameter,
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="an environment parameter; may be given several times",
    )


def _add_film(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--render",
        type=_film,
        metavar="FILE",
        help="film the world: .mp4, .gif, or .png for nine pictures side by side",
    )
    group.add_argument(
        "--size", type=_size, metavar="WIDTHxHEIGHT", help="size of the pictures, in pixels"
    )
    group.add_argument(
        "--fps",
        type=_frame_rate,
        metavar="N",
        help="decisions shown per second (default: the speed of the world)",
    )
    group.add_argument(
        "--film-seconds",
        type=_positive,
        default=float("inf"),
        metavar="N",
        help="largest length of the film, in seconds (default: no limit)",
    )


def _add_build(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--no-graphics", action="store_true", help="run the build without graphics")
    group.add_argument(
        "--base-port",
        type=_port,
        metavar="PORT",
        help="port to listen on (default: any free port; 5004 for the Editor)",
    )
    group.add_argument(
        "--timeout-wait",
        type=_count,
        default=60,
        metavar="SECONDS",
        help="time to wait for each message (default: %(default)s)",
    )
    group.add_argument(
        "--time-scale",
        type=_positive,
        default=1.0,
        metavar="N",
        help="simulated seconds per second (default: %(default)g)",
    )
    group.add_argument(
        "--env-args",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="arguments for the build: all that follow, so this flag must be last",
    )


def _model(text: str) -> tuple[str | None, str]:
    behavior, separator, path = text.partition("=")
    if not separator or Path(text).exists():
        return None, text
    if not behavior or not path:
        raise argparse.ArgumentTypeError(f"{text!r} is invalid: expected PATH or BEHAVIOR=PATH")
    return behavior, path


def _parameter(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        if name and math.isfinite(float(number)):
            return name, float(number)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(
        f"{text!r} is not NAME=NUMBER: expected a finite number, for example gravity=9.81"
    )


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


def _size(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([1-9]\d{0,3})x([1-9]\d{0,3})", text)
    if not found:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size: expected WIDTHxHEIGHT, for example 640x480"
        )
    return int(found[1]), int(found[2])


def _whole_number(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to {2**31 - 1}")
    return int(text)


def _count(text: str) -> int:
    number = _whole_number(text)
    if number == 0:
        raise argparse.ArgumentTypeError("expected at least 1, got 0")
    return number


def _port(text: str) -> int:
    number = _whole_number(text)
    if number >= 2**16:
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid port: expected 0 to {2**16 - 1}")
    return number


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return number


def _frame_rate(text: str) -> float:
    number = _positive(text)
    if number > MAX_FPS:
        raise argparse.ArgumentTypeError(f"{text!r} is too large: expected at most {MAX_FPS}")
    return number
