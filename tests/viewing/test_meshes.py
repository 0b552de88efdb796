"""Scenes as batched meshes."""

import numpy as np
import pytest

from mlagents.viewing.meshes import (
    Layout,
    SceneMeshes,
    instances_of,
    mesh_of,
    to_page,
    turn_to_page,
)
from mlagents_envs.scene import Scene, Shape, Solids, turned
from mlagents_sim.examples.push_block import PushBlock


def volume(mesh) -> float:
    """Return the volume inside of a mesh; below 0 if its faces look inward."""
    a, b, c = (mesh.vertices[mesh.faces[:, k]].astype(np.float64) for k in range(3))
    return float((a * np.cross(b, c)).sum() / 6.0)


@pytest.mark.parametrize(
    ("shape", "size", "expected"),
    [
        (Shape.BOX, np.ones(3), 1.0),
        (Shape.BALL, np.ones(3), np.pi / 6),
        (Shape.CYLINDER, np.ones(3), np.pi / 4),
        (Shape.CAPSULE, np.array([1.0, 3.0, 1.0]), np.pi / 6 + 2.0 * np.pi / 4),
    ],
)
def test_meshes_have_their_volume_and_look_outward(shape, size, expected):
    assert volume(mesh_of(shape, size)) == pytest.approx(expected, rel=0.05)


def test_capsules_have_their_size():
    mesh = mesh_of(Shape.CAPSULE, np.array([0.5, 2.0, 0.5]))
    np.testing.assert_allclose(np.ptp(mesh.vertices, axis=0), [0.5, 2.0, 0.5], rtol=1e-2)


def rotated(wxyz: np.ndarray, vector: np.ndarray) -> np.ndarray:
    w, axis = wxyz[0], wxyz[1:]
    return vector + 2.0 * np.cross(axis, np.cross(axis, vector) + w * vector)


def test_turns_and_places_are_mirrored_alike():
    # A turn to the right takes ahead to the right: in the page, -z to x.
    wxyz = turn_to_page(turned(np.pi / 2))
    ahead, right = to_page(np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]))
    np.testing.assert_allclose(rotated(wxyz, ahead), right, atol=1e-6)


def scene(n_areas: int) -> Scene:
    area = np.arange(n_areas, dtype=np.int32)
    floor = Solids.of("floor", Shape.BOX, (0.0, 0.0, 0.0), (4.0, 1.0, 2.0), (1, 2, 3))
    position = np.tile([1.0, 2.0, 0.5], (n_areas, 1))
    position[-1] = np.nan
    ball = Solids.of("ball", Shape.BALL, position, np.ones(3), (9, 9, 9), area=area, agent=area)
    return Scene([floor, ball], n_areas, (-2.0, 0.0, -1.0), (2.0, 3.0, 1.0), area)


def test_fixed_solids_are_in_every_area_and_areas_do_not_touch():
    shown = scene(5)
    layout = Layout(shown, None)
    floors = instances_of(shown.solids[0], layout)
    assert floors.positions.shape == floors.scales.shape == (5, 3)
    apart = np.abs(floors.positions[:, None] - floors.positions)
    assert ((apart[..., 0] > 4.0) | (apart[..., 2] > 2.0) | np.eye(5, dtype=bool)).all()


def test_hidden_solids_have_no_size():
    shown = scene(3)
    balls = instances_of(shown.solids[1], Layout(shown, None))
    assert (balls.scales == [[1.0], [1.0], [0.0]]).all()
    assert np.isfinite(balls.positions).all()


def test_one_area_alone_is_in_the_middle():
    shown = scene(3)
    layout = Layout(shown, 1)
    balls = instances_of(shown.solids[1], layout)
    assert (balls.scales == [[0.0], [1.0], [0.0]]).all()
    np.testing.assert_allclose(balls.positions[1], [1.0, 2.0, -0.5])
    assert len(instances_of(shown.solids[0], layout).positions) == 1


class Handle:
    def __init__(self, **props: object) -> None:
        self.__dict__.update(props)
        self.__dict__["sent"] = []

    def __setattr__(self, name: str, value: object) -> None:
        self.sent.append(name)
        self.__dict__[name] = value

    def remove(self) -> None:
        self.sent.append("remove")


class Api:
    """The part of the page's scene that is used."""

    def __init__(self) -> None:
        self.handles: dict[str, Handle] = {}

    def add_frame(self, name: str, **props: object) -> Handle:
        return Handle(**props)

    def add_batched_meshes_simple(self, name: str, *mesh: object, **props: object) -> Handle:
        self.handles[name] = Handle(**props)
        return self.handles[name]


def test_only_what_has_changed_is_sent():
    env = PushBlock(seed=0)
    env.reset()
    api = Api()
    meshes = SceneMeshes(api)
    first = env.scene()
    meshes.draw(first.solids, Layout(first, None), np.zeros(3))
    assert set(api.handles) == {f"/areas/{solids.name}" for solids in first.solids}
    env.bodies.position[0, 0] += 1.0
    meshes.draw(env.scene().solids, Layout(first, None), np.zeros(3))
    assert api.handles["/areas/agent"].sent == ["batched_positions"]
    assert api.handles["/areas/block"].sent == api.handles["/areas/floor"].sent == []


def test_another_number_of_solids_is_another_mesh():
    api = Api()
    meshes = SceneMeshes(api)
    few, many = scene(2), scene(4)
    meshes.draw(few.solids, Layout(few, None), np.zeros(3))
    before = api.handles["/areas/ball"]
    meshes.draw(many.solids, Layout(many, None), np.zeros(3))
    assert before.sent == ["remove"]
    assert len(api.handles["/areas/ball"].batched_positions) == 4
