"""Tasks that are learned in seconds, one for every kind of observation, with memory or without.

In all of them an agent is shown a number and answers with it, in every kind of action, as in
`GuessEnvironment`. They differ in how the number is shown.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from actors import entities, goal, image, image_8_bit, vector
from guess_environment import GuessEnvironment
from mlagents_envs.base_env import ActionSpec, ObservationSpec

FloatArray = NDArray[np.float32]


class Shown(NamedTuple):
    """A way to show numbers.

    Attributes:
        specs: Of the observations.
        show: (N,) numbers in [-1, 1] and a source of chance to one array per observation.
    """

    specs: list[ObservationSpec]
    show: Callable[[FloatArray, np.random.Generator], list[NDArray]]


def _as_vector(numbers: FloatArray, rng: np.random.Generator) -> list[NDArray]:
    return [numbers[:, None]]


def _as_bar(numbers: FloatArray, rng: np.random.Generator) -> FloatArray:
    """(N, side) brightness of the columns, brightest where the number lies between the sides."""
    columns = np.linspace(-1, 1, 5, dtype=np.float32)
    return np.clip(1 - 2 * np.abs(numbers[:, None] - columns), 0, 1)


def _as_image(numbers: FloatArray, rng: np.random.Generator) -> list[NDArray]:
    bar = np.repeat(_as_bar(numbers, rng), 4, axis=1)
    return [np.repeat(bar[:, None, None, :], 20, axis=2)]


def _as_bytes(numbers: FloatArray, rng: np.random.Generator) -> list[NDArray]:
    bar = np.rint(_as_bar(numbers, rng) * 255).astype(np.uint8)
    return [np.repeat(bar[:, None, None, :], 5, axis=2)]


def _as_entity(numbers: FloatArray, rng: np.random.Generator) -> list[NDArray]:
    """Of one to four (number, is it the one, 1), in any order, one is the one."""
    n_agents, n_places = len(numbers), 4
    listed = np.ones((n_agents, n_places, 3), np.float32)
    listed[:, :, 0] = rng.uniform(-1, 1, (n_agents, n_places))
    listed[:, :, 1] = 0.0
    count = rng.integers(1, n_places + 1, n_agents)
    the_one = rng.integers(count)
    listed[np.arange(n_agents), the_one, :2] = np.stack([numbers, np.ones_like(numbers)], 1)
    listed[np.arange(n_places) >= count[:, None]] = 0.0
    return [listed]


def _for_goal(numbers: FloatArray, rng: np.random.Generator) -> list[NDArray]:
    """Two numbers; the goal says which."""
    which = rng.integers(2, size=len(numbers))
    both = rng.uniform(-1, 1, (len(numbers), 2)).astype(np.float32)
    both[np.arange(len(numbers)), which] = numbers
    return [both, np.eye(2, dtype=np.float32)[which]]


SHOWN = {
    "vector": Shown([vector(1)], _as_vector),
    "image": Shown([image(1, 20, 20)], _as_image),
    "8 bit image": Shown([image_8_bit(1, 5, 5)], _as_bytes),
    "entities": Shown([entities(4, 3)], _as_entity),
    "goal": Shown([vector(2), goal(vector(2))], _for_goal),
}


class Task(GuessEnvironment):
    """Guess a number that is shown in one of the ways of `SHOWN`.

    Args:
        shown: Which way.
        action_spec: How to answer; the third choice of every branch is forbidden.
        recall: Show the number at the first step of an episode only; it stays the answer
            until the episode ends, so nobody without a memory can do well.
        n_agents: N.
        episode_steps: Of every episode.
        seed: Of the numbers.
    """

    def __init__(
        self,
        shown: str,
        action_spec: ActionSpec,
        *,
        recall: bool = False,
        n_agents: int = 8,
        episode_steps: int = 4,
        seed: int = 0,
    ) -> None:
        specs, self._show = SHOWN[shown]
        self._recall = recall
        super().__init__(
            action_spec,
            n_agents=n_agents,
            episode_steps=episode_steps,
            seed=seed,
            observation_specs=specs,
        )
        self.keep_8_bit_images()  # as the trainer asks of an environment

    def _look(self) -> None:
        if not self._recall or self._begins:
            super()._look()

    def _obs(self) -> list[NDArray]:
        shown = self._show(self._number[:, 0], self._rng)
        return shown if not self._recall or self._begins else [np.zeros_like(o) for o in shown]

    @property
    def _begins(self) -> bool:
        return self._time is not None and self._time % self._episode_steps == 0
