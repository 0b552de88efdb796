import json
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from mlagents_envs import timers
from mlagents_envs.timers import (
    GaugeNode,
    TimerNode,
    TimerStack,
    add_metadata,
    get_timer_root,
    get_timer_stack_for_thread,
    get_timer_tree,
    hierarchical_timer,
    merge_gauges,
    reset_timers,
    set_gauge,
    timed,
)


class Clock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timers, "perf_counter", clock)
    return clock


@pytest.fixture(autouse=True)
def _fresh_timers(clock: Clock) -> Iterator[None]:
    reset_timers()
    yield
    reset_timers()


def span(clock: Clock, name: str, seconds: float) -> None:
    with hierarchical_timer(name):
        clock.now_s += seconds


def times(tree: dict[str, Any]) -> dict[str, Any]:
    """The tree without what stands beside its root."""
    return {key: tree[key] for key in tree if key not in ("name", "gauges", "metadata")}


def test_nested_spans_by_hand(clock: Clock):
    for seconds in (1.0, 2.0):
        with hierarchical_timer("update"):
            span(clock, "forward", seconds)
            span(clock, "backward", 3.0)
            clock.now_s += 0.25
    clock.now_s += 4.0
    # forward 1 + 2, backward 3 + 3, update that and 2 * 0.25, root that and 4.
    assert times(get_timer_tree()) == {
        "total": 13.5,
        "count": 1,
        "self": 4.0,
        "children": {
            "update": {
                "total": 9.5,
                "count": 2,
                "self": 0.5,
                "children": {
                    "forward": {"total": 3.0, "count": 2, "self": 3.0},
                    "backward": {"total": 6.0, "count": 2, "self": 6.0},
                },
            }
        },
    }


def test_one_name_at_two_places_is_two_nodes(clock: Clock):
    span(clock, "a", 1.0)
    with hierarchical_timer("b"):
        span(clock, "a", 2.0)
    root = get_timer_root()
    assert root.children["a"].total == 1.0
    assert root.children["b"].children["a"].total == 2.0


def test_a_span_yields_its_node(clock: Clock):
    with hierarchical_timer("a") as node:
        assert node is get_timer_root().children["a"]
        assert node.count == 0


def test_a_span_that_raises_is_counted_and_closed(clock: Clock):
    with pytest.raises(KeyError), hierarchical_timer("outer"), hierarchical_timer("inner"):
        clock.now_s += 1.0
        raise KeyError
    span(clock, "after", 2.0)
    root = get_timer_root()
    assert list(root.children) == ["outer", "after"]
    assert root.children["outer"].children["inner"].total == 1.0


def test_recursion_nests(clock: Clock):
    @timed
    def countdown(n: int) -> None:
        clock.now_s += 1.0
        if n:
            countdown(n - 1)

    countdown(2)
    node, totals = get_timer_root(), []
    while node.children:
        (node,) = node.children.values()
        totals.append(node.total)
    assert totals == [3.0, 2.0, 1.0]


def test_a_timed_function_keeps_its_name_arguments_and_result(clock: Clock):
    class Policy:
        @timed
        def act(self, x: int, *, scale: int) -> int:
            """Doc."""
            clock.now_s += 1.0
            return x * scale

    assert Policy().act(2, scale=3) == 6
    assert Policy.act.__name__ == "act"
    assert Policy.act.__doc__ == "Doc."
    ((name, node),) = get_timer_root().children.items()
    assert name == Policy.act.__qualname__
    assert (node.total, node.count) == (1.0, 1)


def test_a_reset_within_a_span_leaves_a_usable_tree(clock: Clock):
    with hierarchical_timer("old"):
        reset_timers()
        span(clock, "a", 1.0)
    span(clock, "b", 1.0)
    assert list(get_timer_root().children) == ["a", "b"]


def test_spans_may_go_to_a_stack_of_ones_own(clock: Clock):
    stack = TimerStack()
    with hierarchical_timer("mine", stack):
        clock.now_s += 1.0
    set_gauge("g", 1.0, stack)
    add_metadata("m", "text", stack)
    tree = get_timer_tree(stack)
    assert list(tree["children"]) == ["mine"]
    assert list(tree["gauges"]) == ["g"]
    assert tree["metadata"]["m"] == "text"
    assert get_timer_tree()["gauges"] == {}
    assert get_timer_root().children == {}


