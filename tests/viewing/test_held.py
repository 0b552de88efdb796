"""The action that held keys mean."""

import math

import numpy as np
import pytest

from mlagents.viewing.held import HeldControls, default_controls
from mlagents_envs.base_env import ActionSpec
from mlagents_envs.scene import Control

FORWARD = Control("forward", "W", 0, 1)
BACK = Control("back", "S", 0, 2)
JUMP = Control("jump", "Space", 1, 1)
UP = Control("up", "I", 0, 1.0, is_continuous=True)
DOWN = Control("down", "K", 0, -1.0, is_continuous=True)
SPEC = ActionSpec.create_hybrid(1, (3, 2))


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_nothing_held_is_no_action():
    action = HeldControls().action(SPEC)
    assert action.continuous.tolist() == [[0.0]]
    assert action.discrete.tolist() == [[0, 0]]


def test_the_control_pressed_last_decides_a_branch():
    held = HeldControls()
    held.hold(FORWARD, until_s=math.inf)
    held.hold(BACK, until_s=math.inf)
    held.hold(JUMP, until_s=math.inf)
    assert held.action(SPEC).discrete.tolist() == [[2, 1]]


def test_opposite_controls_cancel_out():
    held = HeldControls()
    held.hold(UP, until_s=math.inf)
    assert held.action(SPEC).continuous.tolist() == [[1.0]]
    held.hold(DOWN, until_s=math.inf)
    assert held.action(SPEC).continuous.tolist() == [[0.0]]


def test_a_short_tap_counts_for_one_decision():
    clock = Clock()
    held = HeldControls(clock)
    held.hold(FORWARD, until_s=0.1)
    clock.now_s = 5.0  # long after it was let go
    assert held.action(SPEC).discrete.tolist() == [[1, 0]]
    assert held.action(SPEC).discrete.tolist() == [[0, 0]]


def test_a_toggled_key_replaces_others_of_its_action():
    held = HeldControls()
    held.toggle(FORWARD)
    held.toggle(JUMP)
    assert held.action(SPEC).discrete.tolist() == [[1, 1]]
    held.toggle(BACK)
    assert held.action(SPEC).discrete.tolist() == [[2, 1]]
    held.toggle(BACK)
    assert held.action(SPEC).discrete.tolist() == [[0, 1]]
    held.release()
    assert held.action(SPEC).discrete.tolist() == [[0, 0]]


def test_a_forbidden_choice_becomes_one_that_is_allowed():
    held = HeldControls()
    held.toggle(FORWARD)
    masks = [np.array([True, True, False]), np.array([False, False])]
    assert held.action(SPEC, masks).discrete.tolist() == [[2, 0]]


def test_controls_of_another_behavior_do_nothing():
    held = HeldControls()
    held.toggle(JUMP)
    held.toggle(UP)
    assert held.action(ActionSpec.create_discrete((3,))).discrete.tolist() == [[0]]


@pytest.mark.parametrize("spec", [SPEC, ActionSpec.create_discrete((127,))])
def test_default_controls_have_keys_of_their_own(spec):
    controls = default_controls(spec)
    keys = [control.key for control in controls]
    assert len(set(keys)) == len(keys) > 2
    assert "X" not in keys  # which lets go of all
