"""A player that gets into trouble: which one, how and when is told by the variable `TROUBLE`.

`TROUBLE="1 exit 3"` lets player 1 exit before its third step, once: a file `trouble-1` in the
working directory then keeps the player that replaces it out of trouble.
"""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mlagents_envs.base_env import (
    ActionSpec,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
)
from mlagents_envs.local_env import LocalEnv, Report

BEHAVIOR = "Troubled?team=0"


class TroubledEnvironment(LocalEnv):
    """One agent sees how many steps were taken since the reset, its `mass`, the process and seed.

    It obeys environment parameters as far as they are constant.
    """

    spec = BehaviorSpec([ObservationSpec.vector(4, "state")], ActionSpec.create_continuous(1))

    def __init__(self, *, seed: int = 0, worker_id: int = 0) -> None:
        super().__init__()
        self.announce({BEHAVIOR: self.spec})
        worker, self._kind, step = os.environ.get("TROUBLE", "-1 none 0").split()
        self._marker = Path(f"trouble-{worker_id}")
        self._is_troubled = int(worker) == worker_id and not self._marker.exists()
        self._trouble_step = int(step)
        if self._trouble_step == 0:
            self._get_into_trouble()
        self._seed = seed
        self._mass = 1.0
        Path(f"pid-{worker_id}").write_text(str(os.getpid()))

    def restart(self) -> dict[str, Report]:
        self._n_steps = 0
        return self._report()

    def advance(self) -> dict[str, Report]:
        self._n_steps += 1
        if self._n_steps == self._trouble_step or self._kind == "slow":
            self._get_into_trouble()
        return self._report()

    def _get_into_trouble(self) -> None:
        if not self._is_troubled:
            return
        if self._kind == "slow":
            return time.sleep(0.2)
        self._marker.touch()
        match self._kind:
            case "exit":
                print("the floor gave way", file=sys.stderr, flush=True)
                os._exit(3)
            case "raise":
                raise OSError("the floor gave way")
            case "sleep":
                time.sleep(600)

    def _report(self) -> dict[str, Report]:
        state = np.array([[self._n_steps, self._mass, os.getpid(), self._seed]], np.float32)
        return {BEHAVIOR: Report(DecisionSteps.of([state], [1.0], [0]))}

    def set_parameter(self, name: str, value: float) -> None:
        self.set_float_parameter(name, value)

    def set_float_parameter(self, key: str, value: float) -> None:
        assert key == "mass"
        self._mass = value

    def set_uniform_sampler_parameters(
        self, key: str, min_value: float, max_value: float, seed: int
    ) -> None:
        raise NotImplementedError("nobody asks for this")

    def set_gaussian_sampler_parameters(
        self, key: str, mean: float, st_dev: float, seed: int
    ) -> None:
        raise NotImplementedError("nobody asks for this")

    def set_multirangeuniform_sampler_parameters(
        self, key: str, intervals: Sequence[tuple[float, float]], seed: int
    ) -> None:
        raise NotImplementedError("nobody asks for this")
