"""Gymnasium environments as a `BaseEnv`."""

import itertools

import numpy as np
import pytest

from guess_environment import GuessEnvironment
from mlagents_envs.base_env import ActionSpec, ActionTuple
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.testing import check_env

gymnasium = pytest.importorskip("gymnasium")

from gymnasium import spaces  # noqa: E402
from gymnasium.vector import AutoresetMode, SyncVectorEnv  # noqa: E402

from mlagents_envs.envs.foreign_spaces import ForeignActions, ForeignObservations  # noqa: E402
from mlagents_envs.envs.from_gymnasium import from_gymnasium, make_from_gymnasium  # noqa: E402
from mlagents_envs.envs.spaces import UnityGymException  # noqa: E402
from mlagents_envs.envs.unity_vector_env import UnityVectorEnv  # noqa: E402

ALL = np.arange(2)


class Countdown(gymnasium.Env):
    """Observes the steps left; ends at 0, by a clock if it began with an odd number."""

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, begins=(2,)):
        self._begins = itertools.cycle(begins)
        self.closed = 0

    def _observation(self):
        return np.array([self._left], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left = self._first = next(self._begins)
        return self._observation(), {}

    def step(self, action):
        self._left -= 1
        is_over = self._left == 0
        is_odd = self._first % 2 == 1
        return self._observation(), 1.0 + action, is_over and not is_odd, is_over and is_odd, {}

    def close(self):
        self.closed += 1


def reports(env):
    """Return (agent, observation, reward) of who asks, and the same with `interrupted` of ends."""
    (name,) = env.behavior_specs
    decisions, terminals = env.get_steps(name)
    asking = [
        (agent, float(decisions[agent].obs[0][0]), decisions[agent].reward) for agent in decisions
    ]
    ended = [
        (agent, float(step.obs[0][0]), step.reward, step.interrupted)
        for agent, step in terminals.items()
    ]
    return asking, ended


def test_the_agent_of_a_single_environment_ends_and_begins_in_one_step():
    env = from_gymnasium(Countdown([2, 1]))
    assert list(env.behavior_specs) == ["gymnasium"]
    env.reset()
    assert reports(env) == ([(0, 2.0, 0.0)], [])
    env.set_actions("gymnasium", ActionTuple(discrete=np.array([[1]])))
    env.step()
    assert reports(env) == ([(0, 1.0, 2.0)], [])
    env.step()  # without an action it gets zeros
    assert reports(env) == ([(0, 1.0, 0.0)], [(0, 0.0, 1.0, False)])
    env.step()
    assert reports(env) == ([(0, 2.0, 0.0)], [(0, 0.0, 1.0, True)])


MODES = {
    # Two agents, counting from 1 and from 2, then again from there. Reports of three steps.
    AutoresetMode.SAME_STEP: [
        ([(0, 1.0, 0.0), (1, 1.0, 1.0)], [(0, 0.0, 1.0, True)]),
        ([(0, 1.0, 0.0), (1, 2.0, 0.0)], [(0, 0.0, 1.0, True), (1, 0.0, 1.0, False)]),
        ([(0, 1.0, 0.0), (1, 1.0, 1.0)], [(0, 0.0, 1.0, True)]),
    ],
    AutoresetMode.NEXT_STEP: [
        ([(1, 1.0, 1.0)], [(0, 0.0, 1.0, True)]),
        ([(0, 1.0, 0.0)], [(1, 0.0, 1.0, False)]),
        ([(1, 2.0, 0.0)], [(0, 0.0, 1.0, True)]),
    ],
}
MODES[AutoresetMode.DISABLED] = MODES[AutoresetMode.SAME_STEP]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_every_autoreset_mode_is_understood(mode):
    vector = SyncVectorEnv([lambda: Countdown([1]), lambda: Countdown([2])], autoreset_mode=mode)
    env = from_gymnasium(vector, behavior_name="Count")
    env.reset()
    for expected in MODES[mode]:
        env.step()
        assert reports(env) == expected
    env.reset()
    assert reports(env) == ([(0, 1.0, 0.0), (1, 2.0, 0.0)], [])


@pytest.mark.parametrize("num_areas", [1, 3])
@pytest.mark.parametrize(
    ("env_id", "is_random"),
    [
        ("CartPole-v1", True),
        ("Pendulum-v1", True),
        ("MountainCarContinuous-v0", True),
        ("FrozenLake-v1", True),
        ("Blackjack-v1", True),
        ("mlagents_envs.envs:mlagents/3DBall-v0", True),
        ("mlagents_envs.envs:mlagents/Basic-v0", False),
    ],
)
def test_the_contract_is_kept(env_id, is_random, num_areas):
    check_env(
        lambda seed: make_from_gymnasium(env_id, seed=seed, num_areas=num_areas),
        is_random=is_random,
    )


def test_a_behavior_is_called_after_the_id():
    assert list(make_from_gymnasium("CartPole-v1").behavior_specs) == ["CartPole-v1"]
    env = make_from_gymnasium("mlagents_envs.envs:mlagents/Basic-v0")
    assert list(env.behavior_specs) == ["Basic-v0"]
    assert list(from_gymnasium(Countdown(), behavior_name="Mine").behavior_specs) == ["Mine"]


def test_parameters_are_arguments():
    env = make_from_gymnasium("Pendulum-v1", parameters={"g": 3.5})
    assert env._envs.envs[0].unwrapped.g == 3.5
    with pytest.raises(UnityEnvironmentException, match="gravity"):
        make_from_gymnasium("Pendulum-v1", parameters={"gravity": 3.5})


@pytest.mark.parametrize("env_id", ["CartPoll-v1", "no such id", "no_such_module:Env-v0"])
def test_an_environment_that_does_not_exist_is_named(env_id):
    with pytest.raises(UnityEnvironmentException, match=env_id.partition(":")[0]):
        make_from_gymnasium(env_id)


def test_closing_reaches_the_environment_and_ends_it():
    inner = Countdown()
    env = from_gymnasium(inner)
    env.reset()
    env.close()
    env.close()
    assert inner.closed == 1
    with pytest.raises(UnityEnvironmentException, match="closed"):
        env.step()


def encode(space, *values):
    foreign = ForeignObservations(space)
    batch = foreign.encode_each(values)
    for spec, array in zip(foreign.specs, batch, strict=True):
        assert array.shape == (len(values), *spec.shape)
        assert array.dtype == spec.dtype
    return foreign.specs, batch


def test_choices_are_one_hot():
    _, (batch,) = encode(spaces.Discrete(3, start=5), 5, 7)
    np.testing.assert_array_equal(batch, [[1, 0, 0], [0, 0, 1]])
    _, (batch,) = encode(spaces.MultiDiscrete([2, 3], start=[1, 0]), np.array([2, 1]))
    np.testing.assert_array_equal(batch, [[0, 1, 0, 1, 0]])
    _, (batch,) = encode(spaces.MultiBinary(3), np.array([1, 0, 1], np.int8))
    np.testing.assert_array_equal(batch, [[1, 0, 1]])


def test_images_get_their_channels_first():
    image = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
    space = spaces.Box(0, 255, (4, 5, 3), np.uint8)
    ((spec,), (batch,)) = encode(space, image)
    assert spec.shape == (3, 4, 5)
    assert spec.dtype == batch.dtype == np.uint8, "a quarter of the room"
    assert batch[0, 2, 1, 4] == image[1, 4, 2]
    stacked = np.ones((2, 6, 7), np.float32)
    ((spec,), (batch,)) = encode(spaces.Box(0, 1, (2, 6, 7), np.float32), stacked)
    assert spec.shape == (2, 6, 7)
    np.testing.assert_array_equal(batch[0], stacked)


def test_boxes_of_other_ranks_are_flattened():
    _, (batch,) = encode(spaces.Box(0, 9, (2, 2)), np.array([[1, 2], [3, 4]], np.float64))
    np.testing.assert_array_equal(batch, [[1, 2, 3, 4]])
    _, (batch,) = encode(spaces.Box(0, 9, ()), np.float32(4.0))
    np.testing.assert_array_equal(batch, [[4]])


def test_nested_observations_are_named_by_their_keys():
    space = spaces.Dict({"a": spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (1,))])})
    specs, batch = encode(space, {"a": (1, np.array([0.5]))})
    assert [spec.name for spec in specs] == ["a.0", "a.1"]
    np.testing.assert_array_equal(batch[0], [[0, 1]])
    np.testing.assert_array_equal(batch[1], [[0.5]])


