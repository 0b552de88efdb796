"""`RemoteExperience`: the experience of a behavior's agents in all workers."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mlagents.trainers.acting.collector import Activity
from mlagents.trainers.data.segments import OpenSteps, Segments
from mlagents.trainers.fleet.messages import Cut, Gathered


class _Part(NamedTuple):
    """Segments of one worker, in which one version of a policy acted."""

    worker: int
    version: int
    segments: Segments


class RemoteExperience:
    """Experience of the agents of a behavior in all workers.

    Args:
        fetch: Function that makes the workers hand over the segments of the behavior.
        max_staleness: Largest number of updates between the policy that acted and the current one.
            Older segments are dropped. None for no limit.

    Attributes:
        version: Number of the current policy.
        problems: Unusual ends of the episodes of groups.
        n_dropped: Number of steps dropped so far, because they were too old.
    """

    def __init__(self, fetch: Callable[[], None], *, max_staleness: int | None) -> None:
        self._fetch = fetch
        self._max_staleness = max_staleness
        self._parts: list[_Part] = []
        self._activities: list[Activity] = []
        self._held: dict[int, tuple[int, int]] = {}
        """Numbers of steps in finished and in unfinished segments that each worker holds."""
        self._cut: dict[int, Cut] = {}
        """Segments that workers sent with their answers, but that have not been requested yet.
        `_held` still counts them."""
        self._vanished: dict[int, int] = {}
        self.version = -1
        self.problems: list[str] = []
        self.n_dropped = 0

    @property
    def n_held(self) -> int:
        """Number of steps in finished segments that have not been taken yet."""
        return self.n_steps - self.n_unfinished

    @property
    def n_unfinished(self) -> int:
        """Number of completed steps in unfinished segments."""
        return sum(n_unfinished for _, n_unfinished in self._held.values())

    @property
    def n_vanished(self) -> int:
        """Number of agents that have vanished so far."""
        return sum(self._vanished.values())

    @property
    def n_steps(self) -> int:
        """Number of steps, in this process and in the workers."""
        here = sum(part.segments.n_steps for part in self._parts)
        return here + sum(sum(held) for held in self._held.values())

    def held_by(self, worker: int) -> int:
        """Return the number of steps that a worker holds."""
        return sum(self._held.get(worker, (0, 0)))

    def add(self, worker: int, gathered: Gathered) -> None:
        """Add the result of a collection."""
        self._activities.append(gathered.activity)
        self._held[worker] = gathered.n_held, gathered.n_unfinished
        self._vanished[worker] = gathered.n_vanished
        self.problems += gathered.problems
        if gathered.cut is not None:
            self._cut[worker] = gathered.cut
        if gathered.segments is not None:
            self._parts.append(_Part(worker, gathered.version, gathered.segments))

    def has_to_send(self, worker: int) -> bool:
        """Return whether a worker holds segments that it has not sent already."""
        return worker not in self._cut and self.held_by(worker) > 0

    def settle(self, worker: int) -> None:
        """Add the segments that a worker sent with its answer, if there are any."""
        if (cut := self._cut.pop(worker, None)) is not None:
            self.add_fetched(worker, cut)

    def add_fetched(self, worker: int, cut: Cut) -> None:
        """Add the segments that a worker handed over for an update."""
        segments, activity = cut
        self._activities.append(activity)
        self._held[worker] = 0, 0
        if segments is not None:
            self._parts.append(_Part(worker, self.version, segments))

    def lose(self, worker: int) -> None:
        """Drop the count of steps that a worker holds, because its process has ended."""
        self.settle(worker)
        self._held.pop(worker, None)

    def activity(self) -> Activity:
        """Return the activity of agents since the last call."""
        activities, self._activities = self._activities, []
        return activities[0] if len(activities) == 1 else Activity.concatenate(activities)

    def take(self, *, at_least: int = 0) -> Segments | None:
        """Remove and return the segments of all workers; None if there are too few steps."""
        self._drop_old()
        if at_least:
            if self.n_steps < at_least:
                return None
            self._fetch()
            if sum(part.segments.n_steps for part in self._parts) < at_least:
                return None  # a worker has ended meanwhile, and collects its share again
        parts, self._parts = self._parts, []
        return _joined(parts) if parts else None

    def _drop_old(self) -> None:
        if self._max_staleness is None:
            return
        oldest = self.version - self._max_staleness
        self.n_dropped += sum(p.segments.n_steps for p in self._parts if p.version < oldest)
        self._parts = [part for part in self._parts if part.version >= oldest]


def _joined(parts: list[_Part]) -> Segments:
    """Concatenate the segments of workers, in the order of the workers."""
    of_worker: dict[int, list[Segments]] = {}
    for part in parts:
        of_worker.setdefault(part.worker, []).append(part.segments)
    each = [Segments.concatenate(of_worker[number]) for number in sorted(of_worker)]
    if len(each) == 1:
        return each[0]
    still = [segments.open_steps for segments in each if segments.open_steps is not None]
    return replace(Segments.concatenate(each), open_steps=_joined_open(still) if still else None)


def _joined_open(parts: list[OpenSteps]) -> OpenSteps:
    obs, *others = zip(*parts, strict=True)
    return OpenSteps(
        [np.concatenate(batches) for batches in zip(*obs, strict=True)],
        *(np.concatenate(column) for column in others),
    )
