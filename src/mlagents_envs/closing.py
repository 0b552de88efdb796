"""`Closing`: a mixin for whatever is closed at the end of a `with` block."""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Calls `close` at the end of a `with` block, whether the block raised or not."""

    @abstractmethod
    def close(self) -> None:
        """Free what is held. Calling it again does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
