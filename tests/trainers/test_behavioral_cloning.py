"""Behavioral cloning, beside reinforcement learning and alone."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from actors import behavior
from mlagents.trainers.algorithms.bc import BC
from mlagents.trainers.algorithms.behavioral_cloning import (
    BehavioralCloning,
    DemonstrationSet,
    cloning_loss,
)
from mlagents.trainers.algorithms.optimizer import adam, descend
from mlagents.trainers.networks.actor_critic import Actor
from mlagents.trainers.reporting.stats import HELD_OUT_ACCURACY, HELD_OUT_ERROR
from mlagents.trainers.settings.behavior import BehaviorSettings, MemorySettings
from mlagents_envs.base_env import ActionSpec, BehaviorSpec
from recorded import record_guesses
from steps import layer, make_demonstrations, make_transitions, swish, weights
from training_loop import note_steps

CPU = torch.device("cpu")
SPEC = behavior(3, continuous=2, branches=(3, 2))
GUESS = behavior(1, 2, continuous=1, branches=(3,))
SMALL = {"hidden_units": 4, "num_layers": 1}
MEMORY = MemorySettings(sequence_length=3, memory_size=4)


def settings(trainer_type: str = "ppo", **written: Any) -> BehaviorSettings:
    defaults = {
        "trainer_type": trainer_type,
        "hyperparameters": {"batch_size": 4, "buffer_size": 8, "learning_rate": 1e-2},
        "network_settings": SMALL,
    }
    return BehaviorSettings.model_validate(defaults | written)


def make_actor(spec: BehaviorSpec = SPEC, **written: Any) -> Actor:
    torch.manual_seed(0)
    return Actor(spec, settings(**written).network_settings)


def test_the_loss_follows_its_equations() -> None:
    actor = make_actor()
    with torch.no_grad():
        actor.heads.log_std.copy_(torch.tensor([0.3, -0.2]))
    batch = make_transitions(SPEC, 5, np.random.default_rng(0))
    generator = torch.Generator().manual_seed(3)

    loss = cloning_loss(actor, batch, None, SPEC, generator)

    w = weights(actor)
    encoding = swish(layer(w, "body.dense.0", batch.obs[0].double().numpy()))
    noise = torch.randn(5, 2, generator=torch.Generator().manual_seed(3)).numpy()
    sampled = layer(w, "heads.mean", encoding) + np.exp(w["heads.log_std"]) * noise
    # An environment sees a third of what is sampled.
    squares = ((sampled / 3 - batch.continuous.numpy()) ** 2).mean()
    logits = layer(w, "heads.logits", encoding)
    entropies = []
    for branch, of_branch in enumerate((logits[:, :3], logits[:, 3:])):
        log_p = of_branch - np.log(np.exp(of_branch).sum(1, keepdims=True))
        entropies.append(-log_p[np.arange(5), batch.discrete[:, branch].numpy()].mean())
    assert loss.item() == pytest.approx(squares + np.mean(entropies), rel=1e-5)


def test_a_clone_acts_at_the_experts_scale() -> None:
    # The expert always answers 0.9, which the environment must be sent: 2.7 before the division.
    spec = behavior(1, continuous=1)
    actor = make_actor(spec)
    steps = make_transitions(spec, 32, np.random.default_rng(0))
    steps = steps._replace(continuous=torch.full((32, 1), 0.9))
    optimizer = adam(actor.parameters(), 2e-2)
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        descend(cloning_loss(actor, steps, None, spec, generator), optimizer)
    sent = actor.heads.environment_actions(actor.body(steps.obs))
    assert sent.mean().item() == pytest.approx(0.9, abs=0.05)


def test_minibatches_are_the_demonstrations_in_another_order() -> None:
    demonstrations = make_demonstrations(SPEC, [5, 4, 3], np.random.default_rng(0))
    for memory in (None, MEMORY):
        expert = DemonstrationSet(demonstrations, memory, CPU)
        dealt = list(expert.minibatches(3, torch.Generator().manual_seed(0)))
        rows = torch.cat([batch.reward for batch, _ in dealt]).sort().values
        assert len(dealt) == (4 if memory is None else 5)  # sequences of 3 2 | 3 1 | 3
        torch.testing.assert_close(rows, expert.steps.reward.sort().values)


def test_sequences_begin_without_a_memory() -> None:
    demonstrations = make_demonstrations(SPEC, [4], np.random.default_rng(0))
    expert = DemonstrationSet(demonstrations, MEMORY, CPU)
    actor = make_actor(network_settings=SMALL | {"memory": MEMORY})
    for batch, sequences in expert.minibatches(1, torch.Generator().manual_seed(0)):
        memory = torch.zeros(1, 4)
        expected = []
        for row in range(len(batch.reward)):
            encoding, memory = actor.body.step([batch.obs[0][row : row + 1]], memory)
            expected.append(encoding)
        torch.testing.assert_close(actor.body(batch.obs, sequences), torch.cat(expected))


@pytest.mark.parametrize(
    ("written", "n_gradient_steps"),
    [
        ({}, 3 * 6),  # three passes over 24 steps, four at once
        ({"num_epoch": 2}, 2 * 6),
        ({"batch_size": 6}, 3 * 4),
        ({"samples_per_update": 9}, 3 * 2),
        ({"samples_per_update": 2}, 3 * 1),
        ({"samples_per_update": 1000, "batch_size": 1000}, 3 * 1),
    ],
)
def test_how_much_one_update_learns(
    tmp_path: Path, written: dict[str, int], n_gradient_steps: int
) -> None:
    cloning, steps_taken = make_cloning(tmp_path, **written)
    cloning.update(step=0)
    assert len(steps_taken) == n_gradient_steps


def test_cloning_fades_out(tmp_path: Path) -> None:
    cloning, rates = make_cloning(tmp_path, strength=0.5, steps=100)
    for step in (0, 40, 99):
        assert cloning.update(step=step).keys() == {"Losses/Pretraining Loss"}
    n_taken = len(rates)
    np.testing.assert_allclose(rates[:: n_taken // 3], [5e-3, 3e-3, 5e-5], rtol=1e-4)
    assert cloning.update(step=100) == {}
    assert len(rates) == n_taken


def test_cloning_without_an_end_keeps_its_rate(tmp_path: Path) -> None:
    cloning, rates = make_cloning(tmp_path)
    cloning.update(step=10**9)
    assert set(rates) == {1e-2}


def make_cloning(folder: Path, **written: Any) -> tuple[BehavioralCloning, list[float]]:
    """Make cloning from 24 demonstrated steps, and a list of the rates of its gradient steps."""
    demo = record(folder, n_steps=3)
    with_cloning = settings(behavioral_cloning={"demo_path": str(demo)} | written)
    cloning = BehavioralCloning(
        make_actor(GUESS), GUESS, with_cloning, device=CPU, generator=torch.Generator()
    )
    assert cloning.expert.n_steps == 24
    rates: list[float] = []
    note_steps(cloning.optimizer, rates)
    return cloning, rates


def record(folder: Path, *, n_steps: int = 12) -> Path:
    spec = ActionSpec.create_hybrid(1, (3,))
    return record_guesses(folder / "expert.demo", spec, n_steps=n_steps)


def make_bc(demo: Path, *, inference: bool = False, **hyperparameters: Any) -> BC:
    numbers = {"batch_size": 8, "buffer_size": 64, "learning_rate": 1e-2} | hyperparameters
    written = settings(
        "bc",
        hyperparameters=numbers,
        network_settings={"hidden_units": 32, "num_layers": 1, "normalize": True},
        behavioral_cloning={"demo_path": str(demo)},
        max_steps=1000,
    )
    return BC(GUESS, written, device=CPU, seed=0, inference=inference)


def test_what_is_learned_holds_for_episodes_held_out(tmp_path: Path) -> None:
    bc = make_bc(record(tmp_path, n_steps=100))
    before = bc._judge()
    for _ in range(10):
        plotted = bc.update(800, step=0)
    assert before[HELD_OUT_ACCURACY] < 0.8 and plotted[HELD_OUT_ACCURACY] > 0.9
    assert before[HELD_OUT_ERROR] > 0.2 and plotted[HELD_OUT_ERROR] < 0.02


def test_the_judgment_by_hand(tmp_path: Path) -> None:
    bc = make_bc(record(tmp_path))
    assert bc.held_out is not None
    steps = bc.held_out.steps
    with torch.no_grad():
        bc.actor.heads.logits.weight.zero_()
        bc.actor.heads.logits.bias.copy_(torch.tensor([0.0, 1.0, 0.5]))  # always chooses 1
        bc.actor.heads.mean.weight.zero_()
        bc.actor.heads.mean.bias.fill_(6.0)  # cut to 1, not 2
    judged = bc._judge()
    assert judged[HELD_OUT_ACCURACY] == pytest.approx((steps.discrete == 1).float().mean().item())
    assert judged[HELD_OUT_ERROR] == pytest.approx((1 - steps.continuous).square().mean().item())


def test_nothing_is_judged_if_nothing_is_held_out(tmp_path: Path) -> None:
    bc = make_bc(record(tmp_path), held_out=0.0)
    assert bc.update(8, step=0).keys() == {"Losses/Pretraining Loss", "Policy/Learning Rate"}


def test_a_resumed_clone_goes_on_as_before(tmp_path: Path) -> None:
    demo = record(tmp_path)
    saved, resumed = make_bc(demo), make_bc(demo)
    saved.update(100, step=0)
    for name, module in resumed.modules().items():
        module.load_state_dict(copy.deepcopy(saved.modules()[name].state_dict()))
    resumed.generator.set_state(saved.generator.get_state())
    assert saved.update(100, step=100) == resumed.update(100, step=100)


def test_acting_looks_for_no_demonstration(tmp_path: Path) -> None:
    make_bc(tmp_path / "gone.demo", inference=True)


def test_statistics_are_of_what_is_learned_from(tmp_path: Path) -> None:
    bc = make_bc(record(tmp_path))
    assert bc.expert is not None
    normalizer = bc.actor.body.observations.encoders[0].normalizer
    n_steps = bc.expert.n_steps
    torch.testing.assert_close(
        normalizer.shift, bc.expert.steps.obs[0].sum(0) / (n_steps + 1), rtol=1e-5, atol=1e-6
    )
