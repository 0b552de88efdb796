"""Nested timers you can print: where a run spends its time.

    with hierarchical_timer("update"):
        with hierarchical_timer("forward"):
            ...
    json.dump(get_timer_tree(), file)

Each thread has its own tree, so timing takes no lock; `TimerNode.merge` joins the tree of a
finished thread to another. A span costs about half a microsecond: fit for every step, not for
every agent. Beside the tree stand gauges (numbers with their range) and metadata (texts).
"""

import math
import platform
import sys
import threading
import time
from collections.abc import Callable, Mapping
from copy import copy
from functools import wraps
from time import perf_counter
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

P = ParamSpec("P")
R = TypeVar("R")

TIMER_FORMAT_VERSION = "0.1.0"
"""Version of the layout that `get_timer_tree` returns."""


class TimerNode:
    """The spans of one name at one place of a tree.

    Attributes:
        children: By name, the nodes of the spans within.
        total: Seconds spent in all finished spans.
        count: How many spans finished.
        is_parallel: Whether the time passed alongside the parent's, not within it.
    """

    __slots__ = ("children", "count", "is_parallel", "total")

    def __init__(self) -> None:
        self.children: dict[str, TimerNode] = {}
        self.total = 0.0
        self.count = 0
        self.is_parallel = False

    def get_child(self, name: str) -> "TimerNode":
        """Return the child `name`; make it if need be."""
        child = self.children.get(name)
        if child is None:
            child = self.children[name] = TimerNode()
        return child

    def add_time(self, elapsed_s: float) -> None:
        """Count one finished span."""
        self.total += elapsed_s
        self.count += 1

    def merge(
        self, other: "TimerNode", root_name: str | None = None, is_parallel: bool = True
    ) -> None:
        """Add the times of another tree, for example that of another thread.

        Args:
            other: The root of the other tree; not changed.
            root_name: The child of this node to add to; None adds to this node itself.
            is_parallel: Whether the other tree's time passed alongside this node's.
        """
        target = self if root_name is None else self.get_child(root_name)
        target.total += other.total
        target.count += other.count
        target.is_parallel |= is_parallel
        for name, child in other.children.items():
            target.merge(child, name, child.is_parallel)

    def to_dict(self) -> dict[str, Any]:
        """Return this node and all below, fit for JSON; `self` is the time in no child."""
        within = sum(child.total for child in self.children.values() if not child.is_parallel)
        result: dict[str, Any] = {
            "total": self.total,
            "count": self.count,
            "self": max(0.0, self.total - within),
        }
        if self.is_parallel:
            result["is_parallel"] = True
        if self.children:
            result["children"] = {name: child.to_dict() for name, child in self.children.items()}
        return result


class GaugeNode:
    """The latest of a series of numbers, and their range.

    Attributes:
        value: The latest.
        min_value: The least of all.
        max_value: The greatest of all.
        count: How many there were.
    """

    __slots__ = ("count", "max_value", "min_value", "value")

    def __init__(self, value: float) -> None:
        self.value = self.min_value = self.max_value = value
        self.count = 1

    def update(self, value: float) -> None:
        """Add a newer number."""
        self.merge(GaugeNode(value))

    def merge(self, other: "GaugeNode") -> None:
        """Add the numbers of another gauge, taken for newer; `other` is not changed."""
        self.value = other.value
        self.min_value = min(self.min_value, other.min_value)
        self.max_value = max(self.max_value, other.max_value)
        self.count += other.count

    def to_dict(self) -> dict[str, float]:
        """Return the numbers, fit for JSON."""
        return {
            "value": self.value,
            "min": self.min_value,
            "max": self.max_value,
            "count": self.count,
        }


