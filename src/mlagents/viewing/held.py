"""`HeldControls`: the controls that a person holds, and the action they mean."""

import math
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from mlagents_envs.base_env import ActionSpec, ActionTuple
from mlagents_envs.scene import Control

_KEYS = "WSADQEZCTGFHRVBNJLIKUOYPM0123456789"
"""Keys of controls that a world does not name, in this order. X lets go of all."""
_MOST_CHOICES = 10
"""Choices of a branch that get keys; of a larger branch the first ones do."""


def default_controls(spec: ActionSpec) -> list[Control]:
    """Return controls for actions whose meaning is unknown, as many as there are keys.

    Each continuous action gets a key up and a key down. Each choice of a branch but the first,
    which usually is nothing, gets a key.
    """
    found = []
    for action in range(spec.continuous_size):
        for sign, value in (("+", 1.0), ("-", -1.0)):
            found.append(Control(f"action {action} {sign}", "", action, value, True))
    for branch, size in enumerate(spec.discrete_branches):
        for choice in range(1, min(size, _MOST_CHOICES)):
            found.append(Control(f"branch {branch}: {choice}", "", branch, choice))
    return [control._replace(key=key) for control, key in zip(found, _KEYS, strict=False)]


class HeldControls:
    """The controls that are held. All methods are thread-safe.

    Args:
        clock: Function that returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until_s: dict[Control, float] = {}  # in the order in which they were pressed

    def hold(self, control: Control, *, until_s: float) -> None:
        """Hold a control until a time; the next decision counts it in any case."""
        with self._lock:
            self._until_s[control] = until_s

    def toggle(self, control: Control) -> None:
        """Hold a control for good, or let go of it; others of the same action are let go of."""
        with self._lock:
            was_held = self._until_s.pop(control, None) is not None
            for other in list(self._until_s):
                if other[2] == control.action and other.is_continuous == control.is_continuous:
                    del self._until_s[other]
            if not was_held:
                self._until_s[control] = math.inf

    def release(self) -> None:
        """Let go of all controls."""
        with self._lock:
            self._until_s.clear()

    def action(self, spec: ActionSpec, masks: Sequence[np.ndarray] | None = None) -> ActionTuple:
        """Return the action of one agent, and let go of what is held no longer.

        Args:
            spec: Specification of the actions.
            masks: (size,) mask of each branch, True where a choice is forbidden.
        """
        with self._lock:
            held = list(self._until_s)
            now_s = self._clock()
            self._until_s = {c: until for c, until in self._until_s.items() if until > now_s}
        action = spec.empty_action(1)
        for control in held:
            if control.is_continuous and control.action < spec.continuous_size:
                action.continuous[0, control.action] += control.value
            elif not control.is_continuous and control.action < spec.discrete_size:
                action.discrete[0, control.action] = int(control.value)
        np.clip(action.continuous, -1.0, 1.0, out=action.continuous)
        for branch, mask in enumerate(masks or ()):
            if mask[action.discrete[0, branch]]:
                action.discrete[0, branch] = int(np.argmin(mask))  # the first that is allowed
        return action
