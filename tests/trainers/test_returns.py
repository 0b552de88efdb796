from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors import behavior
from mlagents.trainers.algorithms.returns import advantages_of, gae, joined_advantages, vtrace
from steps import make_segments


def test_gae_by_hand() -> None:
    # gamma = lambda = 0.5, the episode ends after the second step.
    # delta = [0 + 0.5*0.5 - 0.5, 1 + 0.5*0 - 0.5] = [-0.25, 0.5]
    # A     = [-0.25 + 0.25*0.5, 0.5]              = [-0.125, 0.5]
    advantages = gae(
        np.array([[0.0, 1.0]]),
        np.array([[0.5, 0.5]]),
        np.array([0.0]),
        np.array([2]),
        gamma=0.5,
        lambd=0.5,
    )
    np.testing.assert_allclose(advantages, [[-0.125, 0.5]])


def test_gae_by_hand_of_segments_of_different_length() -> None:
    # gamma = 0.5, lambda = 1. First segment: 3 steps, cut, bootstrap 4.
    #   delta = [1 + 0.5*2 - 1, 0 + 0.5*3 - 2, 2 + 0.5*4 - 3] = [1, -0.5, 1]
    #   A     = [1 + 0.5*0, -0.5 + 0.5*1, 1]                  = [1, 0, 1]
    # Second: 1 step, bootstrap 6: delta = A = 1 + 0.5*6 - 2 = 2. Third: 2 steps, ended:
    #   delta = [0 + 0.5*4 - 0, 1 + 0 - 4] = [2, -3],  A = [2 - 1.5, -3] = [0.5, -3]
    advantages = gae(
        np.array([[1.0, 0.0, 2.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
        np.array([[1.0, 2.0, 3.0], [2.0, 0.0, 0.0], [0.0, 4.0, 0.0]]),
        np.array([4.0, 6.0, 0.0]),
        np.array([3, 1, 2]),
        gamma=0.5,
        lambd=1.0,
    )
    np.testing.assert_allclose(advantages, [[1.0, 0.0, 1.0], [2.0, 0.0, 0.0], [0.5, -3.0, 0.0]])


def test_vtrace_by_hand() -> None:
    # gamma = 0.5, lambda = 1, the episode ends after the third step.
    # Ratios of probabilities [4, 0.5, 0.25], so rho = [1, 0.5, 0.25].
    #   delta = [1 + 0.5*2 - 1, 0 + 0.5*4 - 2, 2 + 0 - 4] = [1, 0, -2]
    #   D[2] = 0.25 * -2 = -0.5,  D[1] = 0.5 * (0 + 0.5*-0.5) = -0.125,
    #   D[0] = 1 * (1 + 0.5*-0.125) = 0.9375
    #   A = delta + 0.5 * D[t+1] = [0.9375, -0.25, -2],  targets = V + D
    advantages, targets = vtrace(
        np.log([[4.0, 0.5, 0.25]]),
        np.array([[1.0, 0.0, 2.0]]),
        np.array([[1.0, 2.0, 4.0]]),
        np.array([0.0]),
        np.array([3]),
        gamma=0.5,
        lambd=1.0,
    )
    np.testing.assert_allclose(advantages, [[0.9375, -0.25, -2.0]])
    np.testing.assert_allclose(targets, [[1.9375, 1.875, 3.5]])


def test_lambda_0_is_the_error_of_one_step() -> None:
    # r + gamma V' - V: [1 + 0.9*3 - 2, 0 + 0.9*10 - 3] = [1.7, 6]
    advantages = gae(
        np.array([[1.0, 0.0]]),
        np.array([[2.0, 3.0]]),
        np.array([10.0]),
        np.array([2]),
        gamma=0.9,
        lambd=0.0,
    )
    np.testing.assert_allclose(advantages, [[1.7, 6.0]])


@st.composite
def segments(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rewards, values, bootstrap and length of 1 to 4 padded segments of up to 6 steps."""
    length = np.array(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    is_step = np.arange(length.max()) < length[:, None]
    rewards, values = (rng.normal(size=is_step.shape) * is_step for _ in range(2))
    return rewards, values, rng.normal(size=len(length)), length


@settings(deadline=None)
@given(segments(), st.floats(0.0, 1.0))
def test_lambda_1_is_discounted_return_minus_value(
    batch: tuple[np.ndarray, ...], gamma: float
) -> None:
    rewards, values, bootstrap, length = batch
    advantages = gae(rewards, values, bootstrap, length, gamma=gamma, lambd=1.0)
    for s, n_steps in enumerate(length):
        for t in range(n_steps):
            later = [*rewards[s, t:n_steps], bootstrap[s]]
            discounted = sum(gamma**k * reward for k, reward in enumerate(later))
            assert advantages[s, t] == pytest.approx(discounted - values[s, t], abs=1e-9)


@settings(deadline=None)
@given(segments(), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_vtrace_of_the_policy_that_acted_is_gae(
    batch: tuple[np.ndarray, ...], gamma: float, lambd: float
) -> None:
    rewards, values, bootstrap, length = batch
    expected = gae(rewards, values, bootstrap, length, gamma=gamma, lambd=lambd)
    advantages, targets = vtrace(
        np.zeros_like(values), rewards, values, bootstrap, length, gamma=gamma, lambd=lambd
    )
    np.testing.assert_array_equal(advantages, expected)
    np.testing.assert_array_equal(targets, values + expected)


@settings(deadline=None)
@given(segments(), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_padding_changes_nothing_and_stays_zero(
    batch: tuple[np.ndarray, ...], gamma: float, lambd: float
) -> None:
    rewards, values, bootstrap, length = batch
    together = gae(rewards, values, bootstrap, length, gamma=gamma, lambd=lambd)
    for s, n_steps in enumerate(length):
        row = slice(s, s + 1)
        alone = gae(
            rewards[row, :n_steps],
            values[row, :n_steps],
            bootstrap[row],
            length[row],
            gamma=gamma,
            lambd=lambd,
        )
        np.testing.assert_allclose(together[row, :n_steps], alone, atol=1e-12)
        assert not together[s, n_steps:].any()


def test_single_precision_stays_single() -> None:
    ones = np.ones((2, 3), np.float32)
    advantages = gae(ones, ones, ones[:, 0], np.array([3, 3]), gamma=0.99, lambd=0.95)
    assert advantages.dtype == np.float32


class Task(NamedTuple):
    gamma: float = 0.5
    respects_end: bool = True


def test_an_end_is_worth_nothing_to_a_signal_that_respects_it_alone() -> None:
    # Segments of two steps: the first was terminated, the second interrupted, the third cut. Only
    # the last step looks beyond its segment: A = r + 0.5 V' - V = 1 + 0.5 * 4 - 2, or 1 - 2.
    segments = make_segments(behavior(1), [2, 2, 2], np.random.default_rng(0))
    ones, values = np.ones((6, 2), np.float32), np.full((6, 2), 2.0, np.float32)
    found = advantages_of(
        segments,
        ones,
        values,
        np.full((3, 2), 4.0, np.float32),
        [Task(), Task(respects_end=False)],
        lambd=0.0,
    )
    assert found[[1, 3, 5]].tolist() == [[-1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    assert found[[0, 2, 4]].tolist() == [[0.0, 0.0]] * 3


def test_joined_by_hand() -> None:
    # Sums [5, 1, -2, -4]: mean 0, deviation sqrt((25 + 1 + 4 + 16) / 4) = sqrt(11.5).
    advantages = np.array([[4.0, 1.0], [2.0, -1.0], [-3.0, 1.0], [-3.0, -1.0]])
    found = joined_advantages(advantages)
    np.testing.assert_allclose(found, np.array([[5.0], [1.0], [-2.0], [-4.0]]) / np.sqrt(11.5))
    # A mean over signals differs from their sum by a factor, which normalization takes away.
    np.testing.assert_allclose(found, joined_advantages(advantages / 2))


def test_joined_by_what_each_signal_prefers_by_hand() -> None:
    # First signal [3, 3, -3, -3]: deviation 3, normal [1, 1, -1, -1]. Second [11, 9, 11, 9]: mean
    # 10, deviation 1, normal [1, -1, 1, -1]. Strengths 1 and 0.5: [1.5, 0.5, -0.5, -1.5] with
    # deviation sqrt(1.25).
    advantages = np.array([[3.0, 11.0], [3.0, 9.0], [-3.0, 11.0], [-3.0, 9.0]])
    wanted = np.array([[1.5], [0.5], [-0.5], [-1.5]]) / np.sqrt(1.25)
    np.testing.assert_allclose(joined_advantages(advantages, [1.0, 0.5]), wanted, rtol=1e-6)
    # How large rewards are makes no difference, as it does to the sum.
    larger = advantages * [1.0, 100.0]
    np.testing.assert_allclose(joined_advantages(larger, [1.0, 0.5]), wanted, rtol=1e-6)
    assert np.abs(joined_advantages(larger) - joined_advantages(advantages)).max() > 0.5


def test_one_signal_is_the_same_by_itself_and_in_the_sum() -> None:
    advantages = np.random.default_rng(0).normal(size=(50, 1))
    np.testing.assert_allclose(
        joined_advantages(advantages, [0.3]), joined_advantages(advantages), rtol=1e-6
    )
