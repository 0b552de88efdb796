"""Visual3DBall: pictures against one ray per pixel, and how they are stacked."""

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import ActionTuple, DimensionProperty
from mlagents_envs.testing import check_env
from mlagents_sim.examples.ball_3d import POSITION, Y, rotation_matrix
from mlagents_sim.examples.visual_3d_ball import BALL_COLOUR, SKY_COLOUR, Visual3DBall
from shared_data import load_recording

NAME = Visual3DBall.behavior_name
SKY, CUBE, BALL = range(3)


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


def test_pictures_show_what_each_ray_hits_first():
    env = Visual3DBall(num_areas=5)
    env.reset()
    rng = np.random.default_rng(2)
    # Cubes turned by up to 20 degrees about x and z; balls over, beside and behind them.
    env.cube[:] = [[0.0], [0.0], [0.0], [1.0]] + rng.uniform(-0.17, 0.17, (4, 40)) * [
        [1.0],
        [0.0],
        [1.0],
        [0.0],
    ]
    env.cube /= np.linalg.norm(env.cube, axis=0)
    direction = rng.normal(size=(3, 40))
    env.ball[POSITION] = direction / np.abs(direction).max(axis=0) * 4.0
    pictures = env.observe(np.arange(40))[0][:, 9:]
    found = np.full((40, 84, 84), CUBE)
    found[is_colour(pictures, SKY_COLOUR)] = SKY
    found[is_colour(pictures, BALL_COLOUR)] = BALL
    n_hidden = 0
    for agent in range(40):
        expected = first_hit(
            rotation_matrix(env.cube[:, [agent]])[..., 0], env.ball[POSITION, :, agent]
        )
        # Of 7056 pixels, those whose ray passes by an edge within rounding may differ.
        assert (expected != found[agent]).sum() <= 1
        n_hidden += BALL not in expected
    assert 3 < n_hidden < 37


def is_colour(pictures: NDArray[np.uint8], colour: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return (pictures == colour[:, None, None]).all(axis=1)


def first_hit(frame: NDArray[np.float64], centre: NDArray[np.float64]) -> NDArray[np.int64]:
    """Follow a ray from the camera through each pixel: 60 degrees over 84 rows, 30 degrees down."""
    across = (np.arange(84) - 41.5) / 42 * np.tan(np.radians(30))
    down = np.radians(30)
    ahead, up = (
        np.array([0, -np.sin(down), np.cos(down)]),
        np.array([0, np.cos(down), np.sin(down)]),
    )
    ray = ahead + across[:, None] * [1.0, 0.0, 0.0] - across[:, None, None] * up
    eye = np.array([0.0, 7.0, -8.0])

    by_cube, start = ray @ frame, eye @ frame
    one, other = (-2.5 - start) / by_cube, (2.5 - start) / by_cube
    entry, leave = np.minimum(one, other).max(axis=-1), np.maximum(one, other).min(axis=-1)
    to_cube = np.where(entry < leave, entry, np.inf)

    # |eye + t ray - centre|^2 = 0.25
    a, b, c = (ray**2).sum(-1), ray @ (eye - centre), ((eye - centre) ** 2).sum() - 0.25
    square = b**2 - a * c
    to_ball = np.where(square > 0, (-b - np.sqrt(np.maximum(square, 0))) / a, np.inf)
    hit = np.where(to_ball < to_cube, BALL, CUBE)
    return np.where(np.minimum(to_ball, to_cube) < np.inf, hit, SKY)


def test_the_last_picture_of_an_episode_is_of_the_fallen_ball():
    env = Visual3DBall()
    env.reset()
    env.ball[POSITION, :, 2] = [3.5, 3.0, 0.0]
    hold(env)
    _, terminals = env.get_steps(NAME)
    assert (terminals.agent_id.tolist(), terminals.reward.tolist()) == ([2], [-1.0])
    columns = np.argwhere(is_colour(terminals.obs[0][:, 9:], BALL_COLOUR))[:, 2]
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
        sizes.append(is_colour(env.observe(np.arange(8))[0][:, 9:], BALL_COLOUR).sum())
    assert 3.6 < sizes[1] / sizes[0] < 4.4
