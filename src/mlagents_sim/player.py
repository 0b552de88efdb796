"""Serve any `BaseEnv` on the wire, as a built game would.

What it says and hears on side channels: see `mlagents_sim.channels`.
"""

import contextlib
import time
from typing import Protocol

from mlagents_envs import codec, handshake
from mlagents_envs.base_env import BaseEnv, BehaviorName, BehaviorSpec
from mlagents_envs.codec import Command, Input, Output
from mlagents_envs.exception import (
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityException,
    UnityTimeOutException,
)
from mlagents_envs.handshake import Capabilities, SimulationHello, TrainerHello
from mlagents_envs.logging_util import get_logger
from mlagents_sim.channels import SimulationChannels
from mlagents_sim.client import RpcClient

logger = get_logger(__name__)

_RETRY_INTERVAL_S = 0.2
_GOODBYE_TIMEOUT_S = 1.0


class EnvironmentFactory(Protocol):
    """Makes the environment to serve, as the trainer wishes."""

    def __call__(self, *, seed: int, num_areas: int) -> BaseEnv:
        """Make it."""


def serve(
    make: EnvironmentFactory, port: int, *, host: str = "localhost", timeout_s: float = 60.0
) -> None:
    """Play for the trainer at a port until it ends the session.

    Args:
        make: Makes the environment once the trainer has said its seed and number of areas.
        port: Where the trainer listens.
        host: On which machine.
        timeout_s: How long to wait for the trainer to listen.

    Raises:
        UnityTimeOutException: No trainer listened in time.
        UnityEnvironmentException: The protocol versions differ.
        UnityCommunicationException: The trainer broke the protocol.
        UnityActionException: The trainer's actions do not fit.
    """
    with contextlib.closing(RpcClient(port, host=host)) as client:
        _connect(client, timeout_s, where=f"{host} port {port}")
        _Session(client).play(make)
    logger.info("The trainer ended the session.")


def _connect(client: RpcClient, timeout_s: float, *, where: str) -> None:
    deadline = time.monotonic() + timeout_s
    is_told = False
    while True:
        try:
            return client.connect(max(deadline - time.monotonic(), _RETRY_INTERVAL_S))
        except UnityEnvironmentException as error:
            if time.monotonic() + _RETRY_INTERVAL_S >= deadline:
                raise UnityTimeOutException(
                    f"no trainer listened within {timeout_s:g} s. {error}"
                ) from error
        if not is_told:
            logger.info("Waiting up to %g s for a trainer at %s.", timeout_s, where)
            is_told = True
        time.sleep(_RETRY_INTERVAL_S)


class _Session:
    """From the handshake to the trainer's good-bye, or ours.

    Args:
        client: Connected.
    """

    def __init__(self, client: RpcClient) -> None:
        self._client = client
        self._is_calling = False

    def play(self, make: EnvironmentFactory) -> None:
        """Make the environment; follow the trainer to the end (wire protocol, section 3.6)."""
        try:
            hello = self._shake_hands()
            first = codec.decode_input(self._call(handshake.encode_ready()), {})
            # A trainer from before there were areas says nothing, which reads as 0.
            env = make(seed=hello.seed, num_areas=max(hello.num_areas, 1))
            with contextlib.closing(env):
                self._follow(env, first)
        except UnityCommunicatorStoppedException:
            pass  # the trainer ends the session: nobody is left to take leave of
        except BaseException:
            self._say_goodbye()
            raise

    def _shake_hands(self) -> TrainerHello:
        ours = SimulationHello(handshake.API_VERSION, handshake.PACKAGE_VERSION, Capabilities.all())
        hello = handshake.decode_trainer_hello(self._call(handshake.encode_simulation_hello(ours)))
        handshake.check_version(hello.communication_version)
        return hello

    def _follow(self, env: BaseEnv, first: Input) -> None:
        channels = SimulationChannels(env)
        # Whatever the first command says, the simulation begins with a reset of its own.
        channels.deliver(first.side_channel)
        env.reset()
        announced: dict[BehaviorName, BehaviorSpec] = {}
        while True:
            steps = {name: env.get_steps(name) for name in env.behavior_specs}
            new = {
                name: env.behavior_specs[name]
                for name, (decisions, terminals) in steps.items()
                if name not in announced and (len(decisions) or len(terminals))
            }
            known = {**announced, **new}
            output = Output(new, {name: steps[name] for name in known}, channels.collect())
            answer = codec.decode_input(self._call(codec.encode_output(output, announced)), known)
            announced = known
            channels.deliver(answer.side_channel)
            if answer.command is Command.QUIT:
                return
            if answer.command is Command.RESET:
                env.reset()
                continue
            for name, action in answer.actions.items():
                if len(steps[name][0]):
                    env.set_actions(name, action)
            env.step()

    def _call(self, message: bytes) -> bytes:
        self._is_calling = True
        answer = self._client.call(message)
        self._is_calling = False
        return answer

    def _say_goodbye(self) -> None:
        """Tell the trainer that we end; while it owes an answer, hanging up has to say it."""
        if not self._is_calling:
            with contextlib.suppress(UnityException):
                self._client.call(codec.encode_close(), _GOODBYE_TIMEOUT_S)
