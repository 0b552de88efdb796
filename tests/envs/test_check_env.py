"""`check_env` accepts what keeps the contract, and says what is wrong with the rest."""

from collections.abc import Callable

import numpy as np
import pytest

from guess_environment import GuessEnvironment
from mlagents_envs.base_env import ActionTuple, DecisionSteps, TerminalSteps
from mlagents_envs.testing import check_env

NAME = GuessEnvironment.BEHAVIOR


class Sound(GuessEnvironment):
    """An environment that keeps the contract; each broken one below breaks it in one way."""

    _was_reset = False

    def reset(self):
        self._was_reset = True
        super().reset()

    def step(self):
        if self._was_reset:
            super().step()
        else:
            self.reset()


class Broken(Sound):
    """Spoils each decision batch."""

    def spoil(self, decisions: DecisionSteps) -> None:
        raise NotImplementedError

    def get_steps(self, behavior_name):
        decisions, terminals = super().get_steps(behavior_name)
        self.spoil(decisions)
        return decisions, terminals


def spoiled(spoil: Callable[[DecisionSteps], None]) -> type[Broken]:
    return type("Spoiled", (Broken,), {"spoil": lambda self, decisions: spoil(decisions)})


def doubles(decisions: DecisionSteps) -> None:
    decisions.obs[0] = decisions.obs[0].astype(np.float64)


def one_row_less(decisions: DecisionSteps) -> None:
    decisions.reward = decisions.reward[:7]


def wrong_shape(decisions: DecisionSteps) -> None:
    decisions.obs[1] = decisions.obs[1][:, :1]


def one_observation_less(decisions: DecisionSteps) -> None:
    decisions.obs = decisions.obs[:1]


def not_a_number(decisions: DecisionSteps) -> None:
    decisions.obs[0] = np.full_like(decisions.obs[0], np.nan)


def agents_twice(decisions: DecisionSteps) -> None:
    decisions.agent_id = np.zeros_like(decisions.agent_id)


def no_mask(decisions: DecisionSteps) -> None:
    decisions.action_mask = None


def narrow_mask(decisions: DecisionSteps) -> None:
    decisions.action_mask = [decisions.action_mask[0][:, :1]]


def all_forbidden(decisions: DecisionSteps) -> None:
    decisions.action_mask = [np.ones_like(decisions.action_mask[0])]


def a_list(decisions: DecisionSteps) -> None:
    decisions.group_id = list(decisions.group_id)


class KeepsItsArrays(Sound):
    """Reuses the array of one observation."""

    def get_steps(self, behavior_name):
        decisions, terminals = super().get_steps(behavior_name)
        if not hasattr(self, "_kept"):
            self._kept = decisions.obs[0]
        self._kept[:] = decisions.obs[0]
        decisions.obs[0] = self._kept
        return decisions, terminals


class SharesItsArrays(Sound):
    """Hands out views of an array in which nothing changes."""

    _zeros = np.zeros(100, np.float32)

    def get_steps(self, behavior_name):
        decisions, terminals = super().get_steps(behavior_name)
        decisions.group_reward = self._zeros[: len(decisions)]
        return decisions, terminals


class TakesAnything(Sound):
    """Accepts actions of any shape."""

    def set_actions(self, behavior_name, action):
        pass


class TakesAnyAgent(Sound):
    """Accepts actions for agents that did not ask."""

    def set_action_for_agent(self, behavior_name, agent_id, action):
        pass


class KnowsAnyBehavior(Sound):
    """Reports steps of behaviors that do not exist."""

    def get_steps(self, behavior_name):
        return super().get_steps(NAME)


class ScribblesOnActions(Sound):
    """Changes the caller's arrays."""

    def set_actions(self, behavior_name, action):
        super().set_actions(behavior_name, action)
        action.continuous[:] = 0.0


