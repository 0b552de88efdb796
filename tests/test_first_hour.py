"""README, docs/training.md and docs/playing.md followed in order, word by word, in a bare shell.

The commands are read from the pages. They run in one shell, in a copy of the checkout, with nothing
but the system's own programs on the PATH. What a page does not install or activate is not found,
and a run id that was used before is refused. Two things differ from a reader's hour. pip takes
nothing from an index: the packages of this Python stand in the virtual environment beforehand. And
training is ended by Ctrl-C once it has learned for a while, unless the page says where it ends.
"""

import importlib.metadata
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from hub_server import HubServer, hub_server

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/training.md", "docs/playing.md")
PROGRAMS = r"(make|pip|python3?|sed|tensorboard|mlagents-[a-z-]+|\.) "
COMMAND = re.compile(rf"^    ({PROGRAMS}(?:.*\\\n)*.*)", re.MULTILINE)
FILE = re.compile(r"`([\w.]+\.yaml)`:\n\n```yaml\n(.*?)```", re.DOTALL)
EDITOR_PORT = 5004
OLDEST_SETUPTOOLS = (77,)
TIMEOUT_S = 240.0

# What a reader has: a configuration, a build, a module and a file of old.
OWN_CONFIGURATION = """
behaviors:
  3DBall:
    trainer_type: ppo
    hyperparameters: {batch_size: 64, buffer_size: 1200}
    summary_freq: 1200
"""
OWN_BUILD = """#!/bin/sh
exec "{python}" -m mlagents_sim 3DBall "$@"
"""
OWN_MODULE = """
from mlagents_envs.registry import default_registry

def make_environment(seed):
    return default_registry["3DBall"].make(seed=seed)
"""
# TensorBoard prints its address before it handles Ctrl-C.
TENSORBOARD = """#!{python}
import sys
from tensorboard.main import run_main
try:
    run_main()
except KeyboardInterrupt:
    sys.exit(130)
"""
OLD_CONFIGURATION = "default: {trainer: ppo, batch_size: 64, buffer_size: 1200}\n3DBall: {}\n"


class Command(NamedTuple):
    """One command of a page."""

    page: str
    text: str

    @property
    def words(self) -> str:
        return self.text.partition("#")[0].strip()

    @property
    def program(self) -> str:
        return Path(self.words.split()[0]).name

    @property
    def ends_when(self) -> str | None:
        """What it has to print before it is ended by Ctrl-C; None if it ends by itself."""
        if self.program == "tensorboard":
            return "http://"
        trains = self.program in ("mlagents-learn", "mlagents-run-experiment")
        if not trains and self.words != "make train":
            return None
        ends_itself = self.page == "docs/training.md" and "--stop-at-reward" in self.words
        return None if ends_itself or "--print-schema" in self.words else ". Step: "


def commands_of(page: str) -> list[Command]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [Command(page, found[0]) for found in COMMAND.findall(text)]


def test_the_pages_have_commands() -> None:
    counts = {page: len(commands_of(page)) for page in PAGES}
    assert counts["README.md"] >= 18
    assert counts["docs/training.md"] >= 11
    assert counts["docs/playing.md"] >= 3


def test_no_run_id_is_used_twice() -> None:
    used = set()
    for page in PAGES:
        for command in commands_of(page):
            run_id = re.search(r"mlagents-learn .*--run-id (\S+)", command.words)
            if run_id and not re.search("--resume|--force", command.words):
                assert run_id[1] not in used, f"{page}: {command.words}"
                used.add(run_id[1])
    assert {"ball", "first"} <= used


class Shell:
    """A shell that knows nothing but the system's own programs.

    Args:
        folder: Where it is.
        environment: All its environment variables.
    """

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._before: list[str] = []  # what was typed and changes the shell itself

    def run(self, command: Command, *, beside: Callable[[], None] = lambda: None) -> str:
        """Run a command as typed, and Ctrl-C if it does not end itself; return what it prints.

        Args:
            command: The command.
            beside: What the reader does once it listens for the Editor.
        """
        ends_when = command.ends_when
        text = command.text if ends_when is None else f"exec {command.text}"
        process = subprocess.Popen(
            ["/bin/sh", "-c", "\n".join(["set -e", *self._before, text])],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # As in a terminal: what runs in the background may have been told to ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        clock = threading.Timer(TIMEOUT_S, os.killpg, (process.pid, signal.SIGKILL))
        clock.start()
        lines = []
        assert process.stdout is not None
        with process:
            for line in process.stdout:
                lines.append(line)
                if "istening on port" in line:
                    beside()
                if ends_when is not None and ends_when in line:
                    ends_when = None
                    os.killpg(process.pid, signal.SIGINT)
        status = process.returncode
        clock.cancel()
        printed = "".join(lines)
        what = f"{command.page}: {command.text}\nexit status {status}\n{printed}"
        says_by_status = command.program in ("make", "tensorboard")  # that it was interrupted
        assert status == 0 or (command.ends_when and says_by_status), what
        assert ends_when is None, f"ended early: {what}"
        assert "Traceback" not in printed and "[ERROR]" not in printed, what
        if command.words.startswith(". "):
            self._before.append(command.words)
        return printed

    def start(self, command: Command) -> "subprocess.Popen[bytes]":
        """Run a command in another terminal, activated like this one."""
        return subprocess.Popen(
            ["/bin/sh", "-c", "\n".join([*self._before, f"exec {command.words}"])],
            cwd=self._folder,
            env=self._environment,
        )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A fresh copy of the project, with what a reader has of their own."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is not a git checkout, which says what belongs to the project")
    copy = tmp_path / "mlagents-next"
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    if (ROOT / "build/native").exists():  # compiled when this checkout was installed
        shutil.copytree(ROOT / "build/native", copy / "build/native")
    for page in PAGES:
        for name, text in FILE.findall((ROOT / page).read_text(encoding="utf-8")):
            (copy / name).write_text(text)
    (copy / "my_config.yaml").write_text(OWN_CONFIGURATION)
    (copy / "old.yaml").write_text(OLD_CONFIGURATION)
    (copy / "my_package").mkdir()
    (copy / "my_package" / "my_module.py").write_text(OWN_MODULE)
    build = copy / "path" / "to" / "build"
    build.parent.mkdir(parents=True)
    build.write_text(OWN_BUILD.format(python=copy / ".venv" / "bin" / "python"))
    build.chmod(0o755)
    return copy


