"""Every kind of observation, from an environment that a player serves to a `UnityEnvironment`."""

from typing import Any

import numpy as np
import pytest

from mlagents_envs.base_env import (
    ActionSpec,
    BehaviorSpec,
    DecisionSteps,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
    TerminalSteps,
)
from mlagents_envs.local_env import LocalEnv, Report
from served import served

NAME = "Seer?team=0"
AGENTS = 3
PLAIN, NEAR, LISTED = (
    DimensionProperty.NONE,
    DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
    DimensionProperty.VARIABLE_SIZE,
)
BYTES = np.dtype(np.uint8)
SPEC = BehaviorSpec(
    [
        ObservationSpec.vector(4, "vector"),
        ObservationSpec((2,), (PLAIN,), ObservationType.GOAL_SIGNAL, "goal"),
        ObservationSpec((3, 2), (LISTED, PLAIN), ObservationType.DEFAULT, "entities"),
        ObservationSpec((5, 4, 6), (PLAIN, NEAR, NEAR), ObservationType.DEFAULT, "grid"),
        ObservationSpec((1, 7, 3), (PLAIN, NEAR, NEAR), ObservationType.DEFAULT, "gray", BYTES),
        ObservationSpec((4, 84, 84), (PLAIN, NEAR, NEAR), ObservationType.DEFAULT, "depth", BYTES),
        ObservationSpec(
            (6, 5, 4),
            (PLAIN, NEAR, NEAR),
            ObservationType.DEFAULT,
            "StackingSensor_size2_camera",
            BYTES,
        ),
    ],
    ActionSpec.create_continuous(1),
)


class Seer(LocalEnv):
    """Shows random observations; every third step all agents end and begin again."""

    def __init__(self) -> None:
        super().__init__()
        self.announce({NAME: SPEC})

    def restart(self) -> dict[str, Report]:
        self._step = 0
        return {NAME: Report(DecisionSteps.of(**self._common(AGENTS)))}

    def advance(self) -> dict[str, Report]:
        self._step += 1
        n_ended = AGENTS if self._step % 3 == 2 else 0
        ended = TerminalSteps.of(**self._common(n_ended), interrupted=False)
        return {NAME: Report(DecisionSteps.of(**self._common(AGENTS)), ended)}

    def _common(self, n: int) -> dict[str, Any]:
        rng = np.random.default_rng(self._step)
        obs = [
            rng.integers(0, 256, (n, *spec.shape), np.uint8)
            if spec.dtype == np.uint8
            else rng.normal(size=(n, *spec.shape)).astype(np.float32)
            for spec in SPEC.observation_specs
        ]
        ids = np.arange(n)
        return {"obs": obs, "reward": [0.0] * n, "agent_id": ids, "groups": (ids, [0.0] * n)}


@pytest.mark.parametrize("keep_8_bit", [False, True])
def test_a_player_shows_what_its_environment_shows(keep_8_bit):
    pytest.importorskip("PIL")
    direct, there = Seer(), Seer()
    there.keep_8_bit_images()  # sent as PNG
    if keep_8_bit:
        direct.keep_8_bit_images()
    direct.reset()
    with served(there, keep_8_bit_images=keep_8_bit) as env:
        env.reset()
        for _ in range(5):
            for found, expected in zip(env.get_steps(NAME), direct.get_steps(NAME), strict=True):
                assert len(found) == len(expected)
                for one, other in zip(found.obs, expected.obs, strict=True):
                    assert one.dtype == other.dtype
                    np.testing.assert_array_equal(one, other)
            env.step()
            direct.step()
        (spec,) = env.behavior_specs.values()
    for found, expected in zip(spec.observation_specs, SPEC.observation_specs, strict=True):
        as_read = expected if keep_8_bit else expected._replace(dtype=np.dtype(np.float32))
        assert found == as_read


@pytest.mark.parametrize(
    "arguments", [{"turn_channel_last_images": False}, {"reorder_uncompressed_images": False}]
)
def test_a_player_needs_no_correction_and_the_switches_change_nothing(arguments):
    pytest.importorskip("PIL")
    direct = Seer()
    direct.reset()
    with served(Seer(), **arguments) as env:
        env.reset()
        grid = env.get_steps(NAME)[0].obs[3]
    np.testing.assert_array_equal(grid, direct.get_steps(NAME)[0].obs[3])
