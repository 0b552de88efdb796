"""One call in a thread of its own."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_background(call: Callable[[], T], *, name: str) -> Future[T]:
    """Start `call` in a new thread; the future gives what it returns, or raises what it raises.

    Unlike an executor's thread, it does not hold up the end of the process.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
