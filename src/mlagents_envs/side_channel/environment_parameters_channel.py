"""Side channel that sets environment parameters, either fixed or sampled at every read."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol, runtime_checkable
from uuid import UUID

from mlagents_envs.exception import UnityCommunicationException, UnityEnvironmentException
from mlagents_envs.side_channel.messages import IncomingMessage, OutgoingMessage
from mlagents_envs.side_channel.side_channel import SideChannel

_LARGEST = float.fromhex("0x1.fffffep127")
"""Largest finite float32, and thus the largest number that the protocol can carry."""


class EnvironmentDataType(IntEnum):
    """Kind of value in a message of this channel: an int32 after the name of the parameter."""

    FLOAT = 0
    SAMPLER = 1


class SamplerType(IntEnum):
    """Distribution of a sampled parameter: an int32 after the seed of the sampler."""

    UNIFORM = 0
    GAUSSIAN = 1
    MULTIRANGEUNIFORM = 2


@runtime_checkable
class ParameterReceiver(Protocol):
    """Receiver of environment parameters: this channel, or an environment in this process."""

    def set_float_parameter(self, key: str, value: float) -> None:
        """Set the parameter `key` to a fixed value."""

    def set_uniform_sampler_parameters(
        self, key: str, min_value: float, max_value: float, seed: int
    ) -> None:
        """Sample the parameter `key` uniformly between two bounds."""

    def set_gaussian_sampler_parameters(
        self, key: str, mean: float, st_dev: float, seed: int
    ) -> None:
        """Sample the parameter `key` from a normal distribution."""

    def set_multirangeuniform_sampler_parameters(
        self, key: str, intervals: Sequence[tuple[float, float]], seed: int
    ) -> None:
        """Sample the parameter `key` uniformly from the union of (min, max) intervals."""


class EnvironmentParametersChannel(SideChannel):
    """Send-only channel that sets parameters of the simulation, such as a mass or a wall's height.

    The simulation draws a new value of a sampled parameter at every read.

    The methods raise `UnityEnvironmentException` for values that a simulation cannot use, since
    the simulation itself would report them only in its log.
    """

    EnvironmentDataType = EnvironmentDataType
    SamplerType = SamplerType
    CHANNEL_ID = UUID("534c891e-810f-11ea-a9d0-822485860400")

    def __init__(self) -> None:
        super().__init__(self.CHANNEL_ID)

    def on_message_received(self, msg: IncomingMessage) -> None:
        """Raise an error: simulations never send on this channel."""
        raise UnityCommunicationException(
            "the simulation sent a message on the environment parameters channel, which only "
            "carries messages to the simulation"
        )

    def set_float_parameter(self, key: str, value: float) -> None:
        """Set the parameter `key` to a fixed value."""
        if not abs(value) <= _LARGEST:
            raise UnityEnvironmentException(
                f"environment parameter {key!r} is {value}: expected a finite 32-bit number"
            )
        message = OutgoingMessage()
        message.write_string(key)
        message.write_int32(EnvironmentDataType.FLOAT)
        message.write_float32(value)
        self.queue_message_to_send(message)

    def set_uniform_sampler_parameters(
        self, key: str, min_value: float, max_value: float, seed: int
    ) -> None:
        """Sample the parameter `key` uniformly between two bounds."""
        check_intervals([(min_value, max_value)], key)
        message = _sampler(key, seed, SamplerType.UNIFORM)
        message.write_float32(min_value)
        message.write_float32(max_value)
        self.queue_message_to_send(message)

    def set_gaussian_sampler_parameters(
        self, key: str, mean: float, st_dev: float, seed: int
    ) -> None:
        """Sample the parameter `key` from a normal distribution."""
        check_deviation(mean, st_dev, key)
        message = _sampler(key, seed, SamplerType.GAUSSIAN)
        message.write_float32(mean)
        message.write_float32(st_dev)
        self.queue_message_to_send(message)

    def set_multirangeuniform_sampler_parameters(
        self, key: str, intervals: Sequence[tuple[float, float]], seed: int
    ) -> None:
        """Sample the parameter `key` uniformly from the union of (min, max) intervals."""
        check_intervals(intervals, key)
        message = _sampler(key, seed, SamplerType.MULTIRANGEUNIFORM)
        message.write_float32_list([bound for interval in intervals for bound in interval])
        self.queue_message_to_send(message)


def check_intervals(intervals: Sequence[tuple[float, float]], key: str = "") -> None:
    """Check that numbers can be drawn from the union of these intervals.

    Args:
        intervals: Pairs (min, max).
        key: Name of the parameter, for the error message.

    Raises:
        UnityEnvironmentException: `intervals` is empty, a bound is not a finite 32-bit number, or
            a minimum exceeds its maximum.
    """
    if len(intervals) == 0:
        raise UnityEnvironmentException(f"{_of(key)}expected at least one interval, got none")
    if not all(-_LARGEST <= lower <= upper <= _LARGEST for lower, upper in intervals):
        raise UnityEnvironmentException(
            f"{_of(key)}cannot draw from {list(intervals)}: expected intervals of finite 32-bit "
            "numbers whose minimum does not exceed their maximum"
        )


def check_deviation(mean: float, st_dev: float, key: str = "") -> None:
    """Check the mean and standard deviation of a normal distribution.

    Args:
        mean: Mean of the distribution.
        st_dev: Standard deviation of the distribution.
        key: Name of the parameter, for the error message.

    Raises:
        UnityEnvironmentException: A number is not a finite 32-bit number, or the standard
            deviation is negative.
    """
    if not (abs(mean) <= _LARGEST and 0.0 <= st_dev <= _LARGEST):
        raise UnityEnvironmentException(
            f"{_of(key)}cannot draw with mean {mean} and standard deviation {st_dev}: expected "
            "finite 32-bit numbers, and a standard deviation of at least 0"
        )


def _of(key: str) -> str:
    return f"environment parameter {key!r}: " if key else ""


def _sampler(key: str, seed: int, kind: SamplerType) -> OutgoingMessage:
    message = OutgoingMessage()
    message.write_string(key)
    message.write_int32(EnvironmentDataType.SAMPLER)
    message.write_int32(seed)
    message.write_int32(kind)
    return message
