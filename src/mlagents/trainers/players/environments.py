"""Creates the players of a run from `--env`."""

import functools
import itertools
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from mlagents.trainers.data.demonstrations import demonstrated_spec
from mlagents.trainers.exception import TrainerConfigError, UnityTrainerException
from mlagents.trainers.players.env_manager import EnvManager
from mlagents.trainers.players.in_process import SimpleEnvManager
from mlagents.trainers.players.launching import SimPlayers
from mlagents.trainers.players.offline import OfflineEnvManager
from mlagents.trainers.players.pool import PlayerPool, RestartBudget
from mlagents.trainers.settings.parameters import ConstantParameters
from mlagents.trainers.settings.run_options import EngineSettings, EnvironmentSettings, RunOptions
from mlagents_envs.base_env import BehaviorName, BehaviorSpec
from mlagents_envs.cpus import n_cpus
from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.exception import UnityEnvironmentException, UnityWorkerInUseException
from mlagents_envs.factories import (
    EnvironmentFactory,
    call_factory,
    find_build,
    find_factory,
    is_factory_name,
)
from mlagents_envs.launcher import player_log_file
from mlagents_envs.logging_util import get_logger
from mlagents_envs.registry import default_registry
from mlagents_envs.side_channel.engine_configuration_channel import (
    EngineConfig,
    EngineConfigurationChannel,
)
from mlagents_envs.side_channel.environment_parameters_channel import EnvironmentParametersChannel
from mlagents_envs.side_channel.stats_side_channel import StatsSideChannel

logger = get_logger(__name__)

EnvManagerMaker = Callable[[], EnvManager]


def evaluation_maker(options: RunOptions, *, log_folder: Path) -> EnvManagerMaker | None:
    """Return a function that creates the players for evaluations; None without evaluations.

    Their worker ids, ports and seeds follow those of the training players of all learners.

    Raises:
        TrainerConfigError: There is no environment to start, or see `env_manager_maker`.
    """
    if options.evaluation is None or options.checkpoint_settings.inference:
        return None
    if options.env_settings.env_path is None:
        raise TrainerConfigError(
            "evaluation needs env_settings.env_path (--env): it starts separate players, but there "
            "is only one Unity Editor. Set a build or a world, or remove `evaluation`."
        )
    n_players = min(options.evaluation.num_envs, options.evaluation.episodes)
    environment = options.env_settings
    n_processes = options.torch_settings.learners * (options.cluster.workers or 1)
    of_evaluation = environment.model_copy(update={"num_envs": n_players})
    return env_manager_maker(
        options.model_copy(update={"env_settings": of_evaluation}),
        log_folder=log_folder,
        first_worker=environment.num_envs * n_processes,
    )


def env_manager_maker(
    options: RunOptions, *, log_folder: Path, first_worker: int = 0
) -> EnvManagerMaker:
    """Return a function that creates the players of the environment that `--env` names.

    Without `--env`, the environment is the Unity Editor, or there are no players if all behaviors
    are cloned from demonstrations. Otherwise, `--env` is one of these, tried in order: `gym:<id>`
    for a Gymnasium environment, `module:function`, an executable, a registered name.

    A build always runs in its own process. Any other environment runs in this process if there is
    one player. Several players run in processes of `python -m mlagents_sim`, each with up to
    `players_per_process` players. For environments that only compute, the default is at most one
    process per core, and this process may play the first players.

    Args:
        options: Options of the run, with its final seed. The seed of player k is that seed plus k.
        log_folder: Folder for the logs of players.
        first_worker: Worker id of the first player. Lower ids may belong to other learners.

    Raises:
        TrainerConfigError: The name is unknown, and the message lists similar names; or
            `players_per_process` is above 1 for a build.
        UnityTrainerException: A demonstration cannot be read.
        UnityEnvironmentException: The path does not lead to an executable, or a registered build
            cannot be downloaded.
    """
    if options.is_offline:
        return functools.partial(OfflineEnvManager, _demonstrated_specs(options))
    name = options.env_settings.env_path
    if name is None:
        return _players(options, UnityEnvironment)  # waits for the Editor to connect
    start = find_build(name)
    if start is None:
        return _factory(options, name, log_folder, first_worker)
    together = options.env_settings.players_per_process
    if (together or 1) > 1:
        raise TrainerConfigError(
            f"env_settings.players_per_process (--players-per-process) is {together}, but {name!r} "
            "is a build, which cannot share its process. Remove the setting or set it to 1."
        )
    return _players(options, start, log_folder, first_worker=first_worker)


