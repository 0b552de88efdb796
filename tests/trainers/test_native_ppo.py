"""The native library against PyTorch, its reference: gradients, and training."""

import logging
from itertools import pairwise
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor, nn

from guess_environment import GuessEnvironment
from mlagents.trainers.algorithms.base import ClosedError
from mlagents.trainers.algorithms.optimizer import Adam
from mlagents.trainers.algorithms.ppo import PPO, Rows
from mlagents.trainers.algorithms.proximal import Batch
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.fast import native_ppo
from mlagents.trainers.fast.compute import PLAIN, Compute
from mlagents.trainers.fast.native_dense import WIDEST
from mlagents.trainers.fast.native_ppo import PART, FastPPO, NativePPO, by_autograd
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.run_options import TorchSettings
from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec
from mlagents_native.library import INSTRUCTION_SETS, Library, NativeError, Part
from native_parts import ACTION_SIZES, functions_of, with_library
from training_loop import make_trainer, train_while

CPU = torch.device("cpu")

needs_library = pytest.mark.skipif(
    PART.load() is None, reason=f"the native library cannot be used: {PART.reason}"
)


def behavior(
    *, observed: tuple[int, ...] = (5,), continuous: int = 2, branches: tuple[int, ...] = ()
) -> BehaviorSpec:
    return BehaviorSpec(
        [ObservationSpec.vector(size, f"vector {i}") for i, size in enumerate(observed)],
        ActionSpec(continuous_size=continuous, discrete_branches=branches),
    )


def settings(
    network: dict[str, Any] | None = None, n_signals: int = 1, **hyperparameters: Any
) -> BehaviorSettings:
    signals = {"extrinsic": {}, "curiosity": {}, "rnd": {}}
    return BehaviorSettings.model_validate(
        {
            "trainer_type": "ppo",
            "hyperparameters": hyperparameters,
            "network_settings": {"hidden_units": 12, "num_layers": 2} | (network or {}),
            "reward_signals": dict(list(signals.items())[:n_signals]),
        }
    )


def make_ppo(spec: BehaviorSpec, of: BehaviorSettings, dtype: torch.dtype = torch.float32) -> PPO:
    ppo = PPO(spec, of, device=CPU, seed=3, inference=True)
    for name, weight in ppo.network.named_parameters():
        if "bias" in name or "log_std" in name:  # they begin at zero
            nn.init.normal_(weight, std=0.3, generator=torch.Generator().manual_seed(4))
    if dtype is not torch.float32:
        ppo.network.to(dtype)
    return ppo


def make_batch(spec: BehaviorSpec, n: int, n_signals: int, seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    action = spec.action_spec
    n_components = action.continuous_size + action.discrete_size

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(rng.standard_normal(shape, np.float32))

    branches = action.discrete_branches
    chosen = [rng.integers(0, size, n) for size in branches]
    discrete = np.array(chosen, np.int64).reshape(len(branches), n).T.copy()
    mask = rng.random((n, sum(branches))) < 0.3
    firsts = np.cumsum([0, *branches])[:-1].astype(int)
    for branch, first in enumerate(firsts):
        mask[np.arange(n), first + discrete[:, branch]] = False
    return Batch(
        obs=[2 * normal(n, *each.shape) for each in spec.observation_specs],
        continuous=normal(n, action.continuous_size),
        discrete=torch.from_numpy(discrete),
        action_mask=torch.from_numpy(mask),
        old_log_probs=0.3 * normal(n, n_components) - 1.2,
        old_values=0.5 * normal(n, n_signals),
        advantages=normal(n, 1),
        returns=normal(n, n_signals),
    )


def as_double(batch: Batch) -> Batch:
    fields = [field.double() if field.is_floating_point() else field for field in batch[1:]]
    return Batch([obs.double() for obs in batch.obs], *fields)


def means_of(ppo: PPO) -> list[Tensor]:
    """Return Adam's running means: after one step, a tenth of the gradients."""
    assert isinstance(ppo.optimizer, Adam)
    return [mean for mean, _ in ppo.optimizer.moments()[0].values()]


@needs_library
@pytest.mark.parametrize("instructions", INSTRUCTION_SETS)
@pytest.mark.parametrize("case", ACTION_SIZES)
@hypothesis_settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data())
def test_the_gradients_are_those_of_autograd(
    data: st.DataObject, case: str, instructions: str
) -> None:
    functions = functions_of(PART, instructions)
    spec = behavior(
        observed=data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3).map(tuple)),
        **{name: data.draw(strategy) for name, strategy in ACTION_SIZES[case].items()},
    )
    n_signals, n_rows = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 150))
    of = settings(
        {
            "hidden_units": data.draw(st.integers(1, 70)),
            "num_layers": data.draw(st.integers(1, 3)),
            "normalize": data.draw(st.booleans()),
        },
        n_signals,
        shared_critic=data.draw(st.booleans()),
        joint_ratio=data.draw(st.booleans()),
        joint_entropy=data.draw(st.booleans()),
        clip_values=data.draw(st.booleans()),
        max_grad_norm=data.draw(st.sampled_from([None, 0.01, 1e6])),
    )
    batch = make_batch(spec, n_rows, n_signals, data.draw(st.integers(0, 1000)))
    epsilon, beta = data.draw(st.floats(0.0, 0.5)), data.draw(st.floats(0.0, 0.1))
    found, wanted = make_ppo(spec, of), make_ppo(spec, of, torch.float64)
    rows: list[Rows] = [(torch.randperm(n_rows), None)]
    of_found = NativePPO(found, functions).epochs(batch, epsilon, beta)(rows)
    of_wanted = by_autograd(wanted, as_double(batch), epsilon, beta)(rows)
    torch.testing.assert_close(of_found, of_wanted, rtol=1e-5, atol=1e-6)
    largest = max(mean.abs().max().item() for mean in means_of(wanted))
    for of_one, reference in zip(means_of(found), means_of(wanted), strict=True):
        difference = (of_one - reference).abs().max().item()
        # The second term is the rounding of differences between numbers of order 1.
        assert difference <= 1e-6 * largest + 5e-8


