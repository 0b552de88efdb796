"""`mlagents-play`: let policies act, count, film and record their episodes. Nothing is learned."""

from mlagents_envs.interrupts import ends_quietly

with ends_quietly():
    import argparse
    import itertools
    import math
    import re
    import sys
    import time
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import closing, contextmanager
    from pathlib import Path
    from typing import Protocol

    import numpy as np

    from mlagents import __version__
    from mlagents.film import MAX_FPS, SUFFIXES, Film, Picture, open_film
    from mlagents.policy import Policy, find_model
    from mlagents.tally import Tally
    from mlagents_envs.base_env import (
        ActionSpec,
        ActionTuple,
        BaseEnv,
        BehaviorId,
        BehaviorName,
        BehaviorSpec,
        DecisionSteps,
        TerminalSteps,
        is_named,
    )
    from mlagents_envs.checked_env import checked, unwrapped
    from mlagents_envs.demonstration_file import demonstration_path
    from mlagents_envs.demonstration_recorder import DemonstrationRecorder
    from mlagents_envs.environment import UnityEnvironment
    from mlagents_envs.exception import (
        UnityDemonstrationException,
        UnityEnvironmentException,
        UnityException,
        UnityPolicyException,
    )
    from mlagents_envs.factories import (
        arguments_for,
        call_factory,
        find_build,
        find_factory,
        is_factory_name,
    )
    from mlagents_envs.logging_util import get_logger, printable, reader_may_leave
    from mlagents_envs.programs import command, program
    from mlagents_envs.side_channel.engine_configuration_channel import EngineConfigurationChannel
    from mlagents_envs.side_channel.environment_parameters_channel import (
        EnvironmentParametersChannel,
    )

logger = get_logger(__name__)

STEPS_PER_S = 50.0
"""Steps per second of simulated time: Unity's default."""

_PROGRESS_PERIOD_S = 0.25


class Actor(Protocol):
    """Acts for all agents of a behavior."""

    def act(self, decisions: DecisionSteps, terminals: TerminalSteps) -> ActionTuple:
        """Return actions for N agents, given the agents of the behavior that ended."""


class RandomActor:
    """Acts at random: every allowed action is equally likely."""

    def __init__(self, spec: ActionSpec, *, seed: int) -> None:
        self._spec = spec
        self._rng = np.random.default_rng(seed)

    def act(self, decisions: DecisionSteps, terminals: TerminalSteps) -> ActionTuple:
        """Return actions for N agents."""
        action = self._spec.random_action(len(decisions), self._rng)
        for branch, mask in enumerate(decisions.action_mask or ()):
            lots = np.where(mask, -1.0, self._rng.random(mask.shape))
            action.discrete[:, branch] = lots.argmax(axis=1)
        return action


