"""Pictures, pixel by pixel: by hand, and against one ray per pixel."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mlagents_sim.raster import Camera, Runs, box_faces, paint, pixels, polygon, sphere

HEIGHT, WIDTH = 9, 12
AHEAD = np.eye(3)[:, :, None]
"""Axes of a camera that looks along z."""
ORIGIN = np.zeros((3, 1))


def mask(runs: Runs, *, shape: int = 0, scene: int = 0, width: int = WIDTH) -> NDArray[np.bool_]:
    return runs.mask(width)[shape, scene]


def drawn(pixels: NDArray[np.bool_]) -> list[str]:
    return ["".join(".#"[pixel] for pixel in row) for row in pixels.astype(int)]


def corners(*places: tuple[float, float, float]) -> NDArray[np.float64]:
    """Return one polygon of one scene: (3, K, 1, 1)."""
    return np.array(places).T[:, :, None, None]


# By hand.


def test_a_rectangle_from_above_all_by_hand():
    # Four rows for 4 m: a pixel a meter, centers at x = -2.5 ... 2.5 and y = 1.5 ... -1.5. The
    # rectangle from x = -0.6 to 1.9 and y = -0.4 to 1.6 holds the centers -0.5, 0.5, 1.5 of x and
    # 0.5, 1.5 of y.
    camera = Camera.orthographic(ORIGIN, AHEAD, extent_m=4.0, height=4, width=6)
    shape = corners((-0.6, -0.4, 5.0), (-0.6, 1.6, 5.0), (1.9, 1.6, 5.0), (1.9, -0.4, 5.0))
    assert drawn(mask(polygon(camera, shape), width=6)) == ["..###.", "..###.", "......", "......"]


def test_from_behind_a_polygon_is_not_seen():
    camera = Camera.orthographic(ORIGIN, AHEAD, extent_m=4.0, height=4, width=6)
    shape = corners((-1, -1, 5.0), (1, -1, 5.0), (1, 1, 5.0), (-1, 1, 5.0))  # counterclockwise
    assert not mask(polygon(camera, shape), width=6).any()


def test_a_triangle_by_hand():
    # 45 degrees: at y = 1.5 the middle only, then half a meter more on both sides per row.
    camera = Camera.orthographic(ORIGIN, AHEAD, extent_m=4.0, height=4, width=5)
    shape = corners((0.0, 1.75, 1.0), (3.75, -2.0, 1.0), (-3.75, -2.0, 1.0))
    # Half widths in the rows: 0.25, 1.25, 2.25, 3.25.
    assert drawn(mask(polygon(camera, shape), width=5)) == ["..#..", ".###.", "#####", "#####"]


def test_twice_as_far_is_half_as_large():
    # With 90 degrees, 8 rows show 2 m at a distance of 1 m: slopes of -0.875, -0.625, ..., 0.875.
    camera = Camera.perspective(ORIGIN, AHEAD, field_of_view_rad=np.pi / 2, height=8, width=8)

    def square(distance: float) -> int:
        shape = corners(*((x, y, distance) for x, y in ((-1, -1), (-1, 1), (1, 1), (1, -1))))
        return mask(polygon(camera, shape), width=8).sum()

    assert [square(distance) for distance in (1.0, 2.0, 4.0)] == [64, 16, 4]


def test_a_sphere_from_above_by_hand():
    # A pixel a meter, centers at -1.5, -0.5, 0.5, 1.5: of the corners, at a distance of
    # sqrt(2) 1.5 = 2.12, none is inside a radius of 2; (0.5, 1.5), at 1.58, is.
    camera = Camera.orthographic(ORIGIN, AHEAD, extent_m=4.0, height=4, width=4)
    runs = sphere(camera, np.zeros((3, 1, 1)), np.full((1, 1), 2.0))
    assert drawn(mask(runs, width=4)) == [".##.", "####", "####", ".##."]


def test_shapes_beside_the_picture_have_no_pixels():
    camera = Camera.orthographic(ORIGIN, AHEAD, extent_m=4.0, height=4, width=4)
    for x, y in ((9.0, 0.0), (-9.0, 0.0), (0.0, 9.0), (0.0, -9.0)):
        runs = sphere(camera, np.array([x, y, 0.0])[:, None, None], np.ones((1, 1)))
        assert not mask(runs, width=4).any()


def test_later_shapes_lie_on_earlier_ones_in_each_scene():
    runs = Runs(
        np.array([[[0, 1], [2, 0]], [[1, 0], [0, 0]]], np.int16),
        np.array([[[2, 3], [3, 0]], [[3, 0], [0, 0]]], np.int16),
    )
    images = np.zeros((2, 3, 2, 3), np.uint8)
    paint(images, runs, np.array([[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [0, 0, 0]]], np.uint8))
    assert images[0].tolist() == [
        [[1, 7, 7], [0, 1, 1]],
        [[2, 8, 8], [0, 2, 2]],
        [[3, 9, 9], [0, 3, 3]],
    ]
    assert images[1].tolist() == [[[0, 0, n], [0, 0, 0]] for n in (4, 5, 6)]


def test_shapes_may_come_in_one_list_and_say_whose_they_are():
    # Of three runs in pictures of one row, the first and the last are the second scene's.
    runs = Runs(
        np.array([[[0], [1], [2]]], np.int16),
        np.array([[[3], [2], [4]]], np.int16),
    )
    images = np.zeros((2, 3, 1, 4), np.uint8)
    colors = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], np.uint8)
    paint(images, runs, colors, np.array([1, 0, 1]))
    assert images[0, :, 0].tolist() == [[0, n, 0, 0] for n in (4, 5, 6)]
    assert images[1, :, 0].tolist() == [[1, 1, 7, 7], [2, 2, 8, 8], [3, 3, 9, 9]]


@pytest.mark.parametrize("at_once", [1, 5, 64])
def test_many_pixels_are_painted_in_pieces(at_once: int, monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(1)
    first, end = np.sort(rng.integers(0, 9, (2, 4, 3, 6)), axis=0).astype(np.int16)
    colors = rng.integers(1, 256, (4, 3, 3), np.uint8)
    monkeypatch.setattr("mlagents_sim.raster.PIXELS_AT_ONCE", at_once)
    images = np.zeros((3, 3, 6, 8), np.uint8)
    paint(images, Runs(first, end), colors)
    expected = np.zeros_like(images)
    for shape, covered in enumerate(Runs(first, end).mask(8)):
        expected = np.where(covered[:, None], colors[shape][..., None, None], expected)
    np.testing.assert_array_equal(images, expected)


def test_pixels_are_listed_shape_by_shape():
    # Two shapes in each of two pictures of 2 rows of 5. In the first picture, one shape covers 1
    # and 2 of the upper row and 3 of the lower, which is 5 + 3; the other 0 of the upper row.
    runs = Runs(
        np.array([[[1, 3], [0, 0]], [[0, 0], [0, 0]]], np.int16),
        np.array([[[3, 4], [0, 0]], [[1, 0], [0, 0]]], np.int16),
    )
    shape, pixel = pixels(runs, 5)
    assert shape.tolist() == [0, 0, 0, 2]
    assert pixel.tolist() == [1, 2, 8, 0]


def test_rays_lead_through_the_pixels():
    # 90 degrees over 2 rows: the middles are at slopes of 0.5 up and down, right and left.
    camera = Camera.perspective(ORIGIN, AHEAD, field_of_view_rad=np.pi / 2, height=2, width=2)
    rays = camera.rays()
    np.testing.assert_allclose(rays[:2] / rays[2], [[[-0.5, 0.5]] * 2, [[0.5] * 2, [-0.5] * 2]])
    np.testing.assert_allclose(np.linalg.norm(rays, axis=0), 1.0)


# Against one ray per pixel.


def rays(
    position: NDArray[np.float64], axes: NDArray[np.float64], field_of_view_rad: float
) -> NDArray[np.float64]:
    """Return where the centers of the pixels are seen: (H, W, 3)."""
    slope = 2 * np.tan(field_of_view_rad / 2) / HEIGHT
    right = (np.arange(WIDTH) - (WIDTH - 1) / 2) * slope
    up = ((HEIGHT - 1) / 2 - np.arange(HEIGHT)) * slope
    by_camera = np.stack(np.broadcast_arrays(right, up[:, None], 1.0), axis=-1)
    return by_camera @ axes.T


def random_rotation(rng: np.random.Generator) -> NDArray[np.float64]:
    q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    return q * np.sign(np.linalg.det(q))


@given(st.integers(0, 2**32 - 1))
def test_polygons_are_where_rays_hit_them_even_behind_the_eye(seed: int):
    rng = np.random.default_rng(seed)
    position, axes = rng.normal(size=3), random_rotation(rng)
    camera = Camera.perspective(
        position[:, None], axes[:, :, None], field_of_view_rad=1.2, height=HEIGHT, width=WIDTH
    )
    middle, (right, up, normal) = rng.normal(size=3) * 2, random_rotation(rng).T
    edges = rng.uniform(0.3, 4.0, 2)
    around = [middle + x * edges[0] * right + y * edges[1] * up for x, y in SQUARE]
    ray = rays(position, axes, 1.2)
    distance = (middle - position) @ normal / (ray @ normal)
    hit = position + ray * distance[..., None] - middle
    inside = np.minimum(edges[0] - np.abs(hit @ right), edges[1] - np.abs(hit @ up))
    is_facing = (position - middle) @ normal < 0.0  # seen along the normal, x, y turn clockwise
    expected = (inside > 0.0) & (distance > 0.0) & is_facing
    found = mask(polygon(camera, np.array(around).T[:, :, None, None]))
    is_clear = np.abs(inside) > 1e-6
    np.testing.assert_array_equal(found[is_clear], expected[is_clear])


SQUARE = ((-1, -1), (-1, 1), (1, 1), (1, -1))


@given(st.integers(0, 2**32 - 1))
def test_spheres_are_where_rays_hit_them(seed: int):
    rng = np.random.default_rng(seed)
    position, axes = rng.normal(size=3), random_rotation(rng)
    camera = Camera.perspective(
        position[:, None], axes[:, :, None], field_of_view_rad=1.2, height=HEIGHT, width=WIDTH
    )
    radius = rng.uniform(0.1, 1.5)
    to_center = rng.normal(size=3) * 3
    ahead = to_center @ axes[:, 2]
    ray = rays(position, axes, 1.2)
    ray /= np.linalg.norm(ray, axis=-1, keepdims=True)
    miss = np.linalg.norm(np.cross(ray, to_center), axis=-1)
    expected = (miss < radius) & (ahead > radius)
    runs = sphere(camera, (position + to_center)[:, None, None], np.full((1, 1), radius))
    is_clear = np.abs(miss - radius) > 1e-6
    np.testing.assert_array_equal(mask(runs)[is_clear], expected[is_clear])


@pytest.mark.parametrize("seed", range(20))
def test_a_box_is_seen_where_rays_hit_it_and_each_pixel_by_one_face(seed: int):
    rng = np.random.default_rng(seed)
    own_axes = random_rotation(rng)
    half_edges, position = rng.uniform(0.3, 1.0, 3), np.array([0.0, 0.0, -4.0])
    center = rng.normal(size=3) / 2
    camera = Camera.perspective(
        position[:, None], AHEAD, field_of_view_rad=0.9, height=HEIGHT, width=WIDTH
    )
    places, normals = box_faces(center[:, None], own_axes[:, :, None], half_edges)
    runs = polygon(camera, places)
    seen = np.stack([mask(runs, shape=face) for face in range(6)])
    assert (seen.sum(axis=0) <= 1).all()

    ray = rays(position, np.eye(3), 0.9) @ own_axes
    eye = (position - center) @ own_axes
    one, other = (-half_edges - eye) / ray, (half_edges - eye) / ray
    entry, leave = np.minimum(one, other).max(axis=-1), np.maximum(one, other).min(axis=-1)
    np.testing.assert_array_equal(seen.any(axis=0), entry < leave)
    # Every face is half an edge from the center along its normal.
    middles = places.mean(axis=1)[..., 0] - center[:, None]
    np.testing.assert_allclose(middles, normals[..., 0] * np.tile(half_edges, 2), atol=1e-9)


def test_scenes_may_be_seen_from_different_places():
    # The second eye is 1 m, so 2 pixels, farther to the right.
    position = np.array([[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    axes = np.repeat(AHEAD, 2, axis=2)
    camera = Camera.orthographic(position, axes, extent_m=3.0, height=6, width=6)
    runs = sphere(
        camera, np.array([0.5, 0.0, 3.0])[:, None, None].repeat(2, 2), np.full((1, 2), 0.6)
    )
    one, other = mask(runs, width=6), mask(runs, scene=1, width=6)
    assert one.any()
    np.testing.assert_array_equal(one[:, 2:], other[:, :-2])
