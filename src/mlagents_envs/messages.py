"""Message classes of the protocol, built from the descriptor in protobuf-definitions/.

Generated modules would work with one major version of protobuf only; classes built from a loaded
descriptor work with every version from 5.29 on. They have their own descriptor pool, so that
another implementation of the protocol can be loaded into the same process.

Only modules that know the wire format import this one, because a type checker sees classes built
at run time as `Any`.
"""

from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
)

STATUS_OK = 200
STATUS_CLOSED = 400

_PACKAGE = "communicator_objects"
_DESCRIPTOR = resources.files("mlagents_envs") / "protobuf-definitions" / f"{_PACKAGE}.binpb"

_MAX_VARINT_BITS = 70  # ten bytes

_Type = descriptor_pb2.FieldDescriptorProto

PACKED_FIELDS = {
    "AgentActionProto.continuous_actions": _Type.TYPE_FLOAT,
    "AgentActionProto.discrete_actions": _Type.TYPE_INT32,
    "AgentActionProto.vector_actions_deprecated": _Type.TYPE_FLOAT,
    "AgentInfoProto.action_mask": _Type.TYPE_BOOL,
    "FloatData.data": _Type.TYPE_FLOAT,
    "ObservationProto.compressed_channel_mapping": _Type.TYPE_INT32,
    "ObservationProto.dimension_properties": _Type.TYPE_INT32,
    "ObservationProto.shape": _Type.TYPE_INT32,
}
"""Fields of repeated numbers that the definitions declare as `bytes`, with their element types."""


def _load(definitions: descriptor_pb2.FileDescriptorSet) -> DescriptorPool:
    pool = DescriptorPool()
    for file in definitions.file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def _message_class(pool: DescriptorPool, name: str) -> Any:
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


_definitions = descriptor_pb2.FileDescriptorSet.FromString(_DESCRIPTOR.read_bytes())
_pool = _load(_definitions)

UnityMessageProto: Any = _message_class(_pool, "UnityMessageProto")
BrainParametersProto: Any = _message_class(_pool, "BrainParametersProto")
AgentInfoProto: Any = _message_class(_pool, "AgentInfoProto")
ObservationProto: Any = _message_class(_pool, "ObservationProto")
AgentActionProto: Any = _message_class(_pool, "AgentActionProto")
AgentInfoActionPairProto: Any = _message_class(_pool, "AgentInfoActionPairProto")
DemonstrationMetaProto: Any = _message_class(_pool, "DemonstrationMetaProto")
TrainingEnvironmentInitialized: Any = _message_class(_pool, "TrainingEnvironmentInitialized")
TrainingBehaviorInitialized: Any = _message_class(_pool, "TrainingBehaviorInitialized")


@cache
def message_class_of_repeated_numbers(name: str) -> Any:
    """Build a message class whose `PACKED_FIELDS` are declared as repeated numbers.

    Args:
        name: Name of the message, for example "AgentInfoProto".
    """
    definitions = descriptor_pb2.FileDescriptorSet()
    definitions.CopyFrom(_definitions)
    messages = [message for file in definitions.file for message in file.message_type]
    messages += [nested for message in messages for nested in message.nested_type]
    for message in messages:
        for field in message.field:
            element_type = PACKED_FIELDS.get(f"{message.name}.{field.name}")
            if element_type is not None:
                field.label = _Type.LABEL_REPEATED
                field.type = element_type
    return _message_class(_load(definitions), name)


def repack(message: bytes) -> bytes:
    """Return a `UnityMessageProto` with the numbers of every repeated field in one packed block.

    Senders may also write them one by one or in several blocks. Such fields, declared as `bytes`,
    would be parsed as empty or incomplete. A message that cannot be parsed is returned unchanged.
    """
    try:
        of_numbers = message_class_of_repeated_numbers("UnityMessageProto")
        return of_numbers.FromString(message).SerializeToString()  # type: ignore[no-any-return]
    except DecodeError:
        return message


def parse_message(message: bytes) -> Any:
    """Parse a `UnityMessageProto` that continues the session.

    Raises:
        UnityCommunicationException: The bytes are not a `UnityMessageProto`, or it has no header.
        UnityCommunicatorStoppedException: The sender ended the session with this message.
    """
    try:
        parsed = UnityMessageProto.FromString(message)
    except DecodeError as error:
        raise UnityCommunicationException(
            f"{len(message)} bytes are not a UnityMessageProto: {error}"
        ) from None
    if not parsed.HasField("header"):
        raise UnityCommunicationException(f"a message of {len(message)} bytes has no header")
    status = parsed.header.status
    if status != STATUS_OK:
        raise UnityCommunicatorStoppedException(
            f"the other side ended the session (status {status}): it quit, or left play mode"
        )
    return parsed


def varint(value: int) -> bytes:
    """Encode an integer: 7 bits per byte, lowest bits first; negative numbers as 64 bits."""
    if 0 <= value < 0x80:
        return bytes((value,))
    value &= 0xFFFF_FFFF_FFFF_FFFF
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def field(number: int, payload: bytes) -> bytes:
    """Encode a length-delimited field: bytes, a string, a message, or packed numbers."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def pack_int32(values: Iterable[int]) -> bytes:
    """Encode the payload of a packed int32 field."""
    return b"".join(map(varint, values))


def unpack_int32(payload: bytes) -> list[int]:
    """Decode the payload of a packed int32 field.

    Raises:
        UnityCommunicationException: The payload ends within a number, or a number is too long.
    """
    if payload.isascii():  # every number in one byte
        return list(payload)
    values = []
    value = shift = 0
    for byte in payload:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            low = value & 0xFFFF_FFFF
            values.append(low - (1 << 32) if low >= 1 << 31 else low)
            value = shift = 0
        elif shift == _MAX_VARINT_BITS:
            break
    if shift:
        raise UnityCommunicationException(
            f"packed integers are cut short or too long: {payload[:32].hex(' ')}"
        )
    return values
