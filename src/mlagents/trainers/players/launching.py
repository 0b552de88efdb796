"""`SimPlayers`: starts players with `python -m mlagents_sim`, one or several per process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.launcher import Player, player_arguments
from mlagents_envs.rpc_communicator import RpcCommunicator


class SimPlayers:
    """Starts the players of a run in their processes.

    Neighboring workers may share a process: one process with several players uses the processor's
    caches better than many processes. If a shared process ends, each of its players is restarted in
    its own process.

    Args:
        command: Command that runs players. Ports are appended.
        workers: Numbers of the workers. Their players must be started in this order.
        n_processes: Initial number of processes.
    """

    def __init__(self, command: Sequence[str], *, workers: range, n_processes: int) -> None:
        self._command = list(command)
        self._workers = workers
        self._process_of = [k * n_processes // len(workers) for k in range(len(workers))]
        self._n_started = 0
        self._gathered: list[tuple[UnityEnvironment, int]] = []
        """Environments, with their ports, whose shared process has not been started yet."""

    def start(
        self,
        *,
        worker_id: int,
        additional_args: Sequence[str],
        base_port: int,
        timeout_wait: float,
        log_folder: str,
        **arguments: Any,
    ) -> UnityEnvironment:
        """Start a player without waiting for it. The last player of a process starts the process.

        Args:
            worker_id: Worker of the player. A player already started for it is replaced.
            additional_args: Arguments for a Unity build; ignored.
            base_port: First port, as in `UnityEnvironment`.
            timeout_wait: Timeout in seconds, as in `UnityEnvironment`.
            log_folder: Folder for logs, as in `UnityEnvironment`.
            arguments: Other arguments of `UnityEnvironment`.
        """
        del additional_args
        index = self._workers.index(worker_id)
        is_first, mine = index == self._n_started, self._process_of[index]
        self._n_started += is_first
        if not is_first or self._process_of.count(mine) == 1:
            return UnityEnvironment(
                command=self._command,
                worker_id=worker_id,
                additional_args=["--worker-id", str(worker_id)],
                base_port=base_port,
                timeout_wait=timeout_wait,
                log_folder=log_folder,
                **arguments,
            )
        communicator = RpcCommunicator(worker_id, base_port, timeout_wait)
        communicator.open()
        env = UnityEnvironment(
            worker_id=worker_id, communicator=communicator, timeout_wait=timeout_wait, **arguments
        )
        self._gathered.append((env, communicator.port))
        if mine not in self._process_of[self._n_started :]:
            self._start_gathered(worker_id, log_folder)
        return env

    def _start_gathered(self, last_worker: int, log_folder: str) -> None:
        first_worker = last_worker - len(self._gathered) + 1
        (_, port), *others = self._gathered
        additional = ["--worker-id", str(first_worker)]
        for _, other_port in others:
            additional += ["--mlagents-port", str(other_port)]
        log_file = str(Path(log_folder, f"Player-{first_worker}-{last_worker}.log"))
        arguments = player_arguments(port, log_file=log_file, additional=additional)
        (first, _), *rest = self._gathered
        first.player = player = Player([*self._command, *arguments])
        for env, _ in rest:
            env.player = player.share()
        self._gathered.clear()
