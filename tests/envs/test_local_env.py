"""`LocalEnv` on an environment small enough to see through, and the steps it is made of."""

import numpy as np
import pytest

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
    TerminalSteps,
)
from mlagents_envs.exception import UnityActionException, UnityEnvironmentException
from mlagents_envs.local_env import LocalEnv, Report
from mlagents_envs.testing import check_env

NAME = "Counter?team=0"
PICTURE = ObservationSpec.image((1, 1, 2), "picture")
SPEC = BehaviorSpec([ObservationSpec.vector(1, "count"), PICTURE], ActionSpec.create_continuous(1))
LATE = BehaviorSpec([PICTURE], ActionSpec.create_discrete((2,)))


class Counter(LocalEnv):
    """Agents 3 and 4 count their steps; the third ends both episodes, agent 4's by a clock."""

    def __init__(self) -> None:
        super().__init__()
        self.announce({NAME: SPEC})
        self.told: list[list[float]] = []
        self.breaks = False

    def restart(self) -> dict[str, Report]:
        self.count = 0
        return {NAME: self._asks()}

    def advance(self) -> dict[str, Report]:
        if self.breaks:
            raise RuntimeError("broken")
        self.told.append(self.take_actions(NAME).continuous.ravel().tolist())
        self.count += 1
        if self.count < 3:
            return {NAME: self._asks()}
        ended = TerminalSteps.of(self._obs(), [1.0, 2.0], [3, 4], [False, True])
        self.count = 0
        return {NAME: self._asks()._replace(terminals=ended)}

    def _asks(self) -> Report:
        return Report(DecisionSteps.of(self._obs(), [0.0, 0.0], [3, 4]))

    def _obs(self) -> list[np.ndarray]:
        count = np.full((2, 1), self.count, np.float32)
        return [count, np.full((2, 1, 1, 2), 51 * self.count, np.uint8)]


def picture(env: LocalEnv) -> np.ndarray:
    return env.get_steps(NAME)[0].obs[1]


def test_two_methods_make_an_environment():
    check_env(lambda seed: Counter(), is_random=False)


def test_images_of_8_bit_are_handed_out_as_floats_unless_they_are_asked_for():
    env = Counter()
    assert env.behavior_specs[NAME].observation_specs[1].dtype == np.float32
    env.reset()
    env.step()
    assert picture(env).dtype == np.float32
    np.testing.assert_allclose(picture(env), 0.2, rtol=1e-6)  # 51 / 255
    with pytest.raises(UnityEnvironmentException, match="after the first reset"):
        env.keep_8_bit_images()

    env = Counter()
    env.keep_8_bit_images()
    assert env.behavior_specs[NAME] == SPEC
    assert picture(env).dtype == np.uint8, "after the first reset too"
    env.reset()
    env.step()
    assert picture(env).dtype == np.uint8
    assert picture(env).tolist() == [[[[51, 51]]], [[[51, 51]]]]


def test_actions_are_kept_until_the_step_and_no_longer():
    env = Counter()
    env.reset()
    env.set_actions(NAME, ActionTuple(np.array([[1.0], [2.0]])))
    env.set_action_for_agent(NAME, 4, ActionTuple(np.array([[7.0]])))
    env.step()
    env.step()
    env.set_actions(NAME, ActionTuple(np.array([[1.0], [2.0]])))
    env.reset()
    env.step()
    assert env.told == [[1.0, 7.0], [0.0, 0.0], [0.0, 0.0]]


def test_actions_of_unknown_behaviors_and_agents_are_refused():
    env = Counter()
    env.reset()
    one = ActionTuple(np.zeros((1, 1)))
    with pytest.raises(UnityActionException, match=r"unknown behavior 'Counter'; did you mean"):
        env.set_actions("Counter", one)
    with pytest.raises(IndexError, match="agent 5 did not request"):
        env.set_action_for_agent(NAME, 5, one)
    with pytest.raises(KeyError, match=r"unknown behavior 'Counter'; did you mean"):
        env.get_steps("Counter")


def test_a_behavior_that_is_not_reported_has_no_agents():
    env = Counter()
    env.reset()
    env.announce({"Late?team=0": LATE})
    decisions, terminals = env.get_steps("Late?team=0")
    assert len(decisions) == len(terminals) == 0
    assert decisions.obs[0].shape == (0, 1, 1, 2)
    assert decisions.obs[0].dtype == np.float32
    env.step()
    assert len(env.get_steps("Late?team=0")[0]) == 0


def test_the_first_step_and_one_after_an_error_are_resets():
    env = Counter()
    env.step()
    assert env.count == 0
    env.step()
    assert env.count == 1
    env.breaks = True
    with pytest.raises(RuntimeError, match="broken"):
        env.step()
    env.breaks = False
    env.step()
    assert env.count == 0


def test_a_closed_environment_refuses_to_go_on():
    env = Counter()
    env.reset()
    env.close()
    for go_on in (env.reset, env.step):
        with pytest.raises(UnityEnvironmentException, match="closed"):
            go_on()


def test_steps_are_made_of_any_numbers():
    decisions = DecisionSteps.of([], [0.5], range(1), groups=([2], [0.25]))
    assert (
        decisions[0]
        == DecisionSteps(
            [],
            np.array([0.5], np.float32),
            np.array([0], np.int32),
            None,
            np.array([2], np.int32),
            np.array([0.25], np.float32),
        )[0]
    )
    terminals = TerminalSteps.of([], [0.5, 1.0], [0, 1], interrupted=True)
    assert terminals.interrupted.tolist() == [True, True]
    for steps in (decisions, terminals, DecisionSteps.of([], [], [])):
        types = [a.dtype for a in (steps.reward, steps.agent_id, steps.group_id)]
        assert types == [np.float32, np.int32, np.int32]
        assert steps.group_reward.dtype == np.float32
    assert not terminals.group_id.any()


def test_arrays_of_the_right_type_are_not_copied():
    reward, agent_id = np.ones(2, np.float32), np.arange(2, dtype=np.int32)
    decisions = DecisionSteps.of([], reward, agent_id)
    assert decisions.reward is reward
    assert decisions.agent_id is agent_id
