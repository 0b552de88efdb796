"""The check of wordings finds those that the rules replace, and no others."""

import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "check_english"))


def found(text: str) -> list[tuple[int, str]]:
    return [(line, words) for line, words, _ in SCRIPT["findings"](text)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("    seed: Of the samples.\n", "Of"),
        ("    value: It.\n", "It."),
        ("    *names (str): Likewise.\n", "Likewise"),
        ("    maximum: The same for the other end.\n", "The same"),
        ('    """Of the network."""\n', "Of"),
        ("raise ValueError('x is no size')\n", "is no size"),
        ("That is No model.\n", "is No model"),
        ("Training begins anew.\n", "anew"),
        ("Whoever plays need not know.\n", "Whoever"),
        ("A slow player holds up nobody.\n", "nobody"),
    ],
)
def test_a_wording_is_found(text: str, words: str) -> None:
    assert found("\n" + text) == [(2, words)]


@pytest.mark.parametrize(
    "text",
    [
        "    seed: Seed of the samples.\n",
        "    item: Item.\n",
        "# Of course.\n",
        "The run is no longer needed, and is no more than a copy.\n",
        "If there is no free port,\nor there\n    is no player, it waits.\n",
        "`value: It.`, `is no size` and `nobody` are quoted.\n",
        "anewline\n",
    ],
)
def test_other_wordings_pass(text: str) -> None:
    assert found(text) == []


def test_a_wording_is_found_across_lines_comments_and_strings() -> None:
    assert found("that is\nno model\n") == [(1, "is no model")]
    assert found("# that is\n# no model\n")[0][0] == 1
    assert found('f"{name} is "\n    f"no model"\n')[0][0] == 1
