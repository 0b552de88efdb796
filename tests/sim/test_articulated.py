"""Bodies with joints: by hand, the native library against the reference, against recordings."""

import json
from typing import Any

import numpy as np
import pytest

from mlagents_envs.exception import UnityEnvironmentException
from mlagents_native.articulated import PART
from mlagents_sim.articulated.bodies import STEP_S, Creatures
from mlagents_sim.articulated.creature import (
    Body,
    Box,
    Capsule,
    Creature,
    Joint,
    Model,
    Sphere,
    solving_order,
)
from mlagents_sim.articulated.rotations import (
    conjugate,
    from_axes,
    from_euler,
    multiply,
    rotate,
)
from mlagents_sim.examples.crawler import CRAWLER
from mlagents_sim.examples.walker import WALKER
from mlagents_sim.examples.worm import WORM
from shared_data import ROOT, require

needs_library = pytest.mark.skipif(PART.reason is not None, reason=f"native: {PART.reason}")


def alone(shape: Any, *, mass: float = 2.0, drag: float = 0.0, height: float = 0.0) -> Creature:
    body = Body("body", mass, shape, drag=drag, angular_drag=drag)
    return Creature([body], [], 0.0, 0.0, 0.0, start_height=height)


def arm(
    spring: float,
    damper: float,
    max_force: float,
    mass: float,
    *,
    is_level: bool = False,
    **joint: Any,
) -> Creature:
    """A box that stands on a joint at its lower end, or points ahead from it, in the air."""
    place, turn = ((0.0, 5.0, 0.5), (90.0, 0.0, 0.0)) if is_level else ((0.0, 5.5, 0.0), (0.0,) * 3)
    body = Body("arm", mass, Box((0.1, 0.5, 0.1)), place, turn, drag=0.0)
    held = Joint("arm", "", (0.0, -0.5, 0.0), **joint)
    return Creature([body], [held], spring, damper, max_force, ground_height=-100.0)


def crawlers(n: int, **options: Any) -> Creatures:
    """Crawlers at different heights, with targets of their own, after some steps."""
    rng = np.random.default_rng(3)
    creatures = Creatures(CRAWLER, n, **options)
    creatures.put(slice(None), rng.uniform(0.0, 360.0, n))
    creatures.gravity[:] = 14.715
    creatures.state[..., 1] -= np.linspace(0.0, 1.7, n)[:, None]
    creatures.aim(rng.uniform([-60, -20, 0], [0, 20, 0], (n, 8, 3)))
    creatures.strengthen(rng.uniform(0.0, 1.0, (n, 8)))
    return creatures


# By hand.


def test_a_rotation_by_euler_angles_is_that_of_unity():
    # Quaternion.Euler(90, 90, 0) turns forward down, then the body's right side back.
    q = from_euler([90.0, 90.0, 0.0])
    np.testing.assert_allclose(rotate(q, np.array([0.0, 0.0, 1.0])), [0, -1, 0], atol=1e-15)
    np.testing.assert_allclose(rotate(q, np.array([1.0, 0.0, 0.0])), [0, 0, -1], atol=1e-15)


def test_a_frame_has_the_axes_that_it_is_made_of():
    for x, y in (((1, 0, 0), (0, 0, -1)), ((0, -1, 0), (0, 0, 1)), ((-1, 2, 0.5), (0, 1, 1))):
        q = from_axes(x, y)
        first = np.array(x) / np.linalg.norm(x)
        np.testing.assert_allclose(rotate(q, np.eye(3)[0]), first, atol=1e-12)
        assert rotate(q, np.eye(3)[1]) @ y > 0.0
        assert abs(rotate(q, np.eye(3)[2]) @ y) < 1e-12


def test_joints_are_solved_in_batches_from_the_last_created_to_the_first():
    # Joints 0-1, 1-2, 2-3. From the last: 2-3 begins a batch; 1-2 shares body 2 and begins the
    # next; 0-1 fits beside 2-3.
    assert solving_order([(0, 1), (1, 2), (2, 3)], world=9) == [2, 0, 1]
    assert solving_order([(0, 9), (1, 9)], world=9) == [1, 0]


