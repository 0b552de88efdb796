"""Reads and writes `.demo` files: play recorded as observations, actions and rewards.

    metadata │ zeros up to byte 33 │ brain parameters │ record │ record │ ...

A record is what one agent reported and an action; see `ActionPlacement` for which one. On the wire
a list of agents and a list of actions have the same elements, so the records are decoded and
encoded as if they had come in one message of many agents. Source: wire protocol, section 5.
"""

import itertools
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from mlagents_envs.atomic_file import PendingFile, with_path
from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorName,
    BehaviorSpec,
    BoolArray,
    DecisionSteps,
    DimensionProperty,
    FloatArray,
    IntArray,
    TerminalSteps,
)
from mlagents_envs.closing import Closing
from mlagents_envs.codec import Command, Input, Output, decode_input, decode_output, encode_output
from mlagents_envs.exception import (
    UnityDemonstrationException,
    UnityException,
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
    message_class_of_repeated_numbers,
    pack_int32,
    parse_message,
    unpack_int32,
    varint,
)

SUFFIX = ".demo"

API_VERSION = 1
_READABLE_VERSIONS = (0, API_VERSION)

_BRAIN_PARAMETERS_OFFSET = 33
_MAX_NAME_LENGTH = 16
_MAX_VARINT_BYTES = 5  # of a length

# How much is decoded at once: a message has limits.
_BATCH_RECORDS = 10_000
_BATCH_NUMBERS = 2**24
_MAX_NUMBERS = 2**31
"""How many numbers a file may hold in all: some bytes of an image can stand for very many."""

_F32 = np.dtype("<f4")

_DISCRETE, _CONTINUOUS = 0, 1  # SpaceTypeProto
_CHANNEL_LAST = [
    DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
    DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
    DimensionProperty.NONE,
]

_T = TypeVar("_T", bound=np.generic)


class DemonstrationMetadata(NamedTuple):
    """What a file says of itself at its head.

    Attributes:
        name: What it is called, at most 16 letters, digits, blanks and hyphens.
        number_steps: Number of records.
        number_episodes: Number of records that end an episode, and one more for the end of the
            recording.
        mean_reward: Sum of all rewards by `number_episodes`.
        api_version: Version of the file format.
    """

    name: str
    number_steps: int
    number_episodes: int
    mean_reward: float
    api_version: int = API_VERSION


class ActionPlacement(Enum):
    """Which record of a file keeps the action taken at the observation of record t.

    Unity's recorder stores the action that an agent still carries out when it observes, which it
    chose one record earlier. At its end such a file repeats its metadata. Files without this
    repetition were written by this project, by a trainer's own tools or by Unity's first packages.
    They keep each action beside its observation.
    """

    SAME_RECORD = 0
    """Record t."""

    NEXT_RECORD = 1
    """Record t + 1 of the same agent."""


class DemonstrationRecords(NamedTuple):
    """T records, in columns: one for every decision, and one for every end of an episode.

    Records have the order of the file: usually episodes follow each other, but agents may have
    recorded by turns; see `episodes`. The action of a record is the one taken at its observation,
    wherever the file keeps it, and its reward the one that came before it. Within an episode, a
    step of experience is observation t, mask t, action t, reward t+1. The action of an episode's
    last record means nothing.

    Attributes:
        obs: One array per observation, (T, *shape).
        action: (T, A) and (T, K).
        action_mask: One (T, size) array per discrete branch, True where an action is *not*
            allowed; None where there are no discrete actions.
        reward: (T,) float32, since the record before.
        done: (T,) bool, whether the episode ended here.
        interrupted: (T,) bool, whether a clock ended it rather than the task.
        agent_id: (T,) int32.
        group_id: (T,) int32, 0 for no group.
        group_reward: (T,) float32, since the record before.
    """

    obs: list[NDArray[Any]]
    action: ActionTuple
    action_mask: list[BoolArray] | None
    reward: FloatArray
    done: BoolArray
    interrupted: BoolArray
    agent_id: IntArray
    group_id: IntArray
    group_reward: FloatArray

    def episodes(self) -> list[NDArray[np.intp]]:
        """Return the rows of each episode, in the order in which episodes begin.

        An episode ends at its agent's first record that is `done`, or with its agent's last one.
        """
        by_agent = np.argsort(self.agent_id, kind="stable")
        agent_id, done = self.agent_id[by_agent], self.done[by_agent]
        begins = np.flatnonzero((agent_id[1:] != agent_id[:-1]) | done[:-1]) + 1
        episodes = (rows for rows in np.split(by_agent, begins) if len(rows))
        return sorted(episodes, key=lambda rows: int(rows[0]))


