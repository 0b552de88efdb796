"""Encoding and decoding of the messages in `.demo` files: metadata, brain parameters, records.

Records have the same format as agents and actions on the wire, so they are encoded and decoded like
one message of many agents. `docs/demonstrations.md` describes the format.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorName,
    BehaviorSpec,
    DecisionSteps,
    DimensionProperty,
    TerminalSteps,
)
from mlagents_envs.codec import Command, Input, Output, decode_input, decode_output, encode_output
from mlagents_envs.demonstration_records import (
    API_VERSION,
    ActionPlacement,
    DemonstrationMetadata,
    DemonstrationRecords,
)
from mlagents_envs.exception import (
    UnityDemonstrationException,
    UnityNonFiniteException,
)
from mlagents_envs.images import ImageLayout, ImageReading
from mlagents_envs.messages import (
    STATUS_OK,
    AgentActionProto,
    AgentInfoActionPairProto,
    BrainParametersProto,
    DemonstrationMetaProto,
    UnityMessageProto,
    field,
    pack_int32,
    parse_message,
    unpack_int32,
    varint,
)

BRAIN_PARAMETERS_OFFSET = 33
"""Position of the brain parameters in the file, in bytes."""

_READABLE_VERSIONS = (0, API_VERSION)
_MAX_NAME_LENGTH = 16
_MAX_VARINT_BYTES = 5  # bytes of an encoded length

_F32 = np.dtype("<f4")

_DISCRETE, _CONTINUOUS = 0, 1  # SpaceTypeProto
_CHANNEL_LAST = [
    DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
    DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
    DimensionProperty.NONE,
]

_T = TypeVar("_T", bound=np.generic)


def message_at(kind: Any, data: bytes, start: int, what: str) -> tuple[Any, int]:
    """Decode a length-prefixed message; return it and its end position."""
    span = _span(data, start, what)
    try:
        return kind.FromString(data[span]), span.stop
    except DecodeError:
        raise UnityDemonstrationException(
            f"cannot decode the {span.stop - span.start} bytes of {what} at byte {span.start}"
        ) from None


def _span(data: bytes, start: int, what: str) -> slice:
    """Return the byte range of a length-prefixed message, without its length."""
    size = shift = 0
    for at in range(start, start + _MAX_VARINT_BYTES):
        if at >= len(data):
            raise _cut_short(data, what)
        size |= (data[at] & 0x7F) << shift
        shift += 7
        if data[at] < 0x80:
            break
    else:
        raise UnityDemonstrationException(f"the length of {what} at byte {start} is malformed")
    end = at + 1 + size
    if end > len(data):
        raise _cut_short(data, what)
    return slice(at + 1, end)


def _cut_short(data: bytes, what: str) -> UnityDemonstrationException:
    return UnityDemonstrationException(f"the file ends within {what}, after {len(data)} bytes")


def delimited(message: bytes) -> bytes:
    """Return a message with its length as prefix."""
    return varint(len(message)) + message


def pairs_from(data: bytes, at: int, number_steps: int) -> Iterator[Any]:
    """Yield the message of each record, starting at byte `at`."""
    for number in range(number_steps):
        what = f"record {number + 1} of {number_steps}"
        pair, at = message_at(AgentInfoActionPairProto, data, at, what)
        yield pair


def placement_of(data: bytes, at: int, number_steps: int) -> ActionPlacement:
    """Return the placement of actions: Unity's recorder repeats the metadata after the last record.

    Args:
        data: Content of the file.
        at: Position of the first record, in bytes.
        number_steps: Number of records.
    """
    for _ in range(number_steps):
        at = _span(data, at, "a record").stop
    metadata = data[_span(data, 0, "the metadata")]
    is_unitys = data.startswith(metadata, at)
    return ActionPlacement.NEXT_RECORD if is_unitys else ActionPlacement.SAME_RECORD


def decode_metadata(message: Any) -> DemonstrationMetadata:
    """Return the metadata of a file.

    Raises:
        UnityDemonstrationException: The version of the format is unknown.
    """
    if message.api_version not in _READABLE_VERSIONS:
        raise UnityDemonstrationException(
            f"the version of the format is {message.api_version}, expected one of "
            f"{_READABLE_VERSIONS}; the file may not be a demonstration"
        )
    return DemonstrationMetadata(
        message.demonstration_name,
        message.number_steps,
        message.number_episodes,
        message.mean_reward,
        message.api_version,
    )


def encode_metadata(metadata: DemonstrationMetadata) -> bytes:
    """Encode the metadata, padded with zeros up to the brain parameters."""
    message = DemonstrationMetaProto(
        api_version=metadata.api_version,
        demonstration_name=metadata.name,
        number_steps=metadata.number_steps,
        number_episodes=metadata.number_episodes,
        mean_reward=metadata.mean_reward,
    ).SerializeToString()
    return delimited(message).ljust(BRAIN_PARAMETERS_OFFSET, b"\0")


def shorten(name: str, number_steps: int, number_episodes: int) -> str:
    """Return a name without invalid characters, shortened to fit into the metadata."""
    # The metadata also has a length byte, the version, the reward and four tags or lengths.
    numbers = len(varint(number_steps)) + len(varint(number_episodes))
    room = BRAIN_PARAMETERS_OFFSET - 1 - 2 - 5 - 4 - numbers
    kept = [letter for letter in name if letter.isascii() and (letter.isalnum() or letter in " -")]
    return "".join(kept)[: min(_MAX_NAME_LENGTH, room)]


def encode_brain_parameters(behavior_name: BehaviorName, spec: ActionSpec) -> bytes:
    """Encode the action specification, also in the deprecated fields."""
    sizes: Sequence[int] = ()  # the deprecated fields do not support hybrid actions
    if spec.is_continuous():
        sizes = (spec.continuous_size,)
    elif spec.continuous_size == 0:
        sizes = spec.discrete_branches
    n_actions = spec.continuous_size if spec.is_continuous() else len(sizes)
    message: bytes = BrainParametersProto(
        vector_action_size_deprecated=sizes,
        vector_action_descriptions_deprecated=[""] * n_actions,
        vector_action_space_type_deprecated=_CONTINUOUS if spec.is_continuous() else _DISCRETE,
        brain_name=behavior_name,
        action_spec={
            "num_continuous_actions": spec.continuous_size,
            "num_discrete_actions": spec.discrete_size,
            "discrete_branch_sizes": spec.discrete_branches,
        },
    ).SerializeToString()
    return message


# Records.


def layout_of(first: Any) -> ImageLayout:
    """Return the layout of images in a file, from its first record.

    Unity's packages before 3.0 wrote channels last. Packages since 1.8 write the properties of each
    axis, older ones write none.
    """
    for observation in first.agent_info.observations:
        flags = unpack_int32(observation.dimension_properties)
        if len(unpack_int32(observation.shape)) == 3 and (not flags or flags == _CHANNEL_LAST):
            return ImageLayout.CHANNEL_LAST
    return ImageLayout.NUMBERS_CHANNEL_LAST


def decode_spec(announcement: Any, first: Any, images: ImageReading) -> BehaviorSpec:
    """Decode the specification of the behavior, with the observations of the first record."""
    message = _output([first], announcement.brain_name)
    message.unity_output.rl_initialization_output.brain_parameters.append(announcement)
    output = decode_output(message.SerializeToString(), {}, images)
    return output.specs[announcement.brain_name]


def decode_records(
    pairs: Sequence[Any], behavior_name: BehaviorName, spec: BehaviorSpec, images: ImageReading
) -> DemonstrationRecords:
    """Decode records into columns, each with the action stored in the same record."""
    message = _output(pairs, behavior_name).SerializeToString()
    output = decode_output(message, {behavior_name: spec}, images)
    asking, ended = output.steps[behavior_name]
    done = np.array([pair.agent_info.done for pair in pairs], np.bool_)

    def in_order(going: NDArray[_T], gone: NDArray[_T]) -> NDArray[_T]:
        column = np.empty((len(done), *going.shape[1:]), going.dtype)
        column[~done], column[done] = going, gone
        return column

    masks = None
    if spec.action_spec.discrete_branches:
        masks = [np.zeros((len(done), n), np.bool_) for n in spec.action_spec.discrete_branches]
        for mask, of_asking in zip(masks, asking.action_mask or (), strict=False):
            mask[~done] = of_asking
    return DemonstrationRecords(
        obs=[in_order(*batches) for batches in zip(asking.obs, ended.obs, strict=True)],
        action=_decode_actions(pairs, behavior_name, spec),
        action_mask=masks,
        reward=in_order(asking.reward, ended.reward),
        done=done,
        interrupted=in_order(np.zeros(len(asking), np.bool_), ended.interrupted),
        agent_id=in_order(asking.agent_id, ended.agent_id),
        group_id=in_order(asking.group_id, ended.group_id),
        group_reward=in_order(asking.group_reward, ended.group_reward),
    )


def with_actions_moved_back(records: DemonstrationRecords) -> DemonstrationRecords:
    """Return the records, each with the action of its agent's next record."""
    by_agent = np.argsort(records.agent_id, kind="stable")
    is_same = np.diff(records.agent_id[by_agent]) == 0
    from_row = np.arange(len(by_agent))
    from_row[by_agent[:-1][is_same]] = by_agent[1:][is_same]
    action = ActionTuple(records.action.continuous[from_row], records.action.discrete[from_row])
    return records._replace(action=action)


