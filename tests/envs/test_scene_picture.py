"""Pictures of scenes: what is where, in which color, and in the shade of what."""

import numpy as np
import pytest
from numpy.typing import NDArray

from mlagents_envs import solid_raster
from mlagents_envs.scene import Scene, Shape, Solids
from mlagents_envs.scene_picture import SKY, View, draw_scene

needs_native = pytest.mark.skipif(
    solid_raster.PART.load() is None,
    reason=f"the native library cannot be used: {solid_raster.PART.reason}",
)

Pixels = NDArray[np.uint8]
RED, BLUE, WHITE = (200, 0, 0), (0, 0, 200), (200, 200, 200)
AREA = np.zeros(1, np.int32)


def scene(
    *solids: Solids, n_areas: int = 1, n_agents: int = 0, close_up_m: float | None = None
) -> Scene:
    low, high = (-2.0, 0.0, -2.0), (2.0, 2.0, 2.0)
    return Scene(solids, n_areas, low, high, np.arange(n_agents), close_up_m=close_up_m)


def floor() -> Solids:
    return Solids.of("floor", Shape.BOX, (0.0, -0.1, 0.0), (4.0, 0.2, 4.0), WHITE)


def mostly(picture: Pixels, color: tuple[int, int, int]) -> NDArray[np.bool_]:
    """Return the pixels of a color's hue."""
    return picture.argmax(axis=2) == int(np.argmax(color))


