import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from torch import nn

from actors import (
    BEHAVIORS,
    CASES,
    CONTINUOUS,
    DISCRETE,
    HYBRID,
    Case,
    action_mask,
    behavior,
    entities,
    image,
    make_actor,
    memories,
    observations,
    outputs,
)
from mlagents.trainers.acting.policy import ActingPolicy
from mlagents.trainers.export.export import export_onnx
from mlagents.trainers.networks.actor_critic import Actor
from mlagents.trainers.networks.snapshots import snapshot_of
from mlagents.trainers.settings.behavior import NetworkSettings
from mlagents_envs.base_env import BehaviorSpec
from samples import assert_categorical, assert_normal
from shared_data import ROOT, load_vectors, require

# Operators that occur in published models, and that Unity's inference engine thus supports.
IN_PUBLISHED_MODELS = set(
    "Add ArgMax Cast Clip Concat Constant Conv Div Exp Gemm Identity LSTM LeakyRelu Less Log "
    "MatMul Mul Multinomial Pow RandomNormalLike ReduceMean ReduceSum Reshape Sigmoid Slice "
    "Softmax Sqrt Squeeze Sub Tanh Transpose".split()
)

Named = dict[str, NDArray]

every_behavior = pytest.mark.parametrize("spec", BEHAVIORS.values(), ids=BEHAVIORS.keys())
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
every_pair = pytest.mark.parametrize(
    ("spec", "num_layers", "normalize", "n_agents"),
    [
        (CONTINUOUS, 1, False, 1),
        (CONTINUOUS, 2, True, 7),
        (CONTINUOUS, 3, False, 7),
        (DISCRETE, 1, True, 7),
        (DISCRETE, 2, False, 1),
        (DISCRETE, 3, False, 7),
        (HYBRID, 1, False, 7),
        (HYBRID, 2, False, 7),
        (HYBRID, 3, True, 1),
    ],
)
"""Each value of an argument occurs with each value of every other one."""


def load(model: bytes, *, seed: int = 1) -> onnxruntime.InferenceSession:
    onnxruntime.set_seed(seed)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(
    session: onnxruntime.InferenceSession,
    obs: list[NDArray],
    blocked: NDArray | None = None,
    memory: NDArray | None = None,
) -> Named:
    """Act on observations, with the wire's mask (True where an action is not allowed)."""
    inputs = {f"obs_{i}": batch for i, batch in enumerate(obs)}
    if memory is not None and memory.shape[1]:
        inputs["recurrent_in"] = memory[:, None]
    if blocked is not None and blocked.shape[1]:
        inputs["action_masks"] = 1.0 - blocked.astype(np.float32)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def interface(model: onnx.ModelProto) -> dict[str, list]:
    """Inputs and outputs as (name, type, axes)."""

    def described(value: onnx.ValueInfoProto) -> tuple:
        tensor = value.type.tensor_type
        axes = [axis.dim_param or axis.dim_value for axis in tensor.shape.dim]
        return value.name, TensorProto.DataType.Name(tensor.elem_type), axes

    return {
        "inputs": [described(value) for value in model.graph.input],
        "outputs": [described(value) for value in model.graph.output],
    }


def constants(model: onnx.ModelProto) -> dict[str, NDArray]:
    """What `Identity` makes of initializers."""
    initializers = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    return {
        node.output[0]: initializers[node.input[0]]
        for node in model.graph.node
        if node.op_type == "Identity"
    }


# ------------------------------------------------------------------------------------- the contract


