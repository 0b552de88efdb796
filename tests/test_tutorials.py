"""Every notebook of a tutorial, executed cell by cell in an empty folder."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
TIMEOUT_S = 240.0


def cells_of(notebook: Path) -> list[str]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def commands_of(notebook: Path) -> list[str]:
    lines = "\n".join(cells_of(notebook)).splitlines()
    return [line.removeprefix("!") for line in lines if line.startswith("!")]


def test_all_commands_of_the_tutorials_are_in_notebooks() -> None:
    assert len(NOTEBOOKS) == 6
    for notebook in NOTEBOOKS:
        page = ROOT / "docs" / "tutorials" / f"{notebook.stem}.md"
        typed = re.findall(r"^    (mlagents-.*|python .*)$", page.read_text("utf-8"), re.MULTILINE)
        assert commands_of(notebook) == typed
        assert typed
    (elsewhere,) = {page.stem for page in PAGES} - {notebook.stem for notebook in NOTEBOOKS}
    assert elsewhere == "first_build", "the one that needs Unity"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="types what another shell understands")
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_tutorial_does_what_it_says(notebook: Path, tmp_path: Path) -> None:
    for module in ("PIL", "onnxruntime"):
        pytest.importorskip(module)
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for cell in cells_of(notebook):
        if cell.startswith("%%writefile "):
            first, _, text = cell.partition("\n")
            (tmp_path / first.split()[1]).write_text(text)
            continue
        for command in cell.splitlines():
            done = subprocess.run(
                command.removeprefix("!"),
                shell=True,
                cwd=tmp_path,
                env={**os.environ, "PATH": programs},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
            )
            printed = f"{command}\n{done.stdout}\n{done.stderr}"
            assert done.returncode == 0, printed
            assert "[ERROR]" not in printed and "Traceback" not in printed, printed
            if "--stop-at-reward" in command:
                assert "ended by stop_at_reward" in printed, printed
            if film := re.search(r"--render (\S+)", command):
                assert (tmp_path / film[1]).stat().st_size > 1000
