"""Demonstrations as steps of experience, from files made by hand and from Unity's."""

from pathlib import Path

import numpy as np
import pytest

import shared_data
from actors import behavior
from mlagents.trainers.data.demonstrations import (
    demonstrated_spec,
    load_demonstrations,
)
from mlagents.trainers.exception import UnityTrainerException
from mlagents_envs.base_env import ActionTuple, BehaviorSpec
from mlagents_envs.demonstration_file import (
    ActionPlacement,
    DemonstrationRecords,
    read_demonstration,
    write_demonstration,
)

SPEC = behavior(1, continuous=1, branches=(3,))
SHARED = shared_data.ROOT / "demonstrations"
BESIDE = ["Expert3DBall", "ExpertBasic", "testdcvis"]
"""Recorded by Unity's first packages, with each action beside its observation."""
AFTER = ["ExpertFood", "ExpertHallway", "ExpertPushBlock", "testhybridvis"]
"""Recorded by later packages, with each action in the record after its observation."""


def write(
    path: Path,
    done: list[bool],
    *,
    interrupted: list[bool] | None = None,
    spec: BehaviorSpec = SPEC,
    continuous: list[float] | None = None,
    agent_id: list[int] | None = None,
) -> Path:
    """Write records whose every number tells which record it belongs to."""
    n, numbers = len(done), np.arange(len(done), dtype=np.float32)
    size = spec.action_spec.continuous_size
    records = DemonstrationRecords(
        obs=[np.full((n, *o.shape), numbers[:, None]) for o in spec.observation_specs],
        action=ActionTuple(
            np.repeat(numbers[:, None] / 10, size, 1)
            if continuous is None
            else np.array(continuous, np.float32)[:, None],
            np.arange(n, dtype=np.int32)[:, None] % 3,
        ),
        action_mask=[np.zeros((n, size), np.bool_) for size in spec.action_spec.discrete_branches],
        reward=numbers,
        done=np.array(done),
        interrupted=np.array(interrupted or [False] * n),
        agent_id=np.array(agent_id or [0] * n, np.int32),
        group_id=np.zeros(n, np.int32),
        group_reward=100 * numbers,
    )
    write_demonstration(path, "Expert", spec, records)
    return path


def test_every_step_is_paired_with_what_followed_it(tmp_path: Path) -> None:
    # Records:  0 1 2D | 3 4 5 6D | 7D | 8 9 : D ends an episode, of which 6's was interrupted. The
    # last is never finished. Steps begin at 0 1 | 3 4 5 | 8, and have the reward of the record
    # after, its group's (100 times as much) included. 7D is an episode of no step.
    done = [False, False, True, False, False, False, True, True, False, False]
    interrupted = [False] * 6 + [True] + [False] * 3
    file = write(tmp_path / "a.demo", done, interrupted=interrupted)

    steps = load_demonstrations(file, SPEC)

    np.testing.assert_array_equal(steps.obs[0][:, 0], [0, 1, 3, 4, 5, 8])
    np.testing.assert_allclose(steps.continuous[:, 0], [0.0, 0.1, 0.3, 0.4, 0.5, 0.8])
    np.testing.assert_array_equal(steps.discrete[:, 0], [0, 1, 0, 1, 2, 2])
    np.testing.assert_array_equal(steps.reward, [101, 202, 404, 505, 606, 909])
    np.testing.assert_array_equal(steps.terminated, [False, True, False, False, False, False])
    np.testing.assert_array_equal(steps.length, [2, 3, 1])
    assert str(steps) == "6 steps in 3 episodes, mean reward 909.000"


def test_actions_beyond_their_limits_are_cut(tmp_path: Path) -> None:
    file = write(tmp_path / "a.demo", [False] * 4, continuous=[-3.0, 0.5, 1.5, 9.0])
    np.testing.assert_array_equal(load_demonstrations(file, SPEC).continuous[:, 0], [-1, 0.5, 1])


def test_a_folder_is_all_its_files(tmp_path: Path) -> None:
    write(tmp_path / "b.demo", [False, True])
    write(tmp_path / "a.demo", [False, False, False])
    (tmp_path / "notes.txt").write_text("not one")

    steps = load_demonstrations(tmp_path, SPEC)

    np.testing.assert_array_equal(steps.obs[0][:, 0], [0, 1, 0])
    np.testing.assert_array_equal(steps.length, [2, 1])
    assert demonstrated_spec(tmp_path).action_spec == SPEC.action_spec


