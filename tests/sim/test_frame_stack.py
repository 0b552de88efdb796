"""Stacked observations, by hand."""

import numpy as np

from mlagents_envs.base_env import DimensionProperty, ObservationSpec, ObservationType
from mlagents_sim.frame_stack import FrameStack, stacked
from mlagents_sim.world import ALL

PLACE = ObservationSpec.vector(2, "Place")


def test_a_vector_comes_oldest_first_after_zeros():
    stack = FrameStack(PLACE, 3, n_agents=1)
    seen = [stack.add(ALL, np.float32([[n, -n]])) for n in (1, 2, 3, 4)]
    assert [frames[0].tolist() for frames in seen] == [
        [0, 0, 0, 0, 1, -1],
        [0, 0, 1, -1, 2, -2],
        [1, -1, 2, -2, 3, -3],
        [2, -2, 3, -3, 4, -4],
    ]
    assert seen[0].dtype == np.float32


def test_agents_are_stacked_and_cleared_each_for_itself():
    stack = FrameStack(PLACE, 2, n_agents=3)
    stack.add(ALL, np.float32([[1, 1], [2, 2], [3, 3]]))
    stack.clear(np.array([1]))
    seen = stack.add(np.array([1, 2]), np.float32([[5, 5], [6, 6]]))
    assert seen.tolist() == [[0, 0, 5, 5], [3, 3, 6, 6]]
    seen = stack.add(ALL, np.float32([[7, 7], [8, 8], [9, 9]]))
    assert seen.tolist() == [[1, 1, 7, 7], [5, 5, 8, 8], [6, 6, 9, 9]]


def test_images_are_stacked_along_their_channels():
    properties = (DimensionProperty.NONE, *[DimensionProperty.TRANSLATIONAL_EQUIVARIANCE] * 2)
    picture = ObservationSpec(
        (3, 4, 5), properties, ObservationType.DEFAULT, "Camera", np.dtype(np.uint8)
    )
    spec = stacked(picture, 2)
    assert (spec.shape, spec.name) == ((6, 4, 5), "StackingSensor_size2_Camera")
    stack = FrameStack(picture, 2, n_agents=1)
    stack.add(ALL, np.full((1, 3, 4, 5), 7, np.uint8))
    seen = stack.add(ALL, np.full((1, 3, 4, 5), 8, np.uint8))
    assert seen.dtype == np.uint8
    assert (seen[:, :3] == 7).all() and (seen[:, 3:] == 8).all()


def test_what_was_handed_out_does_not_change():
    stack = FrameStack(PLACE, 2, n_agents=1)
    first = stack.add(ALL, np.float32([[1, 2]]))
    stack.add(ALL, np.float32([[3, 4]]))
    stack.clear(ALL)
    assert first.tolist() == [[0, 0, 1, 2]]
