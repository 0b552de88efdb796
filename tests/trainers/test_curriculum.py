"""Lessons: when they begin, in which order, and how a resumed run goes on with them."""

import json
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlagents.trainers.run.curriculum import (
    BehaviorProgress,
    Curriculum,
    sampler_in_words,
)
from mlagents.trainers.settings.parameters import read_parameters, with_seeds


def lessons(*values: Any, **criteria: Any) -> dict[str, Any]:
    """A curriculum with a lesson per value, all but the last with the same criteria."""
    until = {"behavior": "Jump", **criteria}
    return {
        "curriculum": [
            {"name": f"Lesson{i}", "value": value, "completion_criteria": until}
            for i, value in enumerate(values[:-1])
        ]
        + [{"name": f"Lesson{len(values) - 1}", "value": values[-1]}]
    }


def curriculum(written: dict[str, Any], **numbers: int) -> Curriculum:
    return Curriculum(with_seeds(read_parameters(written), 7), numbers)


def jump(*returns: float, step: int = 0, max_steps: int = 100) -> dict[str, BehaviorProgress]:
    return {"Jump": BehaviorProgress(step, max_steps, returns)}


def test_the_progress_must_exceed_the_threshold() -> None:
    wall = curriculum({"wall": lessons(1, 2, 3, measure="progress", threshold=0.5)})
    assert wall.advance(jump(step=50)) == []
    (change,) = wall.advance(jump(step=51))
    assert (change.parameter, change.lesson.name, change.number) == ("wall", "Lesson1", 1)
    assert wall.lesson_numbers == {"wall": 1}


def played(*scores: float, elo: float | None = None) -> dict[str, BehaviorProgress]:
    return {"Jump": BehaviorProgress(0, 100, (), elo, scores)}


def test_the_win_rate_is_the_mean_score_of_the_last_games() -> None:
    written = {"wall": lessons(1, 2, measure="win_rate", threshold=0.5, min_lesson_length=4)}
    assert curriculum(written).advance(played(1, 1, 1)) == [], "too few games"
    assert curriculum(written).advance(played(1, 1, 0.5, 0, 0.5)) == [], "0.5 is not above 0.5"
    (change,) = curriculum(written).advance(played(0, 0.5, 0.5, 0.5, 1))
    assert change.number == 1
    unlimited = {"wall": lessons(1, 2, measure="win_rate", threshold=0.5)}
    assert curriculum(unlimited).advance(played()) == []


def test_the_elo_must_exceed_the_threshold_after_enough_games() -> None:
    written = {"wall": lessons(1, 2, measure="elo", threshold=1300, min_lesson_length=2)}
    assert curriculum(written).advance(played(1, elo=1400.0)) == []
    assert curriculum(written).advance(played(1, 1, elo=1300.0)) == []
    assert curriculum(written).advance(played(1, 1)) == [], "without self-play there is no rating"
    (change,) = curriculum(written).advance(played(1, 0, elo=1301.0))
    assert change.number == 1


def test_the_reward_is_the_mean_of_the_last_episodes_and_exceeds_the_threshold() -> None:
    # The longest min_lesson_length that names the behavior is 2, although wall's own is 1.
    written = {
        "wall": lessons(1, 2, threshold=3, signal_smoothing=False, min_lesson_length=1),
        "other": lessons(1, 2, threshold=99, min_lesson_length=2),
    }
    assert curriculum(written).n_returns("Jump") == 2
    assert curriculum(written).advance(jump(100, 2, 4)) == [], "(2 + 4) / 2 is not above 3"
    (change,) = curriculum(written).advance(jump(-100, 2, 4.1))
    assert change.parameter == "wall"


def test_the_reward_of_groups_is_that_of_their_own_episodes() -> None:
    written = {
        "wall": lessons(
            1, 2, measure="group_reward", threshold=3, signal_smoothing=False, min_lesson_length=2
        )
    }
    for returns, n_changes in (((4.0,), 0), ((2.0, 4.0), 0), ((3.0, 4.0), 1)):
        progress = BehaviorProgress(0, 100, (100.0,) * 5, group_returns=returns)
        assert len(curriculum(written).advance({"Jump": progress})) == n_changes


def test_smoothing_by_hand() -> None:
    # m1 = 0.25 * 0 + 0.75 * 4 = 3; m2 = 0.25 * 3 + 0.75 * 4 = 3.75.
    wall = curriculum({"wall": lessons(1, 2, threshold=3.5)})
    assert wall.advance(jump(4)) == []
    assert wall.state()["wall"]["smoothed_reward"] == 3.0
    assert len(wall.advance(jump(4))) == 1
    assert wall.state()["wall"] == {"lesson_num": 1, "smoothed_reward": 3.75}


def test_the_smoothed_reward_outlives_a_change_of_lesson() -> None:
    # After m = 3.75, the next lesson begins with 0.25 * 3.75 + 0.75 * 0 = 0.9375.
    wall = curriculum({"wall": lessons(1, 2, 3, threshold=3.5)})
    for _ in range(2):
        wall.advance(jump(4))
    wall.advance(jump(0))
    assert wall.state()["wall"] == {"lesson_num": 1, "smoothed_reward": 0.9375}


@pytest.mark.parametrize("measure", ["reward", "progress"])
def test_a_lesson_lasts_its_least_number_of_episodes(measure: str) -> None:
    written = {"wall": lessons(1, 2, measure=measure, threshold=0.1, min_lesson_length=3)}
    wall = curriculum(written)
    assert wall.advance(jump(9, 9, step=90)) == []
    assert wall.state()["wall"]["smoothed_reward"] == 0.0, "too few episodes are no check"
    assert len(wall.advance(jump(9, 9, 9, step=90))) == 1


