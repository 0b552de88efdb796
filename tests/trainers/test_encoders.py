import math

import numpy as np
import pytest
import torch

from actors import (
    CASES,
    MEMORY,
    Case,
    behavior,
    entities,
    goal,
    image,
    make_actor,
    memories,
    network_settings,
    observations,
    outputs,
    vector,
)
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.networks.body import NetworkBody
from mlagents.trainers.networks.encoders import (
    CONTRAST_GAIN,
    MIN_SIDE,
    ImageEncoder,
    Kind,
    Residual,
    kind_of,
)
from mlagents.trainers.networks.layers import GoalLayer
from mlagents_envs.base_env import DimensionProperty, ObservationSpec, ObservationType
from samples import assert_normal

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())

NONE, UNSPECIFIED = DimensionProperty.NONE, DimensionProperty.UNSPECIFIED
TRANSLATIONAL = DimensionProperty.TRANSLATIONAL_EQUIVARIANCE
VARIABLE = DimensionProperty.VARIABLE_SIZE


def described(shape: tuple[int, ...], *properties: DimensionProperty) -> ObservationSpec:
    return ObservationSpec(shape, properties, ObservationType.DEFAULT, "odd_sensor")


# -------------------------------------------------------------------------------------------- kinds


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (described((4,), NONE), Kind.VECTOR),
        (described((4,), UNSPECIFIED), Kind.VECTOR),
        (described((3, 20, 20), NONE, TRANSLATIONAL, TRANSLATIONAL), Kind.IMAGE),
        (described((3, 20, 20), UNSPECIFIED, UNSPECIFIED, UNSPECIFIED), Kind.IMAGE),
        (described((5, 4), VARIABLE, NONE), Kind.ENTITIES),
    ],
)
def test_kinds_are_told_by_dimension_properties(spec: ObservationSpec, kind: Kind) -> None:
    assert kind_of(spec) is kind


@pytest.mark.parametrize(
    "spec",
    [
        described((4,), VARIABLE),
        described((4,), TRANSLATIONAL),
        described((5, 4), NONE, NONE),
        described((5, 4), UNSPECIFIED, UNSPECIFIED),
        described((5, 4), VARIABLE, VARIABLE),
        described((3, 20, 20), TRANSLATIONAL, TRANSLATIONAL, NONE),
        described((3, 20, 20), NONE, NONE, NONE),
    ],
    ids=str,
)
def test_what_cannot_be_learned_from_is_refused_by_name(spec: ObservationSpec) -> None:
    with pytest.raises(UnityTrainerException, match="'odd_sensor'") as caught:
        NetworkBody([vector(2), spec], network_settings())
    assert str(spec.shape) in str(caught.value)
    assert "VARIABLE_SIZE, NONE" in str(caught.value)


# ------------------------------------------------------------------------------------------- images


def encoder(encode_type: str, *shape: int) -> ImageEncoder:
    torch.manual_seed(0)
    return ImageEncoder(image(*shape, name="camera"), encode_type=encode_type, output_size=16)


@pytest.mark.parametrize(("encode_type", "side"), MIN_SIDE.items())
def test_the_smallest_image_fits_and_a_smaller_one_is_refused(encode_type: str, side: int) -> None:
    for shape in ((1, side, side), (3, side, side + 7), (3, side + 7, side)):
        assert encoder(encode_type, *shape)(torch.rand(2, *shape)).shape == (2, 16)
    for shape in ((1, side - 1, side), (1, side + 7, side - 1)):
        with pytest.raises(UnityTrainerException) as caught:
            encoder(encode_type, *shape)
        text = str(caught.value)
        assert f"'camera' has {shape[1]} x {shape[2]} pixels" in text
        assert f"{encode_type} needs at least {side}" in text


def test_the_encoders_that_would_fit_are_named() -> None:
    with pytest.raises(UnityTrainerException, match=r"resnet \(15\), match3 \(5\), fully_conn"):
        encoder("simple", 3, 16, 100)
    with pytest.raises(UnityTrainerException, match="none: it is empty"):
        encoder("simple", 3, 0, 10)