def test_names_types_shapes_and_order_of_a_hybrid_policy() -> None:
    spec = behavior(4, 3, continuous=2, branches=(3, 2))
    model = onnx.load_from_string(export_onnx(make_actor(spec), spec))
    assert model.ir_version == 4
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 9)]
    assert interface(model) == {
        "inputs": [
            ("obs_0", "FLOAT", ["batch", 4]),
            ("obs_1", "FLOAT", ["batch", 3]),
            ("action_masks", "FLOAT", ["batch", 5]),
        ],
        "outputs": [
            ("version_number", "FLOAT", [1]),
            ("memory_size", "FLOAT", [1]),
            ("continuous_actions", "FLOAT", ["batch", 2]),
            ("continuous_action_output_shape", "FLOAT", [1]),
            ("deterministic_continuous_actions", "FLOAT", ["batch", 2]),
            ("discrete_actions", "INT64", ["batch", 2]),
            ("discrete_action_output_shape", "FLOAT", [1, 2]),
            ("deterministic_discrete_actions", "INT64", ["batch", 2]),
        ],
    }
    found = constants(model)
    assert found.keys() == {
        "version_number",
        "memory_size",
        "continuous_action_output_shape",
        "discrete_action_output_shape",
    }
    np.testing.assert_array_equal(found["version_number"], [3.0])
    np.testing.assert_array_equal(found["memory_size"], [0.0])
    np.testing.assert_array_equal(found["continuous_action_output_shape"], [2.0])
    np.testing.assert_array_equal(found["discrete_action_output_shape"], [[3.0, 2.0]])


RECURRENT = {"memory": {"memory_size": 16}}
VECTORS = {
    "continuous": Case(CONTINUOUS),
    "discrete": Case(DISCRETE),
    "hybrid_visual_buffer": Case(
        behavior(8, image(3, 36, 36), entities(5, 4), continuous=2, branches=(3, 2))
    ),
    "continuous_recurrent": Case(CONTINUOUS, RECURRENT),
    "discrete_recurrent": Case(DISCRETE, RECURRENT),
}


@pytest.mark.parametrize("name", VECTORS)
def test_interface_is_that_of_the_specification(name: str) -> None:
    wanted = next(v for v in load_vectors("onnx_interfaces") if v["name"] == name)
    spec, settings = VECTORS[name]
    model = onnx.load_from_string(export_onnx(make_actor(spec, normalize=True, **settings), spec))
    assert model.ir_version == wanted["ir_version"]
    assert model.opset_import[0].version == wanted["opset"]
    found = interface(model)
    for kind in ("inputs", "outputs"):
        described = [(value["name"], value["type"], value["shape"]) for value in wanted[kind]]
        assert found[kind] == described
    for constant, value in constants(model).items():
        np.testing.assert_array_equal(value, wanted["constants"][constant]["value"])
        assert value.dtype == np.float32


@every_case
def test_every_kind_of_network_is_a_valid_model(case: Case) -> None:
    model = onnx.load_from_string(export_onnx(make_actor(case.spec, **case.settings), case.spec))
    onnx.checker.check_model(model, full_check=True)
    pooling = {"MaxPool", "Relu"} if case.settings.get("vis_encode_type") == "resnet" else set()
    assert {node.op_type for node in model.graph.node} <= IN_PUBLISHED_MODELS | pooling


@every_case
def test_every_kind_of_network_gives_the_numbers_of_torch(case: Case) -> None:
    actor = make_actor(case.spec, **case.settings)
    session = load(export_onnx(actor, case.spec))
    for n_agents in (1, 9):
        assert_same_numbers(session, actor, case.spec, n_agents)


def assert_same_numbers(
    session: onnxruntime.InferenceSession, actor: Actor, spec: BehaviorSpec, n_agents: int
) -> None:
    rng = np.random.default_rng(n_agents)
    memory = memories(actor, n_agents, rng)
    for _ in range(3):  # what goes out of one step goes into the next
        obs, blocked = observations(spec, n_agents, rng), action_mask(spec, n_agents, rng)
        found = run(session, obs, blocked, memory)
        mean, logits, memory = outputs(actor, obs, memory)
        if mean is not None:
            assert n_agents == 1 or np.ptp(mean, axis=0).max() > 0.02, "all agents alike"
            np.testing.assert_allclose(
                found["deterministic_continuous_actions"], mean.clip(-3, 3) / 3, atol=1e-5
            )
        if logits is not None:
            assert_likeliest(found["deterministic_discrete_actions"], logits, blocked, spec)
        if memory.shape[1]:
            np.testing.assert_allclose(found["recurrent_out"][:, 0], memory, atol=1e-5)


