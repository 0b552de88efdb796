"""Finds the real recordings, models and demonstrations that some tests compare with."""

import base64
import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(os.environ.get("MLAGENTS_SHARED_DATA") or Path(__file__).parents[2] / "shared" / "data")
VECTORS = ROOT.parent / "spec" / "vectors"


def require(path: Path) -> Path:
    """Return `path`, or skip the test where the data is not at hand."""
    if not path.exists():
        pytest.skip(f"needs {path.name}: set MLAGENTS_SHARED_DATA to the folder of shared data")
    return path


def load_recording(name: str) -> tuple[dict[str, Any], list[tuple[bytes, bytes]], dict[str, Any]]:
    """Read one recording.

    Returns:
        Its metadata, its (request, reply) message bodies in order, and the arrays that the
        reference trainer decoded, by key.
    """
    packed = require(ROOT / "recordings" / f"{name}.json.gz")
    with gzip.open(packed, "rt") as file:
        recording = json.load(file)
    exchanges = [
        (base64.b64decode(exchange["request"]), base64.b64decode(exchange["reply"]))
        for exchange in recording["exchanges"]
    ]
    arrays = dict(np.load(packed.parent / f"{name}.npz"))
    return recording["meta"], exchanges, arrays


def load_vectors(name: str) -> list[dict[str, Any]]:
    """Read the hand-made test vectors of one file, each with `name`, `hex` and what it means."""
    vectors: list[dict[str, Any]] = json.loads(require(VECTORS / f"{name}.json").read_text())[
        "vectors"
    ]
    return vectors
