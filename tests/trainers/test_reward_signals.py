"""Reward signals inside PPO: streams, the end of episodes, checkpoints and statistics."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from actors import behavior
from guess_environment import GuessEnvironment
from mlagents.trainers.algorithms.ppo import PPO
from mlagents.trainers.algorithms.reward_signals import ExtrinsicReward, score_segments
from mlagents.trainers.algorithms.transitions import transitions_of
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.reporting.stats import StatsReporter, StatsSummary, StatsWriter
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import ActionSpec
from recorded import record_guesses
from steps import make_segments
from tasks import Task
from training_loop import make_trainer, note_steps, train_while

CPU = torch.device("cpu")
SPEC = behavior(3, continuous=2, branches=(3, 2))
SMALL = {"hidden_units": 4, "num_layers": 1, "normalize": True}


def settings(signals: dict[str, Any], **written: Any) -> BehaviorSettings:
    defaults = {
        "trainer_type": "ppo",
        "max_steps": 100_000,
        "time_horizon": 3,
        "hyperparameters": {"batch_size": 16, "buffer_size": 64, "num_epoch": 2},
        "network_settings": SMALL,
        "reward_signals": signals,
    }
    return BehaviorSettings.model_validate(defaults | written)


def all_signals(demo_path: Path) -> dict[str, Any]:
    return {
        "extrinsic": {},
        "curiosity": {"network_settings": SMALL},
        "gail": {
            "demo_path": str(demo_path),
            "use_actions": True,
            "use_vail": True,
            "network_settings": SMALL,
        },
        "rnd": {"network_settings": SMALL},
    }


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    return record_guesses(tmp_path / "expert.demo", ActionSpec.create_hybrid(1, (3,)), n_steps=12)


def test_every_signal_scores_in_its_own_column(demo: Path) -> None:
    env = GuessEnvironment()
    trainer = make_trainer(env, settings(all_signals(demo)))
    segments = make_segments(env.spec, [3, 1, 2], np.random.default_rng(0))
    ppo = trainer.learner.algorithm

    rewards = ppo.score(segments)

    steps = transitions_of(segments, CPU, with_next_obs=True)
    assert [signal.name for signal in ppo.signals] == ["extrinsic", "curiosity", "gail", "rnd"]
    for column, signal in zip(rewards.T, ppo.signals, strict=True):
        np.testing.assert_allclose(column, signal.score(steps), rtol=1e-5)
    np.testing.assert_array_equal(rewards[:, 0], segments.reward + segments.group_reward)


def test_the_tasks_reward_alone_needs_no_device() -> None:
    segments = make_segments(SPEC, [2, 2], np.random.default_rng(0))
    signals = [ExtrinsicReward(gamma=0.9, strength=2.0)]
    rewards = score_segments(signals, segments, torch.device("meta"))
    np.testing.assert_allclose(rewards[:, 0], 2 * (segments.reward + segments.group_reward))


def test_what_is_new_stays_so_after_the_end() -> None:
    # A value after the end is worth gamma times itself in the return of the last step, for streams
    # that do not end with the episode. With lambd 0 the return of a step is r + gamma V'.
    hyperparameters = {"batch_size": 4, "buffer_size": 8, "lambd": 0.0}
    written = settings(
        {"extrinsic": {"gamma": 0.5}, "rnd": {"gamma": 0.8}}, hyperparameters=hyperparameters
    )
    ppo = PPO(SPEC, written, device=CPU, seed=0)
    segments = make_segments(SPEC, [2, 3], np.random.default_rng(0))  # ended, interrupted
    rewards = ppo.score(segments)
    with torch.no_grad():
        after = ppo.network.values(
            [torch.from_numpy(o) for o in segments.last_obs], torch.zeros(2, 0)
        ).numpy()

    batch, _ = ppo._prepare(segments, rewards)

    last_of_ended, last_of_interrupted = batch.returns[1], batch.returns[4]
    assert last_of_ended[0].item() == pytest.approx(rewards[1, 0], abs=1e-6)
    assert last_of_ended[1].item() == pytest.approx(rewards[1, 1] + 0.8 * after[0, 1], abs=1e-6)
    expected = rewards[4] + np.array([0.5, 0.8]) * after[1]
    np.testing.assert_allclose(last_of_interrupted, expected, atol=1e-6)


def test_a_resumed_run_learns_from_every_signal_as_before(demo: Path) -> None:
    env = GuessEnvironment()
    cloning = {"demo_path": str(demo)}
    written = settings(all_signals(demo), behavioral_cloning=cloning)
    saved = make_trainer(env, written)
    roll(saved, env, 30)
    restored = make_trainer(env, written, seed=1)

    restored.load_state(copy.deepcopy(saved.state()))

    segments = make_segments(env.spec, [40, 40], np.random.default_rng(0))
    for _ in range(2):
        results = []
        for trainer in (saved, restored):
            ppo = trainer.learner.algorithm
            results.append(ppo.update(segments, ppo.score(segments), step=100))
        assert results[0] == results[1]
    assert {
        "Module:Curiosity",
        "Module:GAIL",
        "Module:RND-pred",
        "Module:RND-target",
    } < saved.state().keys()


def test_everything_is_plotted(demo: Path) -> None:
    class Noted(StatsWriter):
        def write_stats(self, category: str, values: Any, step: int) -> None:
            seen.update(values)

    seen: dict[str, StatsSummary] = {}
    env = GuessEnvironment()
    written = settings(all_signals(demo), behavioral_cloning={"demo_path": str(demo)})
    trainer = make_trainer(env, written, stats=StatsReporter("Guess", [Noted()]))
    roll(trainer, env, 40)
    trainer.stats.write_stats(0)

    assert seen.keys() >= {
        *(f"Policy/{name} Reward" for name in ("Extrinsic", "Curiosity", "Gail", "Rnd")),
        *(f"Policy/{name} Value Estimate" for name in ("Extrinsic", "Curiosity", "Gail", "Rnd")),
        "Losses/Curiosity Forward Loss",
        "Losses/Curiosity Inverse Loss",
        "Losses/RND Loss",
        "Losses/GAIL Loss",
        "Losses/GAIL KL Loss",
        "Policy/GAIL Beta",
        "Policy/GAIL Policy Estimate",
        "Policy/GAIL Expert Estimate",
        "Policy/GAIL Grad Mag Loss",
        "Losses/Pretraining Loss",
    }
    assert all(np.isfinite(summary.full_dist).all() for summary in seen.values())


def test_rewards_of_episodes_are_what_the_updates_scored() -> None:
    # Episodes of 5 in segments of 3 and 2: their rewards add up across segments and updates.
    env = GuessEnvironment(episode_steps=5)
    trainer = make_trainer(env, settings({"extrinsic": {}, "rnd": {"network_settings": SMALL}}))
    scored: dict[int, float] = {}
    plotted: list[float] = []
    expected: list[float] = []
    score = trainer.learner.algorithm.score

    def spy(segments: Any) -> Any:
        rewards = score(segments)
        ended = []
        end = 0
        for episode, length, has_ended in zip(
            segments.episode, segments.length, segments.ended, strict=True
        ):
            start, end = end, end + length
            scored[episode] = scored.get(episode, 0.0) + float(rewards[start:end, 1].sum())
            if has_ended:
                ended.append(scored[episode])
        if ended:
            expected.append(float(np.mean(ended)))
        return rewards

    trainer.learner.algorithm.score = spy  # type: ignore[method-assign]
    add_stat = trainer.stats.add_stat

    def note(key: str, value: float, *aggregation: Any) -> None:
        if key == "Policy/Rnd Reward":
            plotted.append(value)
        add_stat(key, value, *aggregation)

    trainer.stats.add_stat = note  # type: ignore[method-assign]
    roll(trainer, env, 60)

    assert len(plotted) > 3
    np.testing.assert_allclose(plotted, expected, rtol=1e-4)


def test_acting_needs_no_demonstration(tmp_path: Path, demo: Path) -> None:
    env = GuessEnvironment()
    written = settings(all_signals(demo), behavioral_cloning={"demo_path": str(demo)})
    trained = make_trainer(env, written)
    demo.unlink()

    acting = make_trainer(env, written, inference=True)

    acting.load_state(trained.state())
    roll(acting, env, 10)
    with pytest.raises(
        UnityTrainerException, match=r"the file or folder .*expert\.demo does not exist"
    ):
        make_trainer(env, written)


@pytest.mark.parametrize("threaded", [False, True])
def test_images_memory_and_threads_go_with_every_signal(tmp_path: Path, threaded: bool) -> None:
    spec = ActionSpec.create_hybrid(1, (3,))
    env = Task("8 bit image", spec)
    demo = record_guesses(tmp_path / "expert.demo", spec, n_steps=12, shown="8 bit image")
    network = SMALL | {"vis_encode_type": "match3"}
    signals = all_signals(demo)
    for name in ("curiosity", "gail", "rnd"):
        signals[name] |= {"network_settings": network}
    written = settings(
        signals,
        threaded=threaded,
        network_settings=network | {"memory": {"memory_size": 4, "sequence_length": 3}},
        behavioral_cloning={"demo_path": str(demo)},
    )
    trainer = make_trainer(env, written)
    roll(trainer, env, 30)
    trainer.learner.settle()
    assert not trainer.learner.has_diverged


def roll(trainer: Any, env: Any, n_decisions: int) -> None:
    left = iter(range(n_decisions))
    train_while(lambda: next(left, None) is not None, trainer, env)


@pytest.mark.parametrize("signal_steps", [1.0, 3.0])
def test_sac_learns_from_every_signal_and_demonstrations(demo: Path, signal_steps: float) -> None:
    env = GuessEnvironment()
    hyperparameters = {
        "batch_size": 16,
        "buffer_size": 500,
        "steps_per_update": 8,
        "reward_signal_steps_per_update": 8 * signal_steps,
    }
    written = settings(
        all_signals(demo),
        trainer_type="sac",
        hyperparameters=hyperparameters,
        behavioral_cloning={"demo_path": str(demo), "samples_per_update": 16},
    )
    trainer = make_trainer(env, written)
    curiosity = trainer.learner.algorithm.signals[1]
    learned: list[float] = []
    gradient_steps: list[float] = []
    note_steps(curiosity.optimizer, learned)
    note_steps(trainer.learner.algorithm.optimizer, gradient_steps)
    roll(trainer, env, 30)
    trainer.learner.settle()

    assert not trainer.learner.has_diverged
    assert len(gradient_steps) > 20
    assert len(learned) == int(len(gradient_steps) / signal_steps)
