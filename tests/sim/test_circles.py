"""Discs by hand: drag, sliding, rolling, bounces, contacts, walls; and against Unity's physics."""

import numpy as np
import pytest

from mlagents_sim.circles import ABOUT_X, ABOUT_Y, Circles, Disc
from mlagents_sim.plane import X, Z
from mlagents_sim.walls import Wall
from shared_data import ROOT, require

pytestmark = pytest.mark.usefixtures("form")
PUCK = Disc(radius=0.5, mass=2.0)
WALL = Wall(center=(5.0, 0.0), half=(0.5, 10.0))


def table(*discs: Disc, n_areas: int = 1, **options) -> Circles:
    """Make a table without friction, unless asked for."""
    return Circles(n_areas, discs, **{"friction": 0.0, **options})


def test_drag_slows_what_slides_freely():
    discs = table(PUCK._replace(drag=1.0))
    discs.velocity[X] = 10.0
    discs.move()
    np.testing.assert_allclose(discs.velocity[X], 9.8)  # 10 (1 - 1 * 0.02)
    np.testing.assert_allclose(discs.position[X], 0.196)


def test_the_floor_brakes_by_coulombs_law_and_not_beyond_rest():
    discs = table(PUCK, floor_friction=0.5, gravity=10.0)
    discs.velocity[Z] = 0.25
    discs.move()
    np.testing.assert_allclose(discs.velocity[Z], 0.15)  # 0.25 - 0.5 * 10 * 0.02
    discs.move()
    discs.move()
    np.testing.assert_allclose(discs.velocity[Z], 0.0, atol=1e-12)


def test_a_ball_that_slides_ends_up_rolling_at_five_sevenths():
    discs = table(Disc(radius=0.5, mass=2.0, rolls=True), floor_friction=0.5, gravity=10.0)
    discs.velocity[Z] = 7.0
    for _ in range(100):
        discs.move()
    np.testing.assert_allclose(discs.velocity[Z], 5.0, rtol=1e-6)
    np.testing.assert_allclose(discs.spin[ABOUT_X], 10.0, rtol=1e-6)  # v / r


def test_two_discs_exchange_their_speeds_if_they_bounce_fully():
    discs = table(PUCK._replace(bounce=1.0), PUCK)
    discs.position[X, :, 0] = 0.0, 1.05
    discs.velocity[X, 0] = 5.0
    for _ in range(3):
        discs.move()
    np.testing.assert_allclose(discs.velocity[X, :, 0], [0.0, 5.0], atol=1e-9)


def test_unequal_masses_bounce_by_the_larger_of_the_two_values():
    # Momentum: 2 * 6 = 12. They part at 0.5 * 6 = 3: 2 a + 6 b = 12, b - a = 3.
    discs = table(PUCK, PUCK._replace(mass=6.0, bounce=0.5))
    discs.position[X, :, 0] = 0.0, 1.01
    discs.velocity[X, 0] = 6.0
    discs.move()
    np.testing.assert_allclose(discs.velocity[X, :, 0], [-0.75, 2.25], atol=1e-9)
    assert discs.touching.all()
    np.testing.assert_allclose(discs.normal[:, 0, 0], [1.0, 0.0])


def test_slow_contacts_do_not_bounce():
    discs = table(PUCK._replace(bounce=1.0), PUCK)
    discs.position[X, :, 0] = 0.0, 1.0
    discs.velocity[X, 0] = 1.9
    discs.move()
    np.testing.assert_allclose(discs.velocity[X, :, 0], [0.95, 0.95], atol=1e-9)


def test_friction_between_discs_takes_what_the_push_allows():
    # The push changes the first disc by 0.5 * 4 = 2 and friction by at most 0.25 of the 4 pushed,
    # half each; the disc that passes at 8 loses 0.5.
    discs = table(PUCK, PUCK, friction=0.25)
    discs.position[X, :, 0] = 0.0, 1.0
    discs.velocity[:, 0, 0] = 4.0, 8.0
    discs.move()
    np.testing.assert_allclose(discs.velocity[:, :, 0], [[2.0, 2.0], [7.5, 0.5]], atol=1e-9)