def assert_likeliest(
    chosen: NDArray, logits: NDArray, blocked: NDArray, spec: BehaviorSpec
) -> None:
    allowed = np.where(blocked, -np.inf, logits)
    ends = np.cumsum(spec.action_spec.discrete_branches)[:-1]
    likeliest = [branch.argmax(1) for branch in np.split(allowed, ends, axis=1)]
    np.testing.assert_array_equal(chosen, np.column_stack(likeliest))


@every_case
def test_every_kind_of_network_samples_as_torch_does(case: Case) -> None:
    spec = case.spec
    actor = make_actor(spec, **case.settings)
    if actor.heads.mean is not None:
        with torch.no_grad():  # so that a limit of 3 is far away
            actor.heads.mean.weight *= 0.1
            actor.heads.log_std.fill_(-1.0)
    rng = np.random.default_rng(0)
    obs, memory = observations(spec, 1, rng), memories(actor, 1, rng)
    mean, logits, _ = outputs(actor, obs, memory)
    blocked = np.zeros((2000, sum(spec.action_spec.discrete_branches)), np.bool_)
    session = load(export_onnx(actor, spec))
    found = run(session, repeated(obs, 2000), blocked, *repeated([memory], 2000))
    if mean is not None:
        for action in ((found["continuous_actions"] * 3 - mean) / np.exp(-1.0)).T:
            assert_normal(action)
    if logits is not None:
        branches = torch.from_numpy(logits).split(spec.action_spec.discrete_branches, dim=1)
        for branch, chosen in zip(branches, found["discrete_actions"].T, strict=True):
            assert_categorical(chosen, branch.softmax(1)[0])


@every_case
def test_every_kind_of_network_takes_zeros_of_one_agent(case: Case) -> None:
    # The engine tries every model with them: no entity is there, nothing is allowed.
    actor = make_actor(case.spec, **case.settings)
    zeros = [np.zeros((1, *o.shape), np.float32) for o in case.spec.observation_specs]
    blocked = np.ones((1, sum(case.spec.action_spec.discrete_branches)), np.bool_)
    memory = np.zeros((1, actor.body.memory_size), np.float32)
    found = run(load(export_onnx(actor, case.spec)), zeros, blocked, memory)
    assert all(np.isfinite(value).all() for value in found.values())


def test_weights_keep_their_names_and_nothing_is_stored_twice() -> None:
    actor = make_actor(HYBRID, normalize=True)
    model = onnx.load_from_string(export_onnx(actor, HYBRID))
    stored = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    assert len(stored) == len(model.graph.initializer)
    for name, parameter in actor.named_parameters():
        np.testing.assert_array_equal(stored[name], parameter.detach().numpy())


def test_export_only_reads_and_repeats_itself() -> None:
    actor = make_actor(HYBRID, normalize=True)
    before = {name: value.clone() for name, value in actor.state_dict().items()}
    first = export_onnx(actor, HYBRID)
    assert export_onnx(actor, HYBRID) == first
    for name, value in actor.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    with torch.no_grad():
        actor.heads.log_std += 1.0
    assert export_onnx(actor, HYBRID) != first


def test_a_module_without_an_onnx_form_is_named() -> None:
    actor = make_actor(CONTINUOUS)
    actor.body.dense.append(nn.Tanhshrink())
    with pytest.raises(NotImplementedError, match="Tanhshrink"):
        export_onnx(actor, CONTINUOUS)


# --------------------------------------------------------------------------------- the same numbers