@needs_library
def test_several_steps_lead_to_the_same_weights() -> None:
    spec, of = behavior(branches=(3, 2)), settings(learning_rate=1e-3, batch_size=16)
    batch = make_batch(spec, 128, 1, 0)
    found, wanted = make_ppo(spec, of), make_ppo(spec, of)
    native = NativePPO(found, PART.load()).epochs(batch, 0.2, 0.01)
    reference = by_autograd(wanted, batch, 0.2, 0.01)
    for _ in range(3):
        rows: list[Rows] = [(each, None) for each in torch.randperm(128).view(-1, 16)]
        torch.testing.assert_close(native(rows).float(), reference(rows), rtol=1e-4, atol=1e-5)
    for of_found, of_wanted in zip(
        found.network.parameters(), wanted.network.parameters(), strict=True
    ):
        torch.testing.assert_close(of_found, of_wanted, rtol=1e-3, atol=1e-5)
    saved, reference_state = found.optimizer.state_dict(), wanted.optimizer.state_dict()
    assert saved["state"].keys() == reference_state["state"].keys()
    assert all(state["step"] == 24 for state in saved["state"].values())


@needs_library
def test_library_and_pytorch_can_alternate() -> None:
    # A behavior continues with either of them from the checkpoint of the other.
    spec, of = behavior(), settings(learning_rate=1e-3)
    batch = make_batch(spec, 64, 1, 0)
    rows: list[Rows] = [(torch.arange(64), None)]
    mixed, wanted = make_ppo(spec, of), make_ppo(spec, of)
    reference = by_autograd(wanted, batch, 0.2, 0.01)
    native = NativePPO(mixed, PART.load()).epochs(batch, 0.2, 0.01)
    own = by_autograd(mixed, batch, 0.2, 0.01)
    for learn in (own, native, own, native):
        torch.testing.assert_close(
            learn(rows).double(), reference(rows).double(), rtol=1e-4, atol=1e-5
        )
    for of_mixed, of_wanted in zip(
        mixed.network.parameters(), wanted.network.parameters(), strict=True
    ):
        torch.testing.assert_close(of_mixed, of_wanted, rtol=1e-4, atol=1e-5)


@needs_library
def test_nothing_but_the_weights_of_the_rows_is_written() -> None:
    # Acting policies and checkpoints hold copies; the buffers stay as they were.
    spec, of = behavior(), settings({"normalize": True})
    ppo = make_ppo(spec, of)
    batch = make_batch(spec, 32, 1, 0)
    kept = Batch([obs.clone() for obs in batch.obs], *(field.clone() for field in batch[1:]))
    snapshot = ppo.snapshot()
    obs = [each.numpy() for each in batch.obs]
    before = snapshot.forward(obs, np.zeros((32, 0), np.float32)).mean
    NativePPO(ppo, PART.load()).epochs(batch, 0.2, 0.01)([(torch.arange(32), None)])
    for found, wanted in pairwise([batch, kept]):
        for of_found, of_wanted in zip(found[1:], wanted[1:], strict=True):
            assert torch.equal(of_found, of_wanted)
        assert torch.equal(found.obs[0], wanted.obs[0])
    after = snapshot.forward(obs, np.zeros((32, 0), np.float32)).mean
    assert before is not None and after is not None
    np.testing.assert_array_equal(before, after)