def test_no_episode_is_no_reward() -> None:
    assert curriculum({"wall": lessons(1, 2, threshold=-10)}).advance(jump()) == []


def test_one_lesson_per_parameter_and_check_and_none_after_the_last() -> None:
    written = {
        "a": lessons(1, 2, 3, measure="progress", require_reset=True),
        "b": lessons(1, 2, measure="progress"),
        "c": 5.0,
    }
    both = curriculum(written)
    assert [(c.parameter, c.number, c.needs_reset) for c in both.advance(jump(step=99))] == [
        ("a", 1, True),
        ("b", 1, False),
    ]
    assert [(c.parameter, c.number) for c in both.advance(jump(step=99))] == [("a", 2)]
    assert both.advance(jump(step=99)) == []
    assert both.lesson_numbers == {"a": 2, "b": 1, "c": 0}


def test_parameters_are_those_of_the_present_lessons() -> None:
    uniform = {"sampler_type": "uniform", "sampler_parameters": {"max_value": 4, "seed": 3}}
    both = curriculum({"a": lessons(1, uniform, measure="progress"), "c": 5.0})
    words = {name: sampler_in_words(sampler) for name, sampler in both.parameters.items()}
    assert words == {"a": "Float: value=1.0", "c": "Float: value=5.0"}
    both.advance(jump(step=1))
    assert both.parameters["a"].sampler_parameters.model_dump() == {
        "seed": 3,
        "min_value": 0.0,
        "max_value": 4.0,
    }
    assert both.parameters["c"].sampler_parameters.seed == 9, "7 and the lessons before it"


@pytest.mark.parametrize(
    ("kind", "numbers", "words"),
    [
        ("constant", {"value": 1.5}, "Float: value=1.5"),
        ("uniform", {"min_value": 1, "max_value": 2}, "Uniform sampler: min=1.0, max=2.0"),
        ("gaussian", {"mean": 0, "st_dev": 3}, "Gaussian sampler: mean=0.0, stddev=3.0"),
        (
            "multirangeuniform",
            {"intervals": [[0, 1], [5, 6.5]]},
            "MultiRangeUniform sampler: intervals=[[0.0, 1.0], [5.0, 6.5]]",
        ),
    ],
)
def test_samplers_in_words(kind: str, numbers: dict[str, Any], words: str) -> None:
    written = {"sampler_type": kind, "sampler_parameters": numbers}
    (sampler,) = curriculum({"p": written}).parameters.values()
    assert sampler_in_words(sampler) == words


def test_the_log_names_lesson_and_value(capsys: pytest.CaptureFixture[str]) -> None:
    wall = curriculum({"wall": lessons(1, 2, measure="progress"), "mass": 3})
    wall.log_lessons()
    wall.advance(jump(step=1))
    assert capsys.readouterr().out.splitlines() == [
        "[INFO] Parameter 'wall' is in lesson 'Lesson0' (1 of 2): Float: value=1.0.",
        "[INFO] Parameter 'mass' is in lesson 'mass': Float: value=3.0.",
        "[INFO] Parameter 'wall' is in lesson 'Lesson1' (2 of 2): Float: value=2.0.",
    ]
    assert wall.in_words() == "wall 2 of 2 (Lesson1)"


def test_a_behavior_that_never_appears_is_warned_of_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wall = curriculum({"wall": lessons(1, 2, 3, behavior="Jmp")})
    wall.advance({})
    assert capsys.readouterr().out == "", "nothing has appeared yet"
    for _ in range(2):
        assert wall.advance(jump(9)) == []
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("[WARNING] environment_parameters.wall: a lesson depends on behavior")
    assert "'Jmp'" in line and "did you mean 'Jump'?" in line


def test_lessons_to_begin_with(capsys: pytest.CaptureFixture[str]) -> None:
    written = {"a": lessons(1, 2, 3), "b": lessons(1, 2)}
    assert curriculum(written, a=1).lesson_numbers == {"a": 1, "b": 0}
    assert capsys.readouterr().out == ""
    assert curriculum(written, a=1, b=5, gone=2).lesson_numbers == {"a": 1, "b": 1}
    assert "b was in lesson 5, but now only has lessons 0 to 1" in capsys.readouterr().out


@given(
    st.lists(st.lists(st.floats(-5, 5), max_size=4), max_size=12),
    st.integers(0, 12),
    st.booleans(),
)
def test_a_resumed_curriculum_goes_on_as_if_never_stopped(
    checks: list[list[float]], stop: int, smoothing: bool
) -> None:
    written = {
        "a": lessons(1, 2, 3, 4, threshold=1, signal_smoothing=smoothing),
        "b": lessons(1, 2, 3, threshold=2, min_lesson_length=2),
    }
    whole, first, second = curriculum(written), curriculum(written), curriculum(written)
    for number, returns in enumerate(checks):
        if number == stop:
            second.load_state(json.loads(json.dumps(first.state())))
        now = {"Jump": BehaviorProgress(0, 100, deque(returns))}
        assert (first if number < stop else second).advance(now) == whole.advance(now)


def test_a_state_of_another_trainer_has_numbers_alone() -> None:
    wall = curriculum({"wall": lessons(1, 2, 3)})
    wall.load_state({"wall": {"lesson_num": 2}, "gone": {"lesson_num": 1}})
    assert wall.state() == {"wall": {"lesson_num": 2, "smoothed_reward": 0.0}}
