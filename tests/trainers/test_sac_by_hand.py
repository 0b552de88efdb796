"""What is differentiated by hand is what automatic differentiation finds."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from actors import CASES
from mlagents.trainers.algorithms.reward_signals import ExtrinsicReward
from mlagents.trainers.algorithms.sac import SAC
from mlagents.trainers.algorithms.sac_types import Losses, Minibatch
from mlagents.trainers.fast import sac_by_hand
from mlagents.trainers.fast.compute import PLAIN, Compute
from mlagents.trainers.fast.sac_by_hand import DenseStep, FastSAC
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec

CPU = torch.device("cpu")
LOW = Compute(torch.bfloat16)
ACTIONS = {
    "one continuous": ActionSpec.create_continuous(1),
    "continuous": ActionSpec.create_continuous(3),
    "one branch": ActionSpec.create_discrete((4,)),
    "discrete": ActionSpec.create_discrete((3, 2)),
    "hybrid": ActionSpec.create_hybrid(2, (3, 2, 4)),
}
every_action = pytest.mark.parametrize("actions", ACTIONS.values(), ids=ACTIONS.keys())


class Novelty(ExtrinsicReward):
    """A signal that an end does not concern."""

    respects_end = False


def make(
    actions: ActionSpec,
    *,
    signals: int = 2,
    layers: int = 2,
    compute: Compute = PLAIN,
    **network: Any,
) -> FastSAC:
    """Make one whose weights all count, and some of whose deviations are clamped."""
    spec = BehaviorSpec([ObservationSpec.vector(3, "a"), ObservationSpec.vector(2, "b")], actions)
    settings = BehaviorSettings.model_validate(
        {
            "trainer_type": "sac",
            "hyperparameters": {"batch_size": 16, "buffer_size": 64, "init_entcoef": 0.3},
            "network_settings": {"hidden_units": 8, "num_layers": layers} | network,
            "reward_signals": {name: {} for name in ("extrinsic", "rnd")[:signals]},
        }
    )
    sac = FastSAC(spec, settings, device=CPU, seed=1, compute=compute)
    sac.signals = [ExtrinsicReward(gamma=0.9, strength=1.0), Novelty(gamma=0.5, strength=2.0)]
    sac.signals = sac.signals[:signals]
    sac.respects_end = torch.tensor([signal.respects_end for signal in sac.signals])
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for network in (sac.actor, sac.q, sac.value, sac.target_value, sac.coefficients):
            for parameter in network.parameters():
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
        if actions.continuous_size:
            sac.actor.heads.log_std.bias[0] = 2.0
    return sac


def in_float64(sac: FastSAC) -> FastSAC:
    for network in (sac.actor, sac.q, sac.value, sac.target_value, sac.coefficients):
        network.double()
    sac.gamma = sac.gamma.double()
    return sac


def minibatch(actions: ActionSpec, n_rows: int, dtype: torch.dtype, seed: int = 0) -> Minibatch:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(rng.normal(size=shape)).to(dtype)

    branches = actions.discrete_branches
    mask = rng.random((n_rows, sum(branches))) < 0.3
    mask[:, np.cumsum((0, *branches))[: len(branches)]] = False  # the first is always allowed
    return Minibatch(
        obs=[normal(n_rows, 3), normal(n_rows, 2)],
        next_obs=[normal(n_rows, 3), normal(n_rows, 2)],
        continuous=normal(n_rows, actions.continuous_size).tanh(),
        discrete=torch.from_numpy(
            np.stack([rng.integers(0, n, n_rows) for n in branches], 1)
            if branches
            else np.zeros((n_rows, 0))
        ).int(),
        action_mask=torch.from_numpy(mask),
        reward=normal(n_rows),
        terminated=torch.from_numpy(rng.random(n_rows) < 0.3),
        noise=normal(n_rows, actions.continuous_size),
        sequences=None,
        first=torch.arange(n_rows),
    )


def gradients(sac: SAC) -> list[Tensor]:
    return [p.grad.clone() for p in sac.optimizer.param_groups[0]["params"]]


def by_autograd(sac: SAC, batch: Minibatch) -> tuple[Losses, list[Tensor]]:
    return SAC.differentiate(sac, batch, sac.rewards(batch)), gradients(sac)


def by_hand(sac: FastSAC, batch: Minibatch) -> tuple[Losses, list[Tensor]]:
    assert sac.is_by_hand
    return sac.differentiate(batch, sac.rewards(batch)), gradients(sac)


def assert_same(sac: FastSAC, batch: Minibatch) -> None:
    (losses, wanted), (found_losses, found) = by_autograd(sac, batch), by_hand(sac, batch)
    for name, loss in losses._asdict().items():
        torch.testing.assert_close(getattr(found_losses, name), loss.detach(), msg=name)
    for ours, theirs in zip(found, wanted, strict=True):
        # Autograd takes softplus to be straight where tanh is 1 but for 1e-9.
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)
    assert all(gradient.any() for gradient in wanted), "every parameter has something to learn"


@every_action
@pytest.mark.parametrize("signals", [1, 2])
@pytest.mark.parametrize("layers", [1, 3])
def test_losses_and_gradients_are_those_of_autograd(
    actions: ActionSpec, signals: int, layers: int
) -> None:
    sac = in_float64(make(actions, signals=signals, layers=layers))
    for seed in range(3):
        assert_same(sac, minibatch(actions, 16, torch.float64, seed))
    if actions.continuous_size:
        batch = minibatch(actions, 16, torch.float64)
        log_std = sac.actor.heads.log_std(sac.actor.body(batch.obs))
        assert 0 < (log_std > 2).double().mean() < 1, "some are clamped"


def test_observations_are_normalized() -> None:
    actions = ACTIONS["hybrid"]
    sac = in_float64(make(actions, normalize=True))
    for encoder in sac.actor.body.observations.encoders:
        encoder.normalizer.shift.fill_(0.3)
        encoder.normalizer.scale.fill_(4.0)  # some are cut at 5
    assert_same(sac, minibatch(actions, 16, torch.float64))


def test_minibatches_may_be_of_another_size() -> None:
    actions = ACTIONS["hybrid"]
    sac = in_float64(make(actions))
    for n_rows in (16, 5, 16):
        assert_same(sac, minibatch(actions, n_rows, torch.float64))


@every_action
def test_many_steps_lead_to_the_same_weights(actions: ActionSpec) -> None:
    ours, theirs = (in_float64(make(actions)) for _ in range(2))
    before = [p.detach().clone() for p in ours.actor.parameters()]
    for seed in range(20):
        batch = minibatch(actions, 16, torch.float64, seed)
        by_hand(ours, batch)
        by_autograd(theirs, batch)
        for sac in (ours, theirs):
            sac.optimizer.step()
    for name, module in ours.modules().items():
        if isinstance(module, torch.nn.Module):
            wanted = theirs.modules()[name].state_dict()
            for key, value in module.state_dict().items():
                torch.testing.assert_close(value, wanted[key], rtol=1e-7, atol=1e-9)
    assert not torch.equal(before[0], next(ours.actor.parameters()))


def test_weights_that_are_loaded_are_learned_from_at_once() -> None:
    actions = ACTIONS["hybrid"]
    sac, other = in_float64(make(actions)), in_float64(make(actions))
    batch = minibatch(actions, 16, torch.float64)
    by_hand(sac, batch)
    by_hand(other, batch)
    other.optimizer.step()
    for name, module in sac.modules().items():
        module.load_state_dict(other.modules()[name].state_dict())
    for ours, theirs in zip(by_hand(sac, batch)[1], by_hand(other, batch)[1], strict=True):
        assert torch.equal(ours, theirs)


def test_gradients_of_others_by_the_same_weights_do_no_harm() -> None:
    # Cloning a demonstration teaches the actor between two steps, with an optimizer of its own.
    actions = ACTIONS["continuous"]
    sac = in_float64(make(actions))
    batch = minibatch(actions, 16, torch.float64)
    wanted = by_hand(sac, batch)[1]
    for parameter in sac.actor.parameters():
        parameter.grad = torch.ones_like(parameter)
    for ours, theirs in zip(by_hand(sac, batch)[1], wanted, strict=True):
        assert torch.equal(ours, theirs)


@pytest.fixture
def taken_by_hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    taken: list[int] = []

    class Counted(DenseStep):
        def __call__(self, batch: Minibatch, rewards: Tensor) -> Losses:
            taken.append(len(rewards))
            return super().__call__(batch, rewards)

    monkeypatch.setattr(sac_by_hand, "DenseStep", Counted)
    return taken


def test_only_steps_of_dense_networks_that_nobody_compiles_are_taken_by_hand(
    taken_by_hand: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    actions = ACTIONS["continuous"]
    batch = minibatch(actions, 16, torch.float32)
    monkeypatch.setattr(torch, "compile", lambda function, **_options: function)
    for compute in (PLAIN, LOW, Compute(compile=True)):
        sac = make(actions, compute=compute)
        sac.differentiate(batch, sac.rewards(batch))
    assert taken_by_hand == [16, 16]


def in_lower_precision(actions: ActionSpec, **network: Any) -> FastSAC:
    return make(actions, compute=LOW, **network)


@every_action
@pytest.mark.parametrize("layers", [1, 3])
def test_lower_precision_is_that_of_autograd(
    actions: ActionSpec, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sac_by_hand, "LARGE", 0)
    batch = minibatch(actions, 256, torch.float32)
    network = {"layers": layers, "hidden_units": 64}
    exact = by_hand(make(actions, **network), batch)[1]
    sac = in_lower_precision(actions, **network)
    (losses, wanted), (found_losses, found) = by_autograd(sac, batch), by_hand(sac, batch)
    for name, loss in losses._asdict().items():
        torch.testing.assert_close(getattr(found_losses, name), loss.detach(), msg=name)
    for ours, theirs, without in zip(found, wanted, exact, strict=True):
        assert ours.dtype is torch.float32
        assert (ours - theirs).norm() < 0.005 * theirs.norm()
        assert not torch.equal(ours, without)


def test_what_is_learned_in_lower_precision_counts_at_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sac_by_hand, "LARGE", 0)
    actions = ACTIONS["hybrid"]
    batch = minibatch(actions, 16, torch.float32)
    sac, other = in_lower_precision(actions), in_lower_precision(actions)
    before = by_hand(sac, batch)[1]
    sac.optimizer.step()
    for name, module in other.modules().items():
        if isinstance(module, torch.nn.Module):
            module.load_state_dict(sac.modules()[name].state_dict())
    after, wanted = by_hand(sac, batch)[1], by_hand(other, batch)[1]
    for each, ours, theirs in zip(before, after, wanted, strict=True):
        assert torch.equal(ours, theirs)
        assert not torch.equal(ours, each)


def test_small_networks_gain_nothing_by_lower_precision() -> None:
    actions = ACTIONS["hybrid"]
    batch = minibatch(actions, 16, torch.float32)
    found = by_hand(in_lower_precision(actions), batch)[1]
    for ours, theirs in zip(found, by_hand(make(actions), batch)[1], strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_network_is_dense_if_it_has_nothing_else(case: Any) -> None:
    settings = BehaviorSettings.model_validate(
        {"trainer_type": "sac", "network_settings": {"hidden_units": 8} | case.settings}
    )
    sac = SAC(case.spec, settings, device=CPU, seed=0)
    kinds = {type(module).__name__ for module in sac.actor.body.modules()}
    others = {"ImageEncoder", "EntityAttention", "GoalLayer", "Memory"}
    assert sac.actor.body.is_dense == kinds.isdisjoint(others)