class Demonstration(NamedTuple):
    """A whole file.

    Attributes:
        metadata: Metadata stored in the file.
        behavior_name: Behavior of the recorded agents.
        spec: Observations and actions of the behavior.
        records: Recorded observations and actions.
        action_placement: Where the file keeps actions; `records` has them beside what was observed.
    """

    metadata: DemonstrationMetadata
    behavior_name: BehaviorName
    spec: BehaviorSpec
    records: DemonstrationRecords
    action_placement: ActionPlacement = ActionPlacement.SAME_RECORD


def read_demonstration(
    path: str | os.PathLike[str],
    *,
    image_layout: ImageLayout | None = None,
    keep_8_bit_images: bool = False,
    action_placement: ActionPlacement | None = None,
) -> Demonstration:
    """Read a `.demo` file.

    Args:
        path: Path of the file.
        image_layout: In which order the file has the axes of images; specs and arrays are
            (C, H, W). None to tell by what the file says of the axes.
        keep_8_bit_images: Whether compressed images become uint8 rather than float32 in [0, 1].
        action_placement: Which record keeps the action taken at an observation. None to tell by
            whether the file ends as Unity's recorder ends it.

    Raises:
        UnityDemonstrationException: The file is not a demonstration, is cut short or holds no
            records.
        OSError: It cannot be opened.
    """
    data = Path(path).read_bytes()
    try:
        return decode_demonstration(
            data,
            image_layout=image_layout,
            keep_8_bit_images=keep_8_bit_images,
            action_placement=action_placement,
        )
    except UnityException as error:
        raise UnityDemonstrationException(f"{os.fspath(path)}: {error}") from error