class Game:
    """Plays episodes of an environment with actors and collects the results.

    Args:
        env: Environment, already reset. It is not closed.
        make_actor: Creates the actor of a behavior when the behavior appears.
        n_episodes: Number of episodes to collect for each behavior: those that begin first.
        only: Behavior to collect, with or without its team; None for all behaviors.

    Attributes:
        tallies: Tally of each collected behavior.
        n_decisions: Number of decisions of all agents together.
    """

    def __init__(
        self,
        env: BaseEnv,
        make_actor: Callable[[BehaviorName, BehaviorSpec], Actor],
        *,
        n_episodes: int,
        only: str | None = None,
    ) -> None:
        self.tallies: dict[BehaviorName, Tally] = {}
        self.n_decisions = 0
        self._env = env
        self._make_actor = make_actor
        self._n_episodes = n_episodes
        self._only = only
        self._actors: dict[BehaviorName, Actor] = {}

    def play(self) -> Iterator[int]:
        """Play until all collected episodes have ended.

        Yields:
            How many agents ask for a decision, whenever the environment has reported.

        Raises:
            UnityNonFiniteException: An observation or a reward is NaN or infinite.
            UnityPolicyException: A policy's action is NaN or infinite.
        """
        while True:
            n_asking = sum([self._decide(name) for name in list(self._env.behavior_specs)])
            self.n_decisions += n_asking
            yield n_asking
            if self.tallies and all(tally.is_complete for tally in self.tallies.values()):
                return
            self._env.step()

    def _decide(self, name: BehaviorName) -> int:
        """Act for one behavior; return the number of agents that requested a decision."""
        if name not in self._actors:
            self._actors[name] = self._make_actor(name, self._env.behavior_specs[name])
            if self._only is None or is_named(name, self._only):
                self.tallies[name] = Tally(self._n_episodes)
        decisions, terminals = self._env.get_steps(name)
        if name in self.tallies:
            self.tallies[name].observe(decisions, terminals)
        action = self._actors[name].act(decisions, terminals)
        if len(decisions):
            self._env.set_actions(name, action)
        return len(decisions)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status.

    The status is 0 if all episodes were played, and 1 after an error or if the film could not be
    written. It is 130 after Ctrl-C and 2 for an invalid command line. Results up to that point are
    printed in any case.
    """
    parser = _parser()
    options = parser.parse_args(argv)
    models = dict(options.model)
    if len(models) < len(options.model):
        parser.error("--model is given twice for the same behavior; name others with NAME=PATH")
    if len(dict(options.parameter)) < len(options.parameter):
        parser.error("--parameter is given twice for the same name")
    try:
        return 0 if _play(options, models) else 1
    except KeyboardInterrupt:
        return 130
    except (UnityException, OSError, ModuleNotFoundError) as error:
        print(f"mlagents-play: {printable(str(error))}", file=sys.stderr)
        return 1


def _play(options: argparse.Namespace, models: dict[str | None, str]) -> bool:
    """Play and print the results; return False if a requested film could not be written."""
    seeds = itertools.count(options.seed)

    def make_actor(name: BehaviorName, spec: BehaviorSpec) -> Actor:
        behavior = BehaviorId.parse(name).name
        where = models.get(behavior, models.get(None))
        if where is None:
            logger.info(f"{name} acts at random, because it has no --model.")
            return RandomActor(spec.action_spec, seed=next(seeds))
        policy = Policy.load(
            find_model(where, behavior, results_dir=options.results_dir),
            deterministic=options.deterministic,
            seed=next(seeds),
        )
        policy.check(spec, name)
        return policy

    with (
        _open_environment(options) as source,
        closing(_Camera(options, source)) as camera,
        _recorded(source, options) as env,
    ):
        env.reset()
        _require_behaviors([*models, options.behavior], env)
        game = Game(env, make_actor, n_episodes=options.episodes, only=options.behavior)
        progress = _Progress()
        try:
            for n_asking in game.play():
                if n_asking:
                    camera.shoot()
                progress.show(game)
        finally:
            progress.clear()
            if game.n_decisions:
                with reader_may_leave():
                    _print_results(game, options.episodes, progress.seconds)
    if isinstance(env, DemonstrationRecorder) and env.metadata is not None:
        with reader_may_leave():
            print(f"{env.metadata.number_steps} records in {options.record}")
    return not camera.has_failed


def _open_environment(options: argparse.Namespace) -> BaseEnv:
    """Open what `--env` names; it means what it means to `mlagents-learn`."""
    name = options.env
    parameters = dict(options.parameter)
    start = UnityEnvironment if name is None else find_build(name)
    if start is None:
        try:
            factory = find_factory(name)
        except UnityEnvironmentException as error:
            no_build = "" if is_factory_name(name) else f"there is no executable {name!r}, and "
            raise UnityEnvironmentException(f"--env: {no_build}{error}") from error
        offered = {
            "worker_id": 0,
            "seed": options.seed,
            "num_areas": options.num_areas,
            "parameters": parameters,
        }
        env = checked(call_factory(factory, keep_8_bit_images=True, **offered))
        if parameters and "parameters" not in arguments_for(factory, **offered):
            _set_parameters(env, parameters)
        return env
    engine = EngineConfigurationChannel()
    engine.set_configuration_parameters(time_scale=options.time_scale)
    channel = EnvironmentParametersChannel()
    for key, value in parameters.items():
        channel.set_float_parameter(key, value)
    port = options.base_port
    if port is None and name is not None:
        port = 0  # any free one; the Editor has its own
    return start(
        base_port=port,
        seed=options.seed,
        no_graphics=options.no_graphics,
        timeout_wait=options.timeout_wait,
        additional_args=options.env_args,
        side_channels=[engine, channel],
        num_areas=options.num_areas,
    )


def _recorded(env: BaseEnv, options: argparse.Namespace) -> BaseEnv:
    """Record the environment, if that is wanted."""
    if options.record is None:
        return env
    return DemonstrationRecorder(env, options.record, behavior_name=options.behavior)


def _set_parameters(env: BaseEnv, parameters: Mapping[str, float]) -> None:
    """Give parameters to an environment whose factory does not take them.

    Raises:
        UnityEnvironmentException: It takes none at all; the environment is closed.
    """
    set_parameter = getattr(env, "set_float_parameter", None)
    if set_parameter is None:
        env.close()
        raise UnityEnvironmentException(
            f"--parameter: {type(unwrapped(env)).__name__} has no environment parameters, got "
            f"{', '.join(parameters)}. Its factory must take the keyword `parameters`."
        )
    for key, value in parameters.items():
        set_parameter(key, value)


def _require_behaviors(names: Iterable[str | None], env: BaseEnv) -> None:
    """Raise an error unless the environment has all the named behaviors."""
    for name in names:
        if name is not None and not any(is_named(full, name) for full in env.behavior_specs):
            raise UnityPolicyException(
                f"there is no behavior {name!r} in this environment; it has "
                f"{', '.join(env.behavior_specs)}"
            )


class _Camera:
    """Films an environment, if requested, until the film is full or cannot be written.

    Args:
        options: Options of the command line.
        env: Environment to film.

    Attributes:
        has_failed: Whether the film could not be written. The error is logged.

    Raises:
        UnityEnvironmentException: The environment cannot draw pictures.
        OSError: The file cannot be written.
    """

    def __init__(self, options: argparse.Namespace, env: BaseEnv) -> None:
        self.has_failed = False
        self._film: Film | None = None
        if options.render is None:
            return
        render = getattr(env, "render", None)
        if render is None:
            raise UnityEnvironmentException(
                f"--render: {type(unwrapped(env)).__name__} draws no pictures of itself. The "
                f"worlds that {command(*program('mlagents-sim'), '--list')} names do."
            )
        fps = options.fps or STEPS_PER_S / getattr(env, "decision_period_steps", 1)
        self._draw: Callable[[], Picture] = render
        self._n_left = options.film_seconds * fps
        self._film = open_film(options.render, fps=fps, size=options.size)

    def shoot(self) -> None:
        """Add a picture of the current state."""
        if self._film is not None and not self.has_failed and self._n_left > 0:
            self._n_left -= 1
            with self._failure_logged():
                self._film.shoot(self._draw)

    def close(self) -> None:
        """Finish the film."""
        if self._film is not None:
            with self._failure_logged():
                self._film.close()

    @contextmanager
    def _failure_logged(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.has_failed = True
            logger.warning(f"The film cannot be written: {error}. Play continues without it.")


class _Progress:
    """A progress line on standard error, if that is a terminal."""

    def __init__(self) -> None:
        self._started_s = time.perf_counter()
        self._next_s = 0.0

    @property
    def seconds(self) -> float:
        """Seconds of play so far."""
        return time.perf_counter() - self._started_s

    def show(self, game: Game) -> None:
        """Update the line, unless the last update was very recent."""
        if self.seconds < self._next_s or not sys.stderr.isatty():
            return
        self._next_s = self.seconds + _PROGRESS_PERIOD_S
        counts = [f"{name}: {len(tally.episodes)} episodes" for name, tally in game.tallies.items()]
        line = ", ".join([*counts, f"{game.n_decisions} decisions"])
        print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Remove the line."""
        if self._next_s:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _print_results(game: Game, n_wanted: int, seconds: float) -> None:
    for name, tally in game.tallies.items():
        ended = len(tally.episodes)
        print(f"{name}: {ended}{'' if tally.is_complete else f' of {n_wanted}'} episodes")
        if ended:
            rewards = np.array([episode.reward for episode in tally.episodes])
            lengths = np.array([episode.length for episode in tally.episodes])
            print(
                f"  reward    mean {rewards.mean():.3f}, std {rewards.std():.3f}, "
                f"min {rewards.min():.3f}, max {rewards.max():.3f}"
            )
            print(f"  length    mean {lengths.mean():.1f} decisions")
    rate = game.n_decisions / seconds
    print(f"{game.n_decisions} decisions in {seconds:.1f} s: {rate:.0f} per second")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mlagents-play",
        description="Let trained policies act; count, film and record their episodes.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"mlagents-next {__version__}")
    parser.add_argument(
        "--env",
        metavar="NAME",
        help=(
            "path to an executable, a registered name (3DBall), gym: and the id of a Gymnasium "
            "environment, or module:function; without it, the Unity Editor on port 5004"
        ),
    )
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
        "--seed",
        type=_whole_number,
        default=0,
        metavar="N",
        help="seed of the environment and of sampled actions (default: %(default)s)",
    )
    parser.add_argument(
        "--num-areas",
        type=_count,
        default=1,
        metavar="N",
        help="copies of the training area (default: %(default)s)",
    )
    parser.add_argument(
        "--parameter",
        type=_parameter,
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="an environment parameter; may be given several times",
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
    film = parser.add_argument_group("film")
    film.add_argument(
        "--render",
        type=_film,
        metavar="FILE",
        help="film the world: .mp4, .gif, or .png for nine pictures side by side",
    )
    film.add_argument(
        "--size", type=_size, metavar="WIDTHxHEIGHT", help="size of the pictures, in pixels"
    )
    film.add_argument(
        "--fps",
        type=_frame_rate,
        metavar="N",
        help="decisions shown per second (default: the speed of the world)",
    )
    film.add_argument(
        "--film-seconds",
        type=_positive,
        default=float("inf"),
        metavar="N",
        help="largest length of the film, in seconds (default: no limit)",
    )
    build = parser.add_argument_group("Unity builds and the Editor")
    build.add_argument("--no-graphics", action="store_true", help="run the build without graphics")
    build.add_argument(
        "--base-port",
        type=_port,
        metavar="PORT",
        help="port to listen on (default: any free port; 5004 for the Editor)",
    )
    build.add_argument(
        "--timeout-wait",
        type=_count,
        default=60,
        metavar="SECONDS",
        help="time to wait for each message (default: %(default)s)",
    )
    build.add_argument(
        "--time-scale",
        type=_positive,
        default=1.0,
        metavar="N",
        help="simulated seconds per second (default: %(default)g)",
    )
    build.add_argument(
        "--env-args",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="arguments for the build: all that follow, so this flag must be last",
    )
    return parser


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


if __name__ == "__main__":
    sys.exit(main())
