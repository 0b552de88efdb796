"""`Camera`: films an environment while it is played."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable

from mlagents.playing.film import MAX_FPS, Film, Picture, open_film
from mlagents_envs.base_env import BaseEnv
from mlagents_envs.checked_env import unwrapped
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.logging_util import get_logger
from mlagents_envs.programs import command, program
from mlagents_envs.scene import HasScene
from mlagents_envs.scene_picture import View, picture_of

logger = get_logger(__name__)

STEP_S = 0.02
"""Simulated time of a step, unless the environment says otherwise: Unity's default."""
SMOOTH_FPS = 25.0
"""Least number of pictures per second of film, if enough steps are simulated."""


@runtime_checkable
class _Stepwise(Protocol):
    """An environment that calls a function after each step of its simulation, as `World` does."""

    step_watcher: Callable[[], None] | None


class Camera:
    """Films an environment until the film is full or cannot be written.

    A world of this package is filmed between decisions too, at 25 pictures a second or more. Other
    environments are filmed once for each decision.

    Args:
        env: Environment to film.
        path: Path of the film. Its suffix determines the format.
        view: Size of the pictures and, for an environment with a scene, the areas shown and the
            magnification. None for the defaults.
        fps: Number of decisions shown per second; None for real time.
        seconds: Longest duration of the film, in s.

    Attributes:
        has_failed: Whether the film could not be written. The error is logged.

    Raises:
        UnityEnvironmentException: The environment cannot draw pictures.
        OSError: The file cannot be written.
        ModuleNotFoundError: A package of the extra `play` is missing.
    """

    def __init__(
        self,
        env: BaseEnv,
        path: Path,
        *,
        view: View | None = None,
        fps: float | None = None,
        seconds: float = math.inf,
    ) -> None:
        self.has_failed = False
        self._env, self._view = env, view
        own = unwrapped(env)
        if not isinstance(own, HasScene) and getattr(own, "render", None) is None:
            raise UnityEnvironmentException(
                f"{type(own).__name__} draws no pictures of itself, so it cannot be filmed. To "
                f"list worlds that can, run {command(*program('mlagents-sim'), '--list')}."
            )
        period = getattr(own, "decision_period_steps", 1)
        decisions_per_s = fps or 1.0 / (getattr(own, "step_s", STEP_S) * period)
        self._stride, self._n_steps, self._has_begun = 1, 0, False
        self._stepwise = own if isinstance(own, _Stepwise) else None
        if self._stepwise is not None:
            steps_per_s = decisions_per_s * period
            if period > 1:
                self._stride = max(1, int(steps_per_s / SMOOTH_FPS))
            self._stride = max(self._stride, math.ceil(steps_per_s / MAX_FPS))
            self._stepwise.step_watcher = self._watch
        film_fps = decisions_per_s
        if self._stepwise is not None:
            film_fps = decisions_per_s * period / self._stride
        self._n_left = seconds * film_fps
        size = None if view is None else (view.width, view.height)
        self._film: Film = open_film(path, fps=film_fps, size=size)

    def shoot(self) -> None:
        """Film the current report of the environment. Call this before each answer."""
        if self._stepwise is None or not self._has_begun:
            self._has_begun = True
            self._add()

    def close(self) -> None:
        """Finish the film."""
        if self._stepwise is not None:
            self._stepwise.step_watcher = None
        with self._failure_logged():
            self._film.close()

    def _watch(self) -> None:
        self._n_steps += 1
        if self._has_begun and self._n_steps % self._stride == 0:
            self._add()

    def _add(self) -> None:
        if not self.has_failed and self._n_left > 0:
            self._n_left -= 1
            with self._failure_logged():
                self._film.shoot(self._draw)

    def _draw(self) -> Picture:
        return picture_of(self._env, self._view)

    @contextmanager
    def _failure_logged(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.has_failed = True
            logger.warning(f"The film cannot be written: {error}. Play continues without it.")