@pytest.mark.parametrize(
    ("encode_type", "shape", "n_features"),
    [
        # A side of n becomes (n - kernel) // stride + 1.
        ("simple", (3, 84, 60), 32 * 9 * 6),  # 84 > 20 > 9, 60 > 14 > 6
        ("nature_cnn", (3, 84, 60), 64 * 7 * 4),  # 84 > 20 > 9 > 7, 60 > 14 > 6 > 4
        ("match3", (6, 8, 9), 144 * 4 * 5),  # 8 > 6 > 4, 9 > 7 > 5
        ("resnet", (3, 84, 60), 32 * 9 * 6),  # pooled: 84 > 41 > 20 > 9, 60 > 29 > 14 > 6
        ("fully_connected", (3, 4, 5), 60),
    ],
)
def test_features_by_hand(encode_type: str, shape: tuple[int, ...], n_features: int) -> None:
    assert encoder(encode_type, *shape).dense[0].weight.shape == (16, n_features)


def test_the_dense_layer_of_images_starts_as_rectifiers_want_it() -> None:
    layer = ImageEncoder(image(3, 20, 20), encode_type="fully_connected", output_size=100).dense[0]
    assert_normal(layer.weight.detach().numpy() * math.sqrt(1200 / 2))
    assert not layer.bias.any()


@pytest.mark.parametrize("encode_type", ["simple", "nature_cnn", "match3"])
def test_convolutions_start_as_rectifiers_want_them(encode_type: str) -> None:
    torch.manual_seed(0)
    layers = [
        layer
        for layer in encoder(encode_type, 3, 40, 40).convolutions
        if isinstance(layer, torch.nn.Conv2d)
    ]
    assert len(layers) >= 2
    for layer in layers[1:]:
        n_in = layer.weight[0].numel()
        assert_normal(layer.weight.detach().numpy() * math.sqrt(n_in / 2))
    # The first sees contrast alone, which is small; having no mean, it has a weight less a channel.
    first = layers[0].weight
    n_free = first[0].numel() - first.shape[1]
    deviation = math.sqrt(2 / first[0].numel() * n_free / first[0].numel())
    assert first.std().item() == pytest.approx(CONTRAST_GAIN * deviation, rel=0.05)
    for layer in layers:
        assert layer.bias is not None
        assert not layer.bias.any()


@pytest.mark.parametrize("encode_type", ["simple", "nature_cnn", "match3", "resnet"])
def test_at_the_start_light_that_is_everywhere_does_not_count(encode_type: str) -> None:
    first = encoder(encode_type, 3, 40, 40).convolutions[0]
    image = torch.rand(1, 3, 40, 40)
    light = torch.rand(1, 3, 1, 1).expand_as(image)
    without, lit = first(image), first(image + light)
    if encode_type == "resnet":  # beyond the edge, which it looks at, it is always dark
        without, lit = without[..., 1:-1, 1:-1], lit[..., 1:-1, 1:-1]
    torch.testing.assert_close(lit, without, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("encode_type", "side"), MIN_SIDE.items())
def test_8_bit_images_are_those_of_numbers_up_to_1(encode_type: str, side: int) -> None:
    network = encoder(encode_type, 3, side, side)
    bytes_ = torch.randint(256, (4, 3, side, side), dtype=torch.uint8)
    torch.testing.assert_close(network(bytes_), network(bytes_.float() / 255))


def test_a_residual_block_of_zeros_leaves_the_image_as_it_is() -> None:
    block, seen = Residual(2), torch.randn(1, 2, 5, 5)
    assert not torch.equal(block(seen), seen)
    for parameter in block.parameters():
        torch.nn.init.zeros_(parameter)
    torch.testing.assert_close(block(seen), seen)


# -------------------------------------------------------------------------------------------- goals


def test_a_goal_layer_by_hand() -> None:
    # One number in, two out, and a goal of one number, 1 or -1. For 1, the first hidden layer gives
    # swish(10, -10) = (10, 0) or nearly, the second swish(2, -2) = (1.76, -0.24), which normalized
    # is (1, -1). For -1 it is the other way round: (-1, 1).
    # Weights made of it: (3 * 1, 1 * -1) = (3, -1), and (-3, 1).
    # x = 2 becomes swish(6, -2 + 0.5) = (5.985164, -0.273639) and swish(-6, 2 + 0.5).
    layer = GoalLayer(1, 2, 1)
    with torch.no_grad():
        for hidden in (layer.hidden[0], layer.hidden[2]):
            hidden.bias.zero_()
        layer.hidden[0].weight.copy_(torch.tensor([[10.0], [-10.0]]))
        layer.hidden[2].weight.copy_(torch.tensor([[0.2, -0.2], [-0.2, 0.2]]))
        layer.weights.weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 1.0]]))
        layer.weights.bias.zero_()
        layer.bias.copy_(torch.tensor([0.0, 0.5]))
    found = layer(torch.tensor([[2.0], [2.0]]), torch.tensor([[1.0], [-1.0]]))
    wanted = torch.tensor([[5.985164, -0.273639], [-0.014836, 2.310355]])
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-3)


