import copy
import threading
from typing import Any

import numpy as np
import pytest
import torch

import mlagents.trainers.learning.learner as learner_module
from guess_environment import GuessEnvironment
from mlagents.trainers.acting.collector import Collector
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import ActionSpec, DecisionSteps, TerminalSteps
from training_loop import make_trainer, roll


def settings(**written: Any) -> BehaviorSettings:
    defaults = {
        "trainer_type": "ppo",
        "max_steps": 2000,
        "time_horizon": 7,
        "summary_freq": 100,
        "checkpoint_interval": 300,
        "hyperparameters": {"batch_size": 32, "buffer_size": 256, "learning_rate": 3e-3},
        "network_settings": {"hidden_units": 8, "num_layers": 1, "normalize": True},
    }
    return BehaviorSettings.model_validate(defaults | written)


def spy_on_updates(trainer: Trainer) -> list[tuple[Segments, torch.Tensor]]:
    """Note for every update its experience, and its log-probabilities under the policy before."""
    seen = []
    update = trainer.learner.algorithm.update

    def spy(segments: Segments, rewards: np.ndarray, *, step: int) -> dict[str, float]:
        with torch.no_grad():
            log_probs, _, _ = trainer.learner.algorithm.network.evaluate(
                [torch.as_tensor(obs) for obs in segments.obs],
                torch.as_tensor(segments.continuous),
                torch.as_tensor(segments.discrete).long(),
                torch.as_tensor(segments.action_mask),
            )
        seen.append((segments, log_probs))
        return update(segments, rewards, step=step)

    trainer.learner.algorithm.update = spy  # type: ignore[method-assign]
    return seen


def test_every_update_learns_from_its_own_policy_alone() -> None:
    # 8 agents, episodes of 4, horizon 7, buffer 256: segments are cut in the middle of episodes.
    env = GuessEnvironment(ActionSpec.create_hybrid(1, (3,)), episode_steps=5)
    trainer = make_trainer(env, settings())
    updates = spy_on_updates(trainer)

    roll(trainer, env, 200)

    assert len(updates) == 6  # 199 steps of 8 agents are closed: 1592 // 256
    for segments, log_probs in updates:
        assert segments.n_steps == 256
        np.testing.assert_allclose(segments.log_probs, log_probs, atol=2e-5)


def test_experience_is_held_once_while_it_is_learned_from() -> None:
    env = GuessEnvironment()
    trainer = make_trainer(env, settings())
    held: list[tuple[int, int]] = []

    def note(segments: Segments, rewards: np.ndarray, *, step: int) -> dict[str, float]:
        obs, *_ = segments.obs
        assert obs.base is not None and not np.shares_memory(obs, collector._rows._columns[0])
        held.append((obs.nbytes, obs.base.nbytes))
        return {}

    collector = trainer.seat.memories
    assert isinstance(collector, Collector)
    trainer.learner.algorithm.update = note  # type: ignore[method-assign]

    roll(trainer, env, 40)  # 256 steps are 32 decisions

    assert held
    for taken, held_in_all in held:
        assert held_in_all <= 1.07 * taken


def test_episodes_keep_their_whole_return_across_cuts() -> None:
    env = GuessEnvironment(ActionSpec.create_discrete((2,)), episode_steps=50)
    trainer = make_trainer(env, settings(time_horizon=3))

    roll(trainer, env, 51)

    assert len(trainer.meter.recent_returns) == 8
    # Each of 50 steps is worth 0 or 1, so no return of a part could be mistaken for a whole.
    assert all(10 < episode_return < 40 for episode_return in trainer.meter.recent_returns)


def test_summaries_and_checkpoints_fall_due_by_step() -> None:
    summaries: list[int] = []
    checkpoints: list[int] = []
    env = GuessEnvironment()
    trainer = make_trainer(
        env,
        settings(),
        on_summary=summaries.append,
        on_checkpoint=lambda: checkpoints.append(trainer.step),
    )

    roll(trainer, env, 101)

    # 8 agents end together every 4 steps, 32 steps at a time: 288 is before 300, 576 before 600.
    assert summaries == [100, 200, 300, 400, 500, 600, 700, 800]
    assert checkpoints == [288, 576]


