"""Settings beyond the memory of the machine are refused by their key."""

from pathlib import Path

import numpy as np
import pytest

from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.run import memory
from mlagents.trainers.run.memory import bytes_per_step, in_bytes, memory_bytes, require_memory
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec

# A step is 3 numbers of 4 bytes, an image of 60, a choice of 2, an action of each kind with its
# log probability, and two rewards: 12 + 60 + 2 + 4 * (2 * 2 + 2) = 98 bytes.
SPEC = BehaviorSpec(
    [ObservationSpec.vector(3, "state"), ObservationSpec.image((3, 4, 5), "camera", np.uint8)],
    ActionSpec.create_hybrid(1, (2,)),
)
GIGABYTE = 10**9


@pytest.fixture(autouse=True)
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "memory_bytes", lambda: GIGABYTE)


def test_a_step_by_hand() -> None:
    assert bytes_per_step(SPEC, BehaviorSettings().network_settings) == 98


def behavior(**written: object) -> BehaviorSettings:
    return BehaviorSettings.model_validate(written)


def test_what_fits_is_accepted() -> None:
    require_memory("A", SPEC, BehaviorSettings())
    fits = GIGABYTE // 98
    require_memory("A", SPEC, behavior(trainer_type="ppo", hyperparameters={"buffer_size": fits}))


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (
            {"trainer_type": "ppo", "hyperparameters": {"buffer_size": 10_204_082}},
            r"^behaviors\.A\.hyperparameters\.buffer_size: 10204082 needs at least 1\.0 GB",
        ),
        (
            {"trainer_type": "sac", "hyperparameters": {"buffer_size": 10**15}},
            r"^behaviors\.A\.hyperparameters\.buffer_size: .* 98,000\.0 TB",
        ),
        ({"time_horizon": 10**9}, r"time_horizon: 1000000000 needs at least 1\.6 TB"),
        ({"time_horizon": 10**30}, r"time_horizon: 10{30} needs"),
        # One hidden layer of 10,000 behind another: 10,000 * 10,001 weights, times 16 bytes.
        (
            {"network_settings": {"hidden_units": 10_000}},
            r"network_settings\.hidden_units: 10000 needs at least 1\.6 GB .* 1\.0 GB \(1,000,",
        ),
        (
            {"network_settings": {"memory": {"memory_size": 10**6}}},
            r"network_settings\.memory\.memory_size: 1000000 needs",
        ),
        (
            {"reward_signals": {"rnd": {"network_settings": {"hidden_units": 10**5}}}},
            r"reward_signals\.rnd\.network_settings\.hidden_units: 100000 needs",
        ),
    ],
)
def test_what_does_not_fit_is_refused(written: dict[str, object], says: str) -> None:
    with pytest.raises(UnityTrainerException, match=says):
        require_memory("A", SPEC, behavior(**written))


def test_bytes_are_shown_in_a_unit_and_in_full() -> None:
    assert in_bytes(999) == "999 bytes"
    assert in_bytes(2_500_000) == "2.5 MB (2,500,000 bytes)"


def test_a_container_has_as_much_as_it_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "CONTROL_GROUPS", tmp_path)
    machine = memory_bytes()
    assert machine is None or machine > 0
    if machine is None:
        return
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_bytes() == machine
    (tmp_path / "memory.max").write_text("1000000\n")
    assert memory_bytes() == 1_000_000
