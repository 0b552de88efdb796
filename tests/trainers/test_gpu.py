"""A CUDA device computes what the CPU does, to the rounding of float32."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from actors import CASES, Case, action_mask, make_actor, memories, observations
from mlagents.trainers.acting.policy import ActingPolicy
from mlagents.trainers.learn import main
from mlagents.trainers.networks.snapshots import snapshot_of

DEVICE = "cuda"

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}

SMALL = {"hidden_units": 8, "num_layers": 1, "normalize": True}
NETWORKS = {
    "dense": SMALL,
    "memory": SMALL | {"memory": {"memory_size": 8, "sequence_length": 4}},
}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "ppo": {
        "trainer_type": "ppo",
        "hyperparameters": {"batch_size": 32, "buffer_size": 128},
    },
    "sac": {
        "trainer_type": "sac",
        "hyperparameters": {
            "batch_size": 32,
            "buffer_size": 400,
            "buffer_init_steps": 96,
            "steps_per_update": 8,
            "save_replay_buffer": True,
        },
    },
}
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)
every_network = pytest.mark.parametrize("network", NETWORKS)


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def learn(
    algorithm: str, network: str, device: str, run_id: str, max_steps: int, *arguments: str
) -> None:
    """Train on a task whose episodes all end after each 32 steps."""
    written = copy.deepcopy(ALGORITHMS[algorithm])
    written["hyperparameters"] |= {"learning_rate": 1e-3, "learning_rate_schedule": "constant"}
    written |= {"network_settings": NETWORKS[network], "max_steps": max_steps, "time_horizon": 4}
    written |= {"summary_freq": 64, "reward_signals": {"extrinsic": {}, "rnd": {}}}
    Path("guess.yaml").write_text(yaml.safe_dump({"behaviors": {"Guess": written}}))
    environment = ["--env", "guess_environment:GuessEnvironment", "--seed", "5"]
    target = ["--run-id", run_id, "--torch-device", device]
    assert main(["guess.yaml", *environment, *target, *arguments]) == 0


def weights(run_id: str) -> dict[str, torch.Tensor]:
    """Return all networks of a checkpoint, where a machine without a GPU would have them."""
    path = Path("results", run_id, "Guess", "checkpoint.pt")
    saved = torch.load(path, weights_only=True, map_location="cpu")
    return {
        f"{part}.{name}": value
        for part, of_part in saved.items()
        if isinstance(of_part, dict)
        for name, value in of_part.items()
        if isinstance(value, torch.Tensor)
    }


def assert_close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys() and len(found) > 5
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, **TOLERANCE, msg=lambda m, n=name: f"{n}: {m}"
        )


@every_algorithm
@every_network
def test_updates_are_those_of_the_cpu(algorithm: str, network: str) -> None:
    learn(algorithm, network, "cpu", "begun", 32)
    for device in ("cpu", DEVICE):
        learn(algorithm, network, device, device, 128)
    assert_close(weights(DEVICE), weights("cpu"))
    begun, learned = weights("begun"), weights("cpu")
    assert any(not torch.equal(begun[name], learned[name]) for name in begun), "nothing was learned"


@every_algorithm
@every_network
@pytest.mark.parametrize(("first", "second"), [("cpu", DEVICE), (DEVICE, "cpu")])
def test_a_run_is_resumed_on_another_device(
    algorithm: str, network: str, first: str, second: str
) -> None:
    for run_id, resumed_on in (("same", first), ("moved", second)):
        learn(algorithm, network, first, run_id, 128)
        learn(algorithm, network, resumed_on, run_id, 192, "--resume")
    assert_close(weights("moved"), weights("same"))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_acting_is_that_of_the_cpu(case: Case) -> None:
    actor = make_actor(case.spec, **case.settings)
    rng = np.random.default_rng(0)
    obs, blocked = observations(case.spec, 9, rng), action_mask(case.spec, 9, rng)
    memory = memories(actor, 9, rng)

    def decide(device: str) -> Any:
        policy = ActingPolicy(
            snapshot_of(copy.deepcopy(actor).to(device)),
            case.spec.action_spec,
            deterministic=True,
            rng=np.random.default_rng(0),
        )
        return policy.act(obs, blocked, memory)

    there, here = decide(DEVICE), decide("cpu")
    np.testing.assert_allclose(there.continuous, here.continuous, **TOLERANCE)
    np.testing.assert_array_equal(there.discrete, here.discrete)
    np.testing.assert_allclose(there.memory, here.memory, **TOLERANCE)
