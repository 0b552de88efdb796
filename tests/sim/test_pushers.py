"""Boxes that push themselves, by hand: pushes, turns, and where a run of steps stops."""

import numpy as np
import pytest

from mlagents_sim.plane import X, Z
from mlagents_sim.pushers import Pushers
from mlagents_sim.turning import Box, TurningBoxes

pytestmark = pytest.mark.usefixtures("form")
PASSIVE = Box(half=(0.5, 0.5), mass=2.0)
ALL = np.array([0, 1])


def two_areas() -> Pushers:
    """Make a box 4 m ahead of one that pushes itself and looks at it, without friction."""
    boxes = TurningBoxes(
        2,
        [PASSIVE, PASSIVE._replace(turns=False)],
        low=(-1e3, -1e3),
        high=(1e3, 1e3),
        friction=0.0,
    )
    boxes.position[Z, 0] = -4.0
    boxes.heading[Z, 1] = -1.0
    return Pushers(boxes, n_members=1, n_watched=1, line=-5.0)


def test_the_last_boxes_push_and_then_turn():
    pushers = two_areas()
    pushers.command(
        np.array([0]), np.array([1]), forward=1.0, right=2.0, sine=np.sin(0.1), cosine=np.cos(0.1)
    )
    pushers.steer()
    # To the right of one that looks to -z is -x.
    np.testing.assert_allclose(pushers.boxes.velocity[:, 1], [[0.0, -2.0], [0.0, -1.0]], atol=1e-15)
    np.testing.assert_array_equal(pushers.boxes.velocity[:, 0], 0.0)
    np.testing.assert_allclose(pushers.boxes.heading[:, 1, 1], [-np.sin(0.1), -np.cos(0.1)])
    np.testing.assert_allclose(pushers.boxes.heading[:, 1, 0], [0.0, -1.0])


def test_a_run_stops_once_a_watched_box_crosses_the_line():
    pushers = two_areas()
    pushers.boxes.velocity[Z, 0] = [0.0, -10.0]  # its edge is 0.5 m before the line: 2.5 steps
    assert pushers.run(10) == 3
    np.testing.assert_array_equal(pushers.arrived, [[False, True]])
    np.testing.assert_allclose(pushers.boxes.position[Z, 0], [-4.0, -4.6])
    pushers.boxes.is_solid[0, 1] = False  # it has gone
    assert pushers.run(4) == 4
    assert not pushers.arrived.any()


def test_boxes_push_others_along():
    pushers = two_areas()
    pushers.command(np.array([0, 0]), ALL, forward=[0.0, 1.0], right=0.0, sine=0.0, cosine=1.0)
    n_steps = pushers.run(100)
    assert n_steps < 100
    np.testing.assert_array_equal(pushers.arrived, [[False, True]])
    assert pushers.boxes.position[Z, 1, 1] < -3.0
    np.testing.assert_array_equal(pushers.boxes.position[:, :, 0], [[0.0, 0.0], [-4.0, 0.0]])
    np.testing.assert_allclose(pushers.boxes.position[X], 0.0, atol=1e-9)
