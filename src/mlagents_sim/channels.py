"""The simulation's end of Unity's side channels and of an environment's own channels.

An environment with the methods of `ParameterReceiver` receives environment parameters. One with the
method of `StatsSource` reports statistics. Its own channels are in its attribute `side_channels`,
if it has one; the user's program registers their other ends.
"""

from collections.abc import Sequence

from mlagents_envs.base_env import BaseEnv
from mlagents_envs.exception import UnityException, UnitySideChannelException
from mlagents_envs.logging_util import get_logger
from mlagents_envs.side_channel.default_training_analytics_side_channel import (
    DefaultTrainingAnalyticsSideChannel,
)
from mlagents_envs.side_channel.engine_configuration_channel import EngineConfigurationChannel
from mlagents_envs.side_channel.environment_parameters_channel import (
    EnvironmentDataType,
    EnvironmentParametersChannel,
    ParameterReceiver,
    SamplerType,
)
from mlagents_envs.side_channel.messages import IncomingMessage, OutgoingMessage
from mlagents_envs.side_channel.side_channel import SideChannel, SideChannelRouter
from mlagents_envs.side_channel.stats_side_channel import (
    EnvironmentStats,
    StatsSideChannel,
    StatsSource,
)

logger = get_logger(__name__)


class SimulationChannels:
    """The side channels of an environment that is served to a trainer.

    Args:
        env: Environment to serve.

    Raises:
        UnityEnvironmentException: Two channels of the environment have the same id, or one has
            the id of a Unity channel.
    """

    def __init__(self, env: BaseEnv) -> None:
        self._source = env if isinstance(env, StatsSource) else None
        self._stats = _StatsSender()
        own: Sequence[SideChannel] = getattr(env, "side_channels", ())
        self._router = SideChannelRouter(
            [
                _Ignored(EngineConfigurationChannel.CHANNEL_ID),
                _Ignored(DefaultTrainingAnalyticsSideChannel.CHANNEL_ID),
                _ParametersReader(env if isinstance(env, ParameterReceiver) else None),
                self._stats,
                *own,
            ]
        )

    def deliver(self, data: bytes) -> None:
        """Deliver the messages of the trainer's answer to their channels.

        Raises:
            UnityEnvironmentException: The data are malformed. No message was delivered.
            Exception: Any exception of the environment's own channels.
        """
        self._router.deliver(data)

    def collect(self) -> bytes:
        """Return the data for the next report: statistics and messages of all channels."""
        if self._source is not None:
            self._stats.send(self._source.get_and_reset_stats())
        return self._router.collect()


class _Ignored(SideChannel):
    """Ignores messages that have no meaning without an engine."""

    def on_message_received(self, msg: IncomingMessage) -> None:
        logger.debug("Ignored a message of side channel %s.", self.channel_id)


class _ParametersReader(SideChannel):
    """Reads environment parameters. Invalid ones are logged, as in Unity."""

    def __init__(self, receiver: ParameterReceiver | None) -> None:
        super().__init__(EnvironmentParametersChannel.CHANNEL_ID)
        self._receiver = receiver
        self._has_warned = False

    def on_message_received(self, msg: IncomingMessage) -> None:
        if self._receiver is not None:
            try:
                _set_parameter(self._receiver, msg)
            except UnityException as error:
                logger.warning("Ignored an environment parameter: %s", error)
        elif not self._has_warned:
            self._has_warned = True
            logger.warning("Ignored environment parameters: this environment has none.")


class _StatsSender(SideChannel):
    """Sends statistics, one message for each value."""

    def __init__(self) -> None:
        super().__init__(StatsSideChannel.CHANNEL_ID)

    def send(self, stats: EnvironmentStats) -> None:
        for key, values in stats.items():
            for value, aggregation in values:
                message = OutgoingMessage()
                message.write_string(key)
                message.write_float32(value)
                message.write_int32(aggregation.value)
                self.queue_message_to_send(message)

    def on_message_received(self, msg: IncomingMessage) -> None:
        logger.warning(
            "Ignored statistics from the trainer: the channel sends statistics only to the trainer."
        )


def _set_parameter(receiver: ParameterReceiver, message: IncomingMessage) -> None:
    """Set the environment parameter that a message contains."""
    key, kind = message.read_string(), message.read_int32()
    if kind == EnvironmentDataType.FLOAT:
        receiver.set_float_parameter(key, message.read_float32())
        return
    if kind != EnvironmentDataType.SAMPLER:
        raise UnitySideChannelException(f"{key!r} has the unknown kind {kind}")
    seed, sampler = message.read_int32(), message.read_int32()
    if sampler == SamplerType.UNIFORM:
        receiver.set_uniform_sampler_parameters(
            key, message.read_float32(), message.read_float32(), seed
        )
    elif sampler == SamplerType.GAUSSIAN:
        receiver.set_gaussian_sampler_parameters(
            key, message.read_float32(), message.read_float32(), seed
        )
    elif sampler == SamplerType.MULTIRANGEUNIFORM:
        bounds = message.read_float32_list()
        if len(bounds) % 2:
            raise UnitySideChannelException(
                f"{key!r} has intervals of {len(bounds)} bounds: expected pairs"
            )
        intervals = list(zip(bounds[::2], bounds[1::2], strict=True))
        receiver.set_multirangeuniform_sampler_parameters(key, intervals, seed)
    else:
        raise UnitySideChannelException(f"{key!r} has the unknown sampler type {sampler}")
