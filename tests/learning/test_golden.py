"""One short training ends with the reward it has always ended with: nothing drifts unseen.

A change that is meant to alter what is learned measures the number again and says so:

    python tests/learning/test_golden.py
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

GOLDEN_REWARD = 2.3110000493377445
"""Mean reward of the last hundred episodes."""

VERSIONS = {"torch": "2.13", "numpy": "2.4"}
"""The numbers of other versions may be rounded otherwise."""

PINNED = {
    "MLAGENTS_NATIVE": "off",
    "OMP_NUM_THREADS": "1",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "OPENBLAS_NUM_THREADS": "1",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
}
"""The instructions of AVX2, and none that only newer processors have."""

CONFIGURATION = """
behaviors:
  3DBall:
    trainer_type: ppo
    hyperparameters: {batch_size: 64, buffer_size: 1200, learning_rate: 3.0e-4}
    network_settings: {normalize: true, hidden_units: 64, num_layers: 2}
    max_steps: 20000
    time_horizon: 64
    summary_freq: 5000
"""


def train(folder: Path) -> float:
    """Train in a process of its own, where the instructions can still be chosen."""
    configuration = folder / "golden.yaml"
    configuration.write_text(CONFIGURATION)
    command = [sys.executable, "-m", "mlagents.trainers.learn", str(configuration)]
    command += ["--env", "3DBall", "--seed", "1", "--torch-device", "cpu"]
    command += ["--results-dir", str(folder), "--run-id", "golden"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | PINNED)
    assert done.returncode == 0, done.stdout + done.stderr
    status = json.loads((folder / "golden/run_logs/training_status.json").read_text())
    return float(status["3DBall"]["final_checkpoint"]["reward"])


@pytest.mark.slow
@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64")
    or torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"),
    reason="the number is of processors with AVX2",
)
@pytest.mark.skipif(sys.platform != "linux", reason="the number is of the C library of Linux")
def test_a_short_training_ends_with_the_reward_it_always_had(tmp_path: Path) -> None:
    for package, expected in VERSIONS.items():
        if not version(package).startswith(f"{expected}."):
            pytest.skip(f"the number is of {package} {expected}, not of {version(package)}")
    assert train(tmp_path) == pytest.approx(GOLDEN_REWARD, rel=1e-6)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(train(Path(folder)))
