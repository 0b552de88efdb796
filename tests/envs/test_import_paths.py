"""What programs written for ML-Agents import is there, and does what they expect."""

import importlib
import logging
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlagents_envs import environment, exception, logging_util
from mlagents_envs.base_env import ActionSpec, BehaviorSpec, DecisionSteps, ObservationSpec
from mlagents_envs.codec import Output, encode_output
from mlagents_envs.images import encode_image
from mlagents_envs.messages import UnityMessageProto, message_class_of_repeated_numbers
from mlagents_envs.registry import UnityEnvRegistry, default_registry
from mlagents_envs.rpc_communicator import RpcCommunicator
from mlagents_envs.rpc_utils import behavior_spec_from_proto, process_pixels, steps_from_proto
from mlagents_envs.side_channel.engine_configuration_channel import EngineConfigurationChannel
from mlagents_envs.side_channel.environment_parameters_channel import EnvironmentParametersChannel
from mlagents_envs.side_channel.float_properties_channel import FloatPropertiesChannel
from mlagents_envs.side_channel.incoming_message import IncomingMessage
from mlagents_envs.side_channel.outgoing_message import OutgoingMessage
from mlagents_envs.side_channel.side_channel_manager import SideChannelManager

PATHS = {
    "mlagents_envs": "__version__",
    "mlagents_envs.base_env": """
        ActionSpec ActionTuple AgentId BaseEnv BehaviorMapping BehaviorName BehaviorSpec
        DecisionStep DecisionSteps DimensionProperty GroupId ObservationSpec ObservationType
        TerminalStep TerminalSteps
    """,
    "mlagents_envs.communicator": "Communicator",
    "mlagents_envs.env_utils": "get_platform launch_executable validate_environment_path",
    "mlagents_envs.environment": "UnityActionException UnityEnvironment",
    "mlagents_envs.exception": """
        UnityActionException UnityCommunicationException UnityCommunicatorStoppedException
        UnityEnvironmentException UnityException UnityObservationException UnityPolicyException
        UnitySideChannelException UnityTimeOutException UnityWorkerInUseException
    """,
    "mlagents_envs.logging_util": """
        CRITICAL DEBUG ERROR FATAL INFO NOTSET WARNING get_logger set_log_level
    """,
    "mlagents_envs.registry": "UnityEnvRegistry default_registry",
    "mlagents_envs.registry.base_registry_entry": "BaseRegistryEntry",
    "mlagents_envs.registry.binary_utils": "",
    "mlagents_envs.registry.remote_registry_entry": "RemoteRegistryEntry",
    "mlagents_envs.registry.unity_env_registry": "UnityEnvRegistry",
    "mlagents_envs.rpc_communicator": "RpcCommunicator",
    "mlagents_envs.rpc_utils": "behavior_spec_from_proto process_pixels steps_from_proto",
    "mlagents_envs.side_channel": """
        DefaultTrainingAnalyticsSideChannel IncomingMessage OutgoingMessage SideChannel
    """,
    "mlagents_envs.side_channel.engine_configuration_channel": """
        EngineConfig EngineConfigurationChannel
    """,
    "mlagents_envs.side_channel.environment_parameters_channel": "EnvironmentParametersChannel",
    "mlagents_envs.side_channel.float_properties_channel": "FloatPropertiesChannel",
    "mlagents_envs.side_channel.incoming_message": "IncomingMessage",
    "mlagents_envs.side_channel.outgoing_message": "OutgoingMessage",
    "mlagents_envs.side_channel.raw_bytes_channel": "RawBytesChannel",
    "mlagents_envs.side_channel.side_channel": "IncomingMessage OutgoingMessage SideChannel",
    "mlagents_envs.side_channel.side_channel_manager": "SideChannelManager",
    "mlagents_envs.side_channel.stats_side_channel": """
        EnvironmentStats StatsAggregationMethod StatsSideChannel
    """,
    "mlagents_envs.timers": """
        GaugeNode TIMER_FORMAT_VERSION TimerNode TimerStack add_metadata get_timer_root
        get_timer_stack_for_thread get_timer_tree hierarchical_timer merge_gauges reset_timers
        set_gauge timed
    """,
}
WRAPPERS = {
    "mlagents_envs.envs.unity_gym_env": "ActionFlattener UnityGymException UnityToGymWrapper",
    "mlagents_envs.envs.pettingzoo_env_factory": "PettingZooEnvFactory",
    "mlagents_envs.envs.unity_aec_env": "UnityAECEnv",
    "mlagents_envs.envs.unity_parallel_env": "UnityParallelEnv",
    "mlagents_envs.envs.unity_pettingzoo_base_env": "UnityPettingzooBaseEnv",
}


@pytest.fixture
def free_port() -> int:
    with RpcCommunicator() as communicator:
        return communicator.port


def missing(module: str, names: str) -> set[str]:
    return set(names.split()) - set(dir(importlib.import_module(module)))


@pytest.mark.parametrize("module", PATHS)
def test_what_scripts_import_is_there(module):
    assert not missing(module, PATHS[module])


@pytest.mark.parametrize("module", WRAPPERS)
def test_what_scripts_import_of_wrappers_is_there(module):
    pytest.importorskip("gymnasium")
    pytest.importorskip("pettingzoo")
    assert not missing(module, WRAPPERS[module])


