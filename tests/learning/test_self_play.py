"""Self-play learns a game of two teams, and its rating says so."""

from pathlib import Path

import numpy as np
import pytest
import torch

from duels import LinePong, RockPaperScissors, chase
from league_runs import begin_with_biases, make_run
from mlagents.trainers.acting.policy import ActingPolicy
from mlagents.trainers.settings.run_options import RunOptions
from seeds import seeds

SETTINGS = {
    "trainer_type": "ppo",
    "hyperparameters": {
        "batch_size": 256,
        "buffer_size": 2048,
        "learning_rate": 1e-3,
        "learning_rate_schedule": "constant",
    },
    "network_settings": {"hidden_units": 64, "num_layers": 2},
    "summary_freq": 10_000,
    "max_steps": 44_000,
    "self_play": {"save_steps": 5000, "swap_steps": 1000, "team_change": 20_000},
}


def score_of(policy: ActingPolicy, *, n_games: int = 400) -> float:
    """Return the mean score of a policy against the script, in its first game of each area."""
    env = LinePong(num_areas=n_games, seed=99)
    env.reset()
    scores = np.full(n_games, np.nan)
    mask = np.zeros((n_games, 3), np.bool_)
    while np.isnan(scores).any():
        (ours, ended), (theirs, _) = (env.get_steps(name) for name in env.names)
        new = np.isnan(scores[ended.agent_id])
        scores[ended.agent_id[new]] = 0.5 + 0.5 * ended.reward[new]
        env.set_actions(env.names[0], policy.act(ours.obs, mask).action)
        env.set_actions(env.names[1], chase(theirs.obs, mask))
        env.step()
    return float(scores.mean())


@pytest.mark.slow
@seeds(0, 1, 2)
def test_pong_is_learned_against_the_own_past(tmp_path: Path, seed: int) -> None:
    options = RunOptions.model_validate(
        {"default_settings": SETTINGS, "env_settings": {"seed": seed}}
    ).with_seed(seed)
    run = make_run(tmp_path, LinePong(num_areas=32, seed=seed), options)
    run.run()
    # An untrained policy scores 0.07 and has a rating of 1200.
    assert score_of(run.trainers["Duel"].policy) > 0.15
    assert run._league.rating("Duel").mean > 1300


SCISSORS = {
    "trainer_type": "ppo",
    "hyperparameters": {
        "batch_size": 128,
        "buffer_size": 256,
        "learning_rate": 2e-3,
        "learning_rate_schedule": "constant",
        "beta": 0.3,
        "beta_schedule": "constant",
    },
    "network_settings": {"hidden_units": 16, "num_layers": 1},
    "max_steps": 100_000,
    "checkpoint_interval": 10**6,
    "self_play": {
        "save_steps": 1000,
        "team_change": 10**6,
        "swap_steps": 256,
        "window": 100,
        "play_against_latest_model_ratio": 0.2,
        "opponents": "pfsp",
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("throw", ["rock", "paper", "scissors"])
@seeds(0, 1, 2)
def test_the_average_of_a_biased_policy_approaches_equal_throws(
    tmp_path: Path, throw: str, seed: int
) -> None:
    options = RunOptions.model_validate(
        {"default_settings": SCISSORS, "env_settings": {"seed": seed}}
    ).with_seed(seed)
    run = make_run(tmp_path, RockPaperScissors(num_areas=32, seed=seed), options)
    # The preferred throw has a probability of about 0.9.
    biases = [3.0 * (throw == each) for each in ("rock", "paper", "scissors")]
    trainer = begin_with_biases(run, biases)
    window = run._league._members["Duel"].window
    while trainer.is_learning:
        run._advance()
    seen = [np.ones((1, 1), np.float32)]
    logits = [kept.snapshot.forward(seen, np.zeros((1, 0), np.float32)).logits for kept in window]
    throws = torch.from_numpy(np.concatenate(logits)).softmax(1).mean(0).numpy()
    rock, paper, scissors = throws
    # Reward of the best answer: paper beats rock, scissors beat paper, rock beats scissors.
    assert max(rock - scissors, paper - rock, scissors - paper) < 0.15
