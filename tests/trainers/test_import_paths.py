"""What programs and plug-ins written for ML-Agents import of the trainer, and one use each."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mlagents.trainers
import mlagents_envs
from mlagents.torch_utils import default_device, nn
from mlagents.torch_utils import torch as torch_of_programs
from mlagents.trainers import learn
from mlagents.trainers.buffer import BufferKey, ObservationKeyPrefix
from mlagents.trainers.demo_loader import demo_to_buffer, get_demo_files, load_demonstration
from mlagents.trainers.exception import TrainerConfigError, UnityTrainerException
from mlagents.trainers.settings import RunOptions, TrainerSettings
from mlagents.trainers.settings.load import load_run_options
from mlagents.trainers.settings.typed import CommandLine
from mlagents.trainers.stats import StatsReporter, StatsWriter
from mlagents_envs.base_env import ActionSpec, ActionTuple, BehaviorSpec, ObservationSpec
from mlagents_envs.demonstration_file import DemonstrationRecords, write_demonstration
from mlagents_envs.exception import UnityDemonstrationException
from mlagents_envs.rpc_utils import steps_from_proto


def test_version_device_and_modules() -> None:
    assert mlagents.trainers.__version__ == mlagents_envs.__version__
    assert torch_of_programs is torch and nn is torch.nn
    assert torch.zeros(1, device=default_device()).device.type == default_device().type


def test_what_writers_of_statistics_ask_of_the_options(tmp_path: Path) -> None:
    options = RunOptions.model_validate(
        {
            "behaviors": {"A": {"trainer_type": "sac"}},
            "checkpoint_settings": {"run_id": "first", "results_dir": str(tmp_path)},
        }
    )
    assert isinstance(options.behaviors["A"], TrainerSettings)
    assert options.checkpoint_settings.write_path == str(tmp_path / "first")
    assert options.checkpoint_settings.run_logs_dir == str(tmp_path / "first" / "run_logs")
    assert options.as_dict()["behaviors"]["A"]["trainer_type"] == "sac"


def test_a_writer_of_statistics_as_ml_agents_documents_it(tmp_path: Path) -> None:
    class ToFile(StatsWriter):
        def __init__(self, run_options: RunOptions) -> None:
            self.path = Path(run_options.checkpoint_settings.write_path, "stats.txt")
            self.path.parent.mkdir()

        def write_stats(self, category: str, values: Any, step: int) -> None:
            lines = [f"{name}: {summary.aggregated_value}" for name, summary in values.items()]
            self.path.write_text("\n".join([f"{category} {step}", *lines]))

    options = RunOptions.model_validate({"checkpoint_settings": {"results_dir": str(tmp_path)}})
    reporter = StatsReporter("3DBall", [ToFile(options)])
    reporter.add_stat("Height", 2.0)
    reporter.add_stat("Height", 4.0)
    reporter.write_stats(50)
    assert (tmp_path / "ppo" / "stats.txt").read_text() == "3DBall 50\nHeight: 3.0"


CONFIG = (
    "behaviors: {Basic: {trainer_type: ppo, max_steps: 40, hyperparameters: {buffer_size: 20}}}"
)


@pytest.mark.parametrize("kind", [RunOptions, CommandLine])
def test_a_program_starts_a_run(
    kind: type[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("basic.yaml").write_text(CONFIG)
    command_line = learn.parse_command_line(
        ["basic.yaml", "--env", "Basic", "--run-id", "mine", "--torch-device", "cpu"]
    )
    learn.run_cli(load_run_options(command_line) if kind is RunOptions else command_line)
    assert Path("results/mine/Basic.onnx").exists()
    with pytest.raises(UnityTrainerException, match="contains an earlier run"):
        learn.run_cli(command_line)


def test_a_program_hears_of_settings_that_cannot_be_used(tmp_path: Path) -> None:
    Path(tmp_path / "bad.yaml").write_text("behaviors: {A: {max_steps: -1}}")
    with pytest.raises(TrainerConfigError, match=r"behaviors\.A\.max_steps"):
        learn.run_cli(CommandLine(tmp_path / "bad.yaml", {}))


SPEC = BehaviorSpec(
    [
        ObservationSpec.vector(1, "place"),
        ObservationSpec.image((3, 1, 1), "pixel"),
    ],
    ActionSpec.create_hybrid(1, (3,)),
)
N = 5


@pytest.fixture
def demonstration(tmp_path: Path) -> Path:
    """Write five records: two episodes, of three and two records."""
    n = np.arange(N)
    records = DemonstrationRecords(
        obs=[n[:, None].astype(np.float32), np.full((N, 3, 1, 1), 51, np.uint8)],
        action=ActionTuple(n[:, None].astype(np.float32) / 10, (n % 3)[:, None].astype(np.int32)),
        action_mask=[np.zeros((N, 3), np.bool_)],
        reward=n.astype(np.float32),
        done=n == 2,
        interrupted=np.zeros(N, np.bool_),
        agent_id=np.full(N, 7, np.int32),
        group_id=np.zeros(N, np.int32),
        group_reward=np.zeros(N, np.float32),
    )
    write_demonstration(tmp_path / "expert.demo", "B", SPEC, records)
    return tmp_path / "expert.demo"


def test_a_demonstration_as_messages(demonstration: Path) -> None:
    spec, pairs, total_expected = load_demonstration(str(demonstration))
    assert (len(pairs), total_expected) == (N, N)
    assert spec.action_spec == SPEC.action_spec
    assert list(pairs[2].action_info.discrete_actions) == [2]
    assert list(pairs[3].action_info.continuous_actions) == pytest.approx([0.3])
    decisions, terminals = steps_from_proto([pair.agent_info for pair in pairs], spec)
    assert (len(decisions), len(terminals)) == (4, 1)
    assert terminals.obs[0].tolist() == [[2.0]]


@pytest.mark.parametrize("given", ["file", "folder"])
def test_a_demonstration_as_a_buffer(demonstration: Path, given: str) -> None:
    path = demonstration if given == "file" else demonstration.parent
    spec, buffer = demo_to_buffer(path, sequence_length=1)
    assert spec.observation_specs[1].dtype == np.float32
    assert buffer.num_experiences == 3  # each record but the last of an episode
    place = buffer[ObservationKeyPrefix.OBSERVATION, 0]
    pixel = buffer[ObservationKeyPrefix.OBSERVATION, 1]
    assert place.tolist() == [[0.0], [1.0], [3.0]]
    assert buffer[BufferKey.ENVIRONMENT_REWARDS].tolist() == [1.0, 2.0, 4.0]
    assert buffer[BufferKey.DONE].tolist() == [0.0, 1.0, 1.0]
    assert buffer[BufferKey.DISCRETE_ACTION].shape == (3, 1)
    np.testing.assert_allclose(pixel, 0.2)


def test_sequences_are_filled_up_with_zeros(demonstration: Path) -> None:
    _, buffer = demo_to_buffer(demonstration, sequence_length=2, expected_behavior_spec=SPEC)
    # Two steps fill one sequence, the last step half of another.
    assert buffer[BufferKey.MASKS].tolist() == [1.0, 1.0, 1.0, 0.0]
    assert buffer[BufferKey.ENVIRONMENT_REWARDS].tolist() == [1.0, 2.0, 4.0, 0.0]


def test_a_demonstration_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        load_demonstration(tmp_path / "none.demo")
    with pytest.raises(ValueError, match=r"contains no \.demo file"):
        get_demo_files(tmp_path)
    (tmp_path / "some.txt").write_text("no")
    with pytest.raises(ValueError, match=r"ends in \.demo"):
        demo_to_buffer(tmp_path / "some.txt", 1)
    (tmp_path / "torn.demo").write_bytes(b"\x08\x01")
    with pytest.raises(UnityDemonstrationException, match=r"torn\.demo"):
        load_demonstration(tmp_path)
