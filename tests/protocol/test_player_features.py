"""A player of ours says all there is to say, and obeys all it is told."""

from uuid import UUID

import numpy as np
import pytest

from mlagents_envs.base_env import ActionTuple, BaseEnv
from mlagents_envs.side_channel.default_training_analytics_side_channel import (
    DefaultTrainingAnalyticsSideChannel,
)
from mlagents_envs.side_channel.engine_configuration_channel import (
    EngineConfig,
    EngineConfigurationChannel,
)
from mlagents_envs.side_channel.float_properties_channel import FloatPropertiesChannel
from mlagents_envs.side_channel.messages import IncomingMessage, OutgoingMessage
from mlagents_envs.side_channel.raw_bytes_channel import RawBytesChannel
from mlagents_envs.side_channel.side_channel import SideChannel
from mlagents_envs.side_channel.stats_side_channel import StatsAggregationMethod, StatsSideChannel
from mlagents_sim.examples.basic import Basic
from served import served
from skirmish_environment import GROUP, GROUP_REWARD, SCOUT, TANK, Moment, SkirmishEnvironment

BASIC = Basic.behavior_name


# Tank 3 comes later, and ends in a message in which nobody asks; scout 1 ends together with what
# it next asks; scout 2 is interrupted alone, and all of one behavior while the other goes on.
SCRIPT = (
    Moment({SCOUT: [1, 2]}),
    Moment({SCOUT: [2], TANK: [3]}),
    Moment({SCOUT: [1, 2], TANK: [3, 4]}, {SCOUT: {1: False}}),
    Moment({}, {TANK: {3: False}}),
    Moment({}, {SCOUT: {2: True}, TANK: {4: True}}),
    Moment({SCOUT: [5], TANK: [6]}),
    Moment({TANK: [6]}, {SCOUT: {5: False}}),
    Moment({SCOUT: [7], TANK: [6]}, {TANK: {6: True}}),
)


def reported(env: BaseEnv, behavior: str) -> dict[str, object]:
    """Return all that the environment says of a behavior's agents."""
    decisions, terminals = env.get_steps(behavior)
    said: dict[str, object] = {"masks": [m.tolist() for m in decisions.action_mask or []]}
    said["interrupted"] = terminals.interrupted.tolist()
    for steps in (decisions, terminals):
        kind = type(steps).__name__
        said |= {f"{kind} obs {i}": batch.tolist() for i, batch in enumerate(steps.obs)}
        for field in ("agent_id", "reward", "group_id", "group_reward"):
            said[f"{kind} {field}"] = getattr(steps, field).tolist()
    return said


def test_agents_of_all_fates_arrive_as_they_are_and_are_told_what_was_set():
    here, there = SkirmishEnvironment(SCRIPT), SkirmishEnvironment(SCRIPT)
    rng = np.random.default_rng(0)
    with served(there) as env:
        env.reset()
        here.reset()
        assert list(env.behavior_specs) == [SCOUT]  # nobody has seen a tank
        for number in range(2 * len(SCRIPT)):
            for name, spec in env.behavior_specs.items():
                # Images travel as files of 8 bits; 0.2 is 51 of 255.
                assert reported(env, name) == reported(here, name), (number, name)
                assert spec == here.behavior_specs[name]
                n = len(here.get_steps(name)[0])
                if n:
                    action = spec.action_spec.random_action(n, rng)
                    env.set_actions(name, action)
                    here.set_actions(name, action)
            env.step()
            here.step()
        assert set(env.behavior_specs) == {SCOUT, TANK}
        grouped = env.get_steps(TANK)[0]
        assert not len(grouped) or grouped.group_id[0] == GROUP
        with pytest.raises(KeyError):
            env.get_steps("Plane?team=0")
    assert there.told == here.told
    assert there.closed


