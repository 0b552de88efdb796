"""The simulation's end of the side channels: what it obeys, passes over and refuses."""

import logging
from uuid import UUID

import pytest

from mlagents_envs.exception import UnityEnvironmentException, UnitySideChannelException
from mlagents_envs.side_channel.environment_parameters_channel import EnvironmentParametersChannel
from mlagents_envs.side_channel.messages import OutgoingMessage
from mlagents_envs.side_channel.raw_bytes_channel import RawBytesChannel
from mlagents_envs.side_channel.side_channel import SideChannel, SideChannelRouter
from mlagents_envs.side_channel.stats_side_channel import StatsAggregationMethod, StatsSideChannel
from mlagents_sim.channels import SimulationChannels
from mlagents_sim.examples.ball_3d import Ball3D
from scripted_environment import ScriptedEnvironment

FLOAT, SAMPLER = 0, 1


def message(*values: str | int | float | list[float]) -> OutgoingMessage:
    made = OutgoingMessage()
    for value in values:
        match value:
            case str():
                made.write_string(value)
            case int():
                made.write_int32(value)
            case float():
                made.write_float32(value)
            case list():
                made.write_float32_list(value)
    return made


def deliver(env, channel: SideChannel) -> None:
    SimulationChannels(env).deliver(SideChannelRouter([channel]).collect())


def test_parameters_of_every_kind_are_obeyed():
    world, same, channel = Ball3D(), Ball3D(), EnvironmentParametersChannel()
    for receiver in (channel, same):
        receiver.set_float_parameter("mass", 2.5)
        receiver.set_gaussian_sampler_parameters("gravity", 9.5, 0.25, seed=-1)
        receiver.set_multirangeuniform_sampler_parameters("scale", [(1.0, 2.0), (3.0, 5.0)], 7)
    deliver(world, channel)
    assert world.parameters["mass"] == 2.5
    for name in ("gravity", "scale"):
        assert world.parameters.draw(name, 3).tolist() == same.parameters.draw(name, 3).tolist()
    for receiver in (channel, same):
        receiver.set_uniform_sampler_parameters("mass", 0.5, 10.0, seed=3)
    deliver(world, channel)
    assert world.parameters["mass"] == same.parameters["mass"]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (message("mass", 2, 1.0), "'mass' has the unknown kind 2"),
        (message("mass", SAMPLER, 0, 3, 1.0), "'mass' has the unknown sampler type 3"),
        (message("mass", SAMPLER, 0, 2, [1.0, 2.0, 3.0]), "3 bounds: expected pairs"),
        (message("mass", SAMPLER, 0, 2, []), "at least one interval"),
        (message("mass", SAMPLER, 0, 0, 2.0, 1.0), "does not exceed their maximum"),
        (message("mass", SAMPLER, 0, 1, 2.0, -1.0), "standard deviation of at least 0"),
        (message("mass", FLOAT, float("nan")), "'mass' is nan"),
        (message(99), "announces 99 items"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_logged_and_leaves_the_rest(sent, reason, caplog):
    world, channel = Ball3D(), EnvironmentParametersChannel()
    channel.queue_message_to_send(sent)
    channel.set_float_parameter("scale", 2.0)
    deliver(world, channel)
    assert reason in caplog.text
    assert dict(world.parameters) == {"mass": 1.0, "gravity": 9.81, "scale": 2.0}


def test_an_environment_without_parameters_says_so_once(caplog):
    channels = SimulationChannels(ScriptedEnvironment([]))
    for _ in range(3):
        channel = EnvironmentParametersChannel()
        channel.set_float_parameter("mass", 2.0)
        channels.deliver(SideChannelRouter([channel]).collect())
    assert [record.message for record in caplog.records] == [
        "Ignored environment parameters: this environment has none."
    ]


def test_statistics_go_out_once():
    world, received = Ball3D(), StatsSideChannel()
    channels = SimulationChannels(world)
    expected = {f"Ball/{method.name}": [(1.5, method)] for method in StatsAggregationMethod}
    for key, [(value, method)] in expected.items():
        world.add_stat(key, value, method)
    SideChannelRouter([received]).deliver(channels.collect())
    assert received.get_and_reset_stats() == expected
    assert channels.collect() == b""


def test_statistics_of_the_trainer_are_passed_over(caplog):
    channel = StatsSideChannel()
    channel.queue_message_to_send(message("Loss", 1.0, 0))
    world = Ball3D()
    deliver(world, channel)
    assert "the channel sends statistics only to the trainer" in caplog.text
    assert world.get_and_reset_stats() == {}


def test_a_channel_that_nobody_registered_is_warned_about(caplog):
    channel = RawBytesChannel(UUID(int=3))
    channel.send_raw_data(b"abc")
    with caplog.at_level(logging.WARNING):
        deliver(Ball3D(), channel)
    assert f"side channel {UUID(int=3)} are skipped" in caplog.text


def test_an_environments_own_channel_may_refuse():
    class Strict(SideChannel):
        def on_message_received(self, msg):
            raise UnitySideChannelException("not like this")

    env = ScriptedEnvironment([])
    env.side_channels = [Strict(UUID(int=3))]
    channel = RawBytesChannel(UUID(int=3))
    channel.send_raw_data(b"abc")
    with pytest.raises(UnitySideChannelException, match="not like this"):
        deliver(env, channel)


def test_an_environment_has_no_channel_of_unitys():
    env = ScriptedEnvironment([])
    env.side_channels = [RawBytesChannel(StatsSideChannel.CHANNEL_ID)]
    with pytest.raises(UnityEnvironmentException, match="the second a RawBytesChannel"):
        SimulationChannels(env)


def test_malformed_data_are_refused():
    with pytest.raises(UnityEnvironmentException, match="malformed side-channel data"):
        SimulationChannels(Ball3D()).deliver(b"\0" * 7)