def decode(space, continuous, discrete):
    foreign = ForeignActions(space)
    foreign.spec.check(ActionTuple(continuous, discrete), len(continuous), behavior="any")
    return foreign.decode(ActionTuple(continuous, discrete))


def no(n):
    return np.zeros((n, 0))


def test_continuous_actions_are_stretched_to_the_limits():
    space = spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 10.0]))
    np.testing.assert_allclose(decode(space, ALL[:, None] * [[1, -1]], no(2)), [[0, 5], [2, 0]])
    beyond = decode(space, np.array([[9.0, -9.0]]), no(1))
    np.testing.assert_allclose(beyond, [[2, 0]])
    unlimited = spaces.Box(-np.inf, np.inf, (1,))
    np.testing.assert_allclose(decode(unlimited, np.array([[7.0]]), no(1)), [[7]])
    steps = decode(spaces.Box(0, 4, (1, 1), np.int64), np.array([[0.4]]), no(1))
    assert (steps.tolist(), steps.dtype) == ([[[3]]], np.int64)  # 0.4 is 2.8 from 0 to 4


def test_branches_begin_where_the_space_does():
    assert decode(spaces.Discrete(3, start=5), no(2), ALL[:, None]).tolist() == [5, 6]
    space = spaces.MultiDiscrete([[2, 3]], start=[[0, 4]])
    assert decode(space, no(1), np.array([[1, 2]])).tolist() == [[[1, 6]]]
    assert decode(spaces.MultiBinary(2), no(1), np.array([[1, 0]])).tolist() == [[1, 0]]


