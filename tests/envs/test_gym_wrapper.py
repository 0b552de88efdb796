"""One agent as a `gymnasium.Env`."""

import itertools
import logging

import numpy as np
import pytest

from mlagents_envs.base_env import (
    ActionSpec,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)
from mlagents_envs.exception import UnityActionException, UnityException
from mlagents_envs.registry import default_registry
from scripted_environment import BEHAVIOR, CONTINUOUS, Asks, Ends, ScriptedEnvironment

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.utils.env_checker import check_env  # noqa: E402

from mlagents_envs.envs.unity_gym_env import UnityGymException, UnityToGymWrapper  # noqa: E402

EPISODE = [[Asks(4, 0.1)], [Asks(4, 0.2, reward=0.5)], [Ends(4, 0.3, reward=1.0)]]
IMAGE = ObservationSpec((3, 2, 2), (DimensionProperty.NONE,) * 3, ObservationType.DEFAULT, "image")
SEEING = BehaviorSpec([ObservationSpec.vector(1, "number"), IMAGE], ActionSpec(0, (2, 3)))


def wrap(*messages, spec=CONTINUOUS, **options):
    return UnityToGymWrapper(ScriptedEnvironment(messages, spec=spec), **options)


def test_an_episode_from_reset_to_end():
    scripted = ScriptedEnvironment(EPISODE)
    env = UnityToGymWrapper(scripted)
    assert (env.name, env.group_spec, env.game_over) == ("Scripted?team=0", CONTINUOUS, True)

    observation, info = env.reset()
    np.testing.assert_allclose(observation, [0.1])
    assert info["step"].agent_id.tolist() == [4]

    observation, reward, terminated, truncated, info = env.step(np.array([0.25], np.float32))
    np.testing.assert_allclose(observation, [0.2])
    assert (reward, terminated, truncated, env.game_over) == (0.5, False, False, False)
    assert scripted.told == [{4: [0.25]}]

    observation, reward, terminated, truncated, info = env.step(np.array([-1.0], np.float32))
    np.testing.assert_allclose(observation, [0.3])
    assert (reward, terminated, truncated, env.game_over) == (1.0, True, False, True)
    assert info["step"][4].reward == 1.0
    with pytest.raises(UnityGymException, match="reset"):
        env.step(np.zeros(1, np.float32))

    observation, _ = env.reset()
    np.testing.assert_allclose(observation, [0.1])
    env.close()
    env.close()


def test_a_clock_truncates():
    env = wrap([Asks(0, 0.0)], [Ends(0, 1.0, interrupted=True)])
    env.reset()
    _, _, terminated, truncated, _ = env.step(np.zeros(1, np.float32))
    assert (terminated, truncated) == (False, True)


def test_an_end_goes_before_the_next_beginning_of_the_same_agent():
    env = wrap([Asks(0, 0.0)], [Ends(0, 0.5, reward=2.0), Asks(0, 0.1, reward=9.0)])
    env.reset()
    observation, reward, terminated, _, _ = env.step(np.zeros(1, np.float32))
    np.testing.assert_allclose(observation, [0.5])
    assert (reward, terminated) == (2.0, True)


def test_messages_without_the_agent_are_passed_over():
    env = wrap([], [Asks(0, 0.0)], [], [Asks(0, 0.5)])
    observation, _ = env.reset()
    np.testing.assert_allclose(observation, [0.0])
    observation, *_ = env.step(np.zeros(1, np.float32))
    np.testing.assert_allclose(observation, [0.5])


def test_several_agents_are_an_error_unless_the_others_are_to_be_ignored():
    script = [Asks(3, 0.1), Asks(5, 0.2)], [Ends(5, 0.3)], [Asks(5, 0.0), Ends(3, 0.4, reward=1)]
    with pytest.raises(UnityGymException, match="2"):
        wrap(*script)
    scripted = ScriptedEnvironment(script)
    env = UnityToGymWrapper(scripted, ignore_other_agents=True)
    observation, _ = env.reset()
    np.testing.assert_allclose(observation, [0.1])
    observation, reward, terminated, _, _ = env.step(np.ones(1, np.float32))
    np.testing.assert_allclose(observation, [0.4])
    assert (reward, terminated) == (1.0, True)
    assert scripted.told == [{3: [1.0], 5: [0.0]}, {}]