@every_pair
def test_every_model_is_valid_and_its_deterministic_outputs_are_those_of_torch(
    spec: BehaviorSpec, num_layers: int, normalize: bool, n_agents: int
) -> None:
    actor = make_actor(spec, normalize=normalize, num_layers=num_layers)
    exported = export_onnx(actor, spec)
    model = onnx.load_from_string(exported)
    onnx.checker.check_model(model, full_check=True)
    assert {node.op_type for node in model.graph.node} <= IN_PUBLISHED_MODELS

    rng = np.random.default_rng(n_agents)
    obs, blocked = observations(spec, n_agents, rng), action_mask(spec, n_agents, rng)
    found = run(load(exported), obs, blocked)

    mean, logits, _ = outputs(actor, obs)
    if mean is not None:
        np.testing.assert_allclose(
            found["deterministic_continuous_actions"], mean.clip(-3, 3) / 3, atol=1e-5
        )
    if logits is not None:
        allowed = np.where(blocked, -np.inf, logits)
        ends = np.cumsum(spec.action_spec.discrete_branches)[:-1]
        likeliest = [branch.argmax(1) for branch in np.split(allowed, ends, axis=1)]
        np.testing.assert_array_equal(
            found["deterministic_discrete_actions"], np.column_stack(likeliest)
        )


@every_behavior
def test_deterministic_outputs_are_those_of_the_deterministic_policy(spec: BehaviorSpec) -> None:
    actor = make_actor(spec, normalize=True)
    rng = np.random.default_rng(0)
    obs, blocked = observations(spec, 30, rng), action_mask(spec, 30, rng)
    policy = ActingPolicy(snapshot_of(actor), spec.action_spec, deterministic=True, rng=rng)
    action = policy.act(obs, blocked).action
    found = run(load(export_onnx(actor, spec)), obs, blocked)
    if spec.action_spec.continuous_size:
        np.testing.assert_allclose(
            found["deterministic_continuous_actions"], action.continuous, atol=1e-5
        )
    if spec.action_spec.discrete_size:
        np.testing.assert_array_equal(found["deterministic_discrete_actions"], action.discrete)


@every_behavior
def test_zeros_at_batch_1_as_the_engine_sends_when_it_loads_a_model(spec: BehaviorSpec) -> None:
    session = load(export_onnx(make_actor(spec, normalize=True), spec))
    zeros = [np.zeros((1, *o.shape), np.float32) for o in spec.observation_specs]
    n_choices = sum(spec.action_spec.discrete_branches)
    found = run(session, zeros, np.ones((1, n_choices), np.bool_))  # all masks 0: nothing allowed
    assert all(np.isfinite(value).all() for value in found.values())
    for name in ("discrete_actions", "deterministic_discrete_actions"):
        if name in found:
            assert (found[name] >= 0).all()
            assert (found[name] < spec.action_spec.discrete_branches).all()


@pytest.mark.parametrize("size", [1e4, 1e30])
@every_behavior
def test_observations_of_any_size_give_actions_in_range(spec: BehaviorSpec, size: float) -> None:
    # Normalized they are clipped; without, logits are of this size too and most chances vanish.
    normalize = size > 1e4
    actor = make_actor(spec, normalize=normalize)
    rng = np.random.default_rng(0)
    obs = [batch * np.float32(size) for batch in observations(spec, 50, rng)]
    blocked = action_mask(spec, 50, rng)
    found = run(load(export_onnx(actor, spec)), obs, blocked)
    for name, value in found.items():
        assert np.isfinite(value).all(), name
    if "continuous_actions" in found:
        assert np.abs(found["continuous_actions"]).max() <= 1.0
    if "discrete_actions" in found:
        assert_allowed(found["discrete_actions"], blocked, spec)
        assert_allowed(found["deterministic_discrete_actions"], blocked, spec)


def assert_allowed(chosen: NDArray, blocked: NDArray, spec: BehaviorSpec) -> None:
    ends = np.cumsum(spec.action_spec.discrete_branches)[:-1]
    for branch, mask in enumerate(np.split(blocked, ends, axis=1)):
        assert not np.take_along_axis(mask, chosen[:, branch : branch + 1], axis=1).any()


# ------------------------------------------------------------------------------------------ samples


def repeated(obs: list[NDArray], n_rows: int) -> list[NDArray]:
    return [np.repeat(batch, n_rows, axis=0) for batch in obs]


