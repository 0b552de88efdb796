import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mlagents_envs import logging_util
from mlagents_envs.logging_util import DEBUG, INFO, WARNING, get_logger, printable, set_log_level


@pytest.fixture(autouse=True)
def _level_info() -> Iterator[None]:
    yield
    set_log_level(INFO)


def test_info_lines_are_level_and_text_on_stdout(capsys: pytest.CaptureFixture[str]):
    get_logger("mlagents_envs.some.module").info("%d agents", 3)
    get_logger("mlagents_envs").warning("careful")
    captured = capsys.readouterr()
    assert captured.out == "[INFO] 3 agents\n[WARNING] careful\n"
    assert captured.err == ""


def test_below_the_level_nothing_is_printed(capsys: pytest.CaptureFixture[str]):
    logger = get_logger("mlagents_envs.quiet")
    logger.debug("hidden")
    set_log_level(WARNING)
    logger.info("hidden")
    logger.warning("shown")
    assert capsys.readouterr().out == "[WARNING] shown\n"


def test_at_debug_a_line_says_when_and_where(capsys: pytest.CaptureFixture[str]):
    set_log_level(DEBUG)
    get_logger("mlagents_envs").info("text")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d INFO \[test_logging_util\.py:\d+\] text\n",
        capsys.readouterr().out,
    )


def test_the_level_also_holds_for_packages_that_log_later(capsys: pytest.CaptureFixture[str]):
    set_log_level(WARNING)
    logger = get_logger("a_package_not_seen_before.module")
    logger.info("hidden")
    logger.warning("shown")
    assert capsys.readouterr().out == "[WARNING] shown\n"


def test_asking_twice_prints_once(capsys: pytest.CaptureFixture[str]):
    assert get_logger("mlagents_envs.twice") is get_logger("mlagents_envs.twice")
    get_logger("mlagents_envs.twice").info("once")
    assert capsys.readouterr().out == "[INFO] once\n"


def test_level_names_are_those_of_logging():
    for name in ("CRITICAL", "FATAL", "ERROR", "WARNING", "INFO", "DEBUG", "NOTSET"):
        assert getattr(logging_util, name) == getattr(logging, name)


def test_the_root_logger_is_left_alone():
    program = (
        "import logging\n"
        "from mlagents_envs.logging_util import get_logger, set_log_level, DEBUG\n"
        "get_logger('mlagents_envs.x'); set_log_level(DEBUG)\n"
        "root = logging.getLogger()\n"
        "assert not root.handlers and root.level == logging.WARNING\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a disk that is always full")
def test_lines_that_cannot_be_written_are_lost_and_standard_error_says_so_once():
    program = (
        "import os, sys\n"
        "from mlagents_envs.logging_util import get_logger\n"
        "for number in range(3):\n"
        "    get_logger('mlagents_envs.x').info(f'line {number}')\n"
        "sys.stdout = open(os.devnull, 'w')\n"
    )
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, timeout=60
        )
    said = done.stderr.decode().splitlines()
    assert said[0] == "The log cannot be written: [Errno 28] No space left on device."
    assert not [line for line in said[1:] if "log" in line]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_who_has_read_enough_may_leave(unbuffered):
    program = (
        "import sys\n"
        "from mlagents_envs.logging_util import reader_may_leave\n"
        "sys.stdin.read()\n"
        "with reader_may_leave():\n"
        "    print('one')\n"
        "    print('two')\n"
        "print('three')\n"
    )
    player = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    player.stdout.close()
    assert player.communicate(timeout=60)[1] == b""
    assert player.returncode == 0


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\nlines\tand a tab, ü 🤖", "two\nlines\tand a tab, ü 🤖"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hgone", "gone"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("over\rwritten\b", "over\\rwritten\\x08"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202eturned", "\\u202eturned"),
        ("\x1b\x1b[mx", "\\x1bx"),
    ],
)
def test_a_terminal_only_shows_what_is_logged(
    text: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printable(text) == shown
    get_logger("mlagents_envs").info("%s", text)
    assert capsys.readouterr().out == f"[INFO] {shown}\n"
