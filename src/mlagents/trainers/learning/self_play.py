"""`SelfPlay`: decides which team learns, and when to save snapshots and change opponents."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mlagents.trainers.acting.teams import Limits
from mlagents.trainers.settings.behavior import SelfPlaySettings
from mlagents_envs.base_env import BehaviorId


@dataclass
class _Counts:
    """Progress of one behavior.

    Attributes:
        settings: Self-play settings of the behavior.
        teams: Teams that play the behavior.
        saved_at: Step of the last snapshot.
        changed_at: Step at which its team last began to learn.
        opponent_steps: Steps of opponents since their snapshots last changed.
    """

    settings: SelfPlaySettings
    teams: list[int] = field(default_factory=list)
    saved_at: int = 0
    changed_at: int = 0
    opponent_steps: int = 0


class Due(NamedTuple):
    """Changes that are due.

    Attributes:
        saves: Behaviors whose policy must be saved as a snapshot.
        swaps: Behaviors whose opponents must change.
        has_changed: Whether the learning team has changed.
    """

    saves: list[str]
    swaps: list[str]
    has_changed: bool


class SelfPlay:
    """Rotation of the learning team and schedule of snapshots, for all behaviors of a run.

    One team learns at a time, with all behaviors that it plays. In a symmetric game, all teams play
    the same behavior; in an asymmetric game, each plays its own. Teams take turns in the order in
    which they appeared. This class only counts steps; it has no access to policies or players.

    Attributes:
        learning_team: Team that learns; None before a team has appeared.
    """

    def __init__(self) -> None:
        self.learning_team: int | None = None
        self._queue: list[int] = []
        """Teams in the order of their turns; the first one learns."""
        self._counts: dict[str, _Counts] = {}
        self._saved: dict[str, list[int]] = {}
        """Loaded counts of behaviors that have not appeared yet."""

    @property
    def teams(self) -> list[int]:
        """Teams that have appeared, the learning team first."""
        return list(self._queue)

    def enter(self, behavior: BehaviorId, settings: SelfPlaySettings, *, step: int) -> None:
        """Add a behavior of a team when it appears.

        Args:
            behavior: The behavior and its team.
            settings: Settings of the behavior.
            step: Step count of the behavior.
        """
        counts = self._counts.get(behavior.name)
        if counts is None:
            numbers = self._saved.pop(behavior.name, [step, step, 0])
            counts = self._counts[behavior.name] = _Counts(settings, [], *numbers)
        if behavior.team not in counts.teams:
            counts.teams.append(behavior.team)
        if behavior.team not in self._queue:
            self._queue.append(behavior.team)
        self.learning_team = self._queue[0]

    def behaviors_of(self, team: int) -> list[str]:
        """Return the names of the behaviors that a team plays."""
        return [name for name, counts in self._counts.items() if team in counts.teams]

    def count_opponents(self, name: str, n_steps: int) -> None:
        """Count steps of a behavior's agents whose team is not learning."""
        self._counts[name].opponent_steps += n_steps

    def has_saved(self, name: str, step: int) -> None:
        """Record the step at which a behavior's policy was saved as a snapshot."""
        self._counts[name].saved_at = step

    def limits(self, name: str, *, step: int) -> Limits:
        """Return the numbers of steps until a snapshot or a change may be due.

        Args:
            name: Name of a behavior.
            step: Step count of the behavior.
        """
        counts = self._counts[name]
        settings = counts.settings
        n_learned = settings.save_steps - (step - counts.saved_at)
        if self.learning_team in counts.teams:
            n_learned = min(n_learned, settings.team_change - (step - counts.changed_at))
        return Limits(max(n_learned, 1), max(settings.swap_steps - counts.opponent_steps, 1))

    def advance(self, steps: Mapping[str, int], learning: Mapping[str, bool]) -> Due:
        """Return the changes that are due; change the learning team if its turn is over.

        Args:
            steps: Step count of each behavior.
            learning: Whether each behavior has steps left to learn.
        """
        saves = [
            name
            for name, counts in self._counts.items()
            if steps[name] - counts.saved_at >= counts.settings.save_steps
        ]
        has_changed = self._change_team(steps, learning)
        swaps = [
            name
            for name, counts in self._counts.items()
            if has_changed or counts.opponent_steps >= counts.settings.swap_steps
        ]
        for name in swaps:
            self._counts[name].opponent_steps = 0
        return Due(saves, swaps, has_changed)

    def skip_team(self, steps: Mapping[str, int], learning: Mapping[str, bool]) -> bool:
        """Change the learning team because it does not act; return whether another can learn."""
        return self._rotate(steps, learning)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, made of lists and numbers."""
        return {
            "teams": list(self._queue),
            "behaviors": {
                name: [counts.saved_at, counts.changed_at, counts.opponent_steps]
                for name, counts in self._counts.items()
            },
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved `state`. Behaviors may enter before or after this call."""
        self._queue = list(state["teams"])
        self.learning_team = self._queue[0] if self._queue else None
        for name, numbers in state["behaviors"].items():
            if name not in self._counts:
                self._saved[name] = numbers
                continue
            counts = self._counts[name]
            counts.saved_at, counts.changed_at, counts.opponent_steps = numbers

    def _change_team(self, steps: Mapping[str, int], learning: Mapping[str, bool]) -> bool:
        if self.learning_team is None:
            return False
        own = self.behaviors_of(self.learning_team)
        is_over = any(
            steps[name] - self._counts[name].changed_at >= self._counts[name].settings.team_change
            for name in own
        )
        if is_over or not any(learning[name] for name in own):
            return self._rotate(steps, learning)
        return False

    def _rotate(self, steps: Mapping[str, int], learning: Mapping[str, bool]) -> bool:
        """Change to the next team that can learn; return whether there is one."""
        for place, team in enumerate(self._queue[1:], start=1):
            own = self.behaviors_of(team)
            if any(learning[name] for name in own):
                self._queue = self._queue[place:] + self._queue[:place]
                self.learning_team = team
                break
        else:
            return False
        for name in own:
            self._counts[name].changed_at = steps[name]
        return True
