"""Learners that talk to each other; here, in threads of one process."""

import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mlagents.trainers.learning.process_group import LearnerError, ProcessGroup, dist

CPU = torch.device("cpu")


def in_groups(folder: Path, learner: Callable[[ProcessGroup], Any], size: int = 2) -> list[Any]:
    """Return what each of several learners returns, or the error that it raises."""
    results: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            store = dist.FileStore(str(folder / "store"), size)
            group = ProcessGroup(store, rank=rank, size=size, device=CPU, hostname="127.0.0.1")
            results[rank] = learner(group)
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_messages_of_all_sizes_arrive_by_rank(tmp_path: Path) -> None:
    def exchanged(group: ProcessGroup) -> list[Any]:
        short = group.gather({"from": group.rank, "number": math.nan, "nothing": None})
        long = group.gather([group.rank] * (1 + 20_000 * group.rank))
        return [short, long]

    for short, long in in_groups(tmp_path, exchanged, size=3):
        assert [message["from"] for message in short] == [0, 1, 2]
        assert all(math.isnan(message["number"]) for message in short)
        assert [len(message) for message in long] == [1, 20_001, 40_001]
        assert [message[0] for message in long] == [0, 1, 2]


def test_the_state_of_the_first_reaches_all(tmp_path: Path) -> None:
    def received(group: ProcessGroup) -> Any:
        state = {"weights": torch.arange(10_000.0), "step": 7, "nested": {"list": [1, None]}}
        return group.broadcast(state if group.rank == 0 else None)

    for state in in_groups(tmp_path, received):
        assert torch.equal(state["weights"], torch.arange(10_000.0))
        assert (state["step"], state["nested"]) == (7, {"list": [1, None]})


def test_each_behavior_adds_up_its_own_numbers(tmp_path: Path) -> None:
    def summed(group: ProcessGroup) -> list[Any]:
        one, other = group.shards(), group.shards()
        # Two behaviors that learn in threads of their own, in any order.
        order = [one, other] if group.rank else [other, one]
        numbers = {id(each): torch.tensor([1.0 + group.rank, 0.5]) for each in order}
        threads = [threading.Thread(target=each.add, args=(numbers[id(each)],)) for each in order]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        extremes = one.least(5 - group.rank), one.most(5 - group.rank)
        return [numbers[id(one)].tolist(), numbers[id(other)].tolist(), extremes]

    assert in_groups(tmp_path, summed) == [[[3.0, 1.0], [3.0, 1.0], (4, 5)]] * 2


def test_a_difference_is_told_with_both_values(tmp_path: Path) -> None:
    def compared(group: ProcessGroup) -> None:
        group.require_same("colors", "green", remedy="Paint.")
        version = "2.1" if group.rank == 2 else "2.0"
        group.require_same("versions of mlagents-next", version, remedy="Install the same.")

    for error in in_groups(tmp_path, compared, size=3):
        assert isinstance(error, LearnerError)
        assert str(error) == (
            "learners 0 and 2 have different versions of mlagents-next: 2.0 and 2.1. "
            "Install the same."
        )


@pytest.mark.parametrize("waits", ["for a message", "for a sum"])
def test_a_learner_that_leaves_is_named_with_its_cause(tmp_path: Path, waits: str) -> None:
    def learner(group: ProcessGroup) -> Any:
        shards = group.shards()
        group.gather("begin")
        if group.rank:
            group.leave("its player has vanished")
            # From here on nothing is exchanged, so that it can save and end.
            numbers = torch.ones(1)
            shards.add(numbers)
            assert numbers.item() == 1.0
            with pytest.raises(LearnerError, match="its player has vanished"):
                group.gather("more")
            return None  # its connections are closed with its group
        if waits == "for a sum":
            shards.add(torch.ones(1))
        else:
            group.gather("more")
        return None

    error, none = in_groups(tmp_path, learner)
    assert none is None
    assert isinstance(error, LearnerError)
    assert str(error) == "learner 1 has ended: its player has vanished"


def test_a_reported_failure_ends_the_next_wait(tmp_path: Path) -> None:
    def learner(group: ProcessGroup) -> None:
        group.gather("begin")
        if group.rank == 0:
            group.report("learner 1 (process 7) was killed by signal 9")
            group.check()
        else:
            group.leave("done")

    error, _ = in_groups(tmp_path, learner)
    assert isinstance(error, LearnerError)
    assert "learner 1" in str(error)


def test_a_learner_that_is_lost_without_a_word_is_named(tmp_path: Path) -> None:
    def learner(group: ProcessGroup) -> None:
        group.gather("begin")
        if group.rank == 0:
            group.gather("more")

    error, _ = in_groups(tmp_path, learner)
    assert isinstance(error, LearnerError)
    assert str(error).startswith("the connection to learner 1 was lost.")
