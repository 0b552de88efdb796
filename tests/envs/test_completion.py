"""Scripts that complete the arguments of every command in a shell."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest

from mlagents.playing import play
from mlagents.search import command as search
from mlagents.tools import hub
from mlagents.trainers import learn, run_experiment
from mlagents_envs.completion import SHELLS
from mlagents_sim import __main__ as sim

COMMANDS: dict[str, Callable[[Sequence[str]], object]] = {
    "mlagents-learn": learn.main,
    "mlagents-play": play.main,
    "mlagents-search": search.main,
    "mlagents-run-experiment": run_experiment.main,
    "mlagents-push-to-hf": hub.push,
    "mlagents-load-from-hf": hub.load,
    "mlagents-sim": sim.main,
}


def script_of(name: str, shell: str, capfd: pytest.CaptureFixture[str]) -> str:
    pytest.importorskip("shtab")
    with pytest.raises(SystemExit) as ended:
        COMMANDS[name](["--print-completion", shell])
    assert ended.value.code == 0
    return capfd.readouterr().out


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_prints_a_script(
    name: str, shell: str, capfd: pytest.CaptureFixture[str]
) -> None:
    script = script_of(name, shell, capfd)
    assert name in script and "print-completion" in script


COMPLETE = """
{script}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
$(complete -p {name} | sed 's/.*-F \\([^ ]*\\).*/\\1/')
echo "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("mlagents-learn", "mlagents-learn --film-e", "--film-every"),
        ("mlagents-learn", "mlagents-learn --env Small", "SmallWallJump"),
        ("mlagents-play", "mlagents-play --tourn", "--tournament"),
    ],
)
def test_bash_completes_flags_and_worlds(
    name: str, words: str, expected: str, capfd: pytest.CaptureFixture[str]
) -> None:
    bash = shutil.which("bash")
    if bash is None or sys.platform == "win32":
        pytest.skip("there is no bash")
    program = COMPLETE.format(script=script_of(name, "bash", capfd), words=words, name=name)
    found = subprocess.run(
        [bash, "--norc", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert found.stdout.split() == [expected], found.stderr


def test_without_the_package_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SystemExit) as ended:
        play.main(["--print-completion", "bash"])
    assert ended.value.code == 2
    told = capfd.readouterr().err
    assert "needs the package shtab" in told and "pip install" in told