def test_every_registered_environment_has_a_pettingzoo_factory():
    pytest.importorskip("gymnasium")
    pytest.importorskip("pettingzoo")
    from mlagents_envs.envs import Basic, ThreeDBall
    from mlagents_envs.envs.pettingzoo_env_factory import PettingZooEnvFactory

    assert {"Basic", "3DBall"} <= set(default_registry)
    assert isinstance(Basic, PettingZooEnvFactory)
    assert isinstance(ThreeDBall, PettingZooEnvFactory)


def test_messages_go_through_a_manager_to_the_channel_of_the_other_side() -> None:
    ours, theirs = FloatPropertiesChannel(), FloatPropertiesChannel()
    ours.set_property("height", 2.5)
    sent = SideChannelManager([ours]).generate_side_channel_messages()
    SideChannelManager([theirs]).process_side_channel_message(sent)
    assert theirs.get_property("height") == 2.5


def test_a_message_is_read_as_it_was_written() -> None:
    message = OutgoingMessage()
    message.write_int32(7)
    assert IncomingMessage(bytes(message.buffer)).read_int32() == 7


def test_channels_have_the_enums_of_their_messages() -> None:
    engine, parameters = EngineConfigurationChannel, EnvironmentParametersChannel
    assert engine.ConfigurationType.TIME_SCALE == 2
    assert parameters.EnvironmentDataType.SAMPLER == 1
    assert parameters.SamplerType.MULTIRANGEUNIFORM == 2


def test_names_of_arguments_and_exceptions(tmp_path: Path) -> None:
    logging_util.set_log_level(log_level=logging.INFO)
    registry, manifest = UnityEnvRegistry(), tmp_path / "manifest.yaml"
    manifest.write_text("environments: []")
    registry.register_from_yaml(path_to_yaml=str(manifest))
    assert len(registry) == 0
    assert environment.UnityActionException is exception.UnityActionException


def test_a_communicator_listens_at_its_workers_port(free_port: int) -> None:
    with RpcCommunicator(worker_id=3, base_port=free_port - 3, timeout_wait=1) as communicator:
        assert communicator.port == free_port


IMAGE = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(3, 2, 3) * 10
SPEC = BehaviorSpec(
    [ObservationSpec.vector(2, "v"), ObservationSpec.image(IMAGE.shape, "i")],
    ActionSpec.create_hybrid(1, (2, 3)),
)


@pytest.fixture
def messages() -> tuple[Any, Any]:
    """Make what a behavior of one agent sends, its numbers in repeated fields as protoc has them.

    Returns:
        `BrainParametersProto` and `AgentInfoProto`.
    """
    decisions = DecisionSteps.of(
        [np.array([[0.5, -1.5]], np.float32), IMAGE[None]],
        reward=[2.0],
        agent_id=[4],
        masks=[np.array([[False, True]]), np.zeros((1, 3), np.bool_)],
    )
    terminals = environment.TerminalSteps.empty(SPEC)
    sent = encode_output(Output({"B": SPEC}, {"B": (decisions, terminals)}, b""), {})
    output = message_class_of_repeated_numbers("UnityMessageProto").FromString(sent).unity_output
    (agent,) = output.rl_output.agentInfos["B"].value
    return output.rl_initialization_output.brain_parameters[0], agent


def test_messages_become_specs_and_steps(messages: tuple[Any, Any]) -> None:
    brain_parameters, agent = messages
    assert list(agent.observations[0].float_data.data) == [0.5, -1.5]
    spec = behavior_spec_from_proto(brain_parameters, agent)
    assert spec.action_spec == SPEC.action_spec
    assert [o.shape for o in spec.observation_specs] == [(2,), IMAGE.shape]

    decisions, terminals = steps_from_proto([agent], spec)
    assert len(terminals) == 0
    step = decisions[4]
    assert step.reward == 2.0
    np.testing.assert_array_equal(step.obs[0], [0.5, -1.5])
    np.testing.assert_allclose(step.obs[1], IMAGE / 255)
    assert step.action_mask is not None
    np.testing.assert_array_equal(step.action_mask[0], [False, True])

    # Messages of our own classes will do as well.
    of_bytes = UnityMessageProto().unity_output.rl_output.agentInfos["B"].value.add()
    of_bytes.ParseFromString(agent.SerializeToString())
    assert steps_from_proto([of_bytes], spec)[0] == decisions


def test_pixels_are_channels_first_from_0_to_1() -> None:
    image = process_pixels(encode_image(IMAGE), 3)
    assert image.dtype == np.float32
    np.testing.assert_allclose(image, IMAGE / 255)
    gray = process_pixels(encode_image(IMAGE), 1)
    np.testing.assert_allclose(gray[0], (IMAGE / 255).mean(0), rtol=1e-6)
    with pytest.raises(exception.UnityCommunicationException, match="3 bytes are not a PNG file"):
        process_pixels(b"png", 3)


def test_the_oldest_gym_wrapper_speaks_the_api_of_gym_and_warns() -> None:
    pytest.importorskip("gymnasium")
    import gym_unity.envs

    with pytest.warns(DeprecationWarning, match=r"Import UnityToGymWrapper from mlagents_envs\."):
        from gym_unity.envs import UnityToGymWrapper
    with closing(UnityToGymWrapper(default_registry["Basic"].make(seed=1))) as env:
        assert env.reset().shape == env.observation_space.shape
        assert len(env.step(env.action_space.sample())) == 4
    with pytest.raises(AttributeError, match="no attribute 'UnityEnv'"):
        gym_unity.envs.UnityEnv  # noqa: B018
