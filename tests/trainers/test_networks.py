import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from actors import (
    BEHAVIORS,
    CONTINUOUS,
    DISCRETE,
    HYBRID,
    action_mask,
    behavior,
    make_actor,
    observations,
    outputs,
)
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.networks.actions import ActionHeads, gaussian_entropy, gaussian_log_prob
from mlagents.trainers.networks.actor_critic import Actor, ActorCritic
from mlagents.trainers.networks.body import NetworkBody
from mlagents.trainers.networks.layers import Normalizer, dense_block, linear
from mlagents.trainers.networks.snapshots import snapshot_of
from mlagents.trainers.settings.behavior import NetworkSettings
from mlagents_envs.base_env import (
    ActionSpec,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)
from samples import assert_normal

every_behavior = pytest.mark.parametrize("spec", BEHAVIORS.values(), ids=BEHAVIORS.keys())


def no_memory(n_agents: int) -> NDArray[np.float32]:
    return np.zeros((n_agents, 0), np.float32)


def swish(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


# ------------------------------------------------------------------------------------------- layers


@pytest.mark.parametrize("gain", [1.0, 0.2])
def test_linear_starts_normal_with_gain_over_root_of_inputs_and_no_bias(gain: float) -> None:
    torch.manual_seed(0)
    layer = linear(400, 250, gain=gain)
    assert_normal(layer.weight.detach().numpy() * math.sqrt(400) / gain)
    assert not layer.bias.any()


def test_heads_start_small_so_that_the_first_policy_hardly_prefers_anything() -> None:
    torch.manual_seed(0)
    heads = ActionHeads(100, ActionSpec(500, (600, 400)))
    assert heads.mean is not None
    assert heads.logits is not None
    assert_normal(heads.mean.weight.detach().numpy() * math.sqrt(100) / 0.2)
    assert_normal(heads.logits.weight.detach().numpy() * math.sqrt(100) / 0.1)
    assert not heads.log_std.any()


def test_values_start_xavier_uniform_without_bias() -> None:
    torch.manual_seed(0)
    critic = ActorCritic(
        CONTINUOUS, NetworkSettings(hidden_units=1000), n_signals=50, shared=False
    ).critic
    weight = critic.values.weight.detach()
    # U(-b, b) with b = sqrt(6 / (1000 + 50)); a uniform number made normal by the inverse of its
    # distribution function.
    uniform = (weight.double() / math.sqrt(6 / 1050) + 1) / 2
    assert_normal(torch.special.ndtri(uniform).numpy())
    assert not critic.values.bias.any()


@pytest.mark.parametrize(("num_layers", "built"), [(0, 1), (1, 1), (3, 3)])
def test_a_body_has_at_least_one_layer(num_layers: int, built: int) -> None:
    settings = NetworkSettings(hidden_units=4, num_layers=num_layers)
    body = NetworkBody(behavior(5).observation_specs, settings)
    shapes = [layer.weight.shape for layer in body.dense if isinstance(layer, nn.Linear)]
    assert shapes == [(4, 5), *[(4, 4)] * (built - 1)]


def test_dense_block_by_hand() -> None:
    # One input, width 1: z = 2 * 1 + 1 = 3, swish(3) = 3 / (1 + e^-3) = 2.857722,
    # then z = 0.5 * 2.857722 - 1 = 0.428861, swish = 0.428861 / (1 + e^-0.428861) = 0.259719.
    block = dense_block(1, 1, 2)
    with torch.no_grad():
        for layer, weight, bias in ((block[0], 2.0, 1.0), (block[2], 0.5, -1.0)):
            layer.weight.fill_(weight)
            layer.bias.fill_(bias)
    assert block(torch.ones(1, 1)).item() == pytest.approx(0.259719, abs=1e-6)


# ------------------------------------------------------------------------------------ normalization


def test_a_new_normalizer_only_clamps() -> None:
    normalizer = Normalizer(3)
    torch.testing.assert_close(
        normalizer(torch.tensor([[-7.0, 0.3, 7.0]])), torch.tensor([[-5.0, 0.3, 5.0]])
    )


def test_normalizer_by_hand() -> None:
    # The start counts as one observation of 0 with a squared deviation of 1. With 2 and 4:
    # count 3, mean (0 + 2 + 4) / 3 = 2, squares 1 + (4 + 0 + 4) = 9, variance 9 / 3 = 3.
    normalizer = Normalizer(1)
    normalizer.update(torch.tensor([[2.0], [4.0]]))
    assert normalizer.count == 3
    assert normalizer.mean == 2
    assert normalizer.squares == 9
    # (5 - 2) / sqrt(3) = sqrt(3); far above, the clamp.
    torch.testing.assert_close(
        normalizer(torch.tensor([[5.0], [1000.0]])), torch.tensor([[math.sqrt(3)], [5.0]])
    )


def test_normalizer_equals_numpy_however_the_rows_are_batched() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal([100.0, -1.0, 0.0], [10.0, 0.1, 3.0], (500, 3)).astype(np.float32)
    with_start = np.concatenate([np.zeros((1, 3)), rows.astype(np.float64)])
    variance = with_start.var(axis=0) + 1 / 501
    for ends in ([], [1, 2, 30], [250]):
        normalizer = Normalizer(3)
        for batch in np.split(rows, ends):
            normalizer.update(torch.from_numpy(batch))
        assert normalizer.count == 501
        np.testing.assert_allclose(normalizer.mean, with_start.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(normalizer.squares / 501, variance, rtol=1e-10)
        wanted = (rows - with_start.mean(axis=0)) / np.sqrt(variance)
        found = normalizer(torch.from_numpy(rows)).numpy()
        np.testing.assert_allclose(found, wanted.clip(-5, 5), atol=1e-5)


def test_statistics_are_saved_but_never_trained_and_looking_does_not_change_them() -> None:
    normalizer = Normalizer(2)
    assert not list(normalizer.parameters())
    normalizer.update(torch.tensor([[1.0, 2.0]]))
    saved = {name: value.clone() for name, value in normalizer.state_dict().items()}
    normalizer(torch.full((10, 2), 9.0))
    other = Normalizer(2)
    other.load_state_dict(saved)
    probe = torch.tensor([[0.5, -0.5]])
    torch.testing.assert_close(other(probe), normalizer(probe), rtol=0, atol=0)
    other.update(probe)
    normalizer.update(probe)
    torch.testing.assert_close(other(probe), normalizer(probe), rtol=0, atol=0)


# -------------------------------------------------------------------------------- encoders and body


def test_body_normalizes_and_joins_observations_in_order() -> None:
    actor = make_actor(behavior(2, 3, continuous=1), normalize=True, num_layers=1)
    state = actor.state_dict()
    obs = [torch.randn(4, 2), torch.randn(4, 3)]
    normal = []
    for i, batch in enumerate(obs):
        name = f"body.observations.encoders.{i}.normalizer"
        variance = state[f"{name}.squares"] / state[f"{name}.count"]
        normal.append(((batch - state[f"{name}.mean"]) / variance.sqrt()).clamp(-5, 5).float())
    weight, bias = state["body.dense.0.weight"], state["body.dense.0.bias"]
    wanted = swish(torch.cat(normal, dim=1) @ weight.T + bias)
    torch.testing.assert_close(actor.body(obs), wanted)


def test_each_observation_has_its_own_statistics() -> None:
    body = NetworkBody(behavior(1, 1).observation_specs, NetworkSettings(normalize=True))
    body.observations.update_normalization([torch.tensor([[2.0], [4.0]]), torch.tensor([[0.0]])])
    first, second = (encoder.normalizer for encoder in body.observations.encoders)
    assert (first.count, first.mean) == (3, 2)
    assert (second.count, second.mean) == (2, 0)


def test_without_normalize_there_are_no_statistics() -> None:
    body = NetworkBody(behavior(2).observation_specs, NetworkSettings(normalize=False))
    body.observations.update_normalization([torch.full((5, 2), 100.0)])
    assert not list(body.buffers())


def test_a_behavior_without_observations_is_refused() -> None:
    with pytest.raises(UnityTrainerException, match="no observation"):
        Actor(BehaviorSpec([], ActionSpec(1, ())), NetworkSettings())


EMPTY = ObservationSpec.vector(0, "nothing")
GOAL = ObservationType.GOAL_SIGNAL
ENTITIES = (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE)


def test_an_empty_vector_beside_others_adds_nothing() -> None:
    body = NetworkBody([ObservationSpec.vector(2, "state"), EMPTY], NetworkSettings(normalize=True))
    obs = [torch.ones(3, 2), torch.ones(3, 0)]
    body.observations.update_normalization(obs)
    assert body.observations(obs)[0].shape == (3, 2)


@pytest.mark.parametrize(
    "observation_specs",
    [
        [EMPTY],
        [EMPTY, EMPTY],
        [ObservationSpec.vector(2, "s"), EMPTY._replace(observation_type=GOAL)],
        [ObservationSpec.vector(2, "s"), ObservationSpec.image((3, 0, 20), "nothing")],
        [ObservationSpec.vector(2, "s"), EMPTY._replace(shape=(4, 0), dimension_property=ENTITIES)],
    ],
)
def test_what_observes_nothing_is_refused_by_name(observation_specs: list[ObservationSpec]) -> None:
    with pytest.raises(UnityTrainerException, match=r"observation 'nothing' has the shape \("):
        NetworkBody(observation_specs, NetworkSettings())


# ------------------------------------------------------------------------------------------ actions


def test_a_behavior_without_actions_is_refused() -> None:
    with pytest.raises(UnityTrainerException, match="no action"):
        Actor(behavior(3), NetworkSettings())


def test_gaussian_by_hand() -> None:
    # log N(0; 0, 1) = -log(2 pi) / 2 = -0.918939; one deviation of 2 away: -0.5 - log 2 less.
    log_prob = gaussian_log_prob(
        torch.tensor([0.0, 3.0]), torch.tensor([0.0, 1.0]), torch.tensor([0.0, math.log(2)])
    )
    torch.testing.assert_close(log_prob, torch.tensor([-0.918939, -0.918939 - 0.5 - 0.693147]))
    # Entropy of N(., 1) = log(2 pi e) / 2 = 1.418939, and log 2 more for twice the deviation.
    entropy = gaussian_entropy(torch.tensor([0.0, math.log(2)]))
    torch.testing.assert_close(entropy, torch.tensor([1.418939, 1.418939 + 0.693147]))


def test_gaussian_equals_torch_distributions() -> None:
    torch.manual_seed(0)
    sample, mean, log_std = torch.randn(50, 3) * 4, torch.randn(50, 3), torch.randn(3)
    reference = torch.distributions.Normal(mean, log_std.exp())
    torch.testing.assert_close(
        gaussian_log_prob(sample, mean, log_std), reference.log_prob(sample), rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(gaussian_entropy(log_std), reference.entropy()[0])


def test_evaluate_equals_torch_distributions_of_the_allowed_actions() -> None:
    heads = make_actor(HYBRID).heads
    rng = np.random.default_rng(0)
    n_rows = 40
    torch.manual_seed(0)
    encoding = torch.randn(n_rows, 16)
    blocked = torch.from_numpy(action_mask(HYBRID, n_rows, rng))
    assert heads.mean is not None
    assert heads.logits is not None
    gaussian = torch.distributions.Normal(heads.mean(encoding), heads.log_std.exp())
    # A masked action has no chance at all.
    logits = heads.logits(encoding).masked_fill(blocked, -torch.inf)
    branches = [
        torch.distributions.Categorical(probs=branch.softmax(1))
        for branch in logits.split([5, 1, 2], dim=1)
    ]
    continuous = gaussian.sample()
    discrete = torch.stack([branch.sample() for branch in branches], dim=1)

    log_probs, entropies = heads.evaluate(encoding, continuous, discrete, blocked)

    wanted = [gaussian.log_prob(continuous)]
    wanted += [b.log_prob(discrete[:, i])[:, None] for i, b in enumerate(branches)]
    torch.testing.assert_close(log_probs, torch.cat(wanted, dim=1), rtol=1e-4, atol=1e-5)
    wanted = [gaussian.entropy(), *(branch.entropy()[:, None] for branch in branches)]
    torch.testing.assert_close(entropies, torch.cat(wanted, dim=1), rtol=1e-4, atol=1e-5)


def test_entropy_of_every_component_by_hand() -> None:
    # Deviations 1 and e: entropies 1.418939 and 2.418939, whatever the state.
    # Logits of zero: log 2 = 0.693147 and log 4; half the second branch masked: log 2.
    heads = ActionHeads(3, ActionSpec(2, (2, 4)))
    with torch.no_grad():
        heads.log_std.copy_(torch.tensor([0.0, 1.0]))
    blocked = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    _, entropies = heads.evaluate(
        torch.zeros(2, 3), torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.int64), blocked
    )
    torch.testing.assert_close(
        entropies,
        torch.tensor(
            [[1.418939, 2.418939, 0.693147, 1.386294], [1.418939, 2.418939, 0.693147, 0.693147]]
        ),
    )


def test_masked_actions_get_no_gradient_and_one_allowed_action_is_certain() -> None:
    heads = ActionHeads(2, ActionSpec(0, (3, 2)))
    encoding = torch.ones(1, 2)
    blocked = torch.tensor([[False, True, False, True, False]])
    log_probs, entropies = heads.evaluate(
        encoding, torch.zeros(1, 0), torch.tensor([[2, 1]]), blocked
    )
    assert log_probs[0, 1] == 0.0
    (log_probs.sum() + entropies.sum()).backward()
    assert heads.logits is not None
    gradient = heads.logits.bias.grad
    assert torch.isfinite(gradient).all()
    assert (gradient[[1, 3]] == 0.0).all()
    assert (gradient[[0, 2]] != 0.0).all()


# --------------------------------------------------------------------------------- actor and critic


@pytest.mark.parametrize("shared", [False, True])
def test_evaluate_is_actor_and_critic_side_by_side(shared: bool) -> None:
    torch.manual_seed(0)
    network = ActorCritic(HYBRID, NetworkSettings(hidden_units=8), n_signals=2, shared=shared)
    obs = [torch.randn(6, *o.shape) for o in HYBRID.observation_specs]
    continuous, discrete = torch.randn(6, 3), torch.zeros(6, 3, dtype=torch.int64)
    blocked = torch.zeros(6, 8, dtype=torch.bool)
    log_probs, entropies, values = network.evaluate(obs, continuous, discrete, blocked)
    wanted_log_probs, wanted_entropies = network.actor.heads.evaluate(
        network.actor.body(obs), continuous, discrete, blocked
    )
    assert values.shape == (6, 2)
    torch.testing.assert_close(log_probs, wanted_log_probs)
    torch.testing.assert_close(entropies, wanted_entropies)
    torch.testing.assert_close(values, network.critic(obs))
    values.sum().backward()
    assert (network.actor.body.dense[0].weight.grad is not None) == shared


@pytest.mark.parametrize("shared", [False, True])
def test_observations_are_counted_once_into_every_normalizer(shared: bool) -> None:
    settings = NetworkSettings(normalize=True)
    network = ActorCritic(CONTINUOUS, settings, n_signals=1, shared=shared)
    network.update_normalization([torch.randn(10, 8)])
    counts = [m.count for m in network.modules() if isinstance(m, Normalizer)]
    assert counts == [11] if shared else counts == [11, 11]


# ------------------------------------------------------------------------------------ frozen actors


@every_behavior
@pytest.mark.parametrize(("normalize", "num_layers"), [(False, 1), (True, 2), (True, 3)])
def test_a_frozen_actor_gives_what_the_actor_gives(
    spec: BehaviorSpec, normalize: bool, num_layers: int
) -> None:
    actor = make_actor(spec, normalize=normalize, num_layers=num_layers)
    frozen = snapshot_of(actor)
    for n_agents in (1, 33):
        obs = observations(spec, n_agents, np.random.default_rng(n_agents))
        given = frozen.forward(obs, no_memory(n_agents))
        for found, wanted in zip((given.mean, given.logits), outputs(actor, obs)[:2], strict=True):
            if wanted is None:
                assert found is None
            else:
                assert found is not None
                assert found.dtype == np.float32
                np.testing.assert_allclose(found, wanted, atol=1e-5)


@every_behavior
def test_a_frozen_actor_does_not_learn_and_leaves_observations_alone(spec: BehaviorSpec) -> None:
    actor = make_actor(spec, normalize=True)
    frozen = snapshot_of(actor)
    obs = observations(spec, 5, np.random.default_rng(0))
    kept = [batch.copy() for batch in obs]
    before = frozen.forward(obs, no_memory(5))
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter += 1.0
        actor.body.observations.update_normalization([torch.from_numpy(batch) + 9 for batch in obs])
    for old, new in zip(before, frozen.forward(obs, no_memory(5)), strict=True):
        np.testing.assert_array_equal(old, new)
    for batch, copy in zip(obs, kept, strict=True):
        np.testing.assert_array_equal(batch, copy)


def test_far_from_zero_a_frozen_actor_saturates_quietly() -> None:
    # exp of more than 88 overflows float32; swish is still 0 there, or its argument above.
    actor = make_actor(DISCRETE)
    obs = [np.float32([[-1000.0] * 8, [1000.0] * 8])]
    found = snapshot_of(actor).forward(obs, no_memory(2)).logits
    _, wanted, _ = outputs(actor, obs)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)