@pytest.mark.parametrize("arguments", [{}, {"inference": True}])
def test_a_trainer_that_does_not_learn_holds_nothing_back(arguments: dict[str, bool]) -> None:
    env = GuessEnvironment()
    trainer = make_trainer(env, settings(max_steps=64), **arguments)
    updates = spy_on_updates(trainer)

    roll(trainer, env, 200)

    assert not trainer.is_learning
    assert not updates
    assert trainer.seat.memories.n_held <= 64
    assert trainer.step == 1592 // 32 * 32, "what its agents do is counted and shown"


class InGroups(GuessEnvironment):
    """Every report of an agent brings 3 for its group, beside what it earns itself."""

    def get_steps(self, behavior_name: str) -> tuple[DecisionSteps, TerminalSteps]:
        steps = super().get_steps(behavior_name)
        for of_kind in steps:
            of_kind.group_reward = np.full(len(of_kind), 3, np.float32)
        return steps


def test_what_comes_for_a_group_is_learned_from_and_no_part_of_returns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    returns, earned = [], []
    for env in (GuessEnvironment(), InGroups()):
        trainer = make_trainer(env, settings())
        rewards: list[float] = []

        def note(tag: str, values: Any, *_how: Any, rewards: list[float] = rewards) -> None:
            if tag == "Policy/Extrinsic Reward":
                rewards.extend(values)

        trainer.stats.add_stats = note  # type: ignore[method-assign]
        roll(trainer, env, 12)
        returns.append(list(trainer.meter.recent_returns))
        earned.append(np.array(rewards))

    assert len(returns[0]) > 0
    assert returns[1] == returns[0]
    np.testing.assert_allclose(earned[1], earned[0] + 4 * 3, rtol=1e-5)  # episodes of four steps
    assert caplog.text.count("received a group reward") == 1


def test_a_restored_trainer_goes_on_as_the_saved_one_would() -> None:
    env = GuessEnvironment()
    saved = make_trainer(env, settings())
    roll(saved, env, 70)
    restored = make_trainer(env, settings(), seed=1)

    restored.load_state(copy.deepcopy(saved.state()))

    assert restored.step == saved.step
    for trainer in (saved, restored):
        trainer.seat = trainer.seat._replace(memories=Collector(env.spec, time_horizon=7))
        trainer._experience = trainer.seat.memories  # begins with new episodes
        roll(trainer, GuessEnvironment(seed=9), 70)
    for key, value in saved.state()["Policy"].items():
        torch.testing.assert_close(restored.state()["Policy"][key], value, rtol=0, atol=0)


def test_a_threaded_trainer_learns_beside_the_rollout() -> None:
    env = GuessEnvironment()
    trainer = make_trainer(env, settings(threaded=True, max_steps=100_000))
    may_learn = threading.Event()
    threads = []
    update = trainer.learner.algorithm.update

    def slow(segments: Segments, rewards: np.ndarray, *, step: int) -> dict[str, float]:
        threads.append(threading.current_thread())
        assert may_learn.wait(30)
        return update(segments, rewards, step=step)

    trainer.learner.algorithm.update = slow  # type: ignore[method-assign]
    acts_by = trainer.policy.snapshot

    roll(trainer, env, 60)  # 256 steps are 32 decisions

    assert len(threads) == 1 and threads[0] is not threading.main_thread()
    assert trainer.policy.snapshot is acts_by, "changes only when an update is done"
    may_learn.set()
    trainer.learner.settle()
    trainer.take_over()
    assert trainer.policy.snapshot is not acts_by
    assert not threads[0].is_alive()


def test_threaded_experience_is_at_most_one_update_old() -> None:
    # The policy that acted is known by its log-probabilities: those of no other set of weights fit.
    env = GuessEnvironment()
    trainer = make_trainer(env, settings(threaded=True, max_steps=100_000))
    policies = [copy.deepcopy(trainer.learner.algorithm.network)]
    batches: list[Segments] = []
    update = trainer.learner.algorithm.update

    def spy(segments: Segments, rewards: np.ndarray, *, step: int) -> dict[str, float]:
        batches.append(segments)
        results = update(segments, rewards, step=step)
        policies.append(copy.deepcopy(trainer.learner.algorithm.network))
        return results

    trainer.learner.algorithm.update = spy  # type: ignore[method-assign]
    roll(trainer, env, 400)
    trainer.learner.settle()

    assert len(batches) > 8
    for number, segments in enumerate(batches):
        fits = np.zeros(segments.n_steps, np.bool_)
        for policy in policies[max(0, number - 1) : number + 1]:
            with torch.no_grad():
                log_probs, _, _ = policy.evaluate(
                    [torch.as_tensor(obs) for obs in segments.obs],
                    torch.as_tensor(segments.continuous),
                    torch.as_tensor(segments.discrete).long(),
                    torch.as_tensor(segments.action_mask),
                )
            fits |= np.isclose(segments.log_probs, log_probs, atol=2e-5).all(axis=1)
        assert fits.all()


