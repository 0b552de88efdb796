"""Reader and writer of `.demo` files, which contain recorded observations, actions and rewards.

    metadata │ zeros up to byte 33 │ brain parameters │ record │ record │ ...

A record is the report of one agent and an action; `ActionPlacement` tells which action. Records
have the same format as agents and actions on the wire, so they are encoded and decoded like one
message of many agents. `docs/demonstrations.md` describes the format.
"""

import itertools
import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from mlagents_envs.atomic_file import PendingFile, with_path
from mlagents_envs.base_env import (
    BehaviorName,
    BehaviorSpec,
)
from mlagents_envs.closing import Closing
from mlagents_envs.demonstration_codec import (
    BRAIN_PARAMETERS_OFFSET,
    concatenate,
    decode_metadata,
    decode_records,
    decode_spec,
    delimited,
    encode_brain_parameters,
    encode_metadata,
    encode_records,
    layout_of,
    message_at,
    pairs_from,
    placement_of,
    shorten,
    with_actions_moved_back,
)
from mlagents_envs.demonstration_records import (
    API_VERSION,
    ActionPlacement,
    Demonstration,
    DemonstrationMetadata,
    DemonstrationRecords,
)
from mlagents_envs.exception import (
    UnityDemonstrationException,
    UnityException,
)
from mlagents_envs.images import ImageLayout, ImageReading
from mlagents_envs.messages import (
    BrainParametersProto,
    DemonstrationMetaProto,
    message_class_of_repeated_numbers,
)

__all__ = [
    "API_VERSION",
    "SUFFIX",
    "ActionPlacement",
    "Demonstration",
    "DemonstrationMetadata",
    "DemonstrationRecords",
    "DemonstrationWriter",
    "decode_demonstration",
    "demonstration_path",
    "read_demonstration",
    "read_demonstration_messages",
    "write_demonstration",
]

SUFFIX = ".demo"

