"""Gradient steps of SAC in the native library, compared with autograd in float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor

from guess_environment import GuessEnvironment
from mlagents.trainers.algorithms.base import ClosedError
from mlagents.trainers.algorithms.optimizer import Adam
from mlagents.trainers.algorithms.reward_signals import ExtrinsicReward
from mlagents.trainers.algorithms.sac import SAC
from mlagents.trainers.algorithms.sac_types import Minibatch
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.fast import sac_by_hand
from mlagents.trainers.fast.compute import Compute
from mlagents.trainers.fast.native_sac import PART, NativeSAC
from mlagents.trainers.fast.sac_by_hand import FastSAC
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.run_options import TorchSettings
from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec
from mlagents_native.library import INSTRUCTION_SETS, NativeError, Part
from native_parts import ACTION_SIZES, functions_of
from training_loop import make_trainer, train_while

CPU = torch.device("cpu")
HYBRID = ActionSpec.create_hybrid(2, (3, 2, 4))

needs_library = pytest.mark.skipif(
    PART.load() is None, reason=f"the native library cannot be used: {PART.reason}"
)


class Novelty(ExtrinsicReward):
    """A signal whose values do not become zero at the end of an episode."""

    respects_end = False


def behavior(actions: ActionSpec = HYBRID, observed: tuple[int, ...] = (3, 2)) -> BehaviorSpec:
    vectors = [ObservationSpec.vector(size, f"vector {i}") for i, size in enumerate(observed)]
    return BehaviorSpec(vectors, actions)


def settings(
    network: dict[str, Any] | None = None, signals: dict[str, Any] | None = None, **others: Any
) -> BehaviorSettings:
    hyperparameters = {"batch_size": 16, "buffer_size": 64, "init_entcoef": 0.3} | others
    return BehaviorSettings.model_validate(
        {
            "trainer_type": "sac",
            "hyperparameters": hyperparameters,
            "network_settings": {"hidden_units": 8, "num_layers": 2} | (network or {}),
            "reward_signals": signals or {"extrinsic": {}},
        }
    )


def make_sac(
    spec: BehaviorSpec,
    of: BehaviorSettings,
    dtype: torch.dtype = torch.float32,
    *,
    n_signals: int = 2,
) -> SAC:
    """Return an algorithm whose weights all count, and some of whose deviations are clamped."""
    n = {name: {} for name in ("extrinsic", "rnd")[:n_signals]}
    of = BehaviorSettings.model_validate(of.model_dump(exclude={"reward_signals"})).model_copy(
        update={"reward_signals": settings(signals=n).reward_signals}
    )
    sac = SAC(spec, of, device=CPU, seed=1)
    signals = [ExtrinsicReward(gamma=0.9, strength=1.0), Novelty(gamma=0.5, strength=2.0)]
    sac.signals = [*signals[:n_signals]]
    generator = torch.Generator().manual_seed(2)
    networks = (sac.actor, sac.q, sac.value, sac.target_value, sac.coefficients)
    with torch.no_grad():
        for network in networks:
            for parameter in network.parameters():
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
        if spec.action_spec.continuous_size:
            assert isinstance(sac.actor.heads.log_std, torch.nn.Linear)
            sac.actor.heads.log_std.bias[0] = 2.0
        for network in networks:
            network.to(dtype)
    sac.gamma = sac.gamma.to(dtype)
    return sac


def minibatch(spec: BehaviorSpec, n_rows: int, seed: int = 0) -> Minibatch:
    rng, actions = np.random.default_rng(seed), spec.action_spec

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(rng.standard_normal(shape, np.float32))

    branches = actions.discrete_branches
    mask = rng.random((n_rows, sum(branches))) < 0.3
    mask[:, np.cumsum((0, *branches))[: len(branches)]] = False  # the first is always allowed
    chosen = [rng.integers(0, n, n_rows) for n in branches]
    discrete = np.array(chosen, np.int32).reshape(len(branches), n_rows).T.copy()
    obs, next_obs = (
        [normal(n_rows, *each.shape) for each in spec.observation_specs] for _ in range(2)
    )
    return Minibatch(
        obs=obs,
        next_obs=next_obs,
        continuous=normal(n_rows, actions.continuous_size).tanh(),
        discrete=torch.from_numpy(discrete),
        action_mask=torch.from_numpy(mask),
        reward=normal(n_rows),
        terminated=torch.from_numpy(rng.random(n_rows) < 0.3),
        noise=normal(n_rows, actions.continuous_size),
        sequences=None,
        first=torch.arange(n_rows),
    )


def in_float64(batch: Minibatch) -> Minibatch:
    others = [field.double() if field.is_floating_point() else field for field in batch[2:8]]
    obs, next_obs = ([o.double() for o in each] for each in (batch.obs, batch.next_obs))
    return Minibatch(obs, next_obs, *others, None, batch.first)


def by_autograd(sac: SAC, batch: Minibatch, batch_size: int) -> Tensor:
    n_rows = [batch_size] * (len(batch.reward) // batch_size)
    return torch.stack([SAC.take_one(sac, part) for part in batch.split(n_rows)])


def natively(sac: SAC, batch: Minibatch, batch_size: int, functions: Any = None) -> Tensor:
    native = NativeSAC(sac, functions or PART.load())
    return native.learn(batch, sac.rewards(batch), batch_size)


def means_of(sac: SAC) -> list[Tensor]:
    """Return Adam's running means: after one step, a tenth of the gradients."""
    assert isinstance(sac.optimizer, Adam)
    return [mean for mean, _ in sac.optimizer.moments()[0].values()]