def test_a_joint_of_a_body_that_does_not_exist_is_refused():
    creature = alone(Sphere(0.5))._replace(joints=[Joint("body", "tail", (0.0, 0.0, 0.0))])
    with pytest.raises(UnityEnvironmentException, match=r"joint of body 'body': .*no body 'tail'"):
        Model(creature)


@pytest.mark.parametrize("use_native", [False, pytest.param(True, marks=needs_library)])
def test_a_body_falls_and_loses_speed_to_drag(use_native: bool):
    falling = Creatures(alone(Sphere(0.5), drag=0.1, height=100.0), 2, use_native=use_native)
    falling.gravity[:] = 10.0, 20.0
    falling.step(0.1)
    # v = (0 - g dt)(1 - drag dt), then x += v dt.
    np.testing.assert_allclose(falling.velocity[:, 0, 1], [-0.99, -1.98], rtol=1e-12)
    np.testing.assert_allclose(falling.position[:, 0, 1], [99.901, 99.802], rtol=1e-12)
    assert not falling.touching.any()


@pytest.mark.parametrize("use_native", [False, pytest.param(True, marks=needs_library)])
@pytest.mark.parametrize(
    ("shape", "height", "times"),
    [
        (Box((0.5, 0.3, 0.5)), 0.3, 2.0),
        (Capsule(0.2, 1.0, axis=(0.0, 0.0, 1.0)), 0.2, 2.0),
        (Capsule(0.2, 1.0), 0.5, 1.0),
    ],
    ids=["box", "lying capsule", "standing capsule"],
)
def test_friction_counts_twice_where_two_points_touch(shape, height, times, use_native):
    sliding = Creatures(alone(shape, height=height), 1, use_native=use_native)
    sliding.state[..., 7] = 3.0
    sliding.step()
    lost = 3.0 - sliding.velocity[0, 0, 0]
    assert lost == pytest.approx(times * 0.6 * 9.81 * STEP_S, rel=1e-6)
    assert sliding.touching.all()


def test_a_box_on_the_ground_stays_where_it_is():
    resting = Creatures(alone(Box((0.5, 0.3, 0.2)), height=0.3), 1)
    for _ in range(200):
        resting.step()
    np.testing.assert_allclose(resting.position[0, 0], [0.0, 0.3, 0.0], atol=2e-3)
    np.testing.assert_allclose(resting.rotation[0, 0], [0, 0, 0, 1], atol=1e-3)


