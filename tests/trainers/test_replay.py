"""The ring of past experience, beside a list of sequences that is simply cut at its front."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from actors import behavior, image_8_bit
from mlagents.trainers.data.replay import FIRST_ROWS, Replay, Ring
from mlagents.trainers.data.segments import Segments, cut_into
from mlagents.trainers.exception import UnityTrainerException

SPEC = behavior(2, image_8_bit(1, 2, 2), continuous=1, branches=(3,))


def segments_of(
    lengths: list[int], *, seed: int, longest: int = 1, memory_size: int = 2
) -> Segments:
    rng = np.random.default_rng(seed)
    n_sequences = len(cut_into(longest, np.array(lengths)))
    n, n_segments = sum(lengths), len(lengths)

    def seen(count: int) -> list[NDArray[Any]]:
        image = rng.integers(0, 256, (count, 1, 2, 2), np.uint8)
        return [rng.normal(size=(count, 2)).astype("f4"), image]

    ended = rng.integers(0, 3, n_segments)  # by the task, by a clock, not at all
    return Segments(
        obs=seen(n),
        continuous=rng.uniform(-1, 1, (n, 1)).astype("f4"),
        discrete=rng.integers(0, 3, (n, 1)).astype(np.int32),
        log_probs=np.zeros((n, 2), "f4"),
        action_mask=rng.random((n, 3)) < 0.3,
        memory=rng.normal(size=(n_sequences, memory_size)).astype("f4"),
        reward=rng.normal(size=n).astype("f4"),
        group_reward=rng.normal(size=n).astype("f4"),
        length=np.array(lengths),
        last_obs=seen(n_segments),
        last_memory=np.zeros((n_segments, memory_size), "f4"),
        terminated=ended == 0,
        interrupted=ended == 1,
        episode=np.arange(n_segments),
    )


class Plain:
    """What the replay buffer should hold, as lists."""

    def __init__(self, capacity: int, longest: int) -> None:
        self.capacity, self.longest = capacity, longest
        self.n_rows = 0
        self.sequences: list[tuple[int, dict[str, Any]]] = []

    def add(self, s: Segments) -> None:
        end = 0
        memory = iter(s.memory)
        for i, length in enumerate(s.length.tolist()):
            start, end = end, end + length
            following = [np.concatenate([o[start + 1 : end], o_last[i : i + 1]])
                         for o, o_last in zip(s.obs, s.last_obs, strict=True)]  # fmt: skip
            for first in range(0, length, self.longest):
                last = min(first + self.longest, length)
                steps = slice(start + first, start + last)
                is_end = np.arange(first, last) == length - 1
                self.sequences.append(
                    (
                        self.n_rows + first,
                        {
                            "obs": [o[steps] for o in s.obs],
                            "next_obs": [o[first:last] for o in following],
                            "continuous": s.continuous[steps],
                            "discrete": s.discrete[steps],
                            "action_mask": s.action_mask[steps],
                            "reward": s.reward[steps] + s.group_reward[steps],
                            "terminated": is_end & s.terminated[i],
                            "memory": next(memory)[None],
                        },
                    )
                )
            self.n_rows += length + 1
        oldest = self.n_rows - self.capacity
        self.sequences = [(row, s) for row, s in self.sequences if row >= oldest]

    def check(self, replay: Replay, chosen: NDArray[np.int64]) -> None:
        assert replay.n_sequences == len(self.sequences)
        assert replay.n_rows == min(self.n_rows, self.capacity)
        replayed = replay.take(chosen)
        wanted = [self.sequences[i][1] for i in chosen]
        assert replayed.length.tolist() == [len(s["reward"]) for s in wanted]
        for name in wanted[0]:
            found = getattr(replayed, name)
            if name in ("obs", "next_obs"):
                for i, batch in enumerate(found):
                    np.testing.assert_array_equal(
                        batch, np.concatenate([s[name][i] for s in wanted])
                    )
            else:
                np.testing.assert_array_equal(found, np.concatenate([s[name] for s in wanted]))


batches = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=12)


@settings(deadline=None, max_examples=60)
@given(batches, st.integers(2, 60), st.sampled_from([1, 2, 4]))
def test_every_sequence_is_found_whole_until_it_is_replaced(
    lengths: list[list[int]], capacity: int, longest: int
) -> None:
    replay = Replay(SPEC, capacity=capacity, longest=longest, memory_size=2)
    plain = Plain(capacity, longest)
    for seed, batch in enumerate(lengths):
        segments = segments_of(batch, seed=seed, longest=longest)
        replay.add(segments)
        plain.add(segments)
        if plain.sequences:
            plain.check(replay, np.arange(len(plain.sequences)))
            plain.check(replay, np.array([len(plain.sequences) - 1, 0, 0]))


def test_images_are_held_as_bytes_and_drawn_as_copies() -> None:
    replay = Replay(SPEC, capacity=50, memory_size=2)
    replay.add(segments_of([5], seed=0))
    first = replay.take(np.arange(5))
    assert first.obs[1].dtype == np.uint8
    first.obs[1][:] = 0
    assert replay.take(np.arange(5)).obs[1].any()


def test_a_ring_takes_room_as_it_fills() -> None:
    ring = Ring(10_000, {"a": ((3,), np.float32)})
    sizes = []
    for _ in range(24):
        ring.append({"a": np.ones((500, 3), np.float32)})
        sizes.append(len(ring.column("a")))
    assert sizes[0] == FIRST_ROWS
    assert sizes == sorted(sizes)
    assert sizes[4] == 4096, "2500 rows: doubled twice"
    assert sizes[-1] == 10_000, "and no more than that"
    assert (ring.start, ring.end) == (2000, 12_000)
    assert ring.take("a", np.arange(2000, 12_000)).all()


def test_a_full_ring_writes_in_place() -> None:
    ring = Ring(4, {"a": ((), np.float32)})
    ring.append({"a": np.arange(4, dtype=np.float32)})
    column = ring.column("a")
    ring.append({"a": np.array([4.0], np.float32)})
    assert ring.column("a") is column, "nothing is copied"
    assert column.tolist() == [4.0, 1.0, 2.0, 3.0]


def test_a_behavior_without_memory_stores_none() -> None:
    replay = Replay(SPEC, capacity=9)
    replay.add(segments_of([3], seed=0, memory_size=0))
    assert replay.take(np.arange(3)).memory.shape == (3, 0)


# ------------------------------------------------------------------------------------------ on disk


def saved(replay: Replay, path: Path) -> Path:
    with path.open("wb") as file:
        replay.save(file)
    return path


@pytest.mark.parametrize("capacity", [20, 64, 500])
@pytest.mark.parametrize("longest", [1, 4])
def test_what_was_saved_is_drawn_as_before(tmp_path: Path, capacity: int, longest: int) -> None:
    # 135 rows: the smaller rings are full, the smallest holds the last batch in part.
    before = Replay(SPEC, capacity=capacity, longest=longest, memory_size=2)
    plain = Plain(capacity, longest)
    for seed in range(5):
        segments = segments_of([7, 1, 9, 6], seed=seed, longest=longest)
        before.add(segments)
        plain.add(segments)

    after = Replay(SPEC, capacity=capacity, longest=longest, memory_size=2)
    after.load(saved(before, tmp_path / "replay.npz"))

    for seed in (5, 6):  # and it goes on as the other does
        chosen = np.arange(before.n_sequences)
        for found, wanted in zip(after.take(chosen), before.take(chosen), strict=True):
            np.testing.assert_equal(found, wanted)
        for replay in (before, after, plain):
            replay.add(segments_of([3, 8], seed=seed, longest=longest))
    plain.check(before, np.arange(before.n_sequences))
    assert after.n_sequences == before.n_sequences


def test_a_smaller_buffer_loads_the_newest(tmp_path: Path) -> None:
    before = Replay(SPEC, capacity=500, memory_size=2)
    plain = Plain(40, 1)
    for seed in range(5):
        segments = segments_of([7, 1, 9, 6], seed=seed)
        before.add(segments)
        plain.add(segments)

    after = Replay(SPEC, capacity=40, memory_size=2)
    after.load(saved(before, tmp_path / "replay.npz"))

    assert after.n_rows == 40
    chosen = np.arange(after.n_sequences)
    newest = before.n_sequences - len(chosen) + chosen
    for found, wanted in zip(after.take(chosen), before.take(newest), strict=True):
        np.testing.assert_equal(found, wanted)
    assert after.n_sequences == len(plain.sequences)


def test_a_file_of_another_behavior_is_refused(tmp_path: Path) -> None:
    other = Replay(behavior(3, image_8_bit(1, 2, 2), continuous=1, branches=(3,)), capacity=9)
    path = saved(other, tmp_path / "replay.npz")
    with pytest.raises(UnityTrainerException) as caught:
        Replay(SPEC, capacity=9).load(path)
    assert str(path) in str(caught.value)
    assert "obs_0: expected float32 of shape (2,)" in str(caught.value)
    assert "got float32 of shape (3,)" in str(caught.value)


@pytest.mark.parametrize("damage", ["cut", "no archive", "empty"])
def test_a_broken_file_is_refused(tmp_path: Path, damage: str) -> None:
    replay = Replay(SPEC, capacity=90, memory_size=2)
    replay.add(segments_of([30], seed=0))
    path = saved(replay, tmp_path / "replay.npz")
    content = {"cut": path.read_bytes()[:700], "no archive": b"x" * 300, "empty": b""}[damage]
    path.write_bytes(content)
    with pytest.raises(UnityTrainerException, match=r"replay\.npz cannot be loaded"):
        Replay(SPEC, capacity=90, memory_size=2).load(path)
