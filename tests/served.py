"""An environment of this process at the other end of the wire."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mlagents_envs.base_env import BaseEnv
from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.rpc_communicator import RpcCommunicator
from mlagents_sim.player import serve


def free_port() -> int:
    """Return a port on which nothing listens now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def served(there: BaseEnv, **arguments: Any) -> Iterator[UnityEnvironment]:
    """Serve an environment from a thread; both ends must have ended in peace.

    Args:
        there: What to serve.
        arguments: Of the `UnityEnvironment` at this end.
    """
    errors: list[BaseException] = []

    def play() -> None:
        try:
            serve(lambda *, seed, num_areas: there, communicator.port, timeout_s=30)
        except BaseException as error:
            errors.append(error)

    with RpcCommunicator() as communicator:
        player = threading.Thread(target=play, daemon=True)
        player.start()
        with UnityEnvironment(timeout_wait=30, communicator=communicator, **arguments) as env:
            yield env
        player.join(30)
        assert not player.is_alive()
        assert not errors
