"""A model acts as it was trained to, for every agent, and only where it fits."""

import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

from actors import DISCRETE, HYBRID, action_mask, behavior, make_actor, observations, outputs
from mlagents.policy import Policy, find_model
from mlagents.trainers.export.export import export_onnx
from mlagents_envs.base_env import (
    ActionSpec,
    BehaviorSpec,
    DecisionSteps,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
    TerminalSteps,
)
from mlagents_envs.exception import UnityPolicyException
from models import counting_model, make_model, node
from samples import assert_categorical, assert_normal
from shared_data import ROOT, require

PRESENT = {"version_number": [3], "memory_size": [0]}


def decisions_of(
    obs: list[np.ndarray], *, agents: list[int] | None = None, masks: list[np.ndarray] | None = None
) -> DecisionSteps:
    n = len(obs[0])
    return DecisionSteps.of(obs, [0.0] * n, range(n) if agents is None else agents, masks=masks)


def terminals_of(*agents: int) -> TerminalSteps:
    n = len(agents)
    return TerminalSteps.of([np.zeros((n, 1), np.float32)], [0.0] * n, agents, interrupted=False)


def split(spec: BehaviorSpec, mask: np.ndarray) -> list[np.ndarray]:
    return np.split(mask, np.cumsum(spec.action_spec.discrete_branches)[:-1], axis=1)


def model_of(operator: str, inputs: dict[str, list[int]], **constants: list[float]) -> bytes:
    """Make a model whose continuous actions are one operator of its observation."""
    [name] = inputs
    return make_model(
        [node(operator, name, "continuous_actions")],
        inputs,
        floats=["continuous_actions"],
        constants={**PRESENT, "continuous_action_output_shape": [1], **constants},
    )


