"""The statistics of the benchmark, and its page from finished runs."""

import argparse
import json
import runpy
from pathlib import Path

import numpy as np
import pytest

REWARD = "Environment/Cumulative Reward"
SCRIPT = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "benchmark_zoo"))


def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end() -> None:
    # Of 8 values 2 are left out at each end: the mean of 3, 4, 5 and 6. Of 5 values, one.
    assert SCRIPT["interquartile_mean"](np.array([100, 6, 5, 4, 3, 2, 1, 50.0])) == 4.5
    assert SCRIPT["interquartile_mean"](np.array([-100, 1, 2, 3, 100.0])) == 2
    assert SCRIPT["interquartile_mean"](np.array([1.0, 2.0, 6.0])) == 3


def test_an_interval_holds_the_mean_and_is_the_same_every_time() -> None:
    scores = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    low, high = SCRIPT["interval"](scores)
    assert 1 <= low < 3 < high <= 5
    assert SCRIPT["interval"](scores) == (low, high)
    assert SCRIPT["interval"](np.array([7.0])) == (7.0, 7.0)


@pytest.mark.parametrize(("seconds", "expected"), [(10, 5), (700, 3), (4000, 1)])
def test_long_runs_are_repeated_less(seconds: float, expected: int) -> None:
    assert SCRIPT["n_seeds"](seconds) == expected


def test_settings_of_other_worlds_behaviors_are_left_out() -> None:
    changes = ["behaviors.Basic.max_steps=5", "behaviors.3DBall.max_steps=6", "debug=true"]
    assert SCRIPT["changes_of"]("Basic", changes) == (changes[0], changes[2])


def test_the_page_has_the_scores_of_finished_runs_only(tmp_path: Path) -> None:
    for seed, reward in (("1", 2.0), ("2", 4.0), ("3", 99.0)):
        run = tmp_path / "runs" / "Basic" / seed
        (run / "run_logs").mkdir(parents=True)
        if seed != "3":
            (run / "run_logs" / "zoo.json").write_text('{"seconds": 5}')
        lines = [
            {"behavior": "Basic", "step": step, "time": 0, "stats": {REWARD: value}}
            for step, value in ((10, 0.0), (20, None), (90, reward), (100, reward))
        ]
        (run / "stats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = tmp_path / "benchmark.md"
    options = argparse.Namespace(results=tmp_path / "runs", page=page, set=[])
    SCRIPT["write_page"](options)
    row = "`config/ppo/Basic.yaml` | 100 | 2 | 3.000 | 3.000 | 2.000 to 4.000 | 5 s |"
    assert f"| Basic | Basic | {row}" in page.read_text()
    picture = (tmp_path / "benchmark" / "Basic-Basic.svg").read_text()
    assert picture.count("<polyline") == 3
