"""Population-based training: settings change while runs learn (arXiv:1711.09846).

All runs learn for an interval. Then each of the worst quarter is replaced by a copy of one of the
best quarter, networks included, and some of its settings are changed. Each run is an ordinary one
that is resumed for every interval.
"""

import json
import math
import shutil
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from mlagents.search.measure import Curve
from mlagents.search.process import Point, Pool
from mlagents.search.search import LINEAGE, Plan, prepare_folder, values_in_words
from mlagents.trainers.exception import TrainerConfigError, UnityTrainerException
from mlagents.trainers.settings.search import Choices, Range
from mlagents_envs.atomic_file import write_atomically
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

_FIXED = (".network_settings.", ".trainer_type", ".buffer_size", ".memory.", ".max_steps")
"""Parts of paths that a resumed run cannot change."""


@dataclass
class Member:
    """A run of the population.

    Attributes:
        number: Its number, from 0.
        values: Present values of its settings, by path.
        value: Mean of the statistic over the last interval. It is None before the first one, or if
            the run failed.
        lineage: Copies that replaced it: the "share" of the steps done then, the number of the
            "copied" member, and the new "values".
    """

    number: int
    values: dict[str, Any]
    value: float | None = None
    lineage: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"member-{self.number}"


class Evolution:
    """Trains a population.

    Args:
        plan: What is searched.
        resume: Whether to continue an earlier population in the folder.

    Raises:
        TrainerConfigError: The space holds a setting that cannot change within a run, or the folder
            holds other results.
    """

    def __init__(self, plan: Plan, *, resume: bool) -> None:
        _refuse_fixed(plan)
        prepare_folder(plan.folder, resume=resume, holds=LINEAGE)
        self._plan = plan
        self._rng = np.random.default_rng(plan.seed)
        self._done = 0.0
        self.members: list[Member] = []
        if resume:
            self._load()
        else:
            self.members = [
                Member(number, {path: self._drawn(each) for path, each in self._space.items()})
                for number in range(plan.settings.population.size)
            ]

    @property
    def _space(self) -> dict[str, Range | Choices]:
        return self._plan.settings.space

    @property
    def best(self) -> Member:
        """Member with the best value."""
        return self._ranked()[0]

    def run(self) -> None:
        """Train all members to their end.

        Raises:
            UnityTrainerException: All members failed.
        """
        interval = self._plan.settings.population.interval
        while self._done < 1.0:
            until = min(1.0, self._done + interval)
            if 1.0 - until < interval / 2:
                until = 1.0
            self._train(until)
            if all(member.value is None for member in self.members):
                raise UnityTrainerException(
                    "all members of the population failed. Read the logs in "
                    f"{self._plan.folder / 'logs'}."
                )
            self._done = until
            if until < 1.0:
                self._replace_worst()
            self._save()
            best = self.best
            logger.info(
                f"{self._done:.0%}: best is member {best.number} with "
                f"{self._plan.in_words(best.value)} ({values_in_words(best.values)})"
            )

    def _train(self, until: float) -> None:
        """Let all members learn until a share of their steps."""
        plan = self._plan
        waiting = deque(self.members)
        curves: dict[int, Curve] = {member.number: [] for member in self.members}
        with Pool[int](plan.jobs) as pool:
            while waiting or not pool.is_empty:
                while waiting and not pool.is_full:
                    member = waiting.popleft()
                    options = plan.run_options(
                        member.values,
                        member.name,
                        seed=plan.seed + member.number,
                        resume=member.value is not None,
                    )
                    steps = math.ceil(until * plan.max_steps(options))
                    job = plan.job(options, member.name, until=None if until == 1.0 else steps)
                    pool.start(member.number, job)
                for number, event in pool.events():
                    if isinstance(event, Point):
                        curves[number].append(event)
                        continue
                    if event.error is not None:
                        logger.warning("Member %d failed: %s", number, event.error)
                    curve = curves[number]
                    is_measured = event.error is None and curve
                    self.members[number].value = (
                        float(np.mean([value for _, value in curve])) if is_measured else None
                    )

    def _ranked(self) -> list[Member]:
        """Return the members, best first."""
        sign = -1.0 if self._plan.settings.measure.direction == "maximize" else 1.0
        return sorted(
            self.members,
            key=lambda member: (member.value is None, sign * (member.value or 0.0)),
        )

    def _replace_worst(self) -> None:
        ranked = self._ranked()
        n_replaced = max(1, len(ranked) // 4)
        best = [member for member in ranked[:n_replaced] if member.value is not None]
        for loser in ranked[-n_replaced:]:
            winner = best[self._rng.integers(len(best))]
            target = self._plan.folder / loser.name
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(self._plan.folder / winner.name, target)
            loser.value = winner.value
            loser.values = {
                path: self._changed(winner.values[path], each) for path, each in self._space.items()
            }
            loser.lineage.append(
                {"share": self._done, "copied": winner.number, "values": loser.values}
            )

    def _changed(self, value: Any, dimension: Range | Choices) -> Any:
        """Return a value perturbed, or drawn again."""
        settings = self._plan.settings.population
        if self._rng.random() < settings.resample:
            return self._drawn(dimension)
        if isinstance(dimension, Choices):
            place = dimension.choices.index(value) + self._rng.choice([-1, 1])
            return dimension.choices[int(np.clip(place, 0, len(dimension.choices) - 1))]
        factor = settings.perturb ** self._rng.choice([-1, 1])
        return _fitted(value * factor, dimension)

    def _drawn(self, dimension: Range | Choices) -> Any:
        if isinstance(dimension, Choices):
            return dimension.choices[self._rng.integers(len(dimension.choices))]
        if dimension.log:
            exponent = self._rng.uniform(math.log(dimension.low), math.log(dimension.high))
            return _fitted(math.exp(exponent), dimension)
        return _fitted(self._rng.uniform(dimension.low, dimension.high), dimension)

    def _save(self) -> None:
        state = {
            "done": self._done,
            "random_state": self._rng.bit_generator.state,
            "members": [asdict(member) for member in self.members],
        }
        write_atomically(self._plan.folder / LINEAGE, json.dumps(state, indent=1).encode())

    def _load(self) -> None:
        file = self._plan.folder / LINEAGE
        try:
            state = json.loads(file.read_bytes())
            self._done = float(state["done"])
            self._rng.bit_generator.state = state["random_state"]
            self.members = [Member(**member) for member in state["members"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TrainerConfigError(
                f"{file} cannot be continued: {error!r}. Start again with --force."
            ) from error


def _fitted(value: float, dimension: Range) -> float | int:
    """Return the nearest value of a range."""
    low, high = dimension.corners
    if dimension.step is not None:
        value = low + round((value - low) / dimension.step) * dimension.step
    value = min(max(value, low), high)
    return round(value) if dimension.is_whole else float(value)


def _refuse_fixed(plan: Plan) -> None:
    for path in plan.settings.space:
        if any(part in f".{path}." for part in _FIXED):
            raise TrainerConfigError(
                f"search.space.{path}: the sampler 'population' changes settings while runs learn, "
                "which is not possible for this one. Choose another sampler, or remove it."
            )
