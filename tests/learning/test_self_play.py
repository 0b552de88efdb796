"""Self-play learns a game of two teams, and its rating says so."""

from pathlib import Path

import numpy as np
import pytest
import torch

from duels import LinePong, chase
from mlagents.trainers.acting.policy import ActingPolicy
from mlagents.trainers.players.in_process import SimpleEnvManager
from mlagents.trainers.run.checkpoints import RunFolder
from mlagents.trainers.run.controller import Controller
from mlagents.trainers.run.interrupt import Interrupt
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
    (tmp_path / "run_logs").mkdir()
    run = Controller(
        options,
        SimpleEnvManager(LinePong(num_areas=32, seed=seed)),
        RunFolder(tmp_path),
        writers=[],
        device=torch.device("cpu"),
        interrupt=Interrupt(),
    )
    run.run()
    # An untrained policy scores 0.07 and has a rating of 1200.
    assert score_of(run.trainers["Duel"].policy) > 0.15
    assert run._league.rating("Duel").mean > 1300
