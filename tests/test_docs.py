"""What the pages say can be done: commands parse, files load, links lead somewhere."""

import re
import runpy
import shlex
from pathlib import Path

import pytest
import yaml

from mlagents.trainers.cli_args import parse_command_line
from mlagents.trainers.settings.load import check_run_options
from mlagents.trainers.settings.typed import CommandLine

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def training_commands(page: Path) -> list[list[str]]:
    """Return the arguments of every `mlagents-learn` that stands on a line of its own."""
    lines = re.findall(r"^    mlagents-learn (.*)$", text_of(page), re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


def anchors(page: Path) -> set[str]:
    """Return the names of a page's headings in links."""
    code_removed = re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", code_removed, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(text_of(page)):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_training_commands_are_understood(page: Path) -> None:
    for arguments in training_commands(page):
        if arguments[0] in ("[CONFIG]", "--print-schema"):  # says how, or ends there
            continue
        file = parse_command_line(arguments).config_path
        if file is not None and file.parts[0] == "config":
            assert (ROOT / file).exists(), f"{page.name} names {file}"


def test_the_files_of_the_page_about_training_are_loaded() -> None:
    texts = re.findall(r"```yaml\n(.*?)```", text_of(ROOT / "docs" / "training.md"), re.DOTALL)
    lessons, behaviors, game, against_script, exploited, cooperative, judged = (
        check_run_options(yaml.safe_load(text), CommandLine(Path("page.yaml"), {}))
        for text in texts
    )
    assert list(lessons.environment_parameters or {}) == ["gravity", "scale"]
    assert behaviors.behaviors["Striker"].max_steps == 1_000_000
    assert behaviors.behaviors["Goalie"].network_settings.hidden_units == 128
    assert all(each.behaviors["SoccerTwos"].self_play for each in (game, against_script, exploited))
    assert cooperative.behaviors["PushBlockCollab"].trainer_type == "poca"
    assert judged.evaluation is not None and judged.evaluation.patience == 5


def test_the_page_of_worlds_is_current() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "build_gallery"))
    assert text_of(ROOT / "docs" / "worlds.md") == script["page"](), "run scripts/build_gallery"


def test_worlds_are_drawn_alike() -> None:
    # Three of them, drawn again; the pictures in the folder may come from another machine.
    pytest.importorskip("PIL")
    script = runpy.run_path(str(ROOT / "scripts" / "build_gallery"))
    for name in ("Basic", "GridWorld", "Visual3DBall"):
        entry = script["CATALOG"][name]
        picture = script["draw"](entry)
        assert picture.dtype == "uint8"
        assert (picture == script["draw"](entry)).all()


def test_every_world_has_a_small_picture_or_film_and_no_other_is_there() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "build_gallery"))
    most_of_film = runpy.run_path(str(ROOT / "scripts" / "build_film"))["MOST_BYTES_OF_WORLD"]
    zoo = script["ZooIndex"].read()
    shown = {script["image"](entry, zoo) for entry in script["CATALOG"].values()}
    for path in shown:
        most = script["MAX_BYTES"] if path.suffix == ".png" else most_of_film
        assert 0 < path.stat().st_size <= most, path
    assert shown == {*script["IMAGES"].glob("*.png"), *script["FILMS"].iterdir()}


def test_the_tree_of_the_overview_is_that_of_the_source() -> None:
    _, _, section = text_of(ROOT / "docs" / "overview.md").partition("## Where things live")
    section, _, _ = section.partition("\n## ")
    rooms = re.findall(r"^    (src/\S+)/\n((?:      .*\n)+)", section, re.MULTILINE)
    assert len(rooms) > 3
    for folder, lines in rooms:
        named = set()
        for line in lines.splitlines():
            names = re.match(r"(?:\S+(?:\.py|/) +)*", line.strip())
            named |= {name.rstrip("/") for name in names[0].split()}
        here = {
            path.name
            for path in (ROOT / folder).iterdir()
            if path.suffix == ".py" or (path.is_dir() and path.name != "__pycache__")
        }
        assert named == here - {"__init__.py", "trainers"}, folder
