"""Typed reader and writer of side-channel messages.

A message does not contain the types of its values, so the reader must read the same types in the
same order as the writer wrote them. All numbers are little-endian.
"""

import struct
from collections.abc import Sequence
from typing import Any

from mlagents_envs.exception import UnitySideChannelException


class OutgoingMessage:
    """Writer of a message for `SideChannel.queue_message_to_send`.

    Attributes:
        buffer: The bytes written so far.
    """

    def __init__(self) -> None:
        self.buffer = bytearray()

    def write_bool(self, b: bool) -> None:
        """Append one byte, 0 or 1."""
        self._write("?", b)

    def write_int32(self, i: int) -> None:
        """Append a 32-bit integer.

        Raises:
            UnitySideChannelException: The value is not a signed 32-bit integer.
        """
        self._write("i", i)

    def write_float32(self, f: float) -> None:
        """Append a 32-bit float.

        Raises:
            UnitySideChannelException: The value is not a number, or is finite but too large for 32
                bits.
        """
        self._write("f", f)

    def write_float32_list(self, float_list: Sequence[float]) -> None:
        """Append the number of values, then each as a 32-bit float.

        Raises:
            UnitySideChannelException: A value is not a number, or is finite but too large for 32
                bits.
        """
        self._write(f"i{len(float_list)}f", len(float_list), *float_list)

    def write_string(self, s: str) -> None:
        """Append the number of characters, then the ASCII characters.

        Raises:
            UnitySideChannelException: A character is not ASCII; simulations read only ASCII.
        """
        try:
            characters = s.encode("ascii")
        except UnicodeEncodeError as error:
            raise UnitySideChannelException(
                f"cannot send the text {s!r}: character {error.start} ({s[error.start]!r}) is not "
                "ASCII, and simulations read only ASCII. Use another name on both sides."
            ) from None
        self._write(f"i{len(characters)}s", len(characters), characters)

    def set_raw_bytes(self, buffer: bytes | bytearray) -> None:
        """Replace the whole message with the bytes of `buffer`."""
        self.buffer = bytearray(buffer)

    def _write(self, layout: str, *values: Any) -> None:
        try:
            self.buffer += struct.pack("<" + layout, *values)
        except (struct.error, OverflowError) as error:
            raise UnitySideChannelException(
                f"cannot write {values} into a side-channel message: {error}"
            ) from None


class IncomingMessage:
    """Reader of a message, from front to back.

    A read at the end of the message returns its default value, so that a newer reader can read an
    older, shorter message. If the message ends within a value, the read raises an error.

    Args:
        buffer: Bytes of the message.
        offset: Position of the first read, in bytes.

    Attributes:
        buffer: Bytes of the message.
        offset: Position of the next read, in bytes.
    """

    def __init__(self, buffer: bytes, offset: int = 0) -> None:
        self.buffer = buffer
        self.offset = offset

    def read_bool(self, default_value: bool = False) -> bool:
        """Read one byte; any value except 0 is true.

        Args:
            default_value: Value to return at the end of the message.
        """
        return default_value if self._at_end() else bool(self._read("B")[0])

    def read_int32(self, default_value: int = 0) -> int:
        """Read a 32-bit integer.

        Args:
            default_value: Value to return at the end of the message.

        Raises:
            UnitySideChannelException: The message ends within the number.
        """
        return default_value if self._at_end() else self._read_int32()

    def read_float32(self, default_value: float = 0.0) -> float:
        """Read a 32-bit float.

        Args:
            default_value: Value to return at the end of the message.

        Raises:
            UnitySideChannelException: The message ends within the number.
        """
        if self._at_end():
            return default_value
        value: float = self._read("f")[0]
        return value

    def read_float32_list(self, default_value: list[float] | None = None) -> list[float]:
        """Read a list of 32-bit floats, preceded by its length.

        Args:
            default_value: Value to return at the end of the message; None for an empty list.

        Raises:
            UnitySideChannelException: The message ends within the list, or its length is negative.
        """
        if self._at_end():
            return [] if default_value is None else default_value
        return list(self._read(f"{self._read_length(item_bytes=4)}f"))

    def read_string(self, default_value: str = "") -> str:
        """Read an ASCII string, preceded by its length.

        Args:
            default_value: Value to return at the end of the message.

        Raises:
            UnitySideChannelException: The message ends within the string, the length is negative,
                or a character is not ASCII.
        """
        if self._at_end():
            return default_value
        characters: bytes = self._read(f"{self._read_length(item_bytes=1)}s")[0]
        try:
            return characters.decode("ascii")
        except UnicodeDecodeError:
            raise UnitySideChannelException(
                f"a side-channel message contains a string that is not ASCII: {characters!r}"
            ) from None

    def get_raw_bytes(self) -> bytes:
        """Return the whole message, including values that were already read."""
        return self.buffer

    def _at_end(self) -> bool:
        return self.offset >= len(self.buffer)

    def _read_int32(self) -> int:
        value: int = self._read("i")[0]
        return value

    def _read_length(self, *, item_bytes: int) -> int:
        """Read the number of items that follow, and check it before memory is allocated."""
        length = self._read_int32()
        left = len(self.buffer) - self.offset
        if not 0 <= length * item_bytes <= left:
            raise UnitySideChannelException(
                f"a side-channel message announces {length} items of {item_bytes} bytes, but "
                f"{left} bytes are left. Read the types in the order in which they are written."
            )
        return length

    def _read(self, layout: str) -> tuple[Any, ...]:
        layout = "<" + layout
        size = struct.calcsize(layout)
        if self.offset + size > len(self.buffer):
            raise UnitySideChannelException(
                f"a side-channel message of {len(self.buffer)} bytes ends within a value of "
                f"{size} bytes at byte {self.offset}. Read the types in the order in which they "
                "are written."
            )
        values = struct.unpack_from(layout, self.buffer, self.offset)
        self.offset += size
        return values
