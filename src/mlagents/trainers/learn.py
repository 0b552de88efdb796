"""`mlagents-learn`: turns arguments into settings, and settings into a run."""

from mlagents_envs.interrupts import ends_quietly

with ends_quietly():
    import logging
    import os
    import random
    import sys
    import time
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import ExitStack, contextmanager
    from pathlib import Path
    from typing import TYPE_CHECKING, Any, NamedTuple

    from mlagents import __version__, plugins
    from mlagents.trainers.callbacks import Callback, Callbacks, OnSummary, as_callback
    from mlagents.trainers.cli_args import parse_command_line
    from mlagents.trainers.exception import TrainerConfigError, TrainerError
    from mlagents.trainers.reporting.stats import StatsWriter
    from mlagents.trainers.reporting.summaries import (
        failure_in_words,
        is_resumable,
        next_commands,
        run_in_words,
    )
    from mlagents.trainers.run.interrupt import Interrupt, Interrupted
    from mlagents.trainers.settings.hyperparameters import with_trainer_types
    from mlagents.trainers.settings.load import load_run_options
    from mlagents.trainers.settings.run_options import RunOptions
    from mlagents.trainers.settings.typed import CommandLine
    from mlagents_envs.exception import UnityCommunicatorStoppedException, UnityException
    from mlagents_envs.handshake import API_VERSION
    from mlagents_envs.logging_util import (
        discard_unwritable_output,
        get_logger,
        set_log_level,
        set_log_origin,
    )
    from mlagents_envs.timers import add_metadata, get_timer_tree, hierarchical_timer, reset_timers

    if TYPE_CHECKING:
        import torch

        from mlagents.trainers.fleet.fleet import Fleet
        from mlagents.trainers.learning.trainer_types import TrainerType
        from mlagents.trainers.run.folder import RunFolder
        from mlagents.trainers.run.learners import Place
        from mlagents.trainers.run.live import LiveView

logger = get_logger(__name__)


