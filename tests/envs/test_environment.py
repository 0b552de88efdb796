import gc
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from mlagents_envs import __version__
from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
    TerminalSteps,
)
from mlagents_envs.codec import Command, Output, decode_input, encode_close, encode_output
from mlagents_envs.communicator import Communicator
from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.exception import (
    UnityActionException,
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityObservationException,
    UnityTimeOutException,
    UnityWorkerInUseException,
)
from mlagents_envs.handshake import (
    API_VERSION,
    Capabilities,
    SimulationHello,
    TrainerHello,
    decode_trainer_hello,
    encode_ready,
    encode_simulation_hello,
)
from mlagents_envs.side_channel.messages import IncomingMessage, OutgoingMessage
from mlagents_envs.side_channel.side_channel import SideChannel
from processes import children

NAME = "Ball?team=0"
SPEC = BehaviorSpec([ObservationSpec.vector(2, "eye")], ActionSpec.create_hybrid(1, (3,)))
CLOSE = encode_close()


class FakeCommunicator(Communicator):
    """Says what it was given, one message or error at a time, and keeps what it is told."""

    def __init__(self, *incoming: bytes | BaseException) -> None:
        self.incoming = list(incoming)
        self.sent: list[bytes] = []
        self.timeouts_s: list[float] = []
        self.closed = 0

    def open(self) -> None:
        raise AssertionError("it is open")

    def receive(self, timeout_s: float, *, alarm: int | None = None) -> bytes | None:
        self.timeouts_s.append(timeout_s)
        message = self.incoming.pop(0)
        if isinstance(message, BaseException):
            raise message
        return message

    def send(self, message: bytes) -> None:
        self.sent.append(message)

    def fileno(self) -> int:
        return 77

    def close(self) -> None:
        self.closed += 1


def hello(version: str = API_VERSION, capabilities: Capabilities | None = None) -> bytes:
    able = Capabilities.all() if capabilities is None else capabilities
    return encode_simulation_hello(SimulationHello(version, "4.0.0", able))


def output(
    *agent_ids: int,
    ended: tuple[int, ...] = (),
    first: bool = False,
    spec: BehaviorSpec = SPEC,
    side_channel: bytes = b"",
) -> bytes:
    """Make a message in which agents ask and others `ended`; `first` announces the behavior."""

    def common(ids: tuple[int, ...]) -> dict[str, Any]:
        (size,) = spec.observation_specs[0].shape
        numbers = np.array(ids, np.float32)
        return {"obs": [np.tile(numbers[:, None], (1, size))], "reward": numbers, "agent_id": ids}

    decisions = DecisionSteps.of(**common(agent_ids))
    terminals = TerminalSteps.of(**common(ended), interrupted=False)
    specs = {NAME: spec}
    message = Output(specs if first else {}, {NAME: (decisions, terminals)}, side_channel)
    return encode_output(message, specs)


def make_env(
    *incoming: bytes | BaseException, **arguments
) -> tuple[UnityEnvironment, FakeCommunicator]:
    communicator = FakeCommunicator(hello(), encode_ready(), *incoming)
    return UnityEnvironment(communicator=communicator, **arguments), communicator


def last_input(communicator: FakeCommunicator):
    return decode_input(communicator.sent[-1], {NAME: SPEC})


# Construction.


def test_the_trainer_introduces_itself_and_waits_for_the_reset():
    env, communicator = make_env(seed=5, num_areas=3, timeout_wait=7)
    assert [decode_trainer_hello(message) for message in communicator.sent] == [
        TrainerHello(5, API_VERSION, __version__, Capabilities.all(), num_areas=3)
    ]
    assert communicator.timeouts_s == [7, 7]
    assert env.academy_capabilities == Capabilities.all()
    assert dict(env.behavior_specs) == {}
    env.close()


