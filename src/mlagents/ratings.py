"""Ratings of contestants from the results of their games.

The Bradley-Terry model expects contestant i to score p(i, j) against contestant j:

    p(i, j) = 1 / (1 + 10 ** ((r[j] - r[i]) / 400))

`bradley_terry` finds the ratings r under which the results are most likely. Unlike Elo's running
update, the ratings do not depend on the order of the games, need no factor K, and have deviations.
"""

import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

POINTS_PER_LOGIT = 400.0 / math.log(10.0)
"""Elo points of one unit of log-odds."""

DRAW = 0.5
ELO_K = 16.0
"""Largest change of an Elo rating by one game."""

Contestant = TypeVar("Contestant", bound=Hashable)


def expected_score(rating: float, opponent: float) -> float:
    """Return the expected score against an opponent: 1 for a win, 0.5 for a draw, 0 for a loss."""
    return 1.0 / (1.0 + 10.0 ** ((opponent - rating) / 400.0))


def elo_change(rating: float, opponent: float, score: float, *, k: float = ELO_K) -> float:
    """Return the change of an Elo rating by one game; the opponent's changes by the negative.

    Args:
        rating: Rating before the game.
        opponent: Rating of the opponent before the game.
        score: 1 for a win, 0.5 for a draw, 0 for a loss.
        k: Largest change.
    """
    return k * (score - expected_score(rating, opponent))


class Rating(NamedTuple):
    """A rating in Elo points.

    Attributes:
        mean: The rating.
        deviation: Standard deviation of its error; 0 for a known rating.
    """

    mean: float
    deviation: float