# Records and numbers to decode at once, because the size of a message is limited.
_BATCH_RECORDS = 10_000
_BATCH_NUMBERS = 2**24
_MAX_NUMBERS = 2**31
"""Limit of numbers in a file, because a few bytes of a compressed image can contain many."""


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
        image_layout: Order of the axes of images in the file; None to detect it from the
            properties of the axes. Specifications and arrays are always (C, H, W).
        keep_8_bit_images: Whether compressed images become uint8 instead of float32 in [0, 1].
        action_placement: Record that contains the action for an observation; None to detect it
            from the end of the file, where Unity's recorder repeats the metadata.

    Raises:
        UnityDemonstrationException: The file is not a demonstration, is truncated, or contains no
            records.
        OSError: The file cannot be opened.
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
    """Decode the content of a `.demo` file.

    Args:
        data: Content of the file.
        image_layout: Order of the axes of images; see `read_demonstration`.
        keep_8_bit_images: Whether compressed images become uint8 instead of float32 in [0, 1].
        action_placement: Record that contains the action for an observation; see
            `read_demonstration`.

    Raises:
        UnityDemonstrationException: The data is not a demonstration, is truncated, or contains no
            records.
        UnityException: A record breaks the protocol; `codec.decode_output` has the errors.
    """
    metadata = decode_metadata(message_at(DemonstrationMetaProto, data, 0, "the metadata")[0])
    announcement, at = message_at(
        BrainParametersProto, data, BRAIN_PARAMETERS_OFFSET, "the brain parameters"
    )
    behavior_name = announcement.brain_name
    pairs = pairs_from(data, at, metadata.number_steps)
    first = next(pairs, None)
    if first is None:
        raise UnityDemonstrationException(
            "the file contains no records: nothing was recorded, or the recorder was not closed"
        )
    layout = layout_of(first) if image_layout is None else image_layout
    images = ImageReading(layout, keep_8_bit_images)
    spec = decode_spec(announcement, first, images)

    pairs = itertools.chain([first], pairs)
    n_numbers = sum(math.prod(observation.shape) for observation in spec.observation_specs)
    n_numbers += spec.action_spec.continuous_size + sum(spec.action_spec.discrete_branches)
    n_records = max(min(_BATCH_RECORDS, _BATCH_NUMBERS // max(n_numbers, 1)), 1)
    batches = []
    while batch := list(itertools.islice(pairs, n_records)):
        batches.append(decode_records(batch, behavior_name, spec, images))
        if len(batches) * n_records * n_numbers > _MAX_NUMBERS:
            raise UnityDemonstrationException(
                f"{metadata.number_steps} records of {n_numbers} numbers each exceed the limit of "
                f"{_MAX_NUMBERS} numbers; record several files"
            )
    records = concatenate(batches)
    if action_placement is None:
        action_placement = placement_of(data, at, metadata.number_steps)
    if action_placement is ActionPlacement.NEXT_RECORD:
        records = with_actions_moved_back(records)
    return Demonstration(metadata, behavior_name, spec, records, action_placement)


def read_demonstration_messages(path: str | os.PathLike[str]) -> tuple[Any, list[Any], int]:
    """Read the messages of a `.demo` file, with numbers as repeated fields.

    Returns:
        `BrainParametersProto`, one `AgentInfoActionPairProto` for each record, and the number of
        records in the metadata.

    Raises:
        UnityDemonstrationException: The file is not a demonstration, or is truncated.
        OSError: The file cannot be opened.
    """
    data = Path(path).read_bytes()
    try:
        metadata = decode_metadata(message_at(DemonstrationMetaProto, data, 0, "the metadata")[0])
        announcement, at = message_at(
            BrainParametersProto, data, BRAIN_PARAMETERS_OFFSET, "the brain parameters"
        )
        pairs = list(pairs_from(data, at, metadata.number_steps))
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
    """Write a complete `.demo` file; see `DemonstrationWriter`."""
    with DemonstrationWriter(path, behavior_name, spec, name=name) as writer:
        writer.append(records)


class DemonstrationWriter(Closing):
    """Writer of a `.demo` file to which records can be appended.

        with DemonstrationWriter("expert.demo", behavior_name, spec) as writer:
            writer.append(records)

    The file appears at `path` when the writer is closed, so other programs see a complete file or
    none. It replaces an existing file. If there are no records, no file is written.

    Args:
        path: Path of the file, ending in `.demo`.
        behavior_name: Behavior of the recorded agents.
        spec: Specification of the behavior.
        name: Name stored in the file; by default the file name without its suffix. Only letters,
            digits, spaces and hyphens are kept, at most 16, or fewer if the metadata is too long.

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
        # Unbuffered, so that after an error no data is left in a buffer.
        self._pending = PendingFile(self.path, buffering=0)
        self._size = 0
        try:
            self._write(
                bytes(BRAIN_PARAMETERS_OFFSET)
                + delimited(encode_brain_parameters(behavior_name, spec.action_spec))
            )
        except OSError:
            self._pending.discard()
            raise

    @property
    def metadata(self) -> DemonstrationMetadata:
        """Metadata of the file, if it were closed now."""
        episodes = self._number_ended + 1
        return DemonstrationMetadata(
            name=shorten(self._name, self._number_steps, episodes),
            number_steps=self._number_steps,
            number_episodes=episodes,
            mean_reward=self._sum_of_rewards / episodes,
        )

    def append(self, records: DemonstrationRecords) -> None:
        """Append records to the file.

        Raises:
            UnityActionException: The shape of the actions does not match the specification.
            UnityNonFiniteException: A number is NaN or infinite.
            UnityDemonstrationException: The writer is closed.
            OSError: The records cannot be written, for example because the disk is full. None of
                them is in the file; earlier records are not affected.
        """
        if self._pending.file.closed:
            raise UnityDemonstrationException(f"{self.path} is closed; create a new writer")
        self._write(b"".join(encode_records(self.behavior_name, self.spec, records)))
        self._number_steps += len(records.done)
        self._number_ended += int(records.done.sum())
        self._sum_of_rewards += float(records.reward.sum(dtype=np.float64))

    def close(self) -> None:
        """Complete the file and move it to its path. Calling it again does nothing.

        Raises:
            OSError: The file cannot be completed. It is deleted.
        """
        if self._pending.file.closed:
            return
        if not self._number_steps:
            self._pending.discard()
            return
        try:
            self._pending.file.seek(0)
            self._pending.file.write(encode_metadata(self.metadata))
            self._pending.file.truncate(self._size)
        except OSError as error:
            self._pending.discard()
            raise with_path(self.path, error) from error
        self._pending.keep()

    def _write(self, data: bytes) -> None:
        """Append the data completely, or nothing after an error."""
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
    """Return the path of a demonstration to write, and check its suffix.

    Raises:
        UnityDemonstrationException: The path does not end in `.demo`.
    """
    if Path(path).suffix != SUFFIX:
        raise UnityDemonstrationException(
            f"{os.fspath(path)}: the name of a demonstration must end in {SUFFIX}, the suffix that "
            "trainers search for"
        )
    return Path(path)
