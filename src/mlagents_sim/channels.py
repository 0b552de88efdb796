"""The receiving half of the side channels: what a trainer tells a simulation by the way."""

from collections.abc import Callable
from uuid import UUID

from mlagents_envs.exception import UnityException
from mlagents_envs.logging_util import get_logger
from mlagents_envs.side_channel.environment_parameters_channel import (
    EnvironmentDataType,
    EnvironmentParametersChannel,
)
from mlagents_envs.side_channel.messages import IncomingMessage
from mlagents_envs.side_channel.side_channel import records

logger = get_logger(__name__)


def deliver(data: bytes, *, set_parameter: Callable[[str, float], None] | None) -> None:
    """Set the environment parameters that a trainer sent; other messages mean nothing here.

    A message that cannot be read or obeyed is logged and skipped, as in Unity.

    Args:
        data: What came with the trainer's answer.
        set_parameter: Takes a parameter's name and value; None where there are no parameters.

    Raises:
        UnityEnvironmentException: The data are malformed; then nothing was delivered.
    """
    for channel_id, message in list(records(data)):
        if channel_id != EnvironmentParametersChannel.CHANNEL_ID.bytes_le or set_parameter is None:
            logger.debug("Ignored a message of side channel %s.", UUID(bytes_le=channel_id))
            continue
        try:
            _set_parameter(IncomingMessage(message), set_parameter)
        except UnityException as error:
            logger.warning("Ignored an environment parameter: %s", error)


def _set_parameter(message: IncomingMessage, set_parameter: Callable[[str, float], None]) -> None:
    name, kind = message.read_string(), message.read_int32()
    if kind == EnvironmentDataType.FLOAT:
        set_parameter(name, message.read_float32())
    else:
        logger.warning("Ignored environment parameter %r: it is no constant.", name)
