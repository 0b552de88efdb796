"""Header compression of HTTP/2 (HPACK, RFC 7541): a complete decoder and a minimal encoder.

A peer may use every feature, so `Decoder` implements all of them. `encode` uses only static entries
and literals. It never changes a dynamic table, so its result can be stored and sent again.
"""

Field = tuple[bytes, bytes]

# Section 4.2: default size of the dynamic table. We never announce another. Every entry counts 32
# bytes more than its name and value.
_TABLE_BYTES = 4096
_ENTRY_OVERHEAD = 32
_MAX_REPEATABLE = 2  # a response has two blocks: headers and trailers

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

# Appendix B, the Huffman code. It is canonical: codes of one length are consecutive numbers in the
# order of their symbols, and each length continues where the previous one ended. The symbols by
# length of their code, in bits, therefore define it completely. The end-of-string symbol, 30 ones,
# is omitted because it must not occur in a string.
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
    """Return symbols by code; a 1 bit before each code preserves its leading zeros."""
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
    """Encode a header block that does not change the dynamic table.

    Fields in the static table are written as its index, all others as literals without indexing.
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
    """Encode the length of a string that is not Huffman-coded (sections 5.1 and 5.2)."""
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
    """Decoder of the header blocks of one connection, in order, with their dynamic table.

    Args:
        max_list_bytes: Size of the largest list of fields to accept from one block, counted as in
            the HTTP/2 setting MAX_HEADER_LIST_SIZE.
    """

    def __init__(self, max_list_bytes: int) -> None:
        self._max_list_bytes = max_list_bytes
        self._table: list[Field] = []  # newest first
        self._table_bytes = 0
        self._table_limit = _TABLE_BYTES
        # Cache of decoded blocks that do not change the table, valid until another block does.
        self._repeatable: dict[bytes, dict[bytes, bytes]] = {}

    def decode(self, block: bytes) -> dict[bytes, bytes]:
        """Return values by name; the last value of a repeated name.

        Raises:
            ValueError: The block is malformed or too large. The dynamic table is then undefined,
                so the connection must be closed.
        """
        # A peer that repeats the same call soon sends identical blocks, which contain only indices.
        known = self._repeatable.get(block)
        if known is not None:
            return known
        repeatable = True
        fields: dict[bytes, bytes] = {}
        list_bytes = 0
        at = 0
        while at < len(block):
            first = block[at]
            if first & 0x80:  # section 6.1: index of a field
                index, at = _integer(block, at, 0x7F)
                name, value = self._field(index)
            elif first & 0xE0 == 0x20:  # section 6.3: new size of the dynamic table
                if fields:
                    raise ValueError("table size update after a field")
                limit, at = _integer(block, at, 0x1F)
                self._resize(limit)
                repeatable = False
                continue
            else:  # section 6.2: literal, with or without indexing
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
            raise ValueError(f"index {index} is beyond the table") from None

    def _remember(self, name: bytes, value: bytes) -> None:
        """Insert a field at the front, and evict old ones; a too large field evicts all."""
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
    """Decode an integer with a prefix of the bits in `mask`; return it and its end position."""
    if at >= len(block):
        raise ValueError("header block ends inside a field")
    value = block[at] & mask
    at += 1
    if value < mask:
        return value, at
    for shift in (0, 7, 14, 21):  # 28 bits: larger than any valid length or index
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
                raise ValueError("invalid Huffman code")
    # Section 5.2: the remaining bits are padding, fewer than 8, all ones.
    if bits > 7 or code != (2 << bits) - 1:
        raise ValueError("invalid Huffman padding")
    return bytes(decoded)
