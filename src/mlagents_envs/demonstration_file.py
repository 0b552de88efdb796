"""Reads and writes `.demo` files: play recorded as observations, actions and rewards.

    metadata │ zeros up to byte 33 │ brain parameters │ record │ record │ ...

A record is what one agent reported and an action; see `ActionPlacement` for which one. On the wire
a list of agents and a list of actions have the same elements, so the records are decoded and
encoded as if they had come in one message of many agents. Source: wire protocol, section 5.
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

# How much is decoded at once: a message has limits.
_BATCH_RECORDS = 10_000
_BATCH_NUMBERS = 2**24
_MAX_NUMBERS = 2**31
"""How many numbers a file may hold in all: some bytes of an image can stand for very many."""


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
    metadata = decode_metadata(message_at(DemonstrationMetaProto, data, 0, "the metadata")[0])
    announcement, at = message_at(
        BrainParametersProto, data, BRAIN_PARAMETERS_OFFSET, "the brain parameters"
    )
    behavior_name = announcement.brain_name
    pairs = pairs_from(data, at, metadata.number_steps)
    first = next(pairs, None)
    if first is None:
        raise UnityDemonstrationException(
            "the file holds no records: nothing was recorded, or the recorder was not closed"
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
                f"{metadata.number_steps} records of {n_numbers} numbers each are too many; record "
                "several files"
            )
    records = concatenate(batches)
    if action_placement is None:
        action_placement = placement_of(data, at, metadata.number_steps)
    if action_placement is ActionPlacement.NEXT_RECORD:
        records = with_actions_moved_back(records)
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
                bytes(BRAIN_PARAMETERS_OFFSET)
                + delimited(encode_brain_parameters(behavior_name, spec.action_spec))
            )
        except OSError:
            self._pending.discard()
            raise

    @property
    def metadata(self) -> DemonstrationMetadata:
        """What the head of the file would say of what was written so far."""
        episodes = self._number_ended + 1
        return DemonstrationMetadata(
            name=shorten(self._name, self._number_steps, episodes),
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
        self._write(b"".join(encode_records(self.behavior_name, self.spec, records)))
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
            self._pending.file.write(encode_metadata(self.metadata))
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