class TimerStack:
    """A tree of timers and the place in it where the thread is now, with gauges and metadata.

    Attributes:
        root: The tree.
        current: The node of the innermost open span, the root where none is open.
        gauges: By name.
        metadata: By name.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Delete all records and start again; spans still open are not counted."""
        self.root = TimerNode()
        self.root.count = 1
        self.current = self.root
        self.gauges: dict[str, GaugeNode] = {}
        self.metadata: dict[str, str] = {}
        self._start_s = perf_counter()
        self._start_time_s = time.time()

    def get_root(self) -> TimerNode:
        """Return the tree; its root's total is the time since the start or `reset`."""
        self.root.total = perf_counter() - self._start_s
        return self.root

    def to_dict(self) -> dict[str, Any]:
        """Return the tree, its gauges and metadata, fit for JSON."""
        metadata = {
            "timer_format_version": TIMER_FORMAT_VERSION,
            "start_time_seconds": str(int(self._start_time_s)),
            "end_time_seconds": str(int(time.time())),
            "python_version": platform.python_version(),
            "command_line_arguments": " ".join(sys.argv),
        }
        return {
            "name": "root",
            **self.get_root().to_dict(),
            "gauges": {name: gauge.to_dict() for name, gauge in self.gauges.items()},
            "metadata": metadata | self.metadata,
        }


class hierarchical_timer:
    """Context manager that counts the time within as a span of the innermost open one.

    Args:
        name: Names the span's node among its siblings.
        timer_stack: None means this thread's.
    """

    __slots__ = ("_name", "_node", "_parent", "_stack", "_start_s")

    def __init__(self, name: str, timer_stack: TimerStack | None = None) -> None:
        self._name = name
        self._stack = _this_stack(timer_stack)

    def __enter__(self) -> TimerNode:
        stack = self._stack
        self._parent = stack.current
        self._node = stack.current = self._parent.get_child(self._name)
        self._start_s = perf_counter()
        return self._node

    def __exit__(self, *_: object) -> None:
        self._node.add_time(perf_counter() - self._start_s)
        # A reset within the span has put another tree in place; leave it alone.
        if self._stack.current is self._node:
            self._stack.current = self._parent


def timed(func: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that each call is a span named like it, `Class.method`."""
    name = func.__qualname__

    @wraps(func)
    def timed_func(*args: P.args, **kwargs: P.kwargs) -> R:
        with hierarchical_timer(name):
            return func(*args, **kwargs)

    return timed_func


class _ThisThread(threading.local):
    """Holds one stack per thread, made when the thread first asks."""

    def __init__(self) -> None:
        self.stack = _stacks[threading.current_thread()] = TimerStack()


_stacks: WeakKeyDictionary[threading.Thread, TimerStack] = WeakKeyDictionary()
_this_thread = _ThisThread()


def _this_stack(timer_stack: TimerStack | None) -> TimerStack:
    return _this_thread.stack if timer_stack is None else timer_stack


def get_timer_stack_for_thread(thread: threading.Thread) -> TimerStack | None:
    """Return the timers of a thread, running or finished; None if it never timed anything."""
    return _stacks.get(thread)


def get_timer_root(timer_stack: TimerStack | None = None) -> TimerNode:
    """Return the tree of this thread, or of `timer_stack`."""
    return _this_stack(timer_stack).get_root()


def get_timer_tree(timer_stack: TimerStack | None = None) -> dict[str, Any]:
    """Return the tree of this thread, or of `timer_stack`, fit for JSON.

    A node is `{"total", "count", "self", "is_parallel"?, "children"?}`, in seconds; the root has
    `name`, `gauges` and `metadata` beside.
    """
    return _this_stack(timer_stack).to_dict()


def reset_timers(timer_stack: TimerStack | None = None) -> None:
    """Forget all times, gauges and metadata of this thread, or of `timer_stack`."""
    _this_stack(timer_stack).reset()


def set_gauge(name: str, value: float, timer_stack: TimerStack | None = None) -> None:
    """Set a number whose latest value and range are worth knowing.

    NaN and infinities are ignored: JSON has neither.
    """
    if math.isfinite(value):
        merge_gauges({name: GaugeNode(float(value))}, timer_stack)


def merge_gauges(gauges: Mapping[str, GaugeNode], timer_stack: TimerStack | None = None) -> None:
    """Add the gauges of another stack, taken for newer; they are not changed."""
    mine = _this_stack(timer_stack).gauges
    for name, gauge in gauges.items():
        if name in mine:
            mine[name].merge(gauge)
        else:
            mine[name] = copy(gauge)


def add_metadata(key: str, value: str, timer_stack: TimerStack | None = None) -> None:
    """Add a text that says what was timed, for example a version."""
    _this_stack(timer_stack).metadata[key] = value