def _output(pairs: Sequence[Any], behavior_name: BehaviorName) -> Any:
    """Build the message that contains the agents of all records."""
    message = UnityMessageProto(header={"status": STATUS_OK})
    agents = message.unity_output.rl_output.agentInfos[behavior_name].value
    agents.extend(pair.agent_info for pair in pairs)
    return message


def _decode_actions(
    pairs: Sequence[Any], behavior_name: BehaviorName, spec: BehaviorSpec
) -> ActionTuple:
    message = UnityMessageProto(header={"status": STATUS_OK})
    message.unity_input.rl_input.command = Command.STEP
    actions = message.unity_input.rl_input.agent_actions[behavior_name].value
    actions.extend(_in_current_fields(pair.action_info, spec.action_spec) for pair in pairs)
    answer: Input = decode_input(message.SerializeToString(), {behavior_name: spec})
    action = answer.actions[behavior_name]
    if not np.isfinite(action.continuous).all():
        raise UnityDemonstrationException("a continuous action is NaN or infinite")
    branches = spec.action_spec.discrete_branches
    if branches and ((action.discrete < 0) | (action.discrete >= branches)).any():
        raise UnityDemonstrationException(
            f"a discrete action is out of range: the branches have the sizes {branches}, the "
            f"actions go from {action.discrete.min(axis=0).tolist()} to "
            f"{action.discrete.max(axis=0).tolist()}"
        )
    return action


