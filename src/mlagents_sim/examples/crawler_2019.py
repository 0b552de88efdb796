"""Crawlers of 2019, which run to a target as fast as they can."""

import numpy as np

from mlagents_envs.base_env import ActionSpec, BehaviorSpec, FloatArray, ObservationSpec
from mlagents_sim.articulated.rotations import Array, conjugate, cross, dot, normalized, rotate
from mlagents_sim.creatures import LOOK_DOWN_M, Y
from mlagents_sim.examples.crawler import BODY, CRAWLER, LIMBS, STRENGTH_OF, Crawler
from mlagents_sim.examples.creature_variants import FAR_AHEAD_M
from mlagents_sim.world import Agents

LEG_KG = 3.0
CRAWLER_2019 = CRAWLER._replace(
    bodies=[
        body._replace(mass=LEG_KG) if body.name.startswith("leg") else body
        for body in CRAWLER.bodies
    ],
    damper=3000.0,
    max_force=10000.0,
)
JOINT_OF = np.array([[j.child for j in CRAWLER.joints].index(b.name) for b in CRAWLER.bodies[1:]])
"""Joint of each limb."""
SPEED_REWARD, FACING_REWARD = 0.03, 0.01
UP = np.array([0.0, 1.0, 0.0])


class CrawlerDynamicTarget(Crawler):
    """Ten crawlers of 2019 that run to targets as fast as they can.

    Observations: 126 numbers. Height of the body above the ground, in m, at most 10 (1); the body's
        forward and upward directions in a frame that looks at the target (3, 3); then of body, leg
        0, foreleg 0, leg 1 and so on: whether it touches the ground (1), velocity and angular
        velocity in that frame (3, 3), and, except of the body, position in the frame of the body
        (3), targets of its joint about x, y and z, from 0 to 1 (3), and its strength (1).
    Actions: 20 continuous, as in Crawler.
    Decisions: every 5 steps of 0.01333 s.
    Reward: per step, 0.03 times the body's speed toward the target in m/s, plus 0.01 times the
        cosine of the angle between its forward direction and the target; +1 for touching the
        target; -1 for a fall.
    Ends: when the body or a leg touches the ground; forelegs may.
    Interrupts: after 5000 steps, that is 1000 decisions.
    Start: all legs stretched out, at a random turn. A target that is touched appears elsewhere
        within 40 m of the center.
    Parameters: `gravity` 14.715 m/s2.
    A good policy reaches 400.

    The frame looks at the target in all directions, up and down included. Targets about locked axes
    are 0.
    """

    behavior_name = "CrawlerDynamicTarget?team=0"
    behavior_spec = BehaviorSpec(
        [ObservationSpec.vector(126, "VectorSensor_size126")], ActionSpec.create_continuous(20)
    )
    creature = CRAWLER_2019
    touch_reward = 1.0

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return the observation that the class describes."""
        bodies, n = self.creatures, self.n_agents
        ahead = self._to_target()
        right = normalized(cross(np.broadcast_to(UP, ahead.shape), ahead))
        axes = np.stack([right, cross(ahead, right), ahead], axis=1)  # (N, 3 axes, 3)

        def seen(vectors: Array) -> Array:
            result: Array = np.einsum("nki,n...i->n...k", axes, vectors)
            return result

        up = rotate(bodies.rotation[:, BODY], np.broadcast_to(UP, ahead.shape))
        above = bodies.position[:, BODY, Y] - self.creature.ground_height
        sees_ground = (above >= 0.0) & (above < LOOK_DOWN_M)
        parts = [
            np.where(sees_ground, above, LOOK_DOWN_M)[:, None],
            seen(self.forward(BODY)),
            seen(up),
        ]
        each = np.concatenate(
            [bodies.touching[..., None], seen(bodies.velocity), seen(bodies.spin)], axis=-1
        )  # (N, 9, 7)
        away = bodies.position[:, LIMBS] - bodies.position[:, BODY, None]
        turn = np.broadcast_to(conjugate(bodies.rotation[:, BODY])[:, None], (n, len(LIMBS), 4))
        limbs = np.concatenate(
            [
                each[:, LIMBS],
                rotate(turn, away),
                self._targets()[:, JOINT_OF],
                self.given_strength[:, STRENGTH_OF, None],
            ],
            axis=-1,
        )  # (N, 8, 14)
        parts += [each[:, BODY], limbs.reshape(n, -1)]
        return [np.concatenate(parts, axis=1, dtype=np.float32)[agents]]

    def judge(self) -> Array:
        """Return how fast the bodies come nearer and how well they look at the target."""
        ahead = self._to_target()
        speed = dot(self.creatures.velocity[:, BODY], ahead)
        reward: Array = SPEED_REWARD * speed + FACING_REWARD * dot(self.forward(BODY), ahead)
        return reward

    def _to_target(self) -> Array:
        """Return (N, 3) directions from the bodies to the targets."""
        return normalized(self.target - self.creatures.position[:, BODY])

    def _targets(self) -> Array:
        """Return (N, J, 3) targets of the joints, 0 to 1 from their lowest to highest angle."""
        parts = np.zeros_like(self._degrees)
        for index, joint in enumerate(self.creature.joints):
            for axis, (low, high) in enumerate(
                [joint.x or (0.0, 0.0), (-joint.y, joint.y), (-joint.z, joint.z)]
            ):
                if low < high:
                    angle = self._degrees[:, index, axis]
                    parts[:, index, axis] = (angle - low) / (high - low)
        return parts


class CrawlerStaticTarget(CrawlerDynamicTarget):
    """Ten crawlers of 2019 that run to a target that stays far ahead, as fast as they can.

    Start: all legs stretched out, at a random turn; the target is 1000 m ahead of the center.
    A good policy reaches 2000.

    Observations, actions, decisions, reward, ends, interruptions and parameters are those of
    CrawlerDynamicTarget. The target is as far away as in CrawlerStatic.
    """

    behavior_name = "CrawlerStaticTarget?team=0"
    target_ahead_m = FAR_AHEAD_M
