"""Header compression of HTTP/2 (HPACK, RFC 7541): decodes all of it, encodes the simplest part.

A peer may use every feature, so `Decoder` knows them all. What we say fits in static entries and
literals, so `encode` never touches a dynamic table and its result can be kept and sent again.
"""

Field = tuple[bytes, bytes]

# Section 4.2: the table may hold this much until an endpoint announces otherwise, and ours never
# does. Every entry counts 32 bytes more than its name and value.
_TABLE_BYTES = 4096
_ENTRY_OVERHEAD = 32
_MAX_REPEATABLE = 2  # a response has two: its headers and its trailers

# Appendix A: "name" or "name: value", from index 1 on.
_STATIC_TEXT = b"""\
:authority
:method: GET
:method: POST
:path: /
:path: /index.html
:scheme: http
:scheme: https
:status: 200
:status: 204
:status: 206
:status: 304
:status: 400
:status: 404
:status: 500
accept-charset
accept-encoding: gzip, deflate
accept-language
accept-ranges
accept
access-control-allow-origin
age
allow
authorization
cache-control
content-disposition
content-encoding
content-language
content-length
content-location
content-range
content-type
cookie
date
etag
expect
expires
from
host
if-match
if-modified-since
if-none-match
if-range
if-unmodified-since
last-modified
link
location
max-forwards
proxy-authenticate
proxy-authorization
range
referer
refresh
retry-after
server
set-cookie
strict-transport-security
transfer-encoding
user-agent
vary
via
www-authenticate"""

# Appendix B, the Huffman code. It is canonical: codes of one length are consecutive numbers in
# the order of their symbols, and each length goes on where the one before it ended. So the
# symbols by the length of their code, in bits, say it all. (The end mark, 30 ones, is left out:
# it may not occur in a string.)
_HUFFMAN_SYMBOLS = {
    5: b"012aceiost",
    6: b" %-./3456789=A_bdfghlmnpru",
    7: b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: b"&*,;XZ",
    10: b'!"()?',
    11: b"'+|",
    12: b"#>",
    13: b"\x00$@[]~",
    14: b"^}",
    15: b"<`{",
    19: b"\\\xc3\xd0",
    20: b"\x80\x82\x83\xa2\xb8\xc2\xe0\xe2",
    21: b"\x99\xa1\xa7\xac\xb0\xb1\xb3\xd1\xd8\xd9\xe3\xe5\xe6",
    22: b"\x81\x84\x85\x86\x88\x92\x9a\x9c\xa0\xa3\xa4\xa9\xaa\xad\xb2\xb5\xb9\xba\xbb\xbd\xbe\xc4"
    b"\xc6\xe4\xe8\xe9",
    23: b"\x01\x87\x89\x8a\x8b\x8c\x8d\x8f\x93\x95\x96\x97\x98\x9b\x9d\x9e\xa5\xa6\xa8\xae\xaf\xb4"
    b"\xb6\xb7\xbc\xbf\xc5\xe7\xef",
    24: b"\x09\x8e\x90\x91\x94\x9f\xab\xce\xd7\xe1\xec\xed",
    25: b"\xc7\xcf\xea\xeb",
    26: b"\xc0\xc1\xc8\xc9\xca\xcd\xd2\xd5\xda\xdb\xee\xf0\xf2\xf3\xff",
    27: b"\xcb\xcc\xd3\xd4\xd6\xdd\xde\xdf\xf1\xf4\xf5\xf6\xf7\xf8\xfa\xfb\xfc\xfd\xfe",
    28: b"\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x11\x12\x13\x14\x15\x17\x18\x19\x1a\x1b"
    b"\x1c\x1d\x1e\x1f\x7f\xdc\xf9",
    30: b"\n\r\x16",
}
_LONGEST_CODE_BITS = 30


def _static_table() -> list[Field]:
    table = []
    for line in _STATIC_TEXT.split(b"\n"):
        name, _, value = line.partition(b": ")
        table.append((name, value))
    return table


def _huffman_codes() -> dict[int, int]:
    """Map each code to its symbol; a one in front of the code keeps its leading zeros."""
    codes = {}
    code, bits = 0, 0
    for length, symbols in _HUFFMAN_SYMBOLS.items():
        code <<= length - bits
        bits = length
        for symbol in symbols:
            codes[1 << bits | code] = symbol
            code += 1
    return codes


_STATIC = _static_table()
_STATIC_INDEX = {field: index for index, field in enumerate(_STATIC, 1)}
_HUFFMAN = _huffman_codes()


def encode(fields: list[Field]) -> bytes:
    """Write a header block that leaves every dynamic table as it is.

    Fields the static table holds whole become its index, all others literals without indexing.
    """
    block = bytearray()
    for field in fields:
        index = _STATIC_INDEX.get(field)
        if index is not None:
            block.append(0x80 | index)
            continue
        block.append(0x00)
        for text in field:
            block += _encode_length(len(text)) + text
    return bytes(block)


