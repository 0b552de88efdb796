"""Decoders of messages of one behavior, at the import path that existing programs use.

Messages may be of any class that protobuf built from the protocol's definitions, for example the
pairs that `mlagents.trainers.demo_loader.load_demonstration` returns. Images are decoded in their
announced order of axes. `mlagents_envs.codec` encodes and decodes whole messages.
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
"""Beginning of a PNG file up to its width and height."""


def behavior_spec_from_proto(brain_param_proto: Any, agent_info: Any) -> BehaviorSpec:
    """Return the specification of a behavior.

    Args:
        brain_param_proto: `BrainParametersProto` of the behavior.
        agent_info: `AgentInfoProto` of one of its agents, for the observations.

    Raises:
        UnityCommunicationException: A message is malformed.
    """
    announcement = BrainParametersProto.FromString(brain_param_proto.SerializeToString())
    message = _of_agents([agent_info], announcement.brain_name)
    message.unity_output.rl_initialization_output.brain_parameters.append(announcement)
    output = decode_output(message.SerializeToString(), {})
    return output.specs[announcement.brain_name]


def steps_from_proto(
    agent_info_list: Iterable[Any], behavior_spec: BehaviorSpec
) -> tuple[DecisionSteps, TerminalSteps]:
    """Return the decision steps and terminal steps of agents of one behavior.

    Args:
        agent_info_list: `AgentInfoProto` of each agent.
        behavior_spec: Specification of the behavior.

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
        image_bytes: Concatenated PNG files of the same size.
        expected_channels: Number of channels of the image.
        mappings: Channel of the image for each channel of the files; see `decode_image`.

    Returns:
        Array of shape (channels, height, width), from 0 to 1.

    Raises:
        UnityObservationException: The files do not have the expected number of channels.
        UnityCommunicationException: The bytes are not PNG files.
    """
    if len(image_bytes) < _PNG_SIZE.size:
        raise UnityCommunicationException(f"{len(image_bytes)} bytes are not a PNG file")
    width, height = _PNG_SIZE.unpack_from(image_bytes)
    image = np.empty((expected_channels, height, width), np.float32)
    decode_image(image_bytes, mappings or (), image)
    return image


def _of_agents(agent_infos: Iterable[Any], behavior: str) -> Any:
    """Build the message that reports these agents of a behavior."""
    message = UnityMessageProto(header={"status": STATUS_OK})
    message.unity_output.rl_output.agentInfos[behavior].value.extend(
        AgentInfoProto.FromString(agent_info.SerializeToString()) for agent_info in agent_infos
    )
    return message
