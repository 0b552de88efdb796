import copy
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from guess_environment import GuessEnvironment
from mlagents.trainers.algorithms.curiosity import Curiosity
from mlagents.trainers.algorithms.transitions import Transitions
from mlagents.trainers.data.replay import Replay
from mlagents.trainers.learning.off_policy import LONGEST_SEGMENT
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import ActionSpec
from tasks import Task
from training_loop import make_trainer, roll

MEMORY = {"memory": {"memory_size": 8, "sequence_length": 4}}


def settings(
    hyperparameters: dict[str, Any] | None = None,
    network: dict[str, Any] | None = None,
    **written: Any,
) -> BehaviorSettings:
    return BehaviorSettings.model_validate(
        {
            "trainer_type": "sac",
            "max_steps": 2000,
            "time_horizon": 7,
            "hyperparameters": {
                "batch_size": 32,
                "buffer_size": 500,
                "learning_rate": 3e-3,
                "steps_per_update": 16,
                **(hyperparameters or {}),
            },
            "network_settings": {
                "hidden_units": 8,
                "num_layers": 1,
                "normalize": True,
                **(network or {}),
            },
        }
        | written
    )


class Spy:
    """Notes how many gradient steps were taken at which decision, and from how many rows."""

    def __init__(self, trainer: Trainer) -> None:
        self.decision = 0
        self.taken: list[tuple[int, int]] = []
        self.threads: list[threading.Thread] = []
        advance, update = trainer.advance, trainer.learner.algorithm.update

        def counted() -> None:
            self.decision += 1
            advance()

        def spied(replay: Replay, *, n_updates: int, step: int) -> dict[str, float]:
            self.taken.append((self.decision, n_updates))
            self.threads.append(threading.current_thread())
            return update(replay, n_updates=n_updates, step=step)

        trainer.advance, trainer.learner.algorithm.update = counted, spied  # type: ignore[method-assign]

    @property
    def total(self) -> int:
        return sum(n for _, n in self.taken)


@pytest.mark.parametrize("network", [{}, MEMORY], ids=["steps", "sequences"])
def test_gradient_steps_are_spread_evenly_over_steps(network: dict[str, Any]) -> None:
    # 8 agents, one gradient step for 16 of their steps: one at every second decision, although
    # segments end all at once, after 4 steps of an episode.
    env = GuessEnvironment(ActionSpec.create_discrete((3,)))
    trainer = make_trainer(env, settings(network=network))
    spy = Spy(trainer)

    roll(trainer, env, 101)

    begun = spy.taken[0][0]
    assert begun <= 10
    assert spy.taken == [(decision, 1) for decision in range(begun, 102, 2)]


@pytest.mark.parametrize(
    ("steps_per_update", "at_each"), [(2.0, {4}), (8, {1}), (3, {2, 3}), (0.5, {16})]
)
def test_a_gradient_step_for_every_so_many_steps(
    steps_per_update: float, at_each: set[int]
) -> None:
    env = GuessEnvironment(ActionSpec.create_discrete((3,)))
    trainer = make_trainer(env, settings({"steps_per_update": steps_per_update, "batch_size": 8}))
    spy = Spy(trainer)
    roll(trainer, env, 61)
    first, last = spy.taken[0][0], spy.taken[-1][0]
    assert {n for _, n in spy.taken[1:]} == at_each
    assert spy.total == pytest.approx((last - first + 1) * 8 / steps_per_update, abs=1)


def test_nothing_is_learned_before_the_buffer_is_begun() -> None:
    env = GuessEnvironment(ActionSpec.create_discrete((3,)))
    trainer = make_trainer(env, settings({"buffer_init_steps": 400}))
    before = copy.deepcopy(trainer.learner.algorithm.actor.state_dict())
    spy = Spy(trainer)

    roll(trainer, env, 50)
    assert not spy.taken
    for name, value in before.items():
        torch.testing.assert_close(trainer.learner.algorithm.actor.state_dict()[name], value)

    roll(trainer, env, 52)
    # From step 400 on, one for every 16, and none for the steps before. The second half began
    # new episodes, of which eight steps were left unfinished.
    assert 20 < spy.total <= (102 * 8 - 400) / 16


def test_all_that_agents_did_is_in_the_buffer() -> None:
    env = GuessEnvironment(ActionSpec.create_continuous(1), episode_steps=40)
    trainer = make_trainer(env, settings({"buffer_size": 5000}, time_horizon=1000))
    roll(trainer, env, LONGEST_SEGMENT * 3 + 5)
    trainer.state()
    # Of an episode of 40 steps two segments are full and the third is ended; the next has begun.
    assert trainer.step == 8 * 40
    assert trainer.learner.replay.n_sequences == 8 * 40
    replayed = trainer.learner.replay.take(np.arange(8 * 40))
    assert replayed.terminated.sum() == 4, "agents of even number, once"
    distance = np.abs(replayed.obs[0] - replayed.continuous).mean(1)
    np.testing.assert_allclose(replayed.reward, 1 - distance, atol=1e-5)
    assert (
        trainer.learner.algorithm.actor.body.observations.encoders[0].normalizer.count == 1 + 8 * 40
    )


