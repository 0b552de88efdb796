"""The networks of the original ML-Agents, computed from the weights it saves and by their names.

Written from the description of its mathematics, without anything of our networks, to compare them
with.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import conv2d, layer_norm, leaky_relu, max_pool2d, silu

from mlagents.trainers.networks.encoders import Kind, kind_of
from mlagents.trainers.settings.behavior import NetworkSettings
from mlagents_envs.base_env import BehaviorSpec, ObservationType

CONVOLUTIONS = {
    "simple": [(16, 8, 4), (32, 4, 2)],
    "nature_cnn": [(32, 8, 4), (64, 4, 2), (64, 3, 1)],
    "match3": [(35, 3, 1), (144, 3, 1)],
    "fully_connected": [],
}
"""(channels, size, stride) by `vis_encode_type`."""


class OriginalNetwork:
    """An actor or a critic; its weights are drawn when they are first needed.

    Attributes:
        state: The weights, as the original saves them.
    """

    def __init__(self, spec: BehaviorSpec, settings: NetworkSettings, *, seed: int) -> None:
        self.spec, self.settings = spec, settings
        self.state: dict[str, Tensor] = {}
        self._generator = torch.Generator().manual_seed(seed)

    def act(
        self, obs: Sequence[NDArray[Any]], memory: NDArray[np.float32]
    ) -> tuple[Tensor | None, list[Tensor], Tensor]:
        """Return means, the logits of every branch and the memory after the step."""
        encoding, memory_after = self._body(obs, memory)
        actions, mean = self.spec.action_spec, None
        if actions.continuous_size:
            name = "action_model._continuous_distribution"
            mean = self._linear(f"{name}.mu", encoding, actions.continuous_size)
            self._weights(f"{name}.log_sigma", 1, actions.continuous_size)
        logits = [
            self._linear(f"action_model._discrete_distribution.branches.{i}", encoding, size)
            for i, size in enumerate(actions.discrete_branches)
        ]
        return mean, logits, memory_after

    def value(
        self, obs: Sequence[NDArray[Any]], memory: NDArray[np.float32], signals: Sequence[str]
    ) -> dict[str, Tensor]:
        """Return the value of each reward signal."""
        encoding, _ = self._body(obs, memory)
        return {s: self._linear(f"value_heads.value_heads.{s}", encoding, 1)[:, 0] for s in signals}

    def value_of_group(
        self,
        members: Sequence[tuple[Sequence[NDArray[Any]], NDArray[np.float32] | None]],
        *,
        largest: int,
        signals: Sequence[str],
    ) -> dict[str, Tensor]:
        """Return the estimate of MA-POCA's critic for each reward signal, by its description.

        Args:
            members: Observations (B, ...) of each member, and its action (B, A + sum of branches)
                with discrete choices as one-hot numbers; None for a member without action.
            largest: Number of members of the largest group.
            signals: Names of the reward signals.
        """
        width, n_layers = self.settings.hidden_units, self.settings.num_layers
        entities = []
        for obs, action in members:
            encoding, _ = self._encoding(obs)
            name, inputs = "network_body.obs_encoder", encoding
            if action is not None:
                name = "network_body.obs_action_encoder"
                inputs = torch.cat([encoding, torch.from_numpy(action)], dim=1)
            layer = f"{name}.self_ent_encoder.seq_layers.0"
            entities.append(silu(self._linear(layer, inputs, width)))
        x = torch.stack(entities, dim=1)
        there = torch.ones(x.shape[:2], dtype=torch.bool)
        hidden = self._attended("network_body.self_attn", x, there)
        for i in range(n_layers):
            name = f"network_body.linear_encoder.seq_layers.{2 * i}"
            hidden = silu(self._linear(name, hidden, width))
        self.state["network_body._current_max_agents"] = torch.tensor(largest)
        size = torch.full((len(hidden), 1), 2.0 * len(members) / largest - 1.0)
        hidden = torch.cat([hidden, size], dim=1)
        return {s: self._linear(f"value_heads.value_heads.{s}", hidden, 1)[:, 0] for s in signals}

    def saved(self) -> dict[str, Tensor]:
        """Return the weights with all that is saved beside them: constants, and copies."""
        own = "network_body.observation_encoder.processors."
        copies = {
            name.replace(own, "network_body.processors."): weights
            for name, weights in self.state.items()
            if name.startswith(own)
        }
        constants = {"version_number": torch.tensor([3.0]), "memory_size_vector": torch.zeros(1)}
        return constants | self.state | copies

    def _encoding(self, obs) -> tuple[Tensor, list[Tensor]]:
        """Return the encodings of all observations in a row, and those of the goals."""
        tensors = [torch.from_numpy(batch) for batch in obs]
        encodings, goals, entities = [], [], []
        for i, (tensor, observation) in enumerate(
            zip(tensors, self.spec.observation_specs, strict=True)
        ):
            name = f"network_body.observation_encoder.processors.{i}"
            kind = kind_of(observation)
            if kind is Kind.ENTITIES:
                entities.append((name, tensor))
                continue
            encodings.append((self._vector if kind is Kind.VECTOR else self._image)(name, tensor))
            if observation.observation_type is ObservationType.GOAL_SIGNAL:
                goals.append(encodings[-1])
        if entities:
            encodings.append(self._attention(entities, encodings))
        return torch.cat(encodings, dim=1), goals

    def _body(self, obs, memory) -> tuple[Tensor, Tensor]:
        hidden, goals = self._encoding(obs)
        width, n_layers = self.settings.hidden_units, self.settings.num_layers
        name = "network_body._body_endoder"
        if goals and self.settings.goal_conditioning_type == "hyper":
            for i in range(n_layers - 1):
                hidden = silu(self._linear(f"{name}.layers.{2 * i}", hidden, width))
            last = f"{name}.layers.{2 * n_layers - 2}"
            hidden = self._hyper(last, hidden, torch.cat(goals, dim=1))
        else:
            for i in range(n_layers):
                hidden = silu(self._linear(f"{name}.seq_layers.{2 * i}", hidden, width))
        if self.settings.memory is None:
            return hidden, torch.from_numpy(memory)
        return self._lstm("network_body.lstm.lstm", hidden, torch.from_numpy(memory))

    def _vector(self, name: str, vector: Tensor) -> Tensor:
        if not self.settings.normalize:
            return vector
        size = vector.shape[1]
        steps = self.state.setdefault(f"{name}.normalizer.normalization_steps", torch.tensor(50))
        mean = self._weights(f"{name}.normalizer.running_mean", size)
        variance = f"{name}.normalizer.running_variance"
        squares = self.state.setdefault(variance, 30 * torch.linspace(1.0, 9.0, size))
        return ((vector - mean) / (squares / steps).sqrt()).clamp(-5, 5)

    def _image(self, name: str, image: Tensor) -> Tensor:
        kind = self.settings.vis_encode_type
        if kind == "resnet":
            flat = silu(self._residual_blocks(f"{name}.sequential", image)).flatten(1)
            return self._linear(f"{name}.dense", flat, self.settings.hidden_units).relu()
        for i, (channels, size, stride) in enumerate(CONVOLUTIONS[kind]):
            layer = f"{name}.conv_layers.{2 * i}"
            image = leaky_relu(self._convolution(layer, image, channels, size, stride=stride))
        return leaky_relu(
            self._linear(f"{name}.dense.0", image.flatten(1), self.settings.hidden_units)
        )

    def _residual_blocks(self, name: str, image: Tensor) -> Tensor:
        places = itertools.count()
        for channels in (16, 32, 32):
            image = self._convolution(f"{name}.{next(places)}", image, channels, 3, padding=1)
            next(places)
            image = max_pool2d(image, 3, stride=2)
            for place in (next(places), next(places)):
                hidden = image
                for layer in (1, 3):
                    each = f"{name}.{place}.layers.{layer}"
                    hidden = self._convolution(each, silu(hidden), channels, 3, padding=1)
                image = image + hidden
        return image

    def _attention(self, entities: list[tuple[str, Tensor]], others: list[Tensor]) -> Tensor:
        name, size = "network_body.observation_encoder", 128
        embedded, is_there = [], []
        for processor, tensor in entities:
            inputs = tensor
            if others:
                encoder = f"{name}.x_self_encoder.seq_layers.0"
                x_self = silu(self._linear(encoder, torch.cat(others, dim=1), size))
                repeated = x_self[:, None].expand(-1, tensor.shape[1], -1)
                inputs = torch.cat([repeated, tensor], dim=2)
            layer = f"{processor}.self_ent_encoder.seq_layers.0"
            embedded.append(silu(self._linear(layer, inputs, size)))
            is_there.append(tensor.square().sum(2) >= 0.01)
        x, there = torch.cat(embedded, dim=1), torch.cat(is_there, dim=1)
        return self._attended(f"{name}.rsa", x, there)

    def _attended(self, name: str, x: Tensor, there: Tensor) -> Tensor:
        """Return the mean over present entities, after residual attention with 4 heads."""
        size, n_heads = x.shape[2], 4
        x = layer_norm(x, (size,))
        heads = []
        queries, keys, values = (self._linear(f"{name}.fc_{c}", x, size) for c in "qkv")
        for part in torch.arange(size).chunk(n_heads):
            scores = queries[..., part] @ keys[..., part].transpose(1, 2) / size**0.5
            chances = scores.masked_fill(~there[:, None], -1e6).softmax(2)
            heads.append(chances @ values[..., part])
        x = layer_norm(self._linear(f"{name}.fc_out", torch.cat(heads, 2), size) + x, (size,))
        return (x * there[..., None]).sum(1) / (there.sum(1, keepdim=True) + 1e-7)

    def _hyper(self, name: str, x: Tensor, goal: Tensor) -> Tensor:
        width = self.settings.hidden_units
        for layer in (0, 2):
            goal = silu(self._linear(f"{name}.hypernet.{layer}", goal, width))
        flat = self._linear(
            f"{name}.hypernet.5", layer_norm(goal, goal.shape[1:]), x.shape[1] * width
        )
        weights = flat.view(-1, x.shape[1], width)
        return silu(torch.einsum("bi,bio->bo", x, weights) + self._weights(f"{name}.bias", width))

    def _lstm(self, name: str, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        hidden, cell = memory.chunk(2, dim=1)
        gates = 0
        for kind, inputs in (("ih", x), ("hh", hidden)):
            weights = self._weights(
                f"{name}.weight_{kind}_l0", 2 * memory.shape[1], inputs.shape[1]
            )
            bias = self._weights(f"{name}.bias_{kind}_l0", 2 * memory.shape[1])
            gates = gates + inputs @ weights.T + bias
        let_in, keep, new, show = gates.chunk(4, dim=1)
        cell = keep.sigmoid() * cell + let_in.sigmoid() * new.tanh()
        hidden = show.sigmoid() * cell.tanh()
        return hidden, torch.cat([hidden, cell], dim=1)

    def _linear(self, name: str, x: Tensor, n_out: int) -> Tensor:
        weights = self._weights(f"{name}.weight", n_out, x.shape[-1])
        return x @ weights.T + self._weights(f"{name}.bias", n_out)

    def _convolution(
        self, name: str, image: Tensor, channels: int, size: int, **options: int
    ) -> Tensor:
        weights = self._weights(f"{name}.weight", channels, image.shape[1], size, size)
        return conv2d(image, weights, self._weights(f"{name}.bias", channels), **options)

    def _weights(self, name: str, *shape: int) -> Tensor:
        if name not in self.state:
            drawn = torch.randn(shape, generator=self._generator)
            self.state[name] = drawn / max(1, drawn[0].numel()) ** 0.5
        assert self.state[name].shape == shape
        return self.state[name]
