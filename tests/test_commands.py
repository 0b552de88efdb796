"""The programs, where a package that they need is missing."""

import subprocess
import sys

import pytest

from mlagents import commands


@pytest.mark.parametrize(
    ("start", "missing"),
    [("learn", "pydantic"), ("run_experiment", "yaml"), ("push_to_hf", "yaml")],
)
def test_a_program_that_lacks_a_package_says_how_to_install_it(start: str, missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None; from mlagents import commands; "
        f"sys.exit(commands.{start}())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    says, how = done.stderr.splitlines()
    assert f"needs the package {missing}. Install what it needs:" in says
    assert "pip install " in how and "mlagents-next" not in how


def test_a_missing_module_of_our_own_is_not_explained_away() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"mlagents\.nothing"):
        commands._run("mlagents-learn", "mlagents.nothing", extra="train")
