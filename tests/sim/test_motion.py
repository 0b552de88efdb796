"""Motion of agents over several steps, with and without the native library."""

from typing import ClassVar

import numpy as np
import pytest

from mlagents_sim.examples.push_block import PushBlock
from mlagents_sim.motion import Motion, Ring, Watched
from mlagents_sim.planar import ANCHORS, HIGH, PLANAR, Bodies, Body
from mlagents_sim.plane import X, Z

FORMS = [
    False,
    pytest.param(
        True, marks=pytest.mark.skipif(PLANAR.reason is not None, reason=str(PLANAR.reason))
    ),
]
AGENT = Body((0.5, 0.5), mass=1.0)


def bodies_in(half_m: float, n_areas: int = 1, *, is_native: bool, others: int = 0) -> Bodies:
    """Make agents in square rooms, and more bodies after them."""
    return Bodies(
        n_areas,
        [AGENT, *[Body((1.0, 1.0))] * others],
        low=(-half_m, -half_m),
        high=(half_m, half_m),
        is_native=is_native,
    )


@pytest.mark.parametrize("is_native", FORMS)
def test_steps_run_until_a_watched_wall_is_touched(is_native: bool):
    # 1 m/s ahead each step: 0.02, 0.06, 0.12, 0.20, 0.30 m. After five steps the face is at 0.8 m,
    # 0.2 m from the wall; the sixth and the seventh move it by 0.12 and 0.14 m, past the wall.
    bodies = bodies_in(1.0, is_native=is_native)
    motion = Motion(bodies, watched=Watched(walls=[(HIGH, Z, 0)]))
    motion.command(slice(None), forward=1.0, right=0.0, sine=0.0, cosine=1.0)
    assert motion.run(5) == 5
    np.testing.assert_allclose(bodies.position[Z, 0], 0.30)
    assert motion.run(9) < 9
    assert bodies.touching_walls[HIGH, Z, 0, 0]


@pytest.mark.parametrize("is_native", FORMS)
def test_no_step_runs_while_a_watched_body_is_outside(is_native: bool):
    bodies = bodies_in(np.inf, is_native=is_native)
    motion = Motion(bodies, watched=Watched(bodies=[0], center=(1.0, 0.0), half=(2.0, 2.0)))
    bodies.position[X] = 3.0
    assert motion.run(4) == 4
    bodies.position[X] = 3.001
    assert motion.run(4) == 0


@pytest.mark.parametrize("is_native", FORMS)
@pytest.mark.parametrize("pushes_first", [False, True])
def test_the_order_of_push_and_turn(is_native: bool, pushes_first: bool):
    # A quarter turn to the right, from z to x.
    bodies = bodies_in(np.inf, is_native=is_native)
    motion = Motion(bodies, pushes_first=pushes_first)
    motion.command(slice(None), forward=1.0, right=0.5, sine=1.0, cosine=0.0)
    motion.steer()
    motion.move()
    expected = [0.5, 1.0] if pushes_first else [1.0, -0.5]
    np.testing.assert_allclose(bodies.velocity[:, 0, 0], expected)
    np.testing.assert_allclose(bodies.heading[:, 0, 0], [1.0, 0.0])


@pytest.mark.parametrize("is_native", FORMS)
def test_grips_are_chosen_before_the_push(is_native: bool):
    bodies = bodies_in(np.inf, 2, is_native=is_native)
    bodies.velocity[X, 0, 1] = 1.0
    grips = np.array([[[0.3, 0.3]], [[0.7, 0.7]]]) * ANCHORS
    motion = Motion(bodies, grips=grips)
    motion.command(slice(None), forward=1.0, right=0.0, sine=0.0, cosine=1.0)
    motion.move()
    np.testing.assert_allclose(bodies.grip, [[0.6, 1.4]])


@pytest.mark.parametrize("is_native", FORMS)
def test_a_ring_puts_wall_and_item_beside_the_agent(is_native: bool):
    bodies = bodies_in(np.inf, 3, is_native=is_native, others=2)
    slots = np.array([[0.0, 1.0, 0.0, -1.0], [1.0, 0.0, -1.0, 0.0]])
    ring = Ring(bodies, wall=1, item=2, wall_m=12.0, item_m=10.0, slots=slots)
    ring.items[1] = [7, 8, -1]
    bodies.position[:, 0] = [[4.0, 0.0, 3.0], [3.0, 0.0, 0.0]]
    motion = Motion(bodies, ring=ring)
    motion.move()
    # The second agent is in the middle: the first slot is as near as any other.
    np.testing.assert_array_equal(ring.near, [7, -1, -1])
    np.testing.assert_allclose(bodies.position[:, 1, 0], [9.6, 7.2])
    np.testing.assert_allclose(bodies.heading[:, 1, 1], [0.0, 1.0])
    np.testing.assert_allclose(bodies.position[:, 2, 0], [10.0, 0.0])
    np.testing.assert_allclose(bodies.position[:, 2, 2], [ring.FAR_M, 0.0])


def test_a_world_that_chooses_who_asks_runs_step_by_step():
    class Impatient(PushBlock):
        """Agents that ask at every third step."""

        asked: ClassVar[list[int]] = []

        def requests(self) -> slice | None:
            self.asked.append(self.step_count)
            return slice(None) if self.step_count % 3 == 0 else None

    env = Impatient()
    env.reset()
    env.step()
    assert env.asked == [0, 1, 2, 3]
