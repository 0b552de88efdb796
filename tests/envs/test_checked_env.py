"""What an environment in this process reports: taken as it is, converted, or refused by name."""

import copy
from typing import Any

import numpy as np
import pytest

from duck_environment import BEHAVIOR, LISTS, N_AGENTS, DuckEnvironment, QuittingDuck
from guess_environment import GuessEnvironment
from mlagents_envs.base_env import (
    ActionSpec,
    BaseEnv,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
    TerminalSteps,
)
from mlagents_envs.checked_env import checked, is_environment, missing_in, unwrapped
from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.exception import (
    UnityEnvironmentException,
    UnityNonFiniteException,
    UnityObservationException,
)


def reported(**changes: Any) -> tuple[DecisionSteps, TerminalSteps]:
    """Return what a `DuckEnvironment` reports as its agents' episodes end."""
    env = checked(DuckEnvironment(changes))
    env.reset()
    for _ in range(4):
        env.step()
    return env.get_steps(BEHAVIOR)


def test_what_fits_is_handed_on_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    env = GuessEnvironment()
    env.reset()

    checked_env = checked(env)

    for ours, theirs in zip(
        checked_env.get_steps(env.BEHAVIOR), env.get_steps(env.BEHAVIOR), strict=True
    ):
        assert ours is theirs
    assert capsys.readouterr().out == ""


def test_what_was_checked_already_is_not_checked_again() -> None:
    env = checked(DuckEnvironment())
    assert checked(env) is env
    assert UnityEnvironment.reports_are_checked, "messages are checked where they are decoded"


@pytest.mark.parametrize("kind", [np.float64, np.float16, np.int64, np.uint8, np.bool_])
def test_numbers_of_another_type_are_converted_with_one_warning(
    kind: type, capsys: pytest.CaptureFixture[str]
) -> None:
    env = checked(DuckEnvironment({"obs": lambda obs: [obs[0].astype(kind), obs[1]]}))
    env.reset()
    for _ in range(10):
        for steps in env.get_steps(BEHAVIOR):
            assert [batch.dtype for batch in steps.obs] == [np.float32, np.float32]
        env.step()

    log = capsys.readouterr().out
    assert log.count("[WARNING]") == 1
    assert f"{BEHAVIOR!r}: observation 'state' is {np.dtype(kind)}, not float32" in log


def test_a_converted_report_holds_the_same_numbers() -> None:
    wide = reported(reward=lambda reward: reward.astype(np.float64) / 4)
    for steps in wide:
        np.testing.assert_array_equal(steps.reward, np.full(N_AGENTS, 0.25, np.float32))


def test_plain_lists_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    decisions, terminals = reported(**LISTS)

    sound = reported()
    assert decisions == sound[0] and terminals == sound[1]
    for steps in (decisions, terminals):
        assert steps.agent_id.dtype == steps.group_id.dtype == np.int32
        assert steps.reward.dtype == steps.group_reward.dtype == np.float32
    assert terminals.interrupted.dtype == np.bool_
    log = capsys.readouterr().out
    assert "reward is a list, not float32" in log
    assert log.count("reward is a list, not float32") == 2, "reward and group_reward, once each"


def test_steps_without_groups_are_taken() -> None:
    decisions, _ = reported(group_id=None, group_reward=None)
    assert decisions.group_id.tolist() == [0, 0, 0]
    assert decisions.group_reward.tolist() == [0.0, 0.0, 0.0]