def test_the_constants_are_those_of_the_protocol():
    assert UnityEnvironment.API_VERSION == "1.5.0"
    assert UnityEnvironment.DEFAULT_EDITOR_PORT == 5004
    assert UnityEnvironment.BASE_ENVIRONMENT_PORT == 5005


def test_another_protocol_version_closes_the_session_and_names_both():
    communicator = FakeCommunicator(hello("2.1.0"), encode_ready())
    with pytest.raises(UnityEnvironmentException, match=r"'2\.1\.0'.*'1\.5\.0'"):
        UnityEnvironment(communicator=communicator)
    assert communicator.sent[-1] == CLOSE
    assert communicator.closed == 1


def test_a_simulation_without_the_base_capability_is_warned_about(caplog):
    communicator = FakeCommunicator(hello(capabilities=Capabilities()), encode_ready())
    logging.getLogger("mlagents_envs").addHandler(caplog.handler)
    with UnityEnvironment(communicator=communicator) as env:
        assert env.academy_capabilities == Capabilities()
    logging.getLogger("mlagents_envs").removeHandler(caplog.handler)
    assert "does not report the capability baseRLCapabilities" in caplog.text


@pytest.mark.parametrize(
    ("incoming", "error"),
    [
        ([UnityTimeOutException("no simulation connected")], UnityTimeOutException),
        ([hello(), UnityTimeOutException("no message")], UnityTimeOutException),
        ([CLOSE], UnityCommunicatorStoppedException),
        ([hello(), CLOSE], UnityCommunicatorStoppedException),
        ([b"\xff"], UnityCommunicationException),
        ([encode_ready()], UnityCommunicationException),
        ([hello(), b""], UnityCommunicationException),
        ([KeyboardInterrupt()], KeyboardInterrupt),
    ],
)
def test_whatever_ends_the_handshake_closes_the_communicator(incoming, error):
    communicator = FakeCommunicator(*incoming)
    with pytest.raises(error):
        UnityEnvironment(communicator=communicator)
    assert communicator.closed == 1


def test_silence_of_the_editor_is_explained():
    communicator = FakeCommunicator(UnityTimeOutException("no simulation connected to port 5004"))
    with pytest.raises(UnityTimeOutException, match=r"port 5004\. Press Play in the Unity Editor"):
        UnityEnvironment(communicator=communicator)


def test_the_editor_is_worker_0():
    with pytest.raises(UnityEnvironmentException, match="worker_id is 1"):
        UnityEnvironment(worker_id=1)


def test_a_taken_port_is_the_workers():
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(UnityWorkerInUseException, match=f"{port}"):
            UnityEnvironment(base_port=port, timeout_wait=1)


def test_a_seed_beyond_32_bits_is_refused_before_anything_starts():
    communicator = FakeCommunicator()
    with pytest.raises(ValueError, match="seed is 1099511627776: expected a 32-bit integer"):
        UnityEnvironment(seed=2**40, communicator=communicator)


@pytest.mark.parametrize("num_areas", [0, -1])
def test_less_than_one_area_is_refused_before_anything_starts(num_areas):
    with pytest.raises(UnityEnvironmentException, match=f"at least 1, got {num_areas}"):
        UnityEnvironment(num_areas=num_areas, communicator=FakeCommunicator())


# Reset and step.


def test_reset_sends_reset_and_keeps_what_comes():
    env, communicator = make_env(output(4, 2, ended=(9,), first=True))
    env.reset()
    assert last_input(communicator).command is Command.RESET
    assert last_input(communicator).actions == {}
    assert dict(env.behavior_specs) == {NAME: SPEC}
    decisions, terminals = env.get_steps(NAME)
    assert decisions.agent_id.tolist() == [4, 2]
    assert decisions.obs[0].tolist() == [[4, 4], [2, 2]]
    assert terminals.agent_id.tolist() == [9]
    env.close()