def test_continuous_samples_are_normal_around_the_mean_with_the_deviation() -> None:
    actor = make_actor(CONTINUOUS)
    with torch.no_grad():  # so that a limit of 3 is far away
        actor.heads.mean.weight *= 0.1
        actor.heads.log_std.copy_(torch.tensor([-1.0, -2.0]))
    obs = observations(CONTINUOUS, 1, np.random.default_rng(0))
    found = run(load(export_onnx(actor, CONTINUOUS)), repeated(obs, 50_000))
    mean, _, _ = outputs(actor, obs)
    noise = (found["continuous_actions"] * 3 - mean) / np.exp([-1.0, -2.0])
    assert_normal(noise[:, 0])
    assert_normal(noise[:, 1])
    # Independent of each other: so their normed sum is N(0, 1) too.
    assert_normal((noise[:, 0] + noise[:, 1]) / np.sqrt(2))


def test_continuous_actions_are_clamped_to_3_then_divided_by_it() -> None:
    actor = make_actor(CONTINUOUS)
    with torch.no_grad():
        actor.heads.mean.weight.zero_()
        actor.heads.mean.bias.copy_(torch.tensor([-7.0, 1.5]))
        actor.heads.log_std.copy_(torch.tensor([-3.0, 3.0]))
    obs = repeated(observations(CONTINUOUS, 1, np.random.default_rng(0)), 1000)
    found = run(load(export_onnx(actor, CONTINUOUS)), obs)
    deterministic, sampled = found["deterministic_continuous_actions"], found["continuous_actions"]
    np.testing.assert_array_equal(deterministic, np.tile(np.float32([-1.0, 0.5]), (1000, 1)))
    # Deviation 0.05 around -7 is always beyond the limit, 20 around 1.5 mostly, on both sides.
    np.testing.assert_array_equal(sampled[:, 0], -1.0)
    assert sampled[:, 1].min() == -1.0
    assert sampled[:, 1].max() == 1.0


def test_discrete_samples_have_the_probabilities_of_torch_in_every_branch() -> None:
    actor = make_actor(DISCRETE)
    obs = observations(DISCRETE, 1, np.random.default_rng(0))
    none_blocked = np.zeros((50_000, 5), np.bool_)
    found = run(load(export_onnx(actor, DISCRETE)), repeated(obs, 50_000), none_blocked)
    _, logits, _ = outputs(actor, obs)
    first, second = (p.softmax(1)[0] for p in torch.from_numpy(logits).split([3, 2], dim=1))
    chosen = found["discrete_actions"]
    # The branches are independent, so all six pairs have the product of their chances.
    assert_categorical(chosen[:, 0] * 2 + chosen[:, 1], torch.outer(first, second))


def test_a_masked_action_is_never_sampled_and_the_others_share_its_chances() -> None:
    actor = make_actor(DISCRETE)
    with torch.no_grad():
        actor.heads.logits.bias[1] += 10.0  # by far the likeliest, were it allowed
    obs = observations(DISCRETE, 1, np.random.default_rng(0))
    blocked = np.tile([False, True, False, True, False], (50_000, 1))
    found = run(load(export_onnx(actor, DISCRETE)), repeated(obs, 50_000), blocked)
    _, logits, _ = outputs(actor, obs)
    of_0 = 1 / (1 + np.exp(logits[0, 2] - logits[0, 0]))
    assert_categorical(found["discrete_actions"][:, 0], [of_0, 0.0, 1 - of_0])
    np.testing.assert_array_equal(found["discrete_actions"][:, 1], 1)
    assert set(found["deterministic_discrete_actions"][:, 0]) <= {0, 2}


def test_with_nothing_allowed_any_choice_is_as_good() -> None:
    actor = make_actor(DISCRETE)
    with torch.no_grad():
        actor.heads.logits.bias[1] += 1000.0  # without masks, certain
    obs = observations(DISCRETE, 20_000, np.random.default_rng(0))
    found = run(load(export_onnx(actor, DISCRETE)), obs, np.ones((20_000, 5), np.bool_))
    assert_categorical(found["discrete_actions"][:, 0], [1 / 3] * 3)
    assert_categorical(found["discrete_actions"][:, 1], [1 / 2] * 2)


# -------------------------------------------------------------------------- models trained in Unity


