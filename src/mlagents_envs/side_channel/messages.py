"""Typed reader and writer of side-channel messages (wire protocol, section 4.2).

A message does not say what is in it: the reader asks for the same types in the same order as the
writer wrote them. All numbers are little-endian.
"""

import struct
from collections.abc import Sequence
from typing import Any

from mlagents_envs.exception import UnitySideChannelException


class OutgoingMessage:
    """A message to fill and to hand to `SideChannel.queue_message_to_send`.

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
            UnitySideChannelException: It is not an integer of 32 bits.
        """
        self._write("i", i)

    def write_float32(self, f: float) -> None:
        """Append a 32-bit float.

        Raises:
            UnitySideChannelException: It is not a number, or finite and beyond 32 bits.
        """
        self._write("f", f)

    def write_float32_list(self, float_list: Sequence[float]) -> None:
        """Append the number of values, then each as a 32-bit float.

        Raises:
            UnitySideChannelException: A value is not a number, or finite and beyond 32 bits.
        """
        self._write(f"i{len(float_list)}f", len(float_list), *float_list)

    def write_string(self, s: str) -> None:
        """Append the number of characters, then the ASCII characters.

        Raises:
            UnitySideChannelException: A character is not ASCII; simulations read nothing else.
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
        """Replace the whole message by `buffer`, as it is."""
        self.buffer = bytearray(buffer)

    def _write(self, layout: str, *values: Any) -> None:
        try:
            self.buffer += struct.pack("<" + layout, *values)
        except (struct.error, OverflowError) as error:
            raise UnitySideChannelException(
                f"cannot write {values} into a side-channel message: {error}"
            ) from None


class IncomingMessage:
    """A message to read from front to back.

    Where the message is already at its end a read returns its default, so a newer reader
    understands a shorter message. A value that the end cuts in two is an error.

    Args:
        buffer: The message.
        offset: Where to start reading.

    Attributes:
        buffer: The message.
        offset: Where the next read begins.
    """

    def __init__(self, buffer: bytes, offset: int = 0) -> None:
        self.buffer = buffer
        self.offset = offset

    def read_bool(self, default_value: bool = False) -> bool:
        """Read one byte; all but 0 is true.

        Args:
            default_value: What to return at the end of the message.
        """
        return default_value if self._at_end() else bool(self._read("B")[0])

    def read_int32(self, default_value: int = 0) -> int:
        """Read a 32-bit integer.

        Args:
            default_value: What to return at the end of the message.

        Raises:
            UnitySideChannelException: The message ends within the number.
        """
        return default_value if self._at_end() else self._read_int32()

    def read_float32(self, default_value: float = 0.0) -> float:
        """Read a 32-bit float.

        Args:
            default_value: What to return at the end of the message.

        Raises:
            UnitySideChannelException: The message ends within the number.
        """
        if self._at_end():
            return default_value
        value: float = self._read("f")[0]
        return value

    def read_float32_list(self, default_value: list[float] | None = None) -> list[float]:
        """Read a list of 32-bit floats, preceded by their number.

        Args:
            default_value: What to return at the end of the message; None means an empty list.

        Raises:
            UnitySideChannelException: The message ends within the list, or its length is negative.
        """
        if self._at_end():
            return [] if default_value is None else default_value
        return list(self._read(f"{self._read_length(item_bytes=4)}f"))

    def read_string(self, default_value: str = "") -> str:
        """Read a text, preceded by the number of its characters.

        Args:
            default_value: What to return at the end of the message.

        Raises:
            UnitySideChannelException: The message ends within the text, its length is negative or
                it is not ASCII.
        """
        if self._at_end():
            return default_value
        characters: bytes = self._read(f"{self._read_length(item_bytes=1)}s")[0]
        try:
            return characters.decode("ascii")
        except UnicodeDecodeError:
            raise UnitySideChannelException(
                f"a side-channel message holds a text that is not ASCII: {characters!r}"
            ) from None

    def get_raw_bytes(self) -> bytes:
        """Return the whole message as it is, whatever was read from it before."""
        return self.buffer

    def _at_end(self) -> bool:
        return self.offset >= len(self.buffer)

    def _read_int32(self) -> int:
        value: int = self._read("i")[0]
        return value

    def _read_length(self, *, item_bytes: int) -> int:
        """Read how many items follow; checked first, so a wrong length cannot claim memory."""
        length = self._read_int32()
        left = len(self.buffer) - self.offset
        if not 0 <= length * item_bytes <= left:
            raise UnitySideChannelException(
                f"a side-channel message announces {length} items of {item_bytes} bytes, but "
                f"{left} bytes are left. Reader and writer must use the same types in the same "
                "order."
            )
        return length

    def _read(self, layout: str) -> tuple[Any, ...]:
        layout = "<" + layout
        size = struct.calcsize(layout)
        if self.offset + size > len(self.buffer):
            raise UnitySideChannelException(
                f"a side-channel message of {len(self.buffer)} bytes ends within a value of "
                f"{size} bytes at byte {self.offset}. Reader and writer must use the same types "
                "in the same order."
            )
        values = struct.unpack_from(layout, self.buffer, self.offset)
        self.offset += size
        return values
