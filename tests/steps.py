"""Random steps, segments and demonstrations of a behavior, for what learns from them."""

import numpy as np
import torch
from numpy.typing import NDArray

from actors import observations
from mlagents.trainers.algorithms.transitions import Transitions
from mlagents.trainers.data.demonstrations import Demonstrations
from mlagents.trainers.data.segments import Segments
from mlagents_envs.base_env import BehaviorSpec


def make_transitions(spec: BehaviorSpec, n_steps: int, rng: np.random.Generator) -> Transitions:
    actions = spec.action_spec
    return Transitions(
        [torch.from_numpy(batch) for batch in observations(spec, n_steps, rng)],
        [torch.from_numpy(batch) for batch in observations(spec, n_steps, rng)],
        torch.from_numpy(rng.uniform(-1, 1, (n_steps, actions.continuous_size)).astype("f4")),
        torch.from_numpy(
            rng.integers(0, actions.discrete_branches, (n_steps, actions.discrete_size))
        ),
        torch.from_numpy(rng.normal(size=n_steps).astype("f4")),
        torch.from_numpy(rng.random(n_steps) < 0.2),
    )


def make_segments(spec: BehaviorSpec, length: list[int], rng: np.random.Generator) -> Segments:
    """Make segments of which the first was terminated, the second interrupted, the others cut."""
    n_steps, n_segments, actions = sum(length), len(length), spec.action_spec
    order = np.arange(n_segments)
    return Segments(
        obs=observations(spec, n_steps, rng),
        continuous=2 * rng.normal(size=(n_steps, actions.continuous_size)).astype("f4"),
        discrete=rng.integers(
            0, actions.discrete_branches, (n_steps, actions.discrete_size), dtype=np.int32
        ),
        log_probs=np.full(
            (n_steps, actions.continuous_size + actions.discrete_size), -1.0, np.float32
        ),
        action_mask=np.zeros((n_steps, sum(actions.discrete_branches)), np.bool_),
        memory=np.zeros((n_segments, 0), np.float32),
        reward=rng.normal(size=n_steps).astype("f4"),
        group_reward=rng.normal(size=n_steps).astype("f4"),
        length=np.array(length),
        last_obs=observations(spec, n_segments, rng),
        last_memory=np.zeros((n_segments, 0), np.float32),
        terminated=order == 0,
        interrupted=order == 1,
        episode=order,
    )


def make_demonstrations(
    spec: BehaviorSpec, length: list[int], rng: np.random.Generator
) -> Demonstrations:
    n_steps = sum(length)
    steps = make_transitions(spec, n_steps, rng)
    return Demonstrations(
        obs=[batch.numpy() for batch in steps.obs],
        continuous=steps.continuous.numpy(),
        discrete=steps.discrete.numpy().astype(np.int32),
        reward=steps.reward.numpy(),
        terminated=steps.terminated.numpy(),
        length=np.array(length),
    )


def weights(module: torch.nn.Module) -> dict[str, NDArray[np.float64]]:
    return {name: p.detach().double().numpy().copy() for name, p in module.named_parameters()}


def swish(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return x / (1 + np.exp(-x))


def layer(
    w: dict[str, NDArray[np.float64]], name: str, x: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Apply the linear layer `name`."""
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]
