"""Cost of `UnityVectorEnv` in addition to the world that it steps.

    python benchmarks/vector_env.py

"direct" steps 3DBall as a BaseEnv, in this process: get_steps, set_actions, step, until all agents
ask again. "vector" takes the same decisions through `UnityVectorEnv.step`. Both play the same
random actions from the same seed. Their rounds alternate, so that both run under the same load.
Every figure is the median over the rounds, and so is the ratio of vector to direct in each round.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np

from mlagents_envs.base_env import ActionTuple
from mlagents_envs.envs.unity_vector_env import UnityVectorEnv
from mlagents_envs.registry import default_registry

NAME = "3DBall"
AGENTS_PER_AREA = 12
SEED = 1


def direct(areas: int, actions: np.ndarray) -> Callable[[], None]:
    env = default_registry[NAME].make(num_areas=areas, seed=SEED)
    env.reset()
    (behavior,) = env.behavior_specs

    def play() -> None:
        for action in actions:
            env.set_actions(behavior, ActionTuple(continuous=action))
            env.step()
            decisions, _ = env.get_steps(behavior)
            while not len(decisions):
                env.step()
                decisions, _ = env.get_steps(behavior)

    return play


def vector(areas: int, actions: np.ndarray) -> Callable[[], None]:
    envs = UnityVectorEnv(default_registry[NAME].make(num_areas=areas, seed=SEED))
    envs.reset()

    def play() -> None:
        for action in actions:
            envs.step(action)

    return play


def seconds(play: Callable[[], None]) -> float:
    before = time.perf_counter()
    play()
    return time.perf_counter() - before


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=250, help="decisions per round")
    parser.add_argument("--agents", type=int, nargs="+", default=[12, 96, 384])
    arguments = parser.parse_args()
    rng = np.random.default_rng(SEED)
    print("microseconds per step\nagents  direct  vector  vector / direct")
    for agents in arguments.agents:
        areas = agents // AGENTS_PER_AREA
        actions = rng.uniform(-1, 1, (arguments.steps, areas * AGENTS_PER_AREA, 2))
        actions = actions.astype(np.float32)
        plays = direct(areas, actions), vector(areas, actions)
        for play in plays:
            play()
        times = np.array([[seconds(play) for play in plays] for _ in range(arguments.rounds)])
        one, other = np.median(times, axis=0) / arguments.steps * 1e6
        ratio = np.median(times[:, 1] / times[:, 0])
        print(f"{areas * AGENTS_PER_AREA:6}  {one:6.0f}  {other:6.0f}  {ratio:15.3f}")


if __name__ == "__main__":
    main()