@pytest.fixture(params=["onnxruntime", "onnx.reference"])
def runtime(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "onnx.reference":
        monkeypatch.setitem(sys.modules, "onnxruntime", None)  # importing it fails
    return str(request.param)


# ------------------------------------------------------------------------------------ what it does


def test_the_runtime_is_named(runtime: str, capsys: pytest.CaptureFixture[str]) -> None:
    Policy(counting_model(), name="counting.onnx")
    assert f"[INFO] counting.onnx runs on {runtime}" in capsys.readouterr().out


@pytest.mark.usefixtures("runtime")
def test_deterministic_actions_are_means_and_the_likeliest_allowed_choices() -> None:
    rng = np.random.default_rng(1)
    actor = make_actor(HYBRID, normalize=True)
    obs, mask = observations(HYBRID, 50, rng), action_mask(HYBRID, 50, rng)
    policy = Policy(export_onnx(actor, HYBRID), deterministic=True)
    policy.check(HYBRID)

    action = policy.act(decisions_of(obs, masks=split(HYBRID, mask)))

    means, logits, _memory = outputs(actor, obs)
    assert means is not None and logits is not None
    np.testing.assert_allclose(action.continuous, np.clip(means, -3, 3) / 3, atol=1e-5)
    allowed = split(HYBRID, np.where(mask, -np.inf, logits))
    likeliest = np.stack([branch.argmax(axis=1) for branch in allowed], axis=1)
    np.testing.assert_array_equal(action.discrete, likeliest)


@pytest.mark.usefixtures("runtime")
def test_without_deterministic_outputs_the_likeliest_is_done_all_the_same() -> None:
    rng = np.random.default_rng(1)
    obs, mask = observations(HYBRID, 50, rng), action_mask(HYBRID, 50, rng)
    present = export_onnx(make_actor(HYBRID, normalize=True), HYBRID)
    legacy = ModelProto.FromString(present)
    kept = [one for one in legacy.graph.output if not one.name.startswith("deterministic_")]
    assert len(kept) == len(legacy.graph.output) - 2
    del legacy.graph.output[:]
    legacy.graph.output.extend(kept)
    actions = []
    for model in (present, legacy.SerializeToString()):
        policy = Policy(model, deterministic=True)
        policy.check(HYBRID)
        actions.append(policy.act(decisions_of(obs, masks=split(HYBRID, mask))))
    np.testing.assert_allclose(actions[0].continuous, actions[1].continuous, atol=1e-6)
    np.testing.assert_array_equal(actions[0].discrete, actions[1].discrete)
    sampled = Policy(legacy.SerializeToString()).act(decisions_of(obs, masks=split(HYBRID, mask)))
    assert (sampled.discrete != actions[0].discrete).any()


@pytest.mark.parametrize("name", ["Match3VectorObs", "Crawler"])
def test_models_of_unity_without_deterministic_outputs_act_the_same_for_every_seed(
    name: str,
) -> None:
    model = require(ROOT / "models" / f"{name}.onnx")
    rng = np.random.default_rng(0)
    sizes = {"Match3VectorObs": (432, 216), "Crawler": (126, 32)}[name]
    obs = [rng.random((4, size), np.float32) for size in sizes]
    masks = [np.zeros((4, 127), np.bool_)] if name == "Match3VectorObs" else None
    first, second = (
        Policy.load(model, deterministic=True, seed=seed).act(decisions_of(obs, masks=masks))
        for seed in (1, 2)
    )
    np.testing.assert_array_equal(first.continuous, second.continuous)
    np.testing.assert_array_equal(first.discrete, second.discrete)


@pytest.mark.usefixtures("runtime")
def test_sampled_choices_are_as_often_as_they_are_likely_and_repeat_with_the_seed() -> None:
    rng = np.random.default_rng(2)
    actor = make_actor(DISCRETE)
    n = 4000
    obs = [np.repeat(batch, n, axis=0) for batch in observations(DISCRETE, 1, rng)]
    mask = np.repeat([[False, False, True, False, False]], n, axis=0)  # of branches 3 and 2
    model = export_onnx(actor, DISCRETE)

    def act(seed: int) -> list[np.ndarray]:
        policy = Policy(model, seed=seed)
        decisions = decisions_of(obs, masks=split(DISCRETE, mask))
        return [policy.act(decisions).discrete for _ in range(2)]

    first, second = act(seed=3)
    logits = outputs(actor, [batch[:1] for batch in obs])[1]
    assert logits is not None
    for branch, of_branch in enumerate(split(DISCRETE, np.where(mask[:1], -np.inf, logits))):
        probabilities = np.exp(of_branch[0]) / np.exp(of_branch[0]).sum()
        assert_categorical(first[:, branch], probabilities)
    assert (first != second).any(), "numbers are drawn anew at every step"
    np.testing.assert_array_equal([first, second], act(seed=3))
    assert (first != act(seed=4)[0]).any()


@pytest.mark.usefixtures("runtime")
def test_each_agent_has_its_own_memory_until_it_ends() -> None:
    # The action is 10 * steps before + what was seen the step before.
    policy = Policy(counting_model())

    def act(seen: dict[int, float], *ended: int) -> list[float]:
        obs = [np.array([[number] for number in seen.values()], np.float32).reshape(-1, 1)]
        action = policy.act(decisions_of(obs, agents=[*seen]), terminals_of(*ended))
        return action.continuous[:, 0].tolist()

    assert act({7: 1, 9: 2}) == [0, 0]
    assert act({9: 3}) == [12]
    assert act({9: 4, 7: 5}) == [23, 11], "each by its id, whatever its row"
    assert act({7: 6, 9: 7}, 9) == [25, 0], "9 ended and began anew in one report"
    assert act({}, 7) == []
    assert act({7: 8, 9: 9}) == [0, 17]
    policy.reset()
    assert act({7: 1, 9: 1}) == [0, 0]


def test_nobody_asks_and_nothing_is_done() -> None:
    policy = Policy(export_onnx(make_actor(HYBRID), HYBRID))
    policy.check(HYBRID)
    action = policy.act(DecisionSteps.empty(HYBRID))
    HYBRID.action_spec.check(action, 0, behavior="")


def test_images_of_8_bit_are_seen_as_floats() -> None:
    model = make_model(
        [node("ReduceMean", "obs_0", "continuous_actions", axes=[1, 2], keepdims=0)],
        {"obs_0": [1, 2, 3]},
        floats=["continuous_actions"],  # (batch, 3): the mean of every column
        constants={**PRESENT, "continuous_action_output_shape": [3]},
    )
    image = np.array([[[[0, 51, 255], [0, 153, 255]]]], np.uint8)
    action = Policy(model).act(decisions_of([image]))
    np.testing.assert_allclose(action.continuous, [[0.0, 0.4, 1.0]], atol=1e-6)


# ------------------------------------------------------------------------- models of older packages


LEGACY = BehaviorSpec(
    [
        ObservationSpec.vector(2, "first"),
        ObservationSpec(
            (1, 1, 2), (DimensionProperty.NONE,) * 3, ObservationType.DEFAULT, "camera"
        ),
        ObservationSpec.vector(1, "second"),
    ],
    ActionSpec.create_discrete((2, 3)),
)


def legacy_model(*, is_continuous: bool) -> bytes:
    """Hands out the vectors and the image side by side, less 10 where that is not allowed."""
    nodes = [
        node("Flatten", "visual_observation_0", "image"),
        node("Concat", "vector_observation image", "seen", axis=1),
    ]
    inputs = {"vector_observation": [3], "visual_observation_0": [1, 1, 2]}
    if is_continuous:
        nodes.append(node("Identity", "seen", "action"))
    else:
        inputs["action_masks"] = [5]
        nodes += [
            node("Mul", "action_masks ten", "bonus"),
            node("Add", "seen bonus", "action"),
        ]
    return make_model(
        nodes,
        inputs,
        floats=["action"],
        constants={
            "version_number": [2],
            "memory_size": [0],
            "is_continuous_control": [float(is_continuous)],
            "action_output_shape": [5],
        },
        weights={"ten": [10]},
    )


LEGACY_OBS = [
    np.array([[1, 2]], np.float32),
    np.array([[[[4, 5]]]], np.float32),
    np.array([[3]], np.float32),
]


def test_an_old_model_gets_its_vectors_together_and_its_images_apart() -> None:
    action = Policy(legacy_model(is_continuous=True)).act(decisions_of(LEGACY_OBS))
    assert action.continuous.tolist() == [[1, 2, 3, 4, 5]]


def test_choices_of_an_old_model_are_made_from_its_logarithms() -> None:
    policy = Policy(legacy_model(is_continuous=False), deterministic=True)
    policy.check(LEGACY)
    # 1 2 | 3 4 5, with the second and the last not allowed: 11 2 | 13 14 5
    masks = [np.array([[False, True]]), np.array([[False, False, True]])]
    assert policy.act(decisions_of(LEGACY_OBS, masks=masks)).discrete.tolist() == [[0, 1]]

    sampling = Policy(legacy_model(is_continuous=False), seed=1)
    sampling.check(LEGACY)
    n = 4000
    many = [np.repeat(batch, n, axis=0) for batch in LEGACY_OBS]
    masks = [np.repeat(mask, n, axis=0) for mask in masks]
    chosen = sampling.act(decisions_of(many, masks=masks)).discrete
    e = np.exp([13.0, 14.0, 5.0])
    assert_categorical(chosen[:, 1], e / e.sum())


def test_an_old_model_may_forbid_by_a_logarithm_of_zero() -> None:
    model = make_model(
        [node("Log", "vector_observation", "action")],
        {"vector_observation": [2]},
        floats=["action"],
        constants={"version_number": [2], "memory_size": [0], "is_continuous_control": [0]},
    )
    policy = Policy(model, seed=1)
    policy.check(behavior(2, branches=(2,)))
    obs = np.repeat(np.array([[0, 1]], np.float32), 50, axis=0)
    assert policy.act(decisions_of([obs])).discrete.tolist() == [[1]] * 50


def test_an_old_model_gets_noise_where_it_asks_for_it() -> None:
    model = make_model(
        [node("Add", "vector_observation epsilon", "action")],
        {"vector_observation": [2], "epsilon": [2]},
        floats=["action"],
        constants={"version_number": [2], "memory_size": [0], "is_continuous_control": [1]},
    )
    obs = np.repeat(np.array([[3, 4]], np.float32), 4000, axis=0)
    noise = Policy(model, seed=1).act(decisions_of([obs])).continuous - obs
    assert_normal(noise[:, 0])
    assert_normal(noise[:, 1])
    means = Policy(model, deterministic=True).act(decisions_of([obs])).continuous
    np.testing.assert_array_equal(means, obs)


@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize("is_continuous", [True, False])
def test_names_that_tensorflow_ended_with_a_number_are_understood(is_continuous: bool) -> None:
    plain = ModelProto.FromString(legacy_model(is_continuous=is_continuous))
    named = ModelProto.FromString(plain.SerializeToString())
    graph = named.graph
    for value in [*graph.input, *graph.output, *graph.initializer]:
        value.name += ":0"
    for operator in graph.node:
        operator.input[:] = [f"{name}:0" for name in operator.input]
        operator.output[:] = [f"{name}:0" for name in operator.output]
    masks = [np.array([[False, True]]), np.array([[False, False, True]])]
    actions = []
    for model in (plain, named):
        policy = Policy(model.SerializeToString(), deterministic=True)
        if not is_continuous:
            policy.check(LEGACY)
        actions.append(policy.act(decisions_of(LEGACY_OBS, masks=masks)))
    np.testing.assert_array_equal(actions[0].continuous, actions[1].continuous)
    np.testing.assert_array_equal(actions[0].discrete, actions[1].discrete)


def test_an_old_model_needs_to_know_the_behavior() -> None:
    policy = Policy(legacy_model(is_continuous=False))
    masks = [np.zeros((1, 2), np.bool_), np.zeros((1, 3), np.bool_)]
    with pytest.raises(UnityPolicyException, match=r"call check\(\)"):
        policy.act(decisions_of(LEGACY_OBS, masks=masks))
    with pytest.raises(UnityPolicyException, match="5 discrete choices in total, but"):
        policy.check(LEGACY._replace(action_spec=ActionSpec.create_discrete((4,))))


# ------------------------------------------------------------------------------------ what is wrong


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (behavior(4, 2, continuous=2, branches=(3,)), "obs_1: expected 3, 'vector_1' is 2"),
        (behavior(4, continuous=2, branches=(3,)), "obs_1: expected an observation of 3"),
        (behavior(4, 3, branches=(3,)), "2 continuous actions, but the behavior has 0"),
        (behavior(4, 3, continuous=2), r"discrete branches \[3\], but the behavior has \[\]"),
        (behavior(4, 3, continuous=2, branches=(2, 1)), r"\[3\], but the behavior has \[2, 1\]"),
    ],
)
def test_a_behavior_that_does_not_fit_is_told_why(spec: BehaviorSpec, text: str) -> None:
    trained_for = behavior(4, 3, continuous=2, branches=(3,))
    policy = Policy(export_onnx(make_actor(trained_for), trained_for), name="some.onnx")
    policy.check(trained_for, "Right")
    with pytest.raises(UnityPolicyException, match=f"some.onnx does not fit .*'Wrong'.*{text}"):
        policy.check(spec, "Wrong")


