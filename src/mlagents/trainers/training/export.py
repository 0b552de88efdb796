"""Actor to ONNX, the form in which the engine runs a policy (wire protocol, section 6).

The graph is written node by node from the weights, so that it holds just what the engine knows and
no release of torch can change it. Every kind of module has its own form of `_add`: it is handed the
graph and the names of the tensors that go in, adds its nodes and names the tensor that comes out.
"""

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from mlagents.trainers.networks.actions import CONTINUOUS_LIMIT, MASKED_LOGIT, ActionHeads
from mlagents.trainers.networks.actor_critic import Actor
from mlagents.trainers.networks.body import NetworkBody
from mlagents.trainers.networks.encoders import VectorEncoder
from mlagents.trainers.networks.layers import Normalizer
from mlagents_envs import __version__
from mlagents_envs.base_env import BehaviorSpec

MODEL_API_VERSION = 3
"""What the engine calls the present names and meanings of inputs and outputs."""

OPSET = 9
IR_VERSION = 4


def export_onnx(actor: Actor, spec: BehaviorSpec) -> bytes:
    """Write an actor as an ONNX model that a Unity player, or any ONNX runtime, can act with.

    The first axis of every input and of every action is `batch` and may have any length; all other
    axes are fixed. Inputs:

    - `obs_<i>`: (batch, *shape), every observation in the order of the specification.
    - `action_masks`: (batch, sum of branches), 1 where an action is allowed and 0 where it is not;
      only with discrete actions.

    Outputs, in this order; those of a kind of action only where the behavior has it:

    - `version_number` and `memory_size`: (1,).
    - `continuous_actions`: (batch, A), sampled; `continuous_action_output_shape`: (1,), which is A;
      `deterministic_continuous_actions`: (batch, A), the means. Both are limited to [-1, 1].
    - `discrete_actions`: (batch, K) int64, sampled; `discrete_action_output_shape`: (1, K), the
      sizes of the branches; `deterministic_discrete_actions`: (batch, K) int64, the likeliest.

    Args:
        actor: On any device; it is only read.
        spec: The behavior that the actor was made for.

    Returns:
        The content of an `.onnx` file: opset 9, IR version 4.
    """
    graph = _Graph(actor)
    obs = [
        graph.input(f"obs_{i}", observation.shape)
        for i, observation in enumerate(spec.observation_specs)
    ]
    encoding = _add(actor.body, graph, *obs)
    graph.constant_output("version_number", [MODEL_API_VERSION])
    graph.constant_output("memory_size", [0])
    _add_heads(actor.heads, graph, encoding)
    return graph.serialize()


class _Graph:
    """An ONNX graph that grows. Tensors are known by their names.

    Args:
        module: Whose weights the graph will hold, under the names they have in its `state_dict`.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module_names = {part: name for name, part in module.named_modules()}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._initializers: dict[str, Any] = {}
        self._nodes: list[Any] = []

    def input(self, name: str, shape: Sequence[int]) -> str:
        """Add an input, (batch, *shape) float32."""
        self._inputs.append(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])
        )
        return name

    def weight(self, module: nn.Module, attribute: str) -> str:
        """Add a parameter or a buffer of one of the modules."""
        tensor = getattr(module, attribute).detach().cpu()
        return self.constant(f"{self._module_names[module]}.{attribute}", tensor)

    def constant(self, name: str, value: ArrayLike) -> str:
        """Add a float32 constant."""
        self._initializers[name] = numpy_helper.from_array(np.asarray(value, np.float32), name)
        return name

    def node(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node with one output, which gets a name of its own if it is given none."""
        output = output or f"{operator}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def output(self, name: str, shape: Sequence[int | str], *, dtype: int) -> None:
        """Make the tensor `name` an output."""
        self._outputs.append(helper.make_tensor_value_info(name, dtype, shape))

    def constant_output(self, name: str, value: ArrayLike) -> None:
        """Add an output that always has the same value, as float32: the engine reads no other."""
        self.node("Identity", self.constant(f"{name}.value", value), output=name)
        self.output(name, np.shape(value), dtype=TensorProto.FLOAT)

    def serialize(self) -> bytes:
        """Return the model as bytes."""
        graph = helper.make_graph(
            self._nodes, "policy", self._inputs, self._outputs, list(self._initializers.values())
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="mlagents-next",
            producer_version=__version__,
        )
        return model.SerializeToString()