def test_whole_episodes_are_held_out(tmp_path: Path) -> None:
    file = write(tmp_path / "a.demo", ([False] * 3 + [True]) * 10)
    steps = load_demonstrations(file, SPEC)

    learned, held_out = steps.split(0.2, np.random.default_rng(0))

    assert held_out is not None
    assert (len(learned.length), len(held_out.length)) == (8, 2)
    begins = {int(first) for first in held_out.obs[0][::3, 0]}
    assert begins <= set(range(0, 40, 4))
    for first, rows in zip(sorted(begins), np.split(held_out.obs[0][:, 0], 2), strict=True):
        np.testing.assert_array_equal(rows, [first, first + 1, first + 2])
    both = np.sort(np.concatenate([learned.obs[0], held_out.obs[0]]), axis=0)
    np.testing.assert_array_equal(both, steps.obs[0])


@pytest.mark.parametrize(("share", "n_held_out"), [(0.0, None), (0.01, 1), (0.99, 2)])
def test_some_are_learned_and_some_held_out(
    tmp_path: Path, share: float, n_held_out: int | None
) -> None:
    steps = load_demonstrations(write(tmp_path / "a.demo", [False, True] * 3), SPEC)
    _, held_out = steps.split(share, np.random.default_rng(0))
    assert (held_out and len(held_out.length)) == n_held_out


def test_one_episode_alone_is_not_held_out(tmp_path: Path) -> None:
    steps = load_demonstrations(write(tmp_path / "a.demo", [False, False]), SPEC)
    assert steps.split(0.5, np.random.default_rng(0)) == (steps, None)


@pytest.mark.parametrize(
    ("expected", "says"),
    [
        (behavior(1, 2, continuous=1, branches=(3,)), "expected 2 observations, .* has 1: "),
        (
            behavior(4, continuous=1, branches=(3,)),
            r"observation 0, .vector_0.: expected the shape \(4,\), but .* has \(1,\)",
        ),
        (behavior(1, continuous=1), r"expected actions Continuous: 1, Discrete: \(\), but the"),
        (
            behavior(1, continuous=1, branches=(4,)),
            r"Discrete: \(4,\), but the demonst.*Discrete: \(3",
        ),
    ],
)
def test_demonstrations_of_others_are_refused(
    tmp_path: Path, expected: BehaviorSpec, says: str
) -> None:
    file = write(tmp_path / "others.demo", [False, False])
    with pytest.raises(UnityTrainerException, match=f"others.demo: .*{says}"):
        load_demonstrations(file, expected)


def test_what_shows_no_step_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "a.demo", [True])
    with pytest.raises(UnityTrainerException, match=r"a\.demo: the demonstration contains no step"):
        load_demonstrations(file, SPEC)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        UnityTrainerException, match=r"the file or folder .*gone\.demo does not exist"
    ):
        load_demonstrations(tmp_path / "gone.demo", SPEC)
    with pytest.raises(UnityTrainerException, match=r"contains no \.demo file"):
        load_demonstrations(tmp_path, SPEC)
    (tmp_path / "broken.demo").write_bytes(b"not a demonstration")
    with pytest.raises(UnityTrainerException, match=r"cannot be read: .*broken\.demo"):
        load_demonstrations(tmp_path, SPEC)


@pytest.mark.parametrize("name", BESIDE + AFTER)
def test_unitys_files_pair_as_they_were_recorded(name: str) -> None:
    file = shared_data.require(SHARED / f"{name}.demo")
    records = read_demonstration(
        file, keep_8_bit_images=True, action_placement=ActionPlacement.SAME_RECORD
    ).records

    steps = load_demonstrations(file, demonstrated_spec(file))

    late = int(name in AFTER)
    row = 0
    for t in range(len(records.done) - 1):
        if records.done[t]:
            continue
        for found, batch in zip(steps.obs, records.obs, strict=True):
            np.testing.assert_array_equal(found[row], batch[t])
        action = records.action
        np.testing.assert_array_equal(steps.discrete[row], action.discrete[t + late])
        np.testing.assert_array_equal(steps.continuous[row], action.continuous[t + late])
        assert steps.reward[row] == records.reward[t + 1] + records.group_reward[t + 1]
        assert steps.terminated[row] == (records.done[t + 1] and not records.interrupted[t + 1])
        row += 1
    assert row == steps.n_steps == steps.length.sum()


def test_agents_that_recorded_by_turns_are_learned_from_one_by_one(tmp_path: Path) -> None:
    # Agent 1 has the records 0 2 4D | 6 7D, and agent 2, which never ends, has 1 3 5.
    file = write(
        tmp_path / "a.demo",
        [False, False, False, False, True, False, False, True],
        agent_id=[1, 2, 1, 2, 1, 2, 1, 1],
    )

    steps = load_demonstrations(file, SPEC)

    assert steps.obs[0][:, 0].tolist() == [0, 2, 1, 3, 6]
    assert steps.discrete[:, 0].tolist() == [0, 2, 1, 0, 0]
    assert steps.reward.tolist() == [202, 404, 303, 505, 707]
    assert steps.terminated.tolist() == [False, True, False, False, True]
    assert steps.length.tolist() == [2, 2, 1]
