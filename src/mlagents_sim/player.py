"""Serve one or several `BaseEnv` to trainers, as a built game would.

`mlagents_sim.channels` handles the side channels.
"""

import contextlib
import selectors
import time
from collections.abc import Generator, Mapping
from typing import Protocol

from mlagents_envs import codec, handshake
from mlagents_envs.base_env import BaseEnv, BehaviorName, BehaviorSpec
from mlagents_envs.checked_env import checked
from mlagents_envs.codec import Command, Output
from mlagents_envs.exception import (
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityException,
    UnityTimeOutException,
)
from mlagents_envs.handshake import Capabilities, SimulationHello
from mlagents_envs.http2_socket import Selector, wait
from mlagents_envs.logging_util import get_logger
from mlagents_sim.channels import SimulationChannels
from mlagents_sim.client import RpcClient

logger = get_logger(__name__)

_RETRY_INTERVAL_S = 0.2
_GOODBYE_TIMEOUT_S = 1.0


class EnvironmentFactory(Protocol):
    """Function that makes the environment to serve."""

    def __call__(self, *, seed: int, num_areas: int) -> BaseEnv:
        """Return the environment, with the seed and the number of areas of the trainer."""


def serve(
    make: EnvironmentFactory, port: int, *, host: str = "localhost", timeout_s: float = 60.0
) -> None:
    """Play for the trainer at one port until it ends the session; see `serve_several`."""
    serve_several({port: make}, host=host, timeout_s=timeout_s)


def serve_several(
    makers: Mapping[int, EnvironmentFactory], *, host: str = "localhost", timeout_s: float = 60.0
) -> None:
    """Play one session at each of several ports until the trainer has ended all of them.

    If a session fails, the others end too.

    Args:
        makers: Functions that make the environments, by the port the trainer listens on. Each is
            called once the trainer has sent its seed and number of areas.
        host: Machine the trainer runs on.
        timeout_s: Longest time, in seconds, to wait for the trainer to listen.

    Raises:
        UnityTimeOutException: No trainer listened in time.
        UnityCommunicatorStoppedException: A trainer disconnected before it sent a message. A
            trainer that already has its player does so.
        UnityEnvironmentException: The protocol versions differ.
        UnityCommunicationException: The trainer violated the protocol.
        UnityActionException: The trainer's actions do not match the specification.
    """
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(Selector())
        for port, make in makers.items():
            client = stack.enter_context(contextlib.closing(RpcClient(port, host=host)))
            _connect(client, timeout_s, where=f"{host} port {port}")
            session = stack.enter_context(contextlib.closing(_Session(client, make, port)))
            selector.register(client.fileno(), selectors.EVENT_READ, session)
        while selector.get_map():
            for key in wait(selector, None):
                if not key.data.answer():
                    selector.unregister(key.fd)
    logger.info("The trainer ended %s.", "the session" if len(makers) == 1 else "all sessions")


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
    """One session with a trainer, from the handshake to its end.

    Args:
        client: Connected client.
        make: Function that makes the environment.
        port: Port the trainer listens on, for errors.
    """

    def __init__(self, client: RpcClient, make: EnvironmentFactory, port: int) -> None:
        self._client = client
        self._port = port
        self._was_answered = False
        self._talk = _talk(make)
        try:
            client.send(next(self._talk))
        except UnityCommunicatorStoppedException:
            self._require_answer()

    def answer(self) -> bool:
        """Answer the trainer's message if it has arrived; return whether the session continues."""
        try:
            heard = self._client.poll()
            if heard is not None:
                self._was_answered = True
                self._client.send(self._reply(heard))
        except (StopIteration, UnityCommunicatorStoppedException):
            self._require_answer()
            return False  # the trainer ended the session: no message can be sent
        return True

    def _require_answer(self) -> None:
        """Raise if the trainer disconnected before it sent a message."""
        if not self._was_answered:
            raise UnityCommunicatorStoppedException(
                f"the trainer at port {self._port} disconnected before it sent a message: another "
                "player is already connected to it, or it was about to end"
            )

    def _reply(self, heard: bytes) -> bytes:
        try:
            return self._talk.send(heard)
        except (StopIteration, UnityCommunicatorStoppedException):
            raise
        except BaseException:
            # The trainer waits for a message. Tell it that this side ends the session.
            with contextlib.suppress(UnityException):
                self._client.call(codec.encode_close(), _GOODBYE_TIMEOUT_S)
            raise

    def close(self) -> None:
        """Close the environment."""
        self._talk.close()


def _talk(make: EnvironmentFactory) -> Generator[bytes, bytes, None]:
    """Make the environment and follow the trainer's commands until the session ends.

    Yields:
        Message for the trainer. Its answer is to be sent into the generator.
    """
    ours = SimulationHello(handshake.API_VERSION, handshake.PACKAGE_VERSION, Capabilities.all())
    hello = handshake.decode_trainer_hello((yield handshake.encode_simulation_hello(ours)))
    handshake.check_version(hello.communication_version)
    if hello.num_areas < 0:
        raise UnityEnvironmentException(f"num_areas must be at least 1, got {hello.num_areas}")
    first = codec.decode_input((yield handshake.encode_ready()), {})
    # A trainer older than the field `num_areas` does not send it, which reads as 0.
    made = make(seed=hello.seed, num_areas=max(hello.num_areas, 1))
    with contextlib.closing(checked(made)) as env:
        channels = SimulationChannels(made)
        # The simulation begins with a reset, whatever the first command says.
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
            answer = codec.decode_input((yield codec.encode_output(output, announced)), known)
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
