"""The commands are where the package says they are."""

import importlib
import tomllib
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("name", PROJECT["scripts"])
def test_a_command_explains_itself(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, _, function = PROJECT["scripts"][name].partition(":")
    command = getattr(importlib.import_module(module), function)
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit) as exit_:
        command()
    assert exit_.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {name} ")
