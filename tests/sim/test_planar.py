"""Bodies on a floor and rays over it: by hand, by the laws of motion, and against plain loops."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mlagents_sim.contact import CONTACT_OFFSET_M, kept
from mlagents_sim.planar import ANCHORS, HIGH, LOW, Bodies, Body
from mlagents_sim.plane import X, Z, along, in_frame, turn
from mlagents_sim.rays import Rays, radius_at_edge
from shared_data import ROOT, require

FAR = 1e6
NO_WALLS = {"low": (-FAR, -FAR), "high": (FAR, FAR)}
AHEAD = np.array([[0.0], [1.0]])

angles = st.floats(-math.pi, math.pi)
places = st.tuples(st.floats(-6.0, 6.0), st.floats(-6.0, 6.0))
halves = st.tuples(st.floats(0.1, 3.0), st.floats(0.1, 3.0))


def heading_of(yaw_rad: float) -> np.ndarray:
    return np.array([[math.sin(yaw_rad)], [math.cos(yaw_rad)]])


def column(values) -> np.ndarray:
    return np.array(values, np.float64)[:, None]


# Directions.


def test_headings_by_hand():
    # Yaw grows to the right, clockwise from above: from ahead to the right, then back.
    heading = AHEAD.copy()
    turn(heading, np.ones(1), np.zeros(1))
    np.testing.assert_allclose(heading, [[1.0], [0.0]])
    np.testing.assert_allclose(along(AHEAD, 2.0, 3.0), [[3.0], [2.0]])
    # Who looks to the right has what is behind the world's middle at his right hand.
    np.testing.assert_allclose(along(column([1.0, 0.0]), 2.0, 3.0), [[2.0], [-3.0]])


@given(angles, places)
def test_a_frame_is_the_inverse_of_along(yaw, place):
    heading = heading_of(yaw)
    right, forward = in_frame(heading, column(place))
    np.testing.assert_allclose(along(heading, forward, right), column(place), atol=1e-12)


# Motion.


def test_a_push_against_drag_by_hand():
    # v = (v + 3) (1 - 4 * 0.02), x += 0.02 v: v = 2.76, 5.2992; x = 0.0552, 0.161184. So did an
    # agent of Unity's Push Block: 0.7448 m in the first five steps, 1.6671 in the next.
    bodies = Bodies(1, [Body((0.5, 0.5), mass=10.0, drag=4.0)], **NO_WALLS)
    x = []
    for _ in range(10):
        bodies.velocity[X, 0] += 3.0
        bodies.move()
        x.append(bodies.position[X, 0, 0])
    np.testing.assert_allclose(x[:2], [0.0552, 0.161184])
    np.testing.assert_allclose([x[4], x[9] - x[4]], [0.7448, 1.6671], atol=1e-4)


def test_drag_takes_no_more_than_all():
    bodies = Bodies(1, [Body((0.5, 0.5), mass=1.0, drag=2000.0)], **NO_WALLS)
    bodies.velocity[X] = 5.0
    bodies.move()
    assert (bodies.velocity == 0.0).all() and (bodies.position == 0.0).all()


def test_the_floor_brakes_until_a_body_stands():
    # Gravity of 5 m/s2, twice 0.6 of it brakes: 0.12 m/s a step along the motion, (3, 4) / 5, which
    # leaves 0.3 - 0.072 after one step, ...
    bodies = Bodies(1, [Body((0.5, 0.5), mass=1.0, gravity=5.0)], **NO_WALLS)
    bodies.velocity[:, 0, 0] = 0.3, 0.4
    bodies.move()
    np.testing.assert_allclose(bodies.velocity[:, 0, 0], [0.228, 0.304])
    for _ in range(4):
        bodies.move()
    assert (bodies.velocity == 0.0).all()


def test_a_box_slides_as_in_unity():
    # 30 boxes of different mass, friction and speed, on floors that combine frictions differently.
    with np.load(require(ROOT / "physics" / "primitives_contacts.npz")) as data:
        cases, recorded = data["slide_cases"], data["slide"][:, :, 7]
    floor, box, mode, _, speed = cases.T
    combined = np.array(
        [(floor + box) / 2, floor * box, np.minimum(floor, box), [*map(max, floor, box)]]
    )
    bodies = Bodies(len(cases), [Body((1.0, 1.0), mass=1.0, gravity=14.715)], **NO_WALLS)
    bodies.grip[0] = ANCHORS * np.choose(mode.astype(int), combined)
    bodies.velocity[X, 0] = speed
    for then in recorded[:, 1:].T:
        bodies.move()
        np.testing.assert_allclose(bodies.velocity[X, 0], then, atol=1e-3)


def test_a_cube_is_pushed_against_drag_and_friction_as_in_unity():
    # The motion of the cube agents, by gravity, drag and push, until they leave the floor.
    with np.load(require(ROOT / "physics" / "primitives_contacts.npz")) as data:
        cases, recorded = data["push_accel_cases"], data["push_accel"]
    gravity, drag, push = cases.T
    bodies = Bodies(len(cases), [Body((0.5, 0.5), mass=10.0)], **NO_WALLS)
    bodies.kept[0] = kept(drag)
    bodies.put_down((0, slice(None)), gravity=gravity)
    bodies.velocity[X, 0] = recorded[:, 0, 7]
    for step in range(1, recorded.shape[1]):
        bodies.velocity[X, 0] += push
        bodies.move()
        is_on_floor = recorded[:, step, 1] > 0.4999
        assert step > 40 or is_on_floor.all()
        difference = bodies.velocity[X, 0] - recorded[:, step, 7]
        np.testing.assert_allclose(difference[is_on_floor], 0.0, atol=1e-3)


def test_a_fall_by_hand():
    # 0.05 m above the floor, at 9.81 m/s2 and 6 m/s: nothing rubs while it falls at 0.1962, 0.3924,
    # 0.5886, ... m/s, by 0.0039, 0.0078, 0.0118, 0.0157 m. The fourth step ends 0.01076 m above the
    # floor, from where the fifth may fall by 0.8 of that, at 0.4304 m/s. So the floor stops
    # 5 * 0.1962 - 0.4304 in it, and in the sixth what is left, less 0.8 of 0.00215 m: 0.0861 m/s.
    bodies = Bodies(1, [Body((0.5, 0.5), mass=1.0)], **NO_WALLS)
    bodies.put_down((0, 0), gravity=9.81, above_m=0.05)
    bodies.velocity[X] = 6.0
    for step in range(4):
        bodies.move()
        np.testing.assert_allclose(bodies.climb, -0.1962 * (step + 1))
    np.testing.assert_allclose(bodies.velocity[X], 6.0)
    np.testing.assert_allclose(bodies.above_m, 0.05 - 10 * 0.1962 * 0.02)
    bodies.move()
    np.testing.assert_allclose(bodies.climb, -0.4304)
    np.testing.assert_allclose(bodies.velocity[X], 6.0 - 1.2 * (0.981 - 0.4304))
    before = bodies.velocity[X, 0, 0]
    bodies.move()
    stopped = 0.4304 + 0.1962 - 0.08608
    np.testing.assert_allclose(bodies.velocity[X], before - 1.2 * stopped, atol=1e-9)
    for _ in range(12):
        bodies.move()
    before = bodies.velocity[X, 0, 0]
    bodies.move()
    assert not bodies.is_falling and bodies.above_m == 0.0 and bodies.climb == 0.0
    np.testing.assert_allclose(bodies.velocity[X], before - 1.2 * 0.1962)


def test_what_pushes_a_body_out_of_the_floor_does_not_rub():
    # 3 cm in the floor, falling at 2 m/s: 2.1962 m/s are stopped, and 0.2 of the overlap is left.
    bodies = Bodies(1, [Body((0.5, 0.5), mass=1.0)], **NO_WALLS)
    bodies.put_down((0, 0), gravity=9.81, above_m=-0.03)
    bodies.climb[:] = -2.0
    bodies.velocity[X] = 6.0
    bodies.move()
    np.testing.assert_allclose(bodies.velocity[X], 6.0 - 1.2 * 2.1962)
    np.testing.assert_allclose(bodies.above_m, -0.006)
    np.testing.assert_allclose(bodies.climb, 0.0)


def test_walls_stop_a_body_where_it_ends():
    # Turned by 45 degrees, a square of 1 m reaches 0.7071 m to either side.
    bodies = Bodies(2, [Body((0.5, 0.5), mass=1.0)], low=(-5, -5), high=(5, 5), friction=0.0)
    bodies.heading[:, 0, 1] = heading_of(math.pi / 4)[:, 0]
    bodies.velocity[Z] = -10.0
    bodies.velocity[X] = 1.0
    for _ in range(60):
        bodies.move()
    np.testing.assert_allclose(bodies.position[Z, 0], [-4.5, -5 + math.sqrt(0.5)], atol=1e-6)
    np.testing.assert_allclose(bodies.position[X, 0], 1.2)
    np.testing.assert_allclose(bodies.velocity[:, 0], [[1.0, 1.0], [0.0, 0.0]], atol=1e-12)
    assert bodies.touching_walls[LOW, Z].all()
    assert not bodies.touching_walls[HIGH].any()


def test_a_wall_rubs_by_what_presses():
    # Stopping 2 m/s at friction 0.5, in two anchors, takes 2 m/s off the 3 m/s along the wall.
    bodies = Bodies(1, [Body((0.5, 0.5), mass=7.0)], low=(0, 0), high=(99, 99), friction=0.5)
    bodies.position[:, 0, 0] = 50.0, 0.5
    bodies.velocity[:, 0, 0] = 3.0, -2.0
    bodies.move()
    np.testing.assert_allclose(bodies.velocity[:, 0, 0], [1.0, 0.0], atol=1e-12)


def test_a_box_that_never_moves_rubs_like_a_wall():
    # 1 m/s toward it is stopped; at friction 0.25 that takes 0.5 m/s off the 5 m/s along its face.
    bodies = two_boxes(2.0, math.inf, friction=0.25)
    bodies.velocity[:, 0, 0] = 1.0, 5.0
    bodies.move()
    np.testing.assert_allclose(bodies.velocity[:, 0, 0], [0.0, 4.5], atol=1e-12)


def two_boxes(mass: float, other_mass: float, **options) -> Bodies:
    """Make two squares of 1 m side by side, the second to the right and just touched."""
    bodies = Bodies(
        1,
        [Body((0.5, 0.5), mass=mass), Body((0.5, 0.5), mass=other_mass)],
        pairs=[(0, 1)],
        **NO_WALLS | options,
    )
    bodies.position[X, 1] = 1.0
    return bodies


def test_what_collides_goes_on_together():
    # 1 kg at 4 m/s meets 3 kg at rest: 4 kg at 1 m/s.
    bodies = two_boxes(1.0, 3.0)
    bodies.velocity[X, 0] = 4.0
    bodies.move()
    np.testing.assert_allclose(bodies.velocity[X], [[1.0], [1.0]])
    assert bodies.touching.tolist() == [[True]]


def test_what_parts_is_left_alone():
    bodies = two_boxes(1.0, 3.0)
    bodies.velocity[X] = [[-1.0], [2.0]]
    bodies.move()
    np.testing.assert_allclose(bodies.velocity[X], [[-1.0], [2.0]])


def test_surfaces_rub_by_what_presses():
    # Equal masses: 4 m/s of closing are stopped, so friction takes 0.25 * 4 of 5 m/s of slip,
    # half of it from each.
    bodies = two_boxes(2.0, 2.0, friction=0.25)
    bodies.velocity[:, 0, 0] = 4.0, 5.0
    bodies.move()
    np.testing.assert_allclose(bodies.velocity[:, :, 0], [[2.0, 2.0], [4.5, 0.5]])


def test_what_never_moves_takes_all_and_gives_nothing():
    bodies = two_boxes(2.0, math.inf, friction=0.0)
    bodies.velocity[X, 0] = 4.0
    bodies.move()
    assert (bodies.velocity == 0.0).all()
    np.testing.assert_allclose(bodies.position[X, :, 0], [0.0, 1.0])


def test_an_overlap_is_pushed_apart_without_gain_of_speed():
    # Four fifths of 0.1 m in a step, half by each.
    bodies = two_boxes(1.0, 1.0)
    bodies.position[X, 1] = 0.9
    bodies.move()
    np.testing.assert_allclose(bodies.position[X, :, 0], [-0.04, 0.94])
    np.testing.assert_allclose(bodies.velocity, 0.0, atol=1e-12)


def test_a_body_between_another_and_a_wall_stays_inside():
    bodies = Bodies(
        1,
        [Body((0.5, 0.5), mass=10.0, drag=4.0), Body((1.0, 1.0), mass=10.0, drag=0.5)],
        low=(-5, -5),
        high=(5, 5),
        pairs=[(0, 1)],
    )
    bodies.position[X, :, 0] = 1.0, 3.0
    for _ in range(200):
        bodies.velocity[X, 0] += 3.0
        bodies.move()
        assert bodies.position[X, 1, 0] < 4.1
        assert bodies.position[X, 0, 0] < 3.0
    np.testing.assert_allclose(bodies.position[X, :, 0], [2.5, 4.0], atol=0.1)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_collisions_keep_momentum_and_make_no_energy(seed):
    rng = np.random.default_rng(seed)
    n, masses = 20, rng.uniform(0.5, 20.0, 3)
    pairs = [(0, 1), (0, 2), (1, 2)]
    bodies = Bodies(n, [Body((0.5, 0.7), mass=mass) for mass in masses], pairs=pairs, **NO_WALLS)
    bodies.position[:] = rng.uniform(-1.5, 1.5, bodies.position.shape)
    bodies.velocity[:] = rng.uniform(-9.0, 9.0, bodies.position.shape)
    yaw = rng.uniform(-np.pi, np.pi, (3, n))
    bodies.heading[:] = np.sin(yaw), np.cos(yaw)
    momentum = np.einsum("b,kbn->kn", masses, bodies.velocity)
    energy = np.einsum("b,kbn->n", masses, bodies.velocity**2)
    for _ in range(30):
        bodies.move()
        now = np.einsum("b,kbn->n", masses, bodies.velocity**2)
        assert (now <= energy * (1 + 1e-9)).all()
        energy = now
    after = np.einsum("b,kbn->kn", masses, bodies.velocity)
    np.testing.assert_allclose(after, momentum, atol=1e-9)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_two_that_overlap_soon_do_not(seed):
    rng = np.random.default_rng(seed)
    n = 50
    bodies = Bodies(
        n, [Body((0.5, 0.5), mass=1.0), Body((1.0, 2.0), mass=3.0)], pairs=[(0, 1)], **NO_WALLS
    )
    bodies.position[:, 0] = rng.uniform(-2.0, 2.0, (2, n))
    yaw = rng.uniform(-np.pi, np.pi, (2, n))
    bodies.heading[:] = np.sin(yaw), np.cos(yaw)
    for _ in range(60):
        bodies.move()
    for area in range(n):
        corners = [corners_of(bodies, body, area) for body in range(2)]
        assert separation(*corners) > -1e-3


def test_half_edges_may_be_whole_numbers():
    bodies = Bodies(1, [Body((1, 2), mass=1.0)], **NO_WALLS)
    bodies.move()
    np.testing.assert_array_equal(bodies.reach[:, 0, 0], [1.0, 2.0])


def test_of_a_pair_one_has_to_move():
    with pytest.raises(ValueError, match=r"no body of the pairs \[\[1, 2\]\] can move"):
        Bodies(
            3,
            [Body((1, 1), mass=1.0), Body((1, 1)), Body((1, 1))],
            pairs=[(0, 1), (1, 2)],
            **NO_WALLS,
        )


def corners_of(bodies: Bodies, body: int, area: int) -> list[tuple[float, float]]:
    """Return the corners of a box, one after the other around it."""
    x, z = bodies.position[:, body, area].tolist()
    sine, cosine = bodies.heading[:, body, area].tolist()
    half_x, half_z = bodies.half[:, body, area].tolist()
    return [
        (x + right * cosine + ahead * sine, z - right * sine + ahead * cosine)
        for right, ahead in (
            (-half_x, -half_z),
            (half_x, -half_z),
            (half_x, half_z),
            (-half_x, half_z),
        )
    ]


def separation(first: list[tuple[float, float]], second: list[tuple[float, float]]) -> float:
    """Return the widest gap that a line along any edge leaves between two convex polygons."""
    widest = -math.inf
    for polygon in (first, second):
        for (x, z), (next_x, next_z) in zip(polygon, polygon[1:] + polygon[:1], strict=True):
            length = math.hypot(next_x - x, next_z - z)
            across = (next_z - z) / length, (x - next_x) / length
            (low, high), (other_low, other_high) = (
                (min(shadow), max(shadow))
                for shadow in (
                    [px * across[0] + pz * across[1] for px, pz in points]
                    for points in (first, second)
                )
            )
            widest = max(widest, other_low - high, low - other_high)
    return widest


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_boxes_touch_where_a_plain_loop_says_so(seed):
    rng = np.random.default_rng(seed)
    n = 30
    halves = rng.uniform(0.2, 1.5, (2, 2))
    bodies = Bodies(n, [Body(tuple(half), mass=1.0) for half in halves], pairs=[(0, 1)], **NO_WALLS)
    bodies.position[:] = rng.uniform(-2.0, 2.0, bodies.position.shape)
    yaw = rng.uniform(-np.pi, np.pi, (2, n))
    bodies.heading[:] = np.sin(yaw), np.cos(yaw)
    expected = [
        separation(corners_of(bodies, 0, area), corners_of(bodies, 1, area)) < CONTACT_OFFSET_M
        for area in range(n)
    ]
    bodies.move()
    assert bodies.touching[0].tolist() == expected


def test_areas_do_not_know_of_each_other():
    rng = np.random.default_rng(3)

    def play(areas: slice) -> np.ndarray:
        body = Body((0.5, 0.5), mass=1.0, drag=0.5)
        n = len(places[0, 0, areas])
        bodies = Bodies(n, [body, body], low=(-3, -3), high=(3, 3), pairs=[(0, 1)])
        bodies.position[:] = places[..., areas]
        bodies.velocity[:] = speeds[..., areas]
        bodies.put_down((slice(None), slice(None)), gravity=1.0, above_m=heights[:, areas])
        for _ in range(50):
            bodies.move()
        return bodies.position

    places, speeds = rng.uniform(-2, 2, (2, 2, 12)), rng.uniform(-9, 9, (2, 2, 12))
    heights = rng.uniform(0.0, 0.3, (2, 12)) * (np.arange(12) % 2)  # half of them stand
    alone = [play(slice(area, area + 1)) for area in range(12)]
    np.testing.assert_allclose(np.concatenate(alone, axis=2), play(slice(None)), atol=1e-12)


# Rays.


def one_ray(origin, yaw_rad: float) -> Rays:
    return Rays.cast(column(origin), heading_of(yaw_rad), AHEAD)


def box(values) -> np.ndarray:
    """Return the center or half lengths of one box."""
    return np.reshape(values, (2, 1, 1)).astype(np.float64)


def test_a_ray_to_walls_by_hand():
    # Ahead from (1, 2) to a wall at 10: 7.5 m until a sphere of 0.5 m touches it; at 45 degrees to
    # the right the wall at x = 4 comes first, 2.5 m aside.
    assert one_ray((1, 2), 0.0).to_room((-4, -10), (4, 10), 0.5).item() == pytest.approx(7.5)
    turned_ray = one_ray((1, 2), math.pi / 4)
    assert turned_ray.to_room((-4, -10), (4, 10), 0.5).item() == pytest.approx(2.5 * math.sqrt(2))


def test_rays_go_right_and_left_of_the_heading():
    # Looking to the right from the origin, a ray to the right goes to -z, one to the left to +z.
    local = np.array([[0.0, 1.0, -1.0], [1.0, 0.0, 0.0]])
    rays = Rays.cast(np.zeros((2, 1)), column([1.0, 0.0]), local)
    travel = rays.to_room((-2, -3), (5, 7), 0.0)
    np.testing.assert_allclose(travel, [[5.0], [3.0], [7.0]])


def test_a_sphere_that_overlaps_a_wall_does_not_meet_it():
    # 0.3 m from the wall ahead, the next in this direction is none.
    assert one_ray((0, 9.7), 0.0).to_room((-4, -10), (4, 10), 0.5).item() > 1e9
    assert one_ray((0, 9.7), 0.0).to_room((-4, -10), (4, 10), 0.2).item() == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ((0.0, -5.0), 3.5),  # the face at z = -1, less 0.5
        ((2.0, -5.0), 3.5),  # the end of the face
        ((2.3, -5.0), 3.6),  # the corner at (2, -1): sqrt(0.25 - 0.09) = 0.4 before it
        ((2.51, -5.0), math.inf),  # past the corner
        ((0.0, -1.2), math.inf),  # overlaps it where it starts
        ((0.0, 1.6), math.inf),  # behind
    ],
)
def test_a_ray_to_a_box_by_hand(origin, expected):
    travel = one_ray(origin, 0.0).to_boxes(box((0.0, 0.0)), box((2.0, 1.0)), 0.5).item()
    assert travel == pytest.approx(expected)


def test_a_ray_to_a_disc_by_hand():
    # 3, 4, 5: 3 m aside of a disc that is reached within 5 m, so 4 m before the nearest point.
    to_disc = one_ray((0, 0), 0.0).to_discs(box([3.0, 10.0]), 5.0)
    assert to_disc.item() == pytest.approx(6.0)
    assert one_ray((0, 0), 0.0).to_discs(box([3.0, 10.0]), 2.9).item() == math.inf
    assert one_ray((0, 0), 0.0).to_discs(box([0.0, 1.0]), 2.0).item() == math.inf


def test_a_sphere_above_an_edge_is_smaller():
    # 0.3 m above it: sqrt(0.25 - 0.09).
    np.testing.assert_allclose(
        radius_at_edge(0.5, np.array([-1.0, 0.3, 0.5, 2.0])), [0.5, 0.4, 0, 0]
    )


def march(origin, yaw_rad: float, distance, reach: float) -> float:
    """Walk along a ray, each time as far as nothing can be: where `distance` falls to `reach`."""
    if distance(*origin) <= reach:
        return math.inf
    travel = 0.0
    for _ in range(2000):
        x, z = origin[X] + travel * math.sin(yaw_rad), origin[Z] + travel * math.cos(yaw_rad)
        step = distance(x, z) - reach
        if step < 1e-7:
            return travel
        travel += step
        if travel > 50.0:
            break
    return math.inf


@settings(max_examples=300)
@given(places, angles, places, halves, angles, st.floats(0.0, 1.0))
def test_rays_meet_boxes_where_one_comes_who_feels_the_way(
    origin, yaw, center, half, box_yaw, radius
):
    def distance(x: float, z: float) -> float:
        x, z = x - center[X], z - center[Z]
        sine, cosine = math.sin(box_yaw), math.cos(box_yaw)
        right, ahead = x * cosine - z * sine, x * sine + z * cosine
        return math.hypot(max(abs(right) - half[X], 0.0), max(abs(ahead) - half[Z], 0.0))

    assume(abs(distance(*origin) - radius) > 1e-4)  # else rounding decides whether it is inside
    rays = one_ray(origin, yaw).seen_from(column(center)[:, None], heading_of(box_yaw)[:, None])
    found = rays.to_boxes(box((0.0, 0.0)), box(half), radius).item()
    # A smaller sphere meets the box later, or never; where it grazes, much later.
    latest, earliest = (march(origin, yaw, distance, radius + error) for error in (-1e-5, 1e-5))
    assert earliest - 1e-4 <= found <= latest + 1e-4


# Ahead from the origin, a sphere of 0.5 m rises by 3 m in every 4 m of floor, which are 5 m of way.
# The first box's edge is 0.4 m off the way, at right angles down from its point (4, 3) (ahead, up):
# at (4, 3) + 0.4 * (0.6, -0.8) = (4.24, 2.68). The sphere meets it sqrt(0.25 - 0.16) = 0.3 m before
# that point, which are 0.24 m of floor. The second's is 0.51 m off.
@pytest.mark.parametrize(
    ("face", "low", "high", "expected"),
    [
        (4.24, 0.0, 2.68, 3.76),
        (4.306, 0.0, 2.592, math.inf),
        (4.24, 0.0, 9.0, 3.74),  # high: met with its face, 0.5 m before that
        (1.0, 3.5, 4.0, 4.0),  # overhead: met with its bottom, where the sphere's center is at 3 m
        (1.0, 3.5, 3.5, 4.0),  # a plate
        (-1.0, 0.1, 9.0, math.inf),  # overlaps it where it starts
        (-1.0, -9.0, -0.6, math.inf),  # below
    ],
)
def test_a_rising_sphere_to_a_box_by_hand(face, low, high, expected):
    edges = np.full((1, 1), low), np.full((1, 1), high)
    half = box((3.0, 5.0))
    travel = one_ray((0, 0), 0.0).to_solids(
        box((0.0, face + 5.0)), half, *edges, 0.5, [(np.zeros(1), 0.75)]
    )
    assert travel.item() == pytest.approx(expected)


@settings(max_examples=100)
@given(places, angles, places, halves, st.floats(-2.0, 4.0), st.floats(-1.0, 1.0))
def test_spheres_on_slopes_meet_boxes_of_a_height_where_they_touch(
    origin, yaw, center, half, height, slope
):
    low, high, radius = 0.0, 2.0, 0.5
    rays = one_ray(origin, yaw)
    edges = np.full((1, 1), low), np.full((1, 1), high)
    found = rays.to_solids(
        box(center), box(half), *edges, radius, [(np.array([height]), slope)]
    ).item()

    def distance(travel: float) -> float:
        x, z = origin[X] + travel * math.sin(yaw), origin[Z] + travel * math.cos(yaw)
        y = height + slope * travel
        aside = abs(x - center[X]) - half[X], abs(z - center[Z]) - half[Z], y - high, low - y
        return math.hypot(*(max(value, 0.0) for value in aside))

    if math.isinf(found):
        # Nowhere does it come nearer than its radius, unless it was there to begin with.
        nearest = min(distance(travel) for travel in np.linspace(0.0, 20.0, 2001))
        assert nearest > radius - 1e-6 or distance(0.0) < radius + 1e-6
    else:
        assert distance(found) == pytest.approx(radius, abs=1e-9)
        assert all(distance(part * found) > radius - 1e-9 for part in np.linspace(0.0, 1.0, 50))


def march_in_space(offset, way, half, reach: float) -> np.ndarray:
    """Walk from offsets by unit vectors, as `march` does, until boxes are as near as `reach`.

    All but the result are (3, n).
    """

    def distance(walkers: np.ndarray) -> np.ndarray:
        point = offset[:, walkers] + travel[walkers] * way[:, walkers]
        return np.linalg.norm(np.maximum(np.abs(point) - half[:, walkers], 0.0), axis=0)

    travel = np.zeros(offset.shape[1])
    walkers = np.arange(len(travel))
    is_inside = distance(walkers) <= reach
    travel[is_inside] = np.inf
    walkers = walkers[~is_inside]
    while walkers.size:
        step = distance(walkers) - reach
        walkers, step = walkers[step > 1e-9], step[step > 1e-9]
        travel[walkers] += step
        is_away = travel[walkers] > 50.0
        travel[walkers[is_away]] = np.inf
        walkers = walkers[~is_away]
    return travel


def test_spheres_meet_boxes_of_a_height_where_those_come_who_feel_the_way():
    rng = np.random.default_rng(0)
    n_areas, n_rays, radius = 1000, 7, 0.5
    slopes = [0.0, 0.125, 0.6, -0.2]
    center = rng.uniform(-8.0, 8.0, (2, 3, n_areas))
    half = rng.uniform(0.1, 3.0, (2, 3, n_areas))
    # A tall, a low and a floating one; spheres start beside, above and below them.
    low = np.array([np.zeros(n_areas), np.zeros(n_areas), rng.uniform(2.0, 5.0, n_areas)])
    high = low + rng.uniform([[3.0], [0.1], [0.1]], [[8.0], [2.0], [3.0]], (3, n_areas))
    origin = rng.uniform(-8.0, 8.0, (2, n_areas))
    heights = rng.uniform(0.0, 6.0, (4, n_areas))
    yaw = rng.uniform(-math.pi, math.pi, (n_rays, n_areas))
    yaw[0] = 0.0  # along the boxes
    rays = Rays.of(origin[:, None], np.array([np.sin(yaw), np.cos(yaw)]))
    found = rays.to_solids(center, half, low, high, radius, list(zip(heights, slopes, strict=True)))

    def in_space(x_and_z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return (3, F K R N) of what is (2, ...) and (...)."""
        return np.reshape([np.broadcast_to(axis, found.shape) for axis in (*x_and_z, y)], (3, -1))

    above = heights[:, None, None] - ((low + high) / 2.0)[:, None]
    offset = in_space((origin[:, None] - center)[:, :, None], above)
    halves = in_space(half[:, :, None], ((high - low) / 2.0)[:, None])
    way = in_space(rays.direction, np.reshape(slopes, (-1, 1, 1, 1)))
    length = np.linalg.norm(way, axis=0)  # of way, in a meter of floor
    # A smaller sphere meets a box later, or never; where it grazes, much later.
    latest, earliest = (
        march_in_space(offset, way / length, halves, radius + error) / length
        for error in (-1e-7, 1e-7)
    )
    travel = found.reshape(-1)
    assert (earliest <= travel).all()
    assert (travel <= latest).all()
    assert np.mean((latest < earliest + 2e-6)[np.isfinite(travel)]) > 0.98
    assert (np.isfinite(found).sum(axis=(2, 3)) > 10).all()  # of every flight and box


@settings(max_examples=300)
@given(places, angles, st.floats(0.0, 1.0))
def test_no_ray_passes_a_wall(origin, yaw, radius):
    ray = one_ray(origin, yaw)
    travel = ray.to_room((-8, -9), (7, 10), radius)[0]
    x, z = (ray.origin[:, 0] + ray.direction[:, 0] * travel)[:, 0]
    reached = [-8 + radius - x, x - (7 - radius), -9 + radius - z, z - (10 - radius)]
    assert max(reached) == pytest.approx(0.0, abs=1e-6)
