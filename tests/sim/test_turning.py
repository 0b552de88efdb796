"""Boxes that turn, by hand: friction, pushes beside the middle, walls, who can move what."""

import numpy as np
import pytest

from mlagents_sim.plane import X, Z
from mlagents_sim.turning import Box, TurningBoxes

SQUARE = Box(half=(0.5, 0.5), mass=2.0)
FAR = {"low": (-1e3, -1e3), "high": (1e3, 1e3)}
pytestmark = pytest.mark.usefixtures("form")


def floor(*boxes: Box, n_areas: int = 1, **options) -> TurningBoxes:
    """Make a floor without friction, unless asked for."""
    return TurningBoxes(n_areas, boxes, **{"friction": 0.0, **FAR, **options})


def test_drag_slows_motion_and_spin():
    boxes = floor(SQUARE._replace(drag=1.0, spin_drag=2.0))
    boxes.velocity[X], boxes.spin[:] = 10.0, 1.0
    boxes.move()
    np.testing.assert_allclose(boxes.velocity[X], 9.8)
    np.testing.assert_allclose(boxes.spin, 0.96)
    np.testing.assert_allclose(boxes.position[X], 0.196)
    np.testing.assert_allclose(np.arctan2(*boxes.heading), 0.0192)  # to the right


@pytest.mark.parametrize("spin", [0.5, -7.0, 20.0])
def test_boxes_turn_by_their_spin(spin: float):
    boxes = floor(SQUARE)
    boxes.spin[:] = spin
    boxes.move()
    expected = np.sin(0.02 * spin), np.cos(0.02 * spin)
    np.testing.assert_allclose(boxes.heading[:, 0, 0], expected, atol=1e-12)


def test_no_spin_turns_by_more_than_half_a_radian_in_a_step():
    boxes = floor(SQUARE)
    boxes.spin[:] = 1000.0
    boxes.move()
    np.testing.assert_allclose(boxes.heading[:, 0, 0], [np.sin(0.5), np.cos(0.5)], atol=1e-11)


def test_a_box_that_slides_straight_is_braked_by_twice_coulombs_friction():
    boxes = floor(SQUARE, friction=0.5, gravity=10.0)
    boxes.velocity[Z] = 1.0
    boxes.move()
    np.testing.assert_allclose(boxes.velocity[:, 0, 0], [0.0, 0.8], atol=1e-5)  # 1 - 2 * 0.1
    np.testing.assert_allclose(boxes.spin, 0.0, atol=1e-4)
    for _ in range(5):
        boxes.move()
    np.testing.assert_allclose(boxes.velocity, 0.0, atol=1e-5)


def test_the_floor_stops_a_spin():
    boxes = floor(SQUARE, friction=0.5, gravity=10.0)
    boxes.spin[:] = 1.0
    boxes.move()
    assert 0.0 <= boxes.spin[0, 0] < 0.6
    for _ in range(10):
        boxes.move()
    np.testing.assert_allclose(boxes.spin, 0.0, atol=1e-6)
    np.testing.assert_allclose(boxes.velocity, 0.0, atol=1e-6)


def test_a_push_at_the_middle_does_not_turn():
    # The speeds of equal masses that stick: half each.
    boxes = floor(SQUARE, SQUARE)
    boxes.position[Z, :, 0] = 0.0, 1.0
    boxes.velocity[Z, 0] = 4.0
    boxes.move()
    np.testing.assert_allclose(boxes.velocity[Z, :, 0], [2.0, 2.0], rtol=1e-6)
    np.testing.assert_allclose(boxes.spin, 0.0, atol=1e-6)


def test_a_push_beside_the_middle_turns_and_keeps_both_momenta():
    # The pusher's right side, from x = 0 to 0.25 of the other's middle on, pushes on its left.
    boxes = floor(SQUARE._replace(turns=False), SQUARE)
    boxes.position[:, :, 0] = [[-0.75, 0.0], [-1.0, 0.0]]
    boxes.velocity[Z, 0] = 4.0
    boxes.move()
    velocity, spin = boxes.velocity[Z, :, 0], boxes.spin[1, 0]
    np.testing.assert_allclose(velocity.sum(), 4.0)  # momentum
    assert spin > 0.5  # to the right: what is on the left goes ahead
    # All of the push is at x = -0.25, the end of the edge that turns toward the pusher, or at
    # -0.5: its angular momentum, mass times (0.25 to 0.5) of the speed, over a moment of m / 6.
    lever = spin / 6.0 / velocity[1]
    assert 0.25 - 1e-6 <= lever <= 0.5 + 1e-6
    # Surfaces do not approach where they touched.
    assert velocity[1] + spin * 0.25 >= velocity[0] - 1e-6


