"""`League`: self-play of a run, between current policies and their earlier snapshots.

`SelfPlay` decides when to change opponents and teams, `TeamSeat` divides agents among policies,
and `Results` rates policies. The league connects them: it keeps snapshots, chooses opponents and
records games.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlagents.games import GameResult, paired
from mlagents.ratings import DRAW, Rating, Results, elo_change
from mlagents.trainers.acting.policy import ActingPolicy
from mlagents.trainers.acting.roster import LATEST, Roster
from mlagents.trainers.acting.script import ScriptedPolicy
from mlagents.trainers.acting.teams import LEARNER, SCRIPT, Lineup, Opponents, Team
from mlagents.trainers.data.snapshot import Snapshot
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.learning.matchmaking import PROBABILITIES
from mlagents.trainers.learning.self_play import SelfPlay
from mlagents.trainers.learning.team_watch import TeamWatch
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.networks.snapshots import weights_of, with_weights
from mlagents.trainers.reporting.stats import ELO, StatsPropertyType
from mlagents.trainers.settings.behavior import SelfPlaySettings
from mlagents_envs.base_env import BehaviorId, BehaviorName
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.factories import find_factory
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

RATING = "Self-play/Rating"
RATING_DEVIATION = "Self-play/Rating Deviation"
WIN_RATE = "Self-play/Win Rate"
WIN_RATE_OF_OLDEST = "Self-play/Win Rate vs Oldest"
WIN_RATE_OF_SCRIPT = "Self-play/Win Rate vs Script"

_N_GAMES_OF_WIN_RATE = 50
"""Number of games over which the win rate against a snapshot is averaged."""

_N_DRAWS_OF_SUCCESSOR = 10
"""Number of drawn games against its predecessor that a new policy starts with. It differs little
from the predecessor: the draws stand for an expected difference of about 110 rating points."""

MakeTeam = Callable[[BehaviorId, Trainer, Lineup], Team]
"""Function that returns a new team of a behavior, whose agents act by a lineup."""

Contestant = tuple[str, int]
"""A rated policy: the name of its behavior, and the number of its snapshot. The current policy has
the number of the next snapshot. A script has the number `SCRIPT`."""


@dataclass
class _Kept:
    """A saved policy that opponents may act with.

    Attributes:
        number: Number of the snapshot; the first snapshot of a behavior has number 0.
        step: Step count of the behavior when it was saved.
        snapshot: The policy.
        beaten: Mean score of the learning policies against it, in recent games.
        n_games: Number of games in `beaten`, including an initial draw.
    """

    number: int
    step: int
    snapshot: Snapshot
    beaten: float = DRAW
    n_games: int = 1

    def count(self, score: float) -> None:
        """Add the score of a learning policy against this snapshot."""
        self.n_games = min(self.n_games + 1, _N_GAMES_OF_WIN_RATE)
        self.beaten += (score - self.beaten) / self.n_games


class _Member:
    """One behavior of the league.

    Attributes:
        trainer: Trainer of the behavior.
        settings: Self-play settings of the behavior.
        window: Snapshots to draw opponents from, oldest first.
        number: Number of the next snapshot and thus of the current policy.
        games: Opponents and scores of the current policy's games since the last snapshot.
        scores: Scores of the learning policy's last games, for lessons.
        roster: Policies of opponents.
        roster_policy: Policy that decides for all opponents in the roster.
        script: Scripted opponent, or None.
    """

    def __init__(
        self,
        trainer: Trainer,
        settings: SelfPlaySettings,
        script: ScriptedPolicy | None,
        *,
        rng: np.random.Generator,
        n_scores: int,
    ) -> None:
        self.trainer = trainer
        self.settings = settings
        self.script = script
        self.window: list[_Kept] = []
        self.number = 0
        self.games: deque[tuple[Contestant, float]] = deque()
        self.scores: deque[float] = deque(maxlen=n_scores)
        self.roster = Roster(lambda: trainer.policy.snapshot)
        self.roster_policy = ActingPolicy(
            self.roster,
            trainer.spec.action_spec,
            deterministic=trainer.settings.network_settings.deterministic,
            rng=rng,
        )

    @property
    def present(self) -> Contestant:
        """The current policy as a contestant."""
        return self.trainer.name, self.number

    def contestant(self, who: int) -> Contestant:
        """Return the contestant for a policy number of `TeamSeat`."""
        return self.present if who in (LEARNER, LATEST) else (self.trainer.name, who)


class League:
    """Self-play of all behaviors of a run that have `self_play` in the settings.

    Args:
        seed: Seed of the choice of opponents and of their samples.
        expected: Names of the behaviors that have `self_play` in the settings.
        results: Folders of results. Scripted opponents are never imported from them.
        clock: Function that returns the time in s, used to detect idle teams.
    """

    def __init__(
        self,
        *,
        seed: int,
        expected: Collection[str] = (),
        results: Collection[Path] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._folders = results
        self._self_play = SelfPlay()
        self._results: Results[Contestant] = Results()
        self._elo: dict[Contestant, float] = {}
        self._members: dict[str, _Member] = {}
        self._seats: dict[BehaviorId, Team] = {}
        self._seat_of: dict[BehaviorName, Team | None] = {}
        self._opponents: dict[tuple[BehaviorId, int], int] = {}
        """Number of the opponent of new episodes, by behavior and player."""
        self._version = 0
        """Number of games and snapshots so far. The saved league with the highest one is newest."""
        self._watch = TeamWatch(expected, clock)

    def __bool__(self) -> bool:
        """Whether any behavior uses self-play."""
        return bool(self._members)

    @property
    def learning_team(self) -> int | None:
        """Team that learns; None before a team has appeared."""
        return self._self_play.learning_team

    def add(self, trainer: Trainer, *, n_scores: int = 1) -> None:
        """Add a behavior, before its first team enters.

        Args:
            trainer: Trainer of the behavior; its settings have `self_play`.
            n_scores: Number of recent game scores to keep for lessons.

        Raises:
            UnityTrainerException: The scripted opponent cannot be imported.
        """
        settings = trainer.settings.self_play
        assert settings is not None, "the controller adds only behaviors with self-play"
        script = None
        if settings.opponent is not None:
            try:
                function: Any = find_factory(settings.opponent, results=self._folders)
            except UnityEnvironmentException as error:
                raise UnityTrainerException(f"self_play.opponent: {error}") from error
            script = ScriptedPolicy(settings.opponent, function, trainer.spec.action_spec)
        (rng,) = self._rng.spawn(1)
        member = _Member(trainer, settings, script, rng=rng, n_scores=n_scores)
        self._members[trainer.name] = member
        trainer.stats.add_property(StatsPropertyType.SELF_PLAY, True)

    def enter(self, behavior: BehaviorName, make_team: MakeTeam) -> None:
        """Add a team of a behavior, if the behavior plays against itself."""
        who = BehaviorId.parse(behavior)
        member = self._members.get(who.name)
        if member is None:
            self._seat_of[behavior] = None
            return
        self._self_play.enter(who, member.settings, step=member.trainer.step)
        if not member.window:
            self._save(who.name)
        self._reconcile()
        lineup = Lineup(
            Opponents(member.roster, member.roster_policy, member.script),
            who_begins=lambda player: self._who_begins(who, player),
            learns=lambda: who.team == self.learning_team,
            limits=lambda: self._self_play.limits(who.name, step=member.trainer.step),
        )
        self._seats[who] = self._seat_of[behavior] = make_team(who, member.trainer, lineup)

    def team_of(self, behavior: BehaviorName) -> Team | None:
        """Return the team of a behavior; None if it does not play against itself."""
        return self._seat_of[behavior]

    def record(self, player: int) -> None:
        """Record the last report of a player: games that ended, and decisions of opponents."""
        decisions = {who: seat.n_decisions for who, seat in self._seats.items()}
        for who, n_new in self._watch.new_decisions(decisions).items():
            if who.team != self.learning_team:
                self._self_play.count_opponents(who.name, n_new)
        sides = []
        for who, seat in self._seats.items():
            if games := seat.take_results(player):
                sides.append((who, games))
        for i, (one, ours) in enumerate(sides):
            for other, theirs in sides[i + 1 :]:
                if self._meet(one, other):
                    self._record_games(one, ours, other, theirs)

    def advance(self) -> bool:
        """Save snapshots and change opponents and the learning team when due.

        Returns:
            Whether the players must be reset, because the learning team has changed and `swap_at`
            is `step`.
        """
        if not self._members:
            return False
        steps = {name: member.trainer.step for name, member in self._members.items()}
        learning = {name: member.trainer.is_learning for name, member in self._members.items()}
        has_skipped = self._watch_teams(steps, learning)
        due = self._self_play.advance(steps, learning)
        for name in due.saves:
            self._save(name)
        has_changed = due.has_changed or has_skipped
        swapped = set(self._members) if has_changed else set(due.swaps)
        for who, player in [key for key in self._opponents if key[0].name in swapped]:
            del self._opponents[who, player]
        at_once = {n for n, member in self._members.items() if member.settings.swap_at == "step"}
        if has_changed:
            logger.info(f"Self-play: team {self.learning_team} learns now.")
            return bool(at_once)
        for who, seat in self._seats.items():
            if who.name in swapped & at_once and who.team != self.learning_team:
                seat.swap()
        return False

    def summarize(self, name: str) -> None:
        """Add the ratings of a behavior to its statistics, if it uses self-play."""
        if name not in self._members:
            return
        rating = self.rating(name)
        stats = self._members[name].trainer.stats
        stats.set_stat(ELO, self._elo[self._members[name].present])
        stats.set_stat(RATING, rating.mean)
        stats.set_stat(RATING_DEVIATION, rating.deviation)

    def rating(self, name: str) -> Rating:
        """Return the Bradley-Terry rating of a current policy; snapshot 0 has `initial_elo`."""
        member = self._members[name]
        ratings = self._results.ratings()
        mean, deviation = ratings[member.present]
        return Rating(mean - ratings[name, 0].mean + member.settings.initial_elo, deviation)

    def elo(self, name: str) -> float | None:
        """Return the Elo rating of a current policy; None without self-play."""
        member = self._members.get(name)
        return None if member is None else self._elo[member.present]

    def scores(self, name: str) -> deque[float]:
        """Return the scores of the last games of a learning policy, newest last."""
        member = self._members.get(name)
        return deque() if member is None else member.scores

    def state(self, name: str) -> dict[str, Any] | None:
        """Return the state of a behavior and of the league, for a checkpoint.

        None without self-play. All behaviors store the state of the league, and `load_state` uses
        the newest one.
        """
        member = self._members.get(name)
        if member is None:
            return None
        return {
            "league": {
                "version": self._version,
                "turns": self._self_play.state(),
                "results": self._results.state(),
                "elo": [(contestant, elo) for contestant, elo in self._elo.items()],
                "random_state": self._rng.bit_generator.state,
            },
            "window": [
                {
                    "number": kept.number,
                    "step": kept.step,
                    "beaten": kept.beaten,
                    "n_games": kept.n_games,
                    "weights": weights_of(kept.snapshot),
                }
                for kept in member.window
            ],
            "number": member.number,
            "games": list(member.games),
            "scores": list(member.scores),
            "random_state": member.roster_policy.rng.bit_generator.state,
        }

    def load_state(self, name: str, state: Mapping[str, Any] | None) -> None:
        """Continue from the saved `state` of a behavior, before its teams enter.

        Args:
            name: Name of the behavior.
            state: Saved state; None if the checkpoint was saved without self-play.

        Raises:
            UnityTrainerException: A snapshot does not fit the network.
        """
        member = self._members.get(name)
        if member is None or state is None:
            return
        like = member.trainer.policy.snapshot
        for saved in state["window"]:
            try:
                snapshot = with_weights(like, saved["weights"])
            except (ValueError, TypeError) as error:
                raise UnityTrainerException(
                    f"its self-play snapshot of step {saved['step']} does not fit the network: "
                    f"{error}"
                ) from error
            kept = _Kept(saved["number"], saved["step"], snapshot, saved["beaten"])
            kept.n_games = saved["n_games"]
            member.window.append(kept)
        member.number = state["number"]
        member.games.extend((tuple(opponent), score) for opponent, score in state["games"])
        member.scores.extend(state["scores"])
        member.roster_policy.rng.bit_generator.state = state["random_state"]
        self._update_roster(member)
        league = state["league"]
        if league["version"] >= self._version:
            self._version = league["version"]
            self._self_play.load_state(league["turns"])
            self._results.load_state(league["results"])
            self._elo = dict(league["elo"])
            self._rng.bit_generator.state = league["random_state"]
        self._reconcile()

    def _reconcile(self) -> None:
        """Ensure that every current policy is a contestant.

        If a run was killed, the checkpoint of a behavior may be older than the league's state.
        """
        for name, member in self._members.items():
            newest = max((number for of, number in self._results if of == name), default=-1)
            if member.window and newest > member.number:
                member.number = newest
                member.games.clear()
            for contestant in (*((name, kept.number) for kept in member.window), member.present):
                if contestant not in self._results:
                    before = (name, contestant[1] - 1)
                    if before in self._results:
                        self._results.enter(contestant, before, draws=_N_DRAWS_OF_SUCCESSOR)
                    else:
                        self._results.enter(contestant)
                self._elo.setdefault(contestant, member.settings.initial_elo)
            if member.script is not None and (name, SCRIPT) not in self._results:
                self._results.enter((name, SCRIPT))
                self._elo[name, SCRIPT] = member.settings.initial_elo

    def _save(self, name: str) -> None:
        """Save the current policy of a behavior as a snapshot."""
        member = self._members[name]
        step = member.trainer.step
        member.window.append(_Kept(member.number, step, member.trainer.policy.snapshot))
        elo = self._elo.get(member.present, member.settings.initial_elo)
        member.number += 1
        member.games.clear()
        self._reconcile()
        self._elo[member.present] = elo
        # A resumed run with a smaller window drops several snapshots.
        while len(member.window) > member.settings.window:
            self._results.settle((name, member.window.pop(0).number))
        self._update_roster(member)
        self._self_play.has_saved(name, step)
        self._version += 1

    def _update_roster(self, member: _Member) -> None:
        """Keep only snapshots in the window and snapshots that still act."""
        name = member.trainer.name
        acting = {number for (who, _), number in self._opponents.items() if who.name == name}
        for who, seat in self._seats.items():
            if who.name == name:
                acting |= seat.present
        snapshots = member.roster.snapshots
        for number in snapshots.keys() - acting:
            del snapshots[number]
        snapshots.update((kept.number, kept.snapshot) for kept in member.window)

    def _who_begins(self, who: BehaviorId, player: int) -> int:
        """Return the number of the policy for a team's new episodes in a player."""
        if who.team == self.learning_team:
            return LEARNER
        if (who, player) not in self._opponents:
            self._opponents[who, player] = self._draw(who.name)
        return self._opponents[who, player]

    def _draw(self, name: str) -> int:
        """Draw an opponent for a behavior; return its policy number."""
        member = self._members[name]
        settings = member.settings
        if member.script is not None and self._rng.random() < settings.opponent_ratio:
            return SCRIPT
        if self._rng.random() < settings.play_against_latest_model_ratio:
            is_learned = self.learning_team is not None and (
                name in self._self_play.behaviors_of(self.learning_team)
            )
            at_episodes = settings.swap_at == "episode"
            return LEARNER if is_learned and at_episodes and settings.learn_from_both else LATEST
        rates = np.array([kept.beaten for kept in member.window])
        chosen = self._rng.choice(len(rates), p=PROBABILITIES[settings.opponents](rates))
        return member.window[chosen].number

    def _meet(self, one: BehaviorId, other: BehaviorId) -> bool:
        """Return whether two teams of behaviors play against each other.

        If one team plays both behaviors, each behavior meets only itself.
        """
        if one.team == other.team:
            return False
        have_same = BehaviorId(one.name, other.team) in self._seats
        have_same |= BehaviorId(other.name, one.team) in self._seats
        return one.name == other.name or not have_same

    def _record_games(
        self,
        one: BehaviorId,
        ours: Sequence[GameResult],
        other: BehaviorId,
        theirs: Sequence[GameResult],
    ) -> None:
        """Record games of two teams that ended in the same report of a player."""
        for result, counterpart in paired(ours, theirs):
            if result.score is None or counterpart.score is None:
                continue
            if len(self._self_play.teams) > 2:
                score = 0.5 * (1.0 + float(np.sign(result.score - counterpart.score)))
            elif counterpart.who == LEARNER != result.who:
                score = 1.0 - counterpart.score  # the learner's reward decides the game
            else:
                score = result.score
            self._record_game(one.name, result.who, other.name, counterpart.who, score)

    def _record_game(self, name: str, who: int, other: str, counterpart: int, score: float) -> None:
        member, opponent = self._members[name], self._members[other]
        us, them = member.contestant(who), opponent.contestant(counterpart)
        if us == them:
            return
        self._version += 1
        self._results.add(us, them, score)
        change = elo_change(self._elo[us], self._elo[them], score)
        self._elo[us] += change
        self._elo[them] -= change
        if who == LEARNER:
            self._count_for(member, opponent, counterpart, score)
        if counterpart == LEARNER:
            self._count_for(opponent, member, who, 1.0 - score)

    def _count_for(self, member: _Member, opponent: _Member, who: int, score: float) -> None:
        """Count a game of a learning policy."""
        them = opponent.contestant(who)
        member.games.append((them, score))
        if len(member.games) > member.settings.keep_results:
            earlier, points = member.games.popleft()
            self._results.add(member.present, earlier, -points, games=-1)
        member.scores.append(score)
        stats = member.trainer.stats
        stats.add_stat(WIN_RATE, score)
        if who == SCRIPT:
            stats.add_stat(WIN_RATE_OF_SCRIPT, score)
        elif who == opponent.window[0].number:
            stats.add_stat(WIN_RATE_OF_OLDEST, score)
        for kept in opponent.window:
            if kept.number == who:
                kept.count(score)

    def _watch_teams(self, steps: Mapping[str, int], learning: Mapping[str, bool]) -> bool:
        """Replace a learning team that does not act; return whether another one learns now."""
        self._watch.warn_of_missing(self._members, self._seats)
        team = self.learning_team
        idle_s = None if team is None else self._watch.idle_s(team)
        if idle_s is None or not self._self_play.skip_team(steps, learning):
            return False
        logger.warning(
            f"Self-play: it was the turn of team {team} to learn, but none of its agents has "
            f"requested a decision for {idle_s:.0f} s. Team {self.learning_team} learns instead."
        )
        return True
