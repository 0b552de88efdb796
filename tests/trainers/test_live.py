"""The live view of a training run."""

import socket
from pathlib import Path

import numpy as np
import pytest

from mlagents.trainers.acting.policy import ActingPolicy
from mlagents.trainers.cli_args import parse_command_line
from mlagents.trainers.learn import run
from mlagents.trainers.players.in_process import SimpleEnvManager
from mlagents.trainers.players.watched import WatchedPlayers
from mlagents.viewing.page import DEFAULT_PORT
from mlagents.viewing.stage import Stage
from mlagents_envs.base_env import ActionSpec
from mlagents_sim.examples.basic import Basic

NAME = Basic.behavior_name


def step(players: WatchedPlayers) -> None:
    (report,) = players.receive()
    decisions, _ = report.steps[NAME]
    spec = players.behavior_specs[NAME].action_spec
    players.send(0, {NAME: spec.empty_action(len(decisions))})


def test_the_first_player_is_shown_while_somebody_watches() -> None:
    stage = Stage()
    players = WatchedPlayers(SimpleEnvManager(Basic(num_areas=2)), stage)
    players.probabilities_of = lambda steps: {NAME: [np.ones((2, 3), np.float32) / 3]}
    players.reset()
    step(players)
    assert stage.take(0.0) is None
    stage.is_watched = True
    step(players)
    moment = stage.take(0.0)
    assert moment.scene.n_areas == 2
    assert len(moment.actions[NAME].discrete) == 2
    assert moment.probabilities[NAME][0].shape == (2, 3)
    players.close()


class Logits:
    """A snapshot of a policy whose logits are known."""

    memory_size = 0

    def forward(self, obs, memory):
        return None, None, np.log(np.array([[1.0, 3.0, 1.0, 1.0]], np.float32)), memory


def test_probabilities_obey_masks_and_draw_nothing() -> None:
    class NoDraws:
        def __getattr__(self, name: str) -> None:
            raise AssertionError("a number was drawn")

    policy = ActingPolicy(
        Logits(), ActionSpec.create_discrete((2, 2)), deterministic=False, rng=NoDraws()
    )
    mask = np.array([[False, False, True, False]])
    first, second = policy.probabilities([np.zeros((1, 1), np.float32)], mask)
    np.testing.assert_allclose(first, [[0.25, 0.75]], rtol=1e-6)
    np.testing.assert_allclose(second, [[0.0, 1.0]], atol=1e-6)


@pytest.mark.parametrize(
    ("typed", "port"), [([], None), (["--view"], DEFAULT_PORT), (["--view", "0"], 0)]
)
def test_the_port_is_read(typed: list[str], port: int | None) -> None:
    assert parse_command_line(typed).view == port


def test_a_port_in_use_ends_a_run_before_it_begins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("viser")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        typed = ["--env", "Basic", "--run-id", "r", "--results-dir", str(tmp_path)]
        assert run(parse_command_line([*typed, "--view", str(port)])) == 1
    assert f"port {port} of 127.0.0.1 cannot be used" in caplog.text
    assert not list(tmp_path.iterdir())


def test_a_watched_run_learns_what_an_unwatched_one_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("viser")
    config = tmp_path / "basic.yaml"
    config.write_text(
        "behaviors: {Basic: {trainer_type: ppo, max_steps: 600, summary_freq: 200, "
        "hyperparameters: {buffer_size: 128, batch_size: 32}}}",
        encoding="utf-8",
    )
    offer, taken = Stage.offer, []

    def offer_and_take(stage: Stage, *report: object) -> None:
        offer(stage, *report)
        taken.append(stage.take(0.0))

    for name, view in (("plain", []), ("watched", ["--view", "0"])):
        if view:  # as if a browser was there all the time
            monkeypatch.setattr(Stage, "is_watched", True, raising=False)
            monkeypatch.setattr(Stage, "__setattr__", ignore_watching)
            monkeypatch.setattr(Stage, "offer", offer_and_take)
        typed = [str(config), "--env", "Basic", "--run-id", name, "--seed", "3"]
        assert run(parse_command_line([*typed, "--results-dir", str(tmp_path), *view])) == 0
    models = [(tmp_path / name / "Basic.onnx").read_bytes() for name in ("plain", "watched")]
    assert models[0] == models[1]
    assert sum(moment is not None for moment in taken) > 1


def ignore_watching(stage: Stage, name: str, value: object) -> None:
    if name != "is_watched":
        object.__setattr__(stage, name, value)
