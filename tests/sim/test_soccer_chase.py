"""The scripted team of `examples/soccer_chase.py`, against players that act at random."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from mlagents_sim.catalog import CATALOG
from mlagents_sim.examples.soccer_twos import BALL_TAG, FRONT, OTHER_GOAL_TAG, OWN_GOAL_TAG, RAY_M

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples/soccer_chase.py"))


def test_the_script_reads_rays_as_the_world_makes_them() -> None:
    right, ahead = FRONT.directions
    np.testing.assert_allclose(
        EXAMPLE["RAY_ANGLES_DEG"], np.degrees(np.arctan2(right, ahead)), atol=1e-6
    )
    assert EXAMPLE["RAY_LENGTH_M"] == RAY_M
    tags = EXAMPLE["BALL"], EXAMPLE["OWN_GOAL"], EXAMPLE["OTHER_GOAL"]
    assert tags == (BALL_TAG, OWN_GOAL_TAG, OTHER_GOAL_TAG)


@pytest.mark.parametrize("scripted", [0, 1])
def test_the_script_wins_most_games_on_either_side(scripted: int) -> None:
    world = CATALOG["SoccerTwos"].make(num_areas=2, seed=1)
    world.reset()
    spec = world.behavior_specs["SoccerTwos?team=0"]
    rng = np.random.default_rng(2)
    n_goals = np.zeros(2, int)
    while n_goals.sum() < 40:
        for team, name in enumerate(("SoccerTwos?team=0", "SoccerTwos?team=1")):
            decisions, terminals = world.get_steps(name)
            n_goals[team] += (terminals.group_reward > 0).sum() // 2  # of two players each
            if len(decisions) == 0:
                continue
            if team == scripted:
                mask = np.concatenate(decisions.action_mask, axis=1)
                action = EXAMPLE["chase"](decisions.obs, mask)
            else:
                action = spec.action_spec.random_action(len(decisions), rng)
            world.set_actions(name, action)
        world.step()
    assert n_goals[scripted] >= 25
