"""`Closing`: a mixin for objects that a `with` block closes."""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Mixin that calls `close` at the end of a `with` block, even if the block raised an error."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources. Calling it again does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
