"""Functions that read, check and run ONNX models, with random or deterministic actions."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import FloatArray
from mlagents_envs.exception import UnityPolicyException
from mlagents_envs.logging_util import get_logger
from mlagents_envs.programs import install_command, needed_extra

logger = get_logger(__name__)

Arrays = dict[str, NDArray[Any]]
Runner = Callable[[Sequence[str], Arrays], Arrays]
"""Function that runs a model: it takes the names of outputs and the values of all inputs, and
returns the values of these outputs."""

_TENSORFLOW_SUFFIX = ":0"
"""Suffix of the names of inputs and outputs in models that were converted from TensorFlow."""

_RANDOM_OPERATORS = ("Multinomial", "RandomNormalLike")
_OTHER_RANDOM_OPERATORS = ("Bernoulli", "RandomUniform", "RandomUniformLike")


def read_model(content: bytes, name: str) -> Any:
    """Return an ONNX model. Names that a conversion from TensorFlow changed are restored.

    Args:
        content: Content of an `.onnx` file.
        name: Name of the model in errors.

    Raises:
        UnityPolicyException: The file is not an ONNX model, or it has NaN in its weights.
        ModuleNotFoundError: onnx is not installed.
    """
    with needed_extra("play"):
        import onnx
    try:
        model = onnx.load_from_string(content)
    except Exception as error:  # protobuf raises errors of several types
        raise UnityPolicyException(f"{name} is not an ONNX model: {_one_line(error)}") from error
    _remove_tensorflow_suffixes(model.graph)
    _require_weights(model.graph, name)
    return model


def _require_weights(graph: Any, name: str) -> None:
    """Raise if a weight is NaN: the model would still return choices that look valid."""
    from onnx import TensorProto, numpy_helper

    constants = [
        (node.output[0], attribute.t)
        for node in graph.node
        if node.op_type == "Constant" and node.output
        for attribute in node.attribute
        if attribute.name == "value"
    ]
    for weights, tensor in [*((weight.name, weight) for weight in graph.initializer), *constants]:
        if tensor.data_location == TensorProto.EXTERNAL:
            continue  # the weights are in another file: the runtime raises an error
        try:
            values = numpy_helper.to_array(tensor)
        except Exception:  # the runtime says what is wrong with it
            continue
        if values.dtype.kind == "f" and np.isnan(values).any():
            raise UnityPolicyException(
                f"{name} has NaN in its weights {weights!r}: its training diverged. Take an "
                "earlier model."
            )


def _remove_tensorflow_suffixes(graph: Any) -> None:
    """Remove the suffix ":0" that TensorFlow added to the names of inputs and outputs."""
    plain = {
        value.name: value.name.removesuffix(_TENSORFLOW_SUFFIX)
        for value in [*graph.input, *graph.output]
    }
    for value in [*graph.input, *graph.output, *graph.initializer]:
        value.name = plain.get(value.name, value.name)
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [plain.get(name, name) for name in names]


def replace_chance(graph: Any, name: str) -> None:
    """Make a model deterministic, unless it has deterministic outputs.

    Random operators are replaced by the most likely choice and by the mean.

    Raises:
        UnityPolicyException: The model has random operators that this function cannot replace.
    """
    outputs = {value.name for value in graph.output}
    sampled = outputs & {"continuous_actions", "discrete_actions"}
    if sampled and all(f"deterministic_{output}" in outputs for output in sampled):
        return
    for node in graph.node:
        if node.op_type in _OTHER_RANDOM_OPERATORS:
            raise UnityPolicyException(
                f"{name} can only sample its actions: it was exported without deterministic "
                f"outputs and samples with {node.op_type}. Do not set deterministic."
            )
    nodes = [better for node in graph.node for better in _without_chance(node)]
    del graph.node[:]
    graph.node.extend(nodes)


def expose_draws(graph: Any) -> list[str]:
    """Add the log-probabilities of all choices to the outputs; return the names of the outputs."""
    from onnx import TensorProto, helper

    known = {value.name for value in graph.output}
    drawn_from = [node.input[0] for node in graph.node if node.op_type == "Multinomial"]
    for name in dict.fromkeys(drawn_from):
        if name not in known:
            graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    return drawn_from


def _without_chance(node: Any) -> list[Any]:
    """Return an operator that computes the most likely choice or the mean of a random operator."""
    from onnx import TensorProto, helper

    if not node.output:
        return [node]  # the runtime says what is wrong with it
    drawn = node.output[0]
    if node.op_type == "Multinomial":  # (B, choices) logarithms of probabilities to (B, 1) choices
        kinds = [attribute.i for attribute in node.attribute if attribute.name == "dtype"]
        likeliest = helper.make_node("ArgMax", node.input, [f"{drawn}/likeliest"], axis=1)
        kind = kinds[0] if kinds else TensorProto.INT32
        return [likeliest, helper.make_node("Cast", likeliest.output, [drawn], to=kind)]
    if node.op_type in ("RandomNormal", "RandomNormalLike"):  # of mean 0
        noise = f"{drawn}/noise"
        node.output[0] = noise
        return [node, helper.make_node("Sub", [noise, noise], [drawn])]
    return [node]


def make_runner(model: Any, rng: np.random.Generator, name: str) -> Runner:
    """Return the function that runs a model: on onnxruntime if that is installed.

    Args:
        model: Model from `read_model`.
        rng: Source of the random numbers of the model.
        name: Name of the model in errors.

    Raises:
        UnityPolicyException: The model cannot be run. The returned function raises it too.
    """
    with _cannot_be_run(name):
        run_unchecked = _choose_runtime(model, rng, name)

    def run(outputs: Sequence[str], inputs: Arrays) -> Arrays:
        with _cannot_be_run(name):
            return run_unchecked(outputs, inputs)

    return run


@contextmanager
def _cannot_be_run(name: str) -> Iterator[None]:
    """Convert every error of the `with` block to one that names the model."""
    try:
        yield
    except Exception as error:  # the runtimes raise errors of many types
        raise UnityPolicyException(f"{name} cannot be run: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _choose_runtime(model: Any, rng: np.random.Generator, name: str) -> Runner:
    try:
        import onnxruntime
    except ModuleNotFoundError:
        logger.info(
            f"{name} runs on onnx.reference, which is slow. Install onnxruntime to make it fast: "
            f"{install_command('play')}"
        )
        return _on_reference(model, rng)
    logger.info(f"{name} runs on onnxruntime {onnxruntime.__version__}.")
    return _on_onnxruntime(model, rng)


def _on_onnxruntime(model: Any, rng: np.random.Generator) -> Runner:
    import onnxruntime
    from onnx import helper

    for node in model.graph.node:
        if node.op_type in _RANDOM_OPERATORS:  # each operator has its own random generator
            others = [attribute for attribute in node.attribute if attribute.name != "seed"]
            seed = helper.make_attribute("seed", float(rng.integers(2**24)))
            del node.attribute[:]
            node.attribute.extend([*others, seed])
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only; it warns about axis names of older exporters
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )

    def run(outputs: Sequence[str], inputs: Arrays) -> Arrays:
        return dict(zip(outputs, session.run(outputs, inputs), strict=True))

    return run


def _on_reference(model: Any, rng: np.random.Generator) -> Runner:
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    # The evaluator lacks one random operator, and its other one cannot be seeded. The names of
    # these classes are the names of the operators.

    class RandomNormalLike(OpRun):
        op_domain = ""

        def _run(self, like: FloatArray, **_attributes: Any) -> tuple[FloatArray]:
            return (rng.standard_normal(like.shape, np.float32),)

    class Multinomial(OpRun):
        op_domain = ""

        def _run(self, log_probs: FloatArray, **_attributes: Any) -> tuple[NDArray[np.int64]]:
            noisy = log_probs + rng.gumbel(size=log_probs.shape)
            return (noisy.argmax(axis=1, keepdims=True),)

    evaluator = ReferenceEvaluator(model, new_ops=[RandomNormalLike, Multinomial])

    def run(outputs: Sequence[str], inputs: Arrays) -> Arrays:
        with np.errstate(divide="ignore"):  # masked choices have probability 0
            return dict(zip(outputs, evaluator.run(outputs, inputs), strict=True))

    return run