def decode_demonstration(
    data: bytes,
    *,
    image_layout: ImageLayout | None = None,
    keep_8_bit_images: bool = False,
    action_placement: ActionPlacement | None = None,
) -> Demonstration:
    """Read the content of a `.demo` file.

    Args:
        data: The content.
        image_layout: As for `read_demonstration`.
        keep_8_bit_images: As for `read_demonstration`.
        action_placement: As for `read_demonstration`.

    Raises:
        UnityDemonstrationException: The data is not a demonstration, is cut short or holds no
            records.
        UnityException: A record breaks the protocol, as `codec.decode_output` raises it.
    """
    metadata = _decode_metadata(_message(DemonstrationMetaProto, data, 0, "the metadata")[0])
    announcement, at = _message(
        BrainParametersProto, data, _BRAIN_PARAMETERS_OFFSET, "the brain parameters"
    )
    behavior_name = announcement.brain_name
    pairs = _pairs(data, at, metadata.number_steps)
    first = next(pairs, None)
    if first is None:
        raise UnityDemonstrationException(
            "the file holds no records: nothing was recorded, or the recorder was not closed"
        )
    layout = _layout_of(first) if image_layout is None else image_layout
    images = ImageReading(layout, keep_8_bit_images)
    spec = _decode_spec(announcement, first, images)

    pairs = itertools.chain([first], pairs)
    n_numbers = sum(math.prod(observation.shape) for observation in spec.observation_specs)
    n_numbers += spec.action_spec.continuous_size + sum(spec.action_spec.discrete_branches)
    n_records = max(min(_BATCH_RECORDS, _BATCH_NUMBERS // max(n_numbers, 1)), 1)
    batches = []
    while batch := list(itertools.islice(pairs, n_records)):
        batches.append(_decode_records(batch, behavior_name, spec, images))
        if len(batches) * n_records * n_numbers > _MAX_NUMBERS:
            raise UnityDemonstrationException(
                f"{metadata.number_steps} records of {n_numbers} numbers each are too many; record "
                "several files"
            )
    records = _concatenate(batches)
    if action_placement is None:
        action_placement = _placement_of(data, at, metadata.number_steps)
    if action_placement is ActionPlacement.NEXT_RECORD:
        records = _with_actions_moved_back(records)
    return Demonstration(metadata, behavior_name, spec, records, action_placement)


def read_demonstration_messages(path: str | os.PathLike[str]) -> tuple[Any, list[Any], int]:
    """Read a `.demo` file as the messages it consists of, their numbers as repeated fields.

    Returns:
        `BrainParametersProto`, one `AgentInfoActionPairProto` for each record, and the number of
        records that the head of the file tells.

    Raises:
        UnityDemonstrationException: The file is not a demonstration, or is cut short.
        OSError: The file cannot be opened.
    """
    data = Path(path).read_bytes()
    try:
        metadata = _decode_metadata(_message(DemonstrationMetaProto, data, 0, "the metadata")[0])
        announcement, at = _message(
            BrainParametersProto, data, _BRAIN_PARAMETERS_OFFSET, "the brain parameters"
        )
        pairs = list(_pairs(data, at, metadata.number_steps))
    except UnityException as error:
        raise UnityDemonstrationException(f"{os.fspath(path)}: {error}") from error
    of_numbers = message_class_of_repeated_numbers("AgentInfoActionPairProto")
    messages = [of_numbers.FromString(pair.SerializeToString()) for pair in pairs]
    return announcement, messages, metadata.number_steps


def write_demonstration(
    path: str | os.PathLike[str],
    behavior_name: BehaviorName,
    spec: BehaviorSpec,
    records: DemonstrationRecords,
    *,
    name: str | None = None,
) -> None:
    """Write a `.demo` file at once; see `DemonstrationWriter`."""
    with DemonstrationWriter(path, behavior_name, spec, name=name) as writer:
        writer.append(records)


class DemonstrationWriter(Closing):
    """Writes a `.demo` file piece by piece.

        with DemonstrationWriter("expert.demo", behavior_name, spec) as writer:
            writer.append(records)

    The file appears at `path` when the writer is closed, so other programs see a complete file or
    none. An existing file of that name is replaced. Without any record, no file is written.

    Args:
        path: Path of the file; it ends in `.demo`.
        behavior_name: Behavior of the recorded agents.
        spec: Observations and actions of the behavior.
        name: Name stored in the file; by default the name in `path`. Letters, digits, blanks
            and hyphens are kept, 16 of them at most, or fewer if the head has no room for them.

    Raises:
        UnityDemonstrationException: The path does not end in `.demo`.
        OSError: The file cannot be written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        behavior_name: BehaviorName,
        spec: BehaviorSpec,
        *,
        name: str | None = None,
    ) -> None:
        self.path = demonstration_path(path)
        self.behavior_name, self.spec = behavior_name, spec
        self._name = self.path.stem if name is None else name
        self._number_steps = self._number_ended = 0
        self._sum_of_rewards = 0.0
        # Unbuffered: after an error nothing waits that could not be written either.
        self._pending = PendingFile(self.path, buffering=0)
        self._size = 0
        try:
            self._write(
                bytes(_BRAIN_PARAMETERS_OFFSET)
                + _delimited(_encode_brain_parameters(behavior_name, spec.action_spec))
            )
        except OSError:
            self._pending.discard()
            raise

    @property
    def metadata(self) -> DemonstrationMetadata:
        """What the head of the file would say of what was written so far."""
        episodes = self._number_ended + 1
        return DemonstrationMetadata(
            name=_shorten(self._name, self._number_steps, episodes),
            number_steps=self._number_steps,
            number_episodes=episodes,
            mean_reward=self._sum_of_rewards / episodes,
        )

    def append(self, records: DemonstrationRecords) -> None:
        """Write more records.

        Raises:
            UnityActionException: Their actions do not fit the behavior.
            UnityNonFiniteException: Something in them is NaN or infinite.
            UnityDemonstrationException: The writer is closed.
            OSError: The disk is full; none of these records is written, those before are.
        """
        if self._pending.file.closed:
            raise UnityDemonstrationException(f"{self.path} is closed; make a new writer")
        self._write(b"".join(_encode_records(self.behavior_name, self.spec, records)))
        self._number_steps += len(records.done)
        self._number_ended += int(records.done.sum())
        self._sum_of_rewards += float(records.reward.sum(dtype=np.float64))

    def close(self) -> None:
        """Finish the file and give it its name. Calling it again does nothing.

        Raises:
            OSError: It cannot be finished; nothing of it is left.
        """
        if self._pending.file.closed:
            return
        if not self._number_steps:
            self._pending.discard()
            return
        try:
            self._pending.file.seek(0)
            self._pending.file.write(_encode_metadata(self.metadata))
            self._pending.file.truncate(self._size)
        except OSError as error:
            self._pending.discard()
            raise with_path(self.path, error) from error
        self._pending.keep()

    def _write(self, data: bytes) -> None:
        """Append all of the data, or none of it."""
        file = self._pending.file
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except BaseException as error:
            with suppress(OSError):
                file.seek(self._size)
                file.truncate()
            if isinstance(error, OSError):
                raise with_path(self.path, error) from error
            raise
        self._size += len(data)


def demonstration_path(path: str | os.PathLike[str]) -> Path:
    """Return where a demonstration can be written.

    Raises:
        UnityDemonstrationException: The path does not end in `.demo`.
    """
    if Path(path).suffix != SUFFIX:
        raise UnityDemonstrationException(
            f"{os.fspath(path)}: a demonstration is named *{SUFFIX}, or no trainer finds it"
        )
    return Path(path)


# The parts of a file.


def _message(kind: Any, data: bytes, start: int, what: str) -> tuple[Any, int]:
    """Read a message that has its length before it; return it and where it ends."""
    span = _span(data, start, what)
    try:
        return kind.FromString(data[span]), span.stop
    except DecodeError:
        raise UnityDemonstrationException(
            f"the {span.stop - span.start} bytes of {what}, from byte {span.start} on, cannot be "
            "read"
        ) from None


def _span(data: bytes, start: int, what: str) -> slice:
    """Return the bytes of a message that has its length before it."""
    size = shift = 0
    for at in range(start, start + _MAX_VARINT_BYTES):
        if at >= len(data):
            raise _cut_short(data, what)
        size |= (data[at] & 0x7F) << shift
        shift += 7
        if data[at] < 0x80:
            break
    else:
        raise UnityDemonstrationException(f"the length of {what}, at byte {start}, is not a number")
    end = at + 1 + size
    if end > len(data):
        raise _cut_short(data, what)
    return slice(at + 1, end)


def _cut_short(data: bytes, what: str) -> UnityDemonstrationException:
    return UnityDemonstrationException(f"the file ends, after {len(data)} bytes, within {what}")


def _delimited(message: bytes) -> bytes:
    return varint(len(message)) + message


def _pairs(data: bytes, at: int, number_steps: int) -> Iterator[Any]:
    """Yield the messages of all records."""
    for number in range(number_steps):
        what = f"record {number + 1} of {number_steps}"
        pair, at = _message(AgentInfoActionPairProto, data, at, what)
        yield pair


def _placement_of(data: bytes, at: int, number_steps: int) -> ActionPlacement:
    """Tell from what follows the last record: Unity's recorder repeats the metadata there.

    Args:
        data: The content of a file.
        at: Where its first record begins.
        number_steps: Number of its records.
    """
    for _ in range(number_steps):
        at = _span(data, at, "a record").stop
    metadata = data[_span(data, 0, "the metadata")]
    is_unitys = data.startswith(metadata, at)
    return ActionPlacement.NEXT_RECORD if is_unitys else ActionPlacement.SAME_RECORD


def _decode_metadata(message: Any) -> DemonstrationMetadata:
    if message.api_version not in _READABLE_VERSIONS:
        raise UnityDemonstrationException(
            f"version {message.api_version} of the format is unknown, {_READABLE_VERSIONS} are "
            "known; or this is not a demonstration"
        )
    return DemonstrationMetadata(
        message.demonstration_name,
        message.number_steps,
        message.number_episodes,
        message.mean_reward,
        message.api_version,
    )


def _encode_metadata(metadata: DemonstrationMetadata) -> bytes:
    """Write the head of a file, up to the brain parameters."""
    message = DemonstrationMetaProto(
        api_version=metadata.api_version,
        demonstration_name=metadata.name,
        number_steps=metadata.number_steps,
        number_episodes=metadata.number_episodes,
        mean_reward=metadata.mean_reward,
    ).SerializeToString()
    return _delimited(message).ljust(_BRAIN_PARAMETERS_OFFSET, b"\0")


def _shorten(name: str, number_steps: int, number_episodes: int) -> str:
    """Return as much of a name as the format allows and the head of the file has room for."""
    # Beside the name there are a byte of length, the version, the reward and four tags or lengths.
    numbers = len(varint(number_steps)) + len(varint(number_episodes))
    room = _BRAIN_PARAMETERS_OFFSET - 1 - 2 - 5 - 4 - numbers
    kept = [letter for letter in name if letter.isascii() and (letter.isalnum() or letter in " -")]
    return "".join(kept)[: min(_MAX_NAME_LENGTH, room)]


def _encode_brain_parameters(behavior_name: BehaviorName, spec: ActionSpec) -> bytes:
    """Write what the agents do, also in the fields from before there were hybrid actions."""
    sizes: Sequence[int] = ()  # of both kinds at once they know nothing
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


def _layout_of(first: Any) -> ImageLayout:
    """Tell how a file has its images: Unity's packages before 3.0 had the channels last.

    Those of 1.8 and later say of each axis what it is; older ones do not.
    """
    for observation in first.agent_info.observations:
        flags = unpack_int32(observation.dimension_properties)
        if len(unpack_int32(observation.shape)) == 3 and (not flags or flags == _CHANNEL_LAST):
            return ImageLayout.CHANNEL_LAST
    return ImageLayout.NUMBERS_CHANNEL_LAST


def _decode_spec(announcement: Any, first: Any, images: ImageReading) -> BehaviorSpec:
    """Make the spec of the behavior; what it observes is told by the first record."""
    message = _output([first], announcement.brain_name)
    message.unity_output.rl_initialization_output.brain_parameters.append(announcement)
    output = decode_output(message.SerializeToString(), {}, images)
    return output.specs[announcement.brain_name]


def _decode_records(
    pairs: Sequence[Any], behavior_name: BehaviorName, spec: BehaviorSpec, images: ImageReading
) -> DemonstrationRecords:
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


def _with_actions_moved_back(records: DemonstrationRecords) -> DemonstrationRecords:
    """Give every record the action of its agent's next record."""
    by_agent = np.argsort(records.agent_id, kind="stable")
    is_same = np.diff(records.agent_id[by_agent]) == 0
    from_row = np.arange(len(by_agent))
    from_row[by_agent[:-1][is_same]] = by_agent[1:][is_same]
    action = ActionTuple(records.action.continuous[from_row], records.action.discrete[from_row])
    return records._replace(action=action)


def _output(pairs: Sequence[Any], behavior_name: BehaviorName) -> Any:
    """Make the message in which all records' agents report at once."""
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
            f"a discrete action does not exist: branches have {branches} choices, the actions go "
            f"from {action.discrete.min(axis=0).tolist()} to {action.discrete.max(axis=0).tolist()}"
        )
    return action


def _in_current_fields(action: Any, spec: ActionSpec) -> Any:
    """Move what older recordings have in one field to those of today."""
    legacy = action.vector_actions_deprecated
    if legacy and not action.continuous_actions and not action.discrete_actions:
        if spec.continuous_size:
            action.continuous_actions = legacy
        else:
            action.discrete_actions = pack_int32(_choices(legacy))
    return action


def _choices(legacy: bytes) -> list[int]:
    """Read choices that are written as floats."""
    if len(legacy) % _F32.itemsize == 0:
        numbers: list[float] = np.frombuffer(legacy, _F32).tolist()
        if all(number.is_integer() and abs(number) < 2**31 for number in numbers):
            return [int(number) for number in numbers]
    raise UnityDemonstrationException(
        f"a discrete action is written as no whole numbers: {legacy[:32].hex(' ')}"
    )


def _encode_records(
    behavior_name: BehaviorName, spec: BehaviorSpec, records: DemonstrationRecords
) -> Iterator[bytes]:
    """Write records, each with its length before it."""
    spec.action_spec.check(records.action, len(records.done), behavior=behavior_name)
    _require_finite(behavior_name, spec, records)
    ended, going = np.flatnonzero(records.done), np.flatnonzero(~records.done)
    steps = _decision_steps(records, going), _terminal_steps(records, ended)
    message = encode_output(Output({}, {behavior_name: steps}, b""), {behavior_name: spec})
    agents = parse_message(message).unity_output.rl_output.agentInfos[behavior_name].value
    # It lists those that ended first.
    place = np.empty(len(records.done), np.intp)
    place[np.concatenate([ended, going])] = np.arange(len(place))
    continuous = np.ascontiguousarray(records.action.continuous, _F32)
    for row, at in enumerate(place.tolist()):
        action = AgentActionProto(
            continuous_actions=continuous[row].tobytes(),
            discrete_actions=pack_int32(records.action.discrete[row].tolist()),
        )
        yield _delimited(
            field(1, agents[at].SerializeToString()) + field(2, action.SerializeToString())
        )


def _require_finite(
    behavior_name: BehaviorName, spec: BehaviorSpec, records: DemonstrationRecords
) -> None:
    """Raise unless all numbers are finite; the text says whose they are, and which."""
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
            f"behavior {behavior_name!r}: agent {records.agent_id[row]} has {numbers[row, place]} "
            f"in its {what}, number {place} of {numbers.shape[1]} in record {row} of "
            f"{len(column)}, counted from 0"
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
    """Turn uncompressed images as Unity writes them, whatever their shape says: channels last."""
    if batch.ndim == 4 and batch.dtype != np.uint8:
        return batch.transpose(0, 2, 3, 1).reshape(batch.shape)
    return batch


def _concatenate(batches: Sequence[DemonstrationRecords]) -> DemonstrationRecords:
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