@singledispatch
def _add(module: nn.Module, graph: _Graph, *inputs: str) -> str:
    """Add the nodes of a module; return the name of the tensor that comes out of it."""
    raise NotImplementedError(f"{type(module).__name__} has no ONNX form yet")


@_add.register
def _(body: NetworkBody, graph: _Graph, *obs: str) -> str:
    encoded = [_add(encoder, graph, name) for encoder, name in zip(body.encoders, obs, strict=True)]
    joined = encoded[0] if len(encoded) == 1 else graph.node("Concat", *encoded, axis=1)
    return _add(body.dense, graph, joined)


@_add.register
def _(encoder: VectorEncoder, graph: _Graph, vector: str) -> str:
    return vector if encoder.normalizer is None else _add(encoder.normalizer, graph, vector)


@_add.register
def _(normalizer: Normalizer, graph: _Graph, vector: str) -> str:
    centred = graph.node("Sub", vector, graph.weight(normalizer, "shift"))
    scaled = graph.node("Mul", centred, graph.weight(normalizer, "scale"))
    return graph.node("Clip", scaled, min=-normalizer.limit, max=normalizer.limit)


@_add.register
def _(layers: nn.Sequential, graph: _Graph, x: str) -> str:
    for layer in layers:
        x = _add(layer, graph, x)
    return x


@_add.register
def _(layer: nn.Linear, graph: _Graph, x: str) -> str:
    weights, bias = graph.weight(layer, "weight"), graph.weight(layer, "bias")
    return graph.node("Gemm", x, weights, bias, transB=1)


@_add.register
def _(_swish: nn.SiLU, graph: _Graph, x: str) -> str:
    return graph.node("Mul", x, graph.node("Sigmoid", x))


def _add_heads(heads: ActionHeads, graph: _Graph, encoding: str) -> None:
    if heads.mean is not None:
        _add_continuous(heads, graph, _add(heads.mean, graph, encoding))
    if heads.logits is not None:
        _add_discrete(heads, graph, _add(heads.logits, graph, encoding))


def _add_continuous(heads: ActionHeads, graph: _Graph, mean: str) -> None:
    n_actions = heads.spec.continuous_size
    limit = graph.constant("continuous_limit", [CONTINUOUS_LIMIT])

    def add_output(name: str, action: str) -> None:
        clipped = graph.node("Clip", action, min=-CONTINUOUS_LIMIT, max=CONTINUOUS_LIMIT)
        graph.node("Div", clipped, limit, output=name)
        graph.output(name, ["batch", n_actions], dtype=TensorProto.FLOAT)

    std = graph.node("Exp", graph.weight(heads, "log_std"))
    noise = graph.node("RandomNormalLike", mean, dtype=TensorProto.FLOAT)
    add_output("continuous_actions", graph.node("Add", mean, graph.node("Mul", noise, std)))
    graph.constant_output("continuous_action_output_shape", [n_actions])
    add_output("deterministic_continuous_actions", mean)


def _add_discrete(heads: ActionHeads, graph: _Graph, logits: str) -> None:
    branches = heads.spec.discrete_branches
    allowed = graph.input("action_masks", [sum(branches)])
    # logits * allowed + MASKED_LOGIT * (1 - allowed)
    masked_logit = graph.constant("masked_logit", [MASKED_LOGIT])
    negated = graph.constant("masked_logit_negated", [-MASKED_LOGIT])
    penalty = graph.node("Add", graph.node("Mul", allowed, negated), masked_logit)
    logits = graph.node("Add", graph.node("Mul", logits, allowed), penalty)

    sampled, likeliest = [], []
    ends = np.cumsum(branches).tolist()
    for size, end in zip(branches, ends, strict=True):
        branch = graph.node("Slice", logits, axes=[1], starts=[end - size], ends=[end])
        log_probs = graph.node("Log", graph.node("Softmax", branch, axis=1))
        sampled.append(graph.node("Multinomial", log_probs, sample_size=1, dtype=TensorProto.INT64))
        likeliest.append(graph.node("ArgMax", branch, axis=1, keepdims=1))

    def add_output(name: str, choices: list[str]) -> None:
        graph.node("Concat", *choices, axis=1, output=name)
        graph.output(name, ["batch", len(branches)], dtype=TensorProto.INT64)

    add_output("discrete_actions", sampled)
    graph.constant_output("discrete_action_output_shape", [branches])
    add_output("deterministic_discrete_actions", likeliest)