SHORT = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("reward", SHORT, r"reward: expected an array of float32 of shape \(3,\).* shape \(2,\)"),
        ("reward", None, r"reward: expected an array of float32 of shape \(3,\), got None"),
        ("reward", ["a", "b", "c"], r"reward: expected .* got list: \['a', 'b'"),
        ("reward", 1.0, r"reward: expected .* shape \(3,\).* got the shape \(\)"),
        ("group_reward", SHORT, r"group_reward: expected .* \(3,\).* got the shape \(2,\)"),
        (
            "group_id",
            [0, 0.5, 0],
            r"group_id: expected .* int32 .* float64 values that int32 cannot represent",
        ),
        ("agent_id", [1, 2, 1], r"agent 1 is reported 2 times; expected each agent once"),
        (
            "agent_id",
            [0, 1, 2**40],
            r"agent_id: expected .* int32 .* int64 values that int32 cannot represent",
        ),
        ("agent_id", None, r"agent_id: expected .* of shape \(n_agents,\), got None"),
        ("obs", None, r"expected obs to be a list of 2 arrays, .*'state', 'other'\], got NoneType"),
        ("obs", [np.ones((3, 2))], r"a list of 2 arrays, .*'state', 'other'\], got 1"),
        ("obs", [np.ones((3, 2)), np.ones((3, 2))], r"'other': expected .* \(3, 1\).* \(3, 2\)"),
        ("obs", [[[1, 2], [1], [1, 2]], np.ones((3, 1))], r"observation 'state': expected an arr"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(field: str, value: Any, says: str) -> None:
    with pytest.raises(UnityObservationException, match=says) as error:
        reported(**{field: value})
    assert BEHAVIOR in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("field", ["reward", "group_reward"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_not_a_number_is_refused(field: str, value: float) -> None:
    rewards = np.array([0.0, value, 0.0], np.float32)
    with pytest.raises(UnityNonFiniteException, match=r"'Duck\?team=0': agent 1 has the reward"):
        reported(**{field: rewards})


def test_an_observation_that_is_not_a_number_is_refused() -> None:
    state = np.zeros((3, 2), np.float32)
    state[2, 1] = np.nan
    with pytest.raises(
        UnityNonFiniteException, match=r"'state': agent 2 observes nan at index \[1\]"
    ):
        reported(obs=[state, np.zeros((3, 1), np.float32)])


def test_no_steps_at_all_are_refused() -> None:
    env = DuckEnvironment()
    env.get_steps = lambda name: None  # type: ignore[method-assign]
    with pytest.raises(UnityObservationException, match="returned None; expected a pair"):
        checked(env).get_steps(BEHAVIOR)


class Imager(DuckEnvironment):
    """Observes an image and has a discrete action."""

    def __init__(self, spec: np.dtype, image: np.ndarray, mask: Any = None) -> None:
        super().__init__({"obs": lambda obs: [image[: len(obs[0])]], "action_mask": mask})
        observation = ObservationSpec.image((3, 4, 5), "camera", spec)
        self.spec = BehaviorSpec([observation], ActionSpec.create_discrete((2,)))  # type: ignore[misc]


def test_an_image_of_bytes_is_not_taken_for_one_of_floats() -> None:
    image = np.zeros((N_AGENTS, 3, 4, 5), np.uint8)
    (batch,) = checked(Imager(np.dtype(np.uint8), image)).get_steps(BEHAVIOR)[0].obs
    assert batch.dtype == np.uint8
    with pytest.raises(
        UnityObservationException, match=r"'camera': .* dtype=np\.uint8 .*, or divide"
    ):
        checked(Imager(np.dtype(np.float32), image)).get_steps(BEHAVIOR)
    with pytest.raises(
        UnityObservationException, match=r"'camera': .* float32 values that uint8 cannot represent"
    ):
        checked(Imager(np.dtype(np.uint8), image.astype(np.float32))).get_steps(BEHAVIOR)


def test_masks_are_taken_as_lists_and_refused_by_name() -> None:
    image = np.zeros((N_AGENTS, 3, 4, 5), np.uint8)
    masks = [[[0, 1], [0, 0], [0, 0]]]
    decisions, _ = checked(Imager(np.dtype(np.uint8), image, masks)).get_steps(BEHAVIOR)
    assert decisions.action_mask is not None
    assert decisions.action_mask[0].tolist() == [[False, True], [False, False], [False, False]]
    for wrong, says in (
        ([], "one per discrete branch"),
        ([[[0, 1]]], r"action_mask of branch 0: expected an array of bool of shape \(3, 2\)"),
    ):
        with pytest.raises(UnityObservationException, match=says):
            checked(Imager(np.dtype(np.uint8), image, wrong)).get_steps(BEHAVIOR)


def test_an_observation_of_size_0_is_taken() -> None:
    env = DuckEnvironment({"obs": lambda obs: [obs[0], np.zeros((len(obs[0]), 0), np.float32)]})
    env.spec = BehaviorSpec(  # type: ignore[misc]
        [ObservationSpec.vector(2, "state"), ObservationSpec.vector(0, "nothing")],
        env.spec.action_spec,
    )
    decisions, _ = checked(env).get_steps(BEHAVIOR)
    assert decisions.obs[1].shape == (N_AGENTS, 0)


def test_an_end_of_the_program_becomes_an_error() -> None:
    env = checked(QuittingDuck())
    with pytest.raises(
        UnityEnvironmentException, match=r"QuittingDuck\.step\(\).*no license found"
    ):
        for _ in range(400):
            env.step_send()
            env.step_receive()


def test_reports_of_one_step_are_looked_at_once() -> None:
    env = checked(DuckEnvironment(LISTS))
    env.reset()
    first = env.get_steps(BEHAVIOR)
    assert env.get_steps(BEHAVIOR) is first
    env.step()
    assert env.get_steps(BEHAVIOR) is not first


def test_what_an_environment_offers_besides_stays_there() -> None:
    duck = DuckEnvironment()
    env = checked(duck)
    assert unwrapped(env) is duck and unwrapped(duck) is duck
    assert isinstance(env, BaseEnv)
    assert env.is_closed is False  # type: ignore[attr-defined]
    assert not hasattr(env, "render")
    assert env.fileno() is None
    copy.copy(env)
    env.close()
    assert duck.is_closed


def test_what_is_missing_is_named() -> None:
    class Half:
        def reset(self) -> None: ...

    assert is_environment(DuckEnvironment()) and is_environment(GuessEnvironment())
    assert not is_environment(DuckEnvironment), "a class makes environments"
    assert missing_in(Half()) == [
        "behavior_specs",
        "step",
        "get_steps",
        "set_actions",
        "set_action_for_agent",
        "close",
    ]
