"""Encodings of what agents sense, by hand."""

import numpy as np

from mlagents_sim.sensors import GridSensor, RaySensor


def test_rays_are_ordered_from_ahead_outwards_right_first():
    rays = RaySensor(per_side=2, max_degrees=90.0, length=10.0, n_tags=1)
    half = np.sqrt(0.5)
    expected = [[0, half, -half, 1, -1], [1, half, half, 0, 0]]
    np.testing.assert_allclose(rays.directions, expected, atol=1e-12)
    assert rays.size == 5 * 3


def test_a_ray_reports_the_nearest_by_tag_and_distance():
    # Three rays of 10 m, two agents. Tags are at 0 and 1, "nothing" at 2, the distance at 3.
    rays = RaySensor(per_side=1, max_degrees=45.0, length=10.0, n_tags=2)
    walls = np.array([[5.0, 12.0], [4.0, 10.0], [2.5, np.inf]])  # (R, N)
    balls = np.array([[6.0, 1.0], [3.0, np.inf], [np.inf, np.inf]])
    seen = rays.observe([walls, balls], [1, 0]).reshape(2, 3, 4)
    first = [[0, 1, 0, 0.5], [1, 0, 0, 0.3], [0, 1, 0, 0.25]]
    second = [[1, 0, 0, 0.1], [0, 1, 0, 1.0], [0, 0, 1, 1.0]]
    np.testing.assert_allclose(seen, [first, second], rtol=1e-6)
    assert seen.dtype == np.float32


def test_of_things_equally_far_a_ray_sees_the_first_that_is_named():
    # One of its rays, and one agent; tags are at 0 and 1, "nothing" at 2.
    rays = RaySensor(per_side=1, max_degrees=45.0, length=10.0, n_tags=2)
    both = [np.array([[4.0]]), np.array([[4.0]])]
    assert rays.observe(both, [1, 0]).tolist() == [[0, 1, 0, np.float32(0.4)]]
    assert rays.observe(both, [0, 1]).tolist() == [[1, 0, 0, np.float32(0.4)]]


def grid_by_loops(sensor: GridSensor, discs, squares, walls) -> np.ndarray:
    """Look into every cell of one grid, for the nearest thing that reaches into it.

    Cells and squares are made of many points, so what only just touches is not for this.
    """
    discs, squares = list(discs), list(squares)
    seen = np.zeros(sensor.spec("").shape, np.float32)
    n_cells = seen.shape[1]
    spots = (np.arange(41) / 40 - 0.5) * 0.999
    for column, row in np.ndindex(n_cells, n_cells):
        right, ahead = np.meshgrid(
            column - (n_cells - 1) / 2 + spots, row - (n_cells - 1) / 2 + spots
        )
        found = []
        for (x, z), radius, tag, distance in discs:
            if (np.hypot(right - x, ahead - z) < radius).any():
                found.append((distance, tag))
        for (x, z), yaw, half, tag, distance in squares:
            by_right = (right - x) * np.cos(yaw) - (ahead - z) * np.sin(yaw)
            by_ahead = (right - x) * np.sin(yaw) + (ahead - z) * np.cos(yaw)
            if (np.maximum(np.abs(by_right), np.abs(by_ahead)) < half).any():
                found.append((distance, tag))
        for yaw, distance, thickness, tag in walls:
            depth = right * np.sin(yaw) + ahead * np.cos(yaw) - distance
            if ((depth > 0) & (depth < thickness)).any():
                found.append((distance, tag))
        if found:
            seen[min(found)[1], n_cells - 1 - column, row] = 1.0
    return seen


def test_the_grid_by_hand():
    # Four cells of 2 m. A disc of 0.5 m at (1, 3) lies in the third column, the last row: it is
    # 1 m to the right and 3 m ahead. Rows of the picture begin on the right.
    grid = GridSensor(n_cells=4, cell_m=2.0, n_tags=2)
    marks = grid.discs(
        np.array([0]), np.array([[1.0], [3.0]]), np.array([0.5]), np.array([1]), np.array([2.5])
    )
    seen = grid.observe(2, [marks])
    assert seen.shape == (2, 2, 4, 4)
    assert np.argwhere(seen).tolist() == [[0, 1, 1, 3]]


def test_in_a_cell_the_nearest_counts():
    grid = GridSensor(n_cells=4, cell_m=1.0, n_tags=3)
    one, place = np.array([0]), np.array([[0.5], [0.5]])
    far = grid.discs(one, place, np.array([0.2]), np.array([0]), np.array([2.0]))
    near = grid.discs(one, place, np.array([0.2]), np.array([2]), np.array([1.0]))
    for marks in ([far, near], [near, far]):
        assert np.argwhere(grid.observe(1, marks))[:, 1].tolist() == [2]


def test_the_grid_sees_what_one_sees_who_looks_into_every_cell():
    rng = np.random.default_rng(5)
    grid = GridSensor(n_cells=8, cell_m=1.0, n_tags=4)
    for _ in range(10):
        centers = rng.uniform(-6.0, 6.0, (2, 6))
        yaws = rng.uniform(-np.pi, np.pi, 4)
        radii, halves = rng.uniform(0.2, 1.5, 3), rng.uniform(0.2, 1.5, 3)
        distances = rng.permutation(6) + 0.5
        at_wall = rng.uniform(1.0, 6.0)
        zeros = np.zeros(3, np.intp)
        headings = np.array([np.sin(yaws), np.cos(yaws)])
        marks = [
            grid.discs(zeros, centers[:, :3], radii, np.array([0, 1, 0]), distances[:3]),
            grid.squares(
                zeros, centers[:, 3:], headings[:, :3], halves, np.array([2, 1, 2]), distances[3:]
            ),
            grid.walls(headings[:, 3:, None], np.array([[at_wall]]), 1.0, 3),
        ]
        expected = grid_by_loops(
            grid,
            zip(centers[:, :3].T, radii, [0, 1, 0], distances[:3], strict=True),
            zip(centers[:, 3:].T, yaws[:3], halves, [2, 1, 2], distances[3:], strict=True),
            [(yaws[3], at_wall, 1.0, 3)],
        )
        difference = np.argwhere((grid.observe(1, marks)[0] != expected).any(axis=0))
        assert len(difference) <= 1  # where the points of a cell just miss a corner