class Ending(NamedTuple):
    """How the training of a run ended.

    Attributes:
        has_learned: Whether that of a behavior ended because it reached `stop_at_reward`.
        has_finished: Whether all behaviors reached `max_steps`.
    """

    has_learned: bool
    has_finished: bool


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return an exit status. An invalid command line exits with status 2."""
    with ends_quietly():
        command_line = parse_command_line(sys.argv[1:] if argv is None else argv)
    return run(command_line)


def run(command_line: CommandLine) -> int:
    """Train with the settings of a command line and its file; return an exit status.

    The status is 0 if the run finished or was interrupted, 1 if it failed, and 130 if it was
    interrupted twice and thus stopped at once.
    """
    status = _status_of(command_line)
    discard_unwritable_output()
    return status


def run_cli(options: RunOptions | CommandLine) -> None:
    """Train, for programs that start a run themselves. Errors are raised.

        run_cli(parse_command_line(["config.yaml", "--env", "3DBall", "--run-id", "first"]))

    Args:
        options: All settings, or a command line to read them from.

    Raises:
        TrainerError: The settings are invalid, or see `run_training`.
        UnityException: See `run_training`.
        Interrupted: See `run_training`.
    """
    trainer_types = plugins.trainer_types()  # first, because files may name them
    view = None
    if isinstance(options, CommandLine):
        view = options.view
        options = load_run_options(options)
    run_training(options, trainer_types=trainer_types, view=view)


def _status_of(command_line: CommandLine) -> int:
    debug = command_line.settings.get("debug", False)
    try:
        trainer_types = plugins.trainer_types()  # first, because files may name them
        with with_trainer_types({name: each.settings for name, each in trainer_types.items()}):
            options = load_run_options(command_line)
            debug = options.debug
            ending = run_training(options, trainer_types=trainer_types, view=command_line.view)
        if not options.checkpoint_settings.inference:
            logger.info(next_commands(command_line, options, **ending._asdict()))
    except Interrupted:
        logger.info("Interrupted.")
    except KeyboardInterrupt:
        logger.info("Stopped at once; nothing was saved beyond the last checkpoint.")
        return 130
    except UnityCommunicatorStoppedException as error:
        logger.info(f"The environment ended the session: {error}")
    except (TrainerError, UnityException, OSError) as error:
        if debug:
            raise
        for message in failure_in_words(error):
            logger.error(message)
        if is_resumable(error):
            logger.info(next_commands(command_line, options))
        return 1
    except Exception as error:  # a bug, which the traceback locates
        if is_resumable(error):
            error.add_note(next_commands(command_line, options))
        raise
    return 0


def run_training(
    options: RunOptions,
    *,
    trainer_types: "Mapping[str, TrainerType] | None" = None,
    writers: Sequence[StatsWriter] = (),
    callbacks: Sequence[Callback | OnSummary] = (),
    place: "Place | None" = None,
    view: int | None = None,
) -> Ending:
    """Run training once, from options to results.

    It may be called again for another run. It sets the process's log level and the threads of torch
    and NumPy, and resets the timers of this thread. In the main thread, it handles Ctrl-C,
    SIGTERM and SIGHUP until it returns.

    Args:
        options: All settings of the run.
        trainer_types: Additional trainers, by `trainer_type`.
        writers: Additional writers of statistics. If a writer raises `Interrupted`, the run saves
            its results and ends.
        callbacks: Additional callbacks, called after the callbacks of plug-ins and of the key
            `callbacks`.
        place: Rank among several learners, if another process has started this one as a learner.
        view: Port of a live view on this machine; 0 for any free port, None for no view.

    Returns:
        How it ended.

    Raises:
        TrainerError: The run cannot start or continue, or its results cannot be saved.
        UnityException: The environment cannot start or continue.
        Interrupted: The run was interrupted before training began.
        KeyboardInterrupt: The run was interrupted twice.
    """
    with Interrupt() as interrupt:
        made = _make_callbacks(options, callbacks)
        with _live_view(options, view) as live:
            writers = [*writers, *([] if live is None else [live.writer])]
            return _run(options, trainer_types or {}, writers, made, interrupt, place, live)


def _run(
    options: RunOptions,
    trainer_types: "Mapping[str, TrainerType]",
    more_writers: Sequence[StatsWriter],
    callbacks: Callbacks,
    interrupt: Interrupt,
    place: "Place | None",
    live: "LiveView | None",
) -> Ending:
    # Importing torch takes seconds, and --help and errors in a file do not need it.
    from mlagents.trainers.learning.trainer_types import TRAINER_TYPES
    from mlagents.trainers.players.environments import evaluation_maker
    from mlagents.trainers.reporting.tracking import require_trackers
    from mlagents.trainers.run.filming import filmer_maker
    from mlagents.trainers.run.folder import RunFolder, try_write
    from mlagents.trainers.run.learners import joined, place_of

    place = place or place_of(options, os.environ)
    is_first = place is None or place.rank == 0
    options, device = _begin(options, place)
    settings = options.checkpoint_settings
    require_trackers(options)
    folder = RunFolder(Path(settings.results_dir) / settings.run_id)
    _fleet_maker(options, folder, place, live)  # checks the environment
    make_evaluation = evaluation_maker(options, log_folder=folder.logs)
    make_filmer = filmer_maker(options, folder.path)
    started_s = time.perf_counter()
    opened = folder.opened(
        resume=settings.resume, force=settings.force, inference=settings.inference
    )
    with ExitStack() as stack:
        if is_first:
            stack.enter_context(opened)
        with interrupt.waiting():  # the first learner sends its seed to the others
            group, options = stack.enter_context(joined(options, place, device))
        writers = [*_make_writers(options, folder), *more_writers] if is_first else []
        try:
            with hierarchical_timer("run_training"):
                ending = _train(
                    options,
                    folder,
                    interrupt,
                    place,
                    live,
                    writers=writers,
                    device=device,
                    trainer_types={**TRAINER_TYPES, **trainer_types},
                    callbacks=callbacks,
                    make_evaluation=make_evaluation,
                    make_filmer=make_filmer,
                    group=group,
                )
        finally:
            for writer in writers:
                writer.close()
            if is_first and not settings.inference:
                try_write("the timers", lambda: folder.write_timers(get_timer_tree()))
    logger.info(f"Done in {time.perf_counter() - started_s:.1f} s.")
    return ending


def _train(
    options: RunOptions,
    folder: "RunFolder",
    interrupt: Interrupt,
    place: "Place | None",
    live: "LiveView | None",
    **of_controller: Any,
) -> Ending:
    """Start the players, train, and close them; return how it ended."""
    from mlagents.trainers.run.controller import Controller

    make_fleet = _fleet_maker(options, folder, place, live)
    with interrupt.waiting():
        fleet = make_fleet()
    try:
        controller = Controller(options, fleet, folder, interrupt=interrupt, **of_controller)
        if live is not None:
            live.show_choices(controller.policy_of)
        controller.run()
    finally:
        fleet.close()
    trainers = controller.trainers.values()
    return Ending(
        has_learned=any(trainer.has_learned for trainer in trainers),
        has_finished=bool(trainers)
        and all(trainer.step >= trainer.settings.max_steps for trainer in trainers),
    )


def _begin(options: RunOptions, place: "Place | None") -> "tuple[RunOptions, torch.device]":
    """Set up log, timers, seed and threads of the process; return the options and the device."""
    import numpy as np
    import torch

    from mlagents.torch_utils import set_threads
    from mlagents.trainers.run.learners import learner_device, require_for_several

    if place is not None:
        require_for_several(options, place.size)
        options = options.with_learners(place.size)
    is_first = place is None or place.rank == 0
    set_log_origin("" if place is None or is_first else f"learner {place.rank}: ")
    set_log_level(logging.DEBUG if options.debug else logging.INFO if is_first else logging.WARNING)
    logger.info(f"mlagents-next {__version__}, PyTorch {torch.__version__}")
    reset_timers()
    add_metadata("mlagents_version", __version__)
    add_metadata("mlagents_envs_version", __version__)
    add_metadata("communication_protocol_version", API_VERSION)
    add_metadata("pytorch_version", torch.__version__)
    add_metadata("numpy_version", np.__version__)
    seed = options.env_settings.seed
    if is_first:  # the other learners receive this seed later
        options = options.with_seed(random.randrange(10_000) if seed == -1 else seed)
    device = _choose_device(options)
    if place is not None:
        device = learner_device(device, place)
    set_threads(options.torch_settings.threads, n_learners=place.n_local if place else 1)
    logger.info(run_in_words(options, device=str(device), threads=torch.get_num_threads()))
    return options, device


def _make_callbacks(
    options: RunOptions, more_callbacks: Sequence[Callback | OnSummary]
) -> Callbacks:
    """Return the callbacks of plug-ins and settings, followed by `more_callbacks`."""
    others = [(repr(given), as_callback(given, repr(given))) for given in more_callbacks]
    return Callbacks([*plugins.callbacks(options), *others])


@contextmanager
def _live_view(options: RunOptions, port: int | None) -> "Iterator[LiveView | None]":
    """Open the live view of a run, if a port is given."""
    if port is None:
        yield None
        return
    from mlagents.trainers.run.live import LiveView

    name = options.env_settings.env_path or "Unity Editor"
    try:
        live = LiveView(port, title=f"{options.checkpoint_settings.run_id}: {name}")
    except ModuleNotFoundError as error:
        raise TrainerConfigError(str(error)) from error
    with live:
        yield live


def _fleet_maker(
    options: RunOptions, folder: "RunFolder", place: "Place | None", live: "LiveView | None"
) -> "Callable[[], Fleet]":
    """Return a function that creates the players of a run, here or in rollout workers."""
    from mlagents.trainers.fleet.fleet import LocalFleet
    from mlagents.trainers.players.environments import env_manager_maker

    first_worker = place.rank * options.env_settings.num_envs if place else 0
    make_manager = env_manager_maker(options, log_folder=folder.logs, first_worker=first_worker)
    if options.cluster.workers is None:
        return lambda: LocalFleet(make_manager() if live is None else live.watch(make_manager()))

    from mlagents.trainers.fleet.processes import ProcessWorkers
    from mlagents.trainers.fleet.ray_actors import RayWorkers
    from mlagents.trainers.fleet.remote import RemoteFleet

    logs, sources = str(folder.logs.absolute()), (os.getcwd(), *filter(None, sys.path))

    def make() -> "Fleet":
        is_here = options.cluster.address is None
        workers = ProcessWorkers() if is_here else RayWorkers(options.cluster)
        return RemoteFleet(options, workers, log_folder=logs, sources=sources)

    return make


def _choose_device(options: RunOptions) -> "torch.device":
    from mlagents.torch_utils import choose_device

    try:
        return choose_device(options.torch_settings.device)
    except ValueError as error:
        raise TrainerConfigError(f"torch_settings.device (--torch-device): {error}") from error


def _make_writers(options: RunOptions, folder: "RunFolder") -> "list[StatsWriter]":
    from mlagents.trainers.reporting.plots import CurveWriter
    from mlagents.trainers.reporting.stats import ConsoleWriter, GaugeWriter, TensorBoardWriter
    from mlagents.trainers.reporting.tracking import make_trackers

    settings = options.checkpoint_settings
    writers: list[StatsWriter] = [ConsoleWriter(verbose=options.verbose or options.debug)]
    writers.append(GaugeWriter())
    if not settings.inference:
        if "tensorboard" in options.track:
            writers.append(TensorBoardWriter(folder.path, resume=settings.resume))
        writers += make_trackers(options, folder, resume=settings.resume)
        writers.append(CurveWriter(folder, resume=settings.resume))
    return [*writers, *plugins.stats_writers(options)]


if __name__ == "__main__":
    sys.exit(main())