def test_what_signals_that_learn_give_to_an_episode_is_plotted() -> None:
    env = GuessEnvironment()  # episodes of 4 steps
    small = {"network_settings": {"hidden_units": 8, "num_layers": 1}}
    signals = {"extrinsic": {}, "curiosity": small, "rnd": small}
    never = {"buffer_init_steps": 10_000}
    trainer = make_trainer(env, settings(never, reward_signals=signals))
    curiosity = trainer.learner.algorithm.signals[1]
    assert isinstance(curiosity, Curiosity)
    curiosity.network.has_learned.fill_(1.0)
    plotted: dict[str, float] = {}
    trainer.stats.add_stat = plotted.__setitem__  # type: ignore[method-assign]

    roll(trainer, env, 4 * 5 + 1)
    trainer.state()
    trainer.take_over()

    replayed = trainer.learner.replay.take(np.arange(8 * 4 * 5))
    steps = Transitions(
        [torch.from_numpy(obs) for obs in replayed.obs],
        [torch.from_numpy(obs) for obs in replayed.next_obs],
        torch.from_numpy(replayed.continuous),
        torch.from_numpy(replayed.discrete).long(),
        torch.from_numpy(replayed.reward),
        torch.from_numpy(replayed.terminated),
    )
    for signal in trainer.learner.algorithm.signals[1:]:
        of_episodes = signal.score(steps).view(-1, 4).sum(1)
        found = plotted[f"Policy/{signal.name.capitalize()} Reward"]
        assert found == pytest.approx(float(of_episodes.mean()), rel=1e-5)


def test_normalization_counts_every_observation_once() -> None:
    env = GuessEnvironment(ActionSpec.create_continuous(1))
    trainer = make_trainer(env, settings())
    roll(trainer, env, 80)
    trainer.state()
    (first, _) = trainer.learner.algorithm.actor.body.observations.encoders
    assert int(first.normalizer.count) == 1 + trainer.step


def test_a_trainer_that_only_acts_keeps_nothing() -> None:
    env = GuessEnvironment()
    trainer = make_trainer(env, settings(), inference=True)
    spy = Spy(trainer)
    roll(trainer, env, 100)
    assert not spy.taken
    assert trainer.learner.replay.n_rows == 0


# --------------------------------------------------------------------------------------- later runs


@pytest.mark.parametrize("network", [{}, MEMORY], ids=["steps", "sequences"])
def test_a_resumed_run_goes_on_as_the_saved_one_would(
    network: dict[str, Any], tmp_path: Path
) -> None:
    kept = settings({"save_replay_buffer": True}, network)
    saved = make_trainer(GuessEnvironment(), kept)
    roll(saved, GuessEnvironment(), 70)
    state = copy.deepcopy(saved.state())
    saved.learner.save_experience(tmp_path / "replay.npz")

    restored = make_trainer(GuessEnvironment(), kept, seed=1)
    restored.load_state(state)
    restored.learner.load_experience(tmp_path / "replay.npz")

    for trainer in (saved, restored):
        trainer.seat.memories.forget(0)  # begin with new episodes
        roll(trainer, GuessEnvironment(seed=9), 70)
    for name, module in saved.state().items():
        if isinstance(module, dict) and name != "random_states":
            found = restored.state()[name]
            torch.testing.assert_close(found, module, rtol=0, atol=0)
    assert restored.state()["learned_to_step"] == saved.state()["learned_to_step"]


def test_entropy_coefficients_are_resumed() -> None:
    env = GuessEnvironment()
    saved = make_trainer(env, settings({"init_entcoef": 0.5}))
    roll(saved, env, 70)
    restored = make_trainer(env, settings({"init_entcoef": 0.5}))
    restored.load_state(saved.state())
    found, begun = restored.learner.algorithm.coefficients.log_alpha, np.log(0.5)
    torch.testing.assert_close(found, saved.learner.algorithm.coefficients.log_alpha)
    assert (found.detach() - begun).abs().min() > 0.01


def test_without_its_buffer_a_run_fills_a_new_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = GuessEnvironment()
    saved = make_trainer(env, settings())
    roll(saved, env, 70)
    saved.learner.save_experience(tmp_path / "replay.npz")
    assert not list(tmp_path.iterdir()), "nobody asked for it"

    kept = settings({"save_replay_buffer": True})
    restored = make_trainer(env, kept)
    restored.load_state(saved.state())
    restored.learner.load_experience(tmp_path / "replay.npz")
    assert "missing" in caplog.text
    spy = Spy(restored)
    roll(restored, env, 12)
    # No gradient steps are made up for while a minibatch of experience comes together.
    assert all(n == 1 for _, n in spy.taken)
    assert 1 <= spy.total <= 4


# ------------------------------------------------------------------------------------------ threads


def test_a_threaded_trainer_takes_as_many_gradient_steps() -> None:
    env = GuessEnvironment(ActionSpec.create_discrete((3,)))
    totals = []
    for threaded in (False, True):
        trainer = make_trainer(env, settings(threaded=threaded))
        spy = Spy(trainer)
        roll(trainer, env, 101)
        trainer.learner.settle()
        totals.append(spy.total)
        is_main = [thread is threading.main_thread() for thread in spy.threads]
        assert not any(is_main) if threaded else all(is_main)
    assert totals[0] == totals[1]


def test_agents_act_by_what_was_learned() -> None:
    env = GuessEnvironment()
    trainer = make_trainer(env, settings())
    acts_by = trainer.policy.snapshot
    roll(trainer, env, 40)
    assert trainer.policy.snapshot is not acts_by
    state = trainer.learner.algorithm.actor.heads.mean.weight
    np.testing.assert_array_equal(trainer.policy.snapshot.mean[0], state.detach().numpy().T)


def test_images_wait_as_bytes() -> None:
    env = Task("8 bit image", ActionSpec.create_discrete((3,)))
    encoder = {"vis_encode_type": "match3"}
    trainer = make_trainer(env, settings({"steps_per_update": 64}, encoder))
    roll(trainer, env, 20)
    trainer.state()
    assert trainer.learner.replay.take(np.arange(3)).obs[0].dtype == np.uint8