def _demonstrated_specs(options: RunOptions) -> dict[BehaviorName, BehaviorSpec]:
    """Return the specification of every behavior from its demonstrations."""
    specs = {}
    for name, behavior in options.behaviors.items():
        if behavior.behavioral_cloning:
            try:
                specs[name] = demonstrated_spec(behavior.behavioral_cloning.demo_path)
            except UnityTrainerException as error:
                raise UnityTrainerException(f"behaviors.{name}: {error}") from error
    return specs


def _factory(
    options: RunOptions, name: str, log_folder: Path, first_worker: int
) -> EnvManagerMaker:
    """Return a function that creates the players of a factory's environments."""
    try:
        factory = find_factory(name, results=[Path(options.checkpoint_settings.results_dir)])
    except UnityEnvironmentException as error:
        no_build = "" if is_factory_name(name) else f"there is no executable {name!r}, and "
        raise TrainerConfigError(f"--env: {no_build}{error}") from error
    n_players = options.env_settings.num_envs
    if n_players == 1:
        return functools.partial(_in_this_process, options, factory, first_worker)
    command = [sys.executable, "-m", "mlagents_sim", name]
    for parameter, value in _constants(options).items():
        command += ["--parameter", f"{parameter}={value!r}"]
    only_computes = name in default_registry and default_registry[name].only_computes
    n_processes = _n_processes(options, only_computes=only_computes)
    n_here = _n_here(n_players, n_processes) if only_computes else 0
    players = SimPlayers(
        command,
        workers=range(first_worker + n_here, first_worker + n_players),
        n_processes=n_processes - (n_here > 0),
    )
    here = [
        functools.partial(_in_this_process, options, factory, first_worker + k)
        for k in range(n_here)
    ]
    return _players(options, players.start, log_folder, here=here, first_worker=first_worker)


def _n_processes(options: RunOptions, *, only_computes: bool) -> int:
    """Return the number of processes with players. This process may be one of them."""
    n_players = options.env_settings.num_envs
    together = options.env_settings.players_per_process
    if together is not None:
        return math.ceil(n_players / together)
    return min(n_players, n_cpus()) if only_computes else n_players


def _n_here(n_players: int, n_processes: int) -> int:
    """Return the number of players that this process plays itself.

    If the other processes leave no core idle, this process plays a share instead of waiting for
    them. With more than two processes, decisions keep it busy: each takes about a third of the time
    of a step.
    """
    return n_players // n_processes if n_cpus() <= n_processes <= 2 else 0


def _in_this_process(
    options: RunOptions, factory: EnvironmentFactory, worker: int
) -> SimpleEnvManager:
    environment = options.env_settings
    env = call_factory(
        factory,
        worker_id=worker,
        seed=environment.seed + worker,
        num_areas=environment.num_areas,
        parameters=_constants(options),
        keep_8_bit_images=True,  # a quarter of the memory; networks accept both types
    )
    return SimpleEnvManager(env)


def _players(
    options: RunOptions,
    start: Callable[..., UnityEnvironment],
    log_folder: Path | None = None,
    *,
    here: Sequence[Callable[[], SimpleEnvManager]] = (),
    first_worker: int = 0,
) -> Callable[[], PlayerPool]:
    """Return a function that creates a pool of players.

    Args:
        options: Options of the run.
        start: Function that starts a player in another process, with the arguments of
            `UnityEnvironment` except the executable.
        log_folder: Folder for the logs of players; None for the Editor, which has its own log and
            port.
        here: Functions that create the first players, which play in this process.
        first_worker: Worker id of the first player.
    """
    environment = options.env_settings
    base_port = _base_port(environment, is_editor=log_folder is None)
    make_budget = functools.partial(
        RestartBudget,
        max_lifetime=environment.max_lifetime_restarts,
        rate_limit_n=environment.restarts_rate_limit_n,
        rate_limit_period_s=environment.restarts_rate_limit_period_s,
    )
    return lambda: PlayerPool(
        functools.partial(_launch, options, start, base_port, log_folder, first_worker),
        environment.num_envs - len(here),
        timeout_s=environment.timeout_wait,
        make_budget=make_budget,
        here=[make_player() for make_player in here],
    )