@needs_library
@pytest.mark.parametrize("max_grad_norm", [None, 0.5])
def test_one_thread_and_two_compute_the_same_bits(max_grad_norm: float | None) -> None:
    spec, of = behavior(), settings(max_grad_norm=max_grad_norm)
    batch = make_batch(spec, 256, 1, 0)
    rows: list[Rows] = [(each, None) for each in torch.arange(256).view(-1, 32)]
    results, n_threads = [], torch.get_num_threads()
    try:
        for n in (1, 2, 2):
            torch.set_num_threads(n)
            ppo = make_ppo(spec, of)
            losses = NativePPO(ppo, PART.load()).epochs(batch, 0.2, 0.01)(rows)
            weights = [weight.detach().flatten() for weight in ppo.network.parameters()]
            results.append(torch.cat([losses.flatten(), *weights]))
    finally:
        torch.set_num_threads(n_threads)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@needs_library
def test_a_closed_algorithm_stops_before_the_next_minibatch() -> None:
    spec, of = behavior(), settings()
    ppo = make_ppo(spec, of)
    learn = NativePPO(ppo, PART.load()).epochs(make_batch(spec, 32, 1, 0), 0.2, 0.01)
    ppo.close()
    before = [weight.detach().clone() for weight in ppo.network.parameters()]
    with pytest.raises(ClosedError):
        learn([(torch.arange(32), None)])
    for weight, kept in zip(ppo.network.parameters(), before, strict=True):
        assert torch.equal(weight, kept)


@needs_library
def test_a_threaded_update_of_the_library_runs_beside_the_rollout() -> None:
    # An update that would take minutes runs in the library. Meanwhile agents act and Python sees
    # the first loss appear. It then ends the update.
    of = guess_settings(
        {"batch_size": 1, "buffer_size": 256, "num_epoch": 1, "shared_critic": True}, threaded=True
    )
    env = GuessEnvironment(ActionSpec.create_hybrid(1, (3,)), n_agents=8)
    env.reset()
    trainer = make_trainer(env, of, torch_settings=TorchSettings(dense="native"))
    ppo = trainer.learner.algorithm
    assert isinstance(ppo, FastPPO) and ppo.native is not None
    calls: SimpleQueue[np.ndarray] = SimpleQueue()
    functions = PART.load()
    n_minibatches = 50_000_000

    class Watched:
        def dense_ppo(self, *arguments: Any) -> int:
            networks, n, batch, chosen, _, _, size, step, _, stop = arguments
            many = np.zeros((n_minibatches, 1), np.int64)  # always the first row
            of_each = np.zeros((n_minibatches, 2))
            calls.put(of_each)
            done: int = functions.dense_ppo(
                *(networks, n, batch, chosen, many.ctypes.data, n_minibatches, size, step),
                *(of_each.ctypes.data, stop),
            )
            return done

    ppo.native._functions = Watched()  # type: ignore[assignment]
    train_while(lambda: trainer.learner._running is None, trainer, env)
    losses, step = calls.get(timeout=60), trainer.step
    while not losses[0].any():
        pass
    train_while(lambda: trainer.step < step + 64, trainer, env)
    running = trainer.learner._running
    assert running is not None and not running.done()
    trainer.learner.close()
    with pytest.raises(UnityTrainerException, match="was closed during an update"):
        trainer.learner.settle()
    assert isinstance(ppo.optimizer, Adam)
    assert 0 < ppo.optimizer.moments()[1] < n_minibatches


@needs_library
@pytest.mark.parametrize("field", ["obs", "returns", "advantages", "continuous"])
def test_nan_in_the_middle_of_an_update_reaches_the_weights(field: str) -> None:
    # From there, acting and saving notice it, and name behavior and step.
    spec, of = behavior(), settings()
    ppo = make_ppo(spec, of)
    batch = make_batch(spec, 64, 1, 0)
    broken = batch.obs[0] if field == "obs" else getattr(batch, field)
    broken[40, 0] = torch.nan
    rows: list[Rows] = [(each, None) for each in torch.arange(64).view(4, 16)]
    losses = NativePPO(ppo, PART.load()).epochs(batch, 0.2, 0.01)(rows)
    assert losses[:2].isfinite().all() and not losses.isfinite().all()
    assert ppo.has_diverged


