"""Demonstrations as Minari datasets, and back.

    to_minari("expert.demo", "ball/expert-v0")
    from_minari("D4RL/door/human-v2", "door.demo")

Minari keeps datasets of offline reinforcement learning in one format, which many libraries read.
The environment variable `MINARI_DATASETS_PATH` names the folder of the datasets.
"""

import os
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from mlagents_envs.base_env import ActionSpec, ActionTuple, BehaviorName, BehaviorSpec
from mlagents_envs.demonstration_file import DemonstrationWriter, read_demonstration
from mlagents_envs.demonstration_records import DemonstrationRecords
from mlagents_envs.envs.extras import needs
from mlagents_envs.envs.foreign_spaces import ForeignObservations
from mlagents_envs.envs.spaces import UnityGymException, action_space, observation_space
from mlagents_envs.exception import UnityDemonstrationException

if TYPE_CHECKING:
    from minari import MinariDataset


def to_minari(path: str | os.PathLike[str], dataset_id: str, **description: Any) -> "MinariDataset":
    """Write the episodes of a `.demo` file into a new Minari dataset.

    One observation is a `Box`, several are a `Tuple` of them. Actions are as in
    `UnityToGymWrapper`. Rewards include those of the agent's group. Action masks are not kept.

    Args:
        path: Path of the demonstration.
        dataset_id: Id of the dataset, such as `ball/expert-v0`.
        **description: Further arguments of `minari.create_dataset_from_buffers`, such as `author`.

    Raises:
        UnityDemonstrationException: The file is not a demonstration, or none of its episodes has a
            step.
        ModuleNotFoundError: A package of the extra `minari` is missing.
    """
    with needs("minari", extra="minari"):
        import minari
        from minari.data_collector import EpisodeBuffer
    demonstration = read_demonstration(path, keep_8_bit_images=True)
    spec, records = demonstration.spec, demonstration.records
    buffers: list[Any] = []
    for rows in demonstration.records.episodes():
        if len(rows) < 2:
            continue
        end = rows[-1]
        reward = (records.reward + records.group_reward)[rows[1:]]
        is_last = np.arange(len(reward)) == len(reward) - 1
        terminated = bool(records.done[end] and not records.interrupted[end])
        obs = [each[rows] for each in records.obs]
        buffers.append(
            EpisodeBuffer(
                id=len(buffers),
                observations=obs[0] if len(obs) == 1 else tuple(obs),
                actions=_taken(spec.action_spec, records.action, rows[:-1]),
                rewards=reward.tolist(),
                terminations=(is_last & terminated).tolist(),
                truncations=(is_last & (not terminated)).tolist(),
            )
        )
    if not buffers:
        raise UnityDemonstrationException(f"{path}: no episode has a step to export")
    seen = [
        observation_space(each, uint8_visual=array.dtype == np.uint8)
        for each, array in zip(spec.observation_specs, records.obs, strict=True)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # one for each description left out
        return minari.create_dataset_from_buffers(
            dataset_id,
            buffers,
            observation_space=seen[0] if len(seen) == 1 else spaces.Tuple(seen),
            action_space=action_space(spec.action_spec),
            **{"algorithm_name": demonstration.metadata.name} | description,
        )


def from_minari(
    dataset_id: str, path: str | os.PathLike[str], *, behavior_name: BehaviorName = "Minari?team=0"
) -> None:
    """Write the episodes of a Minari dataset into a `.demo` file.

    Continuous actions are scaled from their bounds to -1 to 1.

    Args:
        dataset_id: Id of the dataset, which Minari has on this machine.
        path: Path of the file; it ends in `.demo`.
        behavior_name: Behavior of the recorded agents.

    Raises:
        UnityGymException: The spaces of the dataset have no counterpart.
        FileNotFoundError: There is no such dataset here.
        ModuleNotFoundError: A package of the extra `minari` is missing.
    """
    with needs("minari", extra="minari"):
        import minari
    dataset = minari.load_dataset(dataset_id)
    observed = ForeignObservations(dataset.observation_space)
    acted = action_spec_of(dataset.action_space)
    spec = BehaviorSpec(observed.specs, acted)
    with DemonstrationWriter(path, behavior_name, spec) as writer:
        for episode in dataset.iterate_episodes():
            n = len(episode.rewards) + 1
            obs = observed.encode(episode.observations, np.arange(n))
            is_last = np.arange(n) == n - 1
            zero = np.zeros(n, np.float32)
            writer.append(
                DemonstrationRecords(
                    obs=obs,
                    action=_action_of(dataset.action_space, acted, episode.actions),
                    action_mask=[np.zeros((n, k), np.bool_) for k in acted.discrete_branches]
                    or None,
                    reward=np.concatenate([zero[:1], np.asarray(episode.rewards, np.float32)]),
                    done=is_last,
                    interrupted=is_last & (not episode.terminations[-1]),
                    agent_id=np.full(n, episode.id, np.int32),
                    group_id=np.zeros(n, np.int32),
                    group_reward=zero,
                )
            )


def action_spec_of(space: Space[Any]) -> ActionSpec:
    """Return the actions of a space, as `to_minari` writes it.

    Raises:
        UnityGymException: The space has no counterpart.
    """
    if isinstance(space, spaces.Dict) and set(space.spaces) == {"continuous", "discrete"}:
        both = [action_spec_of(space[name]) for name in ("continuous", "discrete")]
        return ActionSpec(both[0].continuous_size, both[1].discrete_branches)
    if isinstance(space, spaces.Box) and len(space.shape) == 1 and space.is_bounded():
        return ActionSpec.create_continuous(space.shape[0])
    if isinstance(space, spaces.Discrete):
        return ActionSpec.create_discrete((int(space.n),))
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return ActionSpec.create_discrete(tuple(space.nvec.tolist()))
    raise UnityGymException(
        f"the action space {space} cannot be recorded: expected a bounded Box of one axis, "
        "Discrete, MultiDiscrete, or a Dict of `continuous` and `discrete`"
    )


def _taken(spec: ActionSpec, action: ActionTuple, rows: NDArray[np.intp]) -> Any:
    """Return the actions of some rows as `action_space` has them."""
    continuous = action.continuous[rows].clip(-1.0, 1.0)
    discrete = action.discrete[rows].astype(np.int64)
    if spec.continuous_size and spec.discrete_size:
        return {"continuous": continuous, "discrete": discrete}
    if spec.continuous_size:
        return continuous
    return discrete[:, 0] if spec.discrete_size == 1 else discrete


def _action_of(space: Space[Any], spec: ActionSpec, actions: Any) -> ActionTuple:
    """Return the actions of an episode's T steps, and one without a meaning at its end."""
    both = actions if isinstance(space, spaces.Dict) else {"continuous": actions}
    discrete = both.get("discrete", actions)
    n = len(next(iter(both.values()))) + 1
    action = spec.empty_action(n)
    if spec.continuous_size:
        box = space["continuous"] if isinstance(space, spaces.Dict) else space
        assert isinstance(box, spaces.Box)
        middle, half = (box.high + box.low) / 2.0, (box.high - box.low) / 2.0
        action.continuous[:-1] = (both["continuous"] - middle) / half
    if spec.discrete_size:
        one = space["discrete"] if isinstance(space, spaces.Dict) else space
        start = getattr(one, "start", 0)
        action.discrete[:-1] = (np.asarray(discrete) - start).reshape(n - 1, -1)
    return action
