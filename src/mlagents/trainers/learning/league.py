"""`League`: self-play of a run, between current policies and their earlier snapshots.

`SelfPlay` decides when to change opponents and teams, `TeamSeat` divides agents among policies,
and `Results` rates policies. The league connects them: it keeps snapshots, chooses opponents and
records games.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlagents.games import GameResult, paired
from mlagents.ratings import DRAW, Rating, Results, elo_change
from mlagents.trainers.acting.roster import LATEST
from mlagents.trainers.acting.script import ScriptedPolicy
from mlagents.trainers.acting.teams import LEARNER, SCRIPT, Lineup, Opponents, Team
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.learning.exploiter import FIRST_ATTEMPT, Exploiter
from mlagents.trainers.learning.league_member import Contestant, Kept, Member
from mlagents.trainers.learning.matchmaking import PROBABILITIES
from mlagents.trainers.learning.self_play import SelfPlay
from mlagents.trainers.learning.team_watch import TeamWatch
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.reporting.stats import ELO, StatsPropertyType
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
WIN_RATE_OF_EXPLOITERS = "Self-play/Win Rate vs Exploiters"

_N_DRAWS_OF_SUCCESSOR = 10
"""Number of drawn games against its predecessor that a new policy starts with. It differs little
from the predecessor: the draws stand for an expected difference of about 110 rating points."""

MakeTeam = Callable[[BehaviorId, Trainer, Lineup], Team]
"""Function that returns a new team of a behavior, whose agents act by a lineup."""


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
        self._members: dict[str, Member] = {}
        self._seats: dict[BehaviorId, Team] = {}
        self._seat_of: dict[BehaviorName, Team | None] = {}
        self._opponents: dict[tuple[BehaviorId, int], int] = {}
        """Number of the opponent of new episodes, by behavior and player."""
        self._learners: dict[int, Contestant | None] = {}
        """Exploiter that learns from new episodes of a player; None if the current policy does."""
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

    def add(
        self, trainer: Trainer, exploiters: Sequence[Exploiter] = (), *, n_scores: int = 1
    ) -> None:
        """Add a behavior, before its first team enters.

        Args:
            trainer: Trainer of the behavior; its settings have `self_play`.
            exploiters: Exploiters of the behavior.
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
        member = Member(trainer, settings, script, exploiters, rng=rng, n_scores=n_scores)
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
        for exploiter in member.exploiters:
            if not exploiter.number:
                self._begin_attempt(member, exploiter)
        self._reconcile()
        lineup = Lineup(
            Opponents(member.roster, member.roster_policy, member.script, member.attempts),
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
        for member in self._members.values():
            if member.trainer.is_learning:
                self._advance_exploiters(member)
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
        if swapped:
            self._learners.clear()
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
        member = self._members[name]
        stats = member.trainer.stats
        ratings = self._ratings(name)
        stats.set_stat(ELO, self._elo[member.present])
        stats.set_stat(RATING, ratings[member.present].mean)
        stats.set_stat(RATING_DEVIATION, ratings[member.present].deviation)
        for k, exploiter in enumerate(member.exploiters, start=1):
            tag = f"Self-play/Exploiter {k}"
            stats.set_stat(f"{tag} Rating", ratings[name, exploiter.number].mean)
            stats.set_stat(f"{tag} Win Rate", exploiter.win_rate)
            stats.set_stat(f"{tag} Attempts", exploiter.n_attempts)

    def rating(self, name: str) -> Rating:
        """Return the Bradley-Terry rating of a current policy; snapshot 0 has `initial_elo`."""
        return self._ratings(name)[self._members[name].present]

    def _ratings(self, name: str) -> dict[Contestant, Rating]:
        """Return the ratings of all contestants, such that a behavior begins at `initial_elo`."""
        ratings = self._results.ratings()
        first, initial = ratings[name, 0].mean, self._members[name].settings.initial_elo
        return {one: Rating(mean - first + initial, sd) for one, (mean, sd) in ratings.items()}

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
            **member.state(),
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
        member.load_state(state)
        self._update_roster(member)
        league = state["league"]
        if league["version"] >= self._version:
            self._version = league["version"]
            self._self_play.load_state(league["turns"])
            self._results.load_state(league["results"])
            self._elo = dict(league["elo"])
            self._rng.bit_generator.state = league["random_state"]
        self._reconcile()

    def close(self) -> None:
        """Stop the running updates of exploiters."""
        for member in self._members.values():
            for exploiter in member.exploiters:
                exploiter.trainer.learner.close()

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
            for number in (*(kept.number for kept in member.exploits), *member.attempts):
                if (name, number) not in self._results:
                    self._results.enter((name, number))
                self._elo.setdefault((name, number), member.settings.initial_elo)
            if member.script is not None and (name, SCRIPT) not in self._results:
                self._results.enter((name, SCRIPT))
                self._elo[name, SCRIPT] = member.settings.initial_elo

    def _save(self, name: str) -> None:
        """Save the current policy of a behavior as a snapshot."""
        member = self._members[name]
        step = member.trainer.step
        member.window.append(Kept(member.number, step, member.trainer.policy.snapshot))
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

    def _update_roster(self, member: Member) -> None:
        """Keep only the snapshots of the pool and snapshots that still act."""
        member.update_roster(self._acting(member.trainer.name))

    def _acting(self, name: str) -> set[int]:
        """Return the numbers of a behavior's policies that act or are drawn to act."""
        acting = {number for (who, _), number in self._opponents.items() if who.name == name}
        for who, seat in self._seats.items():
            if who.name == name:
                acting |= seat.present
        return acting

    def _advance_exploiters(self, member: Member) -> None:
        """Let the exploiters of a behavior learn; save and restart those whose attempt is over."""
        for exploiter in member.exploiters:
            was_over = exploiter.is_over
            exploiter.advance()
            if exploiter.is_over and not was_over:
                self._learners.clear()  # no new game by this exploiter
            elif exploiter.is_over and exploiter.number not in self._acting(member.trainer.name):
                for number in member.keep_attempt(exploiter):
                    self._results.settle((member.trainer.name, number))
                self._begin_attempt(member, exploiter)
                self._reconcile()
                self._update_roster(member)

    def _begin_attempt(self, member: Member, exploiter: Exploiter) -> None:
        name = member.trainer.name
        used = (number for of, number in self._results if of == name)
        number = min(FIRST_ATTEMPT, min((*used, *member.attempts), default=0) - 1)
        member.begin_attempt(exploiter, number, seed=int(self._rng.integers(2**31)))
        self._version += 1

    def _exploiter_that_learns(self, player: int) -> Contestant | None:
        """Return the exploiter that learns from the new episodes of a player, if one does."""
        if player not in self._learners:
            self._learners[player] = self._draw_exploiter()
        return self._learners[player]

    def _draw_exploiter(self) -> Contestant | None:
        team = self.learning_team
        for name in [] if team is None else self._self_play.behaviors_of(team):
            member = self._members[name]
            ready = [each.number for each in member.exploiters if not each.is_over]
            if not (ready and member.trainer.is_learning):
                continue
            if self._rng.random() < member.settings.league.exploiter_ratio:
                return name, ready[self._rng.integers(len(ready))]
        return None

    def _who_begins(self, who: BehaviorId, player: int) -> int:
        """Return the number of the policy for a team's new episodes in a player."""
        exploiter = self._exploiter_that_learns(player)
        if who.team == self.learning_team:
            if exploiter is None:
                return LEARNER
            name, number = exploiter
            return number if name == who.name else LATEST
        if exploiter is not None:
            return LATEST
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
        rates = np.array([kept.beaten for kept in member.pool])
        chosen = self._rng.choice(len(rates), p=PROBABILITIES[settings.opponents](rates))
        return member.pool[chosen].number

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
            score: float | None
            if result.score is None or counterpart.score is None:
                score = None
            elif len(self._self_play.teams) > 2:
                score = 0.5 * (1.0 + float(np.sign(result.score - counterpart.score)))
            elif _rank(counterpart.who) > _rank(result.who):
                score = 1.0 - counterpart.score  # the learner's reward decides the game
            else:
                score = result.score
            self._record_game(one.name, result.who, other.name, counterpart.who, score)

    def _record_game(
        self, name: str, who: int, other: str, counterpart: int, score: float | None
    ) -> None:
        """Record a game; without a score, it was interrupted. Such a game does not change Elo."""
        member, opponent = self._members[name], self._members[other]
        us, them = member.contestant(who), opponent.contestant(counterpart)
        if us == them:
            return
        self._version += 1
        if score is None:
            score = DRAW
        else:
            change = elo_change(self._elo[us], self._elo[them], score)
            self._elo[us] += change
            self._elo[them] -= change
        self._results.add(us, them, score)
        if who == LEARNER:
            self._count_for(member, opponent, counterpart, score)
        if counterpart == LEARNER:
            self._count_for(opponent, member, who, 1.0 - score)
        if counterpart == LATEST and (exploiter := member.exploiter(who)):
            exploiter.count(score)
        if who == LATEST and (exploiter := opponent.exploiter(counterpart)):
            exploiter.count(1.0 - score)

    def _count_for(self, member: Member, opponent: Member, who: int, score: float) -> None:
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
        elif who <= FIRST_ATTEMPT:
            stats.add_stat(WIN_RATE_OF_EXPLOITERS, score)
        for kept in opponent.pool:
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


def _rank(who: int) -> int:
    """Return a higher number for a policy whose reward rather decides the result of a game."""
    return 2 if who == LEARNER else int(who <= FIRST_ATTEMPT)
