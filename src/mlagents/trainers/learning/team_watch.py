"""`TeamWatch`: detects self-play teams that do not act."""

from collections.abc import Callable, Collection, Mapping

from mlagents_envs.base_env import BehaviorId
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

PATIENCE_S = 60.0
"""Time after which a team that does not act is reported."""


class TeamWatch:
    """Detects self-play teams that do not act.

    Args:
        expected: Names of the behaviors that have `self_play` in the settings.
        clock: Function that returns the time in s.
    """

    def __init__(self, expected: Collection[str], clock: Callable[[], float]) -> None:
        self._expected = expected
        self._clock = clock
        self._now_s = 0.0
        self._began_s: float | None = None
        self._counted: dict[BehaviorId, int] = {}
        self._acted_s: dict[int, float] = {}
        """Time at which each team last acted."""
        self._has_warned = False

    def new_decisions(self, decisions: Mapping[BehaviorId, int]) -> dict[BehaviorId, int]:
        """Return the number of decisions since the last call, for teams that made any.

        Args:
            decisions: Number of decisions of each team of each behavior since the run began.
        """
        self._now_s = self._clock()
        if self._began_s is None:
            self._began_s = self._now_s
        new = {who: n - self._counted.get(who, 0) for who, n in decisions.items()}
        acting = {who: n for who, n in new.items() if n}
        self._counted.update((who, decisions[who]) for who in acting)
        self._acted_s.update((who.team, self._now_s) for who in acting)
        return acting

    def idle_s(self, team: int) -> float | None:
        """Return how long a team has not acted, in s.

        None if that is less than `PATIENCE_S`, or if no other team acts.
        """
        if self._began_s is None:
            return None
        since_s = self._now_s - self._acted_s.get(team, self._began_s)
        others_act = any(
            self._now_s - at < PATIENCE_S for other, at in self._acted_s.items() if other != team
        )
        return since_s if since_s >= PATIENCE_S and others_act else None

    def warn_of_missing(self, members: Collection[str], teams: Collection[BehaviorId]) -> None:
        """Warn once about teams and behaviors that have not acted in the first minute.

        Args:
            members: Names of the behaviors that have appeared.
            teams: Teams of behaviors that have appeared.
        """
        if self._has_warned or self._began_s is None or self._now_s - self._began_s < PATIENCE_S:
            return
        self._has_warned = True
        minute = f"in the first {PATIENCE_S:.0f} s"
        for name in self._expected:
            if name not in members:
                logger.warning(
                    f"behaviors.{name} has self_play, but no agent of {name} has appeared {minute}."
                    " The other behaviors are trained. If the environment should contain it, check "
                    "the Behavior Name of its agents."
                )
        for who in teams:
            if who.team not in self._acted_s:
                logger.warning(
                    f"Self-play: no agent of team {who.team} of {who.name} has requested a decision"
                    f" {minute}. The other teams are trained."
                )
        if len(self._acted_s) == 1:
            (team,) = self._acted_s
            names = ", ".join(members)
            logger.warning(
                f"Self-play of {names}: only team {team} has acted {minute}. It has no opponent "
                "and is trained as if without self_play. Give the opposing agents a different "
                "Team Id."
            )
