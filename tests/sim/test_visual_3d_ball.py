"""Visual3DBall: pictures against one ray per pixel, and how they are stacked."""

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import ActionTuple, DimensionProperty
from mlagents_envs.testing import check_env
from mlagents_sim.examples.ball_3d import POSITION, X, Y, Z, rotation_matrix
from mlagents_sim.examples.visual_3d_ball import Visual3DBall
from shared_data import load_recording

NAME = Visual3DBall.behavior_name
NOTHING, CUBE, BAND, BALL = range(4)


def hold(env: Visual3DBall) -> None:
    env.set_actions(NAME, ActionTuple(continuous=np.zeros((env.n_agents, 2))))
    env.step()


def test_visual3dball_keeps_the_contract():
    check_env(lambda seed: Visual3DBall(seed=seed), steps=15)


def test_frames_are_stacked_along_the_channels():
    env = Visual3DBall()
    env.reset()
    seen = [env.get_steps(NAME)[0].obs[0]]
    for _ in range(5):
        hold(env)
        seen.append(env.get_steps(NAME)[0].obs[0])
    assert (seen[0][:, :9] == 0).all() and seen[0][:, 9:].all(axis=1).any()
    for number, now in enumerate(seen[1:], start=1):
        np.testing.assert_array_equal(now[:, :9], seen[number - 1][:, 3:])
        assert (now[:, 9:] != now[:, 6:9]).any()  # the balls fall
    assert Visual3DBall.behavior_spec.observation_specs[0].shape == (12, 84, 84)


def test_the_camera_is_announced_as_the_original_announces_one():
    meta, _, _ = load_recording("4.0.0-visual3dball")
    (camera,) = meta["behavior_specs"][NAME]["observation_specs"]
    (ours,) = Visual3DBall.behavior_spec.observation_specs
    assert ours.name == f"StackingSensor_size4_{camera['name']}"
    assert ours.shape == (4 * camera["shape"][0], *camera["shape"][1:])
    assert ours.dimension_property == tuple(map(DimensionProperty, camera["dimension_property"]))


def test_pictures_show_what_each_ray_hits_first_and_in_what_light():
    env = Visual3DBall(num_areas=5)
    env.reset()
    rng = np.random.default_rng(2)
    # Cubes turned by up to 30 degrees about x and z; balls over, beside and behind them.
    env.cube[:] = [[0.0], [0.0], [0.0], [1.0]] + rng.uniform(-0.25, 0.25, (4, 40)) * [
        [1.0],
        [0.0],
        [1.0],
        [0.0],
    ]
    env.cube[X, :8] = 0.27  # as far as they go: the eye is below the top of the headband
    env.cube[Z, :8] = np.linspace(-0.27, 0.27, 8)
    env.cube /= np.linalg.norm(env.cube, axis=0)
    direction = rng.normal(size=(3, 40))
    env.ball[POSITION] = direction / np.abs(direction).max(axis=0) * 4.0
    pictures = env.observe(np.arange(40))[0][:, 9:].transpose(0, 2, 3, 1)
    n_hidden = n_below_the_band_top = 0
    for agent in range(40):
        frame = rotation_matrix(env.cube[:, [agent]])[..., 0]
        hit, expected = first_hit(frame, env.ball[POSITION, :, agent])
        # Of 7056 pixels, those whose ray passes by an edge within rounding may differ.
        assert (np.abs(expected - pictures[agent]).max(axis=-1) > 1.0).sum() <= 2
        n_hidden += BALL not in hit
        n_below_the_band_top += EYE @ frame[:, 1] < 2.1875
    assert 3 < n_hidden < 37
    assert n_below_the_band_top > 0


EYE = np.array([0.0, 7.0, -8.0])