def test_a_simulation_without_behaviors_is_warned_about_once_and_may_have_some_later(caplog):
    nobody = encode_output(Output({}, {}, b""), {})
    env, _ = make_env(nobody, nobody, output(1, first=True))
    env.reset()
    assert "connected, but has announced no behavior" in caplog.text
    env.step()
    env.step()
    assert list(env.behavior_specs) == [NAME]
    assert caplog.text.count("no behavior") == 1

    caplog.clear()
    make_env(output(1, first=True))[0].reset()
    assert "no behavior" not in caplog.text


def test_the_first_step_is_a_reset():
    env, communicator = make_env(output(1, first=True), output(1))
    env.step()
    assert last_input(communicator).command is Command.RESET
    env.step()
    assert last_input(communicator).command is Command.STEP
    env.close()


def test_actions_are_sent_once_then_zeros():
    env, communicator = make_env(output(1, 2, first=True), output(1), output(1))
    env.reset()
    env.set_actions(NAME, ActionTuple(np.array([[0.5], [-1.0]]), np.array([[2], [1]])))
    env.step()
    sent = last_input(communicator).actions[NAME]
    assert sent.continuous.tolist() == [[0.5], [-1.0]]
    assert sent.discrete.tolist() == [[2], [1]]
    env.step()
    sent = last_input(communicator).actions[NAME]
    assert sent.continuous.tolist() == [[0.0]]
    assert sent.discrete.tolist() == [[0]]
    env.close()


def test_an_action_for_one_agent_leaves_the_others():
    env, communicator = make_env(output(7, 5, first=True), output(5))
    env.reset()
    env.set_action_for_agent(NAME, 5, ActionTuple(np.array([[0.5]]), np.array([[2]])))
    with pytest.raises(IndexError, match="agent 6"):
        env.set_action_for_agent(NAME, 6, ActionTuple(np.array([[0.5]]), np.array([[2]])))
    env.step()
    sent = last_input(communicator).actions[NAME]
    assert sent.continuous.tolist() == [[0.0], [0.5]]
    assert sent.discrete.tolist() == [[0], [2]]
    env.close()


def test_a_behavior_with_nobody_asking_gets_no_actions():
    env, communicator = make_env(output(ended=(3,), first=True), output(1))
    env.reset()
    env.step()
    assert communicator.sent[-1].hex() == "0a0308c8011a020a00"
    env.close()


def test_a_reset_forgets_the_actions_set():
    env, communicator = make_env(output(1, first=True), output(1), output(1))
    env.reset()
    env.set_actions(NAME, ActionTuple(np.array([[0.5]]), np.array([[2]])))
    env.reset()
    env.step()
    assert last_input(communicator).actions[NAME].discrete.tolist() == [[0]]
    env.close()


def test_unknown_behaviors_and_wrong_shapes_are_refused():
    env, _ = make_env(output(1, first=True))
    action = SPEC.action_spec.empty_action(1)
    with pytest.raises(UnityActionException, match=r"unknown behavior 'Ball.*Call reset\(\) first"):
        env.set_actions(NAME, action)
    with pytest.raises(KeyError, match="unknown behavior 'Ball"):
        env.get_steps(NAME)
    env.reset()
    with pytest.raises(UnityActionException, match="unknown behavior 'Other'"):
        env.set_action_for_agent("Other", 1, action)
    for mistaken in ("Ball", "Bal?team=0"):
        with pytest.raises(UnityActionException, match=r"did you mean 'Ball\?team=0'\?"):
            env.set_actions(mistaken, action)
        with pytest.raises(KeyError, match=r"did you mean 'Ball\?team=0'\?"):
            env.get_steps(mistaken)
    with pytest.raises(UnityActionException, match="expected continuous"):
        env.set_actions(NAME, SPEC.action_spec.empty_action(2))
    env.close()