def _in_current_fields(action: Any, spec: ActionSpec) -> Any:
    """Move the actions of older recordings from the deprecated field to the current ones."""
    legacy = action.vector_actions_deprecated
    if legacy and not action.continuous_actions and not action.discrete_actions:
        if spec.continuous_size:
            action.continuous_actions = legacy
        else:
            action.discrete_actions = pack_int32(_choices(legacy))
    return action


def _choices(legacy: bytes) -> list[int]:
    """Decode discrete actions that are stored as floats."""
    if len(legacy) % _F32.itemsize == 0:
        numbers: list[float] = np.frombuffer(legacy, _F32).tolist()
        if all(number.is_integer() and abs(number) < 2**31 for number in numbers):
            return [int(number) for number in numbers]
    raise UnityDemonstrationException(
        f"discrete actions are not whole numbers: {legacy[:32].hex(' ')}"
    )


def encode_records(
    behavior_name: BehaviorName, spec: BehaviorSpec, records: DemonstrationRecords
) -> Iterator[bytes]:
    """Encode records; yield each with its length as prefix."""
    spec.action_spec.check(records.action, len(records.done), behavior=behavior_name)
    _require_finite(behavior_name, spec, records)
    ended, going = np.flatnonzero(records.done), np.flatnonzero(~records.done)
    steps = _decision_steps(records, going), _terminal_steps(records, ended)
    message = encode_output(Output({}, {behavior_name: steps}, b""), {behavior_name: spec})
    agents = parse_message(message).unity_output.rl_output.agentInfos[behavior_name].value
    # The message lists the terminal steps first.
    place = np.empty(len(records.done), np.intp)
    place[np.concatenate([ended, going])] = np.arange(len(place))
    continuous = np.ascontiguousarray(records.action.continuous, _F32)
    for row, at in enumerate(place.tolist()):
        action = AgentActionProto(
            continuous_actions=continuous[row].tobytes(),
            discrete_actions=pack_int32(records.action.discrete[row].tolist()),
        )
        yield delimited(
            field(1, agents[at].SerializeToString()) + field(2, action.SerializeToString())
        )


