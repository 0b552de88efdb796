"""How fast the worlds step in this process: agent-steps per second and time per decision.

    python benchmarks/worlds.py

An agent-step is one decision of one agent. Actions are drawn beforehand; what is measured is
`set_actions`, `step` and `get_steps`. 3DBall is also played by a policy that balances the balls,
since balls that stay on their cubes touch them all the time.
"""

import itertools
import time
from collections.abc import Callable

import numpy as np

from mlagents_envs.base_env import ActionTuple, BaseEnv, DecisionSteps
from mlagents_sim.catalog import CATALOG

WARM_UP_S, MEASURED_S = 0.5, 2.0
AREAS = (1, 8)

Policy = Callable[[DecisionSteps], ActionTuple]


def random_policy(env: BaseEnv) -> Policy:
    (spec,) = env.behavior_specs.values()
    rng = np.random.default_rng(0)
    n = 1000
    actions: dict[int, itertools.cycle[ActionTuple]] = {}

    def policy(decisions: DecisionSteps) -> ActionTuple:
        n_agents = len(decisions)
        if n_agents not in actions:
            drawn = [spec.action_spec.random_action(n_agents, rng) for _ in range(n)]
            actions[n_agents] = itertools.cycle(drawn)
        return next(actions[n_agents])

    return policy


def balancing_policy(env: BaseEnv) -> Policy:
    def policy(decisions: DecisionSteps) -> ActionTuple:
        tilt_z, tilt_x, x, _, z, v_x, _, v_z = decisions.obs[0].T
        wanted_z, wanted_x = 0.06 * x + 0.12 * v_x, -(0.06 * z + 0.12 * v_z)
        return ActionTuple(12.0 * np.stack([wanted_z - tilt_z, wanted_x - tilt_x], axis=1))

    return policy


def measure(env: BaseEnv, policy: Policy) -> tuple[float, float]:
    """Return agent-steps per second and microseconds per decision of all agents."""
    (name,) = env.behavior_specs
    env.reset()
    started = time.perf_counter()
    agent_steps = decisions = 0
    spent = 0.0
    is_warm = False
    while (elapsed := time.perf_counter() - started) < WARM_UP_S + MEASURED_S:
        if not is_warm and elapsed > WARM_UP_S:
            is_warm, agent_steps, decisions, spent = True, 0, 0, 0.0
        batch, _ = env.get_steps(name)
        action = policy(batch) if len(batch) else None
        begun = time.perf_counter()
        if action is not None:
            env.set_actions(name, action)
        env.step()
        batch, _ = env.get_steps(name)
        spent += time.perf_counter() - begun
        agent_steps += len(batch)
        decisions += len(batch) > 0
    return agent_steps / spent, 1e6 * spent / decisions


def main() -> None:
    print(f"{'world':<10} {'policy':<10} {'areas':>5} {'agent-steps/s':>14} {'us/decision':>12}")
    runs = [(name, random_policy) for name in CATALOG] + [("3DBall", balancing_policy)]
    for (name, make_policy), num_areas in itertools.product(runs, AREAS):
        env = CATALOG[name].make(num_areas=num_areas)
        rate, microseconds = measure(env, make_policy(env))
        kind = make_policy.__name__.removesuffix("_policy")
        print(f"{name:<10} {kind:<10} {num_areas:>5} {rate:>14,.0f} {microseconds:>12.0f}")


if __name__ == "__main__":
    main()
