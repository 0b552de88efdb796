import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from actors import (
    BEHAVIORS,
    CASES,
    CONTINUOUS,
    DISCRETE,
    HYBRID,
    Case,
    action_mask,
    behavior,
    make_actor,
    memories,
    observations,
    outputs,
)
from mlagents.trainers.acting.policy import ActingPolicy
from mlagents.trainers.algorithms.losses import mean_entropy
from mlagents.trainers.data.decision import Decision
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.networks.actor_critic import Actor, ActorCritic
from mlagents.trainers.networks.snapshots import snapshot_of
from mlagents.trainers.settings.behavior import NetworkSettings
from mlagents_envs.base_env import BehaviorSpec
from samples import assert_categorical, assert_normal

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
every_behavior = pytest.mark.parametrize("spec", BEHAVIORS.values(), ids=BEHAVIORS.keys())


def make_policy(
    actor: Actor, spec: BehaviorSpec, *, deterministic: bool = False, seed: int = 0
) -> ActingPolicy:
    rng = np.random.default_rng(seed)
    return ActingPolicy(snapshot_of(actor), spec.action_spec, deterministic=deterministic, rng=rng)


def evaluate(
    actor: Actor, obs: list[NDArray], blocked: NDArray, decision: Decision
) -> tuple[NDArray, float]:
    """What learning will think of a decision: log-probabilities and mean entropy."""
    with torch.no_grad():
        log_probs, entropies = actor.heads.evaluate(
            actor.body([torch.from_numpy(batch) for batch in obs]),
            torch.from_numpy(decision.continuous),
            torch.from_numpy(decision.discrete).long(),
            torch.from_numpy(blocked),
        )
    n_continuous = actor.heads.spec.continuous_size
    entropy = mean_entropy(entropies, n_continuous=n_continuous, joint=False)
    return log_probs.numpy(), entropy.item()


@every_behavior
@pytest.mark.parametrize("deterministic", [False, True])
def test_log_probs_and_entropy_are_those_that_learning_computes(
    spec: BehaviorSpec, deterministic: bool
) -> None:
    actor = make_actor(spec, normalize=True)
    rng = np.random.default_rng(0)
    obs, blocked = observations(spec, 200, rng), action_mask(spec, 200, rng)
    decision = make_policy(actor, spec, deterministic=deterministic).act(obs, blocked)
    log_probs, entropy = evaluate(actor, obs, blocked, decision)
    np.testing.assert_allclose(decision.log_probs, log_probs, atol=1e-5)
    assert decision.entropy == pytest.approx(entropy, abs=1e-5)


@every_behavior
@pytest.mark.parametrize("n_agents", [1, 5])
def test_shapes_and_types(spec: BehaviorSpec, n_agents: int) -> None:
    rng = np.random.default_rng(0)
    obs, blocked = observations(spec, n_agents, rng), action_mask(spec, n_agents, rng)
    decision = make_policy(make_actor(spec), spec).act(obs, blocked)
    n_continuous, n_branches = spec.action_spec.continuous_size, spec.action_spec.discrete_size
    for array, n_columns, dtype in (
        (decision.continuous, n_continuous, np.float32),
        (decision.discrete, n_branches, np.int32),
        (decision.log_probs, n_continuous + n_branches, np.float32),
        (decision.action.continuous, n_continuous, np.float32),
        (decision.action.discrete, n_branches, np.int32),
    ):
        assert array.shape == (n_agents, n_columns)
        assert array.dtype == dtype


def test_the_environment_gets_the_sample_clamped_to_3_and_divided_by_it() -> None:
    actor = make_actor(CONTINUOUS)
    with torch.no_grad():
        actor.heads.log_std.fill_(1.5)
    obs = observations(CONTINUOUS, 300, np.random.default_rng(0))
    decision = make_policy(actor, CONTINUOUS).act(obs, np.zeros((300, 0), np.bool_))
    assert np.abs(decision.continuous).max() > 3.0  # learning sees the sample as it fell
    np.testing.assert_allclose(
        decision.action.continuous, np.clip(decision.continuous, -3.0, 3.0) / 3.0, rtol=1e-6
    )
    assert decision.action.continuous.min() == -1.0
    assert decision.action.continuous.max() == 1.0


def test_deterministic_is_the_mean_and_the_likeliest_allowed_choice() -> None:
    actor = make_actor(HYBRID, normalize=True)
    rng = np.random.default_rng(0)
    obs, blocked = observations(HYBRID, 100, rng), action_mask(HYBRID, 100, rng)
    mean, logits, _ = outputs(actor, obs)
    first = make_policy(actor, HYBRID, deterministic=True, seed=0).act(obs, blocked)
    np.testing.assert_allclose(first.continuous, mean, atol=1e-5)
    allowed = np.where(blocked, -np.inf, logits)
    likeliest = [branch.argmax(1) for branch in np.split(allowed, [5, 6], axis=1)]
    np.testing.assert_array_equal(first.discrete, np.column_stack(likeliest))
    second = make_policy(actor, HYBRID, deterministic=True, seed=1).act(obs, blocked)
    np.testing.assert_array_equal(first.continuous, second.continuous)
    np.testing.assert_array_equal(first.discrete, second.discrete)


