"""What rays see of boxes, by hand: boxes that come and go, and boxes that are turned."""

import numpy as np
import pytest

from mlagents_sim.planar import Bodies, Body
from mlagents_sim.ray_view import Box, RayView
from mlagents_sim.sensors import RaySensor

pytestmark = pytest.mark.usefixtures("form")
RAYS = RaySensor(per_side=1, max_degrees=90.0, length=10.0, n_tags=2)  # the first is ahead
NOTHING = [0.0, 0.0, 1.0, 1.0]


def seen(bodies: Bodies, *boxes: Box) -> np.ndarray:
    """Return what the first bodies see straight ahead with rays of 0.5 m: (N, 4)."""
    return RayView(RAYS, bodies, radius_m=0.5, boxes=boxes).observe(slice(None))[:, :4]


def two_areas() -> Bodies:
    """Make an agent in the middle, and a box whose near face is 4 m ahead of it."""
    bodies = Bodies(
        2, [Body((0.5, 0.5), mass=1.0), Body((1.0, 1.0))], low=(-99, -99), high=(99, 99)
    )
    bodies.position[1, 1] = 5.0
    return bodies


def test_rays_pass_by_a_box_whose_tag_is_below_0():
    tags = np.array([1, -1], np.int8)
    bodies = two_areas()
    np.testing.assert_allclose(
        seen(bodies, Box(tags, body=1)), [[0.0, 1.0, 0.0, 0.35], NOTHING], rtol=1e-6
    )


def test_a_box_that_is_not_a_body_may_be_turned():
    # Turned by 45 degrees, the edge of the box of 1 m is sqrt(2) m before its middle. A sphere on
    # its axis touches that edge when its center is 0.5 m away.
    diagonal = float(np.sqrt(0.5))
    box = {"center": (0.0, 5.0), "half": (1.0, 1.0), "is_turned": True}
    straight = seen(two_areas(), Box(0, **box))
    turned = seen(two_areas(), Box(0, **box, heading=(diagonal, diagonal)))
    np.testing.assert_allclose(straight, [[1.0, 0.0, 0.0, 0.35]] * 2, rtol=1e-6)
    to_edge = (5.0 - np.sqrt(2.0) - 0.5) / 10.0
    np.testing.assert_allclose(turned, [[1.0, 0.0, 0.0, to_edge]] * 2, rtol=1e-6)