def _encode_length(length: int) -> bytes:
    """Write an integer behind the zero bit that says "not Huffman" (section 5.1)."""
    if length < 0x7F:
        return bytes([length])
    encoded = bytearray([0x7F])
    length -= 0x7F
    while length >= 0x80:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    encoded.append(length)
    return bytes(encoded)


class Decoder:
    """Reads the header blocks of one connection, in order, with the dynamic table they build.

    Args:
        max_list_bytes: Largest list of fields accepted from one block, counted as the HTTP/2
            setting MAX_HEADER_LIST_SIZE counts it.
    """

    def __init__(self, max_list_bytes: int) -> None:
        self._max_list_bytes = max_list_bytes
        self._table: list[Field] = []  # newest first
        self._table_bytes = 0
        self._table_limit = _TABLE_BYTES
        # Blocks that leave the table as it is, as they read until another changes it.
        self._repeatable: dict[bytes, dict[bytes, bytes]] = {}

    def decode(self, block: bytes) -> dict[bytes, bytes]:
        """Return values by name; of a repeated name the last.

        Raises:
            ValueError: The block is malformed or too large; the connection's table can no longer
                be trusted.
        """
        # A peer that makes the same call over and over soon sends the same blocks: all indices.
        known = self._repeatable.get(block)
        if known is not None:
            return known
        repeatable = True
        fields: dict[bytes, bytes] = {}
        list_bytes = 0
        at = 0
        while at < len(block):
            first = block[at]
            if first & 0x80:  # section 6.1: a field of the tables
                index, at = _integer(block, at, 0x7F)
                name, value = self._field(index)
            elif first & 0xE0 == 0x20:  # section 6.3: the dynamic table's new limit
                if fields:
                    raise ValueError("table size update behind a field")
                limit, at = _integer(block, at, 0x1F)
                self._resize(limit)
                repeatable = False
                continue
            else:  # section 6.2: a literal, to be remembered or not
                remember = first & 0x40
                index, at = _integer(block, at, 0x3F if remember else 0x0F)
                if index:
                    name = self._field(index)[0]
                else:
                    name, at = _string(block, at)
                value, at = _string(block, at)
                if remember:
                    self._remember(name, value)
                    repeatable = False
            list_bytes += len(name) + len(value) + _ENTRY_OVERHEAD
            if list_bytes > self._max_list_bytes:
                raise ValueError(f"header list of more than {self._max_list_bytes} bytes")
            fields[name] = value
        if repeatable:
            if len(self._repeatable) == _MAX_REPEATABLE:
                self._repeatable.clear()
            self._repeatable[block] = fields
        return fields

    def _field(self, index: int) -> Field:
        if index == 0:
            raise ValueError("index 0")
        if index <= len(_STATIC):
            return _STATIC[index - 1]
        try:
            return self._table[index - len(_STATIC) - 1]
        except IndexError:
            raise ValueError(f"index {index} is in no table") from None

    def _remember(self, name: bytes, value: bytes) -> None:
        """Put a field in front, dropping the oldest as needed: all, if it is too large itself."""
        self._repeatable.clear()
        self._table.insert(0, (name, value))
        self._table_bytes += len(name) + len(value) + _ENTRY_OVERHEAD
        self._evict()

    def _resize(self, limit: int) -> None:
        if limit > _TABLE_BYTES:
            raise ValueError(f"table size {limit} is above {_TABLE_BYTES}")
        self._repeatable.clear()
        self._table_limit = limit
        self._evict()

    def _evict(self) -> None:
        while self._table_bytes > self._table_limit:
            name, value = self._table.pop()
            self._table_bytes -= len(name) + len(value) + _ENTRY_OVERHEAD


def _integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """Read an integer whose first bits are those of `mask`; return it and where it ends."""
    if at >= len(block):
        raise ValueError("header block ends inside a field")
    value = block[at] & mask
    at += 1
    if value < mask:
        return value, at
    for shift in (0, 7, 14, 21):  # 28 bits are more than any length or index that can be valid
        if at >= len(block):
            raise ValueError("header block ends inside an integer")
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
    raise ValueError("integer out of range")


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    length, start = _integer(block, at, 0x7F)
    end = start + length
    if end > len(block):
        raise ValueError("header block ends inside a string")
    text = block[start:end]
    return (_huffman_decode(text) if block[at] & 0x80 else text), end


def _huffman_decode(text: bytes) -> bytes:
    decoded = bytearray()
    code, bits = 1, 0
    for byte in text:
        for shift in range(7, -1, -1):
            code = code << 1 | byte >> shift & 1
            bits += 1
            symbol = _HUFFMAN.get(code)
            if symbol is not None:
                decoded.append(symbol)
                code, bits = 1, 0
            elif bits == _LONGEST_CODE_BITS:
                raise ValueError("Huffman code of no symbol")
    # Section 5.2: what is left is padding, less than a byte, all ones.
    if bits > 7 or code != (2 << bits) - 1:
        raise ValueError("Huffman padding is wrong")
    return bytes(decoded)
