"""One update of PPO, computed again in float64 NumPy from the equations."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from mlagents.trainers.algorithms import ppo as ppo_module
from mlagents.trainers.algorithms.ppo import PPO
from mlagents.trainers.algorithms.reward_signals import ExtrinsicReward
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec

SPEC = BehaviorSpec(
    [ObservationSpec.vector(3, "a"), ObservationSpec.vector(2, "b")],
    ActionSpec.create_hybrid(2, (3, 2)),
)
LENGTH = [4, 1, 3]
N = sum(LENGTH)


def settings(**hyperparameters: Any) -> BehaviorSettings:
    return BehaviorSettings.model_validate(
        {
            "trainer_type": "ppo",
            "hyperparameters": {"batch_size": N, "buffer_size": N, "num_epoch": 1, "lambd": 0.8}
            | hyperparameters,
            "network_settings": {"hidden_units": 4, "num_layers": 1},
        }
    )


def experience(rng: np.random.Generator) -> Segments:
    """Three segments: ended by the task, interrupted by a clock, cut."""
    return Segments(
        obs=[rng.normal(size=(N, 3)).astype("f4"), rng.normal(size=(N, 2)).astype("f4")],
        continuous=rng.normal(size=(N, 2)).astype("f4"),
        discrete=np.stack([rng.integers(0, 2, N), rng.integers(0, 2, N)], 1).astype(np.int32),
        log_probs=rng.uniform(-1.5, -0.5, (N, 4)).astype("f4"),
        action_mask=np.tile([False, False, True, False, False], (N, 1)),
        memory=np.zeros((N, 0), "f4"),
        reward=rng.normal(size=N).astype("f4"),
        group_reward=rng.normal(size=N).astype("f4"),
        length=np.array(LENGTH),
        last_obs=[rng.normal(size=(3, 3)).astype("f4"), rng.normal(size=(3, 2)).astype("f4")],
        last_memory=np.zeros((3, 0), "f4"),
        terminated=np.array([True, False, False]),
        interrupted=np.array([False, True, False]),
        episode=np.arange(3),
        episode_return=np.zeros(3),
        episode_length=np.array(LENGTH),
    )


@pytest.fixture
def two_streams(monkeypatch: pytest.MonkeyPatch) -> list[ExtrinsicReward]:
    streams = [ExtrinsicReward(gamma=0.9, strength=1.0), ExtrinsicReward(gamma=0.5, strength=2.0)]
    monkeypatch.setattr(ppo_module, "make_reward_signals", lambda settings: streams)
    return streams


Array = NDArray[np.float64]


def weights(module: torch.nn.Module) -> dict[str, Array]:
    return {name: p.detach().double().numpy().copy() for name, p in module.named_parameters()}


def swish_layer(w: dict[str, Array], prefix: str, obs: list[Array]) -> Array:
    x = np.concatenate(obs, 1) @ w[f"{prefix}.dense.0.weight"].T + w[f"{prefix}.dense.0.bias"]
    return x / (1 + np.exp(-x))


def values_of(w: dict[str, Array], obs: list[Array]) -> Array:
    encoding = swish_layer(w, "critic.body", obs)
    return encoding @ w["critic.values.weight"].T + w["critic.values.bias"]


def log_probs_and_entropy(w: dict[str, Array], segments: Segments) -> tuple[Array, Array]:
    encoding = swish_layer(w, "actor.body", [o.astype(float) for o in segments.obs])
    mean = encoding @ w["actor.heads.mean.weight"].T + w["actor.heads.mean.bias"]
    std = np.exp(w["actor.heads.log_std"])
    gaussian = np.exp(-((segments.continuous - mean) ** 2) / (2 * std**2)) / (
        std * np.sqrt(2 * np.pi)
    )
    logits = encoding @ w["actor.heads.logits.weight"].T + w["actor.heads.logits.bias"]
    first = np.exp(logits[:, :2])  # the third choice of the first branch is masked
    first /= first.sum(1, keepdims=True)
    second = np.exp(logits[:, 3:])
    second /= second.sum(1, keepdims=True)
    rows = np.arange(N)
    chosen = [p[rows, segments.discrete[:, k]] for k, p in enumerate((first, second))]
    # The mean over continuous actions, the sum over branches.
    entropy = np.mean(0.5 * np.log(2 * np.pi * np.e * std**2)) - sum(
        (p * np.log(p)).sum(1) for p in (first, second)
    )
    return np.log(np.column_stack([gaussian, *chosen])), entropy


def advantages_and_returns(
    w: dict[str, Array], segments: Segments, gammas: list[float], strengths: list[float]
) -> tuple[Array, Array]:
    values = values_of(w, [o.astype(float) for o in segments.obs])
    after = values_of(w, [o.astype(float) for o in segments.last_obs])
    after[0] = 0.0  # only the first segment was ended by its task
    advantages = np.zeros((N, len(gammas)))
    for i, (gamma, strength) in enumerate(zip(gammas, strengths, strict=True)):
        end = 0
        for s, length in enumerate(LENGTH):
            start, end = end, end + length
            carried, next_value = 0.0, after[s, i]
            for t in reversed(range(start, end)):
                reward = strength * (float(segments.reward[t]) + float(segments.group_reward[t]))
                carried = reward + gamma * next_value - values[t, i] + gamma * 0.8 * carried
                advantages[t, i], next_value = carried, values[t, i]
    returns = advantages + values
    mean = advantages.mean(1)
    return (mean - mean.mean()) / mean.std(), returns


def test_the_losses_are_those_of_the_paper(two_streams: list[ExtrinsicReward]) -> None:
    segments = experience(np.random.default_rng(0))
    ppo = PPO(SPEC, settings(epsilon=0.2), device=torch.device("cpu"), seed=1)
    w = weights(ppo.network)

    plotted = ppo.update(segments, ppo.score(segments), step=0)

    advantages, returns = advantages_and_returns(w, segments, [0.9, 0.5], [1.0, 2.0])
    log_probs, _ = log_probs_and_entropy(w, segments)
    ratio = np.exp(log_probs - segments.log_probs)
    gain = np.minimum(ratio * advantages[:, None], np.clip(ratio, 0.8, 1.2) * advantages[:, None])
    assert (np.abs(ratio - 1) > 0.2).any(), "some must be clipped"
    values = values_of(w, [o.astype(float) for o in segments.obs])
    assert plotted["Losses/Policy Loss"] == pytest.approx(abs(gain.mean()), rel=1e-4)
    assert plotted["Losses/Value Loss"] == pytest.approx(((values - returns) ** 2).mean(), rel=1e-4)
    assert plotted["Policy/Extrinsic Value Estimate"] == pytest.approx(
        values[:, 1].mean(), rel=1e-4
    )


def test_a_step_goes_down_the_whole_loss(two_streams: list[ExtrinsicReward]) -> None:
    # The first step of Adam is the learning rate times the sign of the gradient; the gradient is
    # found by differences of the loss in float64.
    segments = experience(np.random.default_rng(0))
    ppo = PPO(
        SPEC,
        settings(learning_rate=1e-4, learning_rate_schedule="constant", beta=0.3),
        device=torch.device("cpu"),
        seed=1,
    )
    before = weights(ppo.network)
    advantages, returns = advantages_and_returns(before, segments, [0.9, 0.5], [1.0, 2.0])

    def loss(w: dict[str, Array]) -> float:
        log_probs, entropy = log_probs_and_entropy(w, segments)
        ratio = np.exp(log_probs - segments.log_probs)
        gain = np.minimum(
            ratio * advantages[:, None], np.clip(ratio, 0.8, 1.2) * advantages[:, None]
        )
        errors = (values_of(w, [o.astype(float) for o in segments.obs]) - returns) ** 2
        return float(-gain.mean() + 0.5 * errors.mean() - 0.3 * np.mean(entropy))

    ppo.update(segments, ppo.score(segments), step=0)

    after = weights(ppo.network)
    checked = 0
    for name, values in before.items():
        for index in np.ndindex(values.shape):
            shifted = {key: value.copy() for key, value in before.items()}
            shifted[name][index] += 1e-6
            gradient = (loss(shifted) - loss(before)) / 1e-6
            if abs(gradient) > 1e-4:
                step = after[name][index] - values[index]
                assert step == pytest.approx(-1e-4 * np.sign(gradient), rel=0.02), (name, index)
                checked += 1
    assert checked > 60


def test_every_row_is_learned_from_once_per_pass() -> None:
    segments = experience(np.random.default_rng(0))
    ppo = PPO(SPEC, settings(batch_size=3), device=torch.device("cpu"), seed=1)
    batch, _ = ppo._prepare(segments, ppo.score(segments))

    parts = [part for part, _ in ppo._minibatches(batch, segments.length)]

    # Eight rows in batches of three: two are left over, and no row is dealt twice.
    rows = np.concatenate([part.obs[0].numpy() for part in parts])
    assert rows.shape == (6, 3)
    assert len(np.unique(rows, axis=0)) == 6
    for part in parts:
        for row, action in zip(part.obs[0].numpy(), part.continuous.numpy(), strict=True):
            (source,) = np.flatnonzero((segments.obs[0] == row).all(1))
            np.testing.assert_array_equal(action, segments.continuous[source])


def test_normalization_changes_only_after_the_update_that_it_was_acted_with() -> None:
    segments = experience(np.random.default_rng(0))
    normalizing = settings().model_copy(
        update={
            "network_settings": settings().network_settings.model_copy(update={"normalize": True})
        }
    )
    ppo = PPO(SPEC, normalizing, device=torch.device("cpu"), seed=1)
    plain = PPO(SPEC, settings(), device=torch.device("cpu"), seed=1)

    # Fresh statistics are mean 0 and deviation 1, so the first update is that of plain networks.
    first = ppo.update(segments, ppo.score(segments), step=0)
    assert first == pytest.approx(plain.update(segments, plain.score(segments), step=0), rel=1e-5)
    (normalizer, _) = (
        encoder.normalizer for encoder in ppo.network.actor.body.observations.encoders
    )
    assert normalizer is not None
    assert int(normalizer.count) == 1 + N