class ReportsEndsAfterReset(Sound):
    """Says at a reset which agents it cut off."""

    def reset(self):
        super().reset()
        self._ended_at_reset = True

    def step(self):
        super().step()
        self._ended_at_reset = False

    def get_steps(self, behavior_name):
        decisions, terminals = super().get_steps(behavior_name)
        if self._ended_at_reset:
            n = len(decisions)
            terminals = TerminalSteps(
                [batch.copy() for batch in decisions.obs],
                np.zeros(n, np.float32),
                np.zeros(n, np.bool_),
                decisions.agent_id.copy(),
                np.zeros(n, np.int32),
                np.zeros(n, np.float32),
            )
        return decisions, terminals


class ReportsNobody(Sound):
    """Steps without anyone asking."""

    def get_steps(self, behavior_name):
        return DecisionSteps.empty(self.spec), TerminalSteps.empty(self.spec)


class ClosesOnce(Sound):
    """Fails when closed again."""

    def close(self):
        assert not self.closed
        super().close()


class IgnoresItsSeed(Sound):
    """Gives the same numbers for every seed."""

    def __init__(self, *, seed):
        super().__init__(seed=0)


class DrawsFromElsewhere(Sound):
    """Draws from a generator that the seed does not reach."""

    def __init__(self, *, seed):
        super().__init__(seed=seed)
        self._rng = np.random.default_rng()


class OtherInTwoPhases(Sound):
    """Sends a step that is none."""

    def step_receive(self):
        self.step()
        self.step()


def test_a_sound_environment_passes():
    check_env(Sound)


def test_a_sound_environment_passes_made_already_and_is_closed():
    env = Sound()
    check_env(env)
    assert env.closed


def test_an_environment_without_randomness_passes_when_said_so():
    check_env(IgnoresItsSeed, is_random=False)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (spoiled(doubles), "observation 'number' is of type float64; expected float32"),
        (spoiled(wrong_shape), r"'noise' has the shape \(8, 1\); expected \(8, 2\)"),
        (spoiled(one_observation_less), "1 observations, but the spec has 2"),
        (spoiled(not_a_number), "observation 'number' contains NaN or infinity"),
        (spoiled(one_row_less), r"reward has the shape \(7,\); expected \(8,\)"),
        (spoiled(agents_twice), "agents are reported twice"),
        (spoiled(no_mask), "action_mask must be a list of 1 arrays, one per branch"),
        (spoiled(narrow_mask), r"branch 0 has the shape \(8, 1\); expected \(8, 3\)"),
        (spoiled(all_forbidden), "allows an agent no action"),
        (spoiled(a_list), "group_id is a list; expected a NumPy array"),
        (KeepsItsArrays, "changed with the next step"),
        (SharesItsArrays, "shares memory with"),
        (TakesAnything, "set_actions.* of an unknown behavior was accepted"),
        (TakesAnyAgent, "did not request a decision was accepted; it must raise IndexError"),
        (KnowsAnyBehavior, "get_steps.* of an unknown behavior was accepted"),
        (ScribblesOnActions, "changed the caller's arrays"),
        (ReportsEndsAfterReset, "after reset.* there are terminal steps"),
        (ReportsNobody, "no agent requests a decision and no episode ended"),
        (ClosesOnce, "close.* failed when called again"),
        (IgnoresItsSeed, "seeds 0 and 1 give the same 100 steps"),
        (DrawsFromElsewhere, "differs between two environments with the same seed"),
        (OtherInTwoPhases, "differs between two environments with the same seed"),
        (lambda seed: object(), "the function returned a object, not a BaseEnv"),
    ],
)
def test_a_broken_environment_fails_with_the_reason(make, text: str):
    with pytest.raises(AssertionError, match=text):
        check_env(make)


def test_the_environment_is_closed_after_a_failure():
    env = TakesAnything()
    with pytest.raises(AssertionError):
        check_env(env)
    assert env.closed


def test_actions_handed_over_are_random_and_of_the_right_shape():
    class Listens(Sound):
        heard: list[ActionTuple] = []  # noqa: RUF012

        def set_actions(self, behavior_name, action):
            super().set_actions(behavior_name, action)
            self.heard.append(action)

    check_env(Listens(), steps=20)
    continuous = np.concatenate([action.continuous for action in Listens.heard])
    assert continuous.shape[1] == 1
    assert continuous.std() > 0.3
