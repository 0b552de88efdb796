import ctypes
import importlib.metadata
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mlagents_native import library
from mlagents_native.library import (
    FOLDER,
    VARIABLE,
    Library,
    NativeError,
    Part,
    announced,
    open_library,
    the_library,
)

ROOT = Path(__file__).parents[2]

needs_library = pytest.mark.skipif(
    isinstance(the_library(), NativeError), reason=f"the native library: {the_library()}"
)


def built_library() -> Library:
    found = the_library()
    assert isinstance(found, Library)
    return found


@needs_library
@pytest.mark.parametrize("instructions", library.INSTRUCTION_SETS)
def test_every_library_that_this_processor_runs_gives_the_result_of_its_check(instructions):
    try:
        found = open_library(choice=instructions)
    except NativeError as error:
        assert "this processor does not have" in str(error)
        pytest.skip(str(error))
    x = (ctypes.c_double * 3)(1, 2, 3)
    y = (ctypes.c_double * 3)(10, 100, 1000)
    assert found.functions.native_dot(x, y, 3) == 3210
    assert found.instructions == instructions


def test_a_missing_library_is_not_used(tmp_path):
    with pytest.raises(NativeError, match=r"it was not built. To build it, install a C\+\+ comp"):
        open_library(tmp_path, "auto")


def test_a_broken_library_is_not_used(tmp_path):
    path = library._path(tmp_path, "baseline")
    path.write_bytes(b"\x7fELF of another processor, or half of a file" * 100)
    with pytest.raises(NativeError, match=f"{path.name} cannot be loaded: .*install a C"):
        open_library(tmp_path, "auto")


def test_a_library_without_our_functions_is_not_used(tmp_path, monkeypatch):
    library._path(tmp_path, "baseline").touch()
    monkeypatch.setattr(ctypes, "CDLL", lambda path: ctypes.pythonapi)
    with pytest.raises(NativeError, match=r"cannot be loaded: .*native_instruction_sets"):
        open_library(tmp_path, "auto")


class FakeFunction:
    def __init__(self, result):
        self.result = result

    def __call__(self, *arguments):
        return self.result


class FakeFunctions:
    def __init__(self, *, dot=506.0, sets=0, version=1):
        self.native_dot = FakeFunction(dot)
        self.native_instruction_sets = FakeFunction(sets)
        self.sums_version = FakeFunction(version)


def test_a_library_that_computes_something_else_is_not_used(tmp_path, monkeypatch):
    library._path(tmp_path, "baseline").touch()
    monkeypatch.setattr(ctypes, "CDLL", lambda path: FakeFunctions(dot=505.9))
    with pytest.raises(NativeError, match=r"as 505\.9, not as 506"):
        open_library(tmp_path, "auto")


@pytest.mark.parametrize(
    ("sets", "built", "expected"),
    [
        (0, ["avx2", "avx512"], "baseline"),
        (1, ["avx2", "avx512"], "avx2"),
        (3, ["avx2", "avx512"], "avx512"),
        (3, ["avx2"], "avx2"),
        (3, [], "baseline"),
    ],
)
def test_the_fastest_library_is_chosen_that_exists_and_runs(
    tmp_path, monkeypatch, sets, built, expected
):
    for name in ["baseline", *built]:
        library._path(tmp_path, name).touch()
    monkeypatch.setattr(ctypes, "CDLL", lambda path: FakeFunctions(sets=sets))
    assert open_library(tmp_path, "auto").instructions == expected


def test_instructions_that_the_processor_lacks_are_refused(tmp_path, monkeypatch):
    for name in library.INSTRUCTION_SETS:
        library._path(tmp_path, name).touch()
    monkeypatch.setattr(ctypes, "CDLL", lambda path: FakeFunctions(sets=1))
    with pytest.raises(NativeError, match="avx512: this processor does not have AVX-512"):
        open_library(tmp_path, "avx512")


@pytest.mark.parametrize(
    ("choice", "message"),
    [("off", "switches it off"), ("fast", "expected auto, off, avx512, avx2, baseline")],
)
def test_the_variable_switches_the_library_off_or_is_refused(monkeypatch, choice, message):
    monkeypatch.setenv(VARIABLE, choice)
    with pytest.raises(NativeError, match=message):
        open_library()


def part(opened, check=lambda functions: None) -> Part:
    return Part(
        "sums",
        version=1,
        declare=lambda functions: None,
        check=check,
        otherwise="NumPy",
        open_library=lambda: opened,
    )


def test_a_part_is_used_and_says_so_once(caplog):
    sums = part(Library(FakeFunctions(), "avx2"))
    with caplog.at_level(logging.INFO):
        sums.announce(logging.getLogger("a package"))
        sums.announce(logging.getLogger("a package"))
    assert isinstance(sums.load(), FakeFunctions)
    assert (sums.reason, sums.instructions) == (None, "avx2")
    (line,) = caplog.messages
    assert line == (
        "sums: computed by the native library with AVX2. MLAGENTS_NATIVE=off would use NumPy."
    )