def bradley_terry(scores: FloatArray, known: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the most likely ratings (n,) and the covariance (n, n) of their errors.

    Ratings are in Elo points. Newton's method maximizes the log-likelihood, which is concave; the
    covariance is the inverse of its negative Hessian, and 0 for known ratings. Each contestant must
    be connected to a known rating by games with wins on both sides. A drawn game as a prior ensures
    that.

    Args:
        scores: (n, n) points that i scored against j. A draw gives half a point to each.
        known: (n,) ratings that are known, NaN where they are to be found. At least one is known.
    """
    is_free = np.isnan(known)
    games = scores + scores.T
    anchor = known[~is_free].mean()
    logits = np.where(is_free, anchor, known) / POINTS_PER_LOGIT
    free = np.flatnonzero(is_free)
    of_free: NDArray[np.floating[Any]] = np.zeros((0, 0))
    for _ in range(100 if len(free) else 0):
        share = 1.0 / (1.0 + np.exp(logits[None, :] - logits[:, None]))  # p(i, j)
        slope = (scores - games * share).sum(axis=1)[free]
        weight = games * share * share.T
        information = np.diag(weight.sum(axis=1)) - weight
        of_free = np.linalg.inv(information[np.ix_(free, free)])
        step = of_free @ slope
        longest = np.abs(step).max()
        logits[free] += step / max(1.0, longest)  # at most one unit: far away, steps overshoot
        if longest < 1e-9:
            break
    covariance = np.zeros(scores.shape)
    covariance[np.ix_(free, free)] = of_free
    return logits * POINTS_PER_LOGIT, covariance * POINTS_PER_LOGIT**2


def rate_all(scores: FloatArray, *, mean: float = 0.0, prior: float = 1.0) -> list[Rating]:
    """Return the ratings of contestants of which none is known.

    Args:
        scores: (n, n) points that i scored against j.
        mean: Mean of all ratings.
        prior: Number of drawn games of each contestant against an average one. Without them, the
            rating of a contestant that has won all its games would be infinite.
    """
    n = len(scores)
    with_average = np.zeros((n + 1, n + 1))
    with_average[:n, :n] = scores
    with_average[:n, n] = with_average[n, :n] = DRAW * prior
    known = np.full(n + 1, np.nan)
    known[n] = mean
    means, covariance = bradley_terry(with_average, known)
    to_mean = np.eye(n) - 1.0 / n  # only differences between the contestants are meant
    centered = to_mean @ means[:n] + mean
    return _ratings(centered, to_mean @ covariance[:n, :n] @ to_mean)


def _ratings(means: FloatArray, covariance: FloatArray) -> list[Rating]:
    deviations = np.sqrt(np.diag(covariance))
    return [Rating(*pair) for pair in zip(means.tolist(), deviations.tolist(), strict=True)]


class Results(Generic[Contestant]):
    """Results of the games between contestants, and their ratings.

    The first contestant is the anchor; its rating is 0. Each later one enters with drawn games
    against a predecessor, so that its rating is finite and begins near the predecessor's.
    """

    def __init__(self) -> None:
        self._scores: dict[Contestant, dict[Contestant, float]] = {}
        """Points of the first contestant against the second."""
        self._known: dict[Contestant, float] = {}

    def __contains__(self, contestant: object) -> bool:
        return contestant in self._scores

    def __iter__(self) -> Iterator[Contestant]:
        """Yield the contestants in the order in which they entered."""
        return iter(self._scores)

    def enter(
        self, contestant: Contestant, predecessor: Contestant | None = None, *, draws: int = 1
    ) -> None:
        """Add a contestant.

        Args:
            contestant: The new contestant.
            predecessor: Contestant of about the same strength; by default the anchor.
            draws: Number of drawn games against the predecessor. The expected difference of their
                strengths is about 350 points, divided by the root of this number.
        """
        if not self._scores:
            self._known[contestant] = 0.0
        self._scores[contestant] = {}
        if len(self._scores) > 1:
            opponent = predecessor or next(iter(self._scores))
            self.add(contestant, opponent, draws * DRAW, games=draws)

    def add(
        self, contestant: Contestant, opponent: Contestant, score: float, *, games: int = 1
    ) -> None:
        """Add the score of a game between two different contestants.

        Args:
            contestant: One of the two.
            opponent: The other.
            score: Its points: 1 for a win, 0.5 for a draw, 0 for a loss; of all `games` together.
            games: Number of games; negative to take games back.
        """
        ours, theirs = self._scores[contestant], self._scores[opponent]
        ours[opponent] = ours.get(opponent, 0.0) + score
        theirs[contestant] = theirs.get(contestant, 0.0) + games - score

    def settle(self, contestant: Contestant) -> None:
        """Fix the rating of a contestant that has played its last game."""
        self._known[contestant] = self.ratings()[contestant].mean
        for opponent in list(self._scores[contestant]):
            if opponent in self._known:  # a game between known ratings tells nothing
                del self._scores[contestant][opponent], self._scores[opponent][contestant]

    def ratings(self) -> dict[Contestant, Rating]:
        """Return the rating of every contestant, relative to the first one."""
        present = [one for one, scores in self._scores.items() if scores or one not in self._known]
        if not present:
            return {one: Rating(known, 0.0) for one, known in self._known.items()}
        index = {one: i for i, one in enumerate(present)}
        scores = np.zeros((len(present), len(present)))
        for one, i in index.items():
            for opponent, points in self._scores[one].items():
                scores[i, index[opponent]] = points
        known = np.array([self._known.get(one, np.nan) for one in present])
        rated = _ratings(*bradley_terry(scores, known))
        settled = {one: Rating(known, 0.0) for one, known in self._known.items()}
        return settled | dict(zip(present, rated, strict=True))

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint: lists and numbers."""
        order = {one: i for i, one in enumerate(self._scores)}
        return {
            "contestants": list(self._scores),
            "scores": [
                (order[one], order[opponent], points)
                for one, scores in self._scores.items()
                for opponent, points in scores.items()
            ],
            "known": [(order[one], rating) for one, rating in self._known.items()],
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved `state`."""
        contestants = state["contestants"]
        self._scores = {one: {} for one in contestants}
        for i, j, points in state["scores"]:
            self._scores[contestants[i]][contestants[j]] = points
        self._known = {contestants[i]: rating for i, rating in state["known"]}
