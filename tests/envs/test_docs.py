"""The programs on the pages about environments run, each on its own."""

import os
import sys
from pathlib import Path

import pytest

from document_examples import run_examples

# How many programs a page has, so that none is lost to a misspelt fence.
PAGES = {"api.md": 10, "side_channels.md": 7, "protocol.md": 2, "moving_over.md": 1}


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_a_page_run(page, monkeypatch):
    if page == "moving_over.md":
        pytest.importorskip("gymnasium")
    # Where `mlagents-sim` lies when this Python's environment is not activated.
    scripts = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", scripts, prepend=os.pathsep)
    assert run_examples(page) == PAGES[page]
