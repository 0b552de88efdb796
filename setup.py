"""Builds the native library; `pyproject.toml` holds everything else about the project.

The library is optional: if there is no C++ compiler, the package installs without it. Every file of
`src/mlagents_native/source` is compiled once for each instruction set, into one library each. The
libraries are loaded by ctypes, so they know nothing of Python and one wheel serves all versions.
Libraries stay in `build/native`, and a later installation compiles only what has changed.
"""

import hashlib
import os
import shutil
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

SOURCES = Path("src/mlagents_native/source")
X86 = ("x86_64", "amd64", "universal2")
"""Endings of the names of platforms with x86-64 processors."""

# Floating-point arithmetic keeps its order and its roundings, so that results can be repeated.
GNU = "-std=c++17 -O3 -g0 -fno-math-errno -fno-trapping-math -ffp-contract=off -fvisibility=hidden"
MICROSOFT = "/std:c++17 /O2 /fp:precise /EHsc"
GNU_FLAGS = {
    "baseline": "",
    "avx2": "-mavx2 -mfma",
    "avx512": "-mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mprefer-vector-width=512",
}
MICROSOFT_FLAGS = {"baseline": "", "avx2": "/arch:AVX2", "avx512": "/arch:AVX512"}


def fingerprint(ext: Extension, platform: str) -> str:
    """Return a name for all that a library is made from: sources, flags and compiler."""
    read = hashlib.sha256(f"{platform} {ext.extra_compile_args}".encode())
    for name in ("CC", "CXX", "CPPFLAGS", "CFLAGS", "CXXFLAGS", "LDFLAGS", "ARCHFLAGS", "CL"):
        read.update(f"{name}={os.environ.get(name)}".encode())
    for path in (*ext.sources, *ext.depends):
        read.update(Path(path).read_bytes())
    return read.hexdigest()[:16]


class BuildLibraries(build_ext):
    """Compiles each library with the flags of its instruction set, unless it is there already."""

    def build_extension(self, ext: Extension) -> None:
        instructions = ext.name.rpartition("_")[2]
        if self.compiler.compiler_type == "msvc":
            flags = f"{MICROSOFT} {MICROSOFT_FLAGS[instructions]}".split()
        else:
            flags = f"{GNU} {GNU_FLAGS[instructions]}".split()
            if sysconfig.get_platform().endswith("universal2"):
                special = GNU_FLAGS[instructions].split()
                flags = GNU.split() + [part for flag in special for part in ("-Xarch_x86_64", flag)]
        ext.extra_compile_args = flags
        library = Path(self.get_ext_fullpath(ext.name))
        kept = Path("build/native", fingerprint(ext, sysconfig.get_platform()), library.name)
        if kept.exists() and not self.force:
            library.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(kept, library)
            return
        shared = self.build_temp
        self.build_temp = os.path.join(shared, instructions)  # the objects' names are the same
        try:
            super().build_extension(ext)
        finally:
            self.build_temp = shared
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(library, kept)

    def get_ext_filename(self, fullname: str) -> str:
        """Return the path of a library, without the version of Python in its name."""
        return os.path.join(*fullname.split(".")) + (".dll" if os.name == "nt" else ".so")

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """Return no symbols: the sources export theirs, and these are not modules of Python."""
        return []


class WheelForAnyPython(bdist_wheel):
    """Names the wheel after the platform alone."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


has_x86 = sysconfig.get_platform().endswith(X86)
setup(
    ext_modules=[
        Extension(
            f"mlagents_native.library_{instructions}",
            sources=sorted(path.as_posix() for path in SOURCES.glob("*.cpp")),
            depends=sorted(path.as_posix() for path in SOURCES.glob("*.h")),
            language="c++",
            optional=True,
        )
        for instructions in (GNU_FLAGS if has_x86 else ["baseline"])
    ],
    cmdclass={"build_ext": BuildLibraries, "bdist_wheel": WheelForAnyPython},
)
