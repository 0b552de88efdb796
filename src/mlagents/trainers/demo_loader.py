"""Demonstrations as messages or as a buffer, for existing programs.

New programs should call `mlagents_envs.demonstration_file.read_demonstration`, which returns
arrays.
"""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlagents.trainers.buffer import AgentBuffer, BufferKey, ObservationKeyPrefix
from mlagents.trainers.data.demonstrations import demonstrated_spec, load_demonstrations
from mlagents_envs.base_env import BehaviorSpec, as_floats
from mlagents_envs.demonstration_file import SUFFIX, read_demonstration_messages
from mlagents_envs.exception import UnityDemonstrationException
from mlagents_envs.rpc_utils import behavior_spec_from_proto


def get_demo_files(path: str | PathLike[str]) -> list[str]:
    """Return the path itself, or the demonstrations in a folder, sorted by name.

    Raises:
        FileNotFoundError: There is no such file or folder.
        ValueError: The path does not end in `.demo`, or the folder contains no such file.
    """
    where = Path(path)
    if where.is_dir():
        files = sorted(str(file) for file in where.glob(f"*{SUFFIX}"))
        if not files:
            raise ValueError(f"{where}: the folder contains no {SUFFIX} file")
        return files
    if not where.is_file():
        raise FileNotFoundError(f"{where}: no such file or folder")
    if where.suffix != SUFFIX:
        raise ValueError(f"{where}: expected a file name that ends in {SUFFIX}")
    return [str(where)]


def load_demonstration(file_path: str | PathLike[str]) -> tuple[BehaviorSpec, list[Any], int]:
    """Read a demonstration, or all demonstrations in a folder, as messages.

    Returns:
        The specification of the behavior, one `AgentInfoActionPairProto` per record, and the number
        of records according to the files' metadata. `mlagents_envs.rpc_utils.steps_from_proto`
        converts the `agent_info` of pairs to steps.

    Raises:
        FileNotFoundError, ValueError: See `get_demo_files`.
        UnityDemonstrationException: A file cannot be read or contains no records.
    """
    spec: BehaviorSpec | None = None
    pairs: list[Any] = []
    total_expected = 0
    for file in get_demo_files(file_path):
        announcement, of_file, expected = read_demonstration_messages(file)
        if not of_file:
            raise UnityDemonstrationException(f"{file}: the demonstration contains no records")
        if spec is None:
            spec = behavior_spec_from_proto(announcement, of_file[0].agent_info)
        pairs += of_file
        total_expected += expected
    assert spec is not None
    return spec, pairs, total_expected


def demo_to_buffer(
    file_path: str | PathLike[str],
    sequence_length: int,
    expected_behavior_spec: BehaviorSpec | None = None,
) -> tuple[BehaviorSpec, AgentBuffer]:
    """Read a demonstration, or all demonstrations in a folder, as steps of experience.

    Row t contains the observations and the action of step t, and the reward and the end that
    followed.

    Args:
        file_path: A `.demo` file, or a folder of `.demo` files.
        sequence_length: Number of steps in a sequence. Every episode is padded with zeros to whole
            sequences, and `BufferKey.MASKS` is 0 at padding.
        expected_behavior_spec: Expected observations and actions; None to accept any.

    Raises:
        FileNotFoundError, ValueError: See `get_demo_files`.
        UnityTrainerException: A file cannot be read, or does not fit the specification.
    """
    get_demo_files(file_path)
    spec = expected_behavior_spec or demonstrated_spec(Path(file_path))
    steps = load_demonstrations(Path(file_path), spec)
    is_step = np.concatenate(
        [np.arange(-(-n // sequence_length) * sequence_length) < n for n in steps.length.tolist()]
    )

    def padded(column: NDArray[Any]) -> NDArray[Any]:
        filled = np.zeros((len(is_step), *column.shape[1:]), column.dtype)
        filled[is_step] = column
        return filled

    is_last = np.zeros(steps.n_steps, np.float32)
    is_last[np.cumsum(steps.length) - 1] = 1.0
    buffer = AgentBuffer(
        {
            BufferKey.CONTINUOUS_ACTION: padded(steps.continuous),
            BufferKey.DISCRETE_ACTION: padded(steps.discrete),
            BufferKey.ENVIRONMENT_REWARDS: padded(steps.reward),
            BufferKey.DONE: padded(is_last),
            BufferKey.MASKS: is_step.astype(np.float32),
        }
    )
    for index, observation in enumerate(steps.obs):
        buffer[ObservationKeyPrefix.OBSERVATION, index] = padded(as_floats(observation))
    floats = [observation._replace(dtype=np.dtype("f4")) for observation in spec.observation_specs]
    return spec._replace(observation_specs=floats), buffer