def middle_of(is_there: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the mean row and column."""
    rows, columns = is_there.nonzero()
    return rows.mean(), columns.mean()


def red_and_blue(shape: Shape, size: tuple[float, float, float]) -> Scene:
    """Return a scene of a red solid at the left behind and a blue one at the right ahead."""
    return scene(
        Solids.of("red", shape, (-1.0, 1.0, 1.0), size, RED, area=AREA),
        Solids.of("blue", shape, (1.0, 1.0, -1.0), size, BLUE, area=AREA),
    )


@pytest.mark.parametrize("shape", Shape)
def test_solids_are_where_they_are(shape):
    picture = draw_scene(red_and_blue(shape, (0.6, 1.2, 0.6)))
    assert picture.shape == (480, 640, 3)
    assert (picture[0, 0] == SKY).all()
    is_sky = (picture == SKY).all(axis=2)
    red_row, red_column = middle_of(mostly(picture, RED) & ~is_sky)
    blue_row, blue_column = middle_of(mostly(picture, BLUE) & ~is_sky)
    assert red_column < 320 < blue_column
    assert red_row < blue_row  # farther away is higher up


def test_the_nearer_solid_hides_the_farther_one():
    behind = Solids.of("behind", Shape.BALL, (0.0, 1.0, 1.0), (1.0, 1.0, 1.0), RED, area=AREA)
    before = Solids.of("before", Shape.BOX, (0.0, 1.0, -1.0), (3.0, 2.0, 0.1), BLUE, area=AREA)
    for both in ((behind, before), (before, behind)):
        is_red = draw_scene(scene(*both))[..., 0] > 120
        alone = draw_scene(scene(behind))[..., 0] > 120
        assert is_red.sum() < alone.sum()


def test_the_extents_of_a_ball_and_a_capsule():
    # Seen from far ahead at the same height, 4 m of the area are nearly the width of the picture.
    view = View(width=400, height=400)
    for shape, size in ((Shape.BALL, (1.0, 1.0, 1.0)), (Shape.CAPSULE, (1.0, 2.0, 1.0))):
        ball = Solids.of("it", shape, (0.0, 1.0, 0.0), size, RED, area=AREA)
        rows, columns = (draw_scene(scene(ball), view)[..., 2] < 100).nonzero()
        width, height = np.ptp(columns), np.ptp(rows)
        assert width > 0
        assert (height > 1.3 * width) == (shape is Shape.CAPSULE)


def test_a_shadow_is_on_the_side_away_from_the_light():
    box = Solids.of("box", Shape.BOX, (0.0, 0.5, 0.0), (1.0, 1.0, 1.0), RED, area=AREA)
    with_box, without = draw_scene(scene(floor(), box)), draw_scene(scene(floor()))
    is_floor = (with_box[..., 0] == with_box[..., 1]) & (without != SKY).all(axis=2)
    is_dark = is_floor & (with_box[..., 0] < without[..., 0])
    is_box = mostly(with_box, RED) & (with_box[..., 1] < 20)
    assert is_dark.sum() > 300
    assert middle_of(is_dark)[1] > middle_of(is_box)[1]  # the light comes from the left


def test_hidden_solids_are_not_drawn():
    hidden = Solids.of("it", Shape.BALL, np.full(3, np.nan), (1.0, 1.0, 1.0), RED, area=AREA)
    assert (draw_scene(scene(hidden)) == SKY).all()


def of_areas(n: int, size_m: float = 1.0) -> Scene:
    """Return a scene with an agent in each of n areas."""
    area = np.arange(n, dtype=np.int32)
    place = np.tile([0.0, 0.5, 0.0], (n, 1))
    ball = Solids.of("it", Shape.BALL, place, np.full(3, size_m), RED, area=area, agent=area)
    return scene(floor(), ball, n_areas=n, n_agents=n)


def n_balls(picture: Pixels) -> int:
    """Return the number of red spots by rows and columns without red."""
    is_red = mostly(picture, RED) & (picture[..., 1] < 60)
    rows = np.diff(is_red.any(axis=1).astype(int)) == 1
    n = 0
    for top in np.flatnonzero(rows):
        band = is_red[top + 1 : top + 6].any(axis=0)
        n += int((np.diff(band.astype(int)) == 1).sum())
    return n


def test_all_areas_are_shown_if_agents_can_be_seen():
    assert n_balls(draw_scene(of_areas(6))) == 6


def test_fewer_areas_are_shown_if_agents_were_too_small():
    # 12 pixels of 480 for 0.2 m: areas of 4 m are at least 240 pixels wide.
    assert 1 <= n_balls(draw_scene(of_areas(36, size_m=0.2))) <= 4


def test_the_areas_of_the_first_agents():
    assert n_balls(draw_scene(of_areas(6), View(agents=1))) == 1
    assert n_balls(draw_scene(of_areas(6), View(agents=2))) == 2


def size_of_ball(picture: Pixels) -> int:
    return int((mostly(picture, RED) & (picture[..., 1] < 60)).any(axis=0).sum())


def test_zoom_magnifies_the_first_agent():
    usual, near = (draw_scene(of_areas(1), View(zoom=zoom)) for zoom in (1.0, 3.0))
    assert size_of_ball(near) > 2 * size_of_ball(usual)
    np.testing.assert_array_equal(draw_scene(of_areas(6), View(agents=1, zoom=3.0)), near)


def test_a_close_up_follows_the_first_agent():
    pictures = []
    for x in (0.0, 1.5):
        ball = Solids.of(
            "it", Shape.BALL, (x, 0.5, 0.0), (0.5, 0.5, 0.5), RED, area=AREA, agent=AREA
        )
        shown = scene(ball, n_agents=1, close_up_m=1.0)
        pictures.append(draw_scene(shown))
        np.testing.assert_array_equal(draw_scene(shown, View(agents=1)), pictures[-1])
    np.testing.assert_array_equal(*pictures)


def test_a_picture_has_the_size_of_its_view():
    assert draw_scene(of_areas(1), View(width=100, height=50)).shape == (50, 100, 3)


@pytest.mark.parametrize("is_native", [True, False])
def test_a_scene_of_nothing_is_sky(is_native, monkeypatch):
    if not is_native:
        monkeypatch.setattr(solid_raster.PART, "load", lambda: None)
    none = Solids.of("it", Shape.BOX, np.zeros((0, 3)), np.ones(3), RED, area=AREA[:0])
    assert (draw_scene(scene()) == SKY).all()
    assert (draw_scene(scene(none)) == SKY).all()


@needs_native
@pytest.mark.parametrize("shape", Shape)
def test_the_native_library_draws_what_numpy_draws(shape, monkeypatch):
    rng = np.random.default_rng(1)
    rotation = rng.normal(size=(5, 4))
    rotation /= np.linalg.norm(rotation, axis=1, keepdims=True)
    width, height, depth = rng.uniform(0.3, 1.2, (3, 5))
    if shape is Shape.CAPSULE:
        width = depth = np.full(5, 0.5)
        height = np.full(5, 1.3)
    some = Solids.of(
        "some",
        shape,
        rng.uniform(-1.5, 1.5, (5, 3)),
        np.stack([width, height, depth], axis=1),
        rng.integers(0, 255, (5, 3)),
        rotation=rotation,
        area=np.zeros(5, np.int32),
    )
    view = View(width=160, height=120)
    assert solid_raster.PART.load() is not None
    native = draw_scene(scene(floor(), some), view)
    monkeypatch.setattr(solid_raster.PART, "load", lambda: None)
    plain = draw_scene(scene(floor(), some), view)
    # Rays that barely touch an edge may miss it by one rounding.
    assert (np.abs(native.astype(int) - plain) > 2).any(axis=2).mean() < 0.002