def test_a_behavior_announced_again_must_be_the_same():
    other = BehaviorSpec(SPEC.observation_specs, ActionSpec.create_continuous(9))
    env, _ = make_env(
        output(1, first=True), output(1, first=True), output(1, first=True, spec=other)
    )
    env.reset()
    env.step()
    with pytest.raises(UnityCommunicationException, match="announced again"):
        env.step()
    env.close()


# A step in two halves.


def test_a_step_may_be_sent_and_received_apart():
    env, communicator = make_env(output(1, first=True), output(2))
    env.reset()
    env.step_send()
    assert len(communicator.incoming) == 1
    assert env.fileno() == 77
    env.step_receive()
    assert env.get_steps(NAME)[0].agent_id.tolist() == [2]
    env.close()


def test_halves_out_of_order_are_refused():
    env, _ = make_env(output(1, first=True), output(2))
    env.reset()
    with pytest.raises(UnityEnvironmentException, match="call step_send"):
        env.step_receive()
    env.step_send()
    with pytest.raises(UnityEnvironmentException, match="call step_receive"):
        env.step_send()
    env.close()


def test_a_reset_first_finishes_the_step_under_way():
    env, communicator = make_env(output(1, first=True), output(2), output(3))
    env.reset()
    env.step_send()
    env.reset()
    assert env.get_steps(NAME)[0].agent_id.tolist() == [3]
    assert last_input(communicator).command is Command.RESET
    env.close()


def test_after_a_time_out_the_answer_may_still_be_received():
    env, _ = make_env(output(1, first=True), UnityTimeOutException("no message"), output(2))
    env.reset()
    with pytest.raises(UnityTimeOutException):
        env.step()
    env.step_receive()
    assert env.get_steps(NAME)[0].agent_id.tolist() == [2]
    env.close()


# Errors and side channels.


def test_what_breaks_the_protocol_reaches_the_caller_and_leaves_the_last_steps():
    env, communicator = make_env(output(1, first=True), b"\x00", b"")
    env.reset()
    for _ in range(2):
        with pytest.raises(UnityCommunicationException):
            env.step()
    assert env.get_steps(NAME)[0].agent_id.tolist() == [1]
    env.close()
    assert communicator.sent[-1] == CLOSE


def test_an_observation_of_another_shape_reaches_the_caller():
    wide = BehaviorSpec([ObservationSpec.vector(5, "eye")], SPEC.action_spec)
    env, _ = make_env(output(1, first=True), output(1, spec=wide))
    env.reset()
    with pytest.raises(UnityObservationException, match="eye"):
        env.step()
    env.close()


def test_a_simulation_that_quits_is_answered_when_the_environment_closes():
    env, communicator = make_env(output(1, first=True), CLOSE)
    env.reset()
    with pytest.raises(UnityCommunicatorStoppedException):
        env.step()
    assert communicator.sent[-1] != CLOSE
    env.close()
    assert communicator.sent[-1] == CLOSE


class Echo(SideChannel):
    def __init__(self) -> None:
        super().__init__(UUID(int=7))
        self.received: list[str] = []

    def on_message_received(self, msg: IncomingMessage) -> None:
        self.received.append(msg.read_string())


def test_side_channels_ride_along_with_resets_and_steps():
    channel = Echo()
    incoming = OutgoingMessage()
    incoming.write_string("hi")
    channel.queue_message_to_send(incoming)
    env, communicator = make_env(
        output(1, first=True, side_channel=UUID(int=7).bytes_le + b"\x06\0\0\0\x02\0\0\0hi"),
        output(1),
        side_channels=[channel],
    )
    env.reset()
    assert last_input(communicator).side_channel.endswith(b"hi")
    assert channel.received == ["hi"]
    env.step()
    assert last_input(communicator).side_channel == b""
    env.close()


def test_an_environment_has_the_side_channels_it_was_made_with_and_no_other():
    channel = Echo()
    assert make_env(side_channels=[channel])[0].side_channels == (channel,)
    assert make_env()[0].side_channels == ()