def _require_finite(
    behavior_name: BehaviorName, spec: BehaviorSpec, records: DemonstrationRecords
) -> None:
    """Check that all numbers are finite; the error names the agent and the number."""
    observed = [f"observation {one.name!r}" for one in spec.observation_specs]
    columns: Iterator[tuple[str, NDArray[Any]]] = zip(
        [*observed, "continuous action", "reward", "group reward"],
        [*records.obs, records.action.continuous, records.reward, records.group_reward],
        strict=True,
    )
    for what, column in columns:
        if np.isfinite(column).all():
            continue
        numbers = column.reshape(len(column), -1)
        row, place = np.argwhere(~np.isfinite(numbers))[0].tolist()
        raise UnityNonFiniteException(
            f"behavior {behavior_name!r}, record {row} of {len(column)}, counted from 0: agent "
            f"{records.agent_id[row]} has {numbers[row, place]} at index {place} of its {what}"
        )


def _decision_steps(records: DemonstrationRecords, rows: NDArray[np.intp]) -> DecisionSteps:
    masks = records.action_mask if len(rows) else None
    return DecisionSteps(
        obs=[_as_written(batch[rows]) for batch in records.obs],
        reward=records.reward[rows],
        agent_id=records.agent_id[rows],
        action_mask=None if masks is None else [mask[rows] for mask in masks],
        group_id=records.group_id[rows],
        group_reward=records.group_reward[rows],
    )


def _terminal_steps(records: DemonstrationRecords, rows: NDArray[np.intp]) -> TerminalSteps:
    return TerminalSteps(
        obs=[_as_written(batch[rows]) for batch in records.obs],
        reward=records.reward[rows],
        interrupted=records.interrupted[rows],
        agent_id=records.agent_id[rows],
        group_id=records.group_id[rows],
        group_reward=records.group_reward[rows],
    )


def _as_written(batch: NDArray[Any]) -> NDArray[Any]:
    """Return uncompressed images in Unity's order, channels last, with their shape unchanged."""
    if batch.ndim == 4 and batch.dtype != np.uint8:
        return batch.transpose(0, 2, 3, 1).reshape(batch.shape)
    return batch


def concatenate(batches: Sequence[DemonstrationRecords]) -> DemonstrationRecords:
    """Return the records of several batches as one batch."""
    if len(batches) == 1:
        return batches[0]
    masks = [batch.action_mask for batch in batches if batch.action_mask is not None]
    return DemonstrationRecords(
        obs=[np.concatenate(column) for column in zip(*(b.obs for b in batches), strict=True)],
        action=ActionTuple(
            np.concatenate([batch.action.continuous for batch in batches]),
            np.concatenate([batch.action.discrete for batch in batches]),
        ),
        action_mask=[np.concatenate(branch) for branch in zip(*masks, strict=True)] or None,
        reward=np.concatenate([batch.reward for batch in batches]),
        done=np.concatenate([batch.done for batch in batches]),
        interrupted=np.concatenate([batch.interrupted for batch in batches]),
        agent_id=np.concatenate([batch.agent_id for batch in batches]),
        group_id=np.concatenate([batch.group_id for batch in batches]),
        group_reward=np.concatenate([batch.group_reward for batch in batches]),
    )
