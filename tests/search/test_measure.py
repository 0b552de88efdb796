"""The value of a run, worked by hand."""

import pytest

from mlagents.search.measure import measured_behavior, score
from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.settings.run_options import RunOptions
from mlagents.trainers.settings.search import Measure

CURVE = [(20, 0.0), (40, 1.0), (60, 4.0), (80, 6.0), (100, 8.0)]


def test_the_last_part_of_a_run_is_averaged():
    # The last 40 % of 100 steps are those above 60: (6 + 8) / 2.
    assert score(CURVE, Measure(last=0.4), max_steps=100) == 7.0
    assert score(CURVE, Measure(last=1.0), max_steps=100) == pytest.approx(3.8)


def test_a_run_without_values_at_its_end_has_no_value():
    assert score(CURVE[:2], Measure(last=0.4), max_steps=100) is None
    assert score([], Measure(steps_to=5), max_steps=100) is None


def test_steps_to_a_goal_are_negative_if_larger_is_better():
    assert score(CURVE, Measure(steps_to=4.0), max_steps=100) == -60
    falling = [(step, -value) for step, value in CURVE]
    measure = Measure(steps_to=-4.0, direction="minimize")
    assert score(falling, measure, max_steps=100) == 60


def test_a_goal_not_reached_costs_the_share_that_is_missing():
    # From 0 to 16, 8 was reached: half of the way is missing.
    assert score(CURVE, Measure(steps_to=16.0), max_steps=100) == -150


def test_the_behavior_is_named_where_there_are_several():
    two = RunOptions.model_validate({"behaviors": {"A": {}, "B": {}}})
    with pytest.raises(TrainerConfigError, match=r"several behaviors.*A, B"):
        measured_behavior(Measure(), two)
    assert measured_behavior(Measure(behavior="B"), two) == "B"
    with pytest.raises(TrainerConfigError, match="'C' that is not configured"):
        measured_behavior(Measure(behavior="C"), two)
    one = RunOptions.model_validate({"behaviors": {"A": {}}})
    assert measured_behavior(Measure(), one) == "A"
    assert measured_behavior(Measure(), RunOptions(default_settings={})) is None
