"""Snapshots: what crosses from learning to acting."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from actors import CASES, CONTINUOUS, Case, make_actor, memories, observations
from mlagents.trainers.networks.snapshots import snapshot_of


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