def test_groups_share_a_reward_of_their_own():
    with served(SkirmishEnvironment(SCRIPT)) as env:
        env.reset()
        env.step()
        env.step()
        scouts, tanks = env.get_steps(SCOUT)[0], env.get_steps(TANK)[0]
        assert (tanks.group_id.tolist(), tanks.group_reward.tolist()) == (
            [GROUP] * 2,
            [GROUP_REWARD] * 2,
        )
        assert (scouts.group_id.tolist(), scouts.group_reward.tolist()) == ([0, 0], [0.0, 0.0])
        env.step()
        assert env.get_steps(TANK)[1][3].group_reward == GROUP_REWARD
        assert [len(steps) for steps in env.get_steps(SCOUT)] == [0, 0]


class Talkative(Basic):
    """Basic with statistics, and the other ends of a script's channels."""

    def __init__(self) -> None:
        super().__init__()
        self.properties = FloatPropertiesChannel()
        self.raw = RawBytesChannel(UUID(int=1))
        self.echo = Echo()
        self.side_channels = (self.properties, self.raw, self.echo)

    def act(self) -> None:
        super().act()
        cell = float(self.cell[0])
        for method in StatsAggregationMethod:
            self.add_stat(f"Cell/{method.name}", cell, method)
        if cell == 9.0:
            self.add_stat("Cell/SUM", 0.5, StatsAggregationMethod.SUM)
        for data in self.raw.get_and_clear_received_messages():
            self.raw.send_raw_data(data[::-1])
        self.properties.set_property("cell", cell)


class Texts(SideChannel):
    """Exchanges texts."""

    def __init__(self) -> None:
        super().__init__(UUID(int=2))
        self.received: list[str] = []

    def say(self, text: str) -> None:
        message = OutgoingMessage()
        message.write_string(text)
        self.queue_message_to_send(message)

    def on_message_received(self, msg: IncomingMessage) -> None:
        self.received.append(msg.read_string())


class Echo(Texts):
    """Answers every text at once."""

    def on_message_received(self, msg: IncomingMessage) -> None:
        self.say(f"echo of {msg.read_string()}")


def walk_left(env: BaseEnv) -> None:
    env.set_actions(BASIC, ActionTuple(discrete=np.array([[1]])))
    env.step()


def test_statistics_of_all_kinds_come_with_the_step_in_which_they_arose():
    stats = StatsSideChannel()
    here = Talkative()
    with served(Talkative(), side_channels=[stats]) as env:
        env.reset()
        here.reset()
        assert stats.get_and_reset_stats() == here.get_and_reset_stats() == {}
        seen = []
        for _ in range(2):
            walk_left(env)
            walk_left(here)
            seen.append(stats.get_and_reset_stats())
            assert seen[-1] == here.get_and_reset_stats()
    # From cell 10 to 9, and to 8.
    assert seen[0]["Cell/SUM"] == [(value, StatsAggregationMethod.SUM) for value in (9.0, 0.5)]
    assert seen[1] == {f"Cell/{m.name}": [(8.0, m)] for m in StatsAggregationMethod}


def test_channels_of_an_environments_own_speak_with_those_of_the_script():
    properties, raw, texts = FloatPropertiesChannel(), RawBytesChannel(UUID(int=1)), Texts()
    world = Talkative()
    with served(world, side_channels=[properties, raw, texts]) as env:
        properties.set_property("difficulty", 2.5)
        texts.say("before the first reset")
        env.reset()
        assert world.properties.get_property("difficulty") == 2.5
        assert texts.received == ["echo of before the first reset"]
        raw.send_raw_data(b"\x01\x00\x02")
        texts.say("now")
        walk_left(env)
        assert raw.get_and_clear_received_messages() == [b"\x02\x00\x01"]
        assert texts.received[1:] == ["echo of now"]
        assert properties.get_property_dict_copy() == {"difficulty": 2.5, "cell": 9.0}


def test_what_is_for_an_engine_is_taken_without_a_word(caplog):
    engine = EngineConfigurationChannel()
    engine.set_configuration(EngineConfig.default_config())
    channels = [engine, DefaultTrainingAnalyticsSideChannel()]
    with served(Basic(), side_channels=channels) as env:
        env.reset()
        walk_left(env)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