def weights_of(sac: SAC) -> list[Tensor]:
    networks = (sac.actor, sac.q, sac.value, sac.target_value, sac.coefficients)
    return [p.detach() for network in networks for p in network.parameters()]


@needs_library
@pytest.mark.parametrize("instructions", INSTRUCTION_SETS)
@pytest.mark.parametrize("case", ACTION_SIZES)
@hypothesis_settings(max_examples=15, deadline=None, derandomize=True)
@given(data=st.data())
def test_the_gradients_are_those_of_autograd(
    data: st.DataObject, case: str, instructions: str
) -> None:
    functions = functions_of(PART, instructions)
    size, branches = (data.draw(strategy) for strategy in ACTION_SIZES[case].values())
    spec = behavior(
        ActionSpec(continuous_size=size, discrete_branches=branches),
        data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3).map(tuple)),
    )
    network = {
        "hidden_units": data.draw(st.integers(1, 70)),
        "num_layers": data.draw(st.integers(1, 3)),
        "normalize": data.draw(st.booleans()),
    }
    n_rows, n_signals = data.draw(st.integers(1, 150)), data.draw(st.integers(1, 2))
    max_grad_norm = data.draw(st.sampled_from([None, 0.01, 1e6]))
    tau = data.draw(st.sampled_from([0.005, 0.7, 1.0]))
    of = settings(network, max_grad_norm=max_grad_norm, tau=tau)
    batch = minibatch(spec, n_rows, data.draw(st.integers(0, 1000)))
    found = make_sac(spec, of, n_signals=n_signals)
    wanted = make_sac(spec, of, torch.float64, n_signals=n_signals)
    of_found = natively(found, batch, n_rows, functions)
    of_wanted = by_autograd(wanted, in_float64(batch), n_rows)
    torch.testing.assert_close(of_found, of_wanted, rtol=2e-5, atol=1e-5)
    *of_networks, of_alpha = zip(means_of(found), means_of(wanted), strict=True)
    largest = max(mean.abs().max().item() for _, mean in of_networks)
    for of_one, reference in of_networks:
        difference = (of_one - reference).abs().max().item()
        # The second term is the rounding of differences between numbers of order 1.
        assert difference <= 5e-6 * largest + 1e-7
    # The entropy is a sum over actions, of order 10.
    torch.testing.assert_close(of_alpha[0].double(), of_alpha[1], rtol=1e-5, atol=1e-6)
    targets = zip(found.target_value.parameters(), wanted.target_value.parameters(), strict=True)
    for of_one, reference in targets:
        torch.testing.assert_close(of_one.double(), reference, rtol=1e-3, atol=1e-5)


ONE_OF_EACH = {
    "continuous": ActionSpec.create_continuous(3),
    "discrete": ActionSpec.create_discrete((3, 2)),
    "hybrid": HYBRID,
}
every_action = pytest.mark.parametrize("actions", ONE_OF_EACH.values(), ids=ONE_OF_EACH)


