"""Recordings of real Unity players, replayed to a `UnityEnvironment` over a socket."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from damage import damaged
from mlagents_envs.base_env import ActionTuple, DecisionSteps, TerminalSteps
from mlagents_envs.codec import decode_input, decode_output
from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.exception import UnityCommunicatorStoppedException, UnityException
from mlagents_envs.handshake import PACKAGE_VERSION, decode_simulation_hello, image_layout
from mlagents_envs.images import ImageReading
from mlagents_envs.messages import UnityMessageProto
from mlagents_envs.rpc_communicator import RpcCommunicator
from mlagents_sim.client import RpcClient
from png_by_hand import read_rgb
from seeds import sizes
from shared_data import load_recording

RECORDINGS = [
    "4.0.0-3dball",
    pytest.param("4.0.0-3dball-long", marks=pytest.mark.slow),
    "4.0.0-3dballhard",
    "4.0.0-basic",
    "4.0.0-match3visual",
    "4.0.0-visual3dball",
    "4.0.0-suite",
    "2.3.0-suite",
    "2.3.0-texture",
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
def replayed(requests: list[bytes], **arguments: bool) -> Iterator[tuple[UnityEnvironment, Replay]]:
    communicator = RpcCommunicator()
    communicator.open()
    simulation = Replay(communicator.port, requests)
    simulation.start()
    with UnityEnvironment(timeout_wait=30, communicator=communicator, **arguments) as env:
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


def play(requests: list[bytes], n_steps: int, **arguments: bool) -> tuple[Any, dict[str, Any]]:
    """Replay a simulation; return all that it reported by name, and the specs."""
    found: dict[str, Any] = {}
    with replayed(requests, **arguments) as (env, _):
        env.reset()
        found |= columns(0, env)
        for step in range(1, n_steps + 1):
            env.step()
            found |= columns(step, env)
        return found, dict(env.behavior_specs)


def assert_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for key, array in expected.items():
        np.testing.assert_array_equal(found[key], array, err_msg=key)
        assert found[key].dtype == array.dtype or key.endswith("group_id")


def is_image(batch: Any) -> bool:
    return batch.ndim == 4


def turned(expected: dict[str, Any]) -> dict[str, Any]:
    """Turn the images of a package before 3.0, which the reference leaves channel-last."""
    return {
        key: np.moveaxis(array, 3, 1) if is_image(array) else array
        for key, array in expected.items()
    }


def turn_specs(meta: dict[str, Any]) -> None:
    for spec in meta["behavior_specs"].values():
        for observation in spec["observation_specs"]:
            if len(observation["shape"]) == 3:
                for axes in (observation["shape"], observation["dimension_property"]):
                    axes.insert(0, axes.pop())


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recorded_player_decodes_to_the_recorded_arrays(name):
    meta, exchanges, expected = load_recording(name)
    if "visual" in name:
        pytest.importorskip("PIL")
    if name < "3":
        expected = turned(expected)
        turn_specs(meta)
    found, specs = play([request for request, _ in exchanges], meta["steps"])
    assert_equal(found, expected)
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


def test_channel_last_images_can_be_left_as_the_reference_has_them():
    meta, exchanges, expected = load_recording("2.3.0-texture")
    requests = [request for request, _ in exchanges]
    found, specs = play(requests, meta["steps"], turn_channel_last_images=False)
    assert_equal(found, expected)
    shapes = [one.shape for spec in specs.values() for one in spec.observation_specs]
    assert shapes == [(16, 20, 6), (16, 20, 3), (2,)]


def as_package(requests: list[bytes], version: str, *, turn_shapes: bool) -> list[bytes]:
    """Let a recorded player say another version and, if asked, announce channels first.

    The numbers stay as they are: packages since 3.0 write them in the order of older ones.
    """
    changed = []
    for request in requests:
        message = UnityMessageProto.FromString(request)
        initialization = message.unity_output.rl_initialization_output
        if initialization.package_version:
            initialization.package_version = version
        for agents in message.unity_output.rl_output.agentInfos.values() if turn_shapes else ():
            for observation in (one for agent in agents.value for one in agent.observations):
                if len(observation.shape) == 3:
                    height, width, channels = observation.shape
                    observation.shape = bytes([channels, height, width])
                    observation.dimension_properties = b"\x01\x02\x02"
        changed.append(message.SerializeToString())
    return changed


@pytest.mark.parametrize("version", ["3.0.0-exp.1", "3.0.0", "4.0.0", "10.1.0", "", "unknown"])
def test_uncompressed_images_of_current_packages_are_those_of_older_ones(version):
    meta, exchanges, expected = load_recording("2.3.0-texture")
    requests = as_package([request for request, _ in exchanges], version, turn_shapes=True)
    found, _ = play(requests, meta["steps"])
    assert_equal(found, turned(expected))


@pytest.mark.parametrize(
    ("version", "arguments"),
    [("4.0.0", {"reorder_uncompressed_images": False}), (PACKAGE_VERSION, {})],
)
def test_uncompressed_images_can_be_read_in_the_order_announced(version, arguments):
    # So the reference reads them, and so simulations of this project write them.
    meta, exchanges, expected = load_recording("2.3.0-texture")
    requests = as_package([request for request, _ in exchanges], version, turn_shapes=True)
    found, _ = play(requests, meta["steps"], **arguments)
    for key, array in expected.items():
        if is_image(array):
            n, height, width, channels = array.shape
            expected[key] = array.reshape(n, channels, height, width)
    assert_equal(found, expected)


def test_compressed_channel_last_images_are_turned():
    # The reference fails here, so the files are read by hand.
    pytest.importorskip("PIL")
    _, exchanges, _ = load_recording("2.3.0-match3visual")
    requests = [request for request, _ in exchanges]
    (agents,) = UnityMessageProto.FromString(requests[2]).unity_output.rl_output.agentInfos.values()
    channels = [6, 3]
    by_hand: list[list[Any]] = [[], []]
    for agent in agents.value:
        for seen, observation, count in zip(by_hand, agent.observations, channels, strict=True):
            planes, rest = [], observation.compressed_data
            while rest:
                pixels, rest = read_rgb(rest)
                planes += [pixels[:, :, channel] for channel in range(3)]
            assert len(planes) == count
            seen.append(np.stack(planes).astype(np.float32) / np.float32(255))
    for keep in (False, True):
        found, specs = play(requests, 0, turn_channel_last_images=not keep)
        (spec,) = specs.values()
        for index, (batch, count) in enumerate(zip(by_hand, channels, strict=True)):
            array = found[f"0|Match3VisualObs?team=0|decision|obs_{index}"]
            wanted = np.moveaxis(np.stack(batch), 1, 3) if keep else np.stack(batch)
            np.testing.assert_array_equal(array, wanted)
            observation = spec.observation_specs[index]
            assert observation.shape == ((9, 8, count) if keep else (count, 9, 8))
            assert [*observation.dimension_property] == ([2, 2, 1] if keep else [1, 2, 2])


@pytest.mark.slow
@sizes("n_messages", 2_000, 20_000)
@pytest.mark.parametrize("name", ["4.0.0-visual3dball", "4.0.0-match3visual", "2.3.0-match3visual"])
def test_damaged_images_in_recorded_messages_give_only_this_packages_exceptions(name, n_messages):
    pytest.importorskip("PIL")
    _, exchanges, _ = load_recording(name)
    hello, _, first, *later = [request for request, _ in exchanges]
    images = ImageReading(image_layout(decode_simulation_hello(hello).package_version))
    specs = decode_output(first, {}, images).specs
    rng = random.Random(0)
    accepted = 0
    for number in range(n_messages):
        message = UnityMessageProto.FromString(rng.choice([first, *later[:3]]))
        for agents in message.unity_output.rl_output.agentInfos.values():
            if agents.value:
                observation = rng.choice(rng.choice(agents.value).observations)
                observation.compressed_data = damaged(observation.compressed_data, rng)
        changed = message.SerializeToString()
        if number % 4 == 0:
            changed = damaged(changed, rng)
        try:
            decode_output(changed, specs, images)
            accepted += 1
        except UnityException as error:
            assert str(error)
    assert 0 < accepted < n_messages


@pytest.mark.parametrize("name", ["4.0.0-visual3dball", "4.0.0-match3visual"])
def test_images_that_came_as_8_bit_stay_so_when_asked(name):
    pytest.importorskip("PIL")
    meta, exchanges, expected = load_recording(name)
    requests = [request for request, _ in exchanges]
    found, _ = play(requests, meta["steps"], keep_8_bit_images=True)
    for key, array in expected.items():
        if is_image(array):
            expected[key] = np.rint(array * 255).astype(np.uint8)
    assert_equal(found, expected)


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