def test_an_error_of_the_learner_ends_the_rollout_with_its_cause() -> None:
    env = GuessEnvironment()
    trainer = make_trainer(env, settings(threaded=True))

    def fail(*_arguments: Any, **_options: Any) -> dict[str, float]:
        raise ZeroDivisionError("while learning")

    trainer.learner.algorithm.update = fail  # type: ignore[method-assign]

    with pytest.raises(ZeroDivisionError, match="while learning"):
        roll(trainer, env, 2000)
    trainer.state()  # and what there is can still be saved


def test_what_is_saved_of_a_threaded_trainer_is_no_half_update() -> None:
    env = GuessEnvironment()
    trainer = make_trainer(env, settings(threaded=True, max_steps=100_000))
    states: list[dict[str, Any]] = []
    may_end = threading.Event()
    update = trainer.learner.algorithm.update

    def spy(*arguments: Any, **options: Any) -> dict[str, float]:
        results = update(*arguments, **options)
        assert may_end.wait(30)
        states.append(copy.deepcopy(trainer.learner.algorithm.network.actor.state_dict()))
        return results

    trainer.learner.algorithm.update = spy  # type: ignore[method-assign]
    for _ in range(5):
        may_end.clear()
        roll(trainer, env, 33)
        assert trainer.learner._running is not None and not trainer.learner._running.done()
        threading.Timer(0.01, may_end.set).start()
        saved = trainer.state()["Policy"]
        for key, value in states[-1].items():
            torch.testing.assert_close(saved[key], value, rtol=0, atol=0)


@pytest.mark.parametrize("network", ["actor", "critic"])
def test_a_network_of_nan_has_diverged(network: str) -> None:
    trainer = make_trainer(GuessEnvironment(), settings())
    assert not trainer.learner.has_diverged
    with torch.no_grad():
        next(getattr(trainer.learner.algorithm.network, network).parameters())[0] = torch.nan
    assert trainer.learner.has_diverged


def test_a_closed_trainer_gives_up_at_its_next_gradient_step() -> None:
    env = GuessEnvironment()
    endless = {"batch_size": 32, "buffer_size": 256, "num_epoch": 1_000_000}
    trainer = make_trainer(env, settings(threaded=True, hyperparameters=endless))
    roll(trainer, env, 40)
    assert trainer.learner._running is not None and not trainer.learner._running.done()

    trainer.learner.close()

    assert trainer.learner._running.done()
    with pytest.raises(UnityTrainerException, match="was closed during an update"):
        trainer.learner.settle()


def test_agents_that_vanish_are_counted_and_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    env = GuessEnvironment(n_agents=8, episode_steps=10**6)
    env.reset()
    trainer = make_trainer(env, settings(max_steps=10**6))
    decisions, _ = env.get_steps(env.BEHAVIOR)
    nobody = TerminalSteps.empty(env.spec)
    policy, collector = trainer.seat
    assert isinstance(collector, Collector)
    mask = np.zeros((8, 3), np.bool_)
    for report in range(1000):
        # Every agent reports twice: it closes one step, and vanishes.
        decisions.agent_id[:] = np.arange(4 * report, 4 * report + 8)
        lanes = collector.observe(0, decisions, nobody)
        trainer.advance()
        collector.record(lanes, mask, policy.act(decisions.obs, mask))
    assert collector.n_vanished > 2000
    assert trainer.step + collector.n_unfinished >= 3900
    told = [line for line in capsys.readouterr().out.splitlines() if "agents vanished" in line]
    assert 1 <= len(told) <= 5
    assert int(told[-1].split()[2]) > 1000


def test_totals_of_episodes_that_never_end_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner_module, "_MOST_UNFINISHED", 2)
    env = GuessEnvironment(n_agents=8, episode_steps=10**6)
    small = {"network_settings": {"hidden_units": 8, "num_layers": 1}}
    trainer = make_trainer(env, settings(reward_signals={"extrinsic": {}, "rnd": small}))
    roll(trainer, env, 80)
    assert len(trainer.learner._learned_rewards._unfinished) == 2
