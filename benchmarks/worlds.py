"""Speed of the worlds in this process: agent-steps per second and time per decision.

    python benchmarks/worlds.py

An agent-step is one decision of one agent. Every world is measured in its own scene, and with as
many areas as about 64 and 1024 agents need. Actions are drawn beforehand. Only `set_actions`,
`step` and `get_steps` are measured, in processor seconds, to reduce the effect of other programs.
3DBall is also played by a policy that balances the balls, because balls that stay on their cubes
touch them all the time. Images stay bytes, as in training.
"""

import math
import time
from collections.abc import Callable

import numpy as np

from mlagents_envs.base_env import ActionTuple, BaseEnv, DecisionSteps
from mlagents_sim.catalog import CATALOG

WARM_UP_S, MEASURED_S = 0.25, 0.75
MORE_AGENTS = (64, 1024)
N_DRAWN = 2**16

Policy = Callable[[DecisionSteps], ActionTuple]
"""Function that acts for all behaviors of a world, whose specs are equal."""


def random_policy(env: BaseEnv) -> Policy:
    spec = next(iter(env.behavior_specs.values()))
    drawn = spec.action_spec.random_action(N_DRAWN, np.random.default_rng(0))
    at = 0

    def policy(decisions: DecisionSteps) -> ActionTuple:
        nonlocal at
        if at + len(decisions) > N_DRAWN:
            at = 0
        rows = slice(at, at + len(decisions))
        at = rows.stop
        return ActionTuple(drawn.continuous[rows], drawn.discrete[rows])

    return policy


def balancing_policy(env: BaseEnv) -> Policy:
    def policy(decisions: DecisionSteps) -> ActionTuple:
        tilt_z, tilt_x, x, _, z, v_x, _, v_z = decisions.obs[0].T
        wanted_z, wanted_x = 0.06 * x + 0.12 * v_x, -(0.06 * z + 0.12 * v_z)
        return ActionTuple(12.0 * np.stack([wanted_z - tilt_z, wanted_x - tilt_x], axis=1))

    return policy


def measure(env: BaseEnv, policy: Policy) -> tuple[float, float]:
    """Return agent-steps per second and microseconds per decision of all agents."""
    names = list(env.behavior_specs)
    env.reset()
    started = time.process_time()
    agent_steps = decisions = 0
    spent = 0.0
    is_warm = False
    while (elapsed := time.process_time() - started) < WARM_UP_S + MEASURED_S:
        if not is_warm and elapsed > WARM_UP_S:
            is_warm, agent_steps, decisions, spent = True, 0, 0, 0.0
        batches = {name: env.get_steps(name)[0] for name in names}
        actions = {name: policy(batch) for name, batch in batches.items() if len(batch)}
        begun = time.process_time()
        for name, action in actions.items():
            env.set_actions(name, action)
        env.step()
        asking = sum(len(env.get_steps(name)[0]) for name in names)
        spent += time.process_time() - begun
        agent_steps += asking
        decisions += asking > 0
    return agent_steps / spent, 1e6 * spent / decisions


def main() -> None:
    print(f"{'world':<22} {'policy':<10} {'agents':>6} {'agent-steps/s':>14} {'us/decision':>12}")
    runs = [(name, random_policy) for name in CATALOG] + [("3DBall", balancing_policy)]
    for name, make_policy in runs:
        kind = make_policy.__name__.removesuffix("_policy")
        scene = CATALOG[name].make()
        numbers = [math.ceil(more / agents_of(scene)) for more in MORE_AGENTS]
        for n_areas in (1, *numbers):
            env = CATALOG[name].make(num_areas=n_areas, keep_8_bit_images=True)
            rate, microseconds = measure(env, make_policy(env))
            print(f"{name:<22} {kind:<10} {agents_of(env):>6} {rate:>14,.0f} {microseconds:>12.0f}")


def agents_of(env: BaseEnv) -> int:
    env.reset()
    return sum(len(env.get_steps(name)[0]) for name in env.behavior_specs)


if __name__ == "__main__":
    main()