def test_each_thread_has_its_own_tree_which_another_can_join_to_its_own(clock: Clock):
    def work() -> None:
        with hierarchical_timer("outer"):
            span(clock, "inner", 2.0)

    thread = threading.Thread(target=work)
    assert get_timer_stack_for_thread(thread) is None
    thread.start()
    thread.join()
    stack = get_timer_stack_for_thread(thread)
    assert stack is not None
    clock.now_s += 3.0  # the root of a stack counts until it is read
    get_timer_root().merge(stack.get_root(), "trainer_threads")
    # 5 s in this thread's root, and alongside them the other root's 2 + 3.
    assert times(get_timer_tree()) == {
        "total": 5.0,
        "count": 1,
        "self": 5.0,
        "children": {
            "trainer_threads": {
                "total": 5.0,
                "count": 1,
                "self": 3.0,
                "is_parallel": True,
                "children": {
                    "outer": {
                        "total": 2.0,
                        "count": 1,
                        "self": 0.0,
                        "children": {"inner": {"total": 2.0, "count": 1, "self": 2.0}},
                    }
                },
            }
        },
    }


def test_merging_adds_times_and_leaves_the_other_tree_as_it_was():
    left, right = TimerNode(), TimerNode()
    left.get_child("a").add_time(1.0)
    right.add_time(8.0)
    right.get_child("a").add_time(2.0)
    right.get_child("a").get_child("b").add_time(0.5)
    before = right.to_dict()
    left.merge(right, is_parallel=False)
    left.get_child("a").get_child("b").add_time(0.5)
    assert right.to_dict() == before
    assert left.to_dict() == {
        "total": 8.0,
        "count": 1,
        "self": 5.0,
        "children": {
            "a": {
                "total": 3.0,
                "count": 2,
                "self": 2.0,
                "children": {"b": {"total": 1.0, "count": 2, "self": 1.0}},
            }
        },
    }


def test_a_gauge_keeps_the_latest_value_and_the_range():
    for value in (2.0, -1.0, 5.0, 3.0):
        set_gauge("g", value)
    for value in (float("nan"), float("inf"), -float("inf")):
        set_gauge("g", value)
    assert get_timer_tree()["gauges"] == {"g": {"value": 3.0, "min": -1.0, "max": 5.0, "count": 4}}


def test_a_gauge_that_only_ever_was_nan_is_absent():
    set_gauge("g", float("nan"))
    assert get_timer_tree()["gauges"] == {}


def test_merged_gauges_are_newer_and_not_shared():
    set_gauge("both", 1.0)
    theirs = {"both": GaugeNode(7.0), "new": GaugeNode(4.0)}
    theirs["both"].update(0.5)
    merge_gauges(theirs)
    set_gauge("new", 5.0)
    assert get_timer_tree()["gauges"] == {
        "both": {"value": 0.5, "min": 0.5, "max": 7.0, "count": 3},
        "new": {"value": 5.0, "min": 4.0, "max": 5.0, "count": 2},
    }
    assert theirs["new"].to_dict() == {"value": 4.0, "min": 4.0, "max": 4.0, "count": 1}


def test_metadata_say_what_was_timed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["mlagents-learn", "config.yaml", "--force"])
    add_metadata("mlagents_version", "1.2.3")
    tree = get_timer_tree()
    metadata = tree["metadata"]
    assert tree["name"] == "root"
    assert metadata["timer_format_version"] == "0.1.0"
    assert metadata["command_line_arguments"] == "mlagents-learn config.yaml --force"
    assert metadata["python_version"] == ".".join(map(str, sys.version_info[:3]))
    assert metadata["mlagents_version"] == "1.2.3"
    assert int(metadata["start_time_seconds"]) <= int(metadata["end_time_seconds"])
    assert all(isinstance(value, str) for value in metadata.values())


def test_the_tree_survives_json_and_a_node_survives_pickling(clock: Clock):
    with hierarchical_timer("a"):
        span(clock, "b", 1.0)
    set_gauge("g", 1.0)
    tree = get_timer_tree()
    assert json.loads(json.dumps(tree)) == tree
    root = get_timer_root()
    assert pickle.loads(pickle.dumps(root)).to_dict() == root.to_dict()


def test_timers_need_nothing_but_the_standard_library():
    program = (
        "import sys; import mlagents_envs.timers\n"
        "assert not {'numpy', 'torch', 'google.protobuf'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
