import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlagents_envs import messages
from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
)
from mlagents_envs.messages import (
    PACKED_FIELDS,
    AgentActionProto,
    UnityMessageProto,
    field,
    pack_int32,
    parse_message,
    repack,
    unpack_int32,
    varint,
)

ROOT = Path(__file__).parents[2]


def test_the_shipped_descriptor_is_what_the_proto_files_say():
    pytest.importorskip("grpc_tools")
    command = [sys.executable, str(ROOT / "scripts" / "build_descriptor"), "--check"]
    subprocess.run(command, check=True, timeout=60)


def test_messages_load_beside_another_implementation_of_the_protocol():
    # The other one has the same names in protobuf's default pool.
    code = """
from google.protobuf import descriptor_pb2, descriptor_pool
from importlib import resources
folder = resources.files("mlagents_envs") / "protobuf-definitions"
files = descriptor_pb2.FileDescriptorSet.FromString(
    (folder / "communicator_objects.binpb").read_bytes()
)
for file in files.file:
    del file.message_type[0].field[:1]
    descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
from mlagents_envs.messages import UnityMessageProto
assert UnityMessageProto(header={"status": 200}).SerializeToString().hex() == "0a0308c801"
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_every_bytes_field_that_holds_numbers_is_in_the_table():
    really_bytes = {"compressed_data", "side_channel"}
    declared = {
        f"{message.name}.{one.name}"
        for file in messages._definitions.file
        for parent in file.message_type
        for message in (parent, *parent.nested_type)
        for one in message.field
        if one.type == one.TYPE_BYTES and one.name not in really_bytes
    }
    assert declared == set(PACKED_FIELDS)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (-1, "ffffffffffffffffff01")],
)
def test_varint_by_hand(value, encoded):
    assert varint(value).hex() == encoded
    assert unpack_int32(varint(value)) == [value]


def test_field_by_hand():
    # Field 2 with a length: 2 * 8 + 2 = 0x12.
    assert field(2, b"abc") == b"\x12\x03abc"


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_unpack_int32_undoes_pack_int32(values):
    assert unpack_int32(pack_int32(values)) == values


@given(st.integers(2**31, 2**64 - 1))
def test_an_int32_keeps_its_low_32_bits(value):
    # As protobuf reads a field that a peer declares with more bits.
    low = value % 2**32
    assert unpack_int32(varint(value)) == [low - 2**32 if low >= 2**31 else low]


@pytest.mark.parametrize("payload", [b"\x80", b"\x01\xff\xff", b"\xff" * 10 + b"\x01"])
def test_an_unfinished_or_endless_integer_is_refused(payload):
    with pytest.raises(UnityCommunicationException, match="cut short or too long"):
        unpack_int32(payload)


def _action_message(action: bytes) -> bytes:
    entry = field(1, b"B") + field(2, field(1, action))
    return field(1, b"\x08\xc8\x01") + field(3, field(1, field(1, entry)))


def _first_action(message: bytes):
    actions = UnityMessageProto.FromString(message).unity_input.rl_input.agent_actions
    return actions["B"].value[0]


def test_repack_joins_numbers_written_one_by_one_or_in_blocks():
    # Field 7 (int32): 5 and 300 one by one; field 6 (float): 1.0 alone, then a block of 2.0.
    one_by_one = b"\x38\x05" + b"\x38\xac\x02"
    in_blocks = b"\x35\x00\x00\x80\x3f" + b"\x32\x04\x00\x00\x00\x40"
    action = _first_action(repack(_action_message(in_blocks + one_by_one)))
    assert action.discrete_actions == b"\x05\xac\x02"
    assert action.continuous_actions == b"\x00\x00\x80\x3f\x00\x00\x00\x40"


def test_repack_leaves_packed_messages_and_other_bytes_alone():
    packed = _action_message(AgentActionProto(discrete_actions=b"\x05").SerializeToString())
    assert repack(packed) == packed
    assert repack(b"\xff\xff") == b"\xff\xff"


@pytest.mark.parametrize("message", [b"\xff", b"\x0a\x05\x08", b"\x0b"])
def test_bytes_that_are_no_message_are_refused(message):
    with pytest.raises(UnityCommunicationException, match="bytes are not a UnityMessageProto"):
        parse_message(message)


def test_a_message_without_a_header_is_refused():
    with pytest.raises(UnityCommunicationException, match="has no header"):
        parse_message(b"")


@pytest.mark.parametrize("status", [0, 1, 400, -1])
def test_any_status_but_200_ends_the_session(status):
    message = UnityMessageProto(header={"status": status}).SerializeToString()
    with pytest.raises(UnityCommunicatorStoppedException, match=f"status {status}"):
        parse_message(message)
