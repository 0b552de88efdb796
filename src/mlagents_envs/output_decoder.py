"""`OutputDecoder`: decodes messages without parsing them if their layout is known.

At most steps a simulation sends the same fields of the same agents, with other numbers. If all
other bytes of a message equal those of an earlier one, its numbers are at the same positions. It is
then decoded with one comparison and one copy per column. All other messages, and those with an
error, go to `codec.decode_output`. The results are the same.
"""

import math
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    BehaviorName,
    BehaviorSpec,
    BoolArray,
    DecisionSteps,
    FloatArray,
    IntArray,
    TerminalSteps,
)
from mlagents_envs.codec import Output, Steps, decode_output
from mlagents_envs.communicator import Received
from mlagents_envs.images import ImageReading
from mlagents_envs.messages import parse_message

_Bytes = NDArray[np.uint8]

_MAX_LAYOUTS = 8
_MAX_MESSAGE_BYTES = 2**20
"""Above this size a layout saves little, because copying the numbers takes most of the time."""


class OutputDecoder:
    """Decoder of the messages of one simulation.

    Args:
        images: Image format of the simulation.
    """

    def __init__(self, images: ImageReading = ImageReading()) -> None:  # noqa: B008  # immutable
        self._images = images
        self._layouts: dict[int, _Layout] = {}  # by length of the message, oldest first
        self._previous = b""  # the last message that was parsed

    def decode(self, message: Received, specs: Mapping[BehaviorName, BehaviorSpec]) -> Output:
        """Decode a report, with the results and errors of `codec.decode_output`."""
        layout = self._layouts.get(len(message))
        if layout is not None:
            output = layout.read(message)
            if output is not None:
                return output
        message = bytes(message)
        output = decode_output(message, specs, self._images)
        if output.specs:
            self._layouts.clear()  # they lack the new behavior
        elif len(message) == len(self._previous) and not _ends_any(output):
            self._remember(message, output, specs)
        self._previous = message if len(message) <= _MAX_MESSAGE_BYTES else b""
        return output

    def _remember(
        self, message: bytes, output: Output, specs: Mapping[BehaviorName, BehaviorSpec]
    ) -> None:
        layout = _remember_layout(message, output, specs)
        if layout is None or layout.read(self._previous) is None:
            return  # the previous message had another layout, so this one may not occur again
        self._layouts.pop(len(message), None)
        self._layouts[len(message)] = layout
        if len(self._layouts) > _MAX_LAYOUTS:
            del self._layouts[next(iter(self._layouts))]


class _Column(NamedTuple):
    """Positions of the numbers of one field in a message.

    Attributes:
        rows: Rows of the agents that have the field.
        spans: Byte range of each of these agents.
        stride: Distance between neighboring spans in bytes if it is constant, else 0.
    """

    rows: slice | NDArray[np.intp]
    spans: list[slice]
    stride: int

    def read(self, message: Received) -> _Bytes:
        """Return the bytes of all numbers, agent by agent."""
        if self.stride:
            first = self.spans[0]
            shape = len(self.spans), first.stop - first.start
            return np.ndarray(shape, np.uint8, message, first.start, (self.stride, 1)).copy()
        return np.frombuffer(bytearray().join([message[span] for span in self.spans]), np.uint8)


class _Batch(NamedTuple):
    """Layout of the decision steps of one behavior."""

    spec: BehaviorSpec
    agent_id: IntArray
    group_id: IntArray
    obs: list[_Column]
    reward: _Column
    group_reward: _Column
    action_mask: _Column

    def read(self, message: Received) -> DecisionSteps | None:
        """Return the decision steps; None if an observation or a reward is not finite."""
        n_agents = len(self.agent_id)
        obs = [
            np.frombuffer(column.read(message), "<f4").reshape(n_agents, *spec.shape)
            for column, spec in zip(self.obs, self.spec.observation_specs, strict=True)
        ]
        reward = self._read_rewards(self.reward, message)
        group_reward = self._read_rewards(self.group_reward, message)
        for numbers in (*obs, reward, group_reward):
            if np.count_nonzero(np.isfinite(numbers)) != numbers.size:
                return None
        return DecisionSteps(
            obs,
            reward,
            self.agent_id.copy(),
            self._read_masks(message),
            self.group_id.copy(),
            group_reward,
        )

    def _read_rewards(self, column: _Column, message: Received) -> FloatArray:
        if len(column.spans) == len(self.agent_id):
            return np.frombuffer(column.read(message), "<f4")
        rewards = np.zeros(len(self.agent_id), np.float32)
        if column.spans:
            rewards[column.rows] = np.frombuffer(column.read(message), "<f4")
        return rewards

    def _read_masks(self, message: Received) -> list[BoolArray] | None:
        branches = self.spec.action_spec.discrete_branches
        if not branches:
            return None
        forbidden = np.zeros((len(self.agent_id), sum(branches)), np.bool_)
        if self.action_mask.spans:
            sent = np.frombuffer(self.action_mask.read(message), np.uint8)
            forbidden[self.action_mask.rows] = sent.reshape(-1, sum(branches)) != 0
        ends = np.cumsum(branches).tolist()
        return [forbidden[:, end - size : end] for size, end in zip(branches, ends, strict=True)]


