"""`Member`: the policies of one behavior in the league: current, saved, scripted, exploiters."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlagents.ratings import DRAW
from mlagents.trainers.acting.policy import ActingPolicy
from mlagents.trainers.acting.rollout import Seat
from mlagents.trainers.acting.roster import LATEST, Roster
from mlagents.trainers.acting.script import ScriptedPolicy
from mlagents.trainers.acting.teams import LEARNER
from mlagents.trainers.data.snapshot import Snapshot
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.learning.exploiter import N_GAMES_OF_WIN_RATE, Exploiter
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.networks.snapshots import weights_of, with_weights
from mlagents.trainers.settings.behavior import SelfPlaySettings

Contestant = tuple[str, int]
"""A rated policy: the name of its behavior, and the number of its snapshot. The current policy has
the number of the next snapshot. A script has the number `SCRIPT`. The attempts of exploiters have
numbers from `FIRST_ATTEMPT` down."""


@dataclass
class Kept:
    """A saved policy that opponents may act with.

    Attributes:
        number: Number of the snapshot as a contestant; the first one of a behavior is 0.
        step: Step count of its trainer when it was saved.
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
        self.n_games = min(self.n_games + 1, N_GAMES_OF_WIN_RATE)
        self.beaten += (score - self.beaten) / self.n_games


class Member:
    """One behavior of the league.

    Args:
        trainer: Trainer of the behavior.
        settings: Self-play settings of the behavior.
        script: Scripted opponent, or None.
        exploiters: Exploiters of the behavior.
        rng: Random generator of the opponents' samples.
        n_scores: Number of recent game scores to keep for lessons.

    Attributes:
        trainer: Argument of that name.
        settings: Argument of that name.
        script: Argument of that name.
        exploiters: Argument of that name.
        window: Snapshots of the policy, oldest first.
        exploits: Last policies of attempts of exploiters, oldest first.
        number: Number of the next snapshot and thus of the current policy.
        games: Opponents and scores of the current policy's games since the last snapshot.
        scores: Scores of the learning policy's last games, for lessons.
        roster: Policies of opponents.
        roster_policy: Policy that decides for all opponents in the roster.
        attempts: Seats of the exploiters, by the numbers of their attempts.
    """

    def __init__(
        self,
        trainer: Trainer,
        settings: SelfPlaySettings,
        script: ScriptedPolicy | None,
        exploiters: Sequence[Exploiter],
        *,
        rng: np.random.Generator,
        n_scores: int,
    ) -> None:
        self.trainer = trainer
        self.settings = settings
        self.script = script
        self.exploiters = exploiters
        self.window: list[Kept] = []
        self.exploits: list[Kept] = []
        self.number = 0
        self.games: deque[tuple[Contestant, float]] = deque()
        self.scores: deque[float] = deque(maxlen=n_scores)
        self.attempts: dict[int, Seat] = {}
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

    @property
    def pool(self) -> list[Kept]:
        """Saved policies to draw opponents from."""
        return [*self.window, *self.exploits]

    def contestant(self, who: int) -> Contestant:
        """Return the contestant for a policy number of `TeamSeat`."""
        return self.present if who in (LEARNER, LATEST) else (self.trainer.name, who)

    def exploiter(self, number: int) -> Exploiter | None:
        """Return the exploiter whose attempt has a number; None if no attempt has it now."""
        return next((each for each in self.exploiters if each.number == number), None)

    def begin_attempt(self, exploiter: Exploiter, number: int, *, seed: int) -> None:
        """Begin an attempt of an exploiter; see `Exploiter.begin`."""
        if exploiter.number:
            del self.attempts[exploiter.number]
        exploiter.begin(number, self.trainer, seed=seed)
        self.attempts[number] = exploiter.trainer.seat

    def keep_attempt(self, exploiter: Exploiter) -> list[int]:
        """Add the last policy of an attempt to `exploits`; return the numbers of dropped ones."""
        self.exploits.append(
            Kept(
                exploiter.number,
                exploiter.trainer.step,
                exploiter.trainer.policy.snapshot,
                1.0 - exploiter.win_rate,
                exploiter.n_games,
            )
        )
        n_dropped = max(len(self.exploits) - self.settings.window, 0)
        dropped, self.exploits = self.exploits[:n_dropped], self.exploits[n_dropped:]
        return [kept.number for kept in dropped]

    def update_roster(self, acting: Collection[int]) -> None:
        """Keep only the snapshots of the pool and snapshots that still act."""
        snapshots = self.roster.snapshots
        for number in snapshots.keys() - set(acting):
            del snapshots[number]
        snapshots.update((kept.number, kept.snapshot) for kept in self.pool)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint.

        Exploiters whose weights are NaN or infinite are left out, so that a resumed run can load
        the checkpoint and restarts them.
        """
        state = {
            "window": [_saved(kept) for kept in self.window],
            "number": self.number,
            "games": list(self.games),
            "scores": list(self.scores),
            "random_state": self.roster_policy.rng.bit_generator.state,
        }
        if self.exploiters or self.exploits:
            state["exploits"] = [_saved(kept) for kept in self.exploits]
            state["exploiters"] = [
                each.state() for each in self.exploiters if not each.trainer.learner.has_diverged
            ]
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved `state`. Exploiters that it does not contain begin later.

        Raises:
            UnityTrainerException: A snapshot does not fit the network.
        """
        self.window += self._loaded(state["window"])
        self.exploits += self._loaded(state.get("exploits", ()))
        self.number = state["number"]
        self.games.extend((tuple(opponent), score) for opponent, score in state["games"])
        self.scores.extend(state["scores"])
        self.roster_policy.rng.bit_generator.state = state["random_state"]
        for exploiter, saved in zip(self.exploiters, state.get("exploiters", ()), strict=False):
            exploiter.load_state(saved)
            if exploiter.number:
                self.attempts[exploiter.number] = exploiter.trainer.seat

    def _loaded(self, saved_policies: Iterable[Mapping[str, Any]]) -> list[Kept]:
        like = self.trainer.policy.snapshot
        found = []
        for saved in saved_policies:
            try:
                snapshot = with_weights(like, saved["weights"])
            except (ValueError, TypeError) as error:
                raise UnityTrainerException(
                    f"its self-play snapshot of step {saved['step']} does not fit the network: "
                    f"{error}"
                ) from error
            found.append(
                Kept(saved["number"], saved["step"], snapshot, saved["beaten"], saved["n_games"])
            )
        return found


def _saved(kept: Kept) -> dict[str, Any]:
    return {
        "number": kept.number,
        "step": kept.step,
        "beaten": kept.beaten,
        "n_games": kept.n_games,
        "weights": weights_of(kept.snapshot),
    }