def guess_settings(
    hyperparameters: dict[str, Any] | None = None, *, threaded: bool = False
) -> BehaviorSettings:
    default = {"batch_size": 32, "buffer_size": 256, "learning_rate": 3e-3}
    return BehaviorSettings.model_validate(
        {
            "trainer_type": "ppo",
            "time_horizon": 8,
            "threaded": threaded,
            "hyperparameters": default | (hyperparameters or {}),
            "network_settings": {"hidden_units": 16, "num_layers": 1},
        }
    )


def trained(dense: str, n_steps: int) -> tuple[list[Tensor], float]:
    env = GuessEnvironment(ActionSpec.create_hybrid(1, (3,)), n_agents=8)
    env.reset()
    trainer = make_trainer(env, guess_settings(), torch_settings=TorchSettings(dense=dense))
    train_while(lambda: trainer.step < n_steps, trainer, env)
    weights = [w.detach() for w in trainer.learner.algorithm.actor.parameters()]
    assert trainer.mean_reward is not None
    return weights, trainer.mean_reward


@needs_library
def test_a_trainer_learns_the_same_bits_from_the_same_seed() -> None:
    first, second = trained("native", 1024)[0], trained("auto", 1024)[0]
    for weight, again in zip(first, second, strict=True):
        assert torch.equal(weight, again)
    by_torch = trained("torch", 1024)[0]
    assert any(not torch.equal(a, b) for a, b in zip(first, by_torch, strict=True))
    for weight, reference in zip(first, by_torch, strict=True):
        torch.testing.assert_close(weight, reference, rtol=0.05, atol=0.01)


def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Part(
        "dense",
        version=1,
        declare=lambda functions: None,
        check=lambda functions: None,
        otherwise="PyTorch",
        open_library=lambda: NativeError("it was not built."),
    )
    monkeypatch.setattr(native_ppo, "PART", absent)


def fast(spec: BehaviorSpec, of: BehaviorSettings, **chosen: Any) -> FastPPO:
    compute = Compute.of(TorchSettings.model_validate(chosen), CPU)
    return FastPPO(spec, of, device=CPU, seed=0, compute=compute)


def test_without_the_library_pytorch_learns_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_library(monkeypatch)
    spec, of = behavior(), settings()
    for _ in range(2):
        assert fast(spec, of).native is None
    printed = capsys.readouterr().out
    assert printed.count("dense: computed by PyTorch, without the native library: it was no") == 1


def test_a_library_that_is_required_and_missing_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_library(monkeypatch)
    with pytest.raises(UnityTrainerException, match="cannot be used: it was not built"):
        fast(behavior(), settings(), dense="native")


@pytest.mark.parametrize(
    "of",
    [
        settings({"hidden_units": 2 * WIDEST}, batch_size=512),
        settings({"memory": {"memory_size": 4, "sequence_length": 2}}),
    ],
    ids=["wide", "memory"],
)
def test_pytorch_learns_what_the_library_does_not_or_not_as_fast(of: BehaviorSettings) -> None:
    assert fast(behavior(), of).native is None


@needs_library
def test_the_library_can_be_required_for_wide_networks() -> None:
    wide = settings({"hidden_units": 2 * WIDEST}, batch_size=512)
    assert fast(behavior(), wide, dense="native").native is not None


@pytest.mark.parametrize(
    "chosen", [{"dense": "torch"}, {"mixed_precision": True}, {"compile": True}]
)
def test_settings_can_choose_pytorch(chosen: dict[str, Any]) -> None:
    assert fast(behavior(), settings(), **chosen).native is None


def test_a_policy_that_only_acts_does_not_load_the_library() -> None:
    ppo = FastPPO(behavior(), settings(), device=CPU, seed=0, inference=True, compute=PLAIN)
    assert ppo.native is None


@needs_library
def test_a_library_with_other_results_steps_aside() -> None:
    functions = PART.load()

    class Wrong:
        def __getattr__(self, name: str) -> Any:
            if name != "dense_ppo":
                return getattr(functions, name)

            def wrong(networks: Any, n: int, batch: Any, of: Any, *others: Any) -> Any:
                of.beta += 1e-3
                return functions.dense_ppo(networks, n, batch, of, *others)

            return wrong

    with pytest.raises(NativeError, match="differs from PyTorch's by"):
        PART._check(Wrong())


@needs_library
def test_the_log_names_the_instruction_set(caplog: pytest.LogCaptureFixture) -> None:
    part = with_library(PART, Library(PART.load(), "baseline"))
    with caplog.at_level(logging.INFO):
        part.announce(logging.getLogger("a package"))
    assert "dense: computed by the native library with baseline instructions" in caplog.text
