"""Group steps: the agents of a group that were present together, found before each update.

Segments do not contain an agent's mates. Nearly all mates have their own steps in the same
experience, so a join by group and tick finds them without storing anything twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlagents.trainers.data.segments import OpenSteps, Segments
from mlagents_envs.base_env import FloatArray

IntArray = NDArray[np.int64]


class Arrangement(NamedTuple):
    """A selection of Q group steps, ordered by number of members.

    Their members occupy P places, step by step. `GroupSteps` defines appearances.

    Attributes:
        step: (Q,) numbers of the group steps.
        appearance: (M,) distinct appearances in these group steps, those with a row first.
        place: (P,) index into `appearance` of the member in each place; None if the indices are
            0 to P - 1.
        sizes: Pairs (number of group steps, number of members), in order.
        row: (R,) rows that act in these group steps.
        step_of_row: (R,) index of the group step in which each row acts, from 0 to Q - 1.
        place_of_row: (R,) place of each row.
    """

    step: IntArray
    appearance: IntArray
    place: IntArray | None
    sizes: list[tuple[int, int]]
    row: IntArray
    step_of_row: IntArray
    place_of_row: IntArray

    @property
    def members(self) -> IntArray:
        """Number of members of each group step, (Q,)."""
        return np.repeat([n for _, n in self.sizes], [q for q, _ in self.sizes])


@dataclass(frozen=True, slots=True)
class GroupSteps:
    """Q group steps: the members of a group at one tick, P members in total.

    An *appearance* is one observation of an agent, with its action if it acted. The first N are the
    rows of the segments, the next L the open steps, and the last S the last observations of the
    segments. A member that does not decide at a tick has the appearance of its last decision.

    Attributes:
        n_rows: Number of rows, N.
        n_acting: Number of appearances with an action, N + L.
        start: (Q + 1,) first place of each group step, followed by P.
        member: (P,) appearance of the member in each place.
        step_of_row: (N,) group step in which each row acts.
        place_of_row: (N,) place of each row in that group step.
        after: (S,) group step that follows each segment: the remaining members or, if there are
            none, the members whose episodes ended last.
        is_over: (S,) bool, True where the task has ended the episodes of all members, so the value
            of the following state is zero.
    """

    n_rows: int
    n_acting: int
    start: IntArray
    member: IntArray
    step_of_row: IntArray
    place_of_row: IntArray
    after: IntArray
    is_over: NDArray[np.bool_]

    @property
    def size(self) -> IntArray:
        """Number of members of each group step, (Q,)."""
        return np.diff(self.start)

    def arrange(self, steps: IntArray) -> Arrangement:
        """Return the given distinct group steps, ordered by size."""
        size = self.size[steps]
        steps = steps[np.argsort(size, kind="stable")]
        numbers, counts = np.unique(size, return_counts=True)
        places = _ranges(self.start[steps], self.size[steps])
        appearance, place = self.member[places], None
        unique, index = np.unique(appearance, return_inverse=True)
        if len(unique) < len(appearance) or appearance.max() >= self.n_rows:
            appearance, place = unique, index
        acts = np.flatnonzero(self._acts()[places])
        row = self.member[places[acts]]
        return Arrangement(
            steps,
            appearance,
            place,
            list(zip(counts.tolist(), numbers.tolist(), strict=True)),
            row,
            np.repeat(np.arange(len(steps)), self.size[steps])[acts],
            acts,
        )

    def around(self, rows: IntArray) -> Arrangement:
        """Return the group steps of the given rows. Only these rows act, in the given order."""
        arranged = self.arrange(np.unique(self.step_of_row[rows]))
        index = np.zeros(self.n_rows, np.int64)
        index[arranged.row] = np.arange(len(arranged.row))
        return arranged._replace(
            row=rows,
            step_of_row=arranged.step_of_row[index[rows]],
            place_of_row=arranged.place_of_row[index[rows]],
        )

    def parts(self, steps: IntArray, n_members: int) -> Iterator[Arrangement]:
        """Yield group steps in parts of about `n_members` members, large groups last."""
        steps = steps[np.argsort(self.size[steps], kind="stable")]
        before = np.cumsum(self.size[steps]) - self.size[steps]
        for part in np.split(steps, np.flatnonzero(np.diff(before // n_members)) + 1):
            if len(part):
                yield self.arrange(part)

    def _acts(self) -> NDArray[np.bool_]:
        """Return (P,) bool, True at the places of acting rows."""
        acts = np.zeros(len(self.member), np.bool_)
        acts[self.place_of_row] = True
        return acts


def group_steps(segments: Segments) -> GroupSteps:
    """Join the rows, the open steps and the ends of segments into group steps.

    Raises:
        ValueError: The segments were collected without groups.
    """
    still = segments.open_steps
    if still is None:
        raise ValueError("the segments have no groups: collect them with `with_groups=True`")
    n_rows, n_open, n_segments = segments.n_steps, len(still.tick), len(segments.length)
    n_acting = n_rows + n_open
    segment = np.repeat(np.arange(n_segments), segments.length)
    episode = np.concatenate([segments.episode[segment], still.episode, segments.episode])
    agent = np.unique(episode, return_inverse=True)[1]

    # An event is a tick at which a member of a group was observed.
    key, span = _keys(segments, still)
    events, event = np.unique(key, return_inverse=True)
    acts_at, ends_at = event[:n_acting], event[n_acting:]

    # A member remains from each decision until its next report; open steps last to the end.
    until = np.append(event[1:n_rows], 0)
    until[np.cumsum(segments.length) - 1] = ends_at
    last_of_group = np.searchsorted(events, (key[n_rows:n_acting] // span + 1) * span)
    n_events = np.concatenate([until, last_of_group]) - acts_at
    remaining = _Places(_ranges(acts_at, n_events), np.repeat(np.arange(n_acting), n_events))

    # A member whose episode ends or that leaves its group has one more appearance.
    of_segment = agent[n_acting:] * len(events) + ends_at
    goes_on = np.isin(of_segment, agent[:n_acting] * len(events) + acts_at)
    leaves = np.flatnonzero(~goes_on & ~segments.terminated)
    has_remaining = np.zeros(len(events), np.bool_)
    has_remaining[remaining.event] = True
    has_leaving = np.zeros(len(events), np.bool_)
    has_leaving[ends_at[leaves]] = True
    is_over = segments.terminated & ~(has_remaining | has_leaving)[ends_at]
    over = np.flatnonzero(is_over)
    places = [
        remaining.of_kind(_REMAINING),
        remaining.take(has_leaving[remaining.event]).of_kind(_WITH_LEAVING),
        _Places(ends_at[leaves], n_acting + leaves).of_kind(_WITH_LEAVING),
        _Places(ends_at[over], n_acting + over).of_kind(_OVER),
    ]
    of_step, member = (np.concatenate(column) for column in zip(*places, strict=True))
    order = np.lexsort([agent[member], of_step])
    of_step, member = of_step[order], member[order]
    steps, start = np.unique(of_step, return_index=True)

    kind_after = np.where(has_remaining[ends_at], _REMAINING, _WITH_LEAVING)
    kind_after[leaves] = _WITH_LEAVING
    kind_after[over] = _OVER
    step_of_row = _N_KINDS * acts_at[:n_rows] + _REMAINING
    return GroupSteps(
        n_rows,
        n_acting,
        np.append(start, len(member)),
        member,
        np.searchsorted(steps, step_of_row),
        _place_of_row(step_of_row, of_step, member),
        np.searchsorted(steps, _N_KINDS * ends_at + kind_after),
        is_over,
    )


def _place_of_row(step_of_row: IntArray, of_step: IntArray, member: IntArray) -> IntArray:
    """Return the place of each row in the group step in which it acts, (N,).

    Args:
        step_of_row: (N,) group step in which each row acts.
        of_step: (P,) group step of each place.
        member: (P,) appearance of the member in each place. Appearances of rows are below N.
    """
    acts = np.flatnonzero(member < len(step_of_row))
    acts = acts[of_step[acts] == step_of_row[member[acts]]]
    place = np.empty(len(step_of_row), np.int64)
    place[member[acts]] = acts
    return place


def reward_of_mates(segments: Segments) -> FloatArray:
    """Return the sum of the mates' own rewards between each step and the agent's next one, (N,).

    Rewards in earlier experience do not count.
    """
    n_rows = segments.n_steps
    keys, _ = _keys(segments, None)
    opened = keys[:n_rows]
    closed = np.append(opened[1:], 0)
    closed[np.cumsum(segments.length) - 1] = keys[n_rows:]
    order = np.argsort(closed, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(segments.reward[order], dtype=np.float64)])
    ordered = closed[order]
    until = total[np.searchsorted(ordered, closed, side="right")]
    before = total[np.searchsorted(ordered, opened, side="right")]
    return (until - before - segments.reward).astype(np.float32)


_REMAINING, _WITH_LEAVING, _OVER = 0, 1, 2
_N_KINDS = 3
"""Kinds of group steps: remaining members, remaining members together with members that leave or
are interrupted, and members whose episodes the task has ended together."""


class _Places(NamedTuple):
    """Members at events, by their appearances."""

    event: IntArray
    appearance: IntArray

    def take(self, which: NDArray[np.bool_]) -> "_Places":
        return _Places(self.event[which], self.appearance[which])

    def of_kind(self, kind: int) -> tuple[IntArray, IntArray]:
        """Return the number of the group step of each place, and the appearances."""
        return _N_KINDS * self.event + kind, self.appearance


def _keys(segments: Segments, still: OpenSteps | None) -> tuple[IntArray, int]:
    """Return a number for each pair of group and tick, and the distance between two groups.

    The numbers belong to all rows, then all open steps, then the ends of all segments.
    """
    groups = [np.repeat(segments.group, segments.length), segments.group]
    ticks = [segments.tick, segments.last_tick]
    if still is not None:
        groups.insert(1, still.group)
        ticks.insert(1, still.tick)
    tick = np.concatenate(ticks)
    span = int(tick.max() - tick.min()) + 1
    group = np.unique(np.concatenate(groups), return_inverse=True)[1]
    keys: IntArray = group * span + tick - tick.min()
    return keys, span


def _ranges(start: IntArray, length: IntArray) -> IntArray:
    """Concatenate ranges of `length` consecutive numbers that begin at `start`."""
    ends = np.cumsum(length)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(start - (ends - length), length)
