"""Small models by hand, with the inputs and outputs of trained ones."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from onnx import NodeProto, TensorProto, helper, numpy_helper


def make_model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Sequence[int]],
    *,
    floats: Sequence[str] = (),
    integers: Sequence[str] = (),
    constants: Mapping[str, ArrayLike],
    weights: Mapping[str, ArrayLike] | None = None,
) -> bytes:
    """Make a model of opset 9.

    Args:
        nodes: Its operators.
        inputs: Their axes without the first, which has any length.
        floats: Outputs of that type.
        integers: Outputs of that type.
        constants: Outputs that always have these values.
        weights: What nodes take beside the inputs.
    """
    initializers = [
        numpy_helper.from_array(np.asarray(value, np.float32), name)
        for name, value in {
            **{f"{key}.value": value for key, value in constants.items()},
            **(weights or {}),
        }.items()
    ]
    identities = [helper.make_node("Identity", [f"{key}.value"], [key]) for key in constants]
    types = {
        **dict.fromkeys([*floats, *constants], TensorProto.FLOAT),
        **dict.fromkeys(integers, TensorProto.INT64),
    }
    graph = helper.make_graph(
        [*nodes, *identities],
        "by hand",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *axes])
            for name, axes in inputs.items()
        ],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in types.items()],
        initializers,
    )
    opset = helper.make_opsetid("", 9)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=4)
    serialized: bytes = model.SerializeToString()
    return serialized


def node(operator: str, inputs: str, output: str, **attributes: Any) -> NodeProto:
    """Make an operator from the names of what goes in, in one text, and of what comes out."""
    return helper.make_node(operator, inputs.split(), [output], **attributes)


def counting_model() -> bytes:
    """Make a model that observes one number and remembers two: (steps so far, the latest number).

    Its one action is ten times the steps before this one plus the number remembered.
    """
    return make_model(
        [
            node("Unsqueeze", "obs_0", "number", axes=[1]),  # (batch, 1, 1)
            node("Slice", "recurrent_in", "steps", axes=[2], starts=[0], ends=[1]),
            node("Add", "steps one", "more_steps"),
            node("Concat", "more_steps number", "recurrent_out", axis=2),
            node("MatMul", "recurrent_in ten_and_one", "sum"),
            node("Squeeze", "sum", "continuous_actions", axes=[2]),
        ],
        {"obs_0": [1], "recurrent_in": [1, 2]},
        floats=["continuous_actions", "recurrent_out"],
        constants={
            "version_number": [3],
            "memory_size": [2],
            "continuous_action_output_shape": [1],
        },
        weights={"one": [[[1]]], "ten_and_one": [[10], [1]]},
    )