def test_two_side_channels_of_one_id_are_refused():
    with pytest.raises(UnityEnvironmentException, match="Echo"):
        UnityEnvironment(side_channels=[Echo(), Echo()], communicator=FakeCommunicator())


# Closing.


def test_closing_twice_does_nothing_and_use_afterwards_is_refused():
    env, communicator = make_env(output(1, first=True))
    env.reset()
    env.close()
    env.close()
    assert communicator.closed == 1
    assert communicator.sent[-1] == CLOSE
    for use in (env.step, env.reset, env.step_send, env.step_receive):
        with pytest.raises(UnityEnvironmentException, match="closed"):
            use()


def test_closing_with_a_step_under_way_just_hangs_up():
    env, communicator = make_env(output(1, first=True))
    env.reset()
    env.step_send()
    env.close()
    assert communicator.sent[-1] != CLOSE
    assert communicator.closed == 1


def test_an_environment_nobody_holds_is_closed():
    env, communicator = make_env()
    del env
    gc.collect()
    assert communicator.closed == 1


def test_an_environment_nobody_holds_is_closed_after_its_session_ended_too():
    env, communicator = make_env(CLOSE)
    with pytest.raises(UnityCommunicatorStoppedException):
        env.reset()
    with pytest.raises(UnityCommunicatorStoppedException, match="session is over: the other side"):
        env.step()
    del env
    gc.collect()
    assert communicator.closed == 1


def test_a_with_block_closes():
    env, communicator = make_env()
    with env as same:
        assert same is env
    assert communicator.closed == 1


# Players: small programs that take the place of a Unity build.

PRELUDE = f"""#!{sys.executable}
import os, signal, sys, time
from mlagents_envs.codec import *
from mlagents_envs.handshake import *
from mlagents_sim.client import RpcClient
port = int(sys.argv[sys.argv.index("--mlagents-port") + 1])
hello = encode_simulation_hello(SimulationHello("1.5.0", "4.0.0", Capabilities.all()))
"""


@pytest.fixture
def player(tmp_path):
    """Return a function that makes an executable of Python code."""

    def make(code: str, prelude: str = PRELUDE) -> str:
        path = tmp_path / "Game.x86_64"
        path.write_text(prelude + textwrap.dedent(code))
        path.chmod(0o755)
        return str(tmp_path / "Game")

    return make


BARE = f"#!{sys.executable}\nimport os, signal, sys, time\n"
OBEDIENT = """
with RpcClient(port) as client:
    client.call(hello)
    client.call(encode_ready())
    output = Output({}, {}, b"")
    message = encode_output(output, {})
    try:
        while True:
            decode_input(client.call(message), {})
    except Exception as error:
        print(type(error).__name__, flush=True)
"""


def launch(file_name: str, timeout_wait: float = 30, **arguments) -> UnityEnvironment:
    return UnityEnvironment(file_name, base_port=0, timeout_wait=timeout_wait, **arguments)


def test_a_player_is_started_stepped_told_to_quit_and_reaped(player):
    env = launch(player(OBEDIENT))
    process = env._session.player
    env.reset()
    env.step()
    assert not process.wait(0)
    env.close()
    assert process.wait(0)
    assert "exited with code 0" in process.exit_description()
    assert "UnityCommunicatorStoppedException" in process.exit_description()


def test_a_player_gets_its_arguments(player, tmp_path):
    env = launch(
        player(f"open({str(tmp_path / 'argv')!r}, 'w').write(' '.join(sys.argv[1:]))\n{OBEDIENT}"),
        worker_id=2,
        no_graphics_monitor=True,
        log_folder=str(tmp_path),
        additional_args=["--level", "3"],
    )
    env.close()
    port, rest = (tmp_path / "argv").read_text().split("--mlagents-port ")[1].split(" ", 1)
    assert (tmp_path / "argv").read_text().startswith("-nographics -batchmode --mlagents-port")
    assert 0 < int(port) < 65536
    assert rest == f"-logFile {tmp_path}/Player-2.log --level 3"