@needs_library
@every_action
@pytest.mark.parametrize("max_grad_norm", [None, 0.1])
def test_many_steps_lead_to_the_same_weights(
    actions: ActionSpec, max_grad_norm: float | None
) -> None:
    spec = behavior(actions)
    of = settings(learning_rate=1e-3, max_grad_norm=max_grad_norm)
    batch = minibatch(spec, 16 * 20)
    found, wanted = make_sac(spec, of), make_sac(spec, of, torch.float64)
    losses = natively(found, batch, 16)
    reference = by_autograd(wanted, in_float64(batch), 16)
    torch.testing.assert_close(losses, reference, rtol=1e-3, atol=1e-4)
    for ours, theirs in zip(weights_of(found), weights_of(wanted), strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-3, atol=1e-4)
    assert isinstance(found.optimizer, Adam)
    assert all(state["step"] == 20 for state in found.optimizer.state_dict()["state"].values())


@needs_library
@every_action
def test_one_call_and_several_compute_the_same_bits(actions: ActionSpec) -> None:
    spec, of = behavior(actions), settings()
    batch = minibatch(spec, 64)
    together, apart = make_sac(spec, of), make_sac(spec, of)
    wanted = natively(together, batch, 16)
    native = NativeSAC(apart, PART.load())
    found = [native.learn(part, apart.rewards(part), 16) for part in batch.split([16] * 4)]
    assert torch.equal(torch.cat(found), wanted)
    for ours, theirs in zip(weights_of(apart), weights_of(together), strict=True):
        assert torch.equal(ours, theirs)


def loads_a_checkpoint(sac: SAC, other: SAC) -> None:
    for name, module in sac.modules().items():
        module.load_state_dict(other.modules()[name].state_dict())


def learns_by_pytorch(sac: SAC, other: SAC) -> None:
    SAC.take_one(sac, minibatch(sac.spec, 16, seed=5))


def clones(sac: SAC, other: SAC) -> None:
    optimizer = Adam(sac.actor.parameters(), 1e-2)
    for parameter in sac.actor.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


@needs_library
@pytest.mark.parametrize("change", [loads_a_checkpoint, learns_by_pytorch, clones])
def test_changes_by_pytorch_count_at_the_next_step(change: Callable[[SAC, SAC], None]) -> None:
    spec, of = behavior(), settings(learning_rate=1e-2)
    batch = minibatch(spec, 16)
    sac, other = make_sac(spec, of), make_sac(spec, of)
    native = NativeSAC(sac, PART.load())
    native.learn(batch, sac.rewards(batch), 16)
    by_autograd(other, minibatch(spec, 32, seed=7), 16)
    change(sac, other)
    fresh = make_sac(spec, of)
    loads_a_checkpoint(fresh, sac)
    found = native.learn(batch, sac.rewards(batch), 16)
    assert torch.equal(found, natively(fresh, batch, 16))
    for ours, theirs in zip(weights_of(sac), weights_of(fresh), strict=True):
        assert torch.equal(ours, theirs)


@needs_library
def test_minibatches_may_be_of_another_size() -> None:
    spec, of = behavior(), settings()
    sac, wanted = make_sac(spec, of), make_sac(spec, of, torch.float64)
    native = NativeSAC(sac, PART.load())
    for n_rows in (16, 5, 16):
        batch = minibatch(spec, n_rows, seed=n_rows)
        found = native.learn(batch, sac.rewards(batch), n_rows)
        reference = by_autograd(wanted, in_float64(batch), n_rows)
        torch.testing.assert_close(found, reference, rtol=1e-4, atol=1e-5)


@needs_library
def test_a_closed_algorithm_stops_before_the_next_minibatch() -> None:
    spec = behavior()
    sac = make_sac(spec, settings())
    before = [weight.clone() for weight in weights_of(sac)]
    sac.close()
    with pytest.raises(ClosedError):
        natively(sac, minibatch(spec, 32), 16)
    for weight, kept in zip(weights_of(sac), before, strict=True):
        assert torch.equal(weight, kept)


