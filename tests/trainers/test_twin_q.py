"""Two Q networks side by side give what each gives on its own."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from actors import CASES, CONTINUOUS, HYBRID, Case, network_settings, observations
from mlagents.trainers.networks.layers import Sequences
from mlagents.trainers.networks.twin_q import TwinQ

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
BATCH, LONGEST = 12, 4


def make(case: Case) -> TwinQ:
    torch.manual_seed(0)
    q = TwinQ(case.spec, network_settings(**case.settings), n_signals=2)
    with torch.no_grad():
        for parameter in q.parameters():
            parameter += 0.1 * torch.randn(parameter.shape)
    return q


def inputs(case: Case) -> tuple[list[Tensor], Tensor, Sequences | None]:
    rng = np.random.default_rng(0)
    obs = [torch.from_numpy(o) for o in observations(case.spec, BATCH, rng)]
    actions = torch.rand(BATCH, case.spec.action_spec.continuous_size) * 2 - 1
    memory = case.settings.get("memory")
    if memory is None:
        return obs, actions, None
    # Sequences of 4, 2, 4 and 2 steps.
    place = torch.tensor([0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13])
    return obs, actions, Sequences(torch.rand(4, memory["memory_size"]), place, LONGEST)


def alone(q: TwinQ, i: int, obs: list[Tensor], actions: Tensor, sequences: Any) -> Tensor:
    """(B, signals, outputs) of one of the two, layer by layer."""

    def layer(stacked: nn.Module, x: Tensor) -> Tensor:
        return x @ stacked.weight[i] + stacked.bias[i]

    encoding, goal = q.encoders[min(i, len(q.encoders) - 1)](obs)
    x = torch.cat([encoding, actions], dim=1)
    for stacked in q.dense:
        x = nn.functional.silu(layer(stacked, x))
    if q.goal_layers is not None:
        x = q.goal_layers[i](x, goal)
    if q.memories is not None:
        x = q.memories[i](x, sequences)
    return layer(q.heads, x).view(BATCH, 2, -1)


@every_case
def test_each_is_what_it_is_alone(case: Case) -> None:
    q = make(case)
    obs, actions, sequences = inputs(case)
    together = q(q.encode(obs), actions, sequences)
    assert together.shape == (2, BATCH, 2, sum(case.spec.action_spec.discrete_branches) or 1)
    for i in range(2):
        torch.testing.assert_close(
            together[i], alone(q, i, obs, actions, sequences), atol=1e-5, rtol=1e-4
        )
    assert (together[0] - together[1]).abs().min() > 1e-5, "they are of two opinions"


@every_case
def test_neither_learns_from_what_the_other_says(case: Case) -> None:
    q = make(case)
    obs, actions, sequences = inputs(case)
    q(q.encode(obs), actions, sequences)[0].square().sum().backward()
    of_either: list[list[Tensor]] = [[], []]
    for parts in (q.encoders, q.goal_layers, q.memories):
        for i, part in enumerate(parts or ()):
            of_either[i] += [p.grad for p in part.parameters()]
    for stacked in (*q.dense, q.heads):
        for i in range(2):
            of_either[i] += [stacked.weight.grad[i], stacked.bias.grad[i]]
    first, second = of_either
    assert all(gradient is not None and gradient.abs().sum() > 0 for gradient in first)
    assert all(gradient is None or not gradient.any() for gradient in second)


@every_case
def test_an_opinion_is_that_of_one_and_teaches_it_nothing(case: Case) -> None:
    q = make(case)
    obs, actions, sequences = inputs(case)
    found = []
    for as_opinion in (False, True):
        seen = actions.clone().requires_grad_()
        encoded = q.encode(obs).detach()
        for i in range(2):
            q.zero_grad()
            value = (
                q.one_q(i, encoded, seen, sequences)
                if as_opinion
                else q(encoded, seen, sequences)[i]
            )
            if as_opinion and not seen.shape[1]:
                assert not value.requires_grad
            else:
                value.square().sum().backward()
            assert not as_opinion or all(p.grad is None for p in q.parameters())
            found.append((value.detach(), seen.grad))
    half = len(found) // 2
    for ours, theirs in zip(found[half:], found[:half], strict=True):
        torch.testing.assert_close(ours[0], theirs[0], atol=1e-5, rtol=1e-4)
        if actions.shape[1]:
            torch.testing.assert_close(ours[1], theirs[1], atol=1e-4, rtol=1e-4)


def test_a_detached_encoding_teaches_no_encoder() -> None:
    case = CASES["everything"]
    q = make(case)
    obs, actions, sequences = inputs(case)
    q(q.encode(obs).detach(), actions, sequences).sum().backward()
    assert all(p.grad is None for p in q.encoders.parameters())
    assert q.heads.weight.grad is not None


@pytest.mark.parametrize("spec", [CONTINUOUS, HYBRID])
def test_weights_begin_uniform_and_small(spec: Any) -> None:
    torch.manual_seed(0)
    q = TwinQ(spec, network_settings(hidden_units=256), n_signals=1)
    for layer in (*q.dense, q.heads):
        bound = layer.weight.shape[1] ** -0.5
        assert 0.99 * bound < layer.weight.abs().max().item() <= bound
        # The deviation of U(-b, b) is b over the root of 3.
        assert layer.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
        assert not layer.bias.any()
