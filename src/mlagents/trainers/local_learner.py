"""One of several learners that `mlagents-learn --learners` starts on its machine.

The first line of standard input contains its settings and its rank. The process ends when standard
input closes, so it never outlives its parent process.
"""

import json
import os
import sys
import threading
from pathlib import Path

from mlagents import plugins
from mlagents.trainers.exception import TrainerError
from mlagents.trainers.learn import run_training
from mlagents.trainers.learning.process_group import LearnerError
from mlagents.trainers.run.interrupt import Interrupted
from mlagents.trainers.run.learners import Place
from mlagents.trainers.settings.hyperparameters import with_trainer_types
from mlagents.trainers.settings.run_options import RunOptions
from mlagents_envs.exception import UnityException


def main() -> int:
    """Learn until the run ends; return an exit status. The first learner reports failures."""
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_starter, name="watches the run", daemon=True).start()
    trainer_types = plugins.trainer_types()
    place = Place(job["rank"], job["size"], job["rank"], job["size"], Path(job["store"]))
    try:
        with with_trainer_types({name: each.settings for name, each in trainer_types.items()}):
            options = RunOptions.model_validate(job["options"])
            run_training(options, trainer_types=trainer_types, place=place)
    except (Interrupted, KeyboardInterrupt):
        return 0
    except (LearnerError, TrainerError, UnityException, OSError):
        return 1
    return 0


def _end_with_starter() -> None:
    while os.read(sys.stdin.fileno(), 1024):  # unbuffered, because exiting waits for buffers
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
