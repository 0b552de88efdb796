"""The statistics of the benchmark, and its page from runs."""

import json
import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mlagents.trainers.learn import main as learn

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


def test_pictures_of_long_changes_have_names_of_their_own() -> None:
    named = set()
    for value in range(2):
        result = SimpleNamespace(
            world="Sorter",
            behavior="Sorter",
            configuration="config/ppo/Sorter.yaml",
            changes=["environment_parameters.speed=" + 40 * "12345 " + str(value)],
        )
        named.add(SCRIPT["picture_of"]([result]))
    assert len(named) == 2 and all(len(name) < 200 for name in named)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two short runs with known rewards."""
    results = tmp_path_factory.mktemp("results")
    for seed, reward in ((1, 2.0), (2, 4.0)):
        run = ["--env", "Basic", "--results-dir", str(results), "--run-id", str(seed)]
        assert learn([*run, "--seed", str(seed), "--set", "behaviors.Basic.max_steps=400"]) == 0
        lines = [
            {"behavior": "Basic", "step": step, "time": step, "stats": {REWARD: value}}
            for step, value in ((10, 0.0), (20, None), (90, reward), (100, reward))
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (results / str(seed) / "stats.jsonl").write_text(text)
    return [results / "1", results / "2"]


def test_runs_are_added_to_the_page(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "benchmark.md"
    page.write_text("old\n\n## Notes\n\nBy hand.\n")
    arguments = ["--page", str(page)]
    assert SCRIPT["main"]([*arguments, "--from", str(runs[0])]) == 0
    assert SCRIPT["main"]([*arguments, "--from", str(runs[1]), "--from", str(runs[0])]) == 0
    assert SCRIPT["main"]([*arguments, "--from", str(tmp_path)]) == 1
    assert "is not a run" in capsys.readouterr().out

    # The mean reward of 2 and 4 is 3. The runs stopped at 100 of 400 steps, that is 0.0004 M.
    settings = "`config/ppo/Basic.yaml` `behaviors.Basic.max_steps=400`"
    row = "0.0001 of 0.0004 M | 2 | 3.00 | 3.00 | 2.00 to 4.00 | 0.93 |  |"
    text = page.read_text()
    assert f"| Basic | Basic | {settings} | {row}\n" in text
    assert "old" not in text and text.endswith("\n\n## Notes\n\nBy hand.\n")
    picture = tmp_path / "benchmark" / "Basic-Basic-ppo-behaviors.Basic.max_steps-400.svg"
    assert picture.read_text().count("<polyline") == 3


def test_the_mean_curve_ends_with_the_shortest_run(tmp_path: Path) -> None:
    runs = SCRIPT["zoo_runs"]
    curves = [
        runs.Curve(np.array([0.0, 50.0]), np.array([0.0, 10.0])),
        runs.Curve(np.array([0.0, 100.0]), np.array([10.0, 10.0])),
    ]
    runs.draw(curves, "title", tmp_path / "curve.svg")
    first, second, mean = re.findall(r'points="([^"]*)"', (tmp_path / "curve.svg").read_text())
    # The axis of steps ranges from 40 to 440, that of rewards from 200 to 40.
    assert first == "40.0,200.0 240.0,40.0" and second == "40.0,40.0 440.0,40.0"
    assert mean.startswith("40.0,120.0 ") and mean.endswith(" 240.0,40.0")


def test_a_long_curve_is_shortened() -> None:
    curve = SCRIPT["zoo_runs"].Curve(np.arange(1.0, 121.0), np.arange(120.0))
    short = curve.shortened()
    assert len(short) == 60
    assert short[0] == (2, 0.5) and short[-1] == (120, 118.5)
    assert curve.score == np.arange(96, 120).mean()


def test_the_page_of_the_benchmark_is_current() -> None:
    page = Path(__file__).parents[1] / "docs" / "benchmark.md"
    results = SCRIPT["read_results"](page.parent / "benchmark" / "runs.json")
    notes = SCRIPT["notes_of"](page)
    written = page.read_text(encoding="utf-8")
    assert written == SCRIPT["page_of"](results, notes), "run scripts/benchmark_zoo --only-write"
    pictures = {f"({path.parent.name}/{path.name})" for path in page.parent.glob("benchmark/*.svg")}
    assert set(re.findall(r"\(benchmark/[^)]*\.svg\)", written)) == pictures
