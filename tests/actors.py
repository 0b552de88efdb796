"""Behaviors of every kind of observation, and actors for them whose every weight counts."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from mlagents.trainers.fast.compute import PLAIN, Compute
from mlagents.trainers.networks.actor_critic import Actor
from mlagents.trainers.networks.encoders import Kind, kind_of
from mlagents.trainers.settings.behavior import NetworkSettings
from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec, ObservationType

FloatArray = NDArray[np.float32]


def vector(size: int, name: str = "vector") -> ObservationSpec:
    return ObservationSpec.vector(size, name)


def image(channels: int, height: int, width: int, name: str = "image") -> ObservationSpec:
    shape = channels, height, width
    return ObservationSpec(shape, Kind.IMAGE.value, ObservationType.DEFAULT, name)


def image_8_bit(channels: int, height: int, width: int, name: str = "image") -> ObservationSpec:
    return image(channels, height, width, name)._replace(dtype=np.dtype(np.uint8))


def entities(count: int, n_features: int, name: str = "entities") -> ObservationSpec:
    shape = count, n_features
    return ObservationSpec(shape, Kind.ENTITIES.value, ObservationType.DEFAULT, name)


def goal(observation: ObservationSpec) -> ObservationSpec:
    return observation._replace(observation_type=ObservationType.GOAL_SIGNAL, name="goal")


def behavior(
    *observations: int | ObservationSpec, continuous: int = 0, branches: tuple[int, ...] = ()
) -> BehaviorSpec:
    """Make a behavior of these observations; a number is a vector of that size."""
    specs = [
        vector(observation, f"vector_{i}") if isinstance(observation, int) else observation
        for i, observation in enumerate(observations)
    ]
    return BehaviorSpec(specs, ActionSpec(continuous, branches))


CONTINUOUS = behavior(8, continuous=2)
DISCRETE = behavior(8, branches=(3, 2))
HYBRID = behavior(4, 1, 3, continuous=3, branches=(5, 1, 2))
BEHAVIORS = {"continuous": CONTINUOUS, "discrete": DISCRETE, "hybrid": HYBRID}


class Case(NamedTuple):
    """A behavior, and the settings of a network for it."""

    spec: BehaviorSpec
    settings: dict[str, Any] = {}  # noqa: RUF012  # of a tuple, never written to


MEMORY = {"memory": {"memory_size": 12, "sequence_length": 4}}

CASES = {
    "simple": Case(behavior(image(3, 20, 31), continuous=2)),
    "nature_cnn": Case(
        behavior(image(1, 36, 40), branches=(3, 2)), {"vis_encode_type": "nature_cnn"}
    ),
    "resnet": Case(behavior(image(2, 15, 18), continuous=1), {"vis_encode_type": "resnet"}),
    "match3": Case(behavior(image(6, 5, 8), branches=(7,)), {"vis_encode_type": "match3"}),
    "fully_connected": Case(
        behavior(image(3, 1, 4), continuous=2), {"vis_encode_type": "fully_connected"}
    ),
    "vector and two images": Case(
        behavior(5, image(3, 20, 20, "a"), image(1, 24, 20, "b"), continuous=2, branches=(3, 2)),
        {"normalize": True},
    ),
    "entities alone": Case(behavior(entities(5, 4), continuous=2)),
    "entities and vectors": Case(
        behavior(3, entities(5, 4), 2, branches=(4,)), {"normalize": True}
    ),
    "two lists of entities": Case(
        behavior(entities(3, 4, "a"), 3, entities(6, 2, "b"), continuous=2, branches=(3, 2)),
        {"num_layers": 1},
    ),
    "goal": Case(behavior(4, goal(vector(3)), continuous=2), {"normalize": True}),
    "goal, one layer": Case(behavior(4, goal(vector(3)), branches=(3, 2)), {"num_layers": 1}),
    "goal, three layers": Case(behavior(goal(vector(3)), 4, continuous=2), {"num_layers": 3}),
    "goal that is an image": Case(
        behavior(4, goal(image(1, 5, 5)), continuous=2), {"vis_encode_type": "match3"}
    ),
    "goal as an input": Case(
        behavior(4, goal(vector(3)), continuous=2), {"goal_conditioning_type": "none"}
    ),
    "memory": Case(behavior(4, continuous=2), MEMORY),
    "memory, discrete": Case(behavior(4, 2, branches=(3, 2)), {**MEMORY, "normalize": True}),
    "everything": Case(
        behavior(
            *[4, image(3, 15, 15), entities(4, 3), goal(vector(2))],
            continuous=2,
            branches=(3, 2),
        ),
        {**MEMORY, "normalize": True, "vis_encode_type": "resnet"},
    ),
}
"""Every kind of observation, encoder, goal conditioning, memory and action."""


def network_settings(**settings: Any) -> NetworkSettings:
    return NetworkSettings.model_validate({"hidden_units": 16} | settings)


def make_actor(
    spec: BehaviorSpec,
    *,
    seed: int = 0,
    squashed: bool = False,
    compute: Compute = PLAIN,
    **settings: Any,
) -> Actor:
    """Make a small actor with random weights, biases, deviations and statistics.

    As a new actor has them, biases and log-deviations of zero and means near zero would hide most
    mistakes.
    """
    actor = Actor(spec, network_settings(**settings), squashed=squashed, compute=compute)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in actor.parameters():
            fan_in = parameter[0].numel() if parameter.dim() > 1 else len(parameter)
            parameter.normal_(std=1 / math.sqrt(fan_in), generator=generator)
        for _ in range(2):
            actor.body.observations.update_normalization(
                [torch.randn(20, *o.shape, generator=generator) * 2 + 1 for o in spec[0]]
            )
    return actor


def observations(spec: BehaviorSpec, n_agents: int, rng: np.random.Generator) -> list[FloatArray]:
    """Draw what `n_agents` observe; some of them see few entities, or none."""
    drawn = []
    for observation in spec.observation_specs:
        shape = n_agents, *observation.shape
        match kind_of(observation):
            case Kind.IMAGE:
                batch = rng.random(shape, np.float32)
            case Kind.VECTOR:
                batch = rng.normal(0.5, 1.5, shape).astype(np.float32)
            case Kind.ENTITIES:
                batch = rng.normal(0.5, 1.5, shape).astype(np.float32)
                n_entities = rng.integers(observation.shape[0] + 1, size=(n_agents, 1))
                batch[np.arange(observation.shape[0]) >= n_entities] = 0.0
        drawn.append(batch)
    return drawn


def memories(actor: Actor, n_agents: int, rng: np.random.Generator) -> FloatArray:
    """Draw what `n_agents` remember."""
    return rng.uniform(-1, 1, (n_agents, actor.body.memory_size)).astype(np.float32)


def action_mask(spec: BehaviorSpec, n_agents: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Draw which actions are not allowed; of every branch, one at least is."""
    masks = [np.zeros((n_agents, 0), np.bool_)]
    for size in spec.action_spec.discrete_branches:
        mask = rng.random((n_agents, size)) < 0.5
        mask[np.arange(n_agents), rng.integers(size, size=n_agents)] = False
        masks.append(mask)
    return np.concatenate(masks, axis=1)


@torch.no_grad()
def outputs(
    actor: Actor, obs: list[FloatArray], memory: FloatArray | None = None
) -> tuple[FloatArray | None, FloatArray | None, FloatArray]:
    """Ask torch for means (N, A), logits (N, sum of branches) and memory after the step.

    None for a kind of action that is not; without `memory`, an episode begins.
    """
    if memory is None:
        memory = np.zeros((len(obs[0]), actor.body.memory_size), np.float32)
    tensors = [torch.from_numpy(batch) for batch in obs]
    encoding, after = actor.body.step(tensors, torch.from_numpy(memory))
    heads = (actor.heads.mean, actor.heads.logits)
    mean, logits = (None if head is None else head(encoding).numpy() for head in heads)
    return mean, logits, after.numpy()