def test_joints_conserve_momentum_and_spin():
    creature = CRAWLER._replace(
        bodies=[body._replace(drag=0.0, angular_drag=0.0) for body in CRAWLER.bodies]
    )
    flying = Creatures(creature, 1)
    flying.gravity[:] = 0.0
    flying.state[..., 1] += 50.0
    flying.aim(np.full((1, 8, 3), [-30.0, 10.0, 0.0]))
    flying.strengthen(np.ones((1, 8)))
    place, rotation = flying.position[0].copy(), flying.rotation[0].copy()
    flying.step()
    assert np.abs(flying.velocity).max() > 0.1  # it moves
    model = flying.model
    momentum = flying.velocity[0] / model.inverse_mass[:-1, None]
    own = rotate(conjugate(rotation), flying.spin[0]) / model.inverse_inertia[:-1]
    spin = np.cross(place, momentum) + rotate(rotation, own)
    np.testing.assert_allclose(momentum.sum(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(spin.sum(axis=0), 0.0, atol=1e-9)


# The native library.


@needs_library
def test_the_native_library_repeats_the_reference_step_by_step():
    native, reference = crawlers(6), crawlers(6, use_native=False)
    assert native.is_native
    assert not reference.is_native
    for _ in range(25):
        native.step()
        reference.step()
        np.testing.assert_allclose(native.state, reference.state, atol=1e-9)
        np.testing.assert_array_equal(native.touching, reference.touching)
        native.state[:] = reference.state  # so that differences do not grow
    assert native.touching.any()


@needs_library
def test_the_native_library_repeats_the_reference_of_cones_boxes_and_touching_bodies():
    def walkers(**options: Any) -> Creatures:
        rng = np.random.default_rng(4)
        creatures = Creatures(WALKER, 3, **options)
        creatures.gravity[:] = 14.715
        creatures.state[1:, :, 7:] = rng.normal(0.0, 3.0, (2, 16, 6))
        creatures.state[2, :, 1] -= 0.1
        creatures.aim(rng.uniform(-60.0, 60.0, (3, 15, 3)))
        creatures.strengthen(rng.uniform(0.0, 1.0, (3, 15)))
        return creatures

    native, reference = walkers(), walkers(use_native=False)
    for _ in range(15):
        native.step()
        reference.step()
        assert np.isfinite(reference.state).all()
        np.testing.assert_allclose(native.state, reference.state, atol=1e-9)
        native.state[:] = reference.state


@needs_library
@pytest.mark.parametrize("threads", [2, 3, 7])
def test_threads_and_neighbors_do_not_change_a_bit(threads: int):
    one, many, half = crawlers(20, threads=1), crawlers(20, threads=threads), crawlers(20)
    for creatures in (one, many):
        for _ in range(30):
            creatures.step()
    np.testing.assert_array_equal(one.state, many.state)
    alone = Creatures(CRAWLER, 3)
    for array, of in ((alone.state, half.state), (alone.target, half.target)):
        array[:] = of[5:8]
    alone.max_force[:], alone.gravity[:] = half.max_force[5:8], half.gravity[5:8]
    for _ in range(30):
        alone.step()
    np.testing.assert_array_equal(alone.state, one.state[5:8])


# Recordings of Unity's engine.


def recording(name: str) -> dict[str, Any]:
    return dict(np.load(require(ROOT / "physics" / f"{name}.npz")))


HINGE = {"axis": (1.0, 0.0, 0.0), "secondary": (0.0, 1.0, 0.0)}


def largest_error(creature: Creature, series: np.ndarray, target: Any, gravity: float) -> float:
    """Return the largest angle, in degrees, between an arm and its recording."""
    held = Creatures(creature, 1)
    held.gravity[:] = gravity
    held.state[0, 0] = series[0]
    held.aim(np.array(target, np.float64).reshape(1, 1, 3))
    held.strengthen(np.ones((1, 1)))
    worst = 0.0
    for state in series[1:]:
        held.step()
        difference = multiply(conjugate(held.rotation[0, 0]), state[3:7].astype(np.float64))
        angle = 2.0 * np.degrees(np.arctan2(np.linalg.norm(difference[:3]), abs(difference[3])))
        worst = max(worst, float(angle))
    return worst


def joint_errors() -> dict[str, list[float]]:
    data = recording("primitives_joints")
    errors: dict[str, list[float]] = {"swings against its limit": []}
    for (*drive, angle, mass), series in zip(
        data["joint_cases"].tolist(), data["joint_step"], strict=True
    ):
        error = largest_error(
            arm(*drive, mass, x=(-170.0, 170.0), **HINGE), series, (angle, 0, 0), 0
        )
        up = rotate(
            series[:, 3:7].astype(np.float64), np.broadcast_to([0.0, 1.0, 0.0], (len(series), 3))
        )
        swings = np.degrees(np.arccos(np.clip(up[:, 1], -1, 1))).max() > 165.0
        errors.setdefault("swings against its limit" if swings else "joint_step", []).append(error)
    for (*drive, angle), series in zip(
        data["joint_gravity_cases"].tolist(), data["joint_gravity"], strict=True
    ):
        creature = arm(*drive, 10.0, is_level=True, x=(-170.0, 170.0), **HINGE)
        errors.setdefault("joint_gravity", []).append(
            largest_error(creature, series, (angle, 0, 0), 14.715)
        )
    for (low, high, angle), series in zip(
        data["joint_limit_cases"].tolist(), data["joint_limit"], strict=True
    ):
        creature = arm(40000.0, 5000.0, 20000.0, 2.0, x=(low, high), **HINGE)
        errors.setdefault("joint_limit", []).append(
            largest_error(creature, series, (angle, 0, 0), 0)
        )
    for target, series in zip(data["joint_3axis_cases"].tolist(), data["joint_3axis"], strict=True):
        creature = arm(
            40000.0,
            5000.0,
            20000.0,
            2.0,
            secondary=(0.0, 0.0, -1.0),
            x=(-60.0, 60.0),
            y=20.0,
            z=15.0,
        )
        errors.setdefault("joint_3axis", []).append(largest_error(creature, series, target, 0))
    return errors


def test_single_joints_turn_as_recorded():
    errors = joint_errors()
    del errors["swings against its limit"]
    every = np.concatenate(list(errors.values()))
    assert np.median(every) < 0.1
    assert every.max() < 0.5


def in_recording(name: str) -> str:
    """Return the name of a body in the recordings."""
    for ours, theirs in (("segment", "BodySeg"), ("forearm", "lower_arm_"), ("hand", "hand_")):
        if name.startswith(ours):
            return theirs + name.removeprefix(ours)
    return f"upper_arm_{name[-1]}" if name in ("armL", "armR") else name


class Replay:
    """A creature put into every recorded state that follows another, and what came next.

    Attributes:
        errors: Distances, in m, from the recorded places: (cases, bodies), after one step and
            after one decision.
        touching: (cases, bodies) ground flags after one step: ours and those recorded.
        free: (cases,) whether nothing touches the ground around that step.
    """

    def __init__(self, creature: Creature, name: str, rows: list[int], every: int = 2) -> None:
        data = recording(f"{name}_random_steps")
        meta = json.loads(str(data["meta"]))
        state, touching = data["state"][:, :, rows].astype(np.float64), data["ground"][:, :, rows]
        n_episodes, n_decisions = data["actions"].shape[:2]
        cases = [(e, d) for e in range(n_episodes) for d in range(1, n_decisions, every)]
        episode, decision = np.array(cases).T
        before = 5 * decision - 1
        creatures = Creatures(creature, len(cases))
        creatures.gravity[:] = meta["gravity"]
        creatures.state[:] = state[episode, before]
        degrees = np.zeros((len(cases), len(creature.joints), 3))
        strength = np.zeros(degrees.shape[:2])
        for joint, about in enumerate(creature.joints):
            name = in_recording(about.child)
            if name in meta["joints"]:
                row = meta["joints"].index(name)
                degrees[:, joint] = data["target_euler_deg"][episode, decision, row]
                force = data["max_force"][episode, decision, row]
                strength[:, joint] = force / meta["max_force"]
        creatures.aim(degrees)
        creatures.strengthen(strength)
        self.errors = []
        for step in range(5):
            creatures.step()
            if step == 0:
                self.touching = [creatures.touching.copy(), touching[episode, before + 1] > 0]
            if step in (0, 4):
                there = state[episode, before + 1 + step][..., :3]
                self.errors.append(np.linalg.norm(creatures.position - there, axis=-1))
        around = touching[episode, before] | touching[episode, before + 1]
        self.free = ~around.any(axis=1)

    def median_cm(self, decision: int, bodies: Any = slice(None)) -> np.ndarray:
        median: np.ndarray = 100.0 * np.median(self.errors[decision][:, bodies], axis=0)
        return median

    @property
    def right_flags(self) -> float:
        ours, recorded = self.touching
        return float(np.mean(ours == recorded))


def test_crawlers_move_as_recorded():
    replay = Replay(CRAWLER, "crawler", list(range(9)))
    assert replay.median_cm(0)[0] < 0.02
    assert replay.median_cm(0)[2::2].max() < 0.02
    assert replay.median_cm(1)[0] < 0.2
    assert replay.median_cm(1)[2::2].max() < 0.4
    assert replay.errors[0][replay.free].max() < 1e-5  # in flight to the precision of the recording
    assert replay.right_flags > 0.95


def test_walkers_move_as_recorded():
    replay = Replay(WALKER, "walker", list(range(16)))
    hips, limbs = 0, [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
    assert replay.median_cm(0)[hips] < 0.05
    assert replay.median_cm(0).max() < 0.2
    assert replay.median_cm(1)[hips] < 0.4
    assert replay.median_cm(1)[limbs].max() < 3.0
    assert replay.right_flags > 0.95


def test_worms_move_as_recorded_while_they_touch_nothing():
    # The recorded mouth was fixed to the world, where it holds no segment.
    without_mouth = WORM._replace(bodies=WORM.bodies[:-1], joints=WORM.joints[:-1])
    replay = Replay(without_mouth, "worm", list(range(6)))
    assert replay.free.sum() > 50
    free = 100.0 * replay.errors[0][replay.free]
    assert np.median(free, axis=0).max() < 0.01
    assert replay.right_flags > 0.95
