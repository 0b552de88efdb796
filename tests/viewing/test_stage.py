"""The hand-over of the newest state to a page."""

import numpy as np

from mlagents.viewing.stage import Stage
from mlagents_envs.base_env import ActionSpec, BehaviorSpec, DecisionSteps, TerminalSteps
from mlagents_sim.examples.basic import Basic

NAME = Basic.behavior_name


def report(env: Basic, stage: Stage, **more: object) -> None:
    stage.offer(env, env.behavior_specs, {NAME: env.get_steps(NAME)}, {}, **more)


def world() -> Basic:
    env = Basic(num_areas=2)
    env.reset()
    return env


def test_nothing_is_copied_if_nobody_watches():
    class Unseen(Basic):
        def scene(self):
            raise AssertionError("the scene was asked for")

    env = Unseen()
    env.reset()
    stage = Stage()
    report(env, stage)
    assert stage.take(0.0) is None


def test_the_page_gets_the_state_that_it_asked_for():
    env, stage = world(), Stage()
    stage.is_watched = True
    report(env, stage)
    moment = stage.take(0.0)
    assert moment.scene.n_areas == 2
    assert moment.picture is None
    assert moment.agent_ids() == [0, 1]
    assert stage.take(0.0) is None  # each is handed out once


def test_probabilities_are_found_only_for_states_that_are_shown():
    env, stage = world(), Stage()
    stage.is_watched = True
    asked = []
    for _ in range(3):
        report(env, stage, probabilities=lambda: asked.append(1) or {})
    assert len(asked) == 1


def test_an_environment_without_a_scene_shows_its_picture():
    class Painter:
        def render(self):
            return np.zeros((2, 3, 3), np.uint8)

    stage = Stage()
    stage.is_watched = True
    stage.offer(Painter(), {}, {}, {})
    assert stage.take(0.0).picture.shape == (2, 3, 3)


def test_an_environment_that_shows_nothing_still_tells_its_agents():
    spec = BehaviorSpec([], ActionSpec.create_continuous(1))
    asking = DecisionSteps.of([], np.zeros(2, np.float32), np.array([7, 4], np.int32))
    stage = Stage()
    stage.is_watched = True
    stage.offer(object(), {"a": spec}, {"a": (asking, TerminalSteps.empty(spec))}, {})
    moment = stage.take(0.0)
    assert (moment.scene, moment.picture, moment.agent_ids()) == (None, None, [4, 7])


def test_the_reward_of_the_followed_agent_is_added_up():
    spec = BehaviorSpec([], ActionSpec.create_continuous(1))
    ids = np.array([0, 1], np.int32)
    nobody = TerminalSteps.empty(spec)
    stage = Stage()
    stage.is_watched = True
    stage.followed = 1

    def step(reward: float, *, ends: bool = False) -> float | None:
        rewards = np.array([100.0, reward], np.float32)
        asking, ended = DecisionSteps.of([], rewards, ids), nobody
        if ends:
            asking, ended = DecisionSteps.empty(spec), TerminalSteps.of([], rewards, ids, False)
        stage._wanted_at_s = 0.0
        stage.offer(object(), {"a": spec}, {"a": (asking, ended)}, {})
        moment = stage.take(0.0)
        return moment.reward

    assert step(1.0) == 0.0  # the agent is not known before
    assert step(0.5) == 0.5
    assert step(0.25) == 0.75
    step(3.0, ends=True)
    assert step(0.5) == 0.5


def test_copies_take_a_small_part_of_the_time():
    class Slow(Basic):
        def scene(self):
            clock.now_s += 3.0  # a copy takes so long
            return super().scene()

    class Clock:
        now_s = 100.0

        def __call__(self) -> float:
            return self.now_s

    clock = Clock()
    stage = Stage(share=0.01, clock=clock)
    stage.is_watched = True
    env = Slow()
    env.reset()
    copied_at = []
    for _ in range(1000):
        report(env, stage)
        if stage.take(0.0) is not None:
            copied_at.append(clock.now_s)
        clock.now_s += 1.0
    assert np.diff(copied_at).min() >= 3.0 / 0.01