def test_an_agent_that_vanishes_without_a_word_is_an_error():
    env = wrap([Asks(0, 0.0)], [Asks(1, 0.0)])
    env.reset()
    with pytest.raises(UnityGymException, match="agent 0 disappeared"):
        env.step(np.zeros(1, np.float32))


@pytest.mark.parametrize("script", [[[]], [[Ends(1, 0.0)]]])
def test_nobody_is_not_waited_for_forever(script):
    forever = itertools.chain(script, itertools.repeat([]))
    with pytest.raises(UnityGymException, match="no agent requested an action in 10000 steps"):
        wrap(*itertools.islice(forever, 10_001))


def test_an_agent_that_never_comes_back_beside_others_is_not_waited_for_forever():
    others = [[Asks(5, 0.2)]] * 10_000
    env = wrap([Asks(3, 0.1), Asks(5, 0.2)], *others, ignore_other_agents=True)
    env.reset()
    with pytest.raises(UnityGymException, match=r"agent 3 neither .* in 10000 steps"):
        env.step(np.zeros(1, np.float32))


class TwoBehaviors(ScriptedEnvironment):
    @property
    def behavior_specs(self):
        return {"Other?team=0": CONTINUOUS, BEHAVIOR: CONTINUOUS}


def test_one_of_several_behaviors_is_chosen_by_its_name():
    env = UnityToGymWrapper(TwoBehaviors(EPISODE), behavior_name=BEHAVIOR)
    assert env.name == BEHAVIOR
    observation, _ = env.reset()
    np.testing.assert_allclose(observation, [0.1])


@pytest.mark.parametrize(("wanted", "text"), [(None, "one behavior"), ("Nobody", "'Nobody'")])
def test_a_choice_that_cannot_be_made_names_the_behaviors(wanted, text):
    env = TwoBehaviors(EPISODE)
    with pytest.raises(UnityGymException, match=text) as refusal:
        UnityToGymWrapper(env, behavior_name=wanted)
    assert BEHAVIOR in str(refusal.value)
    assert not env.closed
    env.step()


def test_what_the_wrapper_made_is_closed_where_it_is_refused():
    made = TwoBehaviors(EPISODE)
    with pytest.raises(UnityGymException, match="one behavior"):
        UnityToGymWrapper(lambda *, seed: made)
    assert made.closed


def test_the_error_is_one_of_both_packages():
    assert issubclass(UnityGymException, UnityException)
    assert issubclass(UnityGymException, gymnasium.error.Error)


def test_observations_left_out_are_named(caplog):
    with caplog.at_level(logging.WARNING):
        wrap([Asks(0, 0.5)], spec=SEEING)
    assert "['number']" in caplog.text
    caplog.clear()
    wrap([Asks(0, 0.5)], spec=CONTINUOUS)
    wrap([Asks(0, 0.5)], spec=SEEING, allow_multiple_obs=True)
    assert not caplog.text


def test_images_and_vectors_come_as_a_tuple():
    env = wrap([Asks(0, 0.4)], spec=SEEING, allow_multiple_obs=True, uint8_visual=True)
    observation, _ = env.reset()
    assert env.observation_space.contains(observation)
    image, vector = observation
    np.testing.assert_array_equal(image, np.full((3, 2, 2), 102, np.uint8))
    np.testing.assert_allclose(vector, [0.4])
    np.testing.assert_allclose(env.visual_obs, np.full((3, 2, 2), 0.4))


@pytest.mark.parametrize("flatten_branched", [False, True])
def test_masks_fit_what_the_space_samples_from(flatten_branched):
    forbidden = [[True, False], [False, True, True]]
    env = wrap([Asks(0, 0.0, forbidden=forbidden)], spec=SEEING, flatten_branched=flatten_branched)
    _, info = env.reset()
    env.action_space.seed(0)
    # All that is left is choice 1 of the first branch and 0 of the second.
    expected = 3 if flatten_branched else [1, 0]
    for _ in range(5):
        np.testing.assert_array_equal(env.action_space.sample(info["action_mask"]), expected)


def test_a_flat_action_reaches_all_branches():
    scripted = ScriptedEnvironment([[Asks(0, 0.0)], [Asks(0, 0.0)]], spec=SEEING)
    env = UnityToGymWrapper(scripted, flatten_branched=True)
    env.reset()
    env.step(5)
    assert scripted.told == [{0: [1, 2]}]


def test_the_action_space_can_be_seeded():
    samples = [wrap([Asks(0, 0.0)], action_space_seed=3).action_space.sample() for _ in range(2)]
    np.testing.assert_array_equal(*samples)


