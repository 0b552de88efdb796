"""Compares a policy's play of Push Block in this world with play recorded in Unity.

Prints the length and reward of episodes, the tags and distances that rays report, and the actions.
The figures are given for all steps, and for the first step of each episode alone, which depends on
the task only. The two policies play differently, so compare only what does not depend on play.

    python benchmarks/recorded_play.py ExpertPushBlock.demo PushBlock.onnx [--episodes 500]
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlagents.playing.tally import Tally
from mlagents.policy import Policy
from mlagents_envs.demonstration_file import read_demonstration
from mlagents_sim.examples.push_block import RAYS, STACKED, PushBlock

SENSORS = "raised", "level"
TAGS = "block", "goal", "wall", "nothing"
ACTIONS = "nothing", "forward", "back", "turn right", "turn left", "left", "right"
LENGTH_M = 12.0
QUANTILES = 0.05, 0.25, 0.5, 0.75, 0.95

Array = NDArray[Any]


class Play(NamedTuple):
    """T decisions in E episodes.

    Attributes:
        rays: Newest frame of each sensor, (T, rays, tags and distance).
        action: (T,) choices.
        is_first: (T,) True for the first decision of an episode.
        length: (E,) number of decisions.
        reward: (E,) sum of rewards.
    """

    rays: list[Array]
    action: Array
    is_first: Array
    length: Array
    reward: Array


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("demonstration", type=Path, help="a .demo file recorded in Unity")
    parser.add_argument("model", type=Path, help="an .onnx file of a trained policy")
    parser.add_argument("--episodes", type=int, default=500, help="episodes of the policy")
    arguments = parser.parse_args()
    plays = recorded(arguments.demonstration), played(arguments.model, arguments.episodes)

    quantiles = "".join(f"{f'{q:.0%}':>8}" for q in QUANTILES)
    print(f"{'':34}{'number':>8}{'mean':>8}{quantiles}")
    for name in ("length", "reward"):
        show(f"{name} of episodes", [getattr(play, name) for play in plays])
    for sensor, of_sensor in enumerate(SENSORS):
        for tag, of_tag in enumerate(TAGS[:-1]):
            show(
                f"m to {of_tag}, {of_sensor}",
                [distances(play.rays[sensor], tag) for play in plays],
            )
            show(
                "  at the start",
                [distances(play.rays[sensor][play.is_first], tag) for play in plays],
            )

    print(f"\n{'share of rays that meet':34}" + "".join(f"{tag:>10}" for tag in TAGS))
    for sensor, of_sensor in enumerate(SENSORS):
        for when in (of_sensor, "  at the start"):
            for who, play in zip(("Unity", "here"), plays, strict=True):
                chosen = play.is_first if when != of_sensor else slice(None)
                shares = play.rays[sensor][chosen][..., : len(TAGS)].mean(axis=(0, 1))
                print(f"{when:26}{who:>8}" + "".join(f"{share:10.3f}" for share in shares))

    print(f"\n{'share of actions':34}" + "".join(f"{action:>11}" for action in ACTIONS))
    for who, play in zip(("Unity", "here"), plays, strict=True):
        shares = np.bincount(play.action, minlength=len(ACTIONS)) / len(play.action)
        print(f"{who:>34}" + "".join(f"{share:11.3f}" for share in shares))


def recorded(path: Path) -> Play:
    """Read play; the record of an episode's end holds the first observation of the next."""
    records = read_demonstration(path).records
    ends = np.flatnonzero(records.done)
    is_decision = ~records.done
    is_decision[ends[-1] :] = False  # of an episode that was broken off
    is_first = np.concatenate([[True], records.done[:-1]])
    return Play(
        [newest(batch[is_decision]) for batch in records.obs],
        records.action.discrete[is_decision, 0],
        is_first[is_decision],
        np.diff(ends, prepend=-1) - 1,
        # A record holds the reward of the previous step; the first of an episode has none.
        np.add.reduceat(
            np.where(is_first, 0.0, records.reward)[: ends[-1] + 1], [0, *ends[:-1] + 1]
        ),
    )


def played(path: Path, n_episodes: int) -> Play:
    """Play the given number of episodes, counted by their beginnings, to their ends."""
    env, policy, tally = PushBlock(seed=1), Policy.load(path, seed=1), Tally(n_episodes)
    rays: list[list[Array]] = [[], []]
    actions, firsts = [], []
    running: set[int] = set()
    env.reset()
    while not tally.is_complete:
        decisions, terminals = env.get_steps(PushBlock.behavior_name)
        tally.observe(decisions, terminals)
        action = policy.act(decisions, terminals)
        running -= set(terminals.agent_id.tolist())
        if not len(decisions):  # only ends
            env.step()
            continue
        for kept, batch in zip(rays, decisions.obs, strict=True):
            kept.append(newest(batch))
        actions.append(action.discrete[:, 0])
        firsts.append(np.array([agent not in running for agent in decisions.agent_id.tolist()]))
        running.update(decisions.agent_id.tolist())
        env.set_actions(PushBlock.behavior_name, action)
        env.step()
    reward, length = np.transpose(tally.episodes)
    return Play(
        [np.concatenate(batches) for batches in rays],
        np.concatenate(actions),
        np.concatenate(firsts).astype(bool),
        length,
        reward,
    )


def newest(batch: Array) -> Array:
    """Turn (T, size) into the last of the stacked frames, (T, rays, tags and distance)."""
    n_rays = RAYS.directions.shape[1]
    frame: Array = batch.reshape(len(batch), STACKED, n_rays, -1)[:, -1]
    return frame


def distances(rays: Array, tag: int) -> Array:
    """Return (n,) distances in m to objects with a tag."""
    meters: Array = rays[rays[..., tag] == 1.0][:, -1] * LENGTH_M
    return meters


def show(name: str, samples: list[Array]) -> None:
    for who, values in zip(("Unity", "here"), samples, strict=True):
        if len(values):
            quantiles = "".join(f"{value:8.2f}" for value in np.quantile(values, QUANTILES))
            print(f"{name:26}{who:>8}{len(values):8}{values.mean():8.2f}{quantiles}")


if __name__ == "__main__":
    main()