def test_a_ball_takes_spin_from_a_wall():
    # It meets the wall at 10 m/s and stops, so friction may take 0.1 * 10 = 1 of the 5 m/s along
    # it. Half a meter from the center that gives 2.5 * 1 / 0.5 rad/s. The side at the wall, on the
    # right, is held back: the ball turns to the right.
    discs = table(Disc(radius=0.5, mass=2.0, rolls=True), friction=0.1, walls=[WALL])
    discs.position[X] = 4.0
    discs.velocity[:, 0, 0] = 10.0, 5.0
    discs.move()
    np.testing.assert_allclose(discs.velocity[:, 0, 0], [0.0, 4.0], atol=1e-9)
    np.testing.assert_allclose(discs.spin[ABOUT_Y], 5.0, rtol=1e-6)


def test_a_disc_is_pushed_out_of_a_wall_without_getting_speed():
    discs = table(PUCK, walls=[WALL])
    discs.position[X] = 4.1  # 0.1 inside
    discs.move()
    np.testing.assert_allclose(discs.position[X], 4.02, atol=1e-9)  # 0.8 of it
    np.testing.assert_allclose(discs.velocity[X], 0.0, atol=1e-9)


def test_walls_may_be_turned_and_have_corners():
    turned = Wall(center=(0.0, 3.0), half=(1.0, 1.0), yaw=np.pi / 4)
    discs = table(PUCK, walls=[turned])
    discs.position[Z] = 3.0 - np.sqrt(2.0) - 0.5  # at the corner that looks back
    discs.velocity[Z] = 5.0
    discs.move()
    np.testing.assert_allclose(discs.velocity[:, 0, 0], [0.0, 0.0], atol=1e-9)
    discs = table(PUCK, walls=[turned])
    discs.position[:, 0, 0] = -1.0, 2.0  # 0.086 from the face that looks to the back and the left
    discs.velocity[X] = 1.0
    for _ in range(20):
        discs.move()
    # Along the face, down to the right: half of the speed either way.
    np.testing.assert_allclose(discs.velocity[:, 0, 0], [0.5, -0.5], atol=1e-6)


def test_no_wall_is_looked_for_in_the_middle():
    discs = table(PUCK, PUCK, walls=[WALL], clear=(4.5, 100.0))
    discs.position[:, :, 0] = [[3.0, 3.99], [0.0, 3.0]]
    discs.velocity[X] = 5.0
    discs.move()
    np.testing.assert_allclose(discs.velocity[X, :, 0], [5.0, 0.4], atol=1e-9)  # 0.8 of the gap


def test_areas_do_not_meet():
    discs = table(PUCK, PUCK, n_areas=2)
    discs.position[X] = [[0.0, 0.0], [1.0, 9.0]]
    discs.velocity[X, 0] = 4.0
    discs.move()
    np.testing.assert_allclose(discs.velocity[X], [[2.0, 4.0], [2.0, 0.0]])
    assert discs.touching.tolist() == [[True, False]]


def test_balls_bounce_off_walls_as_in_unity():
    # A ball of 0.5 m that comes from the left meets a wall whose face is at 4.5, at 3 m/s aside.
    recorded = np.load(require(ROOT / "physics" / "primitives_contacts.npz"))
    for (bounce, _), series in zip(
        recorded["wall_bounce_cases"], recorded["wall_bounce"], strict=True
    ):
        discs = table(Disc(0.5, 2.0, bounce=float(bounce)), walls=[WALL])
        discs.position[:, 0, 0] = series[0, [0, 2]]
        discs.velocity[:, 0, 0] = series[0, [7, 9]]
        for row in series[1:40]:
            discs.move()
            np.testing.assert_allclose(discs.position[X, 0, 0], row[0], atol=2e-3)
            np.testing.assert_allclose(discs.velocity[X, 0, 0], row[7], atol=2e-3)
