"""Encoding and decoding of observations, for `codec.py`.

One join and one `numpy.frombuffer` decode a batch of numbers. Images may be PNG files; see
`images.py`.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    BehaviorName,
    DimensionProperty,
    FloatArray,
    ObservationSpec,
    ObservationType,
)
from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityException,
    UnityNonFiniteException,
    UnityObservationException,
)
from mlagents_envs.images import (
    CHANNELS_PER_FILE,
    ImageReading,
    count_files,
    decode_image,
    encode_image,
    for_each_image,
    stacked_frames,
    to_channel_first,
    to_channel_last,
)
from mlagents_envs.messages import (
    AgentInfoProto,
    ObservationProto,
    field,
    pack_int32,
    unpack_int32,
)

F32 = np.dtype("<f4")
_PNG = 1  # CompressionTypeProto

# Larger sizes indicate a corrupt message. Checked before any memory is allocated.
_MAX_OBSERVATION_SIZE = 2**28
_MAX_IMAGES = 2**28  # numbers in the images of all agents; a small PNG file can contain many


def decode_observation_spec(observation: Any, where: str, images: ImageReading) -> ObservationSpec:
    """Return the specification of an observation from the message of a behavior's first agent.

    Raises:
        UnityCommunicationException: The specification is invalid. The message begins with `where`.
    """
    shape = tuple(unpack_int32(observation.shape))
    largest_part = math.prod(max(size, 1) for size in shape)
    if not 1 <= len(shape) <= 3 or min(shape) < 0 or largest_part > _MAX_OBSERVATION_SIZE:
        raise UnityCommunicationException(
            f"{where} ({observation.name!r}) announces the shape {shape}; expected 1 to 3 sizes, "
            f"none negative, and at most {_MAX_OBSERVATION_SIZE} numbers"
        )
    properties = unpack_int32(observation.dimension_properties) or [0] * len(shape)
    if len(properties) != len(shape) or not all(0 <= flags <= _ALL_FLAGS for flags in properties):
        raise UnityCommunicationException(
            f"{where} ({observation.name!r}) announces the dimension properties {properties} for "
            f"the shape {shape}; expected one set of flags, 0 to {_ALL_FLAGS}, for each size"
        )
    try:
        observation_type = ObservationType(observation.observation_type)
    except ValueError:
        raise UnityCommunicationException(
            f"{where} ({observation.name!r}) announces an unknown observation type: "
            f"{observation.observation_type}"
        ) from None
    is_8_bit = images.keep_8_bit and observation.HasField("compressed_data")
    return ObservationSpec(
        images.in_spec_order(shape),
        images.in_spec_order(tuple(map(DimensionProperty, properties))),
        observation_type,
        observation.name,
        np.dtype(np.uint8 if is_8_bit else np.float32),
    )


_ALL_FLAGS = int(~DimensionProperty.UNSPECIFIED)


def decode_observations(
    agents: Sequence[Any],
    specs: Sequence[ObservationSpec],
    behavior: BehaviorName,
    images: ImageReading,
) -> list[NDArray[Any]]:
    """Return one (N, *shape) array per observation.

    Raises:
        UnityObservationException: An observation does not have the announced specification.
        UnityCommunicationException: A message is malformed or too large.
    """
    rows = [agent.observations for agent in agents]
    if set(map(len, rows)) != {len(specs)}:
        _refuse_count(agents, specs, behavior)
    batches: list[NDArray[Any]] = []
    for index, spec in enumerate(specs):
        column = _Column(
            agents,
            [row[index] for row in rows],
            spec,
            f"behavior {behavior!r}, observation {index} ({spec.name!r})",
        )
        announced = images.announced(spec.shape)
        if {one.shape for one in column.observations} != {_packed_shape(announced)}:
            _refuse_shape(column, announced)
        if len(announced) == 3:
            batches.append(_decode_images(column, images))
        else:
            batches.append(_decode_numbers(column).reshape(len(agents), *announced))
    return batches


class _Column(NamedTuple):
    """Messages of one observation of some agents of a behavior."""

    agents: Sequence[Any]
    observations: Sequence[Any]
    spec: ObservationSpec
    where: str


def _decode_numbers(column: _Column) -> FloatArray:
    """Return the (N, size) numbers, in the order of the message."""
    floats = [observation.float_data.data for observation in column.observations]
    if set(map(len, floats)) != {math.prod(column.spec.shape) * F32.itemsize}:
        _refuse_size(column)
    numbers = np.frombuffer(bytearray().join(floats), F32).reshape(len(floats), -1)
    if not np.isfinite(numbers).all():
        rows, places = np.nonzero(~np.isfinite(numbers))
        row, place = rows[0], places[0]
        raise UnityNonFiniteException(
            f"{column.where}: agent {column.agents[row].id} observes {numbers[row, place]} at "
            f"index {place} of {numbers.shape[1]}; {np.count_nonzero(rows == row)} of its numbers "
            "are NaN or infinite"
        )
    return numbers


def _decode_images(column: _Column, images: ImageReading) -> NDArray[Any]:
    """Return (N, *shape); some agents may send compressed images while others do not."""
    agents, observations, spec, where = column
    is_compressed = [observation.HasField("compressed_data") for observation in observations]
    if not all(is_compressed) and spec.dtype == np.uint8:
        raise UnityObservationException(
            f"{where}: agent {agents[is_compressed.index(False)].id} sends an uncompressed image, "
            "but its specification says 8 bits. Pass keep_8_bit_images=False to read both kinds."
        )
    shape = to_channel_first(spec.shape) if images.keep_channel_last else spec.shape
    if not any(is_compressed):
        return _in_spec_order(images.channel_first(_decode_numbers(column), shape), images)
    n_files = sum(count_files(observation.compressed_data) for observation in observations)
    channels, height, width = shape
    if height * width * max(len(agents) * channels, n_files * CHANNELS_PER_FILE) > _MAX_IMAGES:
        raise UnityCommunicationException(
            f"{where}: too many numbers in {n_files} PNG files for {len(agents)} images of shape "
            f"{spec.shape}; the limit is {_MAX_IMAGES}"
        )
    batch = np.empty((len(agents), *shape), spec.dtype)
    plain = [row for row, compressed in enumerate(is_compressed) if not compressed]
    if plain:
        numbers = _decode_numbers(
            _Column(
                [agents[row] for row in plain], [observations[row] for row in plain], *column[2:]
            )
        )
        batch[plain] = images.channel_first(numbers, shape)

    n_frames = stacked_frames(spec.name)

    def decode(row: int) -> None:
        observation = observations[row]
        try:
            if observation.compression_type != _PNG:
                raise UnityCommunicationException(
                    f"expected compression type {_PNG} (PNG), got {observation.compression_type}"
                )
            mapping = unpack_int32(observation.compressed_channel_mapping)
            decode_image(observation.compressed_data, mapping, batch[row], n_frames=n_frames)
        except UnityException as error:
            raise type(error)(f"{where}, agent {agents[row].id}: {error}") from error

    compressed_rows = [row for row, compressed in enumerate(is_compressed) if compressed]
    for_each_image(decode, compressed_rows, n_pixels=height * width)
    return _in_spec_order(batch, images)


def _in_spec_order(batch: NDArray[Any], images: ImageReading) -> NDArray[Any]:
    """Return images (N, C, H, W) in the order of specifications, contiguous."""
    if images.keep_channel_last:
        batch = batch.transpose(0, *to_channel_last((1, 2, 3)))
    return np.ascontiguousarray(batch)


@lru_cache
def _packed_shape(shape: tuple[int, ...]) -> bytes:
    return pack_int32(shape)


def _refuse_count(
    agents: Sequence[Any], specs: Sequence[ObservationSpec], behavior: BehaviorName
) -> NoReturn:
    agent = next(a for a in agents if len(a.observations) != len(specs))
    raise UnityObservationException(
        f"behavior {behavior!r}: agent {agent.id} sends {len(agent.observations)} observations; "
        f"expected the {len(specs)} that were announced: {[spec.name for spec in specs]}"
    )


def _refuse_shape(column: _Column, announced: tuple[int, ...]) -> NoReturn:
    for agent, observation in zip(column.agents, column.observations, strict=True):
        shape = tuple(unpack_int32(observation.shape))
        if shape != announced:
            raise UnityObservationException(
                f"{column.where}, agent {agent.id}: expected the shape {announced}, got {shape}. "
                "The simulation must send the shape that it announced in its first message."
            )
    raise UnityCommunicationException(
        f"{column.where}: the sizes of a shape must be encoded in as few bytes as possible"
    )


def _refuse_size(column: _Column) -> NoReturn:
    shape = column.spec.shape
    expected_bytes = math.prod(shape) * F32.itemsize
    agent, observation = next(
        (agent, observation)
        for agent, observation in zip(column.agents, column.observations, strict=True)
        if len(observation.float_data.data) != expected_bytes
    )
    where = f"{column.where}, agent {agent.id}"
    if observation.HasField("compressed_data"):
        raise UnityObservationException(
            f"{where}: expected uncompressed numbers for the shape {shape}, got a compressed image"
        )
    raise UnityCommunicationException(
        f"{where}: expected {expected_bytes} bytes of numbers for the shape {shape}, got "
        f"{len(observation.float_data.data)}"
    )


def encode_observations(
    specs: Sequence[ObservationSpec], obs: Sequence[NDArray[Any]]
) -> list[list[bytes]]:
    """Return one list per observation, with the encoded field of every agent."""
    return [
        _encode_images(spec, batch) if _is_compressed(spec) else _encode_numbers(spec, batch)
        for spec, batch in zip(specs, obs, strict=True)
    ]


def float_rows(batch: NDArray[Any]) -> list[bytes]:
    """Return the float32 bytes of every row of a batch, (N, ...)."""
    numbers = batch.astype(F32, copy=False).tobytes()
    size = len(numbers) // len(batch)
    return [numbers[row * size : (row + 1) * size] for row in range(len(batch))]


def _is_compressed(spec: ObservationSpec) -> bool:
    return spec.dtype == np.uint8 and len(spec.shape) == 3 and 0 not in spec.shape


def _encode_images(spec: ObservationSpec, batch: NDArray[np.uint8]) -> list[bytes]:
    before, after = (
        ObservationProto(shape=pack_int32(spec.shape), compression_type=_PNG).SerializeToString(),
        ObservationProto(**_after_the_data(spec)).SerializeToString(),
    )
    return [field(13, before + field(3, encode_image(image)) + after) for image in batch]


def _encode_numbers(spec: ObservationSpec, batch: NDArray[Any]) -> list[bytes]:
    """Return the encoded field of every agent, which differs only in its numbers."""
    before, after = _observation_frame(spec)
    rows = float_rows(batch.reshape(len(batch), *spec.shape))
    return [before + numbers + after for numbers in rows]


@lru_cache
def _observation_frame(spec: ObservationSpec) -> tuple[bytes, bytes]:
    """Return the bytes before and after the numbers of an observation's field."""
    numbers = bytes(math.prod(spec.shape) * F32.itemsize)
    after = _after_the_data(spec)
    agent = AgentInfoProto(
        observations=[{"shape": pack_int32(spec.shape), "float_data": {"data": numbers}, **after}]
    )
    whole = agent.SerializeToString()
    end = len(whole) - len(ObservationProto(**after).SerializeToString())
    return whole[: end - len(numbers)], whole[end:]


def _after_the_data(spec: ObservationSpec) -> dict[str, Any]:
    return {
        "dimension_properties": pack_int32(spec.dimension_property),
        "observation_type": spec.observation_type.value,
        "name": spec.name,
    }
