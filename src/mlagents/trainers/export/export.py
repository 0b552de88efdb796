"""Exports an actor to ONNX, the format of policies in Unity.

The graph is built node by node from the weights. It therefore contains only operators that the
engine supports, and does not depend on the version of torch. `_add` has one implementation for each
type of module. It adds the module's nodes, given the names of its input tensors, and returns the
name of its output tensor.
"""

import math
from collections.abc import Sequence
from functools import singledispatch

import numpy as np
import torch
from onnx import TensorProto
from torch import Tensor, nn

from mlagents.trainers.data.decision import CONTINUOUS_LIMIT, LOG_STD_LIMITS, MASKED_LOGIT
from mlagents.trainers.export.onnx_graph import Graph
from mlagents.trainers.networks.actions import ActionHeads
from mlagents.trainers.networks.actor_critic import Actor
from mlagents.trainers.networks.attention import (
    N_HEADS,
    PADDING_SCORE,
    EntityAttention,
    EntityEncoder,
    SelfAttention,
)
from mlagents.trainers.networks.body import NetworkBody, ObservationEncoder
from mlagents.trainers.networks.encoders import ImageEncoder, Residual, VectorEncoder
from mlagents.trainers.networks.layers import GoalLayer, Memory, Normalizer
from mlagents_envs.base_env import BehaviorSpec

MODEL_API_VERSION = 3
"""Version of the names and meanings of inputs and outputs, as numbered by the engine."""


def export_onnx(actor: Actor, spec: BehaviorSpec) -> bytes:
    """Return an actor as an ONNX model for Unity players and any other ONNX runtime.

    The first axis of every input and of every action is `batch` and may have any length; all other
    axes are fixed. Inputs:

    - `obs_<i>`: (batch, *shape), every observation in the order of the specification.
    - `action_masks`: (batch, sum of branches), 1 where an action is allowed, otherwise 0; only with
      discrete actions.
    - `recurrent_in`: (batch, 1, memory size), zeros at the beginning of an episode; only with
      memory.

    Outputs, in this order. Outputs of actions exist only if the behavior has actions of that kind:

    - `version_number` and `memory_size`: (1,).
    - `continuous_actions`: (batch, A), sampled; `continuous_action_output_shape`: (1,), equal to A;
      `deterministic_continuous_actions`: (batch, A), the means. Both actions are limited to [-1, 1]
      as in training: clamped and divided, or squashed by tanh.
    - `discrete_actions`: (batch, K) int64, sampled; `discrete_action_output_shape`: (1, K), the
      sizes of the branches; `deterministic_discrete_actions`: (batch, K) int64, the likeliest.
    - `recurrent_out`: (batch, 1, memory size), the input at the agent's next step.

    Images are floats in [0, 1], even if they are uint8 in training.

    Args:
        actor: Actor on any device.
        spec: Specification of the actor's behavior.

    Returns:
        Content of an `.onnx` file: opset 9, IR version 4.
    """
    graph = Graph(actor)
    body = actor.body
    obs = [
        graph.input(f"obs_{i}", observation.shape)
        for i, observation in enumerate(spec.observation_specs)
    ]
    if spec.action_spec.discrete_size:
        graph.input("action_masks", [sum(spec.action_spec.discrete_branches)])
    encoding = _add(body, graph, *obs)
    if body.memory is not None:
        graph.input("recurrent_in", [1, body.memory_size])
        encoding = _add(body.memory, graph, encoding)
    graph.constant_output("version_number", [MODEL_API_VERSION])
    graph.constant_output("memory_size", [body.memory_size])
    _add_heads(actor.heads, graph, encoding)
    if body.memory is not None:
        graph.output("recurrent_out", ["batch", 1, body.memory_size], dtype=TensorProto.FLOAT)
    return graph.serialize()


@singledispatch
def _add(module: nn.Module, graph: Graph, *inputs: str) -> str:
    """Add the nodes of a module; return the name of its output tensor."""
    raise NotImplementedError(f"{type(module).__name__} has no ONNX form yet")


@_add.register
def _(body: NetworkBody, graph: Graph, *obs: str) -> str:
    """Add the body without its memory."""
    encoding, goal = _add_observations(body.observations, graph, obs)
    hidden = _add(body.dense, graph, encoding)
    return hidden if body.goal_layer is None else _add(body.goal_layer, graph, hidden, goal)


