"""Several learners of a run: starts them on this machine, or joins those that torchrun started."""

import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from mlagents import __version__
from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.learning.process_group import LearnerError, ProcessGroup, Store, dist
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.run_options import RunOptions
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

START_S = 120.0
"""Time within which all learners must start, in s."""
_END_S = 10.0
"""Time to wait for learners to end by themselves after the run, in s."""
_LOOPBACK = "127.0.0.1"

_FROM_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables of torchrun that a run needs. Other programs often set only MASTER_ADDR."""

_OF_EACH_LEARNER = {
    *("debug", "verbose", "env_settings.env_path", "env_settings.env_args"),
    *("checkpoint_settings.results_dir", "torch_settings.device", "torch_settings.threads"),
    *("env_settings.seed", "torch_settings.learners"),
}
"""Settings that may differ between learners."""


class Place(NamedTuple):
    """Rank of a learner in a run and on its machine.

    Attributes:
        rank: Number of the learner, from 0.
        size: Number of learners.
        local_rank: Number of the learner on its machine, from 0.
        n_local: Number of learners on its machine.
        store: File of the store through which learners of one machine find each other; None if
            torchrun provides the store.
    """

    rank: int
    size: int
    local_rank: int
    n_local: int
    store: Path | None = None


def torchrun_place(environ: Mapping[str, str]) -> Place | None:
    """Return the place that torchrun gave this process; None if torchrun did not start it.

    Raises:
        TrainerConfigError: Only some of the variables are set, or one is not a number.
    """
    if "RANK" not in environ and "WORLD_SIZE" not in environ:
        return None
    missing = [name for name in _FROM_TORCHRUN if name not in environ]
    if missing:
        found = ", ".join(name for name in _FROM_TORCHRUN if name in environ)
        raise TrainerConfigError(
            f"torchrun's variables {found} are set, but {', '.join(missing)} not. Start all "
            "learners with torchrun, or unset these variables to learn in one process."
        )

    def number(name: str, otherwise: str) -> int:
        written = environ.get(name, otherwise)
        try:
            return int(written)
        except ValueError:
            raise TrainerConfigError(
                f"the variable {name} is not a number: {written!r}. torchrun sets it. To learn in "
                "one process, unset it."
            ) from None

    rank, size = number("RANK", ""), number("WORLD_SIZE", "")
    if not 0 <= rank < size:
        raise TrainerConfigError(
            f"the variable RANK must be from 0 to {size - 1}, as WORLD_SIZE is {size}; got {rank}."
        )
    return Place(rank, size, number("LOCAL_RANK", "0"), number("LOCAL_WORLD_SIZE", "1"))


def place_of(options: RunOptions, environ: Mapping[str, str]) -> Place | None:
    """Return the place of this process among learners; None for the only learner.

    Raises:
        TrainerConfigError: The variables of torchrun are wrong, or contradict the settings.
    """
    place, asked = torchrun_place(environ), options.torch_settings.learners
    if place is None:
        is_alone = asked == 1 or options.checkpoint_settings.inference
        return None if is_alone else Place(0, asked, 0, asked)
    if asked not in (1, place.size):
        raise TrainerConfigError(
            f"torch_settings.learners (--learners) is {asked}, but torchrun started {place.size} "
            "processes. Leave the setting out, or give both the same number."
        )
    return place if place.size > 1 else None


def learner_device(device: torch.device, place: Place) -> torch.device:
    """Return the device of a learner: its own GPU unless the settings name a GPU."""
    if str(device) != "cuda":
        return device
    return torch.device("cuda", place.local_rank % torch.cuda.device_count())


def require_for_several(options: RunOptions, n_learners: int) -> None:
    """Raise if the settings require something that several learners do not support.

    Raises:
        TrainerConfigError: They cannot.
    """
    environment = options.env_settings
    if not dist.is_available():
        raise TrainerConfigError(
            f"this PyTorch, {torch.__version__}, cannot connect {n_learners} learners "
            "(--learners): it was built without torch.distributed. Install another build."
        )
    if options.checkpoint_settings.inference:
        raise TrainerConfigError(
            f"--inference learns nothing, so it needs one process; torchrun started {n_learners}. "
            "Start mlagents-learn without torchrun."
        )
    if environment.env_path is None and not options.is_offline:
        raise TrainerConfigError(
            f"{n_learners} learners need separate players, but there is only one Editor. Name an "
            "environment with --env, or leave out --learners."
        )
    n_players = n_learners * environment.num_envs
    of_evaluation = ""
    if options.evaluation is not None:
        n_players += options.evaluation.num_envs
        of_evaluation = f" and {options.evaluation.num_envs} of evaluations"
    last_port = environment.base_port + n_players - 1
    if environment.base_port and last_port > 65535:
        raise TrainerConfigError(
            f"base_port (--base-port) {environment.base_port} plus {environment.num_envs} "
            f"environments (num_envs) of {n_learners} learners{of_evaluation} exceeds the last "
            "port, 65535."
        )
    for name, settings in options.behaviors.items():
        require_shareable(f"behaviors.{name}", settings, n_learners)
    if options.default_settings is not None:
        require_shareable("default_settings", options.default_settings, n_learners)


def require_shareable(section: str, settings: BehaviorSettings, n_learners: int) -> None:
    """Raise if the settings of a behavior do not allow several learners.

    Raises:
        TrainerConfigError: They cannot. The message names the key below `section`.
    """
    hyperparameters = settings.hyperparameters
    for key in ("batch_size", "buffer_size"):
        number = getattr(hyperparameters, key, n_learners)  # a plug-in may have neither
        if number < n_learners:
            raise TrainerConfigError(
                f"{section}.hyperparameters.{key} is {number}, which {n_learners} learners "
                f"(--learners) cannot share. Set at least {n_learners}."
            )
    if settings.self_play is not None:
        raise TrainerConfigError(
            f"{section}.self_play: several learners (--learners {n_learners}) do not support "
            "self-play, because each would keep separate ratings. Use one learner with more "
            "environments (--num-envs)."
        )
    if getattr(hyperparameters, "save_replay_buffer", False):
        raise TrainerConfigError(
            f"{section}.hyperparameters.save_replay_buffer: each of {n_learners} learners "
            "(--learners) has its own replay buffer, and these are not saved. Set it to false."
        )


@contextmanager
def joined(
    options: RunOptions, place: Place | None, device: torch.device
) -> Iterator[tuple[ProcessGroup | None, RunOptions]]:
    """Return the group of learners and the settings they agree on; None for a single learner.

    The first learner of a machine without torchrun starts the others. They end with it.

    Raises:
        LearnerError: Another learner cannot be started, or has different versions or settings.
    """
    if place is None:
        yield None, options
        return
    with ExitStack() as stack:
        others = None
        if place.store is not None:
            store: Store = dist.FileStore(str(place.store), place.size)
            store.set(ready_key(place.rank), "")
        elif torchrun_place(os.environ) is not None:
            store = dist.PrefixStore(_attempt(), _store_of_torchrun(place))
        else:
            others = stack.enter_context(LocalLearners(options, place.size))
            store = dist.FileStore(str(others.store), place.size)
            others.wait_until_ready(store)
        group, options = _joined(options, place, device, store)
        if others is not None:
            others.watch(group)
        elif place.store is None:
            _watch_launcher(group)
        try:
            yield group, options
        except BaseException as error:
            group.leave(str(error) or type(error).__name__)
            raise
        if others is not None:
            others.is_over = True


def ready_key(rank: int) -> str:
    """Return the key that a learner sets in the store when it is about to join."""
    return f"mlagents/ready/{rank}"


def _store_of_torchrun(place: Place) -> Store:
    waits = timedelta(seconds=START_S)
    try:
        store, *_ = next(dist.rendezvous("env://", place.rank, place.size, timeout=waits))
    except (RuntimeError, ValueError, OSError) as error:
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise LearnerError(
            f"learner {place.rank} cannot reach the other learners at {address} (MASTER_ADDR and "
            f"MASTER_PORT): {str(error).partition(chr(10))[0]}. Start all learners with torchrun, "
            "and make sure that this machine can reach that address."
        ) from error
    return store


def _attempt() -> str:
    """Return a name for this attempt, because torchrun may restart all learners."""
    return f"mlagents/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"


def _joined(
    options: RunOptions, place: Place, device: torch.device, store: Store
) -> tuple[ProcessGroup, RunOptions]:
    is_local = place.n_local == place.size
    group = ProcessGroup(
        store,
        rank=place.rank,
        size=place.size,
        device=device,
        hostname=_LOOPBACK if is_local else None,
    )
    gpu = None
    if device.type == "cuda":
        gpu = [platform.node(), device.index]
    try:
        group.require_same(
            "versions of mlagents-next", __version__, remedy="Install the same everywhere."
        )
        group.require_same(
            "versions of PyTorch",
            torch.__version__.partition("+")[0],
            remedy="Install the same everywhere.",
        )
        first, *_ = settings = group.gather(options.as_dict())
        for rank, other in enumerate(settings):
            _require_same_settings(first, other, rank)
        gpus = group.gather(gpu)
    except LearnerError as error:
        group.leave(str(error))
        raise
    has_gpu_each = None not in gpus and len({json.dumps(each) for each in gpus}) == len(gpus)
    if has_gpu_each:
        group.use_nccl()
    if place.rank:
        options = options.with_seed(first["env_settings"]["seed"])
    carrier = "NCCL" if has_gpu_each else "gloo"
    logger.info(f"{place.size} learners add up their gradients with {carrier}.")
    return group, options


def _require_same_settings(first: Mapping[str, Any], other: Mapping[str, Any], rank: int) -> None:
    ours, theirs = _flat(first), _flat(other)
    for key in sorted(ours.keys() | theirs.keys()):
        if key in _OF_EACH_LEARNER or _is_seed_of_sampler(key):
            continue
        if ours.get(key) != theirs.get(key):
            raise LearnerError(
                f"learners 0 and {rank} have different settings: {key} is {ours.get(key)!r} and "
                f"{theirs.get(key)!r}. Start all learners with the same configuration and flags."
            )


def _is_seed_of_sampler(key: str) -> bool:
    """Return whether a key is the seed of a sampler, which the first learner draws."""
    return key.startswith("environment_parameters.") and key.endswith(".seed")


def _flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(settings, Mapping) and settings:
        return {
            key: value
            for name, each in settings.items()
            for key, value in _flat(each, f"{prefix}.{name}" if prefix else str(name)).items()
        }
    if isinstance(settings, list) and settings:
        return _flat({str(i): each for i, each in enumerate(settings)}, prefix)
    return {prefix: settings}


def _watch_launcher(group: ProcessGroup) -> None:
    """End this learner when the process that started it has ended."""
    launcher = os.getppid()

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(1.0)
        if group.rank:
            os._exit(1)
        group.failure = "torchrun has ended"

    threading.Thread(target=watch, name="watches torchrun", daemon=True).start()


class LocalLearners:
    """Starts and ends the other learners of a run on this machine, one process each.

    A learner ends when its standard input closes, so no learner outlives this process.

    Args:
        options: All settings of the run.
        size: Number of learners, including this process.

    Attributes:
        store: File of the store through which the learners find each other.
        is_over: Whether the run is over, so that the others end by themselves.
    """

    def __init__(self, options: RunOptions, size: int) -> None:
        self._options = options
        self._size = size
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.store = Path()
        self.is_over = False

    def __enter__(self) -> "LocalLearners":
        self._folder = tempfile.TemporaryDirectory(prefix="mlagents-learners-")
        self.store = Path(self._folder.name, "store")
        options = self._options.model_dump(mode="json", exclude={"search"}, exclude_unset=True)
        try:
            for rank in range(1, self._size):
                job = {"options": options, "rank": rank, "size": self._size}
                process = subprocess.Popen(
                    [sys.executable, "-m", "mlagents.trainers.local_learner"],
                    stdin=subprocess.PIPE,
                    start_new_session=True,  # only this process receives Ctrl-C
                )
                self._processes[rank] = process
                assert process.stdin is not None
                written = json.dumps(job | {"store": str(self.store)}) + "\n"
                process.stdin.write(written.encode())
                process.stdin.flush()
        except OSError as error:
            self.close()
            raise LearnerError(f"a learner cannot be started: {error}") from error
        return self

    def wait_until_ready(self, store: Store) -> None:
        """Wait until all other learners are about to join.

        Raises:
            LearnerError: A learner has ended, or is not ready in time.
        """
        deadline_s = time.monotonic() + START_S
        for rank, process in self._processes.items():
            while not store.check([ready_key(rank)]):
                if process.poll() is not None:
                    raise LearnerError(_ended(rank, process))
                if time.monotonic() > deadline_s:
                    raise LearnerError(
                        f"learner {rank} (process {process.pid}) did not start in {START_S:g} s. "
                        "If this machine is busy, use fewer learners (--learners)."
                    )
                time.sleep(0.05)

    def watch(self, group: ProcessGroup) -> None:
        """Report to the group when a learner ends before the run."""
        for rank, process in self._processes.items():
            watch = partial(self._watch, rank, process, group)
            threading.Thread(target=watch, name=f"watches learner {rank}", daemon=True).start()

    def close(self) -> None:
        """End all other learners and wait for them."""
        deadline_s = time.monotonic() + (_END_S if self.is_over else 0.0)
        for process in self._processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline_s - time.monotonic()))
        for process in self._processes.values():
            if process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()
        for process in self._processes.values():
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def _watch(self, rank: int, process: "subprocess.Popen[bytes]", group: ProcessGroup) -> None:
        process.wait()
        if process.returncode and not self.is_over and group.failure is None:
            time.sleep(0.1)  # prefer the cause that the learner itself gives
            group.report(_ended(rank, process))


def _ended(rank: int, process: "subprocess.Popen[bytes]") -> str:
    code = process.returncode
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"learner {rank} (process {process.pid}) {how}"
