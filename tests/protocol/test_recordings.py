"""Recordings of real Unity players, replayed to a `UnityEnvironment` over a socket."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from mlagents_envs.base_env import ActionTuple, DecisionSteps, TerminalSteps
from mlagents_envs.codec import decode_input
from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.exception import UnityCommunicatorStoppedException
from mlagents_envs.rpc_communicator import RpcCommunicator
from mlagents_sim.client import RpcClient
from shared_data import load_recording

RECORDINGS = [
    "4.0.0-3dball",
    pytest.param("4.0.0-3dball-long", marks=pytest.mark.slow),
    "4.0.0-3dballhard",
    "4.0.0-basic",
    "4.0.0-suite",
    "2.3.0-suite",
    "1.6.0-3dball",
    "1.6.0-discrete",
]


class Replay(threading.Thread):
    """A simulation that says what was recorded, whatever it is told."""

    def __init__(self, port: int, requests: list[bytes]) -> None:
        super().__init__(daemon=True)
        self.replies: list[bytes] = []
        self._port = port
        self._requests = requests

    def run(self) -> None:
        with RpcClient(self._port) as client:
            for request in self._requests:
                self.replies.append(client.call(request, timeout_s=30))


@contextmanager
def replayed(requests: list[bytes]) -> Iterator[tuple[UnityEnvironment, Replay]]:
    communicator = RpcCommunicator(port=0)
    communicator.open()
    simulation = Replay(communicator.port, requests)
    simulation.start()
    with UnityEnvironment(timeout_wait=30, communicator=communicator) as env:
        yield env, simulation
    simulation.join(30)
    assert not simulation.is_alive()


def columns(step: int, env: UnityEnvironment) -> dict[str, Any]:
    """Name what the environment holds as the recordings do."""
    found: dict[str, Any] = {}
    for behavior in env.behavior_specs:
        for kind, steps in zip(("decision", "terminal"), env.get_steps(behavior), strict=True):
            prefix = f"{step}|{behavior}|{kind}|"
            assert isinstance(steps, DecisionSteps | TerminalSteps)
            found |= {
                prefix + name: getattr(steps, name)
                for name in ("agent_id", "reward", "group_id", "group_reward")
            }
            found |= {f"{prefix}obs_{index}": batch for index, batch in enumerate(steps.obs)}
            if isinstance(steps, TerminalSteps):
                found[f"{prefix}interrupted"] = steps.interrupted
            else:
                for branch, mask in enumerate(steps.action_mask or ()):
                    found[f"{prefix}mask_{branch}"] = mask
    return found


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recorded_player_decodes_to_the_recorded_arrays(name):
    meta, exchanges, expected = load_recording(name)
    found: dict[str, Any] = {}
    with replayed([request for request, _ in exchanges]) as (env, _):
        env.reset()
        found |= columns(0, env)
        for step in range(1, meta["steps"] + 1):
            env.step()
            found |= columns(step, env)
        specs = env.behavior_specs
    assert found.keys() == expected.keys()
    for key, array in expected.items():
        np.testing.assert_array_equal(found[key], array, err_msg=key)
        assert found[key].dtype == array.dtype or key.endswith("group_id")
    assert {
        behavior: {
            "observation_specs": [
                {
                    "name": observation.name,
                    "shape": list(observation.shape),
                    "dimension_property": list(map(int, observation.dimension_property)),
                    "observation_type": observation.observation_type.value,
                }
                for observation in spec.observation_specs
            ],
            "continuous_size": spec.action_spec.continuous_size,
            "discrete_branches": list(spec.action_spec.discrete_branches),
        }
        for behavior, spec in specs.items()
    } == meta["behavior_specs"]


@pytest.mark.parametrize("name", ["4.0.0-3dball", "4.0.0-basic", "1.6.0-discrete"])
def test_the_recorded_actions_are_answered_byte_for_byte(name):
    _, exchanges, _ = load_recording(name)
    requests, replies = zip(*exchanges, strict=True)
    with replayed(list(requests)) as (env, simulation):
        env.reset()
        for reply in replies[2:-1]:
            for behavior, actions in decode_input(reply, env.behavior_specs).actions.items():
                env.set_actions(behavior, ActionTuple(actions.continuous, actions.discrete))
            env.step()
    # The first two answers hold the trainer's own version and side channels; the last one closes.
    assert simulation.replies[2:] == list(replies[2:])


def test_a_player_that_quits_is_answered_when_the_environment_closes():
    _, exchanges, _ = load_recording("4.0.0-basic")
    closing = exchanges[-1][1]  # the same bytes in both directions
    with replayed([exchanges[0][0], exchanges[1][0], closing]) as (env, simulation):
        with pytest.raises(UnityCommunicatorStoppedException, match="ended the session"):
            env.reset()
    assert simulation.replies[-1] == closing