def test_connecting_can_be_polled():
    nothing = UnityTimeOutException("nothing")
    communicator = FakeCommunicator(
        nothing, hello(), nothing, encode_ready(), output(1, first=True)
    )
    env = UnityEnvironment(communicator=communicator, connect=False)
    assert communicator.timeouts_s == []
    for use in (env.reset, env.step, lambda: env.academy_capabilities):
        with pytest.raises(UnityEnvironmentException, match="not connected yet"):
            use()
    assert [env.poll(), env.poll(), env.poll()] == [False, False, True]
    assert set(communicator.timeouts_s) == {0}
    env.reset_send()
    assert env.poll() and env.poll(), "asking again takes nothing away"
    env.step_receive()
    assert env.get_steps(NAME)[0].agent_id.tolist() == [1]
    env.close()


def test_a_simulation_counts_as_hanging_from_its_deadline_on():
    nothing = UnityTimeOutException("nothing")
    env, communicator = make_env(nothing, nothing, timeout_wait=7)
    env.reset_send()
    assert not env.poll(time.monotonic() + 60)
    with pytest.raises(UnityTimeOutException, match="sent no message within 7 s"):
        env.poll(time.monotonic())
    assert env.filenos() == (communicator.fileno(),)
    env.close()


def test_a_program_with_arguments_can_be_the_player(tmp_path):
    program = tmp_path / "player.py"
    program.write_text("import sys; sys.exit(f'{sys.argv[1:]}')")
    with pytest.raises(
        UnityEnvironmentException,
        match=r"'one', '--mlagents-port', '\d+', 'two'",
    ):
        UnityEnvironment(
            command=[sys.executable, str(program), "one"],
            additional_args=["two"],
            base_port=0,
            worker_id=3,
        )


def test_a_player_that_exits_before_connecting_is_described(player, tmp_path):
    code = "print('no display'); sys.exit(3)"
    with pytest.raises(
        UnityEnvironmentException,
        match=r"Game\.x86_64' exited with code 3 before it had connected(.|\n)*no display\nPass",
    ):
        launch(player(code, BARE))
    code = "open(sys.argv[-1], 'w').write('no license'); sys.exit(3)"
    with pytest.raises(UnityEnvironmentException, match=r"no license$"):
        launch(player(code, BARE), additional_args=["-logFile", str(tmp_path / "mine.log")])


def test_a_player_killed_before_connecting_is_described(player):
    code = "os.kill(os.getpid(), signal.SIGSEGV)"
    with pytest.raises(UnityEnvironmentException, match="killed by SIGSEGV before it had conn"):
        launch(player(code, BARE))


def test_a_player_that_never_connects_is_described_and_ended(player, tmp_path):
    pid_file = tmp_path / "pid"
    code = f"""
open({str(pid_file)!r}, 'w').write(str(os.getpid()))
if "-logFile" in sys.argv:
    open(sys.argv[sys.argv.index("-logFile") + 1], "w").write("no license")
time.sleep(600)
"""
    described = r"within 1\.5 s\. The player .* is running\. .*no_graphics=True"
    with pytest.raises(UnityTimeOutException, match=described + r"\.\nPass log_folder .* here\.$"):
        launch(player(code, BARE), timeout_wait=1.5)
    logged = described + r"\. The last lines it wrote:\n    no license$"
    with pytest.raises(UnityTimeOutException, match=logged):
        launch(player(code, BARE), timeout_wait=1.5, log_folder=str(tmp_path))
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def test_a_player_that_crashes_in_a_step_is_described(player):
    code = """
    with RpcClient(port) as client:
        client.call(hello)
        client.call(encode_ready())
        print("about to crash", flush=True)
        os.kill(os.getpid(), signal.SIGABRT)
    """
    env = launch(player(code))
    with pytest.raises(UnityEnvironmentException, match=r"killed by SIGABRT(.|\n)*about to crash"):
        env.reset()
    env.close()