@pytest.fixture
def hub() -> Iterator[HubServer]:
    pytest.importorskip("huggingface_hub")
    with hub_server() as server:
        yield server


@pytest.fixture
def environment(checkout: Path, hub: HubServer, tmp_path: Path) -> dict[str, str]:
    """All environment variables of the reader's shell; the virtual environment stands ready."""
    venv = checkout / ".venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    # Behind what is installed into it: all that this Python has.
    (packages,) = venv.glob("lib/python*/site-packages")
    have = sysconfig.get_path("purelib")
    (packages / "zz_have.pth").write_text(f"import site; site.addsitedir({have!r})\n")
    put_setuptools_into(packages)
    tensorboard = venv / "bin" / "tensorboard"
    tensorboard.write_text(TENSORBOARD.format(python=venv / "bin" / "python"))
    tensorboard.chmod(0o755)
    # The Python that the pages call python3.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    return {
        "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # which is how pip spells that there is none
        "HF_ENDPOINT": hub.address,
        "HF_HOME": str(tmp_path / "hf"),
        "HF_TOKEN": hub.TOKEN,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "PYTHONUNBUFFERED": "1",  # TensorBoard tells its address to a terminal at once
    }


def put_setuptools_into(packages: Path) -> None:
    """Give a virtual environment what builds the project, which pip would fetch from an index."""
    found = [
        (tuple(map(int, each.version.split(".")[:2])), each)
        for each in importlib.metadata.distributions(name="setuptools")
    ]
    version, newest = max(found, key=lambda each: each[0], default=((0,), None))
    if newest is None or version < OLDEST_SETUPTOOLS:
        pytest.skip(f"this Python has no setuptools of version {OLDEST_SETUPTOOLS[0]} or later")
    for name in ("setuptools", "_distutils_hack", f"setuptools-{newest.version}.dist-info"):
        shutil.rmtree(packages / name, ignore_errors=True)
        shutil.copytree(str(newest.locate_file(name)), packages / name)


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.skipif(os.name == "nt", reason="types what another shell understands")
def test_the_pages_do_what_they_say(environment: dict[str, str], checkout: Path) -> None:
    if not is_free(EDITOR_PORT):
        pytest.skip(f"something listens on port {EDITOR_PORT}, where the Editor is awaited")
    shell, printed = Shell(checkout, environment), {}
    players: list[subprocess.Popen[bytes]] = []
    commands = [command for page in PAGES for command in commands_of(page)]
    for command, following in zip(commands, [*commands[1:], None], strict=True):
        if command.words.startswith("mlagents-sim ") and players:
            continue  # it has played for the command before
        if command.words == "make test":
            command = command._replace(text="make --dry-run test")  # this is one of them
        play = following if following and following.words.startswith("mlagents-sim ") else None
        press = play or Command(command.page, "mlagents-sim 3DBall")
        started = time.monotonic()
        printed[command.words] = shell.run(
            command, beside=lambda press=press: players.append(shell.start(press))
        )
        print(f"{time.monotonic() - started:5.1f} s  {command.words}")
        while players and play is None:
            players.pop().wait(60)

    (packages,) = checkout.glob(".venv/lib/python*/site-packages/mlagents")
    assert (packages / "config/ppo/3DBall.yaml").exists(), "what is installed has the files"
    assert (checkout / "results/first-3DBall/3DBall.mp4").stat().st_size > 10_000
    assert (checkout / "ball.gif").exists() and (checkout / "basic.gif").exists()
    tutorial = printed["mlagents-learn --env Basic --run-id first --seed 1 --stop-at-reward 0.9"]
    assert "ended by stop_at_reward: 0.9" in tutorial

    # What the programs print can be typed too, in a shell where nothing is activated.
    advice = re.findall(r"^    (\S+mlagents-learn .*)$", printed["make train"], re.MULTILINE)
    assert len(advice) == 2, "to resume, and to see it act"
    for text in advice:
        Shell(checkout, environment).run(Command("make train", text))
