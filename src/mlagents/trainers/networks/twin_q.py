"""`TwinQ`: two Q networks of the same form, computed in batched products."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mlagents.trainers.fast.compute import PLAIN, Compute
from mlagents.trainers.fast.products import is_large, product
from mlagents.trainers.networks.body import ObservationEncoder
from mlagents.trainers.networks.layers import GoalLayer, Memory, Sequences
from mlagents.trainers.networks.layers import layer_norm as normalization
from mlagents.trainers.settings.behavior import NetworkSettings
from mlagents_envs.base_env import BehaviorSpec


class StackedLinear(nn.Module):
    """Two linear layers of the same size, computed in one batched product.

    Initial weights are uniform in ±1 / sqrt(n_in). They are small because bootstrapping reinforces
    arbitrary initial Q values.

    Args:
        n_in: Width of the input.
        n_out: Width of the output.
    """

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(n_in)
        self.weight = nn.Parameter(torch.empty(2, n_in, n_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(2, 1, n_out))

    def forward(self, x: Tensor) -> Tensor:
        """Map (2, B, n_in) to (2, B, n_out)."""
        if is_large(x, self.weight):
            both = zip(x, self.weight, self.bias.squeeze(1), strict=True)
            return torch.stack([product(*of_one) for of_one in both])
        return torch.baddbmm(self.bias, x, self.weight)

    def fixed(self, i: int, x: Tensor) -> Tensor:
        """Map (B, n_in) to (B, n_out) with layer `i`, without gradients for its weights."""
        return product(x, self.weight.detach()[i], self.bias.detach()[i, 0])


class EncodedObservations(NamedTuple):
    """Encoded observations of the Q networks, without actions.

    Attributes:
        encoding: (1 or 2, B, width) encodings. Both networks share one encoding if the encoders
            have no trained weights.
        goals: (B, goal size) encoded goals of each network, or None without goals.
    """

    encoding: Tensor
    goals: list[Tensor | None]

    def detach(self) -> "EncodedObservations":
        """Return a copy without gradients, for a loss that does not train the encoders."""
        goals = [None if goal is None else goal.detach() for goal in self.goals]
        return EncodedObservations(self.encoding.detach(), goals)


class TwinQ(nn.Module):
    """Two estimates of action values. The smaller one is less likely to be an overestimate.

    Continuous actions are inputs in addition to the encoded observations. Each choice of each
    discrete branch has an output; without branches, there is one output.

    Args:
        spec: Observations and actions of the behavior.
        settings: Settings of each of the two networks.
        n_signals: Number of reward signals.
        layer_norm: Whether the dense layers are normalized.
        compute: Precision of everything except memory and outputs.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: NetworkSettings,
        *,
        n_signals: int,
        layer_norm: bool = False,
        compute: Compute = PLAIN,
    ) -> None:
        super().__init__()
        self.compute = compute
        self.norm = normalization(settings.hidden_units) if layer_norm else nn.Identity()
        encoders = [ObservationEncoder(spec.observation_specs, settings) for _ in range(2)]
        if not any(True for _ in encoders[0].parameters()):
            encoders.pop()
        self.encoders = nn.ModuleList(encoders)
        width = settings.hidden_units
        sizes = [encoders[0].output_size + spec.action_spec.continuous_size]
        sizes += [width] * max(1, settings.num_layers)
        self.goal_layers: nn.ModuleList | None = None
        if encoders[0].goals and settings.goal_conditioning_type == "hyper":
            n_in, n_out = sizes[-2:]
            goal_size = encoders[0].goal_size
            self.goal_layers = nn.ModuleList(GoalLayer(n_in, n_out, goal_size) for _ in range(2))
            sizes.pop()
        self.dense = nn.ModuleList(
            StackedLinear(n_in, n_out) for n_in, n_out in itertools.pairwise(sizes)
        )
        self.memories: nn.ModuleList | None = None
        if settings.memory is not None:
            memory_size = settings.memory.memory_size
            self.memories = nn.ModuleList(Memory(width, memory_size) for _ in range(2))
            width = memory_size // 2
        self.n_signals = n_signals
        self.n_outputs = sum(spec.action_spec.discrete_branches) or 1
        self.heads = StackedLinear(width, n_signals * self.n_outputs)

    def encode(self, obs: Sequence[Tensor]) -> EncodedObservations:
        """Encode one array (B, *shape) per observation."""
        with self.compute.lowered(obs[0].device):
            encodings, goals = zip(*(encoder(obs) for encoder in self.encoders), strict=True)
            return EncodedObservations(torch.stack(encodings), list(goals) * (2 // len(goals)))

    def forward(
        self, encoded: EncodedObservations, continuous: Tensor, sequences: Sequences | None = None
    ) -> Tensor:
        """Return the values of actions from both networks.

        Args:
            encoded: Result of `encode`.
            continuous: (B, A) continuous actions as sent to the environment.
            sequences: Order of the steps, for networks with memory.

        Returns:
            (2, B, n_signals, sum of branches or 1).
        """
        with self.compute.lowered(continuous.device):
            x = encoded.encoding.expand(2, -1, -1)
            if continuous.shape[1]:
                x = torch.cat((x, continuous.expand(2, -1, -1)), dim=2)
            for layer in self.dense:
                x = nn.functional.silu(self.norm(layer(x)))
            if self.goal_layers is not None:
                x = torch.stack(
                    [
                        layer(row, goal)
                        for layer, row, goal in zip(self.goal_layers, x, encoded.goals, strict=True)
                    ]
                )
        x = self.compute.raised(x)
        if self.memories is not None:
            x = torch.stack(
                [memory(row, sequences) for memory, row in zip(self.memories, x, strict=True)]
            )
        return self.heads(x).view(2, -1, self.n_signals, self.n_outputs)

    def one_q(
        self,
        i: int,
        encoded: EncodedObservations,
        continuous: Tensor,
        sequences: Sequences | None = None,
    ) -> Tensor:
        """Return the values of actions from one network, with gradients for its inputs only.

        Args:
            i: Index of the network, 0 or 1.
            encoded: Result of `encode`.
            continuous: (B, A) continuous actions as sent to the environment.
            sequences: Order of the steps, for networks with memory.

        Returns:
            (B, n_signals, sum of branches or 1).
        """
        with self.compute.lowered(continuous.device):
            x = encoded.encoding[min(i, len(encoded.encoding) - 1)]
            if continuous.shape[1]:
                x = torch.cat((x, continuous), dim=1)
            for layer in self.dense:
                assert isinstance(layer, StackedLinear)
                x = nn.functional.silu(self.norm(layer.fixed(i, x)))
            if self.goal_layers is not None:
                x = _fixed(self.goal_layers[i], x, encoded.goals[i])
        x = self.compute.raised(x)
        if self.memories is not None:
            x = _fixed(self.memories[i], x, sequences)
        return self.heads.fixed(i, x).view(-1, self.n_signals, self.n_outputs)


def _fixed(module: nn.Module, *inputs: Any) -> Tensor:
    """Call a module without gradients for its weights."""
    weights = {name: weight.detach() for name, weight in module.named_parameters()}
    output: Tensor = torch.func.functional_call(module, weights, inputs)
    return output