def _launch(
    options: RunOptions,
    start: Callable[..., UnityEnvironment],
    base_port: int | None,
    log_folder: Path | None,
    first_worker: int,
    player: int,
) -> UnityEnvironment:
    """Start one player, without waiting for it to connect; the arguments are as in `_players`."""
    worker = first_worker + player
    environment, engine = options.env_settings, options.engine_settings
    engine_channel = EngineConfigurationChannel()
    engine_channel.set_configuration(_engine_config(engine))
    if log_folder is not None:
        _put_aside(Path(player_log_file(str(log_folder), worker)))
    try:
        return start(
            worker_id=worker,
            base_port=base_port,
            seed=environment.seed + worker,
            no_graphics=engine.no_graphics,
            no_graphics_monitor=engine.no_graphics_monitor,
            timeout_wait=environment.timeout_wait,
            additional_args=list(environment.env_args or ()),
            side_channels=[engine_channel, EnvironmentParametersChannel(), StatsSideChannel()],
            log_folder=None if log_folder is None else str(log_folder.absolute()),
            num_areas=environment.num_areas,
            connect=False,
            keep_8_bit_images=True,  # a quarter of the memory; networks accept both types
        )
    except UnityWorkerInUseException as error:
        raise TrainerConfigError(_port_in_use(error, is_editor=log_folder is None)) from error


def _base_port(environment: EnvironmentSettings, *, is_editor: bool) -> int | None:
    """Return the first port of players: 0 for any free ports, None for the Editor's port."""
    if not is_editor:
        return environment.base_port
    if environment.base_port not in (0, UnityEnvironment.BASE_ENVIRONMENT_PORT):
        logger.warning(
            f"base_port {environment.base_port} is ignored: it only applies to players that --env "
            f"starts. The Editor uses port {UnityEnvironment.DEFAULT_EDITOR_PORT}."
        )
    return None


def _port_in_use(error: UnityWorkerInUseException, *, is_editor: bool) -> str:
    """Return a message about a port in use, with advice."""
    if is_editor:
        return (
            f"cannot wait for the Unity Editor. {error.detail} The Editor always uses this port, "
            "so end the program that occupies it. --base-port only applies to players that --env "
            "starts."
        )
    return (
        f"player {error.worker_id} cannot be started. {error.detail} Choose other ports with "
        "--base-port, or any free ports with --base-port 0."
    )


def _put_aside(log: Path) -> None:
    """Rename the log of an earlier player of this worker, so that it is not overwritten.

    The oldest log of worker 0 becomes `Player-0.1.log`.
    """
    if log.exists():
        numbered = (log.with_suffix(f".{number}.log") for number in itertools.count(1))
        log.rename(next(path for path in numbered if not path.exists()))


def _constants(options: RunOptions) -> dict[str, float]:
    """Return the environment parameters whose initial values are constants."""
    first_values = {
        name: parameter.curriculum[0].value.sampler_parameters
        for name, parameter in (options.environment_parameters or {}).items()
    }
    return {
        name: sampler.value
        for name, sampler in first_values.items()
        if isinstance(sampler, ConstantParameters)
    }


def _engine_config(engine: EngineSettings) -> EngineConfig:
    return EngineConfig(
        width=engine.width,
        height=engine.height,
        quality_level=engine.quality_level,
        time_scale=engine.time_scale,
        target_frame_rate=engine.target_frame_rate,
        capture_frame_rate=engine.capture_frame_rate,
    )
