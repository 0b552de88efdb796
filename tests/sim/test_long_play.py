"""A part of what `scripts/play_long` does: worlds at random for some simulated seconds."""

import numpy as np
import pytest

from long_play import Play, beyond, drift, play, smallest
from mlagents_sim.catalog import CATALOG
from mlagents_sim.examples.push_block import AGENT


@pytest.mark.parametrize("name", CATALOG)
def test_short_episodes_at_random_break_nothing(name: str):
    world = smallest(name, seed=0)
    world.max_steps = 20 * world.decision_period_steps
    hours = 200 * world.decision_period_steps * 0.02 / 3600.0
    played = play(world, hours, seed=0)
    assert played.faults() == []
    assert played.episodes >= 9 * world.n_agents


def test_what_is_not_finite_is_found(monkeypatch: pytest.MonkeyPatch):
    world = smallest("PushBlock", seed=0)
    monkeypatch.setattr(world, "judge", lambda _: world.bodies.velocity.fill(np.nan))
    with pytest.raises(AssertionError, match=r"speed is .*nan"):
        play(world, 0.01, seed=0)


def test_who_is_outside_is_found():
    world = smallest("PushBlock", seed=0)
    world.reset()
    assert beyond(world) < 0.0
    world.bodies.position[:, AGENT, 0] = 0.0, 12.5 + 3.0 - 0.5  # its half edge is 0.5 m
    assert beyond(world) == pytest.approx(3.0)
    assert Play(1.0, 24, 0, 3.0, 0.0, "x").faults() == ["a body was 3.00 m outside"]


def test_drift_is_the_difference_of_the_ends_in_standard_errors():
    # Tenths of two: of the first quantity [0, 2] and [10, 12], so means of 1 and 11, variances of
    # 2 and 2, and a standard error of sqrt((2 + 2) / 2). The second does not change on average.
    means = np.full((20, 2), 5.0)
    means[:2], means[-2:] = [[0, 1], [2, 3]], [[10, 3], [12, 1]]
    assert drift(means) == pytest.approx(10 / 2**0.5)
    assert Play(5.0, 120, 0, 0.0, 7.07, "x").faults() == ["x drifts by 7.1 standard errors"]
    assert Play(0.5, 12, 0, 0.0, 7.07, "x").faults() == []
