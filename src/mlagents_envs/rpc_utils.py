"""Messages to specs and steps, one behavior at a time, as existing programs call it.

The messages may be of any class that protobuf made of the protocol's definitions, for example the
pairs that `mlagents.trainers.demo_loader.load_demonstration` returns. Images are read in the order
of axes in which they are announced. `mlagents_envs.codec` reads and writes whole messages.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import BehaviorSpec, DecisionSteps, TerminalSteps
from mlagents_envs.codec import decode_output
from mlagents_envs.exception import UnityCommunicationException
from mlagents_envs.images import decode_image
from mlagents_envs.messages import (
    STATUS_OK,
    AgentInfoProto,
    BrainParametersProto,
    UnityMessageProto,
)

_PNG_SIZE = struct.Struct(">8x4x4xII")
"""Width and height, after a PNG file's signature and the head of its first chunk."""


def behavior_spec_from_proto(brain_param_proto: Any, agent_info: Any) -> BehaviorSpec:
    """Return what the agents of a behavior see and do.

    Args:
        brain_param_proto: `BrainParametersProto` of the behavior.
        agent_info: `AgentInfoProto` of one of its agents, which tells what is observed.

    Raises:
        UnityCommunicationException: A message makes no sense.
    """
    announcement = BrainParametersProto.FromString(brain_param_proto.SerializeToString())
    message = _of_agents([agent_info], announcement.brain_name)
    message.unity_output.rl_initialization_output.brain_parameters.append(announcement)
    output = decode_output(message.SerializeToString(), {})
    return output.specs[announcement.brain_name]


def steps_from_proto(
    agent_info_list: Iterable[Any], behavior_spec: BehaviorSpec
) -> tuple[DecisionSteps, TerminalSteps]:
    """Return what agents of one behavior report: those that ask, and those that ended.

    Args:
        agent_info_list: `AgentInfoProto` of each agent.
        behavior_spec: Specification of their behavior.

    Raises:
        UnityObservationException: An observation does not have the shape of the specification.
        UnityNonFiniteException: An observation or a reward is NaN or infinite.
        UnityCommunicationException: A message is malformed.
    """
    name = "behavior"
    message = _of_agents(agent_info_list, name)
    return decode_output(message.SerializeToString(), {name: behavior_spec}).steps[name]


def process_pixels(
    image_bytes: bytes, expected_channels: int, mappings: Sequence[int] | None = None
) -> NDArray[np.float32]:
    """Decode the image of one agent.

    Args:
        image_bytes: PNG files of the same size, back to back.
        expected_channels: Number of channels of the image.
        mappings: Channel of the image for each channel of the files, as `decode_image` takes it.

    Returns:
        (channels, height, width) from 0 to 1.

    Raises:
        UnityObservationException: The files do not have the expected channels.
        UnityCommunicationException: The bytes are not PNG files.
    """
    if len(image_bytes) < _PNG_SIZE.size:
        raise UnityCommunicationException(f"{len(image_bytes)} bytes are not a PNG file")
    width, height = _PNG_SIZE.unpack_from(image_bytes)
    image = np.empty((expected_channels, height, width), np.float32)
    decode_image(image_bytes, mappings or (), image)
    return image


def _of_agents(agent_infos: Iterable[Any], behavior: str) -> Any:
    """Make the message in which these agents of a behavior report."""
    message = UnityMessageProto(header={"status": STATUS_OK})
    message.unity_output.rl_output.agentInfos[behavior].value.extend(
        AgentInfoProto.FromString(agent_info.SerializeToString()) for agent_info in agent_infos
    )
    return message