def load_published(name: str) -> tuple[onnx.ModelProto, dict[str, NDArray]]:
    model = onnx.load(require(ROOT / "models" / f"{name}.onnx"))
    return model, {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}


def take_over(actor: Actor, spec: BehaviorSpec, weights: dict[str, NDArray], head: str) -> None:
    """Give an actor the weights of a published model."""
    layers = [layer for layer in actor.body.dense if isinstance(layer, nn.Linear)]
    sources = [f"network_body._body_endoder.seq_layers.{2 * i}" for i in range(len(layers))]
    layers.append(actor.heads.mean if spec.action_spec.continuous_size else actor.heads.logits)
    sources.append(f"action_model.{head}")
    with torch.no_grad():
        for layer, source in zip(layers, sources, strict=True):
            layer.weight.copy_(torch.tensor(weights[f"{source}.weight"]))
            layer.bias.copy_(torch.tensor(weights[f"{source}.bias"]))


def assert_same_interface(ours: onnx.ModelProto, published: onnx.ModelProto) -> None:
    found, wanted = interface(ours), interface(published)
    assert found["inputs"] == wanted["inputs"]
    # A published deterministic output has another name for the same first axis.
    for output, published_output in zip(found["outputs"], wanted["outputs"], strict=True):
        assert output[:2] == published_output[:2]
        assert output[2][1:] == published_output[2][1:]
    assert [(o.domain, o.version) for o in ours.opset_import] == [
        (o.domain, o.version) for o in published.opset_import
    ]
    assert ours.ir_version == published.ir_version
    for name, value in constants(published).items():
        np.testing.assert_array_equal(constants(ours)[name], value)


def test_3dball_trained_in_unity_acts_the_same_through_our_actor_and_export() -> None:
    published, weights = load_published("3DBall")
    actor = Actor(CONTINUOUS, NetworkSettings(normalize=True, hidden_units=128, num_layers=2))
    take_over(actor, CONTINUOUS, weights, "_continuous_distribution.mu")
    normalizer = actor.body.observations.encoders[0].normalizer
    normalizer.shift.copy_(
        torch.tensor(
            weights["network_body.observation_encoder.processors.0.normalizer.running_mean"]
        )
    )
    normalizer.scale.copy_(torch.tensor(1 / weights["onnx::Div_51"]))
    model = export_onnx(actor, CONTINUOUS)

    assert_same_interface(onnx.load_from_string(model), published)
    obs = observations(CONTINUOUS, 100, np.random.default_rng(0))
    name = "deterministic_continuous_actions"
    wanted = run(load(published.SerializeToString()), obs)[name]
    assert np.ptp(wanted) > 0.5
    np.testing.assert_allclose(run(load(model), obs)[name], wanted, atol=1e-5)


def test_push_block_trained_in_unity_acts_the_same_through_our_actor_and_export() -> None:
    published, weights = load_published("PushBlock")
    spec = behavior(105, 105, branches=(7,))
    actor = Actor(spec, NetworkSettings(hidden_units=256, num_layers=2))
    take_over(actor, spec, weights, "_discrete_distribution.branches.0")
    model = export_onnx(actor, spec)

    assert_same_interface(onnx.load_from_string(model), published)
    rng = np.random.default_rng(0)
    obs, blocked = observations(spec, 200, rng), action_mask(spec, 200, rng)
    name = "deterministic_discrete_actions"
    wanted = run(load(published.SerializeToString()), obs, blocked)[name]
    assert len(np.unique(wanted)) == 7
    np.testing.assert_array_equal(run(load(model), obs, blocked)[name], wanted)


def test_the_outputs_of_an_older_published_model_are_among_ours() -> None:
    published, _ = load_published("Match3VectorObs")  # from before deterministic outputs
    spec = behavior(432, 216, branches=(127,))
    ours = interface(onnx.load_from_string(export_onnx(make_actor(spec), spec)))
    wanted = interface(published)
    assert ours["inputs"] == wanted["inputs"]
    assert [output for output in ours["outputs"] if output in wanted["outputs"]] == wanted[
        "outputs"
    ]
