"""`Graph`: builds an ONNX graph node by node."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from mlagents_envs import __version__

OPSET = 9
IR_VERSION = 4


class Graph:
    """Builder of an ONNX graph. Tensors are identified by name.

    Args:
        module: Module whose weights the graph contains, under their names in its `state_dict`.

    Attributes:
        input_shapes: Shapes of one agent's observations, by input name.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module_names = {part: name for name, part in module.named_modules()}
        self.input_shapes: dict[str, Sequence[int]] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._initializers: dict[str, Any] = {}
        self._nodes: list[Any] = []

    def input(self, name: str, shape: Sequence[int]) -> str:
        """Add an input, (batch, *shape) float32."""
        self._inputs.append(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])
        )
        self.input_shapes[name] = shape
        return name

    def weight(self, module: nn.Module, attribute: str) -> str:
        """Add a parameter or buffer of a submodule; return its name."""
        return self.constant(self.name_of(module, attribute), getattr(module, attribute))

    def name_of(self, module: nn.Module, attribute: str) -> str:
        """Return the name of a submodule's attribute in the `state_dict`."""
        return f"{self._module_names[module]}.{attribute}"

    def constant(self, name: str, value: ArrayLike | Tensor, dtype: type = np.float32) -> str:
        """Add a constant; return its name."""
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        self._initializers[name] = numpy_helper.from_array(np.asarray(array, dtype), name)
        return name

    def node(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node with one output; return the output's name, which is unique by default."""
        output = output or f"{operator}_{len(self._nodes)}"
        self.node_of_many(operator, inputs, [output], **attributes)
        return output

    def node_of_many(
        self, operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> None:
        """Add a node with several outputs."""
        self._nodes.append(helper.make_node(operator, inputs, outputs, **attributes))

    def reshape(self, tensor: str, *shape: int) -> str:
        """Add a reshape; -1 stands for the remaining size, usually the batch."""
        sizes = self.constant(f"shape_{'_'.join(map(str, shape))}", shape, np.int64)
        return self.node("Reshape", tensor, sizes)

    def columns(self, tensor: str, start: int, end: int, *, axis: int = 1) -> str:
        """Add a slice along one axis."""
        return self.node("Slice", tensor, axes=[axis], starts=[start], ends=[end])

    def concat(self, tensors: Sequence[str], *, axis: int = 1) -> str:
        """Add a concatenation, unless there is only one tensor."""
        return self.node("Concat", *tensors, axis=axis) if len(tensors) > 1 else tensors[0]

    def output(self, name: str, shape: Sequence[int | str], *, dtype: int) -> None:
        """Declare the tensor `name` as an output."""
        self._outputs.append(helper.make_tensor_value_info(name, dtype, shape))

    def constant_output(self, name: str, value: ArrayLike) -> None:
        """Add a constant output of type float32, the only type that the engine reads."""
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
