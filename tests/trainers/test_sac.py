"""One gradient step of SAC, computed again in float64 NumPy from the equations."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from mlagents.trainers.algorithms import base as base_module
from mlagents.trainers.algorithms.reward_signals import ExtrinsicReward
from mlagents.trainers.algorithms.sac import SAC, Minibatch, expected_q, q_of_choices
from mlagents.trainers.data.replay import Replay
from mlagents.trainers.data.segments import Segments, cut_into
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec

ACTIONS = {
    "continuous": ActionSpec.create_continuous(2),
    "discrete": ActionSpec.create_discrete((3, 2)),
    "hybrid": ActionSpec.create_hybrid(2, (3, 2)),
}
every_action = pytest.mark.parametrize("actions", ACTIONS.values(), ids=ACTIONS.keys())
CPU = torch.device("cpu")
LENGTH = [4, 1, 3]
N = sum(LENGTH)
GAMMA, STRENGTH = np.array([0.9, 0.5]), np.array([1.0, 2.0])

Array = NDArray[np.float64]


def behavior(actions: ActionSpec) -> BehaviorSpec:
    return BehaviorSpec([ObservationSpec.vector(3, "a"), ObservationSpec.vector(2, "b")], actions)


SIGNALS = {"extrinsic": {}}


def settings(**hyperparameters: Any) -> BehaviorSettings:
    return BehaviorSettings.model_validate(
        {
            "trainer_type": "sac",
            "hyperparameters": {"batch_size": 16, "buffer_size": 64, "init_entcoef": 0.3}
            | hyperparameters,
            "network_settings": {"hidden_units": 4, "num_layers": 1},
            "reward_signals": SIGNALS,
        }
    )


def recurrent(longest: int, **hyperparameters: Any) -> BehaviorSettings:
    written = settings(**hyperparameters).model_dump()
    written["network_settings"] |= {"memory": {"sequence_length": longest, "memory_size": 4}}
    return BehaviorSettings.model_validate(written)


def experience(actions: ActionSpec, *, longest: int = 1, memory_size: int = 0) -> Segments:
    """Three segments: ended by the task, interrupted by a clock, cut."""
    rng = np.random.default_rng(0)
    n_branches = actions.discrete_size
    n_sequences = len(cut_into(longest, np.array(LENGTH)))
    return Segments(
        obs=[rng.normal(size=(N, 3)).astype("f4"), rng.normal(size=(N, 2)).astype("f4")],
        continuous=np.tanh(rng.normal(size=(N, actions.continuous_size))).astype("f4"),
        discrete=rng.integers(0, 2, (N, n_branches)).astype(np.int32),
        log_probs=np.zeros((N, actions.continuous_size + n_branches), "f4"),
        action_mask=np.tile([False, False, True, False, False], (N, 1))[
            :, : 5 if n_branches else 0
        ],
        memory=rng.uniform(-1, 1, (n_sequences, memory_size)).astype("f4"),
        reward=rng.normal(size=N).astype("f4"),
        group_reward=rng.normal(size=N).astype("f4"),
        length=np.array(LENGTH),
        last_obs=[rng.normal(size=(3, 3)).astype("f4"), rng.normal(size=(3, 2)).astype("f4")],
        last_memory=np.zeros((3, memory_size), "f4"),
        terminated=np.array([True, False, False]),
        interrupted=np.array([False, True, False]),
        episode=np.arange(3),
    )


def replay_of(segments: Segments, actions: ActionSpec, *, longest: int = 1) -> Replay:
    replay = Replay(
        behavior(actions), capacity=64, longest=longest, memory_size=segments.memory.shape[1]
    )
    replay.add(segments)
    return replay


def make_sac(actions: ActionSpec, settings: BehaviorSettings) -> SAC:
    """Make one whose weights all count: none is zero, and no two networks are equal."""
    sac = SAC(behavior(actions), settings, device=CPU, seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for network in (sac.actor, sac.q, sac.value, sac.target_value, sac.coefficients):
            for parameter in network.parameters():
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return sac


def next_minibatch(sac: SAC, replay: Replay) -> Minibatch:
    """Look at what the next gradient step will learn from."""
    state = sac.generator.get_state()
    (batch,) = sac._minibatches(replay, 1)
    sac.generator.set_state(state)
    return batch


@pytest.fixture
def two_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = [
        ExtrinsicReward(gamma=gamma, strength=strength)
        for gamma, strength in zip(GAMMA, STRENGTH, strict=True)
    ]
    monkeypatch.setitem(SIGNALS, "rnd", {})
    monkeypatch.setattr(base_module, "make_reward_signals", lambda *_settings, **_options: streams)


# -------------------------------------------------------------------------- the equations once more

Weights = dict[str, dict[str, Array]]


def weights(sac: SAC) -> Weights:
    networks = {
        "actor": sac.actor,
        "q": sac.q,
        "value": sac.value,
        "target": sac.target_value,
        "alpha": sac.coefficients,
    }
    return {
        kind: {n: p.detach().double().numpy().copy() for n, p in network.named_parameters()}
        for kind, network in networks.items()
    }


def swish(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def linear(w: dict[str, Array], layer: str, x: Array) -> Array:
    return x @ w[f"{layer}.weight"].T + w[f"{layer}.bias"]


def rows(obs: list[torch.Tensor]) -> Array:
    return np.concatenate([o.double().numpy() for o in obs], axis=1)


class Acting:
    """What a policy does in the states of a minibatch, its chances and its entropies."""

    def __init__(
        self, w: dict[str, Array], batch: Minibatch, encoding: Array | None = None
    ) -> None:
        x = swish(linear(w, "body.dense.0", rows(batch.obs))) if encoding is None else encoding
        self.actions = np.zeros((len(x), 0))
        self.chances: list[Array] = []
        entropies = []
        if "heads.mean.weight" in w:
            noise = batch.noise.double().numpy()
            std = np.exp(np.clip(linear(w, "heads.log_std", x), -20, 2))
            before = linear(w, "heads.mean", x) + std * noise
            density = np.exp(-0.5 * noise**2) / (std * np.sqrt(2 * np.pi))
            self.actions = np.tanh(before)
            entropies.append(-np.log(density / (1 - self.actions**2)).sum(1))
        if "heads.logits.weight" in w:
            chances = np.exp(linear(w, "heads.logits", x)) * ~batch.action_mask.numpy()
            for branch in (chances[:, :3], chances[:, 3:]):
                p = branch / branch.sum(1, keepdims=True)
                self.chances.append(p)
                entropies.append(-(p * np.log(np.where(p > 0, p, 1))).sum(1))
        self.entropy = np.stack(entropies, 1)  # (B, parts)


def q_values(w: dict[str, Array], i: int, x: Array, actions: Array) -> Array:
    """(B, signals, outputs) of the i-th Q network."""
    seen = np.concatenate([x, actions], axis=1)
    hidden = swish(seen @ w["dense.0.weight"][i] + w["dense.0.bias"][i])
    return q_head(w, i, hidden)


def q_head(w: dict[str, Array], i: int, hidden: Array) -> Array:
    return (hidden @ w["heads.weight"][i] + w["heads.bias"][i]).reshape(len(hidden), 2, -1)


def taken(q: Array, discrete: Array) -> Array:
    if not discrete.shape[1]:
        return q[:, :, 0]
    row = np.arange(len(q))
    return 0.5 * (q[row, :, discrete[:, 0]] + q[row, :, 3 + discrete[:, 1]])


def expected(q: Array, chances: list[Array]) -> Array:
    if not chances:
        return q[:, :, 0]
    first, second = (
        (part * p[:, None]).sum(2)
        for part, p in zip((q[:, :, :3], q[:, :, 3:]), chances, strict=True)
    )
    return 0.5 * (first + second)


def values(w: dict[str, Array], x: Array) -> Array:
    return linear(w, "values", swish(linear(w, "body.dense.0", x)))


def shares(actions: ActionSpec) -> Array:
    """How much the entropy of each part counts: continuous once, branches in the mean."""
    of_branches = [1 / actions.discrete_size for _ in actions.discrete_branches]
    return np.array([1.0] * bool(actions.continuous_size) + of_branches)


def wanted_entropy(actions: ActionSpec) -> Array:
    of_branches = [0.2 * np.log(size) for size in actions.discrete_branches]
    return np.array([-float(actions.continuous_size)] * bool(actions.continuous_size) + of_branches)


def losses(w: Weights, fixed: Weights, batch: Minibatch, actions: ActionSpec) -> dict[str, Any]:
    """Every loss by the weights it teaches; what it only looks at is `fixed`."""
    x, after = rows(batch.obs), rows(batch.next_obs)
    alpha = np.exp(fixed["alpha"]["log_alpha"]) * shares(actions)
    reward = batch.reward.double().numpy()[:, None] * STRENGTH
    goes_on = ~batch.terminated.numpy()[:, None]
    q_target = reward + GAMMA * goes_on * values(fixed["target"], after)

    before = Acting(fixed["actor"], batch)
    q_before = [
        expected(q_values(fixed["q"], i, x, before.actions), before.chances) for i in range(2)
    ]
    bonus = (alpha * before.entropy).sum(1)
    value_target = np.minimum(*q_before) + bonus[:, None]

    now = Acting(w["actor"], batch)
    q_now = expected(q_values(fixed["q"], 0, x, now.actions), now.chances)
    policy = -(q_now.mean(1) + (alpha * now.entropy).sum(1)).mean()
    continuous, discrete = batch.continuous.double().numpy(), batch.discrete.numpy()
    q_losses = [
        0.5 * ((taken(q_values(w["q"], i, x, continuous), discrete) - q_target) ** 2).mean()
        for i in range(2)
    ]
    value = 0.5 * ((values(w["value"], x) - value_target) ** 2).mean()
    surplus = (before.entropy - wanted_entropy(actions)).mean(0)
    entropy = (w["alpha"]["log_alpha"] * shares(actions) * surplus).sum()
    return {
        "Losses/Policy Loss": policy,
        "Losses/Value Loss": value,
        "Losses/Q1 Loss": q_losses[0],
        "Losses/Q2 Loss": q_losses[1],
        "entropy": entropy,
    }


@every_action
def test_the_losses_are_those_of_the_equations(two_streams: None, actions: ActionSpec) -> None:
    sac = make_sac(actions, settings())
    replay = replay_of(experience(actions), actions)
    w, batch = weights(sac), next_minibatch(sac, replay)
    assert batch.terminated.any() and not batch.terminated.all()

    plotted = sac.update(replay, n_updates=1, step=0)

    expected_losses = losses(w, w, batch, actions)
    expected_losses.pop("entropy")
    for tag, loss in expected_losses.items():
        assert plotted[tag] == pytest.approx(loss, rel=1e-4, abs=1e-5), tag
    assert plotted["Policy/Extrinsic Value"] == pytest.approx(
        values(w["value"], rows(batch.obs)).mean(0)[1], rel=1e-4
    )


@every_action
def test_a_step_goes_down_every_loss_by_the_weights_that_it_teaches(
    two_streams: None, actions: ActionSpec
) -> None:
    # The first step of Adam is the learning rate times the sign of the gradient; the gradient is
    # found by differences of the losses in float64.
    sac = make_sac(actions, settings(learning_rate=1e-4))
    replay = replay_of(experience(actions), actions)
    before, batch = weights(sac), next_minibatch(sac, replay)

    sac.update(replay, n_updates=1, step=0)

    after, checked = weights(sac), 0
    at_first = sum(losses(before, before, batch, actions).values())
    for kind, network in before.items():
        if kind == "target":
            continue
        for name, value in network.items():
            for index in np.ndindex(value.shape):
                shifted = copy.deepcopy(before)
                shifted[kind][name][index] += 1e-6
                loss = sum(losses(shifted, before, batch, actions).values())
                gradient = (loss - at_first) / 1e-6
                step = after[kind][name][index] - value[index]
                if abs(gradient) > 1e-3:
                    assert step == pytest.approx(-1e-4 * np.sign(gradient), rel=0.02), (kind, name)
                    checked += 1
    assert checked > 100


def test_the_target_network_follows_by_tau() -> None:
    sac = make_sac(ACTIONS["continuous"], settings(tau=0.25))
    replay = replay_of(experience(ACTIONS["continuous"]), ACTIONS["continuous"])
    before = weights(sac)["target"]
    sac.update(replay, n_updates=1, step=0)
    after = weights(sac)
    for name, value in before.items():
        np.testing.assert_allclose(
            after["target"][name], 0.75 * value + 0.25 * after["value"][name], atol=1e-6
        )


# ------------------------------------------------------------------------------------------ by hand


def test_q_of_branches_by_hand() -> None:
    # One row, one signal; branches of 2 and 3 choices.
    q = torch.tensor([1.0, 2.0, 10.0, 20.0, 30.0]).expand(2, 1, 1, 5)
    # Second choice of the first branch, third of the other: outputs 1 and 2 + 2.
    assert q_of_choices(q, torch.tensor([[1, 4]])).tolist() == [[[16.0]], [[16.0]]]
    # (0.5 * 1 + 0.5 * 2 + 0.1 * 10 + 0.9 * 30) / 2 = (1.5 + 28) / 2
    chances = [torch.tensor([[0.5, 0.5]]), torch.tensor([[0.1, 0.0, 0.9]])]
    assert expected_q(q[0], chances).tolist() == [pytest.approx([14.75])]


def test_only_an_end_that_the_task_chose_is_worth_nothing_more(two_streams: None) -> None:
    actions = ACTIONS["continuous"]
    segments = experience(actions)
    cut = replace(segments, terminated=np.zeros(3, bool), interrupted=np.zeros(3, bool))
    interrupted = replace(cut, interrupted=np.ones(3, bool))
    terminated = replace(cut, terminated=np.ones(3, bool))
    plotted = [
        make_sac(actions, settings()).update(replay_of(each, actions), n_updates=1, step=0)
        for each in (cut, interrupted, terminated)
    ]
    assert plotted[0] == plotted[1], "a clock changes nothing about what would have followed"
    assert plotted[0]["Losses/Q1 Loss"] != plotted[2]["Losses/Q1 Loss"]


def test_the_last_step_of_an_interrupted_episode_bootstraps_from_what_followed_it() -> None:
    actions = ACTIONS["continuous"]
    segments = experience(actions)
    replayed = replay_of(segments, actions).take(np.array([4]))  # the only step of the second
    for found, wanted in zip(replayed.next_obs, segments.last_obs, strict=True):
        np.testing.assert_array_equal(found, wanted[1:2])
    assert not replayed.terminated.any()


@pytest.mark.parametrize("direction", [-1, 1])
def test_entropy_is_worth_more_while_there_is_too_little(direction: int) -> None:
    actions = ACTIONS["hybrid"]
    sac = SAC(behavior(actions), settings(), device=CPU, seed=1)
    sac.coefficients.target += 100.0 * direction
    before = sac.coefficients.log_alpha.detach().clone()
    sac.update(replay_of(experience(actions), actions), n_updates=1, step=0)
    assert (torch.sign(sac.coefficients.log_alpha.detach() - before) == direction).all()


def test_a_mask_hides_what_q_says_of_forbidden_actions() -> None:
    actions = ACTIONS["discrete"]
    plotted = []
    for shift in (0.0, 1000.0):
        sac = make_sac(actions, settings())
        with torch.no_grad():
            sac.q.heads.bias[:, :, 2] += shift  # the third choice, which the mask forbids
        plotted.append(sac.update(replay_of(experience(actions), actions), n_updates=1, step=0))
    assert plotted[0] == pytest.approx(plotted[1], rel=1e-5)


# ---------------------------------------------------------------------------------------- gradients


def test_gradients_are_cut_to_the_length_that_is_asked_for() -> None:
    actions = ACTIONS["hybrid"]
    norms = []
    for limit in (None, 1e-2, 1e9):
        sac = make_sac(actions, settings(max_grad_norm=limit))
        sac.update(replay_of(experience(actions), actions), n_updates=1, step=0)
        networks = [sac.actor.parameters(), [*sac.q.parameters(), *sac.value.parameters()]]
        norms.append(
            [float(torch.cat([p.grad.flatten() for p in network]).norm()) for network in networks]
        )
    free, cut, never_reached = norms
    assert free == never_reached
    assert min(free) > 0.1
    assert cut == pytest.approx([1e-2, 1e-2], rel=1e-3)


def test_the_learning_rate_follows_its_schedule() -> None:
    actions = ACTIONS["continuous"]
    linear = settings(learning_rate=1e-2, learning_rate_schedule="linear")
    sac = SAC(behavior(actions), linear, device=CPU, seed=1)
    replay = replay_of(experience(actions), actions)
    half = sac.update(replay, n_updates=1, step=linear.max_steps // 2)
    assert half["Policy/Learning Rate"] == pytest.approx(5e-3)
    assert sac.optimizer.param_groups[0]["lr"] == half["Policy/Learning Rate"]


def test_all_networks_see_through_one_normalizer() -> None:
    actions = ACTIONS["continuous"]
    written = settings().model_dump()
    written["network_settings"]["normalize"] = True
    normalizing = make_sac(actions, BehaviorSettings.model_validate(written))
    plain = make_sac(actions, settings())
    segments = experience(actions)
    plain_replay = replay_of(segments, actions)
    shifted = replace(
        segments,
        obs=[3 * o + 5 for o in segments.obs],
        last_obs=[3 * o + 5 for o in segments.last_obs],
    )
    # Statistics that undo the shift: what is learned is what is learned without it.
    for encoder in normalizing.actor.body.observations.encoders:
        encoder.normalizer.shift.fill_(5.0)
        encoder.normalizer.scale.fill_(1 / 3)
    assert normalizing.update(replay_of(shifted, actions), n_updates=3, step=0) == pytest.approx(
        plain.update(plain_replay, n_updates=3, step=0), rel=1e-4, abs=1e-4
    )


# ------------------------------------------------------------------------------------------- memory


def lstm_step(w: dict[str, Array], prefix: str, x: Array, memory: Array) -> tuple[Array, Array]:
    def sigmoid(z: Array) -> Array:
        return 1 / (1 + np.exp(-z))

    hidden, cell = np.split(memory, 2)
    lstm = {name.rpartition(".")[2]: v for name, v in w.items() if name.startswith(prefix)}
    z = lstm["weight_ih_l0"] @ x + lstm["bias_ih_l0"]
    i, f, g, o = np.split(z + lstm["weight_hh_l0"] @ hidden + lstm["bias_hh_l0"], 4)
    cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
    hidden = sigmoid(o) * np.tanh(cell)
    return hidden, np.concatenate([hidden, cell])


@pytest.mark.parametrize("longest", [2, 4, 8])
def test_the_losses_with_memory_are_those_of_steps_taken_one_by_one(
    longest: int, two_streams: None
) -> None:
    actions = ACTIONS["hybrid"]
    segments = experience(actions, longest=longest, memory_size=4)
    sac = make_sac(actions, recurrent(longest, batch_size=6 * longest))
    replay = replay_of(segments, actions, longest=longest)
    w, batch = weights(sac), next_minibatch(sac, replay)
    assert batch.sequences is not None
    starts = [*batch.first.tolist(), len(batch.reward)]
    assert len(set(np.diff(starts))) > 1, "sequences of several lengths"

    plotted = sac.update(replay, n_updates=1, step=0)

    def unroll(kind: str, prefix: str, inputs: Array) -> Array:
        """Take the steps of every sequence one after the other."""
        outputs = np.zeros((len(inputs), 2))
        for start, end, memory in zip(starts, starts[1:], batch.sequences.memory, strict=False):
            remembered = memory.double().numpy()
            for t in range(start, end):
                outputs[t], remembered = lstm_step(w[kind], prefix, inputs[t], remembered)
        return outputs

    x, after = rows(batch.obs), rows(batch.next_obs)
    continuous, discrete = batch.continuous.double().numpy(), batch.discrete.numpy()

    def q_of(i: int, actions: Array) -> Array:
        seen = np.concatenate([x, actions], axis=1)
        hidden = swish(seen @ w["q"]["dense.0.weight"][i] + w["q"]["dense.0.bias"][i])
        return q_head(w["q"], i, unroll("q", f"memories.{i}", hidden))

    def value_hidden(kind: str, seen: Array) -> Array:
        return swish(linear(w[kind], "body.dense.0", seen))

    # The target network goes through each sequence and one step further.
    next_values = np.zeros((len(x), 2))
    for start, end, memory in zip(starts, starts[1:], batch.sequences.memory, strict=False):
        _, remembered = lstm_step(
            w["target"], "body.memory", value_hidden("target", x[start]), memory.double().numpy()
        )
        for t in range(start, end):
            hidden, remembered = lstm_step(
                w["target"], "body.memory", value_hidden("target", after[t]), remembered
            )
            next_values[t] = linear(w["target"], "values", hidden)

    hidden = swish(linear(w["actor"], "body.dense.0", x))
    acting = Acting(w["actor"], batch, unroll("actor", "body.memory", hidden))
    alpha = np.exp(w["alpha"]["log_alpha"]) * shares(actions)
    bonus = (alpha * acting.entropy).sum(1)
    q_policy = [expected(q_of(i, acting.actions), acting.chances) for i in range(2)]
    found_values = linear(
        w["value"], "values", unroll("value", "body.memory", value_hidden("value", x))
    )
    reward = batch.reward.double().numpy()[:, None] * STRENGTH
    q_target = reward + GAMMA * ~batch.terminated.numpy()[:, None] * next_values
    value_target = np.minimum(*q_policy) + bonus[:, None]
    assert plotted["Losses/Policy Loss"] == pytest.approx(
        -(q_policy[0].mean(1) + bonus).mean(), rel=1e-4
    )
    assert plotted["Losses/Value Loss"] == pytest.approx(
        0.5 * ((found_values - value_target) ** 2).mean(), rel=1e-4
    )
    for i in range(2):
        q_loss = 0.5 * ((taken(q_of(i, continuous), discrete) - q_target) ** 2).mean()
        assert plotted[f"Losses/Q{i + 1} Loss"] == pytest.approx(q_loss, rel=1e-4)


@pytest.mark.parametrize("longest", [2, 3])
@pytest.mark.parametrize("at_once", [1, 3, 8], ids=lambda n: f"{n} at once")
def test_each_of_several_minibatches_has_its_own_sequences(
    longest: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several minibatches are gathered together. Places, first steps and memories of each must be
    # those of its own sequences. The reward says which step a row is.
    monkeypatch.setattr("mlagents.trainers.algorithms.sac.MINIBATCHES_AT_ONCE", at_once)
    actions = ACTIONS["hybrid"]
    segments = replace(
        experience(actions, longest=longest, memory_size=4),
        reward=np.arange(N, dtype="f4"),
        group_reward=np.zeros(N, "f4"),
    )
    cut = {2: [2, 2, 1, 2, 1], 3: [3, 1, 1, 3]}[longest]
    begins = np.cumsum([0, *cut[:-1]]).tolist()
    length_of = dict(zip(begins, cut, strict=True))  # by first step
    n_sequences = 16 // longest
    sac = make_sac(actions, recurrent(longest))
    batches = list(sac._minibatches(replay_of(segments, actions, longest=longest), 20))
    assert len(batches) == 20

    for batch in batches:
        assert batch.sequences is not None
        step = batch.reward.int().numpy()
        first = batch.first.numpy()
        length = [length_of[begun] for begun in step[first].tolist()]
        assert len(first) == n_sequences
        np.testing.assert_array_equal(first, np.cumsum([0, *length[:-1]]))
        places, steps = [], []
        for number, (n_steps, begun) in enumerate(zip(length, step[first], strict=True)):
            places += range(number * longest, number * longest + n_steps)
            steps += range(begun, begun + n_steps)
        np.testing.assert_array_equal(step, steps)
        np.testing.assert_array_equal(batch.sequences.place, places)
        assert batch.sequences.longest == longest
        drawn = [begins.index(begun) for begun in step[first]]
        np.testing.assert_array_equal(batch.sequences.memory, segments.memory[drawn])
        np.testing.assert_array_equal(batch.obs[0], segments.obs[0][step])
        np.testing.assert_array_equal(batch.continuous, segments.continuous[step])
        assert batch.noise.shape == batch.continuous.shape
    assert len({tuple(batch.reward.tolist()) for batch in batches}) > 10, "all minibatches alike"


def test_a_minibatch_has_one_sequence_at_least() -> None:
    actions = ACTIONS["hybrid"]
    replay = replay_of(experience(actions, longest=4, memory_size=4), actions, longest=4)
    sac = make_sac(actions, recurrent(4, batch_size=5))
    for batch in sac._minibatches(replay, 3):
        assert batch.first.tolist() == [0]


def test_single_steps_are_no_sequences_without_memory() -> None:
    actions = ACTIONS["hybrid"]
    sac = make_sac(actions, settings())
    for batch in sac._minibatches(replay_of(experience(actions), actions), 10):
        assert batch.sequences is None
        assert batch.reward.shape == (16,)


def test_q_of_continuous_actions_alone_is_the_only_one() -> None:
    q = torch.arange(12.0).reshape(2, 3, 2, 1)  # two networks, three steps, two signals
    torch.testing.assert_close(q_of_choices(q, torch.zeros(3, 0, dtype=torch.int64)), q[..., 0])
    torch.testing.assert_close(expected_q(q[0], []), q[0, ..., 0])