def test_a_part_without_the_library_says_why_once(caplog):
    sums = part(NativeError("it was not built. Build it."))
    with caplog.at_level(logging.INFO):
        sums.announce(logging.getLogger("a package"))
        sums.announce(logging.getLogger("a package"))
    assert sums.load() is None and sums.instructions is None
    (line,) = caplog.messages
    assert line == (
        "sums: computed by NumPy, without the native library: it was not built. Build it."
    )


def test_parts_that_are_used_meanwhile_are_announced_once(caplog):
    before, used, unused = (part(Library(FakeFunctions(), "avx2")) for _ in range(3))
    with caplog.at_level(logging.INFO):
        before.load()
        with announced(logging.getLogger("a program")):
            used.load()
            used.load()
            assert unused.reason is None
        unused.load()
    assert [record.name for record in caplog.records] == ["a program"]
    assert caplog.messages[0].startswith("sums: computed by the native library")


def test_a_part_from_other_sources_steps_aside():
    sums = part(Library(FakeFunctions(version=2), "baseline"))
    assert sums.load() is None
    assert "version 2 of 'sums', expected 1. Install the package again" in (sums.reason or "")


@needs_library
def test_a_part_that_the_library_lacks_steps_aside():
    sums = part(built_library())
    assert sums.load() is None
    assert "built from other sources" in (sums.reason or "")


def test_a_part_that_computes_something_else_steps_aside():
    def check(functions):
        raise NativeError("sums differ by 3")

    sums = part(Library(FakeFunctions(), "baseline"), check)
    assert sums.load() is None
    assert sums.reason == "sums differ by 3"


def run_without_path(arguments, **options):
    """Run Python with an empty PATH and no names of compilers."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PATH", "CC", "CXX", "LDSHARED", "LDCXXSHARED")
    }
    return subprocess.run(
        [sys.executable, *arguments],
        env=kept | {"PATH": ""},
        capture_output=True,
        text=True,
        check=True,
        **options,
    )


def test_loading_needs_no_programs():
    code = "from mlagents_native.library import the_library; print(type(the_library()).__name__)"
    printed = run_without_path(["-c", code]).stdout.strip()
    assert printed == type(the_library()).__name__


# Not imported here, because that would replace distutils for all other tests.
needs_setuptools = pytest.mark.skipif(
    int(importlib.metadata.version("setuptools").partition(".")[0]) < 77,
    reason="needs setuptools 77 or later",
)


@pytest.mark.slow
@needs_setuptools
def test_the_project_builds_without_a_compiler(tmp_path):
    source = FOLDER / "source"
    shutil.copytree(source, tmp_path / source.relative_to(ROOT))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    package = tmp_path / "src" / "mlagents_envs"
    package.mkdir()
    shutil.copy(FOLDER.parent / "mlagents_envs" / "__init__.py", package)
    # A compiler named by its full path is found without PATH.
    broken = f"import os; os.environ.update(dict.fromkeys(['CC', 'CXX'], '{tmp_path}/none'))"
    build = f"{broken}; import runpy, sys; sys.argv = ['setup.py', 'build', '--build-lib', 'out']"
    run = f"{build}; runpy.run_path('setup.py', run_name='__main__')"
    done = run_without_path(["-W", "ignore", "-c", run], cwd=tmp_path)
    assert "failed" in done.stderr + done.stdout
    assert (tmp_path / "out" / "mlagents_envs" / "__init__.py").exists()
    assert not list((tmp_path / "out").rglob("library_*"))


COMPILER = """#!/bin/sh
echo "$@" >>{log}
while [ "$1" != -o ]; do shift; done
echo built >"$2"
"""


@needs_setuptools
@pytest.mark.skipif(os.name == "nt", reason="the compiler is a script for a shell")
def test_a_second_build_compiles_only_what_has_changed(tmp_path):
    source = tmp_path / (FOLDER / "source").relative_to(ROOT)
    source.mkdir(parents=True)
    (source / "library.cpp").write_text("int one;")
    (source / "library.h").write_text("")
    shutil.copy(ROOT / "setup.py", tmp_path)
    log, compiler = tmp_path / "log", tmp_path / "c++"
    compiler.write_text(COMPILER.format(log=log))
    compiler.chmod(0o755)

    def build(into):
        command = [sys.executable, "-W", "ignore", "setup.py", "-q", "build_ext", "-b", into]
        variables = dict.fromkeys(["CC", "CXX", "LDSHARED", "LDCXXSHARED"], str(compiler))
        subprocess.run(command, cwd=tmp_path, env=os.environ | variables, check=True)
        assert list((tmp_path / into).rglob("library_*")), "the libraries are there"
        return len(log.read_text().splitlines())

    calls = build("first")
    assert build("second") == calls > 0
    (source / "library.h").write_text("int two;")
    assert build("third") == 2 * calls
