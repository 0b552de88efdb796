"""Plays worlds: with random actions, with a function, with a policy trained in Unity."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from mlagents_envs.base_env import ActionTuple, DecisionSteps
from mlagents_sim.world import World

Policy = Callable[[DecisionSteps], ActionTuple]


class Episodes(NamedTuple):
    """Of every episode in the order of their ends: its sum of rewards and number of decisions."""

    returns: NDArray[np.float64]
    decisions: NDArray[np.int64]


def play(env: World, policy: Policy, *, episodes: int, max_steps: int = 100_000) -> Episodes:
    """Play until so many episodes have ended; raise if that takes more steps."""
    name = env.behavior_name
    running: dict[int, list[float]] = {}
    ended: list[list[float]] = []
    env.reset()
    for _ in range(max_steps):
        decisions, terminals = env.get_steps(name)
        for agent, reward in zip(terminals.agent_id.tolist(), terminals.reward, strict=True):
            ended.append([*running.pop(agent, []), reward])
        for agent, reward in zip(decisions.agent_id.tolist(), decisions.reward, strict=True):
            running.setdefault(agent, []).append(reward)
        if len(ended) >= episodes:
            break
        if len(decisions):
            env.set_actions(name, policy(decisions))
        env.step()
    else:
        raise AssertionError(f"{len(ended)} of {episodes} episodes ended in {max_steps} steps")
    return Episodes(
        np.array([sum(rewards) for rewards in ended]), np.array([len(r) - 1 for r in ended])
    )


def at_random(env: World, seed: int = 0) -> Policy:
    """Make a policy that draws its actions."""
    rng = np.random.default_rng(seed)
    spec = env.behavior_spec.action_spec
    return lambda decisions: spec.random_action(len(decisions), rng)


def of_unity(path: Path) -> Policy:
    """Make a policy of discrete actions from a file that Unity could run."""
    onnxruntime = pytest.importorskip("onnxruntime")
    onnxruntime.set_seed(1)
    session = onnxruntime.InferenceSession(path)

    def policy(decisions: DecisionSteps) -> ActionTuple:
        allowed = np.concatenate(decisions.action_mask, axis=1)
        inputs = {f"obs_{i}": batch for i, batch in enumerate(decisions.obs)}
        inputs["action_masks"] = 1.0 - allowed.astype(np.float32)
        (actions,) = session.run(["discrete_actions"], inputs)
        return ActionTuple(discrete=actions)

    return policy


def set_discrete(env: World, *choices: int) -> None:
    """Let every agent do the same for one decision."""
    action = np.tile(choices, (env.n_agents, 1))
    env.set_actions(env.behavior_name, ActionTuple(discrete=action))
    env.step()
