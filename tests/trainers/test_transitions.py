import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from actors import behavior, image_8_bit
from mlagents.trainers.algorithms.transitions import transitions_of
from mlagents_envs.base_env import ActionSpec
from steps import make_segments, make_transitions

CPU = torch.device("cpu")
SPEC = behavior(2, continuous=2, branches=(3, 2))


def test_segments_as_the_environment_saw_them() -> None:
    segments = make_segments(SPEC, [2, 1, 3], np.random.default_rng(0))
    segments.continuous[0] = [-9.0, 1.5]  # the environment was sent -1 and 0.5

    steps = transitions_of(segments, CPU)

    torch.testing.assert_close(steps.continuous[0], torch.tensor([-1.0, 0.5]))
    assert float(steps.continuous.abs().max()) <= 1
    assert steps.terminated.tolist() == [False, True, False, False, False, False]
    np.testing.assert_array_equal(steps.reward, segments.reward + segments.group_reward)
    np.testing.assert_array_equal(steps.discrete, segments.discrete)
    assert steps.next_obs == []


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_what_followed_a_step_is_the_next_or_the_last(length: list[int]) -> None:
    segments = make_segments(SPEC, length, np.random.default_rng(0))

    (following,) = transitions_of(segments, CPU, with_next_obs=True).next_obs

    row = 0
    for number, n_steps in enumerate(length):
        for t in range(n_steps):
            is_last = t == n_steps - 1
            after = segments.last_obs[0][number] if is_last else segments.obs[0][row + 1]
            np.testing.assert_array_equal(following[row], after)
            row += 1


def test_images_stay_bytes() -> None:
    spec = behavior(image_8_bit(1, 2, 2), branches=(2,))
    segments = make_segments(spec, [2, 2], np.random.default_rng(0))
    for batch in (*segments.obs, *segments.last_obs):
        batch *= 255
    segments.obs[0], segments.last_obs[0] = (
        batch[0].astype(np.uint8) for batch in (segments.obs, segments.last_obs)
    )
    steps = transitions_of(segments, CPU, with_next_obs=True)
    assert steps.obs[0].dtype == steps.next_obs[0].dtype == torch.uint8


def test_actions_by_hand() -> None:
    steps = make_transitions(SPEC, 2, np.random.default_rng(0))._replace(
        continuous=torch.tensor([[0.5, -0.5], [1.0, 0.0]]), discrete=torch.tensor([[2, 0], [0, 1]])
    )
    expected = [[0.5, -0.5, 0, 0, 1, 1, 0], [1.0, 0.0, 1, 0, 0, 0, 1]]
    torch.testing.assert_close(steps.actions(SPEC.action_spec), torch.tensor(expected))
    nothing = steps._replace(discrete=steps.discrete[:, :0]).actions(ActionSpec(2, ()))
    torch.testing.assert_close(nothing, steps.continuous)


def test_parts_are_the_whole() -> None:
    steps = make_transitions(SPEC, 7, np.random.default_rng(0))
    parts = list(steps.split(3))
    assert [len(part.reward) for part in parts] == [3, 3, 1]
    for field in ("continuous", "discrete", "reward", "terminated"):
        together = torch.cat([getattr(part, field) for part in parts])
        torch.testing.assert_close(together, getattr(steps, field))
    rows = torch.tensor([6, 0])
    taken = steps.take(rows)
    torch.testing.assert_close(taken.next_obs[0], steps.next_obs[0][[6, 0]])
    torch.testing.assert_close(taken.terminated, steps.terminated[[6, 0]])
