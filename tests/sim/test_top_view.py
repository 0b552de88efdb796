"""Pictures from above, pixel by pixel where a pixel is a metre."""

import numpy as np
from numpy.typing import NDArray

from mlagents_sim import top_view
from mlagents_sim.top_view import TopView

AHEAD, RIGHT = np.array([[0.0], [1.0]]), np.array([[1.0], [0.0]])


def view_of(n_tiles: int = 1) -> TopView:
    """Make tiles that together are 960 m wide and 720 m high: one, two side by side or four."""
    width, height = {1: (960, 720), 2: (480, 720), 3: (480, 360)}[n_tiles]
    return TopView(n_tiles, (0.0, 0.0), (width, height))


def where(view: TopView, colour: top_view.Colour) -> NDArray[np.bool_]:
    """Return which pixels have a colour, (720, 960), without the lines that part the tiles."""
    picture = view.picture()
    assert picture.shape == (720, 960, 3) and picture.dtype == np.uint8
    found = (picture == colour).all(axis=2)
    found[::360] = found[:, ::480] = False
    return found


def filled(rows: tuple[int, int], columns: tuple[int, int]) -> NDArray[np.bool_]:
    """Return what a rectangle of pixels is, from the first up to before the second of each."""
    expected = np.zeros((720, 960), np.bool_)
    expected[slice(*rows), slice(*columns)] = True
    return expected


def test_boxes_fill_what_their_middles_are_in():
    # 10 m from the left and 20 m from the bottom: column 10 and row 700 begin there.
    view = view_of()
    view.box((10.0, 20.0), (3.0, 1.0), top_view.RED)
    np.testing.assert_array_equal(where(view, top_view.RED), filled((699, 701), (7, 13)))


def test_boxes_turn_with_their_headings():
    view = view_of()
    view.box((10.0, 20.0), (3.0, 1.0), top_view.RED, RIGHT)
    np.testing.assert_array_equal(where(view, top_view.RED), filled((697, 703), (9, 11)))
    # Looking 45 degrees to the right of ahead, long ahead: along a diagonal, up and to the right.
    view = view_of()
    view.box((100.5, 100.5), (0.1, 4.0), top_view.RED, (AHEAD + RIGHT) / np.sqrt(2))
    diagonal = [(619 - k, 100 + k) for k in range(2, -3, -1)]  # 2 sqrt(2) < 4 < 3 sqrt(2)
    assert [tuple(pixel) for pixel in np.argwhere(where(view, top_view.RED))] == diagonal


def test_discs_are_round():
    # Of a disc of 2 m, pixels' middles are within (0.5, 0.5) and (0.5, 1.5), not within (1.5, 1.5).
    view = view_of()
    view.disc((10.0, 20.0), 2.0, top_view.GREEN)
    expected = filled((698, 702), (9, 11)) | filled((699, 701), (8, 12))
    np.testing.assert_array_equal(where(view, top_view.GREEN), expected)


def test_agents_have_a_face_where_they_look():
    # From 90 to 110 m, the face a third of half an edge to either side of 107 m.
    view = view_of()
    view.agent(np.array([[100.0], [100.0]]), RIGHT, 10.0)
    np.testing.assert_array_equal(where(view, top_view.AGENT), filled((610, 630), (90, 104)))
    np.testing.assert_array_equal(where(view, top_view.FACE), filled((610, 630), (104, 110)))


def test_tiles_show_each_its_own():
    view = view_of(2)
    view.box([[10.0, 30.0], [20.0, 40.0]], (1.0, 1.0), top_view.BLOCK)
    expected = filled((699, 701), (9, 11)) | filled((679, 681), (480 + 29, 480 + 31))
    np.testing.assert_array_equal(where(view, top_view.BLOCK), expected)
    picture = view.picture()
    assert (picture[0] == top_view.INK).all()
    assert (picture[:, [0, 480]] == top_view.INK).all()
    assert (picture[1, [1, 479, 481]] == top_view.FLOOR).all()


def test_what_is_nowhere_is_not_drawn():
    view = view_of(2)
    centre = np.array([[10.0, np.nan], [20.0, np.nan]])
    view.box(centre, (1.0, 1.0), top_view.BLOCK)
    view.disc(centre + 100.0, 1.0, top_view.GREEN)
    view.agent(centre + 200.0, np.repeat(AHEAD, 2, axis=1), 5.0)
    for colour, n_pixels in ((top_view.BLOCK, 4), (top_view.GREEN, 4), (top_view.FACE, 30)):
        seen = where(view, colour)
        assert seen[:, :480].sum() == n_pixels and not seen[:, 480:].any()


def test_a_tile_that_no_area_has_stays_empty():
    view = view_of(3)
    view.disc((10.0, 20.0), 2.0, top_view.GREEN)
    seen = where(view, top_view.GREEN).reshape(2, 360, 2, 480).sum(axis=(1, 3))
    assert seen.tolist() == [[12, 12], [12, 0]]


def test_numbers_are_written_in_digits_of_three_by_five():
    view = view_of(2)
    view.number(1, np.array([10.0, 20.0]), 17)
    view.number(0, np.array([1.0, 20.0]), 17)  # beyond the left edge: left out
    drawing = (".#..###", "##....#", ".#...#.", ".#...#.", "###..#.")
    expected = np.zeros((720, 960), np.bool_)
    expected[698:703, 487:494] = [[mark == "#" for mark in row] for row in drawing]
    np.testing.assert_array_equal(where(view, top_view.INK), expected)


def test_tiles_have_16_pixels_however_many_they_are():
    picture = TopView(6000, (0.0, 0.0), (10.0, 20.0)).picture()
    is_line = (picture == top_view.INK).all(axis=2)
    assert np.diff(np.flatnonzero(is_line.all(axis=0))).tolist() == [16] * (
        picture.shape[1] // 16 - 1
    )
    assert np.diff(np.flatnonzero(is_line.all(axis=1))).tolist() == [32] * (
        picture.shape[0] // 32 - 1
    )
