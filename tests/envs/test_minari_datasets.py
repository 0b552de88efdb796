"""Demonstrations as Minari datasets, and back."""

from pathlib import Path

import numpy as np
import pytest

from mlagents_envs.base_env import ActionSpec, ActionTuple, BehaviorSpec, ObservationSpec
from mlagents_envs.demonstration_file import read_demonstration, write_demonstration
from mlagents_envs.demonstration_records import DemonstrationRecords
from mlagents_envs.exception import UnityDemonstrationException

pytest.importorskip("minari")
pytest.importorskip("h5py")

from gymnasium import spaces

from mlagents_envs.envs.minari_datasets import (
    action_spec_of,
    from_minari,
    to_minari,
)
from mlagents_envs.envs.spaces import UnityGymException

NAME = "Walker?team=0"
VECTOR = ObservationSpec.vector(3, "place")
IMAGE = ObservationSpec.image((3, 4, 5), "camera")


@pytest.fixture(autouse=True)
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))


def records_of(spec: BehaviorSpec, lengths: tuple[int, ...]) -> DemonstrationRecords:
    """Return one episode for each length; the last one is interrupted."""
    rng = np.random.default_rng(0)
    n, acts = sum(lengths), spec.action_spec
    done = np.zeros(n, np.bool_)
    done[np.cumsum(lengths) - 1] = True
    interrupted = np.arange(n) == n - 1
    branches = [rng.integers(0, size, n) for size in acts.discrete_branches]
    return DemonstrationRecords(
        obs=[
            rng.integers(0, 256, (n, *each.shape)).astype(np.uint8)
            if len(each.shape) == 3
            else rng.random((n, *each.shape)).astype(np.float32)
            for each in spec.observation_specs
        ],
        action=ActionTuple(
            rng.uniform(-1.0, 1.0, (n, acts.continuous_size)),
            np.stack(branches, axis=1) if branches else None,
        ),
        action_mask=[np.zeros((n, size), np.bool_) for size in acts.discrete_branches] or None,
        reward=rng.random(n).astype(np.float32),
        done=done,
        interrupted=interrupted,
        agent_id=np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        group_id=np.zeros(n, np.int32),
        group_reward=np.zeros(n, np.float32),
    )


@pytest.mark.parametrize(
    ("observations", "actions"),
    [
        ([VECTOR], ActionSpec(2, ())),
        ([VECTOR], ActionSpec(0, (4,))),
        ([VECTOR, IMAGE], ActionSpec(0, (2, 3))),
        ([IMAGE], ActionSpec(1, (2, 3))),
    ],
)
def test_a_demonstration_comes_back_from_minari(
    observations: list[ObservationSpec], actions: ActionSpec, tmp_path: Path
) -> None:
    spec = BehaviorSpec(observations, actions)
    records = records_of(spec, (4, 3))
    write_demonstration(tmp_path / "a.demo", NAME, spec, records)
    dataset = to_minari(tmp_path / "a.demo", "walker/test-v0")
    assert (dataset.total_episodes, dataset.total_steps) == (2, 5)
    first, last = dataset.iterate_episodes()
    np.testing.assert_allclose(first.rewards, records.reward[1:4], rtol=1e-6)
    assert first.terminations.tolist() == [False, False, True] and not first.truncations.any()
    assert last.truncations.tolist() == [False, True] and not last.terminations.any()

    from_minari("walker/test-v0", tmp_path / "b.demo", behavior_name=NAME)
    before, after = (
        read_demonstration(tmp_path / name, keep_8_bit_images=True) for name in ("a.demo", "b.demo")
    )
    assert after.spec.action_spec == before.spec.action_spec
    for one, other in zip(before.records.obs, after.records.obs, strict=True):
        np.testing.assert_array_equal(one, other)
    is_step = ~records.done
    for kind in ("continuous", "discrete"):
        np.testing.assert_allclose(
            getattr(after.records.action, kind)[is_step],
            getattr(records.action, kind)[is_step],
            atol=1e-6,
        )
    np.testing.assert_array_equal(after.records.done, records.done)
    np.testing.assert_array_equal(after.records.interrupted, records.interrupted)
    np.testing.assert_allclose(after.records.reward[1:4], records.reward[1:4], rtol=1e-6)


def test_episodes_without_a_step_cannot_be_exported(tmp_path: Path) -> None:
    spec = BehaviorSpec([VECTOR], ActionSpec(2, ()))
    write_demonstration(tmp_path / "a.demo", NAME, spec, records_of(spec, (1, 1)))
    with pytest.raises(UnityDemonstrationException, match="no episode has a step"):
        to_minari(tmp_path / "a.demo", "walker/test-v0")


def test_spaces_without_a_counterpart_are_refused() -> None:
    assert action_spec_of(spaces.Box(-2.0, 3.0, (2,))) == ActionSpec.create_continuous(2)
    with pytest.raises(UnityGymException, match="cannot be recorded"):
        action_spec_of(spaces.Box(-np.inf, np.inf, (2,)))
