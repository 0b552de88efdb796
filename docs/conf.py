"""How Sphinx builds the site from these pages: `make site`.

The pages are read on their own too, without Sphinx: links lead to files of the checkout. Here,
links to files beside `docs/` are led to the pages that include them.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

project = "mlagents-next"
copyright = "the mlagents-next authors, Apache License 2.0"
release = version = importlib.metadata.version("mlagents-next")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}

html_theme = "furo"
html_title = f"mlagents-next {release}"
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}

myst_enable_extensions = ["deflist", "tasklist"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
highlight_language = "console"
copybutton_exclude = ".linenos, .gp, .go"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
# Docstrings write `code` in single backquotes, as Markdown does.
default_role = "literal"

# Links to files beside this folder lead to the pages that include them.
PAGES_OF = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
OUTSIDE = re.compile(rf"\]\((?:\.\./)+({'|'.join(map(re.escape, PAGES_OF))})(?:#[^)]*)?\)")


def lead_links_to_pages(app: Sphinx, page: str, text: list[str]) -> None:
    """Replace links to files that are pages of the site under another name."""
    up = "../" * page.count("/")
    text[0] = OUTSIDE.sub(lambda link: f"]({up}{PAGES_OF[link[1]]})", text[0])


def leave_out_fields(
    app: Sphinx, what: str, name: str, thing: object, skip: bool, options: object
) -> bool | None:
    """Leave out the fields of named tuples, which the docstring of the class describes."""
    return True if type(thing).__name__ == "_tuplegetter" else None


SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields):")
LIST = re.compile(r"\s*([-*]|\d+\.) ")


def read_docstring_as_written(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Mark indented lines of a docstring as code, and keep the stars of shapes."""
    written, lines[:] = list(lines), []
    in_text, before = True, ""
    for number, line in enumerate(written):
        in_text = in_text and not SECTION.fullmatch(line)
        begins = line.startswith("    ") and number > 0 and not written[number - 1].strip()
        if in_text and begins and not before.startswith("    ") and not LIST.match(before):
            lines += ["::", ""]
        if line.strip():
            before = line
        lines.append(re.sub(r"\*(?=\w+\))", r"\\*", line))


class Help(SphinxDirective):
    """What a command prints with `--help`, for example of `mlagents-learn`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Run the command of this environment, in lines of the width of this page."""
        (command,) = self.arguments
        program = shutil.which(command, path=Path(sys.executable).parent)
        if program is None:
            raise self.error(f"{command} is not installed in the environment of this Python")
        printed = subprocess.run(
            [program, "--help"],
            env={**os.environ, "COLUMNS": "84", "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        return [nodes.literal_block(printed, printed, language="text")]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register what this file adds to Sphinx."""
    app.connect("source-read", lead_links_to_pages)
    app.connect("autodoc-skip-member", leave_out_fields)
    # Before napoleon, which rewrites the sections of docstrings.
    app.connect("autodoc-process-docstring", read_docstring_as_written, priority=400)
    app.add_directive("help", Help)
    return {"parallel_read_safe": True}
