"""Searches of a small task, by runs in processes of their own."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("optuna", reason="needs the extra `search`")

from mlagents.search.command import main
from mlagents.search.search import make_plan
from mlagents.trainers.settings.reading import read_change, read_configuration
from mlagents.trainers.settings.typed import CommandLine

RATE = "behaviors.Basic.hyperparameters.learning_rate"


def write(folder: Path, **search: Any) -> Path:
    file = folder / "basic.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "behaviors": {
                    "Basic": {
                        "trainer_type": "ppo",
                        "hyperparameters": {"batch_size": 32, "buffer_size": 256},
                        "network_settings": {"hidden_units": 16, "num_layers": 1},
                        "max_steps": 1500,
                        "summary_freq": 250,
                    }
                },
                "search": {
                    "space": {RATE: {"from": 1e-9, "to": 1e-2, "log": True}},
                    **search,
                },
            }
        )
    )
    return file


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_a_search_ends_with_settings_to_train_with(tmp_path, caplog):
    file = write(tmp_path, trials=2, confirm=1)
    assert main([str(file), "--env", "Basic", "--seed", "3", "--jobs", "2"]) == 0
    folder = tmp_path / "results" / "search"
    best = yaml.safe_load((folder / "best.yaml").read_text())
    assert "search" not in best
    assert best["env_settings"] == {"env_path": "Basic", "seed": 3}
    assert 1e-9 < best["behaviors"]["Basic"]["hyperparameters"]["learning_rate"] < 1e-2
    assert "1 runs with fresh seeds" in caplog.text
    assert (folder / "0" / "Basic").is_dir(), "a trial is an ordinary run"
    page = (folder / "search.html").read_text()
    assert "<svg" in page and "http" not in page

    caplog.clear()
    assert main([str(file), "--env", "Basic"]) == 1
    assert "already holds results" in caplog.text

    more = ["--env", "Basic", "--seed", "3", "--resume", "--trials", "3"]
    assert main([str(file), *more]) == 0
    assert "Trial 2 of 3" in caplog.text and "Trial 1 of" not in caplog.text


@pytest.mark.slow
def test_runs_that_fail_do_not_end_the_search_unless_all_do(tmp_path, caplog):
    file = write(tmp_path, trials=6)
    assert main([str(file), "--env", "no_such_module:make"]) == 1
    assert "the first 3 trials failed" in caplog.text
    assert "no_such_module" in caplog.text


@pytest.mark.slow
def test_a_population_copies_its_best(tmp_path, caplog):
    population = {"size": 4, "interval": 0.5, "resample": 0.0}
    file = write(tmp_path, sampler="population", population=population)
    assert main([str(file), "--env", "Basic", "--seed", "3", "--jobs", "2"]) == 0
    folder = tmp_path / "results" / "search"
    state = json.loads((folder / "population.json").read_text())
    assert state["done"] == 1.0
    (copied,) = [member for member in state["members"] if member["lineage"]]
    winner = state["members"][copied["lineage"][0]["copied"]]
    ratio = copied["values"][RATE] / winner["values"][RATE]
    assert ratio == pytest.approx(1.2) or ratio == pytest.approx(1 / 1.2)
    status = json.loads(
        (folder / copied_name(copied) / "run_logs" / "training_status.json").read_text()
    )
    assert status["Basic"]["final_checkpoint"]["steps"] >= 1500, "the copy learned to its end"


def copied_name(member: dict[str, Any]) -> str:
    return f"member-{member['number']}"


@pytest.mark.parametrize(
    ("search", "says"),
    [
        ({"space": {}}, "space"),
        ({"space": {RATE: {"from": 1, "to": 0}}}, "must be above from"),
        ({"space": {"behaviors.Basic.hyperparameters.rate": {"choices": [1, 2]}}}, "unknown key"),
        ({"sampler": "best"}, "sampler"),
        ({"measure": {"behavior": "Other"}}, "'Other' that is not configured"),
    ],
)
def test_a_wrong_search_is_refused_before_anything_runs(tmp_path, caplog, search, says):
    file = write(tmp_path, **search)
    assert main([str(file), "--env", "Basic"]) == 1
    assert says in caplog.text
    assert not (tmp_path / "results").exists()


def test_a_population_refuses_what_cannot_change_in_a_run(tmp_path, caplog):
    units = "behaviors.Basic.network_settings.hidden_units"
    file = write(tmp_path, sampler="population", space={units: {"from": 8, "to": 32}})
    assert main([str(file), "--env", "Basic"]) == 1
    assert f"{units}: the sampler 'population'" in caplog.text


def test_a_file_without_a_search_says_what_to_add(tmp_path, caplog):
    file = tmp_path / "plain.yaml"
    file.write_text("behaviors: {Basic: {}}")
    assert main([str(file), "--env", "Basic"]) == 1
    assert "has no key `search`" in caplog.text


def test_the_editor_cannot_be_searched_with(tmp_path, caplog):
    assert main([str(write(tmp_path))]) == 1
    assert "a search needs --env" in caplog.text


def test_runs_do_not_share_a_port(tmp_path):
    file = write(tmp_path)
    line = CommandLine(file, {"env_settings": {"env_path": "Basic", "base_port": 6000}})
    plan = make_plan(read_configuration(file), line, tmp_path / "s", jobs=2, trials=None)
    options = plan.run_options({}, "0", seed=7)
    assert "base_port" not in options.env_settings.model_fields_set
    assert (options.env_settings.env_path, options.env_settings.seed) == ("Basic", 7)


def test_force_removes_only_a_search(tmp_path, caplog):
    folder = tmp_path / "results" / "mine"
    folder.mkdir(parents=True)
    (folder / "thesis.txt").write_text("years of work")
    file = write(tmp_path)
    assert main([str(file), "--env", "Basic", "--run-id", "mine", "--force"]) == 1
    assert "does not hold a search" in caplog.text
    assert (folder / "thesis.txt").exists()


def test_a_typed_setting_holds_below_the_searched_ones(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "behaviors: {Ball: {trainer_type: ppo, max_steps: 100}}\n"
        "search: {space: {behaviors.Ball.max_steps: {from: 10, to: 20}}}\n"
    )
    changes = [read_change(f"behaviors.Ball.{key}=7") for key in ("max_steps", "summary_freq")]
    line = CommandLine(file, {"env_settings": {"env_path": "3DBall"}}, changes=tuple(changes))
    plan = make_plan(read_configuration(file), line, tmp_path / "s", jobs=1, trials=None)
    ball = plan.run_options({"behaviors.Ball.max_steps": 15}, "0", seed=1).behaviors["Ball"]
    assert (ball.max_steps, ball.summary_freq) == (15, 7)