def _add_observations(
    observations: ObservationEncoder, graph: Graph, obs: Sequence[str]
) -> tuple[str, str]:
    encoded = [
        _add(encoder, graph, obs[index])
        for index, encoder in zip(observations.fixed, observations.encoders, strict=True)
    ]
    goal = (
        graph.concat([encoded[index] for index in observations.goals]) if observations.goals else ""
    )
    if observations.attention is not None:
        entities = [obs[index] for index in observations.entities]
        others = [graph.concat(encoded)] if encoded else []
        encoded.append(_add(observations.attention, graph, *entities, *others))
    return graph.concat(encoded), goal


@_add.register
def _(encoder: VectorEncoder, graph: Graph, vector: str) -> str:
    return vector if encoder.normalizer is None else _add(encoder.normalizer, graph, vector)


@_add.register
def _(normalizer: Normalizer, graph: Graph, vector: str) -> str:
    centered = graph.node("Sub", vector, graph.weight(normalizer, "shift"))
    scaled = graph.node("Mul", centered, graph.weight(normalizer, "scale"))
    return graph.node("Clip", scaled, min=-normalizer.limit, max=normalizer.limit)


@_add.register
def _(encoder: ImageEncoder, graph: Graph, image: str) -> str:
    features = _add(encoder.convolutions, graph, image)
    return _add(encoder.dense, graph, graph.reshape(features, -1, encoder.n_features))


@_add.register
def _(attention: EntityAttention, graph: Graph, *obs: str) -> str:
    entities = obs[: len(attention.encoders)]
    x_self = []
    if attention.encode_self is not None:
        x_self.append(_add(attention.encode_self, graph, obs[-1]))
    embedded = [
        _add(encoder, graph, batch, *x_self)
        for encoder, batch in zip(attention.encoders, entities, strict=True)
    ]
    zero = graph.constant("zero", [0.0])
    is_there = []
    for batch in entities:
        squares = graph.node("ReduceSum", graph.node("Mul", batch, batch), axes=[2], keepdims=0)
        is_there.append(graph.node("Cast", graph.node("Less", zero, squares), to=TensorProto.FLOAT))
    n_entities = sum(graph.input_shapes[batch][0] for batch in entities)
    return _add_attention(
        attention.attention, graph, graph.concat(embedded), graph.concat(is_there), n_entities
    )


@_add.register
def _(encoder: EntityEncoder, graph: Graph, entities: str, *x_self: str) -> str:
    n_entities, n_in = graph.input_shapes[entities][0], encoder.dense.in_features
    if x_self:
        size = n_in - encoder.n_features
        copies = [graph.reshape(x_self[0], -1, 1, size)] * n_entities
        entities = graph.concat([entities, graph.concat(copies)], axis=2)
    embedded = _add(encoder.dense, graph, graph.reshape(entities, -1, n_in))
    return graph.reshape(_add_swish(graph, embedded), -1, n_entities, encoder.dense.out_features)


def _add_attention(
    attention: SelfAttention, graph: Graph, embedded: str, is_there: str, n_entities: int
) -> str:
    """Map embeddings (batch, N, size) and validity (batch, N), 1 or 0, to (batch, size)."""
    size = attention.size
    embedded = _add_norm(attention.norm, graph, embedded, axis=2)
    joint = _add(attention.queries_keys_values, graph, graph.reshape(embedded, -1, size))
    queries, keys, values = (
        graph.node(
            "Transpose",
            graph.reshape(
                graph.columns(joint, i * size, (i + 1) * size),
                -1,
                n_entities,
                N_HEADS,
                size // N_HEADS,
            ),
            perm=perm,
        )
        for i, perm in enumerate([(0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)])
    )
    scale = graph.constant("attention_scale", [1 / math.sqrt(size)])
    scores = graph.node("Mul", graph.node("MatMul", queries, keys), scale)
    of_keys = graph.reshape(is_there, -1, 1, 1, n_entities)
    scores = _add_mask(graph, scores, of_keys, "padding_score", PADDING_SCORE)
    attended = graph.node("MatMul", graph.node("Softmax", scores, axis=3), values)
    attended = graph.reshape(graph.node("Transpose", attended, perm=(0, 2, 1, 3)), -1, size)
    output = graph.reshape(_add(attention.output, graph, attended), -1, n_entities, size)
    embedded = _add_norm(attention.norm, graph, graph.node("Add", embedded, output), axis=2)
    counted = graph.node("Mul", embedded, graph.reshape(is_there, -1, n_entities, 1))
    total = graph.node("ReduceSum", counted, axes=[1], keepdims=0)
    count = graph.node("ReduceSum", is_there, axes=[1], keepdims=1)
    return graph.node("Div", total, graph.node("Clip", count, min=1.0, max=float(n_entities)))