def test_nested_actions_are_put_together():
    space = spaces.Dict({"go": spaces.Box(-1, 1, (2,)), "do": spaces.Tuple([spaces.Discrete(3)])})
    action = decode(space, np.array([[0.5, -0.5]]), np.array([[2]]))
    np.testing.assert_allclose(action["go"], [[0.5, -0.5]])
    assert [part.tolist() for part in action["do"]] == [[2]]
    (one,) = ForeignActions(space).decode_each(
        ActionTuple(np.array([[0.5, -0.5]]), np.array([[2]]))
    )
    assert space.contains({"go": one["go"], "do": one["do"]})


def test_masks_come_in_either_form_and_leave_a_choice():
    masks = ForeignActions(spaces.MultiDiscrete([2, 2])).masks(
        [np.array([1, 0, 1, 1], np.int8), (np.array([0, 1]), np.array([0, 0])), None]
    )
    np.testing.assert_array_equal(masks[0], [[0, 1], [1, 0], [0, 0]])
    np.testing.assert_array_equal(masks[1], [[0, 0], [0, 0], [0, 0]])
    assert ForeignActions(spaces.Box(-1, 1, (2,))).masks([None]) is None


@pytest.mark.parametrize("space", [spaces.Text(3), spaces.Sequence(spaces.Discrete(2))])
def test_spaces_without_a_counterpart_are_refused(space):
    with pytest.raises(UnityGymException, match="is not supported"):
        ForeignObservations(spaces.Dict({"a": space}))
    with pytest.raises(UnityGymException, match="is not supported"):
        ForeignActions(space)


@pytest.mark.parametrize(
    "spec",
    [
        ActionSpec.create_continuous(2),
        ActionSpec.create_discrete((3,)),
        ActionSpec.create_discrete((3, 3)),
        ActionSpec.create_hybrid(1, (3,)),
    ],
    ids=str,
)
def test_there_and_back_again_reports_the_same(spec):
    there = UnityVectorEnv(GuessEnvironment(spec, seed=5))
    back = from_gymnasium(there, behavior_name=GuessEnvironment.BEHAVIOR)
    direct = GuessEnvironment(spec, seed=5)
    direct.reset()  # as the vector environment does to count agents
    rng = np.random.default_rng(0)
    back.reset()
    direct.reset()
    assert back.behavior_specs[direct.BEHAVIOR].action_spec == spec
    for step in range(10):
        for one, other in zip(
            back.get_steps(direct.BEHAVIOR), direct.get_steps(direct.BEHAVIOR), strict=True
        ):
            one.obs.reverse()  # Gymnasium sorts names: noise goes before number
            is_same = one == other
            assert is_same, f"step {step}"
        action = spec.random_action(8, rng)
        for env in (back, direct):
            env.set_actions(direct.BEHAVIOR, action)
            env.step()
