import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv
from pettingzoo.utils.conversions import parallel_to_aec

from mlagents_envs.base_env import ActionSpec, ActionTuple, ObservationSpec
from mlagents_envs.envs.from_pettingzoo import from_pettingzoo
from mlagents_envs.envs.spaces import UnityGymException
from mlagents_envs.envs.unity_parallel_env import UnityParallelEnv
from mlagents_envs.exception import UnityActionException, UnityEnvironmentException
from mlagents_envs.registry import default_registry
from mlagents_envs.testing import check_env
from wire_samples import assert_steps_equal

PREY = spaces.Dict(
    {
        "observation": spaces.Box(-1.0, 1.0, (2,), np.float32),
        "action_mask": spaces.Box(0, 1, (3,), np.int8),
    }
)


class Hunt(ParallelEnv):
    """Two hunters and a prey draw random numbers for `length` steps; the prey ends halfway.

    The prey may not do what the number of the step modulo 3 says.
    """

    metadata = {"name": "hunt_v0"}  # noqa: RUF012  # as PettingZoo has it
    render_mode = None

    def __init__(self, *, length=6, masks_in_info=False, stray=None):
        self.possible_agents = ["hunter_0", "hunter_1", "prey_0"]
        self.agents = []
        self.length = length
        self.masks_in_info = masks_in_info
        self.stray = stray
        self.closed = 0
        self.done = []
        self.seeds = []
        self._spaces = {
            "hunter": (
                spaces.Box(-1.0, 1.0, (2,), np.float32),
                spaces.Box(0.0, 10.0, (2,), np.float32),
            ),
            "prey": (PREY["observation"] if masks_in_info else PREY, spaces.Discrete(3, start=1)),
        }
        self._rng = np.random.default_rng(0)

    def observation_space(self, agent):
        return self._spaces[agent.split("_")[0]][0]

    def action_space(self, agent):
        return self._spaces[agent.split("_")[0]][1]

    def reset(self, seed=None, options=None):
        self.seeds.append(seed)
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.time = 0
        return self._look(self.agents), self._infos(self.agents)

    def step(self, actions):
        self.done.append(actions)
        self.time += 1
        acted = list(self.agents)
        is_over = self.time == self.length
        terminated = {a: a == "prey_0" and self.time == self.length // 2 for a in acted}
        truncated = {a: is_over for a in acted}
        self.agents = [a for a in acted if not terminated[a] and not truncated[a]]
        if self.stray == "lost" and self.time == 1:
            self.agents.remove("hunter_1")
            terminated["hunter_1"] = truncated["hunter_1"] = False
        if self.stray == "stranger":
            self.agents.append("stranger_0")
        rewards = dict.fromkeys(acted, float(self.time))
        return self._look(acted), rewards, terminated, truncated, self._infos(acted)

    def close(self):
        self.closed += 1

    def _look(self, agents):
        seen = {a: self._rng.uniform(-1, 1, 2).astype(np.float32) for a in agents}
        if "prey_0" in seen and not self.masks_in_info:
            seen["prey_0"] = {"observation": seen["prey_0"], "action_mask": self._mask()}
        return seen

    def _mask(self):
        mask = np.ones(3, np.int8)
        mask[self.time % 3] = 0
        return mask

    def _infos(self, agents):
        infos = {a: {} for a in agents}
        if "prey_0" in infos and self.masks_in_info:
            infos["prey_0"]["action_mask"] = self._mask()
        return infos


def started(hunt):
    env = from_pettingzoo(hunt, seed=5)
    env.reset()
    return env


@pytest.mark.parametrize("masks_in_info", [False, True])
def test_the_contract_of_environments_is_kept(masks_in_info):
    check_env(lambda seed: from_pettingzoo(Hunt(masks_in_info=masks_in_info), seed=seed))


def test_agents_with_equal_spaces_follow_one_behavior():
    specs = from_pettingzoo(Hunt()).behavior_specs
    assert {name: spec.action_spec for name, spec in specs.items()} == {
        "hunter": ActionSpec.create_continuous(2),
        "prey": ActionSpec.create_discrete((3,)),
    }
    assert all(
        spec.observation_specs == [ObservationSpec.vector(2, "observation")]
        for spec in specs.values()
    )


def test_a_single_behavior_is_called_as_the_environment():
    hunt = Hunt()
    hunt.possible_agents = ["hunter_0", "hunter_1"]
    assert list(from_pettingzoo(hunt).behavior_specs) == ["hunt_v0"]


def test_behaviors_of_like_names_are_told_apart():
    hunt = Hunt()
    hunt._spaces["hunter_a"] = hunt._spaces["prey"]
    hunt.possible_agents = ["0", "1"]
    hunt._spaces.update({"0": hunt._spaces["hunter"], "1": hunt._spaces["prey"]})
    assert list(from_pettingzoo(hunt).behavior_specs) == ["agent", "agent_1"]


def test_ids_are_places_among_the_possible_agents():
    env = started(Hunt())
    assert env.get_steps("hunter")[0].agent_id.tolist() == [0, 1]
    assert env.get_steps("prey")[0].agent_id.tolist() == [2]


@pytest.mark.parametrize("masks_in_info", [False, True])
def test_masks_are_obeyed(masks_in_info):
    env = started(Hunt(masks_in_info=masks_in_info))
    assert env.get_steps("prey")[0].action_mask[0].tolist() == [[True, False, False]]
    env.step()
    assert env.get_steps("prey")[0].action_mask[0].tolist() == [[False, True, False]]
    assert env.get_steps("hunter")[0].action_mask is None


def test_actions_are_stretched_to_the_space_and_given_to_their_agents():
    hunt = Hunt()
    env = started(hunt)
    env.set_actions("hunter", ActionTuple(continuous=np.array([[-1.0, 0.0], [0.5, 1.0]])))
    env.set_actions("prey", ActionTuple(discrete=np.array([[1]])))
    env.step()
    (done,) = hunt.done
    assert done["hunter_0"].tolist() == [0.0, 5.0]
    assert done["hunter_1"].tolist() == [7.5, 10.0]
    assert done["prey_0"] == 2
    assert all(hunt.action_space(agent).contains(action) for agent, action in done.items())


def test_who_has_ended_is_away_until_all_have_then_the_next_episode_begins():
    hunt = Hunt(length=4)
    env = started(hunt)
    env.step()
    env.step()
    decisions, terminals = env.get_steps("prey")
    assert (len(decisions), terminals.agent_id.tolist()) == (0, [2])
    assert terminals.interrupted.tolist() == [False]
    assert terminals.reward.tolist() == [2.0]
    env.step()
    assert [len(steps) for steps in env.get_steps("prey")] == [0, 0]
    assert hunt.done[-1].keys() == {"hunter_0", "hunter_1"}
    env.step()
    decisions, terminals = env.get_steps("hunter")
    assert terminals.agent_id.tolist() == decisions.agent_id.tolist() == [0, 1]
    assert terminals.interrupted.tolist() == [True, True]
    assert terminals.reward.tolist() == [4.0, 4.0]
    assert decisions.reward.tolist() == [0.0, 0.0]
    assert len(env.get_steps("prey")[0]) == 1


def test_the_seed_is_that_of_the_first_reset():
    hunt = Hunt()
    env = started(hunt)
    env.reset()
    assert hunt.seeds == [5, None]


def test_who_is_gone_without_a_word_is_interrupted():
    env = started(Hunt(stray="lost"))
    env.step()
    decisions, terminals = env.get_steps("hunter")
    assert decisions.agent_id.tolist() == [0]
    assert (terminals.agent_id.tolist(), terminals.interrupted.tolist()) == ([1], [True])


def test_agents_nobody_told_of_are_refused():
    env = started(Hunt(stray="stranger"))
    with pytest.raises(UnityEnvironmentException, match="stranger_0"):
        env.step()


def test_what_cannot_be_converted_is_refused():
    with pytest.raises(UnityGymException, match="aec_to_parallel"):
        from_pettingzoo(parallel_to_aec(Hunt()))
    hunt = Hunt()
    hunt._spaces["prey"] = hunt._spaces["prey"][0], spaces.Text(3)
    with pytest.raises(UnityGymException, match="Text"):
        from_pettingzoo(hunt)


def test_unknown_behaviors_are_refused():
    env = started(Hunt())
    with pytest.raises(KeyError, match="fox"):
        env.get_steps("fox")
    with pytest.raises(UnityActionException, match="fox"):
        env.set_actions("fox", ActionTuple(np.zeros((1, 1))))


def test_closing_may_be_repeated_and_ends_it():
    hunt = Hunt()
    env = started(hunt)
    env.close()
    env.close()
    assert hunt.closed == 1
    with pytest.raises(UnityEnvironmentException, match="closed"):
        env.step()


def test_there_and_back_a_world_is_the_same_until_an_episode_ends():
    world = default_registry["3DBall"].make(seed=3)
    env = from_pettingzoo(UnityParallelEnv(default_registry["3DBall"].make(seed=3)))
    world.reset()  # as the wrapper does to learn who is there
    rng = np.random.default_rng(0)
    for one in (world, env):
        one.reset()
    (there,), (back,) = world.behavior_specs, env.behavior_specs
    steps = 0
    while not len(world.get_steps(there)[1]):
        assert_steps_equal(env.get_steps(back)[0], world.get_steps(there)[0])
        action = world.behavior_specs[there].action_spec.random_action(12, rng)
        for one, name in ((world, there), (env, back)):
            one.set_actions(name, action)
            one.step()
        steps += 1
    assert steps > 5
    assert_steps_equal(env.get_steps(back)[1], world.get_steps(there)[1])