def _add_norm(norm: nn.LayerNorm, graph: Graph, x: str, *, axis: int) -> str:
    centered = graph.node("Sub", x, graph.node("ReduceMean", x, axes=[axis], keepdims=1))
    squares = graph.node("Mul", centered, centered)
    variance = graph.node("ReduceMean", squares, axes=[axis], keepdims=1)
    variance = graph.node("Add", variance, graph.constant("norm_epsilon", [norm.eps]))
    return graph.node("Div", centered, graph.node("Sqrt", variance))


def _add_mask(graph: Graph, scores: str, is_allowed: str, name: str, otherwise: float) -> str:
    """Add nodes for `scores * is_allowed + otherwise * (1 - is_allowed)`."""
    penalty = graph.node("Mul", is_allowed, graph.constant(f"{name}_negated", [-otherwise]))
    penalty = graph.node("Add", penalty, graph.constant(name, [otherwise]))
    return graph.node("Add", graph.node("Mul", scores, is_allowed), penalty)


@_add.register
def _(layer: GoalLayer, graph: Graph, x: str, goal: str) -> str:
    hidden = _add_norm(layer.norm, graph, _add(layer.hidden, graph, goal), axis=1)
    weights = graph.reshape(_add(layer.weights, graph, hidden), -1, layer.n_in, layer.n_out)
    product = graph.node("MatMul", graph.reshape(x, -1, 1, layer.n_in), weights)
    product = graph.reshape(product, -1, layer.n_out)
    return _add_swish(graph, graph.node("Add", product, graph.weight(layer, "bias")))


@_add.register
def _(memory: Memory, graph: Graph, x: str) -> str:
    """Add one step, from `recurrent_in` to `recurrent_out`."""
    lstm, size = memory.lstm, memory.output_size

    def gates(attribute: str) -> Tensor:
        """Reorder the gates from torch's order, i f g o, to ONNX's order, i o f g."""
        i, f, g, o = getattr(lstm, attribute).detach().chunk(4)
        return torch.cat([i, o, f, g]).unsqueeze(0)

    weights = [
        graph.constant(graph.name_of(lstm, name), value)
        for name, value in (
            ("weight_ih", gates("weight_ih_l0")),
            ("weight_hh", gates("weight_hh_l0")),
            ("bias", torch.cat([gates("bias_ih_l0"), gates("bias_hh_l0")], dim=1)),
        )
    ]
    # The engine's axes are (batch, 1, size); the operator's axes are (1, batch, size).
    states = [
        graph.node(
            "Transpose",
            graph.columns("recurrent_in", half * size, (half + 1) * size, axis=2),
            perm=(1, 0, 2),
        )
        for half in range(2)
    ]
    steps = graph.reshape(x, 1, -1, lstm.input_size)  # one step
    outputs = ["lstm_steps", "lstm_hidden", "lstm_cell"]
    # The empty name omits the optional sequence lengths.
    graph.node_of_many("LSTM", [steps, *weights, "", *states], outputs, hidden_size=size)
    after = [graph.node("Transpose", state, perm=(1, 0, 2)) for state in outputs[1:]]
    graph.node("Concat", *after, axis=2, output="recurrent_out")
    return graph.reshape(outputs[0], -1, size)


@_add.register
def _(residual: Residual, graph: Graph, image: str) -> str:
    return graph.node("Add", image, _add(residual.layers, graph, image))


@_add.register
def _(layers: nn.Sequential, graph: Graph, x: str) -> str:
    for layer in layers:
        x = _add(layer, graph, x)
    return x


