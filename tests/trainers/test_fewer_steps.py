"""Options of PPO, MA-POCA and SAC that need fewer steps: off by default, and exact when on."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mlagents.trainers.algorithms.losses import divergence, normalized
from mlagents.trainers.algorithms.ppo import PPO
from mlagents.trainers.algorithms.returns import joined_advantages
from mlagents.trainers.algorithms.schedules import adapted
from mlagents.trainers.data.replay import Replay
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.fast.native_ppo import PART, FastPPO, NativePPO, by_autograd
from mlagents.trainers.fast.sac_by_hand import FastSAC
from mlagents.trainers.networks.actions import FIRST_MEANS
from mlagents.trainers.networks.layers import dense_block
from mlagents.trainers.networks.twin_q import TwinQ
from mlagents.trainers.networks.value_scale import ValueScale
from mlagents.trainers.settings.behavior import BehaviorSettings, NetworkSettings
from mlagents.trainers.settings.hyperparameters import PPOSettings
from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec
from steps import make_segments

CPU = torch.device("cpu")
SPEC = BehaviorSpec([ObservationSpec.vector(3, "a")], ActionSpec.create_hybrid(2, (3,)))


def settings(trainer_type: str = "ppo", **hyperparameters: Any) -> BehaviorSettings:
    usual = {"batch_size": 8, "buffer_size": 40}
    return BehaviorSettings.model_validate(
        {
            "trainer_type": trainer_type,
            "hyperparameters": usual | hyperparameters,
            "network_settings": {"hidden_units": 8, "num_layers": 2},
        }
    )


def make_ppo(kind: type[PPO] = PPO, **hyperparameters: Any) -> PPO:
    return kind(SPEC, settings(**hyperparameters), device=CPU, seed=1)


def segments_of(*length: int) -> Segments:
    segments = make_segments(SPEC, list(length), np.random.default_rng(0))
    segments.group_reward[:] = 0
    # SAC stores a memory with every step; here it is empty.
    return replace(segments, memory=np.zeros((segments.n_steps, 0), np.float32))


def experience(*, reward: float = 1.0) -> Segments:
    segments = segments_of(20, 20)
    segments.reward[:] *= reward
    return segments


def learned(ppo: PPO, *, reward: float = 1.0, updates: int = 2) -> dict[str, float]:
    segments = experience(reward=reward)
    for _ in range(updates):
        plotted = ppo.update(segments, ppo.score(segments), step=0)
    return plotted


def weights(ppo: PPO) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in ppo.network.parameters()])


# ------------------------------------------------------------------------------ policy_head_gain


@pytest.mark.parametrize(
    ("written", "of_means", "of_logits"), [(0.25, 0.25, 0.25), (None, FIRST_MEANS, 1.0)]
)
def test_only_the_heads_of_the_policy_begin_smaller(
    written: float | None, of_means: float, of_logits: float
) -> None:
    usual, small = make_ppo(policy_head_gain=1.0), make_ppo(policy_head_gain=written)
    gains = {"actor.heads.mean.weight": of_means, "actor.heads.logits.weight": of_logits}
    for (name, before), after in zip(
        usual.network.named_parameters(), small.network.parameters(), strict=True
    ):
        torch.testing.assert_close(after, before * gains.get(name, 1.0))


# ------------------------------------------------------------------------- target_kl, adaptive


def test_divergence_by_hand() -> None:
    # Row 1: both components twice as likely, ratio 4:  4 - 1 - log 4
    # Row 2: one half as likely, the other the same:   1/2 - 1 + log 2
    old = torch.zeros(2, 2)
    new = torch.tensor([[2.0, 2.0], [0.5, 1.0]]).log()
    wanted = (3 - math.log(4) - 0.5 + math.log(2)) / 2
    assert divergence(new, old).item() == pytest.approx(wanted)
    assert divergence(old, old).item() == 0.0


@pytest.mark.parametrize(
    ("moved", "wanted"),
    [(0.021, 2e-4), (0.02, 3e-4), (0.01, 3e-4), (0.005, 3e-4), (0.0049, 4.5e-4)],
)
def test_the_adapted_learning_rate_by_hand(moved: float, wanted: float) -> None:
    assert adapted(3e-4, moved, desired=0.01) == pytest.approx(wanted)


def test_the_adapted_learning_rate_has_limits() -> None:
    assert adapted(1.2e-5, 1.0, desired=0.01) == 1e-5
    assert adapted(9e-3, 0.0, desired=0.01) == 1e-2


@pytest.mark.parametrize("trainer_type", ["ppo", "poca"])
def test_beta_and_epsilon_stay_with_an_adaptive_learning_rate(trainer_type: str) -> None:
    s = settings(trainer_type, learning_rate_schedule="adaptive").hyperparameters
    assert isinstance(s, PPOSettings) or trainer_type == "poca"
    assert (s.beta_schedule, s.epsilon_schedule) == ("constant", "constant")  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [PPO, FastPPO])
def test_an_update_ends_after_the_pass_that_moves_too_far(kind: type[PPO]) -> None:
    n_passes = []
    for target_kl in (None, 1e-9):
        ppo = make_ppo(kind, num_epoch=4, target_kl=target_kl)
        prepared, _ = ppo.prepare(experience(), np.zeros((40, 1), np.float32))
        n_passes.append(len(list(ppo.descents(prepared, 0.2, 0.0))) / 5)
    assert n_passes == [4, 1]


@pytest.mark.parametrize("kind", [PPO, FastPPO])
@pytest.mark.parametrize(("desired_kl", "wanted"), [(1e-9, 3e-4 / 1.5**4), (1e9, 3e-4 * 1.5**4)])
def test_every_pass_adapts_the_learning_rate(
    kind: type[PPO], desired_kl: float, wanted: float
) -> None:
    ppo = make_ppo(kind, num_epoch=2, learning_rate_schedule="adaptive", desired_kl=desired_kl)
    assert learned(ppo)["Policy/KL Divergence"] > 0
    assert "Policy/KL Divergence" not in learned(make_ppo(kind))
    assert ppo.optimizer.param_groups[0]["lr"] == pytest.approx(wanted)
    assert ppo.set_learning_rate(10**9) == pytest.approx(wanted)
    again = make_ppo(learning_rate_schedule="adaptive")
    again.optimizer.load_state_dict(ppo.optimizer.state_dict())
    assert again.set_learning_rate(0) == pytest.approx(wanted), "a resumed run continues with it"


# ------------------------------------------------------------------------- normalize_advantages


def test_advantages_of_a_minibatch_by_hand() -> None:
    # Mean 2, deviation sqrt(((1 - 2)² + (3 - 2)²) / 2) = 1; then mean 5, deviation 5.
    found = normalized(torch.tensor([[[1.0], [3.0]], [[0.0], [10.0]]]))
    torch.testing.assert_close(found, torch.tensor([[[-1.0], [1.0]], [[-1.0], [1.0]]]))
    assert normalized(torch.tensor([[7.0]])).item() == 0.0


def test_joined_advantages_that_minibatches_normalize_are_sums() -> None:
    advantages = np.array([[1.0, 2.0], [3.0, 5.0]], np.float32)
    np.testing.assert_array_equal(joined_advantages(advantages, normalize=False), [[3.0], [8.0]])


@pytest.mark.skipif(PART.load() is None, reason="the native library cannot be used")
@pytest.mark.parametrize(
    "option", [{"normalize_advantages": "minibatch"}, {"normalize_values": True}]
)
def test_the_native_library_learns_with_options_as_pytorch_does(option: dict[str, Any]) -> None:
    found = []
    for native in (False, True):
        ppo = make_ppo(**option)
        segments = experience()
        batch = ppo.prepare(segments, ppo.score(segments))[0].batch
        rows = [(torch.arange(first, 40, 5), None) for first in range(5)]
        learn = (
            NativePPO(ppo, PART.load()).epochs(batch, 0.2, 0.01)
            if native
            else by_autograd(ppo, batch, 0.2, 0.01)
        )
        found.append(torch.cat([learn(rows).flatten().float(), weights(ppo)]))
    torch.testing.assert_close(*found, atol=2e-5, rtol=0)


# ----------------------------------------------------------------------------- normalize_values


def test_values_in_units_of_their_deviation_by_hand() -> None:
    # The statistics begin as one return of mean 0 and square 1. With returns 4 and 8:
    # mean (0 + 4 + 8) / 3 = 4, variance (0 + 16 + 64 + 1) / 3 - 16 = 11.
    scale, layer = ValueScale(1), torch.nn.Linear(2, 1)
    inputs = torch.randn(5, 2)
    before = scale.returns(layer(inputs))
    scale.follow(torch.tensor([[4.0], [8.0]]), layer)
    torch.testing.assert_close(scale(torch.tensor([[15.0]])), torch.tensor([[11 / 11**0.5]]))
    torch.testing.assert_close(scale.returns(torch.tensor([[1.0]])), torch.tensor([[4 + 11**0.5]]))
    torch.testing.assert_close(scale.returns(layer(inputs)), before)


def test_far_returns_are_not_clamped() -> None:
    assert ValueScale(1)(torch.tensor([[1e3]])).item() == 1e3


def test_the_scale_of_rewards_hardly_matters_to_normalized_values() -> None:
    # The deviation begins as 1, which large returns soon outweigh.
    losses = [
        learned(make_ppo(normalize_values=True), reward=reward, updates=3)["Losses/Value Loss"]
        for reward in (100.0, 10_000.0)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert 0.1 < losses[0] < 3.0


def test_the_value_scale_is_saved_and_plots_are_in_rewards() -> None:
    ppo = make_ppo(normalize_values=True)
    plotted = learned(ppo, reward=1000.0, updates=30)
    assert "Optimizer:value_scale" in ppo.modules()
    assert "Optimizer:value_scale" not in make_ppo().modules()
    assert abs(plotted["Policy/Extrinsic Value Estimate"]) > 5.0


# ------------------------------------------------------------------------- critic_norm, n_step


def test_each_layer_of_a_critic_is_normalized() -> None:
    plain, normal = dense_block(2, 3, 2), dense_block(2, 3, 2, normalize=True)
    assert len(plain) == 4
    x = normal[:2](torch.tensor([[1.0, 2.0]]))
    assert x.mean().item() == pytest.approx(0.0, abs=1e-6)
    assert x.var(correction=0).item() == pytest.approx(1.0, abs=1e-2)


def test_q_networks_are_normalized_together_as_alone() -> None:
    torch.manual_seed(0)
    q = TwinQ(SPEC, NetworkSettings(hidden_units=8), n_signals=1, layer_norm=True)
    obs, actions = torch.randn(6, 3), torch.rand(6, 2)
    together = q(q.encode([obs]), actions)
    x = torch.cat([obs, actions], 1)
    for layer in q.dense:
        x = x @ layer.weight[1] + layer.bias[1]
        x = (x - x.mean(1, keepdim=True)) / (x.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
        x = torch.nn.functional.silu(x)
    wanted = x @ q.heads.weight[1] + q.heads.bias[1]
    torch.testing.assert_close(together[1].flatten(1), wanted, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(q.one_q(1, q.encode([obs]), actions), together[1])


def make_sac(**hyperparameters: Any) -> FastSAC:
    return FastSAC(SPEC, settings("sac", **hyperparameters), device=CPU, seed=1)


def test_normalized_critics_learn_with_autograd(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        sac = make_sac(critic_norm="layer")
    assert not sac.is_by_hand
    assert "critic_norm: the gradients of SAC are computed with autograd" in caplog.text
    assert make_sac().is_by_hand
    replay = Replay(SPEC, capacity=90)
    replay.add(experience())
    plotted = sac.update(replay, n_updates=2, step=0)
    assert all(math.isfinite(value) for value in plotted.values())


def test_sums_of_rewards_by_hand() -> None:
    # Two segments of 4 and 2 steps, gamma 0.5, three rewards at most. The first was ended by its
    # task, the second was cut. Rewards 1 2 4 8 | 16 32:
    #   1 + 2/2 + 4/4 = 3, 2 + 4/2 + 8/4 = 6, 4 + 8/2 = 8, 8 | 16 + 32/2 = 32, 32
    segments = segments_of(4, 2)
    segments.reward[:] = [1, 2, 4, 8, 16, 32]
    segments.terminated[:] = [True, False]
    replay = Replay(SPEC, capacity=50, n_step=3, gamma=0.5)
    replay.add(segments)
    found = replay.take(np.arange(6))
    np.testing.assert_array_equal(found.reward, [3, 6, 8, 8, 32, 32])
    np.testing.assert_array_equal(found.n_rewards, [3, 3, 2, 1, 2, 1])
    np.testing.assert_array_equal(found.terminated, [False, True, True, True, False, False])
    obs, last = segments.obs[0], segments.last_obs[0]
    np.testing.assert_array_equal(
        found.next_obs[0], [obs[3], last[0], last[0], last[0], last[1], last[1]]
    )
    np.testing.assert_array_equal(found.obs[0], obs)


def test_sums_of_two_rewards_by_hand() -> None:
    # Rewards 1 2 4 8, gamma 0.5: 1 + 2/2 = 2, 2 + 4/2 = 4, 4 + 8/2 = 8, 8.
    segments = segments_of(4)
    segments.reward[:] = [1, 2, 4, 8]
    replay = Replay(SPEC, capacity=50, n_step=2, gamma=0.5)
    replay.add(segments)
    found = replay.take(np.arange(4))
    np.testing.assert_array_equal(found.reward, [2, 4, 8, 8])
    np.testing.assert_array_equal(found.n_rewards, [2, 2, 2, 1])


@pytest.mark.parametrize("by_hand", [False, True])
def test_the_value_after_several_rewards_is_discounted_as_often(by_hand: bool) -> None:
    sac = make_sac(n_step=3)
    replay = Replay(SPEC, capacity=90, n_step=3, gamma=0.99)
    replay.add(experience())
    (batch,) = sac._minibatches(replay, 1)
    assert batch.n_rewards is not None
    discount = sac.discount(batch)
    torch.testing.assert_close(discount, 0.99 ** batch.n_rewards.unsqueeze(1).float())
    assert set(batch.n_rewards.tolist()) <= {1, 2, 3}
    differentiate = sac.differentiate if by_hand else super(FastSAC, sac).differentiate
    losses = differentiate(batch, sac.rewards(batch))
    sac.gamma = sac.gamma * 0  # then only the rewards are left
    assert not torch.equal(losses.q, differentiate(batch, sac.rewards(batch)).q)


@pytest.mark.parametrize(
    "written",
    [
        {"network_settings": {"memory": {"sequence_length": 4}}},
        {"reward_signals": {"extrinsic": {}, "rnd": {}}},
        {"reward_signals": {"rnd": {}}},
    ],
)
def test_sums_of_rewards_need_their_own_kind_of_run(written: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be 1 with memory, or with reward signals other"):
        BehaviorSettings.model_validate(
            {"trainer_type": "sac", "hyperparameters": {"n_step": 3}} | written
        )
