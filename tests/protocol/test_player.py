"""A world served on the wire: the same steps as in this process, and a clean end of every kind."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from guess_environment import GuessEnvironment
from mlagents_envs import codec, handshake
from mlagents_envs.base_env import BaseEnv
from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.exception import (
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityException,
    UnityTimeOutException,
)
from mlagents_envs.handshake import Capabilities, TrainerHello
from mlagents_envs.rpc_communicator import RpcCommunicator
from mlagents_envs.side_channel.engine_configuration_channel import EngineConfigurationChannel
from mlagents_envs.side_channel.environment_parameters_channel import EnvironmentParametersChannel
from mlagents_sim.__main__ import main
from mlagents_sim.catalog import CATALOG
from mlagents_sim.circles import CIRCLES
from mlagents_sim.player import EnvironmentFactory, serve, serve_several
from seeds import NIGHTLY
from served import free_port

PROGRAM = str(Path(sys.executable).with_name("mlagents-sim"))


class Playing(threading.Thread):
    """Serves an environment from a thread; `error` is what ended it early."""

    def __init__(self, make: EnvironmentFactory, port: int) -> None:
        super().__init__(daemon=True)
        self.error: Exception | None = None
        self._make = make
        self._port = port

    def run(self) -> None:
        try:
            serve(self._make, self._port, timeout_s=10)
        except Exception as error:
            self.error = error


@contextmanager
def listening() -> Iterator[RpcCommunicator]:
    with RpcCommunicator() as communicator:
        yield communicator


@contextmanager
def served(make: EnvironmentFactory, **options) -> Iterator[tuple[UnityEnvironment, Playing]]:
    communicator = RpcCommunicator()
    communicator.open()
    player = Playing(make, communicator.port)
    player.start()
    with UnityEnvironment(timeout_wait=20, communicator=communicator, **options) as env:
        yield env, player
    player.join(20)
    assert not player.is_alive()


def arrays(env: BaseEnv) -> dict[str, np.ndarray]:
    """Name all that is reported."""
    found = {}
    for name in env.behavior_specs:
        for kind, steps in zip(("decision", "terminal"), env.get_steps(name), strict=True):
            fields = ("agent_id", "reward", "group_id", "group_reward", "interrupted")
            found |= {f"{name} {kind} {f}": getattr(steps, f) for f in fields if hasattr(steps, f)}
            found |= {f"{name} {kind} obs {i}": batch for i, batch in enumerate(steps.obs)}
            masks = getattr(steps, "action_mask", None) or []
            found |= {f"{name} {kind} mask {i}": mask for i, mask in enumerate(masks)}
    return found


def assert_same(here: BaseEnv, there: BaseEnv) -> None:
    assert dict(here.behavior_specs) == dict(there.behavior_specs)
    ours, theirs = arrays(here), arrays(there)
    assert ours.keys() == theirs.keys()
    for key, array in ours.items():
        np.testing.assert_array_equal(array, theirs[key], key)


def play_alike(here: BaseEnv, there: BaseEnv, *, steps: int) -> None:
    rng = np.random.default_rng(5)
    here.reset()
    there.reset()
    for number in range(steps):
        assert_same(here, there)
        for name, spec in here.behavior_specs.items():
            decisions, _ = here.get_steps(name)
            if len(decisions) and number % 5 != 4:
                action = spec.action_spec.random_action(len(decisions), rng)
                here.set_actions(name, action)
                there.set_actions(name, action)
        if number % 50 == 49:
            here.reset()
            there.reset()
        else:
            here.step()
            there.step()


@pytest.mark.parametrize("name", CATALOG)
@pytest.mark.parametrize("num_areas", [pytest.param(1, marks=NIGHTLY), 2])
def test_a_world_on_the_wire_gives_the_steps_of_one_in_this_process(name: str, num_areas: int):
    make = CATALOG[name].make
    with served(make, seed=4, num_areas=num_areas, keep_8_bit_images=True) as (env, _):
        play_alike(make(seed=4, num_areas=num_areas), env, steps=60)


def test_any_environment_can_be_served():
    def make(*, seed: int, num_areas: int) -> BaseEnv:
        return GuessEnvironment(seed=seed, n_agents=3 * num_areas)

    with served(make, seed=2, num_areas=2) as (env, player):
        play_alike(make(seed=2, num_areas=2), env, steps=40)
    assert player.error is None


def test_the_program_plays_in_a_process_of_its_own_and_logs_where_told(tmp_path: Path):
    with UnityEnvironment(
        PROGRAM,
        base_port=0,
        seed=4,
        timeout_wait=30,
        no_graphics=True,
        additional_args=["3DBall"],
        log_folder=str(tmp_path),
    ) as env:
        play_alike(CATALOG["3DBall"].make(seed=4), env, steps=20)
    native, end = (tmp_path / "Player-0.log").read_text().splitlines()
    assert native.startswith("[INFO] rolling: computed by ")
    assert end == "[INFO] The trainer ended the session."


@pytest.mark.parametrize("keep_8_bit_images", [False, True])
def test_images_are_the_same_here_and_through_the_wire(keep_8_bit_images):
    channel = EngineConfigurationChannel()
    arguments = {"seed": 2, "keep_8_bit_images": keep_8_bit_images}
    with CATALOG["GridWorld"].make(side_channels=[channel], **arguments) as env:
        play_alike(CATALOG["GridWorld"].make(**arguments), env, steps=4)


def test_environment_parameters_reach_the_world_and_others_are_passed_over(caplog):
    parameters, engine = EnvironmentParametersChannel(), EngineConfigurationChannel()
    engine.set_configuration_parameters(time_scale=20.0)
    here = CATALOG["3DBall"].make()
    # The numbers are exact in 32 bits, as which they travel.
    for receiver in (parameters, here):
        receiver.set_float_parameter("gravity", 5.0)
        receiver.set_float_parameter("gravitas", 5.0)
        receiver.set_uniform_sampler_parameters("scale", 1.0, 2.0, seed=-3)
    with served(CATALOG["3DBall"].make, side_channels=[engine, parameters]) as (env, _):
        play_alike(here, env, steps=30)
        for receiver in (parameters, here):
            receiver.set_gaussian_sampler_parameters("gravity", 10.0, 0.5, seed=4)
            receiver.set_multirangeuniform_sampler_parameters(
                "scale", [(0.5, 0.75), (2.0, 3.0)], seed=5
            )
        play_alike(here, env, steps=30)
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 2  # here and there
    for warning in warnings:
        assert "no environment parameter 'gravitas'; did you mean 'gravity'?" in warning


@contextmanager
def served_by_turns(makers: list[EnvironmentFactory]) -> Iterator[list[UnityEnvironment]]:
    """Serve environments from one thread, which must have ended in peace."""
    errors: list[BaseException] = []
    with contextlib.ExitStack() as stack:
        communicators = [stack.enter_context(RpcCommunicator()) for _ in makers]
        by_port = {c.port: make for c, make in zip(communicators, makers, strict=True)}

        def play() -> None:
            try:
                serve_several(by_port, timeout_s=10)
            except Exception as error:
                errors.append(error)

        player = threading.Thread(target=play, daemon=True)
        player.start()
        envs = [
            UnityEnvironment(
                worker_id=k, seed=k, timeout_wait=20, communicator=communicator, connect=False
            )
            for k, communicator in enumerate(communicators)
        ]
        for env in envs:
            stack.enter_context(env).connect()
        yield envs
    player.join(20)
    assert not player.is_alive()
    assert not errors


def test_several_are_played_by_turns_each_as_if_alone():
    names = ["3DBall", "Basic", "Hallway"]
    with served_by_turns([CATALOG[name].make for name in names]) as envs:
        for k in (2, 0, 1):  # in any order
            here = CATALOG[names[k]].make(seed=k)
            play_alike(here, envs[k], steps=30)


def test_one_that_waits_for_its_trainer_holds_up_no_other():
    with served_by_turns([CATALOG["Basic"].make, CATALOG["3DBall"].make]) as (idle, busy):
        idle.reset()
        play_alike(CATALOG["3DBall"].make(seed=1), busy, steps=60)
        idle.close()
        busy.step()
        assert len(busy.get_steps("3DBall?team=0")[0]) == 12


def test_an_environment_that_fails_ends_the_sessions_beside_it():
    class Fails(GuessEnvironment):
        def step(self):
            raise OSError("the floor gave way")

    makers = [lambda *, seed, num_areas: Fails(), CATALOG["Basic"].make]
    with (
        pytest.raises(AssertionError, match="the floor gave way"),
        served_by_turns(makers) as (failing, other),
    ):
        other.reset()
        failing.reset()
        for env in (failing, other):
            with pytest.raises(UnityCommunicatorStoppedException):
                env.step()


def test_a_second_player_is_told_that_it_was_refused():
    with served(CATALOG["Basic"].make) as (env, _):
        second = Playing(CATALOG["Basic"].make, env._session.communicator.port)
        second.start()
        for _ in range(10_000):
            env.step()
            if not second.is_alive():
                break
    second.join(20)
    assert isinstance(second.error, UnityCommunicatorStoppedException)
    assert "disconnected before it sent a message: another player" in str(second.error)


def test_an_environment_that_fails_ends_the_session():
    class Fails(GuessEnvironment):
        def step(self):
            raise OSError("the floor gave way")

    with served(lambda *, seed, num_areas: Fails()) as (env, player):
        env.reset()
        with pytest.raises(UnityCommunicatorStoppedException):
            env.step()
    assert str(player.error) == "the floor gave way"


def test_an_environment_that_cannot_be_made_ends_the_session():
    def make(*, seed: int, num_areas: int) -> BaseEnv:
        raise UnityEnvironmentException("no floor")

    with served(make) as (env, player), pytest.raises(UnityCommunicatorStoppedException):
        env.reset()
    assert str(player.error) == "no floor"


def test_actions_that_do_not_fit_end_the_session():
    with served(lambda *, seed, num_areas: GuessEnvironment(n_agents=2)) as (env, player):
        env.reset()
        answer = codec.Input(
            codec.Command.STEP,
            {GuessEnvironment.BEHAVIOR: GuessEnvironment().spec.action_spec.empty_action(5)},
            b"",
        )
        env._session.send(codec.encode_input(answer))
        with pytest.raises(UnityCommunicatorStoppedException):
            env.step_receive()
    assert "expected continuous actions of shape (2, 1)" in str(player.error)


class Trainer:
    """Speaks for a trainer, message by message."""

    def __init__(self, communicator: RpcCommunicator) -> None:
        self.communicator = communicator

    def shake_hands(self, version: str = handshake.API_VERSION, num_areas: int = 1) -> None:
        handshake.decode_simulation_hello(self.receive())
        hello = TrainerHello(0, version, "1.1.0", Capabilities.all(), num_areas)
        self.communicator.send(handshake.encode_trainer_hello(hello))

    def tell(self, command: codec.Command) -> None:
        self.communicator.send(codec.encode_input(codec.Input(command, {}, b"")))

    def receive(self) -> bytes:
        message = self.communicator.receive(20)
        assert message is not None
        return message


def test_announcements_come_once_and_quit_ends_the_session():
    with listening() as communicator:
        player = Playing(CATALOG["Basic"].make, communicator.port)
        player.start()
        trainer = Trainer(communicator)
        trainer.shake_hands(num_areas=0)  # as from trainers older than areas
        handshake.decode_ready(trainer.receive())
        trainer.tell(codec.Command.RESET)
        first = codec.decode_output(trainer.receive(), {})
        assert list(first.specs) == ["Basic?team=0"]
        trainer.tell(codec.Command.STEP)
        second = codec.decode_output(trainer.receive(), first.specs)
        assert second.specs == {}
        assert second.steps["Basic?team=0"][0].reward.tolist() == [np.float32(-0.01)]
        trainer.tell(codec.Command.QUIT)
        player.join(20)
    assert not player.is_alive()
    assert player.error is None


@pytest.mark.parametrize("when", ["handshake", "ready", "step"])
def test_a_trainer_that_closes_ends_the_session_in_peace(when: str):
    with listening() as communicator:
        player = Playing(CATALOG["Basic"].make, communicator.port)
        player.start()
        trainer = Trainer(communicator)
        if when == "handshake":
            trainer.receive()
        else:
            trainer.shake_hands()
            trainer.receive()
            if when == "step":
                trainer.tell(codec.Command.RESET)
                trainer.receive()
        communicator.send(codec.encode_close())
        player.join(20)
    assert not player.is_alive()
    assert player.error is None


def test_a_trainer_that_wants_fewer_areas_than_none_is_refused():
    with listening() as communicator:
        player = Playing(CATALOG["Basic"].make, communicator.port)
        player.start()
        Trainer(communicator).shake_hands(num_areas=-1)
        with pytest.raises(UnityException):
            handshake.decode_ready(communicator.receive(20))
        player.join(20)
    assert str(player.error) == "num_areas must be at least 1, got -1"


def test_a_trainer_of_another_protocol_is_refused():
    with listening() as communicator:
        player = Playing(CATALOG["Basic"].make, communicator.port)
        player.start()
        Trainer(communicator).shake_hands(version="2.0.0")
        with pytest.raises(UnityException):
            handshake.decode_ready(communicator.receive(20))
        player.join(20)
    assert isinstance(player.error, UnityEnvironmentException)
    assert "versions differ" in str(player.error)


def test_a_trainer_that_never_listens_is_waited_for_a_while(capsys):
    port = free_port()
    with pytest.raises(UnityTimeOutException, match=rf"no trainer .* within 0\.5 s.*{port}"):
        serve(CATALOG["Basic"].make, port, timeout_s=0.5)
    assert f"Waiting up to 0.5 s for a trainer at localhost port {port}." in capsys.readouterr().out


def test_a_trainer_that_listens_later_is_served():
    port = free_port()
    player = Playing(CATALOG["Basic"].make, port)
    player.start()
    with UnityEnvironment(base_port=port, timeout_wait=20) as env:
        env.reset()
        assert len(env.get_steps("Basic?team=0")[0]) == 1
    player.join(20)
    assert not player.is_alive()


# The command.


def test_the_command_lists_the_worlds(capsys):
    assert main(["--list"]) == 0
    output = capsys.readouterr().out
    assert [line.split()[0] for line in output.splitlines()] == list(CATALOG)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["3dball"], "no environment is registered as '3dball'; did you mean '3DBall'"),
        (["xyz"], "Registered: 3DBall, "),
        (["gess_environment:make"], "No module named 'gess_environment'"),
        (["3DBall", "--parameter", "scale"], "'scale' is not NAME=NUMBER"),
        (["3DBall", "--parameter", "=3"], "'=3' is not NAME=NUMBER"),
        ([], "no world was named"),
        (["3DBall", "--mlagents-port", "70000"], "'70000' is not a port: expected 1 to 65535"),
        (["3DBall", "--mlagents-port", "five"], "'five' is not a port"),
        (["3DBall", "--timeout", "soon"], "'soon' is not a positive number or 0"),
        (["3DBall", "--color"], "unrecognized arguments: --color"),
    ],
)
def test_the_command_refuses_what_it_does_not_know(arguments: list[str], text: str, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert text in capsys.readouterr().err


def test_the_command_without_a_trainer_fails_in_one_line(capsys):
    arguments = ["-batchmode", "3DBall", "--mlagents-port", str(free_port()), "--timeout", "0"]
    assert main(arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("mlagents-sim: no trainer listened within 0 s.")


@pytest.mark.parametrize("choice", ["off", "auto"])
def test_the_command_tells_what_computes_each_part_of_the_world(choice: str):
    command = [PROGRAM, "SoccerTwos", "--mlagents-port", str(free_port()), "--timeout", "0"]
    environ = {**os.environ, "MLAGENTS_NATIVE": choice}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=20)
    said = [line for line in done.stdout.splitlines() if "computed by" in line]
    assert [line.removeprefix("[INFO] ").partition(":")[0] for line in said] == [
        *("circles", "field_view", "planar")
    ]
    if choice == "off" or CIRCLES.reason is not None:
        assert all("computed by NumPy, without the native library" in line for line in said)
    else:
        assert all("computed by the native library" in line for line in said)


def test_the_command_finds_a_module_in_the_working_folder(tmp_path: Path):
    (tmp_path / "my_maze.py").write_text("def make(): ...")
    command = [PROGRAM, "my_maze:make", "--mlagents-port", str(free_port()), "--timeout", "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=20)
    assert "no trainer listened" in done.stderr


def test_the_command_tells_a_wrong_parameter_before_it_waits_for_a_trainer(capsys):
    assert main(["3DBall", "--parameter", "sclae=2", "--mlagents-port", str(free_port())]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("mlagents-sim: Ball3D has no environment parameter 'sclae'; did you")
    assert "Waiting" not in said.out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["gym:Nowhere-v0"], "Gymnasium cannot create 'Nowhere-v0'"),
        (["gym:CartPole-v1", "--parameter", "lenght=2"], "Gymnasium cannot create 'CartPole-v1'"),
        (["served:served"], "cannot be called: missing a required argument"),
        (["mlagents_sim.world:World"], "is abstract. Implement"),
        (["mlagents_sim.player:_RETRY_INTERVAL_S"], "cannot be called: 0.2 is not a callable"),
    ],
)
def test_the_command_checks_what_it_is_to_play_before_it_waits_for_a_trainer(
    arguments: list[str], text: str, capsys
):
    pytest.importorskip("gymnasium")
    assert main([*arguments, "--mlagents-port", str(free_port())]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("mlagents-sim: ") and text in said.err
    assert "Waiting" not in said.out and "Traceback" not in said.err


def test_an_environment_of_plain_lists_is_served(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(Path(__file__).parents[1])
    with UnityEnvironment(command=[PROGRAM, "duck_environment:DuckOfLists"], base_port=0) as env:
        env.reset()
        decisions, _ = env.get_steps("Duck?team=0")
        assert decisions.reward.tolist() == [1.0, 1.0, 1.0]
        assert len(decisions) == 3


def test_the_command_says_where_it_cannot_log(capsys, tmp_path: Path):
    assert main(["3DBall", "-logFile", str(tmp_path / "nowhere" / "log")]) == 1
    assert "cannot write the log" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_ctrl_c_ends_the_command_in_peace():
    command = [sys.executable, "-m", "mlagents_sim", "Basic", "--mlagents-port", str(free_port())]
    player = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert player.stdout is not None
        assert player.stdout.readline().startswith("[INFO] Waiting")
        player.send_signal(signal.SIGINT)
        _, errors = player.communicate(timeout=20)
    finally:
        player.kill()
        player.wait()
    assert (player.returncode, errors) == (0, "")


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_ctrl_c_in_the_middle_of_play_is_told_to_the_trainer():
    with listening() as communicator:
        port = str(communicator.port)
        command = [sys.executable, "-m", "mlagents_sim", "Basic", "--mlagents-port", port]
        player = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            with UnityEnvironment(timeout_wait=20, communicator=communicator) as env:
                env.reset()
                player.send_signal(signal.SIGINT)
                with pytest.raises(UnityCommunicatorStoppedException):
                    for _ in range(1000):
                        env.step()
            _, errors = player.communicate(timeout=20)
        finally:
            player.kill()
            player.wait()
    assert (player.returncode, errors) == (0, "")