def test_agents_that_share_a_goal_share_weights_and_gradients() -> None:
    torch.manual_seed(0)
    layer = GoalLayer(6, 4, 3)
    x, goals = torch.randn(7, 6), torch.eye(3)[[2, 0, 2, 2, 1, 0, 2]]

    together = layer(x, goals)
    together.square().sum().backward()
    of_together = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    alone = torch.cat([layer(x[i : i + 1], goals[i : i + 1]) for i in range(7)])
    alone.square().sum().backward()

    torch.testing.assert_close(together, alone)
    for grad, parameter in zip(of_together, layer.parameters(), strict=True):
        torch.testing.assert_close(grad, parameter.grad)


def test_a_goal_layer_starts_as_small_as_its_size_asks_for() -> None:
    torch.manual_seed(0)
    layer = GoalLayer(30, 20, 5)
    assert layer.weights.weight.shape == (600, 20)
    # U(-b, b) with b = 1 / sqrt(20 * 30), made normal by the inverse of its distribution function.
    uniform = (layer.weights.weight.detach().double() * math.sqrt(600) + 1) / 2
    assert_normal(torch.special.ndtri(uniform).numpy())
    assert not layer.weights.bias.any()
    assert not layer.bias.any()
    assert [m.out_features for m in layer.hidden if isinstance(m, torch.nn.Linear)] == [20, 20]


@pytest.mark.parametrize(("num_layers", "dense"), [(0, 0), (1, 0), (3, 2)])
def test_the_last_layer_is_the_goals(num_layers: int, dense: int) -> None:
    specs = behavior(4, goal(vector(3))).observation_specs
    body = NetworkBody(specs, network_settings(num_layers=num_layers))
    assert len(body.dense) == 2 * dense
    assert body.goal_layer is not None
    assert body.goal_layer.n_in == (16 if dense else 7)


def test_a_list_of_goals_is_an_input_like_others() -> None:
    body = NetworkBody([vector(3), goal(entities(4, 2))], network_settings())
    assert body.goal_layer is None
    assert body.dense[0].in_features == 3 + 128


# ------------------------------------------------------------------------------------- all together


@every_case
def test_every_observation_and_what_is_remembered_counts(case: Case) -> None:
    actor = make_actor(case.spec, **case.settings)
    rng = np.random.default_rng(0)
    obs, others = observations(case.spec, 30, rng), observations(case.spec, 30, rng)
    memory = memories(actor, 30, rng)

    def acted(obs: list[np.ndarray], memory: np.ndarray) -> np.ndarray:
        *heads, _ = outputs(actor, obs, memory)
        return np.column_stack([head for head in heads if head is not None])

    before = acted(obs, memory)
    for i in range(len(obs)):
        changed = [others[j] if i == j else batch for j, batch in enumerate(obs)]
        assert np.abs(acted(changed, memory) - before).max() > 1e-3
    if "memory" in case.settings:
        assert np.abs(acted(obs, memory[::-1].copy()) - before).max() > 1e-3


@every_case
def test_agents_do_not_see_each_other(case: Case) -> None:
    actor = make_actor(case.spec, **case.settings)
    rng = np.random.default_rng(0)
    obs, memory = observations(case.spec, 6, rng), memories(actor, 6, rng)
    together = outputs(actor, obs, memory)
    for row in range(6):
        alone = outputs(actor, [o[row : row + 1] for o in obs], memory[row : row + 1])
        for one, all_ in zip(alone, together, strict=True):
            if all_ is not None:
                assert one is not None
                np.testing.assert_allclose(one[0], all_[row], atol=1e-5)


@every_case
def test_everything_has_a_gradient(case: Case) -> None:
    actor = make_actor(case.spec, **case.settings)
    rng = np.random.default_rng(0)
    obs = [torch.from_numpy(batch) for batch in observations(case.spec, 20, rng)]
    encoding, _ = actor.body.step(obs, torch.from_numpy(memories(actor, 20, rng)))
    encoding.square().sum().backward()
    for name, parameter in actor.body.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.any(), name


def test_the_settings_of_the_cases_are_all_there_are() -> None:
    encoders = {case.settings.get("vis_encode_type", "simple") for case in CASES.values()}
    assert encoders == MIN_SIDE.keys()
    assert any(MEMORY.items() <= case.settings.items() for case in CASES.values())