HYBRID = BehaviorSpec([ObservationSpec.vector(1, "number")], ActionSpec(2, (3,)))


@pytest.mark.parametrize(
    ("spec", "action"),
    [
        (CONTINUOUS, np.zeros(2, np.float32)),
        (CONTINUOUS, None),
        (CONTINUOUS, {"continuous": np.zeros(1)}),
        (SEEING, [0]),
        (SEEING, "left"),
        (HYBRID, {}),
        (HYBRID, {"discrete": 1}),
        (HYBRID, {"continuous": np.zeros(2), "discrete": 1}),
        (HYBRID, np.zeros(4)),
    ],
)
def test_an_action_of_another_space_is_refused(spec, action):
    env = wrap([Asks(0, 0.1)], spec=spec)
    env.reset()
    with pytest.raises(UnityActionException) as refusal:
        env.step(action)
    assert (
        str(refusal.value) == f"expected an action of the space {env.action_space}, got {action!r}"
    )


def test_a_picture_is_what_the_environment_draws_or_else_the_image():
    env = wrap([Asks(0, 0.4)], spec=SEEING, render_mode="rgb_array")
    env.reset()
    np.testing.assert_array_equal(env.render(), np.full((2, 2, 3), 102, np.uint8))
    assert wrap([Asks(0, 0.4)], spec=SEEING).render() is None
    with pytest.raises(UnityGymException, match="nothing to render"):
        wrap([Asks(0, 0.4)], render_mode="rgb_array").render()
    with pytest.raises(UnityGymException, match="'human'"):
        wrap([Asks(0, 0.4)], render_mode="human")
    world = UnityToGymWrapper(default_registry["Basic"].make(), render_mode="rgb_array")
    assert world.render().shape == (480, 640, 3)


def test_a_seed_makes_the_environment_anew_where_a_function_was_given():
    made = []

    def make(seed):
        made.append((seed, default_registry["3DBall"].make(seed=seed)))
        return made[-1][1]

    env = UnityToGymWrapper(make, ignore_other_agents=True)
    first, _ = env.reset(seed=5)
    second, _ = env.reset()
    again, _ = env.reset(seed=5)
    assert [seed for seed, _ in made][1:] == [5, 5]
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, second)


def test_a_seed_that_does_nothing_is_reported_once(caplog):
    env = wrap(*EPISODE)
    with caplog.at_level(logging.WARNING):
        env.reset(seed=1)
        env.reset(seed=2)
    assert len(caplog.records) == 1
    assert "seed=1" in caplog.text


@pytest.mark.filterwarnings("ignore:.*A Box observation space m:UserWarning")
@pytest.mark.parametrize(
    "name", sorted(set(default_registry) - {"SoccerTwos", "StrikersVsGoalie", "Tennis", "WallJump"})
)
def test_gymnasium_finds_nothing_to_complain_about(name):
    env = gymnasium.make(f"mlagents_envs.envs:mlagents/{name}-v0", render_mode="rgb_array")
    check_env(env.unwrapped)
    env.close()


@pytest.mark.parametrize("interrupted", [False, True])
def test_the_api_of_gym(interrupted):
    episode = [
        [Asks(0, 0.5)],
        [Asks(0, 0.25, reward=2.0)],
        [Ends(0, 1.0, reward=3.0, interrupted=interrupted)],
    ]
    env = wrap(*episode, spec=SEEING, allow_multiple_obs=True, legacy_api=True)
    observation = env.reset()
    assert isinstance(observation, list)
    assert [part.shape for part in observation] == [(3, 2, 2), (1,)]
    observation, reward, done, info = env.step([0, 0])
    assert isinstance(observation, list)
    assert (reward, done) == (2.0, False)
    assert info["step"].agent_id.tolist() == [0]
    assert env.render(mode="rgb_array").shape == (2, 2, 3)
    observation, reward, done, _ = env.step([0, 0])
    assert (observation[1].tolist(), reward, done) == ([1.0], 3.0, True)
    with pytest.raises(UnityGymException, match="expected 'rgb_array'"):
        env.render(mode="human")


def test_a_program_for_the_api_of_gym_may_seed_before_it_resets():
    made = []

    def make(seed):
        made.append(seed)
        return ScriptedEnvironment(EPISODE)

    env = UnityToGymWrapper(make, legacy_api=True)
    env.seed(7)
    np.testing.assert_allclose(env.reset(), [0.1])
    assert made[1:] == [7]