def test_continuous_samples_are_normal_around_the_mean_with_the_deviation() -> None:
    actor = make_actor(CONTINUOUS)
    obs = observations(CONTINUOUS, 50_000, np.random.default_rng(0))
    decision = make_policy(actor, CONTINUOUS).act(obs, np.zeros((50_000, 0), np.bool_))
    mean, _, _ = outputs(actor, obs)
    noise = (decision.continuous - mean) / actor.heads.log_std.exp().detach().numpy()
    assert_normal(noise[:, 0])
    assert_normal(noise[:, 1])
    assert_normal((noise[:, 0] + noise[:, 1]) / np.sqrt(2))  # independent of each other


def test_choices_have_the_probabilities_of_the_logits() -> None:
    actor = make_actor(DISCRETE)
    obs = observations(DISCRETE, 1, np.random.default_rng(0))
    _, logits, _ = outputs(actor, obs)
    first, second = (p.softmax(1)[0] for p in torch.from_numpy(logits).split([3, 2], dim=1))
    repeated = [np.repeat(obs[0], 50_000, axis=0)]
    chosen = make_policy(actor, DISCRETE).act(repeated, np.zeros((50_000, 5), np.bool_)).discrete
    # The branches are independent, so all six pairs have the product of their chances.
    assert_categorical(chosen[:, 0] * 2 + chosen[:, 1], torch.outer(first, second))


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_masked_action_is_never_chosen(deterministic: bool) -> None:
    spec = behavior(3, branches=(4, 2, 3))
    actor = make_actor(spec)
    with torch.no_grad():
        actor.heads.logits.bias[0] += 50.0  # certain, were it always allowed
    rng = np.random.default_rng(0)
    obs, blocked = observations(spec, 5000, rng), action_mask(spec, 5000, rng)
    decision = make_policy(actor, spec, deterministic=deterministic).act(obs, blocked)
    for branch, mask in enumerate(np.split(blocked, [4, 6], axis=1)):
        chosen = decision.discrete[:, branch, None]
        assert not np.take_along_axis(mask, chosen, axis=1).any()
    only_one = blocked[:, 4:6].any(axis=1)
    np.testing.assert_array_equal(decision.log_probs[only_one, 1], 0.0)


def test_with_nothing_allowed_any_choice_is_as_good() -> None:
    obs = observations(DISCRETE, 20_000, np.random.default_rng(0))
    policy = make_policy(make_actor(DISCRETE), DISCRETE)
    decision = policy.act(obs, np.ones((20_000, 5), np.bool_))
    assert_categorical(decision.discrete[:, 0], [1 / 3] * 3)
    np.testing.assert_allclose(decision.log_probs[:, 0], -np.log(3), rtol=1e-6)


@every_behavior
def test_the_same_seed_decides_the_same_and_another_differently(spec: BehaviorSpec) -> None:
    actor = make_actor(spec)
    rng = np.random.default_rng(0)
    obs, blocked = observations(spec, 50, rng), action_mask(spec, 50, rng)
    first, again, other = (
        [policy.act(obs, blocked) for _ in range(2)]
        for policy in (make_policy(actor, spec, seed=seed) for seed in (1, 1, 2))
    )
    for left, right in zip(first, again, strict=True):
        np.testing.assert_array_equal(left.continuous, right.continuous)
        np.testing.assert_array_equal(left.discrete, right.discrete)
    for left, right in ((first[0], other[0]), (first[0], first[1])):
        assert not (
            np.array_equal(left.continuous, right.continuous)
            and np.array_equal(left.discrete, right.discrete)
        )


def test_new_weights_count_from_the_next_refresh_on() -> None:
    actor = make_actor(HYBRID)
    policy = make_policy(actor, HYBRID, deterministic=True)
    rng = np.random.default_rng(0)
    obs, blocked = observations(HYBRID, 20, rng), action_mask(HYBRID, 20, rng)
    before = policy.act(obs, blocked)
    with torch.no_grad():
        actor.heads.mean.bias += 1.0
        actor.heads.log_std += 1.0
    unchanged = policy.act(obs, blocked)
    np.testing.assert_array_equal(unchanged.continuous, before.continuous)
    np.testing.assert_array_equal(unchanged.log_probs, before.log_probs)
    policy.snapshot = snapshot_of(actor)
    after = policy.act(obs, blocked)
    np.testing.assert_allclose(after.continuous, before.continuous + 1.0, atol=1e-5)
    # A deviation e times as large: log-probabilities at the mean fall, the entropy grows by 1.
    np.testing.assert_allclose(after.log_probs[:, :3], before.log_probs[:, :3] - 1.0, atol=1e-5)
    assert after.entropy == pytest.approx(before.entropy + 1.0)


@every_behavior
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_network_that_diverged_is_refused(spec: BehaviorSpec, value: float) -> None:
    actor = make_actor(spec)
    head = actor.heads.mean or actor.heads.logits
    with torch.no_grad():
        head.bias[0] = value
    policy = make_policy(actor, spec)
    rng = np.random.default_rng(0)
    with pytest.raises(UnityTrainerException, match="diverged"):
        policy.act(observations(spec, 3, rng), action_mask(spec, 3, rng))


