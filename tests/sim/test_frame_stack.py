"""Stacked observations, by hand and against a list of all frames."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

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


@given(st.integers(2, 5), st.lists(st.lists(st.integers(0, 3), unique=True), max_size=30))
def test_each_agent_sees_its_own_last_frames(n_frames: int, turns: list[list[int]]):
    """Some agents add a frame, and every other time those that did begin again afterward."""
    stack = FrameStack(PLACE, n_frames, n_agents=4)
    added = [[[0, 0]] * n_frames for _ in range(4)]
    for number, agents in enumerate(turns):
        frames = [[number + 1, agent] for agent in agents]
        for agent, frame in zip(agents, frames, strict=True):
            added[agent].append(frame)
        seen = stack.add(np.array(agents, np.intp), np.reshape(frames, (-1, 2)))
        assert seen.tolist() == [np.ravel(added[agent][-n_frames:]).tolist() for agent in agents]
        if number % 2:
            stack.clear(np.array(agents, np.intp))
            for agent in agents:
                added[agent] += [[0, 0]] * n_frames


def test_earlier_frames_stay_in_place():
    stack = FrameStack(PLACE, 4, n_agents=2)
    n_changed = []
    for number in range(1, 10):
        before = stack._ring.copy()
        stack.add(ALL, np.full((2, 2), number, np.float32))
        n_changed.append(int((stack._ring != before).any(axis=(1, 2)).sum()))
    assert n_changed == [1] * 9