@_add.register
def _(layer: nn.Linear, graph: Graph, x: str) -> str:
    weights, bias = graph.weight(layer, "weight"), graph.weight(layer, "bias")
    return graph.node("Gemm", x, weights, bias, transB=1)


@_add.register
def _(layer: nn.Conv2d, graph: Graph, image: str) -> str:
    weights, bias = graph.weight(layer, "weight"), graph.weight(layer, "bias")
    assert not isinstance(layer.padding, str)
    top, left = layer.padding
    return graph.node(
        "Conv",
        *[image, weights, bias],
        kernel_shape=layer.kernel_size,
        strides=layer.stride,
        pads=[top, left, top, left],
    )


@_add.register
def _(layer: nn.MaxPool2d, graph: Graph, image: str) -> str:
    return graph.node(
        "MaxPool", image, kernel_shape=[layer.kernel_size] * 2, strides=[layer.stride] * 2
    )


@_add.register
def _(layer: nn.LeakyReLU, graph: Graph, x: str) -> str:
    return graph.node("LeakyRelu", x, alpha=layer.negative_slope)


@_add.register
def _(_relu: nn.ReLU, graph: Graph, x: str) -> str:
    return graph.node("Relu", x)


@_add.register
def _(_swish: nn.SiLU, graph: Graph, x: str) -> str:
    return _add_swish(graph, x)


def _add_swish(graph: Graph, x: str) -> str:
    return graph.node("Mul", x, graph.node("Sigmoid", x))


def _add_heads(heads: ActionHeads, graph: Graph, encoding: str) -> None:
    if heads.mean is not None:
        _add_continuous(heads, graph, encoding, _add(heads.mean, graph, encoding))
    if heads.logits is not None:
        _add_discrete(heads, graph, _add(heads.logits, graph, encoding))


def _add_continuous(heads: ActionHeads, graph: Graph, encoding: str, mean: str) -> None:
    n_actions = heads.spec.continuous_size

    def add_output(name: str, action: str) -> None:
        if heads.squashed:
            graph.node("Tanh", action, output=name)
        else:
            clipped = graph.node("Clip", action, min=-CONTINUOUS_LIMIT, max=CONTINUOUS_LIMIT)
            limit = graph.constant("continuous_limit", [CONTINUOUS_LIMIT])
            graph.node("Div", clipped, limit, output=name)
        graph.output(name, ["batch", n_actions], dtype=TensorProto.FLOAT)

    if isinstance(heads.log_std, nn.Linear):
        least, largest = LOG_STD_LIMITS
        log_std = graph.node("Clip", _add(heads.log_std, graph, encoding), min=least, max=largest)
    else:
        log_std = graph.weight(heads, "log_std")
    std = graph.node("Exp", log_std)
    noise = graph.node("RandomNormalLike", mean, dtype=TensorProto.FLOAT)
    add_output("continuous_actions", graph.node("Add", mean, graph.node("Mul", noise, std)))
    graph.constant_output("continuous_action_output_shape", [n_actions])
    add_output("deterministic_continuous_actions", mean)


def _add_discrete(heads: ActionHeads, graph: Graph, logits: str) -> None:
    branches = heads.spec.discrete_branches
    logits = _add_mask(graph, logits, "action_masks", "masked_logit", MASKED_LOGIT)
    sampled, likeliest = [], []
    ends = np.cumsum(branches).tolist()
    for size, end in zip(branches, ends, strict=True):
        branch = graph.columns(logits, end - size, end)
        log_probs = graph.node("Log", graph.node("Softmax", branch, axis=1))
        sampled.append(graph.node("Multinomial", log_probs, sample_size=1, dtype=TensorProto.INT64))
        likeliest.append(graph.node("ArgMax", branch, axis=1, keepdims=1))

    def add_output(name: str, choices: list[str]) -> None:
        graph.node("Concat", *choices, axis=1, output=name)
        graph.output(name, ["batch", len(branches)], dtype=TensorProto.INT64)

    add_output("discrete_actions", sampled)
    graph.constant_output("discrete_action_output_shape", [branches])
    add_output("deterministic_discrete_actions", likeliest)
