"""The space of a search: paths, and the check of every corner."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from mlagents.search.space import check_space, with_values
from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.settings.search import Range, SearchSettings
from mlagents.trainers.settings.typed import CommandLine

LINE = CommandLine(Path("own.yaml"), {})
RATE = "behaviors.Ball.hyperparameters.learning_rate"


def written(**hyperparameters: Any) -> dict[str, Any]:
    return {"behaviors": {"Ball": {"trainer_type": "ppo", "hyperparameters": hyperparameters}}}


def space_of(**dimensions: Any) -> dict[str, Any]:
    settings = SearchSettings.model_validate(
        {"space": {f"behaviors.Ball.hyperparameters.{k}": v for k, v in dimensions.items()}}
    )
    return dict(settings.space)


def test_values_are_put_at_their_paths_and_the_file_stays_as_it_is():
    file = written(learning_rate=1e-6)
    changed = with_values(file, {RATE: 1e-3, "behaviors.Ball.network_settings.num_layers": 3})
    assert changed["behaviors"]["Ball"]["hyperparameters"] == {"learning_rate": 1e-3}
    assert changed["behaviors"]["Ball"]["network_settings"] == {"num_layers": 3}
    assert file == written(learning_rate=1e-6)


def test_a_behavior_may_have_dots_in_its_name():
    file = {"behaviors": {"My.Ball": {"max_steps": 1}, "My": {"max_steps": 2}}}
    changed = with_values(file, {"behaviors.My.Ball.max_steps": 3, "behaviors.My.max_steps": 4})
    assert changed == {"behaviors": {"My.Ball": {"max_steps": 3}, "My": {"max_steps": 4}}}


def test_a_path_through_a_value_is_refused():
    with pytest.raises(
        TrainerConfigError, match=r"space\.behaviors.*max_steps is 5, not a section"
    ):
        with_values({"behaviors": {"B": {"max_steps": 5}}}, {"behaviors.B.max_steps.deep": 1})


def test_valid_corners_pass():
    space = space_of(learning_rate={"from": 1e-5, "to": 1e-3}, num_epoch={"from": 1, "to": 10})
    check_space(written(), space, LINE)


@pytest.mark.parametrize(
    ("dimensions", "names"),
    [
        ({"learning_rat": {"from": 0.1, "to": 0.2}}, "learning_rat.*unknown key.*learning_rate"),
        ({"lambd": {"from": 0.9, "to": 1.5}}, r"lambd: 1\.5"),
        ({"learning_rate_schedule": {"choices": ["linear", "cubic"]}}, "schedule: 'cubic'"),
    ],
)
def test_an_invalid_corner_is_named(dimensions, names):
    with pytest.raises(TrainerConfigError, match=f"(?s){names}"):
        check_space(written(), space_of(**dimensions), LINE)


def test_two_settings_that_do_not_fit_together_are_found():
    # Either extreme is valid with the file's own value of the other.
    file = written(buffer_size=50000, batch_size=128)
    file["behaviors"]["Ball"]["trainer_type"] = "sac"
    space = space_of(batch_size={"choices": [64, 4096]}, buffer_size={"from": 1000, "to": 100_000})
    with pytest.raises(TrainerConfigError, match=r"(?s)batch_size: 4096, .*buffer_size: 1000"):
        check_space(file, space, LINE)


@pytest.mark.parametrize(
    ("dimension", "says"),
    [
        ({"from": 2, "to": 1}, r"to.*must be above from \(2\)"),
        ({"from": 0, "to": 1, "log": True}, "from.*must be above 0"),
        ({"from": 1, "to": 2, "log": True, "step": 1}, "step.*not possible"),
        ({"from": 1}, "to.*is required"),
        ({"choices": [1]}, "choices"),
        ({"choices": 1}, "must be a list"),
        ({"form": 1, "to": 2}, "unknown key"),
        (3, "mapping"),
    ],
)
def test_a_wrong_dimension_says_what_is_wrong(dimension, says):
    with pytest.raises(ValidationError, match=f"(?s){says}"):
        SearchSettings.model_validate({"space": {RATE: dimension}})


@pytest.mark.parametrize("path", ["search.trials", "checkpoint_settings.run_id"])
def test_what_belongs_to_the_search_is_not_searched(path):
    with pytest.raises(ValidationError, match="not a setting that a search may change"):
        SearchSettings.model_validate({"space": {path: {"from": 1, "to": 2}}})


@pytest.mark.parametrize(
    ("dimension", "whole", "corners"),
    [
        ({"from": 64, "to": 256, "step": 64}, True, (64, 256)),
        ({"from": 1, "to": 10, "step": 4}, True, (1, 9)),
        ({"from": 0, "to": 1.0}, False, (0, 1.0)),
        ({"from": 0.1, "to": 0.35, "step": 0.1}, False, (0.1, pytest.approx(0.3))),
    ],
)
def test_corners_are_the_values_that_can_be_drawn(dimension, whole, corners):
    held = Range.model_validate(dimension)
    assert (held.is_whole, held.corners) == (whole, corners)
