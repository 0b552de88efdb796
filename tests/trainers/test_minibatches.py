import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlagents.trainers.algorithms.minibatches import deal, deal_sequences, in_order
from mlagents.trainers.data.segments import cut_into


def test_everything_is_dealt_once_but_for_what_does_not_fill_a_minibatch() -> None:
    dealt = deal(11, 3, torch.Generator().manual_seed(0))
    assert dealt.shape == (3, 3)
    assert len(set(dealt.flatten().tolist())) == 9
    assert set(dealt.flatten().tolist()) <= set(range(11))
    again = deal(11, 3, torch.Generator().manual_seed(1))
    assert not torch.equal(dealt, again)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_whole_sequences_are_dealt_once_each(
    segment_lengths: list[int], longest: int, size: int
) -> None:
    length = cut_into(longest, np.array(segment_lengths))
    starts = np.cumsum(length) - length
    size = min(size, len(length))
    dealt = list(
        deal_sequences(
            torch.from_numpy(length), size, longest, torch.Generator(), torch.device("cpu")
        )
    )
    assert len(dealt) == len(length) // size
    all_sequences = np.concatenate([sequences.numpy() for _, sequences, _ in dealt])
    assert len(set(all_sequences)) == len(all_sequences)
    assert set(all_sequences) <= set(range(len(length)))
    for rows, sequences, place in dealt:
        found = iter(zip(rows.tolist(), place.tolist(), strict=True))
        for position, sequence in enumerate(sequences.tolist()):
            for t in range(length[sequence]):
                assert next(found) == (starts[sequence] + t, position * longest + t)
        assert next(found, None) is None


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
    st.integers(1, 4),
    st.integers(1, 20),
)
def test_sequences_in_order_are_split_without_a_gap(
    segment_lengths: list[int], longest: int, n_rows: int
) -> None:
    length = cut_into(longest, np.array(segment_lengths))
    n_sequences = row = 0
    for rows, sequences, place in in_order(length, n_rows, longest):
        assert (rows.start, sequences.start) == (row, n_sequences)
        row, n_sequences = int(rows.stop), sequences.stop
        expected = [
            position * longest + t
            for position, steps in enumerate(length[sequences])
            for t in range(steps)
        ]
        assert place.tolist() == expected
        assert rows.stop - rows.start == len(expected) <= max(n_rows, longest)
    assert (row, n_sequences) == (length.sum(), len(length))
