"""Continuous actions squashed by tanh: in learning, in acting, and as exported."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from actors import CASES, CONTINUOUS, HYBRID, Case, action_mask, make_actor, memories, observations
from mlagents.trainers.acting.policy import ActingPolicy
from mlagents.trainers.data.snapshot import DenseSnapshot
from mlagents.trainers.export.export import export_onnx
from mlagents.trainers.networks.actions import (
    LOG_STD_LIMITS,
    ActionHeads,
    log_slope_of_tanh,
    squashed_sample,
)
from mlagents.trainers.networks.actor_critic import Actor
from mlagents.trainers.networks.snapshots import snapshot_of
from mlagents_envs.base_env import ActionSpec, BehaviorSpec
from samples import assert_normal

CONTINUOUS_CASES = {k: c for k, c in CASES.items() if c.spec.action_spec.continuous_size}
every_case = pytest.mark.parametrize("case", CONTINUOUS_CASES.values(), ids=CONTINUOUS_CASES.keys())


def make_policy(actor: Actor, spec: BehaviorSpec, *, deterministic: bool = False) -> ActingPolicy:
    rng = np.random.default_rng(0)
    return ActingPolicy(snapshot_of(actor), spec.action_spec, deterministic=deterministic, rng=rng)


@torch.no_grad()
def gaussian(actor: Actor, obs: list, memory: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    tensors = [torch.from_numpy(o) for o in obs]
    encoding, _ = actor.body.step(tensors, torch.from_numpy(memory))
    mean, log_std = actor.heads.gaussian(encoding)
    return mean.numpy(), log_std.numpy()


# ----------------------------------------------------------------------------------------- learning


def test_the_slope_of_tanh_by_hand() -> None:
    # 1 - tanh(0)² = 1; 1 - tanh(log 2)² = 1 - 0.6² = 0.64; far out, 4 exp(-2 |x|).
    x = torch.tensor([0.0, np.log(2), -np.log(2), 50.0, -50.0], dtype=torch.float64)
    wanted = [0.0, np.log(0.64), np.log(0.64), np.log(4) - 100, np.log(4) - 100]
    torch.testing.assert_close(log_slope_of_tanh(x), torch.tensor(wanted, dtype=torch.float64))


def test_samples_and_log_probabilities_are_those_of_torch_distributions() -> None:
    torch.manual_seed(0)
    mean, log_std, noise = torch.randn(3, 40, 2, dtype=torch.float64)
    base = torch.distributions.Normal(mean, log_std.exp())
    reference = torch.distributions.TransformedDistribution(
        base, torch.distributions.TanhTransform(cache_size=1)
    )
    action, log_prob = squashed_sample(mean, log_std, noise)
    torch.testing.assert_close(action, torch.tanh(mean + log_std.exp() * noise))
    is_inside = action.abs() < 0.999  # where the reference can undo tanh
    assert is_inside.float().mean() > 0.8
    torch.testing.assert_close(log_prob[is_inside], reference.log_prob(action)[is_inside])


def test_both_teach_mean_and_deviation() -> None:
    torch.manual_seed(0)
    noise = torch.randn(5, 2, dtype=torch.float64)
    mean, log_std = (torch.randn(5, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    torch.autograd.gradcheck(lambda m, s: squashed_sample(m, s, noise), (mean, log_std))


def test_the_deviation_depends_on_the_state_within_limits() -> None:
    heads = ActionHeads(3, ActionSpec.create_continuous(2), squashed=True)
    assert heads.gaussian(torch.randn(4, 3))[1].shape == (4, 2)
    for direction, limit in zip((-1e9, 1e9), LOG_STD_LIMITS, strict=True):
        with torch.no_grad():
            heads.log_std.bias.fill_(direction)
        assert (heads.gaussian(torch.randn(4, 3))[1] == limit).all()


# ------------------------------------------------------------------------------------------- acting


@every_case
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_policy_decides_as_learning_sees_it(case: Case, deterministic: bool) -> None:
    spec, n_continuous = case.spec, case.spec.action_spec.continuous_size
    actor = make_actor(spec, squashed=True, **case.settings)
    policy = make_policy(actor, spec, deterministic=deterministic)
    rng = np.random.default_rng(0)
    obs, blocked = observations(spec, 40, rng), action_mask(spec, 40, rng)
    memory = memories(actor, 40, rng)
    decision = policy.act(obs, blocked, memory)

    mean, log_std = gaussian(actor, obs, memory)
    np.testing.assert_array_equal(decision.action.continuous, decision.continuous)
    if deterministic:
        np.testing.assert_allclose(decision.continuous, np.tanh(mean), atol=1e-5)
    is_inside = np.abs(decision.continuous).max(1) < 0.99  # where arctanh is exact
    assert is_inside.sum() > 10
    before = np.arctanh(np.clip(decision.continuous.astype(float), -0.99, 0.99))
    noise = (before - mean) / np.exp(log_std)
    _, log_probs = squashed_sample(*(torch.from_numpy(a) for a in (mean, log_std, noise)))
    np.testing.assert_allclose(
        decision.log_probs[is_inside, :n_continuous], log_probs[is_inside], atol=1e-3
    )


def test_samples_are_tanh_of_normal_ones_with_the_deviation_of_the_state() -> None:
    actor = make_actor(CONTINUOUS, squashed=True)
    with torch.no_grad():  # so that arctanh is exact
        actor.heads.mean.weight *= 0.1
        actor.heads.log_std.weight *= 0.3
        actor.heads.log_std.bias.fill_(-1.0)
    obs = observations(CONTINUOUS, 50_000, np.random.default_rng(0))
    actions = make_policy(actor, CONTINUOUS).act(obs, np.zeros((50_000, 0), np.bool_)).continuous
    mean, log_std = gaussian(actor, obs, np.zeros((50_000, 0), np.float32))
    assert log_std.std() > 0.1
    noise = (np.arctanh(actions.astype(float)) - mean) / np.exp(log_std)
    assert_normal(noise[:, 0])
    assert_normal((noise[:, 0] - noise[:, 1]) / np.sqrt(2))


@pytest.mark.parametrize("shift", [-40.0, 40.0])
def test_log_probabilities_stay_finite_where_tanh_saturates(shift: float) -> None:
    actor = make_actor(CONTINUOUS, squashed=True)
    with torch.no_grad():
        actor.heads.mean.bias += shift
    obs = observations(CONTINUOUS, 50, np.random.default_rng(0))
    decision = make_policy(actor, CONTINUOUS).act(obs, np.zeros((50, 0), np.bool_))
    assert (np.abs(decision.continuous) == 1).all()
    assert np.isfinite(decision.log_probs).all()


def test_entropy_is_that_of_the_gaussians() -> None:
    actor = make_actor(HYBRID, squashed=True)
    with torch.no_grad():  # so that the limits are far away
        actor.heads.log_std.weight *= 0.1
    rng = np.random.default_rng(0)
    obs, blocked = observations(HYBRID, 30, rng), action_mask(HYBRID, 30, rng)
    policy = make_policy(actor, HYBRID)
    before = policy.act(obs, blocked).entropy
    with torch.no_grad():
        actor.heads.log_std.bias += 1.0
    policy.snapshot = snapshot_of(actor)
    assert policy.act(obs, blocked).entropy == pytest.approx(before + 1.0, abs=1e-5)


@pytest.mark.parametrize("spec", [CONTINUOUS, HYBRID])
def test_dense_actors_act_in_numpy(spec: BehaviorSpec) -> None:
    actor = make_actor(spec, squashed=True, normalize=True)
    frozen = snapshot_of(actor)
    assert isinstance(frozen, DenseSnapshot)
    obs = observations(spec, 9, np.random.default_rng(0))
    given = frozen.forward(obs, np.zeros((9, 0), np.float32))
    wanted = gaussian(actor, obs, np.zeros((9, 0), np.float32))
    for found, expected in zip((given.mean, given.log_std), wanted, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


# -------------------------------------------------------------------------------------- as exported


@every_case
def test_exported_actions_are_squashed_not_clamped(case: Case) -> None:
    actor = make_actor(case.spec, squashed=True, **case.settings)
    with torch.no_grad():  # so that arctanh is exact
        actor.heads.mean.weight *= 0.1
        actor.heads.log_std.weight *= 0.3
        actor.heads.log_std.bias.fill_(-1.0)
    rng = np.random.default_rng(0)
    one = [*observations(case.spec, 1, rng), memories(actor, 1, rng)]
    *obs, memory = (np.repeat(batch, 2000, axis=0) for batch in one)
    model = export_onnx(actor, case.spec)
    onnx.checker.check_model(onnx.load_from_string(model), full_check=True)

    onnxruntime.set_seed(1)
    session = onnxruntime.InferenceSession(model)
    inputs = {f"obs_{i}": batch for i, batch in enumerate(obs)}
    if actor.body.memory_size:
        inputs["recurrent_in"] = memory[:, None]
    if n_choices := sum(case.spec.action_spec.discrete_branches):
        inputs["action_masks"] = np.ones((2000, n_choices), np.float32)
    names = ["continuous_actions", "deterministic_continuous_actions"]
    sampled, deterministic = session.run(names, inputs)

    mean, log_std = gaussian(actor, obs, memory)
    np.testing.assert_allclose(deterministic, np.tanh(mean), atol=1e-5)
    for noise in ((np.arctanh(sampled.astype(float)) - mean) / np.exp(log_std)).T:
        assert_normal(noise)
