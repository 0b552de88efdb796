"""Behaviors of vectors, and actors for them whose every weight counts."""

import math

import numpy as np
import torch
from numpy.typing import NDArray

from mlagents.trainers.networks.actor_critic import Actor
from mlagents.trainers.settings.behavior import NetworkSettings
from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec


def behavior(*sizes: int, continuous: int = 0, branches: tuple[int, ...] = ()) -> BehaviorSpec:
    """Make a behavior that observes vectors of these sizes."""
    observations = [ObservationSpec.vector(size, f"vector_{i}") for i, size in enumerate(sizes)]
    return BehaviorSpec(observations, ActionSpec(continuous, branches))


CONTINUOUS = behavior(8, continuous=2)
DISCRETE = behavior(8, branches=(3, 2))
HYBRID = behavior(4, 1, 3, continuous=3, branches=(5, 1, 2))
BEHAVIORS = {"continuous": CONTINUOUS, "discrete": DISCRETE, "hybrid": HYBRID}


def make_actor(
    spec: BehaviorSpec, *, normalize: bool = False, num_layers: int = 2, seed: int = 0
) -> Actor:
    """Make a small actor with random weights, biases, deviations and statistics.

    As a new actor has them, biases and log-deviations of zero and means near zero would hide most
    mistakes.
    """
    settings = NetworkSettings(normalize=normalize, num_layers=num_layers, hidden_units=16)
    actor = Actor(spec, settings)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter.normal_(std=1 / math.sqrt(parameter.shape[-1]), generator=generator)
        if normalize:
            for _ in range(2):
                actor.body.observations.update_normalization(
                    [
                        torch.randn(20, o.shape[0], generator=generator) * 2 + 1
                        for o in spec.observation_specs
                    ]
                )
    return actor


def observations(
    spec: BehaviorSpec, n_agents: int, rng: np.random.Generator
) -> list[NDArray[np.float32]]:
    """Draw what `n_agents` observe."""
    return [
        rng.normal(0.5, 1.5, (n_agents, *o.shape)).astype(np.float32)
        for o in spec.observation_specs
    ]


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
    actor: Actor, obs: list[NDArray[np.float32]]
) -> tuple[NDArray[np.float32] | None, NDArray[np.float32] | None]:
    """Ask torch for means (N, A) and logits (N, sum of branches), None for a kind that is not."""
    encoding = actor.body([torch.from_numpy(batch) for batch in obs])
    heads = (actor.heads.mean, actor.heads.logits)
    mean, logits = (None if head is None else head(encoding).numpy() for head in heads)
    return mean, logits
