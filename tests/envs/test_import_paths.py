"""What scripts written for ML-Agents import is there."""

import importlib

import pytest

from mlagents_envs.registry import default_registry

PATHS = {
    "mlagents_envs": "__version__",
    "mlagents_envs.base_env": """
        ActionSpec ActionTuple AgentId BaseEnv BehaviorMapping BehaviorName BehaviorSpec
        DecisionStep DecisionSteps DimensionProperty GroupId ObservationSpec ObservationType
        TerminalStep TerminalSteps
    """,
    "mlagents_envs.communicator": "Communicator",
    "mlagents_envs.env_utils": "get_platform launch_executable validate_environment_path",
    "mlagents_envs.environment": "UnityEnvironment",
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
    "mlagents_envs.side_channel": """
        DefaultTrainingAnalyticsSideChannel IncomingMessage OutgoingMessage SideChannel
    """,
    "mlagents_envs.side_channel.engine_configuration_channel": """
        EngineConfig EngineConfigurationChannel
    """,
    "mlagents_envs.side_channel.environment_parameters_channel": "EnvironmentParametersChannel",
    "mlagents_envs.side_channel.float_properties_channel": "FloatPropertiesChannel",
    "mlagents_envs.side_channel.raw_bytes_channel": "RawBytesChannel",
    "mlagents_envs.side_channel.side_channel": "IncomingMessage OutgoingMessage SideChannel",
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
