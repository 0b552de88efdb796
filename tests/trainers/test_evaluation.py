"""Evaluations judge policies in players of their own, keep the best, and end training."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from mlagents.playing.tally import Episode, Score
from mlagents.trainers.callbacks import Callback, Run
from mlagents.trainers.exception import TrainerConfigError, UnityTrainerException
from mlagents.trainers.learn import run_training
from mlagents.trainers.reporting.stats import EVALUATED_REWARD, StatsSummary, StatsWriter
from mlagents.trainers.run.checkpoints import load_checkpoint
from mlagents.trainers.run.evaluation import Best, judged, why_over
from mlagents.trainers.settings.evaluation import EvaluationSettings
from mlagents.trainers.settings.run_options import RunOptions

SMALL = {
    "trainer_type": "ppo",
    "hyperparameters": {"batch_size": 16, "buffer_size": 64},
    "network_settings": {"hidden_units": 8, "num_layers": 1},
    "summary_freq": 100,
    "max_steps": 400,
}


def options(
    tmp_path: Path, run_id: str = "a", *, resume: bool = False, env: Any = None, **written: Any
) -> RunOptions:
    checkpoints = {"results_dir": str(tmp_path / "results"), "run_id": run_id, "resume": resume}
    return RunOptions.model_validate(
        {
            "default_settings": SMALL,
            "env_settings": {"env_path": "Basic", "seed": 1, **(env or {})},
            "checkpoint_settings": checkpoints,
            "torch_settings": {"threads": 1},
            **written,
        }
    )


class Curves(StatsWriter):
    def __init__(self) -> None:
        self.points: list[tuple[int, dict[str, float]]] = []

    def write_stats(self, category: str, values: dict[str, StatsSummary], step: int) -> None:  # type: ignore[override]
        self.points.append((step, {k: v.aggregated_value for k, v in values.items()}))

    def of(self, tag: str) -> list[tuple[int, float]]:
        return [(step, values[tag]) for step, values in self.points if tag in values]


def best_of(tmp_path: Path, run_id: str = "a") -> dict[str, Any]:
    path = tmp_path / "results" / run_id / "run_logs/training_status.json"
    found: dict[str, Any] = json.loads(path.read_text())["Basic"]["best"]
    return found


def test_a_score_has_the_standard_error_of_its_mean() -> None:
    # Rewards 1, 2, 3: deviation of the sample 1, standard error 1 / sqrt(3).
    score = Score.of([Episode(1, 4), Episode(2, 5), Episode(3, 6)])
    assert (score.n_episodes, score.mean, score.length) == (3, 2.0, 5.0)
    assert score.error == pytest.approx(3**-0.5)
    assert np.isnan(Score.of([Episode(1, 4)]).error)


def test_the_best_starts_over_in_other_lessons() -> None:
    def score(mean: float) -> Score:
        return Score(2, mean, 0.0, 0.0, 1.0)

    best = judged(None, score(1), step=10, lessons={"size": 0})
    best = judged(best, score(0.5), step=20, lessons={"size": 0})
    assert best == Best(10, 1, 0, 1, {"size": 0})
    best = judged(best, score(0.2), step=30, lessons={"size": 1})
    assert best == Best(30, 0.2, 0, 0, {"size": 1})


def test_training_ends_at_a_reward_or_without_a_rise() -> None:
    settings = EvaluationSettings(stop_at_reward=2, patience=3)
    assert why_over(settings, Best(0, 1.9, 0, 2, {})) is None
    assert why_over(settings, Best(0, 2.0, 0, 0, {})) == "evaluation.stop_at_reward: 2"
    assert why_over(settings, Best(0, 1.9, 0, 3, {})) == "evaluation.patience: 3"


def test_the_best_policy_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    curves = Curves()
    evaluation = {"every": 100, "episodes": 5}
    run_training(options(tmp_path, evaluation=evaluation), writers=[curves])
    evaluated = curves.of(EVALUATED_REWARD)
    assert [step // 100 for step, _ in evaluated] == [1, 2, 3, 4]
    step, reward = max(evaluated, key=lambda point: (point[1], -point[0]))
    assert (best_of(tmp_path)["step"], best_of(tmp_path)["reward"]) == (step, reward)
    folder = tmp_path / "results/a"
    assert (folder / "Basic-best.onnx").stat().st_size > 0
    assert load_checkpoint(folder / "Basic/best.pt")["global_step"] == step
    log = capsys.readouterr().out
    assert log.count("mean of 5 episodes") == 4 and "the best so far" in log
    assert f"in an evaluation at step {step}" in log


def test_evaluations_do_not_change_training(tmp_path: Path) -> None:
    curves = [Curves(), Curves()]
    run_training(options(tmp_path, "a"), writers=[curves[0]])
    run_training(options(tmp_path, "b", evaluation={"every": 100}), writers=[curves[1]])
    rewards = [each.of("Environment/Cumulative Reward") for each in curves]
    assert rewards[0] and rewards[0] == rewards[1]


def test_a_reward_ends_the_run_and_resuming_keeps_the_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    goal = {"every": 100, "episodes": 3, "stop_at_reward": -5}
    run_training(options(tmp_path, evaluation=goal))
    assert "ended by evaluation.stop_at_reward: -5" in capsys.readouterr().out
    first = best_of(tmp_path)
    assert first["step"] < 200
    run_training(options(tmp_path, evaluation=goal, resume=True))
    assert "raise evaluation.stop_at_reward or leave it out" in capsys.readouterr().out
    assert best_of(tmp_path) == first
    patient = {"every": 100, "episodes": 3, "patience": 50}
    run_training(options(tmp_path, evaluation=patient, resume=True))
    last = best_of(tmp_path)
    assert last["step"] == first["step"] or last["reward"] > first["reward"]
    assert capsys.readouterr().out.count("mean of 3 episodes") > 1


def test_players_of_evaluation_follow_those_of_training(tmp_path: Path) -> None:
    run_training(
        options(
            tmp_path,
            env={"num_envs": 2, "players_per_process": 1},
            evaluation={"every": 200, "episodes": 3, "num_envs": 2},
            default_settings={**SMALL, "max_steps": 300},
        )
    )
    logs = {path.name for path in (tmp_path / "results/a/run_logs").glob("Player-*.log")}
    assert best_of(tmp_path)["n_since"] == 0
    assert not logs or "Player-3.log" in logs or "Player-2.log" in logs


class Failing(Callback):
    """Breaks the environment of the first evaluation."""

    def on_evaluation(self, behavior: str, score: Score, run: Run) -> None:
        self.scores = [*getattr(self, "scores", []), score]


def test_a_failed_evaluation_does_not_end_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlagents.trainers.run import evaluation

    made: list[int] = []
    own = evaluation.Tally.observe

    def observe(self: Any, *steps: Any) -> None:
        made.append(1)
        if len(made) == 1:
            raise UnityTrainerException("the player is gone")
        own(self, *steps)

    monkeypatch.setattr(evaluation.Tally, "observe", observe)
    follower = Failing()
    run_training(options(tmp_path, evaluation={"every": 100}), callbacks=[follower])
    assert "The evaluation failed: the player is gone" in capsys.readouterr().out
    assert len(follower.scores) == 3


def test_an_evaluation_of_endless_episodes_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_training(
        options(tmp_path, evaluation={"every": 200, "episodes": 50, "most_steps": 20}),
    )
    assert "The evaluation stopped after 20 steps with" in capsys.readouterr().out


def test_a_callback_may_evaluate(tmp_path: Path) -> None:
    found: list[Any] = []

    def evaluate(summary: Any, run: Run) -> None:
        found.append(run.evaluate())
        run.stop()

    run_training(options(tmp_path, evaluation={"episodes": 4}), callbacks=[evaluate])
    assert found[0]["Basic"].n_episodes == 4
    with pytest.raises(UnityTrainerException, match="there are no settings for evaluations"):
        run_training(options(tmp_path, "b"), callbacks=[evaluate])


def test_the_editor_cannot_be_evaluated(tmp_path: Path) -> None:
    with pytest.raises(TrainerConfigError, match=r"evaluation needs env_settings.env_path"):
        run_training(options(tmp_path, env={"env_path": None}, evaluation={}))


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (
            {"behaviors": {"A": {"self_play": {}}}},
            "is not possible with behaviors.A.self_play: .* mlagents-play --tournament",
        ),
        (
            {"env_settings": {"env_path": "x", "base_port": 65535}},
            "leads to port 65536, above the last one",
        ),
        ({"evaluation": {"patience": 0}}, "patience"),
        ({"evaluation": {"evry": 1}}, "did you mean 'every'"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(written: dict[str, Any], says: str) -> None:
    whole = {"env_settings": {"env_path": "x"}, "evaluation": {}, **written}
    with pytest.raises(ValidationError, match=says):
        RunOptions.model_validate(whole)
