"""What agents remember: the LSTM, the two networks that share a memory, and the rollout."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from actors import behavior, network_settings
from mlagents.trainers.algorithms.minibatches import deal_sequences
from mlagents.trainers.data.segments import Segments, cut_into
from mlagents.trainers.networks.actor_critic import ActorCritic
from mlagents.trainers.networks.layers import Memory, Sequences
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import ActionSpec
from samples import assert_normal
from tasks import Task
from training_loop import make_trainer, train_while

MEMORY_SIZE, N_IN = 6, 4


def make_memory() -> Memory:
    torch.manual_seed(0)
    module = Memory(N_IN, MEMORY_SIZE)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return module


def in_sequences(length: list[int], memory: Tensor, longest: int) -> Sequences:
    place = [s * longest + t for s, n_steps in enumerate(length) for t in range(n_steps)]
    return Sequences(memory, torch.tensor(place), longest)


# --------------------------------------------------------------------------------------------- LSTM


def test_one_step_by_hand() -> None:
    # One number in, one remembered as hidden and one as cell state: h = 0.5, c = 2, x = 1.
    # With all input weights 1, all recurrent weights 2 and biases of 0, but the cell's -2:
    # gates i = f = o = sigmoid(1 + 2 * 0.5) = sigmoid(2) = 0.880797, g = tanh(2 - 2) = 0.
    # c' = f * 2 + i * 0 = 1.761594, h' = o * tanh(c') = 0.880797 * 0.942681 = 0.830310.
    module = Memory(1, 2)
    with torch.no_grad():
        module.lstm.weight_ih_l0.fill_(1.0)
        module.lstm.weight_hh_l0.fill_(2.0)
        module.lstm.bias_ih_l0.zero_()
        module.lstm.bias_hh_l0.copy_(torch.tensor([0.0, 0.0, -2.0, 0.0]))
        encoding, memory = module.step(torch.tensor([[1.0]]), torch.tensor([[0.5, 2.0]]))
    torch.testing.assert_close(encoding, torch.tensor([[0.830310]]), rtol=0, atol=1e-5)
    torch.testing.assert_close(memory, torch.tensor([[0.830310, 1.761594]]), rtol=0, atol=1e-5)


def test_gates_start_xavier_uniform_each_and_forget_little() -> None:
    torch.manual_seed(0)
    lstm = Memory(60, 200).lstm
    for name, n_in in (("weight_ih_l0", 60), ("weight_hh_l0", 100)):
        weight = getattr(lstm, name).detach().double()
        assert weight.shape == (400, n_in)
        uniform = (weight / math.sqrt(6 / (100 + n_in)) + 1) / 2  # of one gate: (100, n_in)
        assert_normal(torch.special.ndtri(uniform).numpy())
    for bias in (lstm.bias_ih_l0, lstm.bias_hh_l0):
        wanted = torch.zeros(400)
        wanted[100:200] = 1.0  # the forget gate's, in torch's order i f g o
        torch.testing.assert_close(bias.detach(), wanted)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(0, 3))
def test_sequences_give_what_steps_give_however_much_room_they_have(
    length: list[int], room: int
) -> None:
    module = make_memory()
    generator = torch.Generator().manual_seed(sum(length))
    rows = torch.randn(sum(length), N_IN, generator=generator)
    memory = torch.rand(len(length), MEMORY_SIZE, generator=generator)
    found = module(rows, in_sequences(length, memory, max(length) + room))
    end = 0
    for sequence, n_steps in enumerate(length):
        remembered = memory[sequence : sequence + 1]
        for row in range(end, end + n_steps):
            wanted, remembered = module.step(rows[row : row + 1], remembered)
            torch.testing.assert_close(found[row], wanted[0], rtol=0, atol=1e-6)
        end += n_steps


def test_room_that_is_left_changes_no_gradient() -> None:
    gradients = []
    for room in (0, 4):
        module = make_memory()
        rows = torch.linspace(-1, 1, 5 * N_IN).view(5, N_IN)
        memory = torch.ones(2, MEMORY_SIZE)
        module(rows, in_sequences([3, 2], memory, 3 + room)).square().mean().backward()
        gradients.append([parameter.grad for parameter in module.parameters()])
    for tight, roomy in zip(*gradients, strict=True):
        torch.testing.assert_close(tight, roomy, rtol=0, atol=1e-7)


# ------------------------------------------------------------------------------------ actor, critic

SPEC = behavior(3, continuous=1)


def actor_critic(*, shared: bool) -> ActorCritic:
    torch.manual_seed(0)
    memory = {"memory_size": MEMORY_SIZE, "sequence_length": 4}
    return ActorCritic(SPEC, network_settings(memory=memory), n_signals=2, shared=shared)


@pytest.mark.parametrize(("shared", "size"), [(False, 2 * MEMORY_SIZE), (True, MEMORY_SIZE)])
def test_actor_and_critic_remember_side_by_side(shared: bool, size: int) -> None:
    network = actor_critic(shared=shared)
    obs, continuous = torch.randn(5, 3), torch.randn(5, 1)
    nothing = torch.zeros(5, 0)
    memory = torch.rand(5, size)

    def evaluate(memory: Tensor) -> tuple[Tensor, Tensor]:
        steps = Sequences(memory, torch.arange(5), 1)
        log_probs, _, values = network.evaluate(
            [obs], continuous, nothing.long(), nothing.bool(), steps
        )
        torch.testing.assert_close(values, network.values([obs], memory))
        return log_probs, values

    log_probs, values = evaluate(memory)
    assert (network.remembering_critic is None) == shared
    others = memory.clone()
    others[:, -MEMORY_SIZE:] += 0.5  # what the critic remembers
    changed_log_probs, changed_values = evaluate(others)
    assert (changed_values != values).all()
    assert torch.equal(changed_log_probs, log_probs) == (not shared)


# ------------------------------------------------------------------------------------------ rollout


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("sequence_length", [1, 3, 64])
def test_an_update_sees_the_decisions_as_they_were_taken(
    shared: bool, sequence_length: int
) -> None:
    # Log-probabilities recomputed through whole sequences, from what was remembered at their
    # starts, must be those at which every agent acted, one step at a time. Segments are cut by the
    # horizon of 7, by updates and by the ends of episodes of 11.
    actions = ActionSpec.create_hybrid(1, (3,))
    env = Task("vector", actions, recall=True, n_agents=6, episode_steps=11)
    written = {
        "trainer_type": "ppo",
        "time_horizon": 7,
        "hyperparameters": {"batch_size": 64, "buffer_size": 100, "shared_critic": shared},
        "network_settings": {
            "hidden_units": 8,
            "memory": {"memory_size": 8, "sequence_length": sequence_length},
        },
    }
    trainer = make_trainer(env, BehaviorSettings.model_validate(written))
    ppo = trainer.learner.algorithm
    seen: list[Segments] = []

    def check(segments: Segments, rewards: np.ndarray, *, step: int) -> dict[str, float]:
        batch, _ = ppo._prepare(segments, rewards)
        length = torch.from_numpy(cut_into(sequence_length, segments.length))
        (dealt,) = deal_sequences(
            length, len(length), sequence_length, torch.Generator(), torch.device("cpu")
        )
        rows, numbers, place = dealt
        memory = torch.from_numpy(segments.memory)[numbers]
        part, sequences = batch.take(rows), Sequences(memory, place, sequence_length)
        with torch.no_grad():
            log_probs, _, values = ppo.network.evaluate(
                part.obs, part.continuous, part.discrete, part.action_mask, sequences
            )
        torch.testing.assert_close(log_probs, part.old_log_probs, rtol=0, atol=1e-4)
        torch.testing.assert_close(values, part.old_values, rtol=0, atol=1e-4)
        seen.append(segments)
        return {}

    ppo.update = check  # type: ignore[method-assign]
    left = iter(range(80))
    train_while(lambda: next(left, None) is not None, trainer, env)
    assert len(seen) >= 4
    assert any(len(set(segments.length.tolist())) > 1 for segments in seen)
    for segments in seen:
        assert segments.memory.shape[1] == (8 if shared else 16)
        assert segments.memory.any()