class _Layout(NamedTuple):
    """Positions of the numbers in a message.

    Attributes:
        is_fixed: (bytes,) 0 at bytes of numbers, 0xFF at all others.
        fixed: The message with its numbers set to 0.
        scratch: Buffer for another message with its numbers set to 0.
        masked: (bytes,) View of `scratch`.
        batches: Layouts of the behaviors with agents.
        no_agents: Empty steps of the other behaviors.
    """

    is_fixed: _Bytes
    fixed: bytes
    scratch: bytearray
    masked: _Bytes
    batches: dict[BehaviorName, _Batch]
    no_agents: dict[BehaviorName, Steps]

    def read(self, message: Received) -> Output | None:
        """Decode a message of the same length; return None if its layout differs."""
        np.bitwise_and(np.frombuffer(message, np.uint8), self.is_fixed, out=self.masked)
        if self.scratch != self.fixed:
            return None
        steps = dict(self.no_agents)
        for name, batch in self.batches.items():
            decisions = batch.read(message)
            if decisions is None:
                return None
            steps[name] = decisions, TerminalSteps.empty(batch.spec)
        return Output({}, steps, b"")


def _remember_layout(
    message: bytes, output: Output, specs: Mapping[BehaviorName, BehaviorSpec]
) -> _Layout | None:
    """Return the layout of a message; None if it has side-channel data, images or unusual numbers.

    To find a column, its numbers are changed and the message is serialized again: the bytes that
    differ belong to the column.
    """
    parsed = parse_message(message)
    agents_of = parsed.unity_output.rl_output.agentInfos
    if output.side_channel or parsed.SerializeToString() != message:
        return None  # side-channel messages, fields in another order, or unpacked numbers
    original = np.frombuffer(message, np.uint8)
    is_fixed = np.full(len(message), 0xFF, np.uint8)

    def find(agents: list[Any], change: Callable[[Any], int]) -> _Column:
        """Find a column; `change` flips each byte of an agent's numbers and returns their count."""
        sizes = np.array([change(agent) for agent in agents])
        changed = np.flatnonzero(np.frombuffer(parsed.SerializeToString(), np.uint8) != original)
        for agent in agents:
            change(agent)  # restores the numbers
        is_fixed[changed] = 0
        rows = np.flatnonzero(sizes)
        starts = changed[np.cumsum(sizes)[rows] - sizes[rows]]
        spans = [slice(start, start + n) for start, n in zip(starts, sizes[rows], strict=True)]
        distances = set(np.diff(starts).tolist()) if len(set(sizes[rows].tolist())) == 1 else set()
        stride = distances.pop() if len(distances) == 1 else 0
        return _Column(slice(None) if len(rows) == len(agents) else rows, spans, stride)

    batches, no_agents = {}, {}
    for name, (decisions, terminals) in output.steps.items():
        agents = list(agents_of[name].value) if name in agents_of else []
        if not agents:
            no_agents[name] = decisions, terminals
            continue
        spec = specs[name]
        if not all(_is_common(agent, spec) for agent in agents):
            return None
        batches[name] = _Batch(
            spec=spec,
            agent_id=decisions.agent_id.copy(),
            group_id=decisions.group_id.copy(),
            obs=[
                find(agents, partial(_change_observation, i))
                for i in range(len(spec.observation_specs))
            ],
            reward=find(agents, partial(_change_float, "reward")),
            group_reward=find(agents, partial(_change_float, "group_reward")),
            action_mask=find(agents, _change_mask),
        )
    scratch = bytearray(len(message))
    masked = np.frombuffer(scratch, np.uint8)
    fixed = (original & is_fixed).tobytes()
    return _Layout(is_fixed, fixed, scratch, masked, batches, no_agents)


def _ends_any(output: Output) -> bool:
    return any(len(terminals) for _, terminals in output.steps.values())


def _is_common(agent: Any, spec: BehaviorSpec) -> bool:
    """Return whether `_change_...` can change all numbers of an agent; images are excluded."""
    return (
        all(_is_ordinary(reward) for reward in (agent.reward, agent.group_reward))
        and len(agent.action_mask) in (0, sum(spec.action_spec.discrete_branches))
        and all(
            len(observation.shape) < 3 and math.prod(observation.shape)
            for observation in spec.observation_specs
        )
    )


def _is_ordinary(number: float) -> bool:
    """Return whether a float32 can be changed by `_flipped` without becoming 0 or infinite."""
    return number == 0.0 or 1e-30 < abs(number) < 1e30


def _change_observation(index: int, agent: Any) -> int:
    numbers = agent.observations[index].float_data
    numbers.data = _flipped(numbers.data)
    return len(numbers.data)


def _change_float(field_name: str, agent: Any) -> int:
    number = getattr(agent, field_name)
    if number == 0.0:
        return 0  # zeros are not serialized
    (flipped,) = _FLOAT.unpack(_flipped(_FLOAT.pack(number)))
    setattr(agent, field_name, flipped)
    return _FLOAT.size


def _change_mask(agent: Any) -> int:
    agent.action_mask = _flipped(agent.action_mask)
    return len(agent.action_mask)


_FLOAT = struct.Struct("<f")


def _flipped(numbers: bytes) -> bytes:
    """Flip the lowest bit of every byte; a second call restores them."""
    return (np.frombuffer(numbers, np.uint8) ^ 1).tobytes()
