"""`mlagents-learn`: arguments to settings to a run."""

import logging
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from mlagents import __version__
from mlagents.trainers.cli_args import parse_command_line
from mlagents.trainers.exception import TrainerError
from mlagents.trainers.settings.load import dump_configuration, load_run_options, refuse_unbuilt
from mlagents.trainers.settings.run_options import RunOptions
from mlagents_envs.exception import UnityCommunicatorStoppedException, UnityException
from mlagents_envs.logging_util import get_logger, set_log_level
from mlagents_envs.timers import add_metadata, get_timer_tree, hierarchical_timer

logger = get_logger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status.

    0 when the run finished or was interrupted, 1 when it failed, 2 when the command line is wrong.
    """
    command_line = parse_command_line(sys.argv[1:] if argv is None else argv)
    debug = False
    try:
        options = load_run_options(command_line)
        debug = options.debug
        refuse_unbuilt(options)
        run_training(options)
    except KeyboardInterrupt:
        logger.info("Interrupted.")
    except UnityCommunicatorStoppedException as error:
        logger.info(f"The environment ended the session: {error}")
    except (TrainerError, UnityException) as error:
        if debug:
            raise
        logger.error(str(error))
        return 1
    return 0


def run_training(options: RunOptions) -> None:
    """Carry out one run, from its options to its results.

    Raises:
        TrainerError: The run cannot start or go on.
        UnityException: Its environment cannot.
    """
    # Torch takes seconds to import: --help and mistakes in a file need not wait for it.
    import torch

    from mlagents.torch_utils import choose_device, set_threads
    from mlagents.trainers.controller import Controller
    from mlagents.trainers.rollout.environments import environment_maker
    from mlagents.trainers.rollout.simple_env_manager import SimpleEnvManager
    from mlagents.trainers.stats import ConsoleWriter, GaugeWriter, TensorBoardWriter
    from mlagents.trainers.training.checkpoints import RunFolder
