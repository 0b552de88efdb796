"""The programs on the page on Gymnasium run, one after the other."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "gymnasium.md"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_programs_of_the_page_run():
    pytest.importorskip("gymnasium")
    pytest.importorskip("stable_baselines3")
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(programs) == 7
    names: dict[str, object] = {}
    for program in programs:
        exec(compile(program, PAGE.name, "exec"), names)
