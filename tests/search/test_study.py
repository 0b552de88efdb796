"""The trials of a study: what is asked, pruned and kept."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna", reason="needs the extra `search`")

from mlagents.search.study import Study
from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.settings.search import SearchSettings

SPACE = {
    "rate": {"from": 1e-5, "to": 1e-2, "log": True},
    "units": {"from": 64, "to": 256, "step": 64},
    "kind": {"choices": [None, {"memory_size": 8}, "x"]},
}


def study_in(folder: Path, seed: int = 1, **settings: Any) -> Study:
    held = SearchSettings.model_validate({"space": SPACE, **settings})
    return Study(held, folder, seed=seed, max_steps=100)


@pytest.mark.parametrize("sampler", ["tpe", "gp", "random"])
def test_the_same_seed_asks_for_the_same_trials(tmp_path, sampler):
    asked = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        study = study_in(tmp_path / name, sampler=sampler)
        trials = []
        for _ in range(12):
            trial = study.ask()
            trials.append(trial)
            study.tell(trial.number, trial.values["units"] / 64)
        asked.append(trials)
    assert asked[0] == asked[1]
    for trial in asked[0]:
        assert 1e-5 <= trial.values["rate"] <= 1e-2
        assert trial.values["units"] in (64, 128, 192, 256)
        assert trial.values["kind"] in SPACE["kind"]["choices"]


def test_a_grid_visits_every_point_once(tmp_path):
    grid = {"units": SPACE["units"], "kind": SPACE["kind"]}
    study = study_in(tmp_path, sampler="grid", space=grid)
    points = set()
    for _ in range(12):
        trial = study.ask()
        points.add(repr(trial.values))
        study.tell(trial.number, 0.0)
    assert len(points) == 12


def test_a_grid_needs_steps(tmp_path):
    with pytest.raises(TrainerConfigError, match=r"space\.rate: the sampler 'grid' needs a step"):
        study_in(tmp_path, sampler="grid")


def test_halving_ends_what_is_worse_than_the_best_third(tmp_path):
    study = study_in(tmp_path, prune={"first": 0.2, "factor": 3})
    trials = [study.ask() for _ in range(3)]
    assert not study.is_hopeless(trials[0].number, 10, 1.0), "too early to judge"
    verdicts = [
        study.is_hopeless(t.number, 25, v) for t, v in zip(trials, (9.0, 5.0, 1.0), strict=True)
    ]
    assert verdicts == [False, True, True]


def test_no_rule_ends_no_trial(tmp_path):
    study = study_in(tmp_path, prune={"rule": "none"})
    trials = [study.ask() for _ in range(6)]
    assert not any(study.is_hopeless(t.number, 50, -n) for n, t in enumerate(trials))


def test_what_ended_is_kept_and_what_ran_is_asked_again(tmp_path):
    before = study_in(tmp_path)
    done, pruned, failed, running = [before.ask() for _ in range(4)]
    before.is_hopeless(done.number, 20, 0.5)
    before.tell(done.number, 3.0)
    before.tell(pruned.number, None, was_pruned=True)
    before.tell(failed.number, float("nan"))

    after = study_in(tmp_path)  # as after the process was killed
    first = after.results[0]
    assert (first.trial, first.value, dict(first.curve)) == (done, 3.0, {20: 0.5})
    assert [result.has_counted for result in after.results] == [True, True, False, False]
    assert after.ask().values == running.values
