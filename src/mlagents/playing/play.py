"""`mlagents-play`: policies act without learning, and their episodes are counted and filmed."""

from mlagents_envs.interrupts import ends_quietly

with ends_quietly():
    import argparse
    import itertools
    import sys
    import time
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import ExitStack, closing
    from pathlib import Path

    import numpy as np

    from mlagents.playing.camera import Camera
    from mlagents.playing.game import Actor, Game, RandomActor
    from mlagents.playing.live import Human, HumanActor, LivePlay
    from mlagents.playing.play_args import make_parser
    from mlagents.playing.policy import Policy, find_model, find_source
    from mlagents.playing.tally import Score
    from mlagents.playing.tournament import Tournament, names_of
    from mlagents.playing.zoo import ZOO, find_in_zoo
    from mlagents.viewing.held import HeldControls
    from mlagents.viewing.page import DEFAULT_PORT, Page
    from mlagents.viewing.stage import Stage
    from mlagents_envs.base_env import (
        BaseEnv,
        BehaviorId,
        BehaviorName,
        BehaviorSpec,
        is_named,
    )
    from mlagents_envs.checked_env import checked, unwrapped
    from mlagents_envs.demonstration_recorder import DemonstrationRecorder
    from mlagents_envs.environment import UnityEnvironment
    from mlagents_envs.exception import (
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
    from mlagents_envs.scene import HasScene
    from mlagents_envs.scene_picture import View
    from mlagents_envs.side_channel.engine_configuration_channel import EngineConfigurationChannel
    from mlagents_envs.side_channel.environment_parameters_channel import (
        EnvironmentParametersChannel,
    )

logger = get_logger(__name__)

_PROGRESS_PERIOD_S = 0.25
_DEFAULT_EPISODES = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status.

    The status is 0 if all episodes were played, and 1 after an error or if the film could not be
    written. It is 130 after Ctrl-C and 2 for an invalid command line. Results up to that point are
    printed in any case.
    """
    parser = make_parser()
    options = parser.parse_args(argv)
    models = dict(options.model)
    if len(models) < len(options.model):
        parser.error("--model is given twice for one behavior; name others with BEHAVIOR=PATH")
    if len(dict(options.parameter)) < len(options.parameter):
        parser.error("--parameter is given twice for the same name")
    if options.tournament is None and options.picture is not None:
        parser.error("--picture needs --tournament")
    if options.tournament is not None:
        others = {"--model": options.model, "--record": options.record}
        others |= {"--render": options.render, "--behavior": options.behavior}
        others |= {"--view": options.view is not None, "--human": options.human}
        if given := [flag for flag, value in others.items() if value]:
            parser.error(f"--tournament cannot be combined with {', '.join(given)}")
        if len(set(options.tournament)) < max(2, len(options.tournament)):
            parser.error("--tournament needs at least two models, all different")
    if options.human and options.view is None:
        options.view = DEFAULT_PORT
    if options.episodes is None:
        options.episodes = _DEFAULT_EPISODES if options.view is None else sys.maxsize
    try:
        models = {name: _from_zoo(where, options) for name, where in models.items()}
        if options.tournament is not None:
            options.tournament = [_from_zoo(where, options) for where in options.tournament]
        for where in (*models.values(), *(options.tournament or ())):
            find_source(where, results_dir=options.results_dir)  # fails early
        if options.tournament is not None:
            _play_tournament(options)
            return 0
        return 0 if _play(options, models) else 1
    except KeyboardInterrupt:
        return 130
    except (UnityException, OSError, ModuleNotFoundError) as error:
        print(f"mlagents-play: {printable(str(error))}", file=sys.stderr)
        return 1


def _from_zoo(where: str, options: argparse.Namespace) -> str:
    """Return the folder of the zoo for `zoo`, unless a run has that name; others unchanged."""
    if where != ZOO or (options.results_dir / ZOO / "run_logs").is_dir():
        return where
    return str(find_in_zoo(options.env))


def _play(options: argparse.Namespace, models: dict[str | None, str]) -> bool:
    """Play and print the results; return False if a requested film could not be written."""
    seeds = itertools.count(options.seed)

    def load(model: Path | tuple[str, bytes], name: BehaviorName, spec: BehaviorSpec) -> Policy:
        chosen = {"deterministic": options.deterministic, "seed": next(seeds)}
        if isinstance(model, Path):
            policy = Policy.load(model, **chosen)
        else:
            policy = Policy(model[1], name=model[0], **chosen)
        policy.check(spec, name)
        return policy

    def make_actor(name: BehaviorName, spec: BehaviorSpec) -> Actor:
        behavior = BehaviorId.parse(name).name
        where = models.get(behavior, models.get(None))
        actor: Actor
        if where is None:
            logger.info(f"{name} acts at random, because it has no --model.")
            actor = RandomActor(spec.action_spec, seed=next(seeds))
        else:
            actor = load(find_model(where, behavior, results_dir=options.results_dir), name, spec)
        return actor if human is None else HumanActor(human, actor, spec)

    with _open_environment(options) as source, ExitStack() as stack:
        camera = _open_camera(options, source, stack)
        stage = Stage()
        page = None if options.view is None else _open_page(options, stage, stack)
        human = None
        if options.human:
            options.behavior = options.behavior or next(iter(source.behavior_specs), None)
            human = Human(source, options.behavior, HeldControls())
        env = _recorded(options, source, human, stack)
        env.reset()
        _require_behaviors([*models, options.behavior], env)
        game = Game(env, make_actor, n_episodes=options.episodes, only=options.behavior)
        rounds = game.play()
        if page is not None:
            runs = _runs(options, models, env.behavior_specs)
            live = LivePlay(env, source, game, page, stage, human=human, load=load, runs=runs)
            rounds = live.play()
        progress = _Progress()
        try:
            for n_asking in rounds:
                if n_asking and camera is not None:
                    camera.shoot()
                progress.show(_counts(game))
        finally:
            progress.clear()
            if game.n_decisions:
                with reader_may_leave():
                    _print_results(game, options.episodes, progress.seconds)
    if isinstance(env, DemonstrationRecorder) and env.metadata is not None:
        with reader_may_leave():
            print(f"{env.metadata.number_steps} records in {options.record}")
    return camera is None or not camera.has_failed


def _open_page(options: argparse.Namespace, stage: Stage, stack: ExitStack) -> Page:
    """Open the live view and print its address."""
    page = stack.enter_context(Page(stage, port=options.view, title=options.env or "Unity Editor"))
    print(f"Open {page.url} in a browser.", flush=True)
    return page


def _recorded(
    options: argparse.Namespace, source: BaseEnv, human: Human | None, stack: ExitStack
) -> BaseEnv:
    """Return the environment with a recorder around it, if one is requested."""
    if not options.record:
        return source
    recorder = DemonstrationRecorder(
        source,
        options.record,
        behavior_name=options.behavior,
        is_recorded=None if human is None else human.is_it,
    )
    return stack.enter_context(recorder)


def _runs(
    options: argparse.Namespace,
    models: Mapping[str | None, str],
    names: Iterable[BehaviorName],
) -> dict[BehaviorName, Path]:
    """Return the folders of runs that models come from, by behavior."""
    runs = {}
    for name in names:
        where = models.get(BehaviorId.parse(name).name, models.get(None))
        if where is not None:
            source = find_source(where, results_dir=options.results_dir)
            if source.is_dir():
                runs[name] = source
    return runs


def _play_tournament(options: argparse.Namespace) -> None:
    """Let models play against each other; print and draw the results."""
    seeds = itertools.count(options.seed)

    def load(contestant: int, name: BehaviorName) -> Policy:
        where = options.tournament[contestant]
        return Policy.load(
            find_model(where, BehaviorId.parse(name).name, results_dir=options.results_dir),
            deterministic=options.deterministic,
            seed=next(seeds),
        )

    with _open_environment(options) as env:
        tournament = Tournament(env, names_of(options.tournament), load, n_games=options.episodes)
        progress = _Progress()
        try:
            for _ in tournament.play():
                n_games = tournament.n_games.sum() / 2
                progress.show(f"{n_games:.0f} games, {tournament.n_decisions} decisions")
        finally:
            progress.clear()
            if tournament.n_games.any():
                with reader_may_leave():
                    print(tournament.table())
                if options.picture is not None:
                    tournament.draw(options.picture)


def _open_environment(options: argparse.Namespace) -> BaseEnv:
    """Open the environment that `--env` names, as `mlagents-learn` does."""
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
        port = 0  # any free port; the Editor has its own
    return start(
        base_port=port,
        seed=options.seed,
        no_graphics=options.no_graphics,
        timeout_wait=options.timeout_wait,
        additional_args=options.env_args,
        side_channels=[engine, channel],
        num_areas=options.num_areas,
    )


def _set_parameters(env: BaseEnv, parameters: Mapping[str, float]) -> None:
    """Set parameters of an environment whose factory does not accept them.

    Raises:
        UnityEnvironmentException: The environment has no parameters. It is closed.
    """
    set_parameter = getattr(env, "set_float_parameter", None)
    if set_parameter is None:
        env.close()
        raise UnityEnvironmentException(
            f"--parameter: {type(unwrapped(env)).__name__} has no environment parameters, got "
            f"{', '.join(parameters)}. Its factory must accept the keyword argument `parameters`."
        )
    for key, value in parameters.items():
        set_parameter(key, value)


def _require_behaviors(names: Iterable[str | None], env: BaseEnv) -> None:
    """Raise an error unless the environment has all the named behaviors."""
    for name in names:
        if name is not None and not any(is_named(full, name) for full in env.behavior_specs):
            raise UnityPolicyException(
                f"the environment has no behavior {name!r}. Its behaviors: "
                f"{', '.join(env.behavior_specs)}."
            )


def _open_camera(options: argparse.Namespace, env: BaseEnv, stack: ExitStack) -> Camera | None:
    """Return the camera that films the play; None if no film is requested."""
    if options.render is None:
        return None
    view = None
    if options.size or options.agents or options.zoom != 1.0:
        if not isinstance(unwrapped(env), HasScene) and (options.agents or options.zoom != 1.0):
            raise UnityEnvironmentException(
                f"--agents and --zoom: {type(unwrapped(env)).__name__} draws its pictures itself, "
                "so these flags have no effect. Leave both out."
            )
        width, height = options.size or (View().width, View().height)
        view = View(width, height, options.agents, options.zoom)
    camera = Camera(env, options.render, view=view, fps=options.fps, seconds=options.film_seconds)
    return stack.enter_context(closing(camera))


class _Progress:
    """A progress line on standard error, if that is a terminal."""

    def __init__(self) -> None:
        self._started_s = time.perf_counter()
        self._next_s = 0.0

    @property
    def seconds(self) -> float:
        """Duration of the play so far, in s."""
        return time.perf_counter() - self._started_s

    def show(self, line: str) -> None:
        """Update the line, unless the last update was very recent."""
        if self.seconds < self._next_s or not sys.stderr.isatty():
            return
        self._next_s = self.seconds + _PROGRESS_PERIOD_S
        print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Remove the line."""
        if self._next_s:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _counts(game: Game) -> str:
    counts = [f"{name}: {len(tally.episodes)} episodes" for name, tally in game.tallies.items()]
    return ", ".join([*counts, f"{game.n_decisions} decisions"])


def _print_results(game: Game, n_wanted: int, seconds: float) -> None:
    for name, tally in game.tallies.items():
        ended = len(tally.episodes)
        print(f"{name}: {ended}{_of(n_wanted) if not tally.is_complete else ''} episodes")
        if ended:
            score = Score.of(tally.episodes)
            rewards = np.array([episode.reward for episode in tally.episodes])
            error = "" if ended == 1 else f" ± {score.error:.3f}"
            print(
                f"  reward    mean {score.mean:.3f}{error}, std {score.std:.3f}, "
                f"min {rewards.min():.3f}, max {rewards.max():.3f}"
            )
            print(f"  length    mean {score.length:.1f} decisions")
    rate = game.n_decisions / seconds
    print(f"{game.n_decisions} decisions in {seconds:.1f} s: {rate:.0f} per second")


def _of(n_wanted: int) -> str:
    return "" if n_wanted == sys.maxsize else f" of {n_wanted}"


if __name__ == "__main__":
    sys.exit(main())
