from dataclasses import fields

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mlagents.trainers.data.segments import Segments, cut_into, is_step, to_columns


def make_segments(length: list[int], *, first: int = 0) -> Segments:
    """Segments whose every number is different, counting from `first`."""
    n_steps, n_segments = sum(length), len(length)
    steps = np.arange(first, first + n_steps)
    ends = np.arange(first, first + n_segments)
    return Segments(
        obs=[steps[:, None] + np.zeros(2, np.float32), steps[:, None, None] + np.ones((1, 3))],
        continuous=steps[:, None] + np.float32([0.1, 0.2]),
        discrete=steps[:, None].astype(np.int32),
        log_probs=-steps[:, None] - np.float32([0.1, 0.2, 0.3]),
        action_mask=(steps[:, None] + np.arange(4)) % 3 == 0,
        memory=ends[:, None] + np.float32([0.4, 0.5]),
        reward=steps.astype(np.float32),
        group_reward=-steps.astype(np.float32),
        length=np.array(length),
        last_obs=[ends[:, None] + np.zeros(2, np.float32), ends[:, None, None] + np.ones((1, 3))],
        last_memory=ends[:, None] + np.float32([0.6, 0.7]),
        terminated=ends % 3 == 0,
        interrupted=ends % 3 == 1,
        episode=ends,
    )


def test_segments_that_come_alone_are_not_copied() -> None:
    alone = make_segments([2, 1])
    assert Segments.concatenate([alone]) is alone
    both = Segments.concatenate([alone, make_segments([3], first=10)])
    assert both.length.tolist() == [2, 1, 3]


def test_concatenate_puts_rows_and_segments_one_after_the_other() -> None:
    parts = [make_segments([2, 1]), make_segments([3], first=10), make_segments([1, 1], first=20)]
    joined = Segments.concatenate(parts)
    assert joined.n_steps == 8
    for field in fields(Segments):
        arrays = [getattr(part, field.name) for part in parts]
        found = getattr(joined, field.name)
        if field.name == "open_steps":
            assert found is None
        elif field.name in ("obs", "last_obs"):
            assert len(found) == 2
            for i, observation in enumerate(found):
                np.testing.assert_array_equal(observation, np.concatenate([a[i] for a in arrays]))
        else:
            np.testing.assert_array_equal(found, np.concatenate(arrays))
            assert found.dtype == arrays[0].dtype
    np.testing.assert_array_equal(joined.length, [2, 1, 3, 1, 1])
    np.testing.assert_array_equal(joined.reward, [0, 1, 2, 10, 11, 12, 20, 21])


def test_a_segment_ends_its_episode_by_either_end() -> None:
    segments = make_segments([1, 1, 1])
    np.testing.assert_array_equal(segments.terminated, [True, False, False])
    np.testing.assert_array_equal(segments.interrupted, [False, True, False])
    np.testing.assert_array_equal(segments.ended, [True, True, False])


def test_to_columns_by_hand() -> None:
    columns = to_columns(np.float32([1, 2, 3, 4, 5, 6]), np.array([2, 1, 3]))
    np.testing.assert_array_equal(columns, [[1, 2, 0], [3, 0, 0], [4, 5, 6]])
    np.testing.assert_array_equal(
        is_step(np.array([2, 1, 3])),
        [[True, True, False], [True, False, False], [True, True, True]],
    )


@st.composite
def rows_and_length(draw: st.DrawFn) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    length = np.array(draw(st.lists(st.integers(1, 7), min_size=1, max_size=6)))
    trailing = draw(st.sampled_from([(), (3,), (2, 2)]))
    rows = np.arange(1, 1 + length.sum() * int(np.prod(trailing)), dtype=np.float32)
    return rows.reshape(length.sum(), *trailing), length


@settings(deadline=None)
@given(rows_and_length())
def test_columns_come_back_as_rows_and_hold_zeros_besides(
    rows_and_length: tuple[NDArray[np.float32], NDArray[np.int64]],
) -> None:
    rows, length = rows_and_length
    columns = to_columns(rows, length)
    assert columns.shape == (len(length), length.max(), *rows.shape[1:])
    assert columns.dtype == np.float32
    np.testing.assert_array_equal(columns[is_step(length)], rows)
    np.testing.assert_array_equal(is_step(length).sum(axis=1), length)
    assert not columns[~is_step(length)].any()


def test_cut_into_by_hand() -> None:
    # 5 = 2 + 2 + 1, 2 = 2, 1 = 1, 4 = 2 + 2.
    np.testing.assert_array_equal(cut_into(2, np.array([5, 2, 1, 4])), [2, 2, 1, 2, 1, 2, 2])


@settings(deadline=None)
@given(st.integers(1, 9), st.lists(st.integers(1, 30), min_size=1, max_size=9))
def test_sequences_are_as_long_as_they_may_be_and_never_cross_a_segment(
    longest: int, length: list[int]
) -> None:
    cut = cut_into(longest, np.array(length))
    assert cut.min() >= 1
    assert cut.max() <= longest
    ends = np.cumsum(cut)
    assert set(np.cumsum(length)) <= set(ends)
    assert len(cut) == sum(-(-n_steps // longest) for n_steps in length)