def test_an_observation_that_the_model_does_not_read_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    trained_for = behavior(4, continuous=1)
    policy = Policy(export_onnx(make_actor(trained_for), trained_for))
    policy.check(behavior(4, 3, continuous=1), "Wider")
    assert "does not read these observations of 'Wider': vector_1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("constants", "inputs", "text"),
    [
        ({"memory_size": [0]}, {"obs_0": [1]}, "has no version"),
        ({**PRESENT, "version_number": [4]}, {"obs_0": [1]}, "has version 4, expected 2 or 3"),
        (PRESENT, {"pixels": [1]}, "takes 'pixels' of 2 axes"),
        (PRESENT, {"obs_0": []}, "takes 'obs_0' of 1 axes"),
        (PRESENT, {"obs_0": [1]}, "has no actions"),
        ({**PRESENT, "memory_size": [2]}, {"obs_0": [1]}, "does not return its memory"),
    ],
)
def test_what_is_no_policy_is_refused(constants: dict, inputs: dict, text: str) -> None:
    [name] = inputs
    model = make_model(
        [node("Identity", name, "result")], inputs, floats=["result"], constants=constants
    )
    with pytest.raises(UnityPolicyException, match=f"is not a policy for agents: it {text}"):
        Policy(model)


def test_a_model_without_the_sizes_of_its_branches_is_refused() -> None:
    model = make_model(
        [node("ArgMax", "obs_0", "discrete_actions", axis=1)],
        {"obs_0": [2]},
        integers=["discrete_actions"],
        constants=PRESENT,
    )
    with pytest.raises(UnityPolicyException, match="has no discrete_action_output_shape"):
        Policy(model)


