"""Specifications as Gymnasium spaces."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlagents_envs.base_env import ActionSpec, DimensionProperty, ObservationSpec, ObservationType

gymnasium = pytest.importorskip("gymnasium")

from gymnasium import spaces  # noqa: E402

from mlagents_envs.envs.spaces import (  # noqa: E402
    ActionFlattener,
    ActionLayout,
    ObservationLayout,
    UnityGymException,
    action_space,
    observation_space,
)


def observation(*shape: int, name: str) -> ObservationSpec:
    properties = (DimensionProperty.UNSPECIFIED,) * len(shape)
    return ObservationSpec(shape, properties, ObservationType.DEFAULT, name)


VECTOR, MORE = ObservationSpec.vector(2, "vector"), ObservationSpec.vector(1, "more")
MATRIX = observation(3, 2, name="matrix")
IMAGE, SECOND = observation(3, 4, 5, name="image"), observation(1, 2, 2, name="second")


def test_a_vector_is_unbounded_and_an_image_is_not():
    assert observation_space(VECTOR) == spaces.Box(-np.inf, np.inf, (2,), np.float32)
    assert observation_space(IMAGE) == spaces.Box(0, 1, (3, 4, 5), np.float32)
    assert observation_space(IMAGE, uint8_visual=True) == spaces.Box(0, 255, (3, 4, 5), np.uint8)
    assert observation_space(VECTOR, uint8_visual=True) == observation_space(VECTOR)


def test_every_kind_of_action_has_its_space():
    box = spaces.Box(-1, 1, (2,), np.float32)
    assert action_space(ActionSpec(2, ())) == box
    assert action_space(ActionSpec(0, (3,))) == spaces.Discrete(3)
    assert action_space(ActionSpec(0, (3, 2))) == spaces.MultiDiscrete([3, 2])
    hybrid = spaces.Dict({"continuous": box, "discrete": spaces.MultiDiscrete([3])})
    assert action_space(ActionSpec(2, (3,))) == hybrid
    with pytest.raises(UnityGymException, match="no actions"):
        action_space(ActionSpec(0, ()))


def test_the_last_branch_of_a_flat_action_varies_fastest():
    flattener = ActionFlattener([2, 3])
    assert flattener.action_space == spaces.Discrete(6)
    assert flattener.lookup_action(0) == [0, 0]
    assert flattener.lookup_action(2) == [0, 2]
    assert flattener.lookup_action(3) == [1, 0]
    assert flattener.action_lookup[5] == [1, 2]


@given(
    continuous=st.integers(0, 3),
    branches=st.lists(st.integers(1, 4), max_size=3),
    n_agents=st.integers(1, 4),
    flatten=st.booleans(),
)
def test_what_the_space_samples_is_an_action(continuous, branches, n_agents, flatten):
    spec = ActionSpec(continuous, tuple(branches))
    if not continuous and not branches:
        return
    layout = ActionLayout(spec, flatten_branched=flatten)
    batched = gymnasium.vector.utils.batch_space(layout.space, n_agents)
    for space, decode, rows in (
        (batched, layout.decode, n_agents),
        (layout.space, layout.decode_one, 1),
    ):
        space.seed(0)
        action = decode(space.sample())
        spec.check(action, rows, behavior="any")
        assert (action.discrete >= 0).all()
        assert (action.discrete < np.array(branches, np.int32)).all()


def test_masks_are_turned_round():
    masks = [np.array([[True, False]]), np.array([[False, True, False]])]
    layout = ActionLayout(ActionSpec(0, (2, 3)))
    np.testing.assert_array_equal(layout.allowed(masks), [[0, 1, 1, 0, 1]])
    for part, expected in zip(layout.mask_to_sample(masks), ([0, 1], [1, 0, 1]), strict=True):
        np.testing.assert_array_equal(part, expected)
    # Combinations are (0,0) (0,1) (0,2) (1,0) (1,1) (1,2); choice 0 of one and 1 of two are out.
    flat = ActionLayout(ActionSpec(0, (2, 3)), flatten_branched=True)
    np.testing.assert_array_equal(flat.allowed(masks), [[0, 0, 0, 1, 0, 1]])


@pytest.mark.parametrize(
    ("spec", "flatten"),
    [
        (ActionSpec(0, (4,)), False),
        (ActionSpec(0, (2, 3)), False),
        (ActionSpec(0, (2, 3)), True),
        (ActionSpec(1, (2, 3)), False),
    ],
)
def test_samples_obey_the_mask(spec, flatten):
    rng = np.random.default_rng(0)
    layout = ActionLayout(spec, flatten_branched=flatten)
    layout.space.seed(0)
    for _ in range(20):
        masks = []
        for size in spec.discrete_branches:
            mask = rng.random((1, size)) < 0.5
            mask[0, rng.integers(size)] = False
            masks.append(mask)
        action = layout.decode_one(layout.space.sample(layout.mask_to_sample(masks)))
        chosen = [mask[0, choice] for mask, choice in zip(masks, action.discrete[0], strict=True)]
        assert not any(chosen)


def values(*specs: ObservationSpec, n: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.random((n, *spec.shape), np.float32) for spec in specs]


@pytest.mark.parametrize("style", ["first", "tuple", "dict", "flat"])
@pytest.mark.parametrize("uint8_visual", [False, True])
@pytest.mark.parametrize(
    "specs",
    [[VECTOR], [IMAGE], [MATRIX], [VECTOR, IMAGE, MORE, MATRIX, SECOND]],
    ids=lambda specs: "+".join(spec.name for spec in specs),
)
def test_what_is_laid_out_is_in_the_space(style, uint8_visual, specs):
    layout = ObservationLayout(specs, style, uint8_visual=uint8_visual)
    batch = values(*specs)
    batched = gymnasium.vector.utils.batch_space(layout.space, 2)
    assert batched.contains(layout.encode(batch))
    assert layout.space.contains(layout.encode([array[0] for array in batch]))


def test_the_first_image_goes_before_vectors():
    specs = [VECTOR, IMAGE, MORE, SECOND]
    batch = values(*specs)
    layout = ObservationLayout(specs, "first", uint8_visual=False)
    np.testing.assert_array_equal(layout.encode(batch), batch[1])
    assert layout.left_out == ["vector", "more", "second"]


def test_vectors_stand_side_by_side_behind_images_and_matrices():
    specs = [VECTOR, MATRIX, IMAGE, MORE]
    batch = values(*specs)
    layout = ObservationLayout(specs, "tuple", uint8_visual=False)
    image, matrix, vectors = layout.encode(batch)
    np.testing.assert_array_equal(image, batch[2])
    np.testing.assert_array_equal(matrix, batch[1])
    np.testing.assert_array_equal(vectors, np.column_stack([batch[0], batch[3]]))
    assert not layout.left_out


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        (["ray", "camera"], ["ray", "camera"]),
        (["", "ray", ""], ["obs_0", "ray", "obs_2"]),
        (["ray", "ray", "ray"], ["ray", "ray_2", "ray_3"]),
        (["ray", "ray", "ray_2"], ["ray", "ray_3", "ray_2"]),
        (["ray_2", "ray", "ray", "ray_2"], ["ray_2", "ray", "ray_3", "ray_2_2"]),
        (["obs_1", ""], ["obs_1", "obs_1_2"]),
    ],
)
def test_no_observation_is_lost_for_its_name(names, keys):
    specs = [ObservationSpec.vector(size + 1, name) for size, name in enumerate(names)]
    batch = values(*specs)
    layout = ObservationLayout(specs, "dict", uint8_visual=False)
    seen = layout.encode(batch)
    assert list(seen) == keys
    for key, array in zip(keys, batch, strict=True):
        np.testing.assert_array_equal(seen[key], array)
        assert layout.space[key].shape == array.shape[1:]


def test_bytes_and_floats_are_turned_into_each_other():
    as_bytes = np.array([[[[0, 51], [255, 102]]]], np.uint8)
    as_floats = as_bytes.astype(np.float32) / 255
    for batch in (as_bytes, as_floats):
        seen = ObservationLayout([SECOND], "first", uint8_visual=True).encode([batch])
        np.testing.assert_array_equal(seen, as_bytes)
        seen = ObservationLayout([SECOND], "first", uint8_visual=False).encode([batch])
        assert seen.dtype == np.float32
        np.testing.assert_allclose(seen, as_floats, rtol=1e-6)


def test_an_observation_is_a_copy():
    batch = values(VECTOR)
    seen = ObservationLayout([VECTOR], "dict", uint8_visual=False).encode(batch)
    seen[:] = 7.0
    assert (batch[0] < 1.0).all()


def test_nothing_to_observe_is_an_error():
    with pytest.raises(UnityGymException, match="no observations"):
        ObservationLayout([], "first", uint8_visual=False)
