"""The plug-ins of examples/plugins, installed as users install them, and used by mlagents-learn."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"

BASIC = {
    "trainer_type": "ppo",
    "hyperparameters": {"buffer_size": 32, "batch_size": 32, "learning_rate": 3e-3},
    "network_settings": {"hidden_units": 20, "num_layers": 1},
    "reward_signals": {"extrinsic": {"gamma": 0.9}},
    "max_steps": 4000,
    "summary_freq": 2000,
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not importlib.util.find_spec("setuptools"), reason="builds packages"),
]


def install(name: str, into: Path) -> None:
    source = shutil.copytree(EXAMPLES / name, into.parent / name)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(into)]
    subprocess.run([*command, str(source)], check=True, timeout=120)


def learn(plugins: Path, *, resume: bool = False, **of_behavior: object) -> str:
    """Run mlagents-learn in the folder above the plug-ins; return what it says."""
    folder = plugins.parent
    configuration = {
        "behaviors": {"Basic": BASIC | of_behavior},
        "env_settings": {"env_path": "Basic", "seed": 1},
        "checkpoint_settings": {"run_id": "first", "resume": resume},
    }
    (folder / "basic.yaml").write_text(yaml.safe_dump(configuration))
    path = os.pathsep.join([str(plugins), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.run(
        [sys.executable, "-m", "mlagents.trainers.learn", "basic.yaml"],
        env={**os.environ, "PYTHONPATH": path, "WANDB_MODE": "offline"},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stdout
    return process.stdout


def test_a_trainer_type_learns_and_a_writer_sees_it(tmp_path: Path) -> None:
    plugins = tmp_path / "plugins"
    install("a2c", plugins)
    install("jsonl_writer", plugins)

    log = learn(plugins, trainer_type="a2c", max_steps=8000)

    assert "Plug-in of mlagents.trainer_type: a2c (mlagents_a2c:trainer_types)." in log
    assert "Plug-in of mlagents.stats_writer: jsonl (mlagents_jsonl_writer:stats_writers)." in log
    run = tmp_path / "results" / "first"
    lines = [json.loads(line) for line in (run / "summaries.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2000, 4000, 6000, 8000]
    assert lines[-1]["stats"]["Environment/Cumulative Reward"] > 0.9
    events = EventAccumulator(str(run / "Basic"))
    events.Reload()
    for event, line in zip(events.Scalars("Losses/Value Loss"), lines, strict=True):
        assert event.step == line["step"]
        assert event.value == pytest.approx(line["stats"]["Losses/Value Loss"])

    learn(plugins, trainer_type="a2c", max_steps=10_000, resume=True)

    last = json.loads((run / "summaries.jsonl").read_text().splitlines()[-1])
    assert last["step"] == 10_000
    assert last["stats"]["Environment/Cumulative Reward"] > 0.9, "what was learned is there"


def test_a_writer_for_weights_and_biases(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    plugins = tmp_path / "plugins"
    install("wandb_writer", plugins)

    learn(plugins)

    (record,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    assert record.read_bytes().count(b"Basic/Environment/Cumulative Reward") >= 2
