"""Players in processes of their own: none holds up another, and one that dies comes back."""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from guess_environment import GuessEnvironment
from mlagents.trainers.acting.rollout import Rollout
from mlagents.trainers.cli_args import parse_command_line
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.learn import main
from mlagents.trainers.players import environments, pool
from mlagents.trainers.players.env_manager import EnvManager, PlayerSteps
from mlagents.trainers.players.environments import env_manager_maker
from mlagents.trainers.players.in_process import SimpleEnvManager
from mlagents.trainers.players.pool import PlayerPool, RestartBudget
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.load import load_run_options
from mlagents.trainers.settings.parameters import ConstantParameters, Sampler
from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.exception import (
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityTimeOutException,
)
from mlagents_envs.http2_socket import wait
from mlagents_sim.examples.ball_3d import Ball3D
from mlagents_sim.player import serve
from processes import children
from seeds import NIGHTLY
from served import free_port
from training_loop import make_trainer
from troubled_environment import BEHAVIOR, TroubledEnvironment

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")

GIVE_UP_S = 60.0
TROUBLED = "troubled_environment:TroubledEnvironment"


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    inherited = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[1]), inherited]))
    return tmp_path


@pytest.fixture
def trouble(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda what: monkeypatch.setenv("TROUBLE", what)


@contextmanager
def managed(*arguments: str, env: str = TROUBLED) -> Iterator[EnvManager]:
    """Make the manager that `mlagents-learn` would make."""
    command_line = parse_command_line(["--env", env, "--num-envs", "2", *arguments])
    options = load_run_options(command_line).with_seed(7)
    Path("logs").mkdir()
    with contextlib.closing(env_manager_maker(options, log_folder=Path("logs"))()) as manager:
        yield manager


def answer(manager: EnvManager, reports: list[PlayerSteps]) -> None:
    for report in reports:
        manager.send(
            report.player,
            {
                name: manager.behavior_specs[name].action_spec.empty_action(len(decisions))
                for name, (decisions, _) in report.steps.items()
            },
        )


def play(manager: EnvManager, until: Callable[[list[PlayerSteps]], bool]) -> list[PlayerSteps]:
    """Answer all reports until one `receive` brings what is waited for; return all reports."""
    give_up_at_s = time.monotonic() + GIVE_UP_S
    found: list[PlayerSteps] = []
    while True:
        assert time.monotonic() < give_up_at_s, found[-10:]
        reports = manager.receive()
        found += reports
        answer(manager, reports)
        if until(reports):
            return found


def returns(player: int) -> Callable[[list[PlayerSteps]], bool]:
    return lambda reports: any(r.player == player and r.is_new for r in reports)


def state(report: PlayerSteps) -> list[float]:
    """Return steps since the reset, mass, process and seed."""
    return report.steps[BEHAVIOR][0].obs[0][0].tolist()


def constant(value: float) -> Sampler:
    parameters = ConstantParameters(value=value)
    return Sampler(sampler_type="constant", sampler_parameters=parameters)


def pid_of(player: int) -> int:
    return int(Path(f"pid-{player}").read_text())


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def await_end_of(pid: int) -> None:
    """Wait until a killed process has ended, whether or not its parent has noticed."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        while Path(f"/proc/{pid}/stat").read_text().split()[2] not in "ZX":
            time.sleep(0.01)


# Several at once.


def test_all_players_report_their_reset_and_go_on_together() -> None:
    with managed("--num-envs", "3") as manager:
        manager.reset()
        first = manager.receive()
        assert [(r.player, r.is_new) for r in first] == [(0, True), (1, True), (2, True)]
        assert [state(r)[0] for r in first] == [0, 0, 0]
        assert [state(r)[3] for r in first] == [7, 8, 9], "the seed of the run plus the worker"
        assert len({state(r)[2] for r in first}) == 3, "a process each"
        answer(manager, first)
        reports = play(manager, lambda reports: any(state(r)[0] == 5 for r in reports))
    assert not any(r.is_new for r in reports)
    for player in range(3):
        steps = [state(r)[0] for r in reports if r.player == player]
        assert steps == list(range(1, len(steps) + 1)), "no step is lost or told twice"


def test_reports_of_one_receive_come_in_the_order_of_players() -> None:
    with managed("--num-envs", "3") as manager:
        manager.reset()
        for _ in range(20):
            reports = manager.receive()
            assert [r.player for r in reports] == sorted({r.player for r in reports})
            answer(manager, reports)


def test_a_slow_player_does_not_hold_up_a_fast_one(trouble: Callable[[str], None]) -> None:
    trouble("1 slow 1")  # 0.2 s a step
    with managed() as manager:
        manager.reset()
        reports = play(manager, lambda reports: any(r.player == 1 and state(r)[0] for r in reports))
    assert [state(r)[0] for r in reports if r.player == 1] == [0, 1]
    assert sum(r.player == 0 for r in reports) > 10


@pytest.mark.parametrize(
    ("n_cores", "together"),
    [
        (2, None),
        (8, None),
        (8, 3),
        *(
            pytest.param(*case, marks=NIGHTLY)
            for case in [(1, None), (1, 2), (8, 1), (8, 2), (8, 9)]
        ),
    ],
)
def test_a_world_plays_anywhere_what_it_plays_alone(
    n_cores: int, together: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "n_cpus", lambda: n_cores)
    rng = np.random.default_rng(3)
    flags = [] if together is None else ["--players-per-process", str(together)]
    with managed("--num-areas", "2", "--num-envs", "4", *flags, env="3DBall") as several:
        alone = [SimpleEnvManager(Ball3D(seed=7 + k, num_areas=2)) for k in range(4)]
        for manager in (several, *alone):
            manager.set_parameters({"scale": constant(3.0)})
            manager.reset()
        reported: Counter[int] = Counter()
        while min(reported[player] for player in range(4)) < 30:
            for there in several.receive():
                reported[there.player] += 1
                assert there.is_new == (reported[there.player] == 1)
                here = alone[there.player].receive()[0]
                for name, (decisions, terminals) in here.steps.items():
                    decisions_there, terminals_there = there.steps[name]
                    np.testing.assert_array_equal(decisions.obs[0], decisions_there.obs[0])
                    np.testing.assert_array_equal(decisions.reward, decisions_there.reward)
                    np.testing.assert_array_equal(terminals.agent_id, terminals_there.agent_id)
                    spec = several.behavior_specs[name].action_spec
                    actions = {name: spec.random_action(len(decisions), rng)}
                    alone[there.player].send(0, actions)
                    several.send(there.player, actions)


def test_pictures_of_a_player_are_learned_from_as_bytes() -> None:
    pytest.importorskip("PIL")
    settings = BehaviorSettings.model_validate(
        {
            "trainer_type": "ppo",
            "time_horizon": 2,
            "hyperparameters": {"batch_size": 18, "buffer_size": 36, "num_epoch": 1},
            "network_settings": {"hidden_units": 8, "num_layers": 1},
        }
    )
    learned_from: list[Segments] = []
    with managed(env="GridWorld") as manager:
        manager.reset()
        trainer = make_trainer(manager, settings)
        update = trainer.learner.algorithm.update

        def note(segments: Segments, rewards: np.ndarray, *, step: int) -> dict[str, float]:
            learned_from.append(segments)
            return update(segments, rewards, step=step)

        trainer.learner.algorithm.update = note  # type: ignore[method-assign]
        rollout = Rollout(manager, lambda player, behavior: trainer.seat)
        for _ in range(10):
            rollout.advance()
            trainer.advance()
            rollout.answer()

    assert learned_from
    for pictures in (learned_from[0].obs[0], learned_from[0].last_obs[0]):
        assert pictures.dtype == np.uint8
        assert pictures.max() > 200


def test_a_reset_voids_what_was_under_way(trouble: Callable[[str], None]) -> None:
    trouble("1 slow 1")
    with managed() as manager:
        manager.reset()
        play(manager, lambda reports: any(state(r)[0] == 3 for r in reports))
        manager.reset()  # both are in the middle of a step
        reports = manager.receive()
    assert [(r.player, r.is_new, state(r)[0]) for r in reports] == [(0, True, 0), (1, True, 0)]


# Failures.


def test_a_killed_player_comes_back_while_the_others_go_on(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with managed() as manager:
        manager.reset()
        play(manager, lambda reports: any(r.player == 1 and state(r)[0] >= 5 for r in reports))
        killed = pid_of(1)
        os.kill(killed, signal.SIGKILL)
        reports = play(manager, returns(1))
        back = reports[-1]
        assert (back.player, state(back)[0], state(back)[3]) == (1, 0, 8)
        assert state(back)[2] == pid_of(1) != killed
        assert sum(r.player == 0 for r in reports) > 10
        assert not any(r.is_new for r in reports if r.player == 0)
        play(manager, lambda reports: any(r.player == 1 and state(r)[0] == 3 for r in reports))
    log = capsys.readouterr().out
    assert "[WARNING] Player 1 failed; restart 1 of 10: " in log
    assert "was killed by SIGKILL" in log
    assert Path("logs/Player-1.1.log").exists(), "of the killed one"
    assert Path("logs/Player-1.log").exists()


@pytest.mark.parametrize(
    ("kind", "told"), [("exit", "exited with code 3"), ("raise", "exited with code 1")]
)
def test_a_player_that_ends_comes_back_and_its_last_words_are_told(
    kind: str, told: str, trouble: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    trouble(f"0 {kind} 4")
    with managed() as manager:
        manager.reset()
        play(manager, returns(0))
        reports = play(manager, returns(0))
        assert [state(r)[0] for r in reports if r.player == 0] == [1, 2, 3, 0]
    log = capsys.readouterr().out
    assert told in log and "the floor gave way" in log


def test_a_spent_budget_is_the_players_error_and_how_to_raise_it(
    trouble: Callable[[str], None],
) -> None:
    trouble("1 exit 2")
    with (
        managed("--max-lifetime-restarts", "0") as manager,
        pytest.raises(UnityEnvironmentException) as raised,
    ):
        manager.reset()
        play(manager, lambda _: False)
    text = str(raised.value)
    assert text.startswith("player 1 failed and is not restarted: it was restarted 0 times")
    assert "--max-lifetime-restarts) is 0" in text and "exited with code 3" in text


@pytest.mark.slow
def test_a_stopped_player_is_found_out_at_its_deadline(capsys: pytest.CaptureFixture[str]) -> None:
    with managed("--timeout-wait", "5") as manager:
        manager.reset()
        play(manager, lambda reports: any(r.player == 1 and state(r)[0] >= 5 for r in reports))
        stopped = pid_of(1)
        os.kill(stopped, signal.SIGSTOP)
        reports = play(manager, returns(1))
        assert sum(r.player == 0 for r in reports) > 10
        assert not is_alive(stopped)
    assert "sent no message within 5 s" in capsys.readouterr().out


def test_a_player_that_cannot_start_is_diagnosed_and_the_others_end(
    trouble: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    trouble("1 exit 0")
    with managed() as manager, pytest.raises(UnityEnvironmentException, match="exited with code 3"):
        manager.reset()
    assert "Player 1 could not be started." in capsys.readouterr().out
    with contextlib.suppress(FileNotFoundError):  # it may not have come as far
        assert not is_alive(pid_of(0))


def test_a_player_that_dies_while_nobody_listens_is_noticed_when_it_is_answered() -> None:
    with managed() as manager:
        manager.reset()
        reports = manager.receive()
        os.kill(pid_of(0), signal.SIGKILL)
        await_end_of(pid_of(0))
        answer(manager, reports)
        play(manager, returns(0))


def test_parameters_reach_players_and_those_that_replace_them(
    trouble: Callable[[str], None],
) -> None:
    trouble("1 exit 4")
    with managed() as manager:
        manager.set_parameters({"mass": constant(2.0)})
        manager.reset()
        first = manager.receive()
        assert [state(r)[1] for r in first] == [2.0, 2.0]
        manager.set_parameters({"mass": constant(3.0)})
        answer(manager, first)
        reports = play(manager, returns(1))
        assert {state(r)[1] for r in reports} == {3.0}
        assert reports[-1].is_new


@pytest.mark.slow
def test_the_editor_may_leave_play_mode_and_come_back(trouble: Callable[[str], None]) -> None:
    trouble("0 raise 3")  # which says goodbye, as the Editor does when it leaves play mode
    port = free_port()
    is_over = threading.Event()  # the session that the Editor left, for the trainer too

    class Budget(RestartBudget):
        def spend(self) -> str | None:
            is_over.set()
            return super().spend()

    def press_play() -> None:
        with contextlib.suppress(OSError):
            serve(lambda *, seed, num_areas: TroubledEnvironment(seed=seed), port, timeout_s=20)
        Path("trouble-0").unlink()

    def press_play_twice() -> None:
        press_play()
        assert is_over.wait(20)
        press_play()

    editor = threading.Thread(target=press_play_twice)
    editor.start()
    manager = PlayerPool(
        lambda worker: UnityEnvironment(base_port=port, timeout_wait=5, connect=False),
        1,
        timeout_s=5,
        make_budget=lambda: Budget(max_lifetime=-1, rate_limit_n=-1, rate_limit_period_s=60),
    )
    with contextlib.closing(manager):
        manager.reset()
        play(manager, returns(0))
        reports = play(manager, returns(0))
        assert [state(r)[0] for r in reports] == [1, 2, 0]
        with pytest.raises(UnityCommunicatorStoppedException, match="left play mode"):
            play(manager, lambda _: False)
    editor.join(20)
    assert not editor.is_alive()


def test_ctrl_c_ends_the_wait_at_once(trouble: Callable[[str], None]) -> None:
    trouble("0 sleep 2")
    with managed("--num-envs", "2", "--timeout-wait", "600") as manager:
        manager.reset()
        play(manager, lambda reports: any(r.player == 0 and state(r)[0] == 1 for r in reports))
        pids = [pid_of(0), pid_of(1)]
        os.kill(pids[1], signal.SIGSTOP)  # so both are silent, for ten minutes if need be
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            play(manager, lambda _: False)
        timer.join()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


# Waiting.


class Told:
    """A player that has finished what it does when it is told "."; all else is a frame it got.

    It is what `UnityEnvironment` is to the manager, without a simulation.
    """

    side_channels = ()
    player = None

    def __init__(self) -> None:
        self._guess = GuessEnvironment()
        self._guess.reset()
        self.behavior_specs = self._guess.behavior_specs
        self.get_steps = self._guess.get_steps
        self._ear, self._mouth = socket.socketpair()
        self._ear.setblocking(False)
        self.n_polls = 0

    def tell(self, words: bytes) -> None:
        self._mouth.send(words)

    def filenos(self) -> tuple[int, ...]:
        return (self._ear.fileno(),)

    def poll(self, deadline_s: float) -> bool:
        self.n_polls += 1
        with contextlib.suppress(BlockingIOError):
            if self._ear.recv(1) == b".":
                return True
        if time.monotonic() >= deadline_s:
            raise UnityTimeOutException("too late")
        return False

    def reset_send(self) -> None:
        pass

    step_send = step_receive = reset_send

    def close(self) -> None:
        self._ear.close()
        self._mouth.close()


@contextmanager
def telling(timeout_s: float, n_players: int = 1) -> Iterator[tuple[PlayerPool, list[Told]]]:
    players = [Told() for _ in range(n_players)]
    manager = PlayerPool(
        lambda worker: cast(UnityEnvironment, players[worker]),
        n_players,
        timeout_s=timeout_s,
        make_budget=lambda: RestartBudget(max_lifetime=0, rate_limit_n=0, rate_limit_period_s=60),
    )
    with contextlib.closing(manager):
        for player in players:
            player.tell(b"..")  # it has connected, it has reset
        manager.reset()
        manager.receive()
        yield manager, players


def test_who_answers_while_another_is_listened_to_is_reported_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with telling(timeout_s=60, n_players=2) as (manager, players):
        for player in (0, 1):
            manager.send(player, {})
        players[1].tell(b".")

        def also_the_other(*arguments: Any) -> list[selectors.SelectorKey]:
            ready = wait(*arguments)
            monkeypatch.setattr(pool, "wait", wait)
            players[0].tell(b".")
            return ready

        monkeypatch.setattr(pool, "wait", also_the_other)
        assert [report.player for report in manager.receive()] == [0, 1]


def test_frames_that_are_no_answer_are_taken_in_and_the_wait_goes_on() -> None:
    with telling(timeout_s=60) as (manager, [player]):
        manager.send(0, {})
        player.n_polls = 0
        player.tell(b"---")
        timer = threading.Timer(0.2, player.tell, (b".",))
        timer.start()
        (report,) = manager.receive()
        timer.join()
    assert (report.player, report.is_new) == (0, False)
    assert player.n_polls == 4, "once for each, and never in between"


def test_a_player_that_speaks_out_of_turn_is_heard_in_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with telling(timeout_s=60, n_players=2) as (manager, [busy, idle]):
        woken_by: list[list[int]] = []

        def spy(*arguments: Any) -> list[selectors.SelectorKey]:
            ready = wait(*arguments)
            woken_by.append([key.data.worker for key in ready])
            if len(woken_by) == 1:
                busy.tell(b".")
            return ready

        monkeypatch.setattr(pool, "wait", spy)
        idle.n_polls = 0
        idle.tell(b".")
        manager.send(0, {})
        assert [report.player for report in manager.receive()] == [0]
        assert (woken_by, idle.n_polls) == ([[1], [0]], 0), "the second wait is for one alone"
        manager.send(1, {})
        assert [report.player for report in manager.receive()] == [1]


def test_a_player_is_not_blamed_for_a_silence_in_which_nobody_listened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "_ABSENCE_S", 0.05)
    with telling(timeout_s=0.2) as (manager, [player]):
        manager.send(0, {})
        player.tell(b"-.")  # the answer needs to be looked at twice
        time.sleep(0.3)
        assert not manager.receive()[0].is_new
        manager.send(0, {})
        time.sleep(0.3)
        with pytest.raises(UnityTimeOutException, match=r"is not restarted: .*too late"):
            manager.receive()


# The end.


def test_nothing_is_left_when_it_is_closed() -> None:
    descriptors, threads = set(os.listdir("/proc/self/fd")), set(threading.enumerate())
    with managed() as manager:
        manager.reset()
        play(manager, lambda reports: any(state(r)[0] == 3 for r in reports))
        os.kill(pid_of(1), signal.SIGKILL)
        play(manager, returns(1))
        pids = [pid_of(0), pid_of(1)]
        manager.close()
        manager.close()
    assert not any(map(is_alive, pids))
    assert set(os.listdir("/proc/self/fd")) <= descriptors
    assert set(threading.enumerate()) <= threads


def test_players_that_share_processes_play_as_if_alone() -> None:
    with managed("--num-envs", "5", "--players-per-process", "3") as manager:
        manager.reset()
        first = manager.receive()
        pids = [state(r)[2] for r in first]
        assert [pids.index(pid) for pid in pids] == [0, 0, 0, 3, 3]
        assert [state(r)[3] for r in first] == [7, 8, 9, 10, 11], "each has its own seed"
        answer(manager, first)
        reports = play(manager, lambda reports: any(state(r)[0] == 9 for r in reports))
    for player in range(5):
        steps = [state(r)[0] for r in reports if r.player == player]
        assert steps == list(range(1, len(steps) + 1))
    assert not any(is_alive(pid_of(player)) for player in range(5))
    assert {path.name for path in Path("logs").iterdir()} == {"Player-0-2.log", "Player-3-4.log"}


def test_players_whose_process_dies_come_back_each_in_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    descriptors, threads = set(os.listdir("/proc/self/fd")), set(threading.enumerate())
    with managed("--num-envs", "4", "--players-per-process", "2") as manager:
        manager.reset()
        play(manager, lambda reports: any(state(r)[0] == 5 for r in reports))
        os.kill(pid_of(1), signal.SIGKILL)
        back: set[int] = set()
        while back != {0, 1}:
            for report in play(manager, lambda reports: any(r.is_new for r in reports)):
                back |= {report.player} if report.is_new else set()
                assert report.player < 2 or not report.is_new, "the others go on"
        assert pid_of(0) != pid_of(1) != pid_of(2) == pid_of(3)
        play(manager, lambda reports: any(r.player == 3 for r in reports))
        pids = [pid_of(player) for player in range(4)]
    assert not any(map(is_alive, pids))
    log = capsys.readouterr().out
    for player in (0, 1):
        assert f"[WARNING] Player {player} failed; restart 1 of 10: " in log
    assert log.count("was killed by SIGKILL") == 2
    assert set(os.listdir("/proc/self/fd")) <= descriptors
    assert set(threading.enumerate()) <= threads


@pytest.mark.slow
def test_a_stopped_process_is_found_out_by_all_who_share_it() -> None:
    with managed("--num-envs", "4", "--players-per-process", "2", "--timeout-wait", "5") as manager:
        manager.reset()
        play(manager, lambda reports: any(state(r)[0] == 5 for r in reports))
        stopped = pid_of(3)
        os.kill(stopped, signal.SIGSTOP)
        reports = play(manager, returns(3))
        if not any(r.player == 2 and r.is_new for r in reports):
            play(manager, returns(2))
        assert not is_alive(stopped)


@pytest.mark.parametrize(
    ("n_cores", "together", "logs"),
    [
        pytest.param(1, None, set(), marks=NIGHTLY),
        (2, None, {"Player-2-4.log"}),
        (3, None, {"Player-0-1.log", "Player-2-3.log", "Player-4.log"}),
        pytest.param(8, None, {f"Player-{player}.log" for player in range(5)}, marks=NIGHTLY),
        (1, 3, {"Player-2-4.log"}),
        pytest.param(2, 2, {"Player-0-1.log", "Player-2-3.log", "Player-4.log"}, marks=NIGHTLY),
        (2, 5, {"Player-0-4.log"}),
        pytest.param(8, 3, {"Player-0-2.log", "Player-3-4.log"}, marks=NIGHTLY),
    ],
)
def test_worlds_take_the_processes_that_are_set_or_one_for_each_core(
    n_cores: int, together: int | None, logs: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "n_cpus", lambda: n_cores)
    flags = [] if together is None else ["--players-per-process", str(together)]
    with managed("--num-envs", "5", *flags, env="Basic") as manager:
        manager.reset()
        play(manager, lambda reports: any(r.player == 4 and not r.is_new for r in reports))
    assert {path.name for path in Path("logs").iterdir()} == logs


def test_players_in_this_process_go_on_while_a_killed_one_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(environments, "n_cpus", lambda: 2)
    before = children()  # other tests may have left a helper of `multiprocessing`
    with managed("--num-envs", "2", env="Basic") as manager:
        manager.reset()
        play(manager, lambda reports: any(r.player == 1 and not r.is_new for r in reports))
        (killed,) = children() - before
        os.kill(killed, signal.SIGKILL)
        reports = play(manager, returns(1))
        of_mine = [r for r in reports if r.player == 0]
        assert len(of_mine) > 10 and not any(r.is_new for r in of_mine)
        assert len([r for r in reports if r.player == 1 and r.is_new]) == 1
        play(manager, lambda reports: any(r.player == 1 and not r.is_new for r in reports))
        manager.reset()
        assert [(r.player, r.is_new) for r in manager.receive()] == [(0, True), (1, True)]
    assert not children() - before


def test_a_manager_that_never_started_can_be_closed() -> None:
    with managed():
        pass


@pytest.mark.slow
def test_players_end_by_themselves_when_the_trainer_is_killed() -> None:
    command = [sys.executable, "-m", "mlagents.trainers.learn", "--env", TROUBLED]
    with subprocess.Popen(
        [*command, "--num-envs", "2"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as trainer:
        give_up_at_s = time.monotonic() + GIVE_UP_S
        while not (Path("pid-0").exists() and Path("pid-1").exists()):
            assert trainer.poll() is None and time.monotonic() < give_up_at_s
            time.sleep(0.05)
        time.sleep(0.2)  # into the first steps
        pids = [pid_of(0), pid_of(1)]
        trainer.kill()
    while any(map(is_alive, pids)):
        assert time.monotonic() < give_up_at_s
        time.sleep(0.05)


@pytest.mark.slow
def test_a_run_with_two_players(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "n_cpus", lambda: 8)
    Path("basic.yaml").write_text(
        "behaviors: {Basic: {trainer_type: ppo, max_steps: 500, summary_freq: 250, "
        "hyperparameters: {batch_size: 32, buffer_size: 128}}}"
    )
    assert main(["basic.yaml", "--env", "Basic", "--num-envs", "2", "--seed", "1"]) == 0
    assert "Basic. Step: 500." in capsys.readouterr().out
    assert Path("results/ppo/Basic.onnx").exists()
    logs = {path.name for path in Path("results/ppo/run_logs").glob("*.log")}
    assert logs == {"Player-0.log", "Player-1.log"}


# The budget.


@pytest.mark.parametrize(
    ("max_lifetime", "rate_limit_n", "failures_at_s", "allowed"),
    [
        (10, 1, [0, 59.9, 60, 119, 120], [True, False, True, False, True]),
        (10, 2, [0, 30, 59, 61, 89, 91], [True, True, False, True, False, True]),
        (2, -1, [0, 0, 0, 500], [True, True, False, False]),
        (-1, -1, [0, 0, 0, 0], [True, True, True, True]),
        (-1, 0, [0, 100], [False, False]),
        (0, -1, [0], [False]),
        (1, 1, [0, 10, 100], [True, False, False]),
    ],
)
def test_a_budget_counts_restarts_in_a_run_and_in_a_period(
    max_lifetime: int, rate_limit_n: int, failures_at_s: list[float], allowed: list[bool]
) -> None:
    times = iter(failures_at_s)
    budget = RestartBudget(
        max_lifetime=max_lifetime,
        rate_limit_n=rate_limit_n,
        rate_limit_period_s=60,
        clock=lambda: next(times),
    )
    assert [budget.spend() is None for _ in failures_at_s] == allowed
    assert budget.n_spent == sum(allowed)


def test_a_refused_restart_says_which_limit_holds() -> None:
    def spend(**limits: int) -> str | None:
        budget = RestartBudget(rate_limit_period_s=60, clock=lambda: 0.0, **limits)
        budget.spend()
        return budget.spend()

    lifetime = spend(max_lifetime=1, rate_limit_n=-1)
    assert lifetime and "1 times in this run" in lifetime and "max_lifetime_restarts" in lifetime
    rate = spend(max_lifetime=-1, rate_limit_n=1)
    assert rate and "1 times in the last 60 s" in rate and "restarts_rate_limit_n" in rate
