"""`mlagents-run-experiment`: one file in, a run out."""

import json
from pathlib import Path

import pytest
import torch
import yaml

from mlagents.trainers import learn, run_experiment

OPTIONS = {
    "behaviors": {
        "Guess": {
            "trainer_type": "ppo",
            "hyperparameters": {"batch_size": 32, "buffer_size": 64},
            "network_settings": {"hidden_units": 8, "num_layers": 1},
            "max_steps": 200,
            "time_horizon": 8,
        }
    },
    "env_settings": {"env_path": "guess_environment:GuessEnvironment", "seed": 5},
    "checkpoint_settings": {"run_id": "written"},
}


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(options: object, file: str = "experiment.json") -> int:
    text = json.dumps(options, indent="\t") if file.endswith("json") else yaml.safe_dump(options)
    Path(file).write_text(text)
    return run_experiment.main([file])


def checkpoint(run_id: str) -> dict:
    return torch.load(Path("results", run_id, "Guess", "checkpoint.pt"), weights_only=True)


def test_the_options_of_a_run_give_the_same_run() -> None:
    arguments = ["--env", "guess_environment:GuessEnvironment", "--seed", "5", "--run-id", "typed"]
    Path("guess.yaml").write_text(yaml.safe_dump({"behaviors": OPTIONS["behaviors"]}))
    assert learn.main(["guess.yaml", *arguments]) == 0
    assert run(OPTIONS) == 0
    effective = yaml.safe_load(Path("results/typed/configuration.yaml").read_text())
    effective["checkpoint_settings"]["run_id"] = "effective"
    assert run(effective, "configuration.yaml") == 0

    typed, written, again = (checkpoint(name) for name in ("typed", "written", "effective"))
    assert typed["global_step"] == written["global_step"] == again["global_step"] >= 200
    for name, weights in typed["Policy"].items():
        assert torch.equal(weights, written["Policy"][name])
        assert torch.equal(weights, again["Policy"][name])


def test_resuming_wins_over_initializing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(OPTIONS) == 0
    both = {"run_id": "written", "resume": True, "initialize_from": "no such run"}
    assert run(OPTIONS | {"checkpoint_settings": both}) == 0
    assert "initialize_from (no such run) is ignored" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (OPTIONS | {"behaviours": {}}, "experiment.json: behaviours: unknown key; did you mean"),
        (OPTIONS | {"debug": "perhaps"}, "experiment.json: debug: "),
        ([], "experiment.json: must be a mapping"),
    ],
)
def test_mistakes_are_those_of_mlagents_learn(
    options: object, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(options) == 1
    log = capsys.readouterr().out
    assert expected in log and "Traceback" not in log


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"behaviors": {}', "is not JSON: Expecting"),
        ('{"debug": true, "debug": false}', "the key 'debug' appears a second time"),
    ],
)
def test_json_is_read_strictly(
    text: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("experiment.json").write_text(text)
    assert run_experiment.main(["experiment.json"]) == 1
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["a.yaml", "--seed", "1"]])
def test_it_takes_one_file_and_no_flags(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        run_experiment.main(arguments)
    assert exit_.value.code == 2
