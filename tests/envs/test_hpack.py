"""Header compression, against the examples of RFC 7541."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlagents_envs.hpack import Decoder, encode


def decode(*blocks: str) -> dict[bytes, bytes]:
    decoder = Decoder(16_384)
    fields = {}
    for block in blocks:
        fields = decoder.decode(bytes.fromhex(block))
    return fields


# RFC 7541, appendix C.4: three requests on one connection, Huffman coded, each using fields that
# those before it put into the dynamic table.
REQUESTS = (
    "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
    "8286 84be 5886 a8eb 1064 9cbf",
    "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
)


def test_requests_of_the_rfc():
    assert decode(REQUESTS[0]) == {
        b":method": b"GET",
        b":scheme": b"http",
        b":path": b"/",
        b":authority": b"www.example.com",
    }
    assert decode(*REQUESTS[:2]) == {
        b":method": b"GET",
        b":scheme": b"http",
        b":path": b"/",
        b":authority": b"www.example.com",
        b"cache-control": b"no-cache",
    }
    assert decode(*REQUESTS) == {
        b":method": b"GET",
        b":scheme": b"https",
        b":path": b"/index.html",
        b":authority": b"www.example.com",
        b"custom-key": b"custom-value",
    }


def test_literals_of_the_rfc():
    # Appendix C.2: with indexing, without, never indexed, and an index alone.
    assert decode("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572") == {
        b"custom-key": b"custom-header"
    }
    assert decode("040c 2f73 616d 706c 652f 7061 7468") == {b":path": b"/sample/path"}
    assert decode("1008 7061 7373 776f 7264 0673 6563 7265 74") == {b"password": b"secret"}
    assert decode("82") == {b":method": b"GET"}


def test_the_same_block_means_the_same_until_the_table_changes():
    decoder = Decoder(16_384)
    decoder.decode(b"\x40\x01a\x011")
    assert decoder.decode(b"\xbe") == decoder.decode(b"\xbe") == {b"a": b"1"}
    decoder.decode(b"\x40\x01b\x012")
    assert decoder.decode(b"\xbe") == {b"b": b"2"}
    assert decoder.decode(b"\xbf") == {b"a": b"1"}
    for _ in range(2):  # more blocks in turn than are kept
        assert decoder.decode(b"\x82") == {b":method": b"GET"}
        assert decoder.decode(b"\x83") == {b":method": b"POST"}
        assert decoder.decode(b"\xbe") == {b"b": b"2"}
        assert decoder.decode(b"\xbf") == {b"a": b"1"}
    decoder.decode(b"\x3f\x03")  # a table of 34 bytes holds the newest alone
    assert decoder.decode(b"\xbe") == {b"b": b"2"}
    with pytest.raises(ValueError, match="beyond the table"):
        decoder.decode(b"\xbf")


def test_oldest_fields_make_room():
    # Table of 68 bytes: two fields of 32 + 2 bytes fit, a third puts the first out.
    decoder = Decoder(16_384)
    decoder.decode(b"\x3f\x25\x40\x01a\x011\x40\x01b\x012\x40\x01c\x013")
    assert decoder.decode(b"\xbe\xbf") == {b"c": b"3", b"b": b"2"}
    with pytest.raises(ValueError, match="index 64 is beyond the table"):
        decoder.decode(b"\xc0")


def test_a_field_larger_than_the_table_empties_it():
    decoder = Decoder(16_384)
    decoder.decode(b"\x40\x01a\x011")
    decoder.decode(encode([(b"x", b"y" * 4096)]).replace(b"\x00", b"\x40", 1))
    with pytest.raises(ValueError, match="beyond the table"):
        decoder.decode(b"\xbe")


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        ("80", "index 0"),
        ("be", "index 62 is beyond the table"),
        ("ff", "ends inside an integer"),
        ("ffffffffff7f", "out of range"),
        ("40", "ends inside a field"),
        ("4003 6162", "ends inside a string"),
        ("8220", "after a field"),
        ("3fe21f", "4097 is above 4096"),
        ("0081 00 00", "invalid Huffman padding"),  # zeros where the padding must be ones
        ("0082 1fff 00", "invalid Huffman padding"),  # "a" and eleven bits of padding
        ("0084 ffffffff 00", "invalid Huffman code"),  # the end mark
    ],
)
def test_malformed_blocks_are_refused(block, reason):
    with pytest.raises(ValueError, match=reason):
        decode(block)


def test_a_small_block_cannot_unfold_into_a_large_list():
    decoder = Decoder(16_384)
    decoder.decode(encode([(b"x", b"y" * 4000)]).replace(b"\x00", b"\x40", 1))
    with pytest.raises(ValueError, match="header list of more than 16384 bytes"):
        decoder.decode(b"\xbe" * 5)


@given(st.dictionaries(st.binary(max_size=200), st.binary(max_size=300), max_size=20))
def test_what_is_encoded_is_decoded(fields):
    assert Decoder(1_000_000).decode(encode(list(fields.items()))) == fields


def test_static_fields_take_one_byte():
    assert encode([(b":status", b"200"), (b":method", b"POST")]) == b"\x88\x83"


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_any_bytes_are_fields_or_an_error(blocks):
    decoder = Decoder(4096)
    for block in blocks:
        try:
            fields = decoder.decode(block)
        except ValueError:
            return
        assert all(isinstance(text, bytes) for field in fields.items() for text in field)
