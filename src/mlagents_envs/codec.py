"""Pairs of pure functions that encode and decode specifications, steps and actions.

    simulation ──Output──► encode_output ──bytes──► decode_output ──Output──► trainer
    simulation ◄──Input─── decode_input ◄──bytes─── encode_input ◄──Input─── trainer

Both sides keep the specifications announced so far and pass them in. `docs/protocol.md` describes
the messages.

For speed, numbers are never processed one by one. The protobuf library returns the floats of each
observation as one slice of bytes (see protobuf-definitions/README.md), and one join and one
`numpy.frombuffer` make a batch. The encoder writes each field for all agents at once. Observations
are in `observation_codec.py`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache, partial
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np
from google.protobuf.unknown_fields import UnknownFieldSet
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorName,
    BehaviorSpec,
    BoolArray,
    DecisionSteps,
    FloatArray,
    IntArray,
    ObservationSpec,
    TerminalSteps,
    check_behavior_name,
)
from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityNonFiniteException,
    UnityObservationException,
)
from mlagents_envs.images import ImageReading
from mlagents_envs.messages import (
    STATUS_CLOSED,
    STATUS_OK,
    AgentActionProto,
    AgentInfoProto,
    BrainParametersProto,
    UnityMessageProto,
    field,
    pack_int32,
    parse_message,
    repack,
    unpack_int32,
    varint,
)
from mlagents_envs.observation_codec import (
    F32,
    decode_observation_spec,
    decode_observations,
    encode_observations,
    float_rows,
)

Steps = tuple[DecisionSteps, TerminalSteps]

_Decoded = TypeVar("_Decoded")

# Larger sizes indicate a corrupt message. Checked before any memory is allocated.
_MAX_ACTION_SIZE = 2**16
_MAX_MASK_BYTES = 2**28


class Output(NamedTuple):
    """Report of a simulation after a reset or a step.

    Attributes:
        specs: Specifications of the behaviors that this message announces.
        steps: Decision steps and terminal steps of every behavior announced so far.
        side_channel: Messages of side channels.
    """

    specs: dict[BehaviorName, BehaviorSpec]
    steps: dict[BehaviorName, Steps]
    side_channel: bytes


class Command(IntEnum):
    """Command of a trainer to a simulation."""

    STEP = 0
    RESET = 1
    QUIT = 2


class Input(NamedTuple):
    """Answer of a trainer to an `Output`.

    Attributes:
        command: Command to execute.
        actions: One row for each agent that requested an action, in the order of the `Output`.
        side_channel: Messages of side channels.
    """

    command: Command
    actions: dict[BehaviorName, ActionTuple]
    side_channel: bytes


def encode_output(output: Output, specs: Mapping[BehaviorName, BehaviorSpec]) -> bytes:
    """Encode the report of a simulation.

    An action mask that forbids nothing is omitted.

    Args:
        output: Report with the steps of every behavior announced so far. Announce a behavior in
            the first report that contains one of its agents.
        specs: Specifications of the behaviors announced before.
    """
    known = {**specs, **output.specs}
    entries = [
        field(2, field(1, name.encode()) + field(2, _encode_steps(known[name], *steps)))
        for name, steps in output.steps.items()
    ]
    if output.side_channel:
        entries.append(field(3, output.side_channel))
    announcements = [
        field(5, _encode_announcement(name, spec.action_spec))
        for name, spec in output.specs.items()
    ]
    content = field(1, b"".join(entries))
    if announcements:
        content += field(2, b"".join(announcements))
    return _OK + field(2, content)


def decode_output(
    message: bytes,
    specs: Mapping[BehaviorName, BehaviorSpec],
    images: ImageReading = ImageReading(),  # noqa: B008  # immutable
) -> Output:
    """Decode the report of a simulation.

    Args:
        message: Received bytes.
        specs: Specifications of the behaviors announced before.
        images: Image format; by default the format that `encode_output` writes.

    Raises:
        UnityCommunicatorStoppedException: The simulation ended the session.
        UnityCommunicationException: The message breaks the protocol.
        UnityObservationException: An observation does not have the announced specification.
        UnityNonFiniteException: An observation or a reward is NaN or infinite.
        UnityEnvironmentException: A behavior's name is not a valid folder name; or images are
            compressed, and no library that decodes them is installed.
    """
    return _decode_packed_or_not(partial(_decode_output, images=images), message, specs)


def encode_input(answer: Input) -> bytes:
    """Encode the answer of a trainer."""
    entries = [
        field(1, field(1, name.encode()) + field(2, _encode_actions(action)))
        for name, action in answer.actions.items()
    ]
    if answer.command:
        entries.append(b"\x20" + varint(answer.command))
    if answer.side_channel:
        entries.append(field(5, answer.side_channel))
    return _OK + field(3, field(1, b"".join(entries)))


def decode_input(message: bytes, specs: Mapping[BehaviorName, BehaviorSpec]) -> Input:
    """Decode the answer of a trainer.

    Args:
        message: Received bytes.
        specs: Specifications of the behaviors announced before.

    Raises:
        UnityCommunicatorStoppedException: The trainer ended the session.
        UnityCommunicationException: The message breaks the protocol.
    """
    return _decode_packed_or_not(_decode_input, message, specs)


def encode_close() -> bytes:
    """Encode the last message of either side; it decodes to `UnityCommunicatorStoppedException`."""
    closing: bytes = UnityMessageProto(header={"status": STATUS_CLOSED}).SerializeToString()
    return closing


_OK: bytes = UnityMessageProto(header={"status": STATUS_OK}).SerializeToString()


# Specs.


def _encode_announcement(behavior: BehaviorName, action_spec: ActionSpec) -> bytes:
    announcement: bytes = BrainParametersProto(
        brain_name=behavior,
        is_training=True,
        action_spec={
            "num_continuous_actions": action_spec.continuous_size,
            "num_discrete_actions": action_spec.discrete_size,
            "discrete_branch_sizes": action_spec.discrete_branches,
        },
    ).SerializeToString()
    return announcement


def _decode_spec(announcement: Any, first_agent: Any, images: ImageReading) -> BehaviorSpec:
    """Decode the specification of a behavior, whose observations are those of its first agent."""
    behavior = announcement.brain_name
    check_behavior_name(behavior)
    observation_specs = [
        decode_observation_spec(observation, f"behavior {behavior!r}, observation {index}", images)
        for index, observation in enumerate(first_agent.observations)
    ]
    return BehaviorSpec(observation_specs, _decode_action_spec(announcement))


_DISCRETE, _CONTINUOUS = 0, 1  # SpaceTypeProto


def _decode_action_spec(announcement: Any) -> ActionSpec:
    behavior, announced = announcement.brain_name, announcement.action_spec
    continuous_size = announced.num_continuous_actions
    branches = tuple(announced.discrete_branch_sizes)
    if continuous_size == announced.num_discrete_actions == 0:
        # Simulations of API 1.2 and older use the fields from before hybrid actions.
        sizes = tuple(announcement.vector_action_size_deprecated)
        kind = announcement.vector_action_space_type_deprecated
        if kind == _CONTINUOUS:
            continuous_size, branches = (sizes[0] if sizes else 0), ()
        elif kind == _DISCRETE:
            branches = sizes
        else:
            raise UnityCommunicationException(
                f"behavior {behavior!r} announces an unknown kind of actions: expected "
                f"{_DISCRETE} or {_CONTINUOUS}, got {kind}"
            )
    elif len(branches) != announced.num_discrete_actions:
        raise UnityCommunicationException(
            f"behavior {behavior!r} announces {announced.num_discrete_actions} discrete branches, "
            f"but the sizes of {len(branches)}"
        )
    if (
        continuous_size < 0
        or min(branches, default=1) < 1
        or continuous_size + sum(branches) > _MAX_ACTION_SIZE
    ):
        raise UnityCommunicationException(
            f"behavior {behavior!r} announces {continuous_size} continuous actions and discrete "
            f"branches of sizes {branches[:8]}; each size must be at least 1, and the sum of all "
            f"at most {_MAX_ACTION_SIZE}"
        )
    return ActionSpec(continuous_size, branches)


# Steps.


def _decode_output(
    message: bytes, specs: Mapping[BehaviorName, BehaviorSpec], *, images: ImageReading
) -> Output:
    output = parse_message(message).unity_output
    agents = {name: list(of.value) for name, of in output.rl_output.agentInfos.items()}
    announced = {
        announcement.brain_name: _decode_spec(
            announcement, agents[announcement.brain_name][0], images
        )
        for announcement in output.rl_initialization_output.brain_parameters
        if agents.get(announcement.brain_name)
    }
    steps = {
        name: _decode_steps(agents.get(name, ()), spec, name, images)
        for name, spec in {**specs, **announced}.items()
    }
    return Output(announced, steps, output.rl_output.side_channel)


def _decode_steps(
    agents: Sequence[Any], spec: BehaviorSpec, behavior: BehaviorName, images: ImageReading
) -> Steps:
    if not agents:
        return DecisionSteps.empty(spec), TerminalSteps.empty(spec)
    rewards = [agent.reward for agent in agents]
    group_rewards = [agent.group_reward for agent in agents]
    if not math.isfinite(sum(rewards) + sum(group_rewards)):
        _refuse_rewards(agents, behavior)

    # Each batch is built for all agents, then split into decision steps and terminal steps.
    obs = decode_observations(agents, spec.observation_specs, behavior, images)
    reward = np.array(rewards, np.float32)
    agent_id = np.array([agent.id for agent in agents], np.int32)
    group_id = np.array([agent.group_id for agent in agents], np.int32)
    group_reward = np.array(group_rewards, np.float32)
    ended = [agent.done for agent in agents]
    going: Any = slice(None)
    gone: Any = slice(0, 0)
    if all(ended):
        going, gone = gone, going
    elif any(ended):
        gone, going = np.flatnonzero(ended), np.flatnonzero(np.logical_not(ended))
    asking = [agent for agent in agents if not agent.done]
    interrupted = [agent.max_step_reached for agent in agents if agent.done]
    return (
        DecisionSteps(
            obs=[batch[going] for batch in obs],
            reward=reward[going],
            agent_id=agent_id[going],
            action_mask=_decode_masks(asking, spec.action_spec.discrete_branches),
            group_id=group_id[going],
            group_reward=group_reward[going],
        ),
        TerminalSteps(
            obs=[batch[gone] for batch in obs],
            reward=reward[gone],
            interrupted=np.array(interrupted, np.bool_),
            agent_id=agent_id[gone],
            group_id=group_id[gone],
            group_reward=group_reward[gone],
        ),
    )


def _decode_masks(asking: Sequence[Any], branches: tuple[int, ...]) -> list[BoolArray] | None:
    """Return one (N, size) array per branch, True where an action is not allowed.

    An absent mask, or one of the wrong length, allows every action.
    """
    if not asking or not branches:
        return None
    width = sum(branches)
    if len(asking) * width > _MAX_MASK_BYTES:
        raise UnityCommunicationException(
            f"too many action masks: {len(asking)} agents with {width} discrete actions each are "
            f"more than {_MAX_MASK_BYTES}"
        )
    nothing = bytes(width)
    masks = [agent.action_mask for agent in asking]
    if not all(masks):
        _refuse_unpacked(asking, "action_mask")
    joined = bytearray().join([mask if len(mask) == width else nothing for mask in masks])
    forbidden = np.frombuffer(joined, np.uint8).reshape(len(asking), width) != 0
    ends = np.cumsum(branches).tolist()
    return [forbidden[:, end - size : end] for size, end in zip(branches, ends, strict=True)]


def _refuse_rewards(agents: Sequence[Any], behavior: BehaviorName) -> NoReturn:
    agent = next(a for a in agents if not math.isfinite(a.reward + a.group_reward))
    raise UnityNonFiniteException(
        f"behavior {behavior!r}: agent {agent.id} has the reward {agent.reward} and the group "
        f"reward {agent.group_reward}; both must be finite"
    )


def _encode_steps(spec: BehaviorSpec, decisions: DecisionSteps, terminals: TerminalSteps) -> bytes:
    """Encode the agents of a behavior: first the terminal steps, then the decision steps."""
    ends = [_INTERRUPTED if ended else _ENDED for ended in terminals.interrupted.tolist()]
    return _encode_agents(
        spec.observation_specs, terminals, ends, [b""] * len(terminals)
    ) + _encode_agents(
        spec.observation_specs, decisions, [b""] * len(decisions), _encode_masks(decisions)
    )


_ENDED: bytes = AgentInfoProto(done=True).SerializeToString()
_INTERRUPTED: bytes = AgentInfoProto(done=True, max_step_reached=True).SerializeToString()


def _encode_agents(
    specs: Sequence[ObservationSpec],
    steps: DecisionSteps | TerminalSteps,
    ends: list[bytes],
    masks: list[bytes],
) -> bytes:
    """Encode agents, the fields of each in the order of their numbers."""
    if not len(steps):
        return b""
    agents = zip(
        _encode_floats(7, steps.reward),
        ends,
        _encode_ids(10, steps.agent_id),
        masks,
        *encode_observations(specs, steps.obs),
        _encode_ids(14, steps.group_id),
        _encode_floats(15, steps.group_reward),
        strict=True,
    )
    return b"".join([field(1, b"".join(fields)) for fields in agents])


def _encode_floats(number: int, values: FloatArray) -> list[bytes]:
    """Return the encoded float field of every agent; zeros are omitted."""
    if not values.any():
        return [b""] * len(values)
    key, zero = bytes((number << 3 | 5,)), bytes(F32.itemsize)
    return [b"" if row == zero else key + row for row in float_rows(values)]


def _encode_ids(number: int, ids: IntArray) -> list[bytes]:
    """Return the encoded integer field of every agent; zeros are omitted."""
    key = bytes((number << 3,))
    return [key + varint(value) if value else b"" for value in ids.tolist()]


def _encode_masks(decisions: DecisionSteps) -> list[bytes]:
    """Return the encoded mask of every agent; a mask that forbids nothing is omitted."""
    if decisions.action_mask is None:
        return [b""] * len(decisions)
    forbidden = np.concatenate(decisions.action_mask, axis=1)
    return [field(11, row.tobytes()) if row.any() else b"" for row in forbidden]


# Actions.


def _encode_actions(action: ActionTuple) -> bytes:
    """Encode actions, one message per agent."""
    continuous, discrete = action.continuous, action.discrete
    n_agents, continuous_size = continuous.shape
    discrete_size = discrete.shape[1]
    if discrete_size and (discrete.view(np.uint32) >= 0x80).any():  # some take more than a byte
        return _encode_large_actions(continuous, discrete)
    zeros, record = _zero_actions(continuous_size, discrete_size)
    messages = np.repeat(zeros, n_agents, axis=0)  # (N, bytes of one message)
    numbers = messages.view(record)[:, 0]
    # Simulations of API 1.2 and older read all actions as floats, from the first field.
    if continuous_size:
        numbers["legacy"][:, :continuous_size] = continuous
        numbers["continuous"] = continuous
    if discrete_size:
        numbers["legacy"][:, continuous_size:] = discrete
        numbers["discrete"] = discrete
    return messages.tobytes()


@lru_cache
def _zero_actions(
    continuous_size: int, discrete_size: int
) -> tuple[NDArray[np.uint8], np.dtype[np.void]]:
    """Return the message of all-zero actions, (1, bytes), and the record type of its numbers."""
    legacy_bytes = (continuous_size + discrete_size) * F32.itemsize
    continuous_bytes = continuous_size * F32.itemsize
    legacy, continuous, discrete = (
        message.SerializeToString()
        for message in (
            AgentActionProto(vector_actions_deprecated=bytes(legacy_bytes)),
            AgentActionProto(continuous_actions=bytes(continuous_bytes)),
            AgentActionProto(discrete_actions=bytes(discrete_size)),
        )
    )
    message = field(1, legacy + continuous + discrete)
    continuous_end = len(message) - len(discrete)
    legacy_end = continuous_end - len(continuous)
    record = np.dtype(
        {
            "names": ["legacy", "continuous", "discrete"],
            "formats": [
                f"({continuous_size + discrete_size},)<f4",
                f"({continuous_size},)<f4",
                f"({discrete_size},)u1",
            ],
            "offsets": [
                legacy_end - legacy_bytes,
                continuous_end - continuous_bytes,
                len(message) - discrete_size,
            ],
            "itemsize": len(message),
        }
    )
    return np.frombuffer(message, np.uint8)[np.newaxis], record


def _encode_large_actions(continuous: FloatArray, discrete: IntArray) -> bytes:
    """Encode actions, of which some discrete ones take more than one byte."""
    legacy = np.concatenate([continuous, discrete], axis=1, dtype=F32)
    return b"".join(
        field(
            1,
            AgentActionProto(
                vector_actions_deprecated=legacy[row].tobytes(),
                continuous_actions=continuous[row].tobytes(),
                discrete_actions=pack_int32(discrete[row].tolist()),
            ).SerializeToString(),
        )
        for row in range(len(discrete))
    )


def _decode_input(message: bytes, specs: Mapping[BehaviorName, BehaviorSpec]) -> Input:
    answer = parse_message(message).unity_input
    if not answer.HasField("rl_input"):
        raise UnityCommunicationException("the trainer's message has no rl_input")
    rl_input = answer.rl_input
    try:
        command = Command(rl_input.command)
    except ValueError:
        raise UnityCommunicationException(f"unknown command {rl_input.command}") from None
    actions = {}
    for behavior, of in rl_input.agent_actions.items():
        if behavior not in specs:
            raise UnityCommunicationException(
                f"the trainer sent actions for behavior {behavior!r}, which was not announced; "
                f"announced behaviors: {sorted(specs)}"
            )
        actions[behavior] = _decode_actions(of.value, specs[behavior].action_spec, behavior)
    return Input(command, actions, rl_input.side_channel)


def _decode_actions(agents: Sequence[Any], spec: ActionSpec, behavior: BehaviorName) -> ActionTuple:
    """Decode one row per agent; if continuous or discrete actions are absent, they are zero."""
    row_bytes = spec.continuous_size * F32.itemsize
    continuous = _action_rows(agents, "continuous_actions", bytes(row_bytes))
    discrete = _action_rows(agents, "discrete_actions", bytes(spec.discrete_size))
    choices = [unpack_int32(row) for row in discrete]
    if set(map(len, continuous)) - {row_bytes} or set(map(len, choices)) - {spec.discrete_size}:
        raise UnityCommunicationException(
            f"behavior {behavior!r}: expected {spec.continuous_size} continuous actions and "
            f"{spec.discrete_size} discrete ones for each agent, got "
            f"{[len(row) / F32.itemsize for row in continuous]} and {[*map(len, choices)]}"
        )
    return ActionTuple(
        np.frombuffer(bytearray().join(continuous), F32).reshape(len(agents), spec.continuous_size),
        np.array(choices, np.int32).reshape(len(agents), spec.discrete_size),
    )


def _action_rows(agents: Sequence[Any], field_name: str, zeros: bytes) -> list[bytes]:
    rows = [getattr(agent, field_name) for agent in agents]
    if zeros and not all(rows):
        _refuse_unpacked(agents, field_name)
        rows = [row or zeros for row in rows]
    return rows


# Peers that do not pack.


def _decode_packed_or_not(
    decode: Callable[[bytes, Mapping[BehaviorName, BehaviorSpec]], _Decoded],
    message: bytes,
    specs: Mapping[BehaviorName, BehaviorSpec],
) -> _Decoded:
    """Decode a message; if that fails, pack all its repeated numbers and decode it again."""
    try:
        return decode(message, specs)
    except (UnityCommunicationException, UnityObservationException):
        repacked = repack(message)
        if repacked == message:
            raise
    return decode(repacked, specs)


def _refuse_unpacked(messages: Sequence[Any], field_name: str) -> None:
    """Raise if a field of repeated numbers looks absent because it is not packed."""
    number = messages[0].DESCRIPTOR.fields_by_name[field_name].number
    for message in messages:
        unknown = UnknownFieldSet(message)
        if any(unknown[index].field_number == number for index in range(len(unknown))):
            raise UnityCommunicationException(f"{field_name} is not packed")