def test_a_model_that_cannot_be_run_is_refused() -> None:
    model = make_model(
        [node("Frobnicate", "obs_0", "continuous_actions")],
        {"obs_0": [1]},
        floats=["continuous_actions"],
        constants=PRESENT,
    )
    with pytest.raises(UnityPolicyException, match=r"model cannot be run: .*Frobnicate"):
        Policy(model)


def test_files_that_are_no_models_are_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"junk")
    with pytest.raises(UnityPolicyException, match=r"broken\.onnx is not an ONNX model"):
        Policy.load(broken)
    with pytest.raises(UnityPolicyException, match=r"none\.onnx cannot be read: No such file"):
        Policy.load(tmp_path / "none.onnx")


def test_a_model_that_draws_in_unknown_ways_does_not_act_deterministically() -> None:
    model = make_model(
        [
            node("RandomUniformLike", "obs_0", "noise"),
            node("Add", "obs_0 noise", "continuous_actions"),
        ],
        {"obs_0": [1]},
        floats=["continuous_actions"],
        constants={**PRESENT, "continuous_action_output_shape": [1]},
    )
    Policy(model)
    with pytest.raises(UnityPolicyException, match=r"outputs and samples with RandomU"):
        Policy(model, deterministic=True)


def test_an_input_beyond_memory_is_refused() -> None:
    model = model_of("Identity", {"obs_0": [2**31]})
    with pytest.raises(UnityPolicyException, match="takes 'obs_0' of any x 2147483648 numbers"):
        Policy(model)


