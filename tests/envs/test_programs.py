"""Commands that are shown work in the shell that they are shown in."""

import importlib.metadata
import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from mlagents_envs import programs
from mlagents_envs.programs import command, install_command, program, python

SCRIPTS = Path(sysconfig.get_path("scripts"))
BARE = "/usr/bin:/bin"

pytestmark = pytest.mark.skipif(os.name == "nt", reason="paths and quotes as other shells do")


def make_program(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The scripts of a virtual environment in the working folder, which is not activated."""
    folder = tmp_path / ".venv" / "bin"
    for name in ("mlagents-learn", "tensorboard", "python"):
        make_program(folder, name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(folder))
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", BARE)
    return folder


def test_a_program_that_the_shell_does_not_find_is_called_by_its_path(scripts: Path) -> None:
    assert program("mlagents-learn") == [".venv/bin/mlagents-learn"]
    assert python() == [".venv/bin/python"]


def test_in_another_folder_the_path_is_whole(
    scripts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert program("tensorboard") == [str(scripts / "tensorboard")]
    monkeypatch.chdir(scripts)
    assert program("tensorboard") == [str(scripts / "tensorboard")], "a shell looks not in here"


def test_a_program_that_the_shell_finds_is_called_by_its_name(
    scripts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{scripts}:{BARE}")
    assert program("tensorboard") == ["tensorboard"] and python() == ["python"]


def test_another_program_of_the_same_name_is_not_taken_for_ours(
    scripts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_program(tmp_path / "other", "tensorboard").parent
    # Even a link to the same Python is of another environment.
    (other / "python").symlink_to(scripts / "python")
    monkeypatch.setenv("PATH", f"{other}:{BARE}")
    assert program("tensorboard") == [".venv/bin/tensorboard"]
    assert python() == [".venv/bin/python"]


def test_what_is_no_program_here_is_run_as_a_module(scripts: Path) -> None:
    assert program("mlagents-sim") == [".venv/bin/python", "-m", "mlagents_sim"]


@pytest.mark.parametrize("name", programs._MODULES)
def test_a_printed_command_runs_in_a_bare_shell(name: str, tmp_path: Path) -> None:
    code = f"from mlagents_envs.programs import *; print(command(*program({name!r}), '--help'))"
    bare = {"PATH": BARE, "HOME": str(tmp_path)}
    shown = subprocess.run(
        [sys.executable, "-c", code], env=bare, capture_output=True, text=True, check=True
    ).stdout
    done = subprocess.run(shown, shell=True, env=bare, capture_output=True, text=True)
    assert done.returncode == 0 and "usage:" in done.stdout, done.stderr


def test_words_are_quoted() -> None:
    assert command("pip", "install", "a>=1", "b c") == "pip install 'a>=1' 'b c'"


REQUIRED = [
    "numpy>=2.0",
    'torch>=2.4; extra == "train"',
    "gymnasium>=1.1; extra == 'gym'",
    'mlagents-next[gym]; extra == "sb3"',
    'stable-baselines3>=2.6; extra == "sb3"',
    'mlagents-next[train,gym]; extra == "all"',
    'package[with]>=3; python_version >= "3.11" and extra == "odd"',
]


@pytest.mark.parametrize(
    ("extra", "installed", "packages"),
    [
        ("gym", [], ["gymnasium>=1.1"]),
        ("sb3", [], ["gymnasium>=1.1", "stable-baselines3>=2.6"]),
        ("sb3", ["gymnasium"], ["stable-baselines3>=2.6"]),
        ("all", [], ["torch>=2.4", "gymnasium>=1.1"]),
        ("odd", [], ["package[with]>=3"]),
        ("gym", ["gymnasium"], ["gymnasium>=1.1"]),
    ],
    ids=["gym", "sb3", "one is there", "all", "odd", "broken"],
)
def test_an_extra_is_installed_by_the_packages_that_are_missing(
    extra: str, installed: list[str], packages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: REQUIRED)
    monkeypatch.setattr(programs, "_is_installed", lambda name: name in installed)
    *_, pip, install = shlex.split(install_command(extra))[: -len(packages)]
    assert (pip, install) == ("pip", "install")
    assert shlex.split(install_command(extra))[-len(packages) :] == packages


@pytest.mark.parametrize("extra", ["train", "gym", "sb3", "pettingzoo", "images", "play", "hub"])
def test_no_advice_names_this_distribution(extra: str) -> None:
    # It is not on a package index: what has its name there is someone else's.
    assert "mlagents-next" not in install_command(extra)


def test_a_checkout_that_is_not_installed_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    assert install_command("play").endswith("pip install '.[play]'")
