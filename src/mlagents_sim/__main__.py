"""`mlagents-sim`, or `python -m mlagents_sim`: play a world for a trainer in another process."""

from mlagents_envs.completion import add_completion
from mlagents_envs.interrupts import ends_quietly

with ends_quietly():
    import argparse
    import contextlib
    import functools
    import sys
    import traceback
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from mlagents_envs.argument_types import parameter, port, positive
    from mlagents_envs.exception import UnityEnvironmentException, UnityException
    from mlagents_envs.factories import GYMNASIUM, arguments_for, call_factory, find_factory
    from mlagents_envs.logging_util import get_logger, printable, reader_may_leave
    from mlagents_native.library import announced
    from mlagents_sim.catalog import CATALOG
    from mlagents_sim.player import EnvironmentFactory, serve_several

logger = get_logger(__name__)

DEFAULT_PORT = 5004


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit status: 0 after the trainer ended the session or Ctrl-C, 1 after an error.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.list:
        with reader_may_leave():
            _print_list()
        return 0
    if options.world is None:
        parser.error("no world was named: add the name of a world; --list shows all names")
    try:
        factory = find_factory(options.world)
    except UnityEnvironmentException as error:
        parser.error(str(error))
    parameters = dict(options.parameter)
    makers = {
        port: functools.partial(
            call_factory,
            factory,
            worker_id=worker,
            parameters=parameters,
            keep_8_bit_images=True,  # sent as PNG
        )
        for worker, port in enumerate(options.mlagents_port or [DEFAULT_PORT], options.worker_id)
    }
    try:
        with _output_to(options.log_file), announced(logger):
            return _play(
                makers,
                functools.partial(_try, options.world, factory, parameters),
                timeout_s=options.timeout,
            )
    except OSError as error:
        print(f"mlagents-sim: cannot write the log: {error}", file=sys.stderr)
        return 1


def _try(world: str, factory: EnvironmentFactory, parameters: Mapping[str, float]) -> None:
    """Raise if the arguments are invalid, before this process waits for a trainer.

    A world of this package or of Gymnasium is made and closed. A user's function may be slow or
    open a window, so only its arguments are checked.
    """
    offered: dict[str, Any] = {"worker_id": 0, "parameters": parameters, "seed": 0, "num_areas": 1}
    if world in CATALOG or world.startswith(GYMNASIUM):
        call_factory(factory, **offered).close()
    else:
        arguments_for(factory, **offered)


def _play(
    makers: Mapping[int, EnvironmentFactory], attempt: Callable[[], None], *, timeout_s: float
) -> int:
    """Play for all trainers.

    Args:
        makers: Functions that make the environments, by the port the trainer listens on.
        attempt: Function that raises if the arguments are invalid.
        timeout_s: Longest time, in seconds, to wait for each trainer to listen.
    """
    try:
        attempt()
        serve_several(makers, timeout_s=timeout_s)
    except UnityException as error:
        print(f"mlagents-sim: {printable(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    except Exception:
        traceback.print_exc()  # here, where it still goes to the log
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mlagents-sim",
        description="Run a world for a trainer in another process, as a Unity build does.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "world",
        nargs="?",
        help=(
            "a registered name such as 3DBall, module:function, or gym:ID with the id of a "
            "Gymnasium environment"
        ),
    )
    add_completion(parser)
    parser.add_argument("--list", action="store_true", help="list the worlds and exit")
    parser.add_argument(
        "--mlagents-port",
        type=port,
        action="append",
        metavar="PORT",
        help=f"port the trainer listens on; {DEFAULT_PORT} by default, as for the Unity Editor. If "
        "given several times, this process runs a world for each trainer",
    )
    parser.add_argument(
        "--timeout",
        type=functools.partial(positive, or_zero=True),
        default=60.0,
        metavar="SECONDS",
        help="longest time to wait for the trainer to listen; %(default)g by default",
    )
    parser.add_argument(
        "--parameter",
        type=parameter,
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="initial value of an environment parameter; may be given several times",
    )
    parser.add_argument(
        "--worker-id",
        type=int,
        default=0,
        metavar="K",
        help="number of this player within the run, for a function that accepts it; %(default)s by "
        "default. With several ports, the first player has this number",
    )
    unity = parser.add_argument_group("arguments of a Unity player")
    unity.add_argument("-logFile", "-logfile", dest="log_file", metavar="FILE", help="log file")
    for flag in ("-nographics", "-batchmode"):
        unity.add_argument(flag, action="store_true", help="no effect")
    return parser


def _output_to(log_file: str | None) -> contextlib.AbstractContextManager[object]:
    """Redirect all output to a file, if one is given."""
    if log_file is None:
        return contextlib.nullcontext()
    stack = contextlib.ExitStack()
    file = stack.enter_context(open(log_file, "a", buffering=1, encoding="utf-8"))
    stack.enter_context(contextlib.redirect_stdout(file))
    stack.enter_context(contextlib.redirect_stderr(file))
    return stack


def _print_list() -> None:
    width = max(map(len, CATALOG))
    for name, entry in CATALOG.items():
        print(f"{name:<{width}} {entry.description} ({', '.join(sorted(entry.tags))})")


if __name__ == "__main__":
    sys.exit(main())
