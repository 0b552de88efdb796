"""An environment that derives from nothing and may report anything."""

import sys
from typing import Any, ClassVar

import numpy as np

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
    TerminalSteps,
)

BEHAVIOR = "Duck?team=0"
N_AGENTS = 3
FIELDS = "obs", "reward", "agent_id", "group_id", "group_reward"


class DuckEnvironment:
    """Three agents observe numbers; every fifth step their episodes end, and others begin.

    Args:
        changes: Fields to report in place of the sound ones: values, or functions that make one
            of the sound one.
        seed: Seed of what they observe.
    """

    spec: ClassVar[BehaviorSpec] = BehaviorSpec(
        [ObservationSpec.vector(2, "state"), ObservationSpec.vector(1, "other")],
        ActionSpec.create_continuous(1),
    )

    def __init__(self, changes: dict[str, Any] | None = None, seed: int = 0) -> None:
        self._changes = changes or {}
        self._rng = np.random.default_rng(seed)
        self._n_steps = 0
        self.actions: list[ActionTuple] = []
        self.is_closed = False

    @property
    def behavior_specs(self) -> dict[str, BehaviorSpec]:
        return {BEHAVIOR: self.spec}

    def reset(self) -> None:
        self._n_steps = 0

    def step(self) -> None:
        self._n_steps += 1

    def get_steps(self, behavior_name: str) -> tuple[DecisionSteps, TerminalSteps]:
        assert behavior_name == BEHAVIOR
        decisions = DecisionSteps(**self._report(N_AGENTS), action_mask=self._changed_mask())
        n_ended = N_AGENTS if self._n_steps % 5 == 4 else 0
        interrupted = self._changed("interrupted", np.zeros(n_ended, np.bool_))
        return decisions, TerminalSteps(**self._report(n_ended), interrupted=interrupted)

    def set_actions(self, behavior_name: str, action: ActionTuple) -> None:
        self.actions.append(action)

    def set_action_for_agent(self, behavior_name: str, agent_id: int, action: ActionTuple) -> None:
        self.actions.append(action)

    def close(self) -> None:
        self.is_closed = True

    def _report(self, n: int) -> dict[str, Any]:
        state = self._rng.standard_normal((n, 2)).astype(np.float32)
        sound = {
            "obs": [state, np.ones((n, 1), np.float32)],
            "reward": np.ones(n, np.float32),
            "agent_id": np.arange(n, dtype=np.int32),
            "group_id": np.zeros(n, np.int32),
            "group_reward": np.zeros(n, np.float32),
        }
        return {name: self._changed(name, value) for name, value in sound.items()}

    def _changed_mask(self) -> Any:
        return self._changed("action_mask", None)

    def _changed(self, name: str, sound: Any) -> Any:
        change = self._changes.get(name, sound)
        return change(sound) if callable(change) else change


def as_lists(value: Any) -> Any:
    """Return arrays, and lists of arrays, as plain lists."""
    return [as_lists(part) for part in value] if isinstance(value, list) else value.tolist()


LISTS: dict[str, Any] = dict.fromkeys([*FIELDS, "interrupted"], as_lists)
"""Changes that make everything a plain list."""


class DuckOfLists(DuckEnvironment):
    """Reports nothing but plain lists."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(LISTS, seed)


class QuittingDuck(DuckEnvironment):
    """Calls `sys.exit` in a step."""

    def step(self) -> None:
        super().step()
        if self._n_steps == 300:
            sys.exit("no license found")
