"""Snapshots: what crosses from learning to acting."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from actors import CASES, CONTINUOUS, HYBRID, Case, make_actor, memories, observations
from mlagents.trainers.networks.snapshots import (
    TorchSnapshot,
    snapshot_of,
    weights_of,
    with_weights,
)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_snapshot_acts_the_same_after_its_journey(case: Case) -> None:
    actor = make_actor(case.spec, **case.settings)
    rng = np.random.default_rng(0)
    obs, memory = observations(case.spec, 5, rng), memories(actor, 5, rng)
    snapshot = snapshot_of(actor)
    there = pickle.loads(pickle.dumps(snapshot))
    assert (there.memory_size, there.squashed) == (snapshot.memory_size, snapshot.squashed)
    for found, expected in zip(
        there.forward(obs, memory), snapshot.forward(obs, memory), strict=True
    ):
        np.testing.assert_equal(found, expected)


@pytest.mark.parametrize("case", [*CASES.values(), Case(HYBRID, {"normalize": True})])
@pytest.mark.parametrize("squashed", [False, True])
def test_a_snapshot_is_restored_from_its_weights(case: Case, squashed: bool) -> None:
    actors = [make_actor(case.spec, seed=i, squashed=squashed, **case.settings) for i in (0, 1)]
    saved, like = map(snapshot_of, actors)
    restored = with_weights(like, weights_of(saved))
    rng = np.random.default_rng(0)
    obs, memory = observations(case.spec, 5, rng), memories(actors[0], 5, rng)
    for found, expected in zip(
        restored.forward(obs, memory), saved.forward(obs, memory), strict=True
    ):
        np.testing.assert_equal(found, expected)
    assert restored is not like


def test_the_critics_memory_is_restored_too() -> None:
    case = CASES["memory"]
    saved, like = (
        TorchSnapshot(
            make_actor(case.spec, seed=i, **case.settings),
            make_actor(case.spec, seed=i + 2, **case.settings).body,
        )
        for i in (0, 1)
    )
    restored = with_weights(like, weights_of(saved))
    obs = observations(case.spec, 5, np.random.default_rng(0))
    memory = np.random.default_rng(1).random((5, saved.memory_size), np.float32)
    assert saved.memory_size == 24
    np.testing.assert_equal(restored.forward(obs, memory).memory, saved.forward(obs, memory).memory)


def test_weights_of_another_network_are_named() -> None:
    small, large = (snapshot_of(make_actor(CONTINUOUS, hidden_units=n)) for n in (8, 9))
    with pytest.raises(ValueError, match=r"layers.0.0 is \(8, 9\); expected \(8, 8\)"):
        with_weights(small, weights_of(large))
    memory = CASES["memory"]
    with pytest.raises(ValueError, match=r"layers.0.0 is missing; expected"):
        with_weights(small, weights_of(snapshot_of(make_actor(memory.spec, **memory.settings))))


def test_a_snapshot_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="a object cannot be saved in a checkpoint"):
        weights_of(object())  # type: ignore[arg-type]


def test_a_dense_snapshot_decides_in_a_process_without_torch(tmp_path: Path) -> None:
    snapshot = snapshot_of(make_actor(CONTINUOUS, normalize=True))
    obs = observations(CONTINUOUS, 3, np.random.default_rng(0))
    (tmp_path / "sent").write_bytes(pickle.dumps((snapshot, CONTINUOUS.action_spec, obs)))
    program = f"""
import pickle, sys
import numpy as np
from mlagents.trainers.acting.policy import ActingPolicy
with open({str(tmp_path / "sent")!r}, "rb") as file:
    snapshot, spec, obs = pickle.load(file)
policy = ActingPolicy(snapshot, spec, deterministic=True, rng=np.random.default_rng(0))
np.save({str(tmp_path / "mean.npy")!r}, policy.act(obs, np.zeros((3, 0), bool)).continuous)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    expected = snapshot.forward(obs, np.zeros((3, 0), np.float32)).mean
    assert expected is not None
    np.testing.assert_allclose(np.load(tmp_path / "mean.npy"), expected, atol=1e-6)
