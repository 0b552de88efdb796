"""Nested timers that measure where a run spends its time.

    with hierarchical_timer("update"):
        with hierarchical_timer("forward"):
            ...
    json.dump(get_timer_tree(), file)

Each thread has its own tree, so timers need no lock; `TimerNode.merge` adds the tree of a finished
thread to another. A span costs about half a microsecond, so use timers for each step rather than
for each agent. There are also gauges (numbers with their range) and metadata (strings).
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
"""Version of the format that `get_timer_tree` returns."""


class TimerNode:
    """Node of the timer tree: all spans with the same name and parent.

    Attributes:
        children: Nodes of nested spans, by name.
        total: Total time of all finished spans, in seconds.
        count: Number of finished spans.
        is_parallel: Whether the spans ran in parallel with the parent's instead of within it.
    """

    __slots__ = ("children", "count", "is_parallel", "total")

    def __init__(self) -> None:
        self.children: dict[str, TimerNode] = {}
        self.total = 0.0
        self.count = 0
        self.is_parallel = False

    def get_child(self, name: str) -> "TimerNode":
        """Return the child `name`; create it if necessary."""
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
            other: Root of the other tree, which is not changed.
            root_name: Name of the child to add the tree to; None adds it to this node itself.
            is_parallel: Whether the other tree's spans ran in parallel with this node's.
        """
        target = self if root_name is None else self.get_child(root_name)
        target.total += other.total
        target.count += other.count
        target.is_parallel |= is_parallel
        for name, child in other.children.items():
            target.merge(child, name, child.is_parallel)

    def to_dict(self) -> dict[str, Any]:
        """Return the tree below this node for JSON; `self` is the time outside all children."""
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
    """Latest value of a series of numbers, and their range.

    Attributes:
        value: Latest number.
        min_value: Smallest number.
        max_value: Largest number.
        count: Count of numbers.
    """

    __slots__ = ("count", "max_value", "min_value", "value")

    def __init__(self, value: float) -> None:
        self.value = self.min_value = self.max_value = value
        self.count = 1

    def update(self, value: float) -> None:
        """Add a number."""
        self.merge(GaugeNode(value))

    def merge(self, other: "GaugeNode") -> None:
        """Add the numbers of another gauge, assumed to be newer; `other` is not changed."""
        self.value = other.value
        self.min_value = min(self.min_value, other.min_value)
        self.max_value = max(self.max_value, other.max_value)
        self.count += other.count

    def to_dict(self) -> dict[str, float]:
        """Return the attributes for JSON."""
        return {
            "value": self.value,
            "min": self.min_value,
            "max": self.max_value,
            "count": self.count,
        }


class TimerStack:
    """Timer tree of a thread with its current node, gauges and metadata.

    Attributes:
        root: Root of the tree.
        current: Node of the innermost open span; the root if no span is open.
        gauges: Gauges by name.
        metadata: Metadata by name.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Delete everything and restart the clock; open spans are not counted."""
        self.root = TimerNode()
        self.root.count = 1
        self.current = self.root
        self.gauges: dict[str, GaugeNode] = {}
        self.metadata: dict[str, str] = {}
        self._start_s = perf_counter()
        self._start_time_s = time.time()

    def get_root(self) -> TimerNode:
        """Return the root; its total is the time since the creation or `reset`."""
        self.root.total = perf_counter() - self._start_s
        return self.root

    def to_dict(self) -> dict[str, Any]:
        """Return the tree, gauges and metadata for JSON."""
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
    """Context manager that times its block as a span within the innermost open span.

    Args:
        name: Name of the span. Spans with the same name and parent are added up.
        timer_stack: Timers to use; None for those of this thread.
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
        # A reset within the span has replaced the tree: do not change the new one.
        if self._stack.current is self._node:
            self._stack.current = self._parent


def timed(func: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that each call is a span with its qualified name."""
    name = func.__qualname__

    @wraps(func)
    def timed_func(*args: P.args, **kwargs: P.kwargs) -> R:
        with hierarchical_timer(name):
            return func(*args, **kwargs)

    return timed_func


class _ThisThread(threading.local):
    """Holder of one stack per thread, which is created at the first access."""

    def __init__(self) -> None:
        self.stack = _stacks[threading.current_thread()] = TimerStack()


_stacks: WeakKeyDictionary[threading.Thread, TimerStack] = WeakKeyDictionary()
_this_thread = _ThisThread()


def _this_stack(timer_stack: TimerStack | None) -> TimerStack:
    return _this_thread.stack if timer_stack is None else timer_stack


def get_timer_stack_for_thread(thread: threading.Thread) -> TimerStack | None:
    """Return the timers of a running or finished thread; None if it has none."""
    return _stacks.get(thread)


def get_timer_root(timer_stack: TimerStack | None = None) -> TimerNode:
    """Return the root of the tree of this thread, or of `timer_stack`."""
    return _this_stack(timer_stack).get_root()


def get_timer_tree(timer_stack: TimerStack | None = None) -> dict[str, Any]:
    """Return the tree of this thread, or of `timer_stack`, for JSON.

    A node is `{"total", "count", "self", "is_parallel"?, "children"?}`, with times in seconds. The
    root also has `name`, `gauges` and `metadata`.
    """
    return _this_stack(timer_stack).to_dict()


def reset_timers(timer_stack: TimerStack | None = None) -> None:
    """Delete all times, gauges and metadata of this thread, or of `timer_stack`."""
    _this_stack(timer_stack).reset()


def set_gauge(name: str, value: float, timer_stack: TimerStack | None = None) -> None:
    """Set the latest value of a gauge, which also tracks the range.

    NaN and infinities are ignored, because JSON cannot represent them.
    """
    if math.isfinite(value):
        merge_gauges({name: GaugeNode(float(value))}, timer_stack)


def merge_gauges(gauges: Mapping[str, GaugeNode], timer_stack: TimerStack | None = None) -> None:
    """Add the gauges of another stack, assumed to be newer; they are not changed."""
    mine = _this_stack(timer_stack).gauges
    for name, gauge in gauges.items():
        if name in mine:
            mine[name].merge(gauge)
        else:
            mine[name] = copy(gauge)


def add_metadata(key: str, value: str, timer_stack: TimerStack | None = None) -> None:
    """Add a string that describes the run, for example a version."""
    _this_stack(timer_stack).metadata[key] = value
