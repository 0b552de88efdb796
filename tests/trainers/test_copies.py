"""An observation is copied at most four times between the socket and a minibatch.

The test sends messages along the whole path and counts copies by the memory that they take:
allocations as large as the observations, as `tracemalloc` and PyTorch's dispatcher see them.
"""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mlagents.trainers.acting.collector import Collector
from mlagents.trainers.algorithms.ppo import PPO, Batch
from mlagents.trainers.data.decision import Decision
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import (
    ActionSpec,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
    TerminalSteps,
)
from mlagents_envs.codec import Output, encode_output
from mlagents_envs.http2 import ClientConnection, Message, ServerConnection
from mlagents_envs.output_decoder import OutputDecoder

N_AGENTS, N_FLOATS, HORIZON = 16, 1024, 6
NAME = "B?team=0"
SPEC = BehaviorSpec([ObservationSpec.vector(N_FLOATS, "a")], ActionSpec.create_continuous(1))
OF_STEP = N_AGENTS * N_FLOATS * 4
"""Bytes of the observations of one step."""
OF_UPDATE = OF_STEP * HORIZON
"""Bytes of the observations of one update."""

T = TypeVar("T")


def allocated(work: Callable[[], T], size: int) -> tuple[T, int]:
    """Return the result of `work` and how many arrays of `size` bytes it held at once."""
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    result = work()
    _, peak = tracemalloc.get_traced_memory()
    return result, round((peak - before) / size)


def large_blocks() -> int:
    """Return how many blocks of memory are held that have room for an update's observations."""
    return sum(trace.size >= OF_UPDATE for trace in tracemalloc.take_snapshot().traces)


class Simulation:
    """Sends steps with random observations, and answers what HTTP/2 asks for."""

    def __init__(self) -> None:
        self.trainer = ServerConnection()
        self._client = ClientConnection("localhost:1")
        self._rng = np.random.default_rng(0)
        self.trainer.receive_data(self._client.bytes_to_send())
        self._client.receive_data(self.trainer.bytes_to_send())  # frames may be large

    def step(self) -> bytes:
        """Return the bytes that arrive at the trainer with the next step."""
        if self.trainer.awaits_response:
            self.trainer.respond(b"")
            self._client.receive_data(self.trainer.bytes_to_send())
        obs = self._rng.random((N_AGENTS, N_FLOATS), np.float32)
        reward = self._rng.random(N_AGENTS, np.float32)
        steps = DecisionSteps.of([obs], reward, range(N_AGENTS)), TerminalSteps.empty(SPEC)
        self._client.request(encode_output(Output({}, {NAME: steps}, b""), {NAME: SPEC}))
        return self._client.bytes_to_send()


class Copies(TorchDispatchMode):
    """Counts tensors as large as the observations of an update that operations create."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        held = {t.untyped_storage().data_ptr() for t in args if isinstance(t, torch.Tensor)}
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.untyped_storage().data_ptr() not in held:
            self.n += result.nbytes >= OF_UPDATE
        return result


@contextmanager
def watched_minibatches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """Yield the address of the observations and the copies made, for every minibatch taken."""
    taken: list[tuple[int, int]] = []
    take = Batch.take

    def watched(self: Batch, rows: torch.Tensor) -> Batch:
        with Copies() as copies:
            part = take(self, rows)
        taken.append((self.obs[0].data_ptr(), copies.n))
        return part

    with monkeypatch.context() as patch:
        patch.setattr(Batch, "take", watched)
        yield taken


def decision() -> Decision:
    """Return zeros for all agents."""
    action = SPEC.action_spec.empty_action(N_AGENTS)
    log_probs, memory = np.zeros((N_AGENTS, 1), np.float32), np.zeros((N_AGENTS, 0), np.float32)
    return Decision(action, action.continuous, action.discrete, log_probs, 0.0, memory)


def test_an_observation_is_copied_four_times_from_the_socket_to_a_minibatch(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    n_steps = N_AGENTS * HORIZON
    settings = BehaviorSettings.model_validate(
        {
            "trainer_type": "ppo",
            "hyperparameters": {"batch_size": n_steps, "buffer_size": n_steps, "num_epoch": 1},
            "network_settings": {"hidden_units": 4, "num_layers": 1},
        }
    )
    simulation, decoder = Simulation(), OutputDecoder()
    ppo = PPO(SPEC, settings, device=torch.device("cpu"), seed=1)
    for _ in range(2):  # after which the decoder knows the layout
        (message,) = simulation.trainer.receive_data(simulation.step())
        assert isinstance(message, Message)
        decoder.decode(message.data, {NAME: SPEC})

    request.addfinalizer(tracemalloc.stop)
    tracemalloc.start()
    collector = Collector(SPEC, time_horizon=HORIZON, n_expected=n_steps)
    for step in range(HORIZON + 1):
        receive = partial(simulation.trainer.receive_data, simulation.step())
        (message,), in_http2 = allocated(receive, OF_STEP)
        decode = partial(decoder.decode, message.data, {NAME: SPEC})
        output, in_decoder = allocated(decode, OF_STEP)
        observe = partial(collector.observe, 0, *output.steps[NAME])
        # The first call makes lanes. The last one ends segments and keeps the observations after.
        lanes, in_observe = allocated(observe, OF_UPDATE if step == HORIZON else OF_STEP)
        collector.record(lanes, np.zeros((N_AGENTS, 0), np.bool_), decision())
        assert in_observe == 0 or step == 0
    in_collector = large_blocks()
    segments, n_new = allocated(collector.take, OF_UPDATE)
    assert n_new == 1, "room for the next segments"
    assert segments is not None and segments.n_steps == n_steps

    tracemalloc.stop()
    with watched_minibatches(monkeypatch) as taken:
        ppo.update(segments, np.zeros((n_steps, 1), np.float32), step=0)
    ((address, in_minibatch),) = taken
    assert address == segments.obs[0].ctypes.data, "the update reads the collector's arrays"

    # From the wire to an array, to a lane, to a segment, to a minibatch.
    counted = (in_http2, in_decoder, in_collector, in_minibatch)
    assert counted == (0, 1, 2, 1)
