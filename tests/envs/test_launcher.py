import os
import re
import select
import signal
import socket
import stat
import sys
import sysconfig
import time
from pathlib import Path

import pytest

from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.launcher import (
    Player,
    find_executable,
    log_file_of,
    player_arguments,
    player_log_file,
)

DEADLINE_S = 30.0


def make_executable(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def script(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def becomes_true(condition) -> bool:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


# Finding.


def test_a_program_of_this_environment_needs_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = make_executable(tmp_path / "bin" / "mlagents-sim")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(program.parent))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert find_executable("mlagents-sim") == program
    missing = (
        r"cannot find the executable 'builds/mlagents-sim': the folder 'builds' does not exist\. "
        rf"Check the path\. The current folder is {re.escape(str(tmp_path))}\."
    )
    with pytest.raises(UnityEnvironmentException, match=missing):
        find_executable("builds/mlagents-sim")


@pytest.mark.parametrize("file", ["Ball.x86_64", "Ball.x86", "Ball"])
@pytest.mark.parametrize("suffix", ["", ".x86_64", ".x86", ".app", ".exe"])
def test_a_build_is_found_with_any_suffix_typed(tmp_path, file, suffix):
    executable = make_executable(tmp_path / file)
    assert find_executable(f" {tmp_path}/Ball{suffix} ", platform="linux") == executable


def test_the_64_bit_build_is_preferred_unless_the_other_is_named(tmp_path):
    for name in ("Ball", "Ball.x86", "Ball.x86_64"):
        make_executable(tmp_path / name)
    assert find_executable(f"{tmp_path}/Ball", platform="linux").name == "Ball.x86_64"
    assert find_executable(f"{tmp_path}/Ball.x86", platform="linux").name == "Ball.x86"


def test_suffixes_within_the_path_are_part_of_it(tmp_path):
    executable = make_executable(tmp_path / "my.app.x86_64" / "v1.x86.exercise" / "Ball")
    assert find_executable(str(executable), platform="linux") == executable


def test_a_relative_path_starts_at_the_working_directory(tmp_path, monkeypatch):
    executable = make_executable(tmp_path / "builds" / "Ball.x86_64")
    monkeypatch.chdir(tmp_path)
    assert find_executable("builds/Ball", platform="linux") == executable


def test_a_mac_build_is_found_in_its_bundle(tmp_path):
    programs = tmp_path / "Ball.app" / "Contents" / "MacOS"
    other = make_executable(programs / "Another")
    assert find_executable(f"{tmp_path}/Ball", platform="darwin") == other
    own = make_executable(programs / "Ball")
    assert find_executable(f"{tmp_path}/Ball.app", platform="darwin") == own


def test_a_windows_build_is_found_beside_its_crash_handler(tmp_path):
    make_executable(tmp_path / "Ball" / "UnityCrashHandler64.exe")
    inside = make_executable(tmp_path / "Ball" / "UnityEnvironment.exe")
    assert find_executable(f"{tmp_path}/Ball", platform="win32") == inside
    beside = make_executable(tmp_path / "Ball.exe")
    assert find_executable(f"{tmp_path}/Ball", platform="win32") == beside


def test_a_missing_build_says_what_was_looked_for_and_what_is_near(tmp_path):
    make_executable(tmp_path / "3DBall.x86_64")
    with pytest.raises(UnityEnvironmentException) as refusal:
        find_executable(f"{tmp_path}/3DBal", platform="linux")
    for part in ("3DBal.x86_64", "3DBal.x86", "did you mean '3DBall.x86_64'?"):
        assert part in str(refusal.value)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(UnityEnvironmentException, match=r"folder .*/nowhere' does not exist"):
        find_executable(f"{tmp_path}/nowhere/Ball", platform="linux")


def test_a_folder_is_no_executable_and_what_lies_in_it_is_listed(tmp_path):
    make_executable(tmp_path / "Ball" / "Game.x86_64")
    with pytest.raises(UnityEnvironmentException, match=r"is a folder.* It contains Game.x86_64"):
        find_executable(f"{tmp_path}/Ball", platform="linux")


def test_a_file_that_may_not_be_executed_says_how_to_allow_it(tmp_path):
    executable = make_executable(tmp_path / "Ball.x86_64")
    executable.chmod(stat.S_IRUSR)
    with pytest.raises(UnityEnvironmentException, match=r"chmod \+x '.*Ball\.x86_64'"):
        find_executable(f"{tmp_path}/Ball", platform="linux")


# Arguments.


def test_arguments_come_in_the_order_of_the_protocol():
    assert player_arguments(
        5007, no_graphics=True, log_file="/logs/Player-2.log", additional=["--level", "3"]
    ) == [
        *("-nographics", "-batchmode"),
        *("--mlagents-port", "5007"),
        *("-logFile", "/logs/Player-2.log"),
        *("--level", "3"),
    ]


def test_without_wishes_only_the_port_is_passed():
    assert player_arguments(5005) == ["--mlagents-port", "5005"]


@pytest.mark.parametrize("flag", ["-logFile", "-logfile", "-LOGFILE"])
def test_a_log_file_of_the_user_wins(flag):
    arguments = player_arguments(5005, log_file="/logs/ours", additional=[flag, "theirs"])
    assert arguments == ["--mlagents-port", "5005", flag, "theirs"]


@pytest.mark.parametrize(
    ("arguments", "log_file"),
    [
        ([], None),
        (["--mlagents-port", "5005"], None),
        (["-logFile", "a.log", "--x"], "a.log"),
        (["--x", "-LOGFILE", "-"], "-"),
        (["--x", "-logFile"], None),
    ],
)
def test_the_arguments_say_where_the_log_is(arguments, log_file):
    assert log_file_of(arguments) == log_file


def test_the_log_file_is_absolute_and_named_by_worker_in_a_folder_that_is_made(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert player_log_file("all/logs", 3) == f"{tmp_path}/all/logs/Player-3.log"
    assert (tmp_path / "all" / "logs").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(UnityEnvironmentException, match=r"cannot create the log folder.*file"):
        player_log_file("file", 3)


# Watching and stopping.


def test_the_alarm_rings_when_the_player_exits():
    player = Player(script("import sys; sys.stdin.read()"))  # its input is empty
    ready, _, _ = select.select([player], [], [], DEADLINE_S)
    assert ready == [player]
    assert player.wait(0)
    player.stop(0)


def test_the_alarm_is_silent_while_the_player_runs():
    player = Player(script("import time; time.sleep(60)"))
    assert select.select([player], [], [], 0)[0] == []
    assert player.exit_description() == "is still running"
    player.stop(0)


def test_an_exit_code_is_described_with_the_last_lines():
    player = Player(script("import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"))
    assert player.wait(DEADLINE_S)
    description = player.exit_description(" before dinner")
    assert description.startswith("exited with code 3 before dinner. The last lines it wrote:\n")
    assert {line.strip() for line in description.splitlines()[1:]} == {"one", "two"}
    player.stop(0)


def test_a_player_that_runs_is_quoted_without_waiting_for_more(tmp_path):
    log = tmp_path / "Player.log"
    player = Player([*script("print('loading', flush=True); import time; time.sleep(60)")])
    assert becomes_true(player.last_words)
    assert player.last_words() == ". The last lines it wrote:\n    loading"
    player.stop(0)

    code = f"open({str(log)!r}, 'w').write('no license'); import time; time.sleep(60)"
    player = Player([*script(code), "-logfile", str(log)])
    assert becomes_true(player.last_words)
    assert "no license" in player.last_words()
    player.stop(0)


def test_a_signal_is_described_by_name():
    player = Player(script("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"))
    assert player.wait(DEADLINE_S)
    assert player.exit_description() == "was killed by SIGSEGV, and wrote nothing"
    player.stop(0)


def test_much_output_never_stops_the_player_and_only_its_end_is_kept():
    player = Player(script("for i in range(100000): print('line', i)"))
    assert player.wait(DEADLINE_S)
    lines = player.exit_description().splitlines()
    assert lines[-1].strip() == "line 99999"
    assert len(lines) == 21
    player.stop(0)


def test_the_log_file_is_quoted_unless_it_is_of_an_earlier_run(tmp_path):
    log = tmp_path / "Player-0.log"
    log.write_text("from the past\n")
    os.utime(log, (1, 1))
    player = Player([*script("print('printed')"), "-logFile", str(log)])
    assert player.wait(DEADLINE_S)
    assert "printed" in player.exit_description()
    player.stop(0)

    code = f"print('printed'); open({str(log)!r}, 'w').write('logged')"
    player = Player([*script(code), "-logFile", str(log)])
    assert player.wait(DEADLINE_S)
    assert "logged" in player.exit_description()
    player.stop(0)


def test_a_player_that_exits_in_time_is_not_signalled():
    player = Player(script("import time; time.sleep(0.2)"))
    player.stop(DEADLINE_S)
    assert player.exit_description().startswith("exited with code 0")


def test_a_player_that_does_not_exit_is_terminated():
    player = Player(script("import time; time.sleep(60)"))
    player.stop(0)
    assert player.exit_description().startswith("was killed by SIGTERM")


def test_a_player_that_ignores_termination_is_killed(monkeypatch):
    monkeypatch.setattr("mlagents_envs.launcher._TERMINATE_TIMEOUT_S", 0.1)
    code = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('ready', flush=True); time.sleep(60)"
    )
    player = Player(script(code))
    assert becomes_true(lambda: b"ready" in player._output_tail)
    player.stop(0)
    assert player.exit_description().startswith("was killed by SIGKILL")


def test_an_interrupted_stop_still_ends_the_player(monkeypatch):
    player = Player(script("import time; time.sleep(60)"))
    wait = player.wait

    def interrupted(timeout_s):
        if timeout_s == DEADLINE_S:
            raise KeyboardInterrupt
        return wait(timeout_s)

    monkeypatch.setattr(player, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        player.stop(DEADLINE_S)
    assert wait(0)


@pytest.mark.parametrize("end", ["time.sleep(60)", "os._exit(1)"])
def test_what_the_player_started_ends_with_it(end):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(DEADLINE_S)
        # The child says that it is there by connecting, and that it is gone by hanging up.
        child = (
            "import socket, time;"
            f"s = socket.create_connection({server.getsockname()!r}); time.sleep(60)"
        )
        code = (
            "import os, subprocess, sys, time;"
            f"subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(0.5); {end}"
        )
        player = Player(script(code))
        connection, _ = server.accept()
        with connection:
            connection.settimeout(DEADLINE_S)
            player.stop(0 if "sleep" in end else DEADLINE_S)
            assert connection.recv(1) == b""


def test_stopping_twice_does_nothing():
    player = Player(script("pass"))
    player.stop(DEADLINE_S)
    player.stop(DEADLINE_S)


def test_ctrl_c_in_the_terminal_does_not_reach_the_player():
    player = Player(script("import time; time.sleep(60)"))
    assert os.getsid(player._process.pid) != os.getsid(0)
    assert os.getpgid(player._process.pid) != os.getpgid(0)
    player.stop(0)
    assert player._process.returncode == -signal.SIGTERM


def test_shown_output_goes_to_ours(capfd):
    player = Player(script("print('hello')"), show_output=True)
    player.stop(DEADLINE_S)
    assert capfd.readouterr().out == "hello\n"


NOISE = r"import sys; sys.stdout.write('\x1b[31mred\x1b[0m\x07\r\n' + 'x' * 100_000 + '\nlast\x9b')"


def test_what_a_player_writes_does_not_steer_the_terminal(capfd):
    player = Player(script(NOISE), show_output=True)
    player.stop(DEADLINE_S)
    shown = capfd.readouterr().out
    assert shown.startswith("red\\x07\n") and shown.endswith("x\nlast\\x9b\n")
    assert shown.count("x" * 1000) == 100
    assert player.exit_description().endswith("\n    last\\x9b")


def test_a_file_that_is_no_program_is_refused(tmp_path):
    executable = make_executable(tmp_path / "Ball", "no program\n")
    with pytest.raises(UnityEnvironmentException, match="cannot be started"):
        Player([str(executable)])


# Holding one with others.


def test_a_shared_player_ends_with_the_last_who_holds_it():
    player = Player(script("import sys, time; time.sleep(60)"))
    first, last = player, player.share()
    first.stop(DEADLINE_S)
    assert last.exit_description() == "is still running"
    assert select.select([last], [], [], 0)[0] == []
    last.stop(0)
    assert last.exit_code == -signal.SIGTERM


def test_who_lets_go_of_a_shared_player_that_is_about_to_end_hears_how():
    player = Player(script("import time; time.sleep(0.2); raise SystemExit(3)"))
    first, last = player, player.share()
    first.stop(DEADLINE_S)
    assert first.exit_description().startswith("exited with code 3")
    last.stop(DEADLINE_S)


def test_every_handle_of_a_player_knows_what_it_wrote_last():
    player = Player(
        script("import time; print('early', flush=True); time.sleep(0.3); print('late')")
    )
    other = player.share()
    assert other.wait(DEADLINE_S)
    for handle in (player, other):
        assert handle.last_words().splitlines()[1:] == ["    early", "    late"]
        handle.stop(0)


def test_the_last_who_holds_a_shared_player_waits_for_its_end():
    player = Player(script("import time; time.sleep(0.5)"))
    first, last = player, player.share()
    first.stop(DEADLINE_S)
    last.stop(DEADLINE_S)
    assert last.exit_code == 0


def test_a_shared_player_that_hangs_ends_for_all_and_each_hears_its_own_alarm():
    player = Player(script("import time; time.sleep(60)"))
    first, second, third = player, player.share(), player.share()
    assert len({share.fileno() for share in (first, second, third)}) == 3
    second.stop(0)
    ready, _, _ = select.select([first, third], [], [], DEADLINE_S)
    assert ready == [first, third]
    for share in (first, third):
        assert share.wait(0)
        assert share.exit_description(" in the end").startswith("was killed by SIGTERM in the end")
        share.stop(0)
