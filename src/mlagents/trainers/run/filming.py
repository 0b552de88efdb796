"""`Filmer`: films the policies of a run while it trains, in a separate process.

policies ──export──► films/*.onnx ──mlagents-play --render──► films/<step>.mp4
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.settings.parameters import ConstantParameters, Sampler
from mlagents.trainers.settings.run_options import RunOptions
from mlagents_envs.checked_env import unwrapped
from mlagents_envs.exception import UnityException
from mlagents_envs.factories import call_factory, find_build, find_factory
from mlagents_envs.logging_util import get_logger
from mlagents_envs.programs import needed_extra
from mlagents_envs.scene import HasScene

logger = get_logger(__name__)

FOLDER = "films"
PROGRAM = ["-m", "mlagents.playing.play"]
"""Command that runs `mlagents-play`."""
FILM_S = 10.0
"""Longest duration of a film, in s."""
NICENESS = 10
"""Niceness of the film's process, on systems that have it, so that training goes first."""
END_WAIT_S = 60.0
"""Longest time to wait for the last film at the end of a run, in s."""


class Filmer:
    """Makes films of the current policies, one at a time.

    If a film is due while the previous one is still being made, it begins when that is complete. It
    then shows the policies of that time.

    Args:
        options: All settings of the run, with its final seed and `film_every`.
        folder: Folder of the run.
    """

    def __init__(self, options: RunOptions, folder: Path) -> None:
        every = options.checkpoint_settings.film_every
        assert every is not None
        self._every, self._environment = every, options.env_settings
        self._folder = folder / FOLDER
        self._due_at: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._film = self._folder
        self._models: dict[str, Path] = {}

    def is_due(self, trainers: Mapping[str, Trainer]) -> bool:
        """Return whether a film is due and none is being made."""
        step = _step(trainers)
        if self._due_at is None:
            self._due_at = (step // self._every + 1) * self._every
        return step >= self._due_at and not self._is_busy()

    def begin(self, trainers: Mapping[str, Trainer], parameters: Mapping[str, Sampler]) -> None:
        """Begin a film of all behaviors. A failure is logged and does not end the run.

        Args:
            trainers: Trainers of the behaviors, by name.
            parameters: Environment parameters of the current lessons. Parameters that are sampled
                have their default values in the film.
        """
        step = _step(trainers)
        self._due_at = (step // self._every + 1) * self._every
        self._film = self._folder / f"{step}.mp4"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._models = {}
            for name, trainer in trainers.items():
                if not trainer.learner.has_diverged:
                    self._models[name] = self._folder / f".{name}.onnx"
                    self._models[name].write_bytes(trainer.learner.export())
            self._process = self._start(parameters, list(trainers))
        except OSError as error:
            logger.warning(f"The film of step {step} cannot be made: {error}. Training continues.")

    def close(self) -> None:
        """Wait for a film that is being made, for a limited time. Calling it again does nothing."""
        if self._process is None:
            return
        if self._process.poll() is None:
            logger.info(f"Waiting for {self._film} at most {END_WAIT_S:.0f} s.")
        try:
            self._process.wait(END_WAIT_S)
        except subprocess.TimeoutExpired:
            logger.warning(f"{self._film} takes too long and is not completed.")
            self._process.kill()
            self._process.communicate()
            self._process = None
        self._is_busy()

    def _start(
        self, parameters: Mapping[str, Sampler], names: list[str]
    ) -> "subprocess.Popen[bytes]":
        values = {
            name: sampler.sampler_parameters.value
            for name, sampler in parameters.items()
            if isinstance(sampler.sampler_parameters, ConstantParameters)
        }
        environment = self._environment
        nice = shutil.which("nice")
        words = [] if nice is None else [nice, "-n", str(NICENESS)]
        words += [sys.executable, *PROGRAM, "--env", str(environment.env_path)]
        words += ["--render", str(self._film), "--film-seconds", str(FILM_S), "--episodes", "1"]
        words += ["--seed", str(environment.seed), "--behavior", names[0]]
        for name, path in self._models.items():
            words += ["--model", f"{name}={path}"]
        for name, value in values.items():
            words += ["--parameter", f"{name}={value}"]
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # so Ctrl-C ends training but not the film
        )

    def _is_busy(self) -> bool:
        """Return whether a film is being made; log the end of one that has ended."""
        if self._process is None:
            return False
        if self._process.poll() is None:
            return True
        _, told = self._process.communicate()
        if self._process.returncode == 0 and self._film.exists():
            logger.info(f"Film: {self._film}")
        else:
            last = told.decode(errors="replace").strip().rpartition("\n")[2]
            logger.warning(f"{self._film} could not be made: {last or 'see above'}")
        for model in self._models.values():
            model.unlink(missing_ok=True)
        self._process = None
        return False


def _step(trainers: Mapping[str, Trainer]) -> int:
    return max((trainer.step for trainer in trainers.values()), default=0)


def filmer_maker(options: RunOptions, folder: Path) -> Callable[[], Filmer] | None:
    """Return a function that makes the filmer of a run, or None if it makes no films.

    Raises:
        TrainerConfigError: The environment cannot draw itself, or a package is missing.
    """
    settings = options.checkpoint_settings
    if settings.film_every is None or settings.inference:
        return None
    where = options.env_settings.env_path
    if where is None or find_build(where) is not None:
        what = "the Unity Editor" if where is None else f"the Unity build {where!r}"
        raise TrainerConfigError(
            f"checkpoint_settings.film_every (--film-every): {what} draws no pictures that can be "
            "filmed. Leave out the setting, or train in a world of this package or in your own "
            "environment with a method scene() or render()."
        )
    try:
        with needed_extra("play"):
            for package in ("PIL", "imageio_ffmpeg", "onnx"):
                import_module(package)
        env = call_factory(find_factory(where), seed=options.env_settings.seed, num_areas=1)
    except ModuleNotFoundError as error:
        raise TrainerConfigError(f"checkpoint_settings.film_every: {error}") from error
    except UnityException as error:
        raise TrainerConfigError(f"env_settings.env_path: {error}") from error
    own = unwrapped(env)
    can_draw = isinstance(own, HasScene) or getattr(own, "render", None) is not None
    env.close()
    if not can_draw:
        raise TrainerConfigError(
            f"checkpoint_settings.film_every (--film-every): {type(own).__name__} draws no "
            "pictures of itself. Leave it out, or give the environment a method scene() or "
            "render()."
        )
    return lambda: Filmer(options, folder)