def test_an_observation_that_is_no_number_is_blamed_rather_than_learning() -> None:
    policy = make_policy(make_actor(HYBRID), HYBRID)
    rng = np.random.default_rng(0)
    obs = observations(HYBRID, 3, rng)
    obs[-1][2].flat[0] = np.nan
    with pytest.raises(UnityTrainerException, match=f"observation {len(obs) - 1}, .* in row 2 of"):
        policy.act(obs, action_mask(HYBRID, 3, rng))


def test_a_diverged_discrete_head_of_a_hybrid_policy_is_refused() -> None:
    actor = make_actor(HYBRID)
    with torch.no_grad():
        actor.heads.logits.weight[-1, 0] = np.nan
    rng = np.random.default_rng(0)
    with pytest.raises(UnityTrainerException, match="diverged"):
        make_policy(actor, HYBRID).act(observations(HYBRID, 3, rng), action_mask(HYBRID, 3, rng))


# --------------------------------------------------------------------------- every kind of network


@every_case
@pytest.mark.parametrize("deterministic", [False, True])
def test_every_kind_of_network_decides_as_learning_sees_it(case: Case, deterministic: bool) -> None:
    spec = case.spec
    actor = make_actor(spec, **case.settings)
    policy = make_policy(actor, spec, deterministic=deterministic)
    rng = np.random.default_rng(0)
    memory = memories(actor, 40, rng)
    for _ in range(2):
        obs, blocked = observations(spec, 40, rng), action_mask(spec, 40, rng)
        for batch in (*obs, memory):
            batch.flags.writeable = False  # as messages may be
        decision = policy.act(obs, blocked, memory)
        mean, logits, wanted_memory = outputs(actor, [batch.copy() for batch in obs], memory.copy())
        np.testing.assert_allclose(decision.memory, wanted_memory, atol=1e-6)
        encoding, _ = actor.body.step([torch.tensor(batch) for batch in obs], torch.tensor(memory))
        log_probs, entropies = actor.heads.evaluate(
            encoding,
            torch.from_numpy(decision.continuous),
            torch.from_numpy(decision.discrete).long(),
            torch.from_numpy(blocked),
        )
        np.testing.assert_allclose(decision.log_probs, log_probs.detach(), atol=1e-5)
        entropy = mean_entropy(
            entropies, n_continuous=spec.action_spec.continuous_size, joint=False
        )
        assert decision.entropy == pytest.approx(entropy.item(), abs=1e-5)
        if deterministic and mean is not None:
            np.testing.assert_allclose(decision.continuous, mean, atol=1e-5)
        if logits is not None:
            ends = np.cumsum(spec.action_spec.discrete_branches)[:-1]
            for branch, mask in enumerate(np.split(blocked, ends, axis=1)):
                assert not mask[np.arange(40), decision.discrete[:, branch]].any()
        memory = decision.memory


@every_case
def test_every_kind_of_network_acts_by_its_weights_at_the_last_snapshot(case: Case) -> None:
    actor = make_actor(case.spec, **case.settings)
    policy = make_policy(actor, case.spec, deterministic=True)
    rng = np.random.default_rng(0)
    obs, blocked = observations(case.spec, 20, rng), action_mask(case.spec, 20, rng)
    before = policy.act(obs, blocked)
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter *= 1.5
    unchanged = policy.act(obs, blocked)
    np.testing.assert_array_equal(unchanged.log_probs, before.log_probs)
    np.testing.assert_array_equal(unchanged.memory, before.memory)
    policy.snapshot = snapshot_of(actor)
    changed = policy.act(obs, blocked)
    assert not np.allclose(changed.log_probs, before.log_probs)


def test_a_critic_with_a_memory_of_its_own_is_carried_along() -> None:
    settings = NetworkSettings.model_validate({"hidden_units": 8, "memory": {"memory_size": 6}})
    network = ActorCritic(CONTINUOUS, settings, n_signals=1, shared=False)
    policy = ActingPolicy(
        snapshot_of(network.actor, network.remembering_critic),
        CONTINUOUS.action_spec,
        deterministic=True,
        rng=np.random.default_rng(0),
    )
    assert policy.snapshot.memory_size == 12
    obs = observations(CONTINUOUS, 4, np.random.default_rng(0))
    first = policy.act(obs, np.zeros((4, 0), np.bool_))
    second = policy.act(obs, np.zeros((4, 0), np.bool_), first.memory)
    tensors, remembered = [torch.from_numpy(obs[0])], torch.zeros(4, 12)
    for decision in (first, second):
        halves = remembered.split(6, dim=1)
        bodies = network.actor.body, network.critic.body
        with torch.no_grad():
            steps = [body.step(tensors, half) for body, half in zip(bodies, halves, strict=True)]
        remembered = torch.cat([after for _, after in steps], dim=1)
        np.testing.assert_allclose(decision.memory, remembered, atol=1e-6)
    assert not np.allclose(first.memory, second.memory)