def first_hit(
    frame: NDArray[np.float64], center: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Follow a ray from the camera through each pixel: 60 degrees over 84 rows, 30 degrees down.

    Returns:
        What is hit, (84, 84), and its colors, (84, 84, 3).
    """
    across = (np.arange(84) - 41.5) / 42 * np.tan(np.radians(30))
    down = np.radians(30)
    ahead, up = (
        np.array([0, -np.sin(down), np.cos(down)]),
        np.array([0, np.cos(down), np.sin(down)]),
    )
    ray = ahead + across[:, None] * [1.0, 0.0, 0.0] - across[:, None, None] * up
    hit, distance = np.full((84, 84), NOTHING), np.full((84, 84), np.inf)
    colors = np.zeros((84, 84, 3))

    def show(what: int, far: NDArray[np.float64], normal, albedo: tuple[int, int, int]) -> None:
        is_nearer = far < distance
        light = np.maximum(normal @ [0.542, 0.643, -0.542], 0.0)[..., None]
        color = np.minimum(albedo * (0.68 + 0.61 * light) + 0.12 * 255, 255)
        hit[is_nearer], distance[is_nearer] = what, far[is_nearer]
        colors[is_nearer] = color[is_nearer]

    by_cube, start = ray @ frame, EYE @ frame
    for what, half, above, albedo in (
        (CUBE, (2.5, 2.5, 2.5), 0.0, (33, 150, 243)),
        (BAND, (2.61, 0.4825, 2.61), 1.705, (250, 166, 41)),
    ):
        middle = np.array([0.0, above, 0.0])
        one, other = (middle - half - start) / by_cube, (middle + half - start) / by_cube
        entries, leave = np.minimum(one, other), np.maximum(one, other).min(axis=-1)
        entry, axis = entries.max(axis=-1), entries.argmax(axis=-1)
        side = -np.sign(np.take_along_axis(by_cube, axis[..., None], axis=-1))
        show(what, np.where(entry < leave, entry, np.inf), side * frame.T[axis], albedo)

    # |eye + t ray - center|^2 = 0.25
    a, b, c = (ray**2).sum(-1), ray @ (EYE - center), ((EYE - center) ** 2).sum() - 0.25
    square = b**2 - a * c
    far = np.where(square > 0, (-b - np.sqrt(np.maximum(square, 0))) / a, np.inf)
    normal = (EYE + ray * np.where(square > 0, far, 0)[..., None] - center) / 0.5
    show(BALL, far, normal, (200, 200, 200))
    return hit, colors


def test_colors_by_hand():
    # A level cube. Its top meets the light at 0.643: 0.68 + 0.61 * 0.643 = 1.0722, so 33, 150 and
    # 243 become 35.4, 160.8 and 260.6, and 12 % of 255, 30.6, come on top. The front of the
    # headband meets it at 0.542: 250, 166 and 41 times 1.0106, and 30.6.
    env = Visual3DBall()
    env.reset()
    env.cube[:] = [[0.0], [0.0], [0.0], [1.0]]
    env.ball[POSITION] = [[0.0], [40.0], [0.0]]  # out of sight
    picture = env.observe(np.array([0]))[0][0, 9:]
    # In the middle column the camera sees a point y above and z before the center in the row
    # 41.5 + 42 tan(atan((7 - y) / (8 - z)) - 30 degrees) / tan(30 degrees): the middle of the top,
    # at (2.5, 0), in the row 40.7, that of the headband's front, at (1.705, 2.61), in 60.3.
    assert picture[:, 41, 41].tolist() == [65, 191, 255]
    assert picture[:, 60, 41].tolist() == [255, 198, 72]
    assert picture[:, 0, 0].tolist() == [0, 0, 0]


def is_ball(pictures: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return which pixels are gray and not black: all else is blue, orange or black."""
    return (pictures.max(axis=1) == pictures.min(axis=1)) & (pictures[:, 0] > 0)


def test_the_last_picture_of_an_episode_is_of_the_fallen_ball():
    env = Visual3DBall()
    env.keep_8_bit_images()
    env.reset()
    env.ball[POSITION, :, 2] = [3.5, 3.0, 0.0]
    hold(env)
    _, terminals = env.get_steps(NAME)
    assert (terminals.agent_id.tolist(), terminals.reward.tolist()) == ([2], [-1.0])
    columns = np.argwhere(is_ball(terminals.obs[0][:, 9:]))[:, 2]
    # 3.5 m to the right at a depth of (8 cos 30 + (7 - 3) sin 30) = 8.93 m: a slope of 0.392, where
    # 0.577 is at the edge of 42 columns.
    assert abs(columns.mean() - (41.5 + 0.392 / 0.577 * 42)) < 1.0


def test_larger_balls_look_larger():
    sizes = []
    for scale in (1.0, 2.0):
        env = Visual3DBall(parameters={"scale": scale})
        env.reset()
        env.ball[POSITION] = 0.0
        env.ball[POSITION, Y] = 4.0
        sizes.append(is_ball(env.observe(np.arange(8))[0][:, 9:]).sum())
    assert 3.6 < sizes[1] / sizes[0] < 4.4
