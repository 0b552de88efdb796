"""Lower precision and compiling change how fast is learned, and nothing else."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from actors import CASES, Case, make_actor, memories, observations
from guess_environment import GuessEnvironment
from mlagents.trainers.algorithms.ppo import PPO
from mlagents.trainers.fast.compute import PLAIN, Compiled, Compute
from mlagents.trainers.networks.layers import Sequences
from mlagents.trainers.networks.twin_q import TwinQ
from mlagents.trainers.settings.behavior import BehaviorSettings, NetworkSettings
from mlagents.trainers.settings.run_options import TorchSettings
from mlagents_envs.base_env import ActionSpec
from training_loop import make_trainer, train_while

CPU = torch.device("cpu")
MIXED = TorchSettings(mixed_precision=True)
LOW = Compute.of(MIXED, CPU)
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def settings(trainer_type: str, **written: Any) -> BehaviorSettings:
    hyperparameters = {"batch_size": 32, "buffer_size": 256, "learning_rate": 3e-3}
    if trainer_type == "sac":
        hyperparameters |= {"buffer_size": 5000, "steps_per_update": 4, "init_entcoef": 0.1}
    return BehaviorSettings.model_validate(
        {
            "trainer_type": trainer_type,
            "time_horizon": 8,
            "hyperparameters": hyperparameters,
            "network_settings": {"hidden_units": 16, "num_layers": 1},
            **written,
        }
    )


# ------------------------------------------------------------------------------- mixed precision


def assert_near(found: Tensor, wanted: Tensor) -> None:
    """Check that two tensors differ by rounding to 8 binary digits, here and there summed up."""
    found, wanted = found.detach(), wanted.detach()
    assert found.dtype is torch.float32
    assert not torch.equal(found, wanted), "nothing was computed in lower precision"
    assert ((found - wanted).norm() / wanted.norm()).item() < 0.03


def gradients(network: nn.Module) -> Tensor:
    parts = [p.grad.flatten() for p in network.parameters() if p.grad is not None]
    network.zero_grad()
    return torch.cat(parts)


@every_case
def test_a_body_encodes_and_learns_nearly_the_same_in_lower_precision(case: Case) -> None:
    found = []
    for compute in (PLAIN, LOW):
        actor = make_actor(case.spec, compute=compute, **case.settings)
        rng = np.random.default_rng(1)
        obs = [torch.from_numpy(batch) for batch in observations(case.spec, 32, rng)]
        memory = torch.from_numpy(memories(actor, 8, rng))
        sequences = Sequences(memory, torch.arange(32), 4) if actor.body.memory_size else None
        encoding = actor.body(obs, sequences)
        encoding.square().sum().backward()
        found.append((encoding, gradients(actor.body)))
    (exact, exact_gradient), (low, low_gradient) = found
    assert_near(low, exact)
    assert_near(low_gradient, exact_gradient)


@every_case
def test_both_q_value_actions_nearly_the_same_in_lower_precision(case: Case) -> None:
    rng = np.random.default_rng(1)
    written = NetworkSettings.model_validate({"hidden_units": 16} | case.settings)
    obs = [torch.from_numpy(batch) for batch in observations(case.spec, 32, rng)]
    actions = torch.rand(32, case.spec.action_spec.continuous_size)
    memory_size = written.memory.memory_size if written.memory else 0
    memory = torch.from_numpy(rng.uniform(-1, 1, (8, memory_size)).astype("f4"))
    sequences = Sequences(memory, torch.arange(32), 4) if memory_size else None
    found = []
    for compute in (PLAIN, LOW):
        torch.manual_seed(0)
        without = written.model_copy(update={"normalize": False})
        q = TwinQ(case.spec, without, n_signals=2, compute=compute)
        found.append(q(q.encode(obs), actions, sequences))
    exact, low = found
    assert_near(low, exact)


def test_agents_act_in_full_precision() -> None:
    case = CASES["everything"]
    steps = []
    for compute in (PLAIN, LOW):
        actor = make_actor(case.spec, compute=compute, **case.settings)
        rng = np.random.default_rng(1)
        obs = [torch.from_numpy(batch) for batch in observations(case.spec, 4, rng)]
        steps.append(actor.body.step(obs, torch.from_numpy(memories(actor, 4, rng))))
    for found, wanted in zip(*steps, strict=True):
        assert torch.equal(found, wanted)


SIGNALS = {"extrinsic": {}, "curiosity": {}, "rnd": {}}


@pytest.mark.parametrize("trainer_type", ["ppo", "sac"])
def test_every_signal_learns_in_lower_precision(trainer_type: str) -> None:
    env = GuessEnvironment()
    trainer = make_trainer(
        env, settings(trainer_type, reward_signals=SIGNALS, max_steps=260), torch_settings=MIXED
    )
    networks = {
        name: nn.utils.parameters_to_vector(module.parameters()).detach().clone()
        for name, module in trainer.learner.algorithm.modules().items()
        if isinstance(module, nn.Module) and name != "Module:RND-target"
    }
    train_while(lambda: trainer.is_learning, trainer, env)
    assert not trainer.learner.has_diverged
    for name, before in networks.items():
        module = trainer.learner.algorithm.modules()[name]
        after = nn.utils.parameters_to_vector(module.parameters())
        assert after.dtype is torch.float32
        assert not torch.equal(after, before), name


@pytest.mark.slow
@pytest.mark.parametrize("trainer_type", ["ppo", "sac"])
def test_a_task_is_solved_in_lower_precision(trainer_type: str) -> None:
    # Episodes have four steps, worth 1 each at best and 0.5 to who knows nothing.
    env = GuessEnvironment(ActionSpec.create_continuous(1))
    trainer = make_trainer(env, settings(trainer_type, max_steps=12_000), torch_settings=MIXED)
    train_while(lambda: trainer.is_learning and (trainer.mean_reward or 0) < 3.0, trainer, env)
    assert trainer.mean_reward is not None and trainer.mean_reward >= 3.0


# ------------------------------------------------------------------------------------- compiling


def with_backend(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **_options: compile(f, backend=backend))


def plotted_by(trainer_type: str, accelerated: TorchSettings, **network: Any) -> list[float]:
    """Train for some updates; return all that they plot."""
    env, plotted = GuessEnvironment(ActionSpec.create_hybrid(1, (3,))), []
    written = settings(
        trainer_type,
        max_steps=200 if trainer_type == "sac" else 600,
        network_settings={"hidden_units": 8, "num_layers": 1, **network},
    )
    trainer = make_trainer(env, written, torch_settings=accelerated)
    trainer.meter.plot = lambda plots: plotted.extend(v for each in plots for v in each.values())
    train_while(lambda: trainer.is_learning, trainer, env)
    assert len(plotted) > 10
    return plotted


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # the compiler's own look at an LSTM
@pytest.mark.parametrize(
    ("trainer_type", "network"),
    [
        ("ppo", {}),
        pytest.param("sac", {}, marks=pytest.mark.nightly),
        ("sac", {"memory": {"memory_size": 4, "sequence_length": 4}}),
    ],
)
def test_what_is_compiled_gives_the_same(
    trainer_type: str,
    network: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # All of the way but the compiler's own: that takes minutes.
    with_backend("aot_eager", monkeypatch)
    torch.compiler.reset()
    compiled = plotted_by(trainer_type, TorchSettings(compile=True), **network)
    assert "compil" not in capsys.readouterr().out
    assert compiled == pytest.approx(plotted_by(trainer_type, TorchSettings(), **network), rel=1e-3)


@pytest.mark.slow
def test_a_function_is_compiled() -> None:
    torch.compiler.reset()
    compiled = Compiled(lambda x: (x.sin() * x).sum())
    x = torch.arange(3.0, requires_grad=True)
    value = compiled(x)
    (slope,) = torch.autograd.grad(value, x)
    assert value.item() == pytest.approx(sum(i * np.sin(i) for i in range(3)))
    assert slope.tolist() == pytest.approx([np.sin(i) + i * np.cos(i) for i in range(3)])


def counting_compiler(fails: Exception | None) -> tuple[list[object], Callable[..., Any]]:
    compiled: list[object] = []

    def compile(function: Callable[..., Any], **_options: Any) -> Callable[..., Any]:
        compiled.append(function)
        if fails is not None:
            raise fails
        return function

    return compiled, compile


def test_without_a_compiler_learning_goes_on_after_one_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled, compile = counting_compiler(RuntimeError("No working C++ compiler found\nin 1, 2"))
    monkeypatch.setattr(torch, "compile", compile)
    function = Compiled(lambda x: x + 1)
    assert [function(1), function(2)] == [2, 3]
    log = capsys.readouterr().out
    assert log.count("No working C++ compiler found. Learning continues without") == 1
    assert "variable CXX" in log
    assert len(compiled) == 1, "it is not tried again"


def test_an_error_of_the_losses_is_not_blamed_on_the_compiler(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, compile = counting_compiler(None)
    monkeypatch.setattr(torch, "compile", compile)
    function = Compiled(lambda x: 1 / x)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            function(0)
    assert not capsys.readouterr().out
    assert function(2) == 0.5


def test_losses_are_compiled_only_where_they_are_asked_for() -> None:
    for asked_for in (False, True):
        trainer = make_trainer(
            GuessEnvironment(), settings("ppo"), torch_settings=TorchSettings(compile=asked_for)
        )
        ppo = trainer.learner.algorithm
        assert isinstance(ppo, PPO)
        assert isinstance(ppo.losses, Compiled) is asked_for
