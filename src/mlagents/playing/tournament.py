"""`Tournament`: games between trained policies, with both sides for each pair."""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlagents.games import Side, paired
from mlagents.playing.policy import Policy
from mlagents.ratings import DRAW, Rating, rate_all
from mlagents_envs.base_env import BaseEnv, BehaviorId, BehaviorName
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.programs import needed_extra

MEAN_RATING = 1200.0
"""Mean rating of all contestants."""

_FROM_RESET, _LATER = 0, 1
"""Numbers of the games that a round counts, and of games that begin after them."""


class Tournament:
    """Games of all pairs of contestants in an environment with two teams.

    A round is one game in each area, from a reset to the end of the last game. If a game ends
    early, the next game of its area does not count, because short games would count more often. An
    interrupted game is a draw.

    Args:
        env: Environment. It is not closed.
        names: Names of the contestants.
        load: Function that loads the policy of a contestant, by its number, for a behavior.
        n_games: Smallest number of games of each pair; half of them with sides exchanged.

    Attributes:
        scores: (n, n) points that each contestant scored against each other; a draw is half a
            point.
        n_decisions: Number of decisions of all agents together.

    Raises:
        UnityEnvironmentException: The environment does not have two teams.
    """

    def __init__(
        self,
        env: BaseEnv,
        names: Sequence[str],
        load: Callable[[int, BehaviorName], Policy],
        *,
        n_games: int,
    ) -> None:
        self.names = names
        self.scores = np.zeros((len(names), len(names)))
        self.n_decisions = 0
        self._env = env
        self._load = load
        self._n_games = n_games
        self._policies: dict[tuple[int, str], Policy] = {}
        env.reset()
        self._teams = sorted({BehaviorId.parse(name).team for name in env.behavior_specs})
        if len(self._teams) != 2:
            raise UnityEnvironmentException(
                f"--tournament needs a game of two teams; this environment has "
                f"{', '.join(env.behavior_specs)}. Give the agents of each side a different Team "
                "Id."
            )

    @property
    def ratings(self) -> list[Rating]:
        """Rating of each contestant from the games so far."""
        return rate_all(self.scores, mean=MEAN_RATING)

    @property
    def n_games(self) -> NDArray[np.float64]:
        """(n, n) number of games of each pair."""
        games: NDArray[np.float64] = self.scores + self.scores.T
        return games

    def play(self) -> Iterator[None]:
        """Play all games; yield after each step of the environment.

        Raises:
            UnityPolicyException: A policy does not fit its behavior.
        """
        of_side = -(-self._n_games // 2)
        for pair in combinations(range(len(self.names)), 2):
            for sides in (pair, pair[::-1]):
                wanted = self.n_games[pair] + of_side
                while self.n_games[pair] < wanted:
                    yield from self._play_round(sides)

    def table(self) -> str:
        """Return the ratings and the results as text, best contestant first."""
        ratings, games = self.ratings, self.n_games
        order = sorted(range(len(self.names)), key=lambda i: -ratings[i].mean)
        rows = [["", "rating", "+/-", "games", "score", *(str(k + 1) for k in range(len(order)))]]
        for place, i in enumerate(order):
            n_played = games[i].sum()
            cells = [_share(self.scores[i, j], games[i, j]) for j in order]
            rows.append(
                [
                    f"{place + 1} {self.names[i]}",
                    f"{ratings[i].mean:.0f}",
                    f"{ratings[i].deviation:.0f}",
                    f"{n_played:.0f}",
                    _share(self.scores[i].sum(), n_played),
                    *cells,
                ]
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
            for row in rows
        ]
        return "\n".join(lines)

    def draw(self, path: Path) -> None:
        """Draw the table: shares of points as colors, red for none to blue for all.

        Raises:
            ModuleNotFoundError: Pillow is not installed.
            OSError: The file cannot be written.
        """
        _draw(path, self.names, self.scores, self.ratings)

    def _play_round(self, contestants: Sequence[int]) -> Iterator[None]:
        """Play one game in each area.

        Args:
            contestants: Contestant of each team.
        """
        env = self._env
        env.reset()
        for policy in self._policies.values():
            policy.reset()
        sides: dict[BehaviorName, Side] = {}
        is_first = True
        while True:
            ended: tuple[list[Any], list[Any]] = ([], [])
            for name in list(env.behavior_specs):
                decisions, terminals = env.get_steps(name)
                side = sides.setdefault(name, Side())
                team = self._teams.index(BehaviorId.parse(name).team)
                side.end(terminals)
                ended[team].extend(each for each in side.results if each.who == _FROM_RESET)
                side.act(decisions, _FROM_RESET if is_first else _LATER)
                action = self._policy(contestants[team], name).act(decisions, terminals)
                self.n_decisions += len(decisions)
                if len(decisions):
                    env.set_actions(name, action)
            for one, other in paired(*ended):
                score = DRAW
                if one.score is not None and other.score is not None:
                    score *= 1.0 + float(np.sign(one.score - other.score))
                self.scores[contestants[0], contestants[1]] += score
                self.scores[contestants[1], contestants[0]] += 1.0 - score
            has_begun = any(side.present for side in sides.values())
            if not is_first and not any(_FROM_RESET in side.present for side in sides.values()):
                return
            is_first &= not has_begun
            env.step()
            yield

    def _policy(self, contestant: int, name: BehaviorName) -> Policy:
        key = contestant, BehaviorId.parse(name).name  # it plays one team at a time
        policy = self._policies.get(key)
        if policy is None:
            policy = self._policies[key] = self._load(contestant, name)
            policy.check(self._env.behavior_specs[name], name)
        return policy


def names_of(paths: Sequence[str]) -> list[str]:
    """Return a short name for each path, different for all contestants."""
    short = [Path(path).stem for path in paths]
    return [
        name if short.count(name) == 1 else path for name, path in zip(short, paths, strict=True)
    ]


def _share(points: float, n_games: float) -> str:
    return f"{points / n_games:.2f}" if n_games else "-"


_CELL, _MARGIN = 56, 12


def _draw(
    path: Path, names: Sequence[str], scores: NDArray[np.float64], ratings: Sequence[Rating]
) -> None:
    with needed_extra("play"):
        from PIL import Image, ImageDraw, ImageFont
    order = sorted(range(len(names)), key=lambda i: -ratings[i].mean)
    labels = [
        f"{place + 1}  {names[i]}  {ratings[i].mean:.0f} ± {ratings[i].deviation:.0f}"
        for place, i in enumerate(order)
    ]
    font = ImageFont.load_default(15)
    left = 2 * _MARGIN + int(max(font.getlength(label) for label in labels))
    size = left + _CELL * len(names) + _MARGIN, _CELL * (len(names) + 1) + _MARGIN
    picture = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(picture)
    for row, i in enumerate(order):
        y = _CELL * (row + 1)
        middle = y + _CELL // 2
        pen.text((_MARGIN, middle), labels[row], "black", font, anchor="lm")
        number_at = left + _CELL * row + _CELL // 2, _CELL // 2
        pen.text(number_at, str(row + 1), "black", font, anchor="mm")
        for column, j in enumerate(order):
            x = left + _CELL * column
            n_games = scores[i, j] + scores[j, i]
            share = scores[i, j] / n_games if n_games else None
            box = x, y, x + _CELL - 2, y + _CELL - 2
            pen.rectangle(box, fill=_color(share))
            if share is not None:
                pen.text((x + _CELL // 2, middle), f"{share:.2f}", "black", font, anchor="mm")
    picture.save(path)


def _color(share: float | None) -> tuple[int, int, int]:
    """Return white for half of the points, red for none, blue for all, and gray for no game."""
    if share is None:
        return 224, 224, 224
    far = abs(2.0 * share - 1.0)
    end = np.array([90, 150, 240]) if share > 0.5 else np.array([240, 110, 90])
    red, green, blue = (255 + far * (end - 255)).astype(int).tolist()
    return red, green, blue