@needs_library
@every_action
@pytest.mark.parametrize("field", ["obs", "next_obs", "reward"])
def test_nan_in_the_middle_reaches_the_weights(field: str, actions: ActionSpec) -> None:
    # From there, acting and saving notice it, and name behavior and step.
    spec = behavior(actions)
    sac, batch = make_sac(spec, settings()), minibatch(spec, 64)
    batch.terminated[:] = False
    broken = batch.reward if field == "reward" else getattr(batch, field)[0]
    broken[40] = torch.nan
    losses = natively(sac, batch, 16)
    assert losses[:2].isfinite().all() and not losses[2:].isfinite().all()
    assert sac.has_diverged


def trained(dense: str, n_steps: int, **of: Any) -> list[Tensor]:
    env = GuessEnvironment(ActionSpec.create_hybrid(1, (3,)), n_agents=8)
    env.reset()
    chosen = settings(learning_rate=3e-3, buffer_size=1000, steps_per_update=2.0, **of)
    trainer = make_trainer(env, chosen, torch_settings=TorchSettings(dense=dense))
    train_while(lambda: trainer.step < n_steps, trainer, env)
    algorithm = trainer.learner.algorithm
    assert isinstance(algorithm, FastSAC)
    assert (algorithm.native is None) == (dense == "torch")
    return [w.detach() for w in algorithm.actor.parameters()]


@needs_library
@pytest.mark.parametrize("signals", [{"extrinsic": {}}, {"extrinsic": {}, "rnd": {}}])
def test_a_trainer_learns_the_same_bits_from_the_same_seed(signals: dict[str, Any]) -> None:
    first, second = (trained(dense, 512, signals=signals) for dense in ("native", "auto"))
    for weight, again in zip(first, second, strict=True):
        assert torch.equal(weight, again)
    by_torch = trained("torch", 512, signals=signals)
    assert any(not torch.equal(a, b) for a, b in zip(first, by_torch, strict=True))
    for weight, reference in zip(first, by_torch, strict=True):
        torch.testing.assert_close(weight, reference, rtol=0.05, atol=0.02)


def fast(of: BehaviorSettings | None = None, **chosen: Any) -> FastSAC:
    compute = Compute.of(TorchSettings.model_validate(chosen), CPU)
    return FastSAC(behavior(), of or settings(), device=CPU, seed=0, compute=compute)


def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Part(
        "sac",
        version=1,
        declare=lambda functions: None,
        check=lambda functions: None,
        otherwise="PyTorch",
        open_library=lambda: NativeError("it was not built."),
    )
    monkeypatch.setattr(sac_by_hand, "PART", absent)


def test_without_the_library_pytorch_learns_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_library(monkeypatch)
    for _ in range(2):
        assert fast().native is None
    printed = capsys.readouterr().out
    assert printed.count("sac: computed by PyTorch, without the native library: it was not") == 1


def test_a_library_that_is_required_and_missing_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_library(monkeypatch)
    with pytest.raises(UnityTrainerException, match="cannot be used: it was not built"):
        fast(dense="native")


@pytest.mark.parametrize(
    "of",
    [
        settings({"hidden_units": 1024}, batch_size=512, buffer_size=1000),
        settings({"memory": {"memory_size": 4, "sequence_length": 2}}),
    ],
    ids=["wide", "memory"],
)
def test_pytorch_learns_what_the_library_does_not_or_not_as_fast(of: BehaviorSettings) -> None:
    assert fast(of).native is None


@pytest.mark.parametrize(
    "chosen", [{"dense": "torch"}, {"mixed_precision": True}, {"compile": True}]
)
def test_settings_can_choose_pytorch(chosen: dict[str, Any]) -> None:
    assert fast(**chosen).native is None


@needs_library
def test_a_library_with_other_results_steps_aside() -> None:
    functions = PART.load()

    class Wrong:
        def __getattr__(self, name: str) -> Any:
            if name != "sac_learn":
                return getattr(functions, name)

            def wrong(learner: Any, batch: Any, of: Any, *others: Any) -> Any:
                of.learning_rate += 1e-3
                return functions.sac_learn(learner, batch, of, *others)

            return wrong

    with pytest.raises(NativeError, match="differs from PyTorch's by"):
        PART._check(Wrong())
