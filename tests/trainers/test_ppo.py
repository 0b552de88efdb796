"""One update of PPO, computed again in float64 NumPy from the equations."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from mlagents.trainers.algorithms import base as base_module
from mlagents.trainers.algorithms.ppo import PPO
from mlagents.trainers.algorithms.reward_signals import ExtrinsicReward
from mlagents.trainers.data.segments import Segments, cut_into
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec
from steps import weights

SPEC = BehaviorSpec(
    [ObservationSpec.vector(3, "a"), ObservationSpec.vector(2, "b")],
    ActionSpec.create_hybrid(2, (3, 2)),
)
CPU = torch.device("cpu")
LENGTH = [4, 1, 3]
N = sum(LENGTH)
SIGNALS = {"extrinsic": {}}


def settings(**hyperparameters: Any) -> BehaviorSettings:
    return BehaviorSettings.model_validate(
        {
            "trainer_type": "ppo",
            "hyperparameters": {"batch_size": N, "buffer_size": N, "num_epoch": 1, "lambd": 0.8}
            | hyperparameters,
            "network_settings": {"hidden_units": 4, "num_layers": 1},
            "reward_signals": SIGNALS,
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
        memory=np.zeros((3, 0), "f4"),
        reward=rng.normal(size=N).astype("f4"),
        group_reward=rng.normal(size=N).astype("f4"),
        length=np.array(LENGTH),
        last_obs=[rng.normal(size=(3, 3)).astype("f4"), rng.normal(size=(3, 2)).astype("f4")],
        last_memory=np.zeros((3, 0), "f4"),
        terminated=np.array([True, False, False]),
        interrupted=np.array([False, True, False]),
        episode=np.arange(3),
    )


@pytest.fixture
def two_streams(monkeypatch: pytest.MonkeyPatch) -> list[ExtrinsicReward]:
    streams = [ExtrinsicReward(gamma=0.9, strength=1.0), ExtrinsicReward(gamma=0.5, strength=2.0)]
    monkeypatch.setitem(SIGNALS, "rnd", {})
    monkeypatch.setattr(base_module, "make_reward_signals", lambda *_settings, **_options: streams)
    return streams


Array = NDArray[np.float64]


def swish_layer(w: dict[str, Array], prefix: str, obs: list[Array]) -> Array:
    x = np.concatenate(obs, 1) @ w[f"{prefix}.dense.0.weight"].T + w[f"{prefix}.dense.0.bias"]
    return x / (1 + np.exp(-x))


def values_of(w: dict[str, Array], obs: list[Array]) -> Array:
    encoding = swish_layer(w, "critic.body", obs)
    return encoding @ w["critic.values.weight"].T + w["critic.values.bias"]


def log_probs_and_entropies(
    w: dict[str, Array], segments: Segments, encoding: Array | None = None
) -> tuple[Array, Array]:
    """(N, 4) of every component: two continuous actions, two branches."""
    if encoding is None:
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
    entropies = np.column_stack(
        [
            np.tile(0.5 * np.log(2 * np.pi * np.e * std**2), (N, 1)),
            *(-(p * np.log(p)).sum(1) for p in (first, second)),
        ]
    )
    return np.log(np.column_stack([gaussian, *chosen])), entropies


def advantages_and_returns(
    w: dict[str, Array],
    segments: Segments,
    gammas: list[float],
    strengths: list[float],
    *,
    each: bool = False,
) -> tuple[Array, Array]:
    values = values_of(w, [o.astype(float) for o in segments.obs])
    after = values_of(w, [o.astype(float) for o in segments.last_obs])
    after[0] = 0.0  # only the first segment was ended by its task
    return estimates(segments, values, after, gammas, strengths, each=each)


def estimates(
    segments: Segments,
    values: Array,
    after: Array,
    gammas: list[float],
    strengths: list[float],
    *,
    each: bool = False,
) -> tuple[Array, Array]:
    """Advantages and returns, given the values (N, signals) and (3, signals)."""
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
    if each:
        advantages = (advantages - advantages.mean(0)) / advantages.std(0) * strengths
    mean = advantages.mean(1)
    return (mean - mean.mean()) / mean.std(), returns


def test_the_losses_are_those_of_the_paper(two_streams: list[ExtrinsicReward]) -> None:
    segments = experience(np.random.default_rng(0))
    ppo = PPO(SPEC, settings(epsilon=0.2), device=CPU, seed=1)
    w = weights(ppo.network)

    plotted = ppo.update(segments, ppo.score(segments), step=0)

    advantages, returns = advantages_and_returns(w, segments, [0.9, 0.5], [1.0, 2.0])
    log_probs, _ = log_probs_and_entropies(w, segments)
    ratio = np.exp(log_probs - segments.log_probs)
    gain = np.minimum(ratio * advantages[:, None], np.clip(ratio, 0.8, 1.2) * advantages[:, None])
    assert (np.abs(ratio - 1) > 0.2).any(), "some must be clipped"
    values = values_of(w, [o.astype(float) for o in segments.obs])
    assert plotted["Losses/Policy Loss"] == pytest.approx(abs(gain.mean()), rel=1e-4)
    assert plotted["Losses/Value Loss"] == pytest.approx(((values - returns) ** 2).mean(), rel=1e-4)
    assert plotted["Policy/Extrinsic Value Estimate"] == pytest.approx(
        values[:, 1].mean(), rel=1e-4
    )


@pytest.mark.parametrize("joint", [False, True])
def test_a_step_goes_down_the_whole_loss(joint: bool, two_streams: list[ExtrinsicReward]) -> None:
    # The first step of Adam is the learning rate times the sign of the gradient; the gradient is
    # found by differences of the loss in float64.
    segments = experience(np.random.default_rng(0))
    ppo = PPO(
        SPEC,
        settings(
            learning_rate=1e-4,
            learning_rate_schedule="constant",
            beta=0.3,
            joint_ratio=joint,
            joint_entropy=joint,
            normalize_each_signal=joint,
        ),
        device=CPU,
        seed=1,
    )
    before = weights(ppo.network)
    advantages, returns = advantages_and_returns(
        before, segments, [0.9, 0.5], [1.0, 2.0], each=joint
    )

    def loss(w: dict[str, Array]) -> float:
        log_probs, entropies = log_probs_and_entropies(w, segments)
        ratio = np.exp(log_probs - segments.log_probs)
        entropy = entropies[:, :2].mean(1) + entropies[:, 2:].sum(1)
        if joint:
            ratio, entropy = ratio.prod(1, keepdims=True), entropies.sum(1)
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
    ppo = PPO(SPEC, settings(batch_size=3), device=CPU, seed=1)
    batch, _ = ppo._prepare(segments, ppo.score(segments))

    parts = [batch.take(rows) for rows, _ in ppo.dealt(segments)]

    # Eight rows in batches of three: two are left over, and no row is dealt twice.
    rows = np.concatenate([part.obs[0].numpy() for part in parts])
    assert rows.shape == (6, 3)
    assert len(np.unique(rows, axis=0)) == 6
    for part in parts:
        for row, action in zip(part.obs[0].numpy(), part.continuous.numpy(), strict=True):
            (source,) = np.flatnonzero((segments.obs[0] == row).all(1))
            np.testing.assert_array_equal(action, segments.continuous[source])


def test_values_are_held_where_they_were_if_they_are_clipped() -> None:
    # Returns are a hundred and more away. Momentum carries values a little beyond 0.2.
    segments = replace(experience(np.random.default_rng(0)), reward=np.full(N, 100, np.float32))
    moved = []
    for clip_values in (False, True):
        ppo = PPO(
            SPEC,
            settings(clip_values=clip_values, num_epoch=100, learning_rate=3e-3),
            device=CPU,
            seed=1,
        )
        before = values_of(weights(ppo.network), [o.astype(float) for o in segments.obs])
        ppo.update(segments, ppo.score(segments), step=0)
        after = values_of(weights(ppo.network), [o.astype(float) for o in segments.obs])
        moved.append(np.abs(after - before).max())
    assert moved[0] > 4.0
    assert moved[1] < 1.0


def test_linear_schedules_end_at_their_floors() -> None:
    segments = experience(np.random.default_rng(0))
    written = settings(epsilon_floor=0.05, beta_floor=0.0)
    ppo = PPO(SPEC, written, device=CPU, seed=1)
    halfway, end = (
        ppo.update(segments, ppo.score(segments), step=step)
        for step in (written.max_steps // 2, written.max_steps)
    )
    # From 0.2 and 0.005.
    assert (halfway["Policy/Epsilon"], end["Policy/Epsilon"]) == pytest.approx((0.125, 0.05))
    assert (halfway["Policy/Beta"], end["Policy/Beta"]) == pytest.approx((0.0025, 0.0))


@pytest.mark.parametrize("zero", ["learning_rate", "epsilon"])
def test_a_zero_learning_rate_keeps_the_weights_and_a_zero_epsilon_is_finite(zero: str) -> None:
    segments = experience(np.random.default_rng(0))
    ppo = PPO(SPEC, settings(num_epoch=3, **{zero: 0}), device=CPU, seed=1)
    before = weights(ppo.network)
    plots = ppo.update(segments, ppo.score(segments), step=0)
    assert np.isfinite(list(plots.values())).all()
    moved = max(np.abs(after - before[name]).max() for name, after in weights(ppo.network).items())
    assert np.isfinite(moved) and (moved == 0) == (zero == "learning_rate")


def test_normalization_changes_only_after_the_update_that_it_was_acted_with() -> None:
    segments = experience(np.random.default_rng(0))
    normalizing = settings().model_copy(
        update={
            "network_settings": settings().network_settings.model_copy(update={"normalize": True})
        }
    )
    ppo = PPO(SPEC, normalizing, device=CPU, seed=1)
    plain = PPO(SPEC, settings(), device=CPU, seed=1)

    # Fresh statistics are mean 0 and deviation 1, so the first update is that of plain networks.
    first = ppo.update(segments, ppo.score(segments), step=0)
    assert first == pytest.approx(plain.update(segments, plain.score(segments), step=0), rel=1e-5)
    (normalizer, _) = (
        encoder.normalizer for encoder in ppo.network.actor.body.observations.encoders
    )
    assert normalizer is not None
    assert int(normalizer.count) == 1 + N


# ---------------------------------------------------------------------------------------- gradients


def gradient_norm(ppo: PPO) -> float:
    gradients = [p.grad.flatten() for p in ppo.network.parameters() if p.grad is not None]
    return float(torch.cat(gradients).norm())


def test_gradients_are_cut_to_the_length_that_is_asked_for() -> None:
    segments = experience(np.random.default_rng(0))
    norms = []
    for limit in (None, 1e-2, 1e9):
        ppo = PPO(SPEC, settings(max_grad_norm=limit), device=CPU, seed=1)
        ppo.update(segments, ppo.score(segments), step=0)
        norms.append(gradient_norm(ppo))
    free, cut, never_reached = norms
    assert free == never_reached > 0.1
    assert cut == pytest.approx(1e-2, rel=1e-3)


# ---------------------------------------------------------------------------------------- memory


def recurrent(longest: int, **hyperparameters: Any) -> BehaviorSettings:
    written = settings(**hyperparameters).model_dump()
    written["network_settings"] |= {"memory": {"sequence_length": longest, "memory_size": 4}}
    return BehaviorSettings.model_validate(written)


def remembering(segments: Segments, longest: int) -> Segments:
    """Let agents have remembered: for either network, two numbers of hidden and of cell state."""
    rng = np.random.default_rng(5)
    return replace(
        segments,
        memory=rng.uniform(-1, 1, (len(cut_into(longest, segments.length)), 8)).astype("f4"),
        last_memory=rng.uniform(-1, 1, (3, 8)).astype("f4"),
    )


def lstm_step(w: dict[str, Array], prefix: str, x: Array, memory: Array) -> tuple[Array, Array]:
    def sigmoid(z: Array) -> Array:
        return 1 / (1 + np.exp(-z))

    hidden, cell = np.split(memory, 2)
    lstm = {name.rpartition(".")[2]: v for name, v in w.items() if name.startswith(f"{prefix}.mem")}
    z = lstm["weight_ih_l0"] @ x + lstm["bias_ih_l0"]
    i, f, g, o = np.split(z + lstm["weight_hh_l0"] @ hidden + lstm["bias_hh_l0"], 4)
    cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
    hidden = sigmoid(o) * np.tanh(cell)
    return hidden, np.concatenate([hidden, cell])


@pytest.mark.parametrize("longest", [1, 2, 4, 8])
def test_the_losses_with_memory_are_those_of_steps_taken_one_by_one(
    longest: int, two_streams: list[ExtrinsicReward]
) -> None:
    # Segments of 4, 1 and 3 steps: sequences of 2 leave a last one of 1, of 8 more room than steps.
    segments = remembering(experience(np.random.default_rng(0)), longest)
    ppo = PPO(SPEC, recurrent(longest, batch_size=8 * longest, buffer_size=64), device=CPU, seed=1)
    w = weights(ppo.network)

    plotted = ppo.update(segments, ppo.score(segments), step=0)

    def encoding(prefix: str, obs: list[Array], memory: Array) -> tuple[Array, Array]:
        x = swish_layer(w, prefix, [o.astype(float)[None] for o in obs])[0]
        return lstm_step(w, prefix, x, memory)

    def value(obs: list[Array], memory: Array) -> Array:
        hidden, _ = encoding("critic.body", obs, memory)
        return w["critic.values.weight"] @ hidden + w["critic.values.bias"]

    after = np.array(
        [
            value([o[s] for o in segments.last_obs], segments.last_memory[s, 4:].astype(float))
            for s in range(3)
        ]
    )
    after[0] = 0.0

    encodings, values = np.zeros((N, 2)), np.zeros((N, 2))
    end = 0
    memory = iter(segments.memory.astype(float))
    for length in LENGTH:
        start, end = end, end + length
        for t in range(start, end):
            if (t - start) % longest == 0:
                of_actor, of_critic = np.split(next(memory), 2)
            obs = [o[t] for o in segments.obs]
            encodings[t], of_actor = encoding("actor.body", obs, of_actor)
            hidden, of_critic = encoding("critic.body", obs, of_critic)
            values[t] = w["critic.values.weight"] @ hidden + w["critic.values.bias"]
    # The values before the update come from the same weights.
    advantages, returns = estimates(segments, values, after, [0.9, 0.5], [1.0, 2.0])
    log_probs, _ = log_probs_and_entropies(w, segments, encodings)
    ratio = np.exp(log_probs - segments.log_probs)
    gain = np.minimum(ratio * advantages[:, None], np.clip(ratio, 0.8, 1.2) * advantages[:, None])
    assert plotted["Losses/Policy Loss"] == pytest.approx(abs(gain.mean()), rel=1e-4)
    assert plotted["Losses/Value Loss"] == pytest.approx(((values - returns) ** 2).mean(), rel=1e-4)


def test_losses_of_either_sign_do_not_cancel_in_what_is_plotted() -> None:
    segments = experience(np.random.default_rng(0))
    ppo = PPO(SPEC, settings(num_epoch=2), device=CPU, seed=1)
    losses, policy_losses = ppo.losses, iter((0.3, -0.1))

    def shifted(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        policy_loss, value_loss, entropy = losses(*arguments)
        return policy_loss - policy_loss.detach() + next(policy_losses), value_loss, entropy

    ppo.losses = shifted
    plotted = ppo.update(segments, ppo.score(segments), step=0)

    assert plotted["Losses/Policy Loss"] == pytest.approx(0.2)


def test_room_that_is_left_in_sequences_changes_nothing() -> None:
    segments = remembering(experience(np.random.default_rng(0)), 4)
    after = []
    for longest in (4, 8, 30):
        ppo = PPO(
            SPEC, recurrent(longest, batch_size=longest * 3, buffer_size=99), device=CPU, seed=1
        )
        ppo.update(segments, ppo.score(segments), step=0)
        after.append(weights(ppo.network))
    for other in after[1:]:
        for name, value in after[0].items():
            np.testing.assert_allclose(other[name], value, rtol=0, atol=1e-6)