def test_boxes_that_do_not_turn_only_slide():
    boxes = floor(SQUARE, SQUARE._replace(turns=False))
    boxes.position[:, :, 0] = [[-0.75, 0.0], [-1.0, 0.0]]
    boxes.velocity[Z, 0] = 4.0
    boxes.move()
    assert boxes.spin[1, 0] == 0.0


def test_walls_stop_and_straighten_boxes():
    boxes = floor(SQUARE, low=(-5.0, -5.0), high=(5.0, 5.0))
    yaw = np.radians(10.0)
    boxes.heading[:, 0, 0] = np.sin(yaw), np.cos(yaw)
    boxes.position[Z] = 4.3
    for _ in range(60):
        boxes.velocity[Z] += 0.5
        boxes.move()
    np.testing.assert_allclose(boxes.position[Z], 4.5, atol=0.02)
    np.testing.assert_allclose(np.abs(boxes.heading[X]), 0.0, atol=0.02)


def test_a_box_that_takes_no_part_touches_nothing():
    boxes = floor(SQUARE, SQUARE)
    boxes.position[Z, :, 0] = 0.0, 0.9
    boxes.velocity[Z, 0] = 4.0
    boxes.is_solid[1] = False
    boxes.move()
    np.testing.assert_allclose(boxes.velocity[Z, :, 0], [4.0, 0.0])
    np.testing.assert_allclose(boxes.position[Z, :, 0], [0.08, 0.9])


def test_areas_do_not_meet():
    boxes = floor(SQUARE, SQUARE, n_areas=2)
    boxes.position[Z] = [[0.0, 0.0], [1.0, 5.0]]
    boxes.velocity[Z, 0] = 4.0
    boxes.move()
    np.testing.assert_allclose(boxes.velocity[Z], [[2.0, 4.0], [2.0, 0.0]], rtol=1e-6)


def test_boxes_that_overlap_part_and_keep_little_of_that_speed():
    boxes = floor(SQUARE, SQUARE)
    boxes.position[Z, :, 0] = 0.0, 0.9
    boxes.move()
    np.testing.assert_allclose(np.diff(boxes.position[Z, :, 0]), 0.98)  # 0.8 of the 0.1
    # They parted at 4 m/s. One pass takes most of that from them.
    assert np.diff(boxes.velocity[Z, :, 0])[0] < 0.5


@pytest.mark.parametrize(
    ("edge_m", "mass", "n_agents", "moves"),
    [
        (1.0, 10.0, 1, True),
        (2.0, 100.0, 1, False),
        (2.0, 100.0, 2, True),
        (3.0, 150.0, 2, False),
        (3.0, 150.0, 3, True),
    ],
)
def test_large_blocks_need_more_agents(edge_m: float, mass: float, n_agents: int, moves: bool):
    # An agent pushes with 10 kg * 3 m/s / 0.02 s = 1500 N. Friction holds with twice 0.6 of the
    # weight: 1766 N for 100 kg and 2649 N for 150 kg, and 177 N for each agent.
    agent = Box((0.5, 0.5), 10.0, 4.0, turns=False)
    block = Box((edge_m / 2, edge_m / 2), mass, 0.5)
    boxes = floor(block, *[agent] * n_agents, friction=0.6, gravity=14.715)
    boxes.position[X, 1:, 0] = (np.arange(n_agents) - (n_agents - 1) / 2) * 1.03
    boxes.position[Z, 1:] = -edge_m / 2 - 0.51
    for _ in range(100):
        boxes.velocity[Z, 1:] += 3.0
        boxes.move()
    assert (boxes.velocity[Z, 0, 0] > 1.0) == moves
    assert moves or np.abs(boxes.position[Z, 0, 0]) < 0.05