QUITS = """
with RpcClient(port) as client:
    client.call(hello)
    client.call(encode_ready())
    print("good night", flush=True)
    client.call(encode_close())  # blocks until it is answered
"""


def test_a_player_that_quits_is_answered_and_described(player):
    env = launch(player(QUITS))
    ended = (
        r"\(status 400\): it quit, .* exited with code 0\. The last lines it wrote:\n *good night"
    )
    with pytest.raises(UnityCommunicatorStoppedException, match=ended):
        env.reset()
    env.close()


def test_a_player_that_quits_because_it_failed_is_described(player):
    failed = r"^the player '.*Game\.x86_64' exited with code 5\. The last .*\n *good night"
    env = launch(player(f"{QUITS}sys.exit(5)"))
    with pytest.raises(UnityEnvironmentException, match=failed):
        env.reset()
    for use in (env.step, env.reset, env.step_send, env.step_receive):
        with pytest.raises(UnityEnvironmentException, match=r"^the session is over: the player"):
            use()
    env.close()
    hello_only = QUITS.replace("client.call(encode_ready())", "")
    with pytest.raises(UnityEnvironmentException, match=failed):
        launch(player(f"{hello_only}sys.exit(5)"))


def test_a_player_that_quits_is_not_waited_for_where_it_is_polled(player):
    env = launch(player(f"{QUITS}sys.exit(5)"))
    process = env._session.player
    env.reset_send()
    with pytest.raises(UnityCommunicatorStoppedException, match=r"left play mode$"):
        while not env.poll():
            select.select(env.filenos(), [], [], 20)
    assert not process.wait(0.1), "it is answered when the environment closes"
    env.close()
    assert process.exit_description().startswith("exited with code 5")


def test_a_step_after_a_player_was_killed_says_so_again(player):
    env = launch(player(OBEDIENT))
    env.reset()
    os.kill(env._session.player._process.pid, signal.SIGKILL)
    with pytest.raises(UnityEnvironmentException, match=r"^the player .* killed by SIGKILL"):
        for _ in range(3):
            env.step()
    with pytest.raises(UnityEnvironmentException, match=r"session is over: the player .* SIGKILL"):
        env.step()
    env.close()


def test_a_player_with_another_version_is_ended(player):
    code = """
    with RpcClient(port) as client:
        client.call(encode_simulation_hello(SimulationHello("7.0.0", "9", Capabilities())))
        client.call(encode_ready())
        time.sleep(600)
    """
    with pytest.raises(UnityEnvironmentException, match=r"'7\.0\.0'"):
        launch(player(code))


def test_a_missing_executable_and_a_forbidden_one_start_nothing(tmp_path):
    with pytest.raises(UnityEnvironmentException, match="cannot find the executable"):
        launch(str(tmp_path / "Missing"))
    (tmp_path / "Game.x86_64").touch(mode=0o600)
    with pytest.raises(UnityEnvironmentException, match=r"chmod \+x"):
        launch(str(tmp_path / "Game"))


def test_a_player_ends_with_the_program_that_started_it(player, tmp_path):
    file_name = player(OBEDIENT)
    code = f"""
from mlagents_envs.environment import UnityEnvironment
env = UnityEnvironment({file_name!r}, base_port=0, timeout_wait=30)
env.reset()
print("pid", env._session.player._process.pid)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    pid = int(done.stdout.split("pid ")[1])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_no_process_or_descriptor_is_left_behind(player):
    file_name = player(OBEDIENT)
    processes = children()  # other tests may have left a helper of `multiprocessing`
    launch(file_name).close()
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else None
    for _ in range(3):
        launch(file_name).close()
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) == before
    assert children() <= processes
    assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