def test_a_memory_beyond_memory_is_refused() -> None:
    graph = ModelProto.FromString(counting_model())
    for weight in graph.graph.initializer:
        if weight.name == "memory_size.value":
            weight.CopyFrom(numpy_helper.from_array(np.array([2**30], np.float32), weight.name))
    with pytest.raises(UnityPolicyException, match="has a memory of 1073741824 numbers and takes"):
        Policy(graph.SerializeToString())


@pytest.mark.parametrize("size", [np.inf, -1.0, 2.0**31])
def test_constants_must_be_numbers_that_make_sense(size: float) -> None:
    model = model_of("Identity", {"obs_0": [1]}, memory_size=[size])
    with pytest.raises(UnityPolicyException, match=r"has \[.*\] for memory_size, expected one"):
        Policy(model)


def test_weights_that_are_no_numbers_are_refused() -> None:
    model = make_model(
        [node("Add", "obs_0 bias", "scores"), node("ArgMax", "scores", "discrete_actions", axis=1)],
        {"obs_0": [2]},
        integers=["discrete_actions"],
        constants={**PRESENT, "discrete_action_output_shape": [[2]]},
        weights={"bias": [0.0, np.nan]},
    )
    with pytest.raises(UnityPolicyException, match=r"bad\.onnx has NaN in its weights 'bias'"):
        Policy(model, name="bad.onnx")


def test_an_action_that_is_no_number_is_blamed_on_its_agent() -> None:
    policy = Policy(model_of("Log", {"obs_0": [1]}), name="bad.onnx")
    numbers = np.array([[1.0], [-1.0]], np.float32)
    with pytest.raises(UnityPolicyException, match=r"bad.onnx returned .* for agent 7 in 'contin"):
        policy.act(decisions_of([numbers], agents=[5, 7]))


def test_what_the_runtime_refuses_while_acting_is_one_line() -> None:
    policy = Policy(model_of("Identity", {"obs_0": [1]}), name="some.onnx")
    with pytest.raises(UnityPolicyException, match=r"some.onnx cannot be run: .*obs_0") as refused:
        policy.act(decisions_of([np.zeros((1, 3), np.float32)]))
    assert len(str(refused.value).splitlines()) == 1


def test_without_onnx_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*onnxruntime"):
        Policy(b"")


# ------------------------------------------------------------------------------- which of the files


@pytest.fixture
def results(tmp_path: Path) -> Path:
    files = ["Ball.onnx", "Ball/Ball-900.onnx", "Ball/Ball-1000.onnx", "Ball/Ball-20.pt"]
    for file in [*files, "Old.onnx", "run_logs/timers.json"]:
        path = tmp_path / "results" / "first" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "results"


def test_a_run_gives_its_latest_model_by_its_id_or_folder(results: Path) -> None:
    latest = results / "first/Ball/Ball-1000.onnx"
    assert find_model("first", "Ball", results_dir=results) == latest
    assert find_model(results / "first", "Ball") == latest
    assert find_model("first", "Old", results_dir=results) == results / "first/Old.onnx"
    assert find_model(latest, "Anything") == latest


def test_a_model_that_is_not_there_is_told_with_what_is(results: Path) -> None:
    with pytest.raises(UnityPolicyException, match=r"no model 'frist'.*Runs in .*: first"):
        find_model("frist", "Ball", results_dir=results)
    with pytest.raises(UnityPolicyException, match=r"no model of 'Bal' .*: Ball\.onnx, Old\.onnx"):
        find_model("first", "Bal", results_dir=results)
