"""Imports run downward, and each package loads only what it may stand on."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"

# Lowest row first. A name stands for a module or a folder of modules. It may import the names of
# the rows above its own, and modules of its own folder; never a name of its own row or below.
LAYERS = {
    "mlagents_native": [
        "library",
        "articulated",
    ],
    "mlagents_envs": [
        "argument_types atomic_file closing folder_names suggestions",
        "exception timers logging_util cpus hpack interrupts programs",
        "specs",
        "steps",
        "base_env communicator http2_frames launcher",
        "http2_connection",
        "http2",
        "http2_socket images local_env messages env_utils scene",
        "side_channel observation_codec checked_env solid_raster",
        "scene_picture",
        "codec handshake rpc_communicator testing",
        "demonstration_records output_decoder rpc_utils session",
        "demonstration_codec",
        "demonstration_file",
        "demonstration_recorder environment",
        "registry",
        "completion",
        "envs",
        "factories",
    ],
    "mlagents": [
        "torch_utils trainers.exception trainers.buffer games ratings",
        "viewing",
        "playing",
        "trainers.settings trainers.reporting.stats policy",
        "trainers.callbacks trainers.cli_args trainers.stats trainers.data",
        "trainers.demo_loader trainers.fast.torch_internals trainers.sharding",
        "trainers.players trainers.fast.products trainers.fast.compute",
        "trainers.acting trainers.networks",
        "trainers.algorithms trainers.export trainers.fleet",
        "trainers.fast",
        "trainers.learning",
        "trainers.run",
        "trainers.reporting plugins",
        "trainers.run.saving trainers.run.trainer_factory",
        "trainers.run.judging",
        "trainers.run.controller",
        "trainers.learn",
        "trainers.run_experiment trainers.local_learner tools search",
        "trainers.upgrade_config utils",
        "commands",
    ],
    "gym_unity": ["envs"],
    "mlagents_sim": [
        "native_planar parameters channels client recorder articulated plane",
        "contact world",
        "planar box_faces walls",
        "circles floor_plan raster turning",
        "frame_stack pushers rays rolling sensors standing",
        "box_grid motion ray_view",
        "planar_world creatures",
        "examples player",
        "catalog",
        "__main__",
    ],
}

# Which of the other packages each one may import at all.
NEIGHBORS = {
    "mlagents_native": set(),
    "mlagents_envs": {"mlagents_native"},
    "mlagents": {"mlagents_envs", "mlagents_native"},
    "mlagents_sim": {"mlagents_envs", "mlagents_native"},
    "gym_unity": {"mlagents_envs"},
}

# Narrower than its row: all that a name may import of its own package.
SEES_ONLY = {
    "mlagents_envs.http2_frames": set(),
    "mlagents_envs.http2_connection": {"mlagents_envs.hpack", "mlagents_envs.http2_frames"},
    "mlagents_envs.http2": {
        "mlagents_envs.hpack",
        "mlagents_envs.http2_connection",
        "mlagents_envs.http2_frames",
    },
    "mlagents_envs.testing": {"mlagents_envs.base_env", "mlagents_envs.exception"},
    "mlagents.playing": {"mlagents.games", "mlagents.ratings", "mlagents.viewing"},
    "mlagents.viewing": set(),
    "mlagents.trainers.acting": {"mlagents.trainers.data", "mlagents.trainers.exception"}
    | {"mlagents.trainers.players", "mlagents.games"},
    "mlagents.trainers.fleet": {
        "mlagents.games",
        "mlagents.torch_utils",
        "mlagents.trainers.acting",
        "mlagents.trainers.data",
        "mlagents.trainers.exception",
        "mlagents.trainers.players",
        "mlagents.trainers.settings",
    },
    "mlagents.trainers.players": {
        "mlagents.trainers.data",
        "mlagents.trainers.exception",
        "mlagents.trainers.settings",
        "mlagents.viewing",
    },
}

# Who alone may import a module.
IMPORTED_ONLY_BY = {
    "gymnasium": {"mlagents_envs.envs"},
    "stable_baselines3": {"mlagents_envs.envs.sb3"},
    "pettingzoo": {"mlagents_envs.envs"},
    "minari": {"mlagents_envs.envs"},
    "shtab": {"mlagents_envs.completion"},
    "google": {
        "mlagents_envs.messages",
        "mlagents_envs.codec",
        "mlagents_envs.demonstration_codec",
    },
    "grpc": set(),
    "huggingface_hub": {"mlagents.tools.hub"},
    "viser": {"mlagents.viewing"},
    "optuna": {"mlagents.search.study"},
    "wandb": {"mlagents.trainers.reporting.tracking"},
    "mlflow": {"mlagents.trainers.reporting.tracking"},
    "trackio": {"mlagents.trainers.reporting.tracking"},
    "mlagents_envs.codec": {"mlagents_envs", "mlagents_sim"},
    "mlagents_envs.messages": {"mlagents_envs"},
    "torch": {
        "mlagents.torch_utils",
        "mlagents.trainers.networks",
        "mlagents.trainers.algorithms",
        "mlagents.trainers.fast",
        "mlagents.trainers.learning",
        "mlagents.trainers.export",
        "mlagents.trainers.run",
        "mlagents.trainers.sharding",
        "mlagents.trainers.learn",
    },
    "yaml": {
        "mlagents.trainers.settings",
        "mlagents.tools",
        "mlagents.search.search",
        "mlagents_envs.registry.manifest",
    },
}

ROWS = {
    f"{package}.{name}": number
    for package, rows in LAYERS.items()
    for number, row in enumerate(rows)
    for name in row.split()
}


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(SRC.glob("*/**/*.py"))}
IN_LAYERS = [name for name, path in MODULES.items() if path.name != "__init__.py" or name in ROWS]


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


@cache
def imports(module: str) -> frozenset[str]:
    """Return the full names of all modules that a module imports, wherever in its file."""
    path = MODULES[module]
    found = set()
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import in line {node.lineno}"
            assert node.module is not None
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                found.add(submodule if submodule in MODULES else node.module)
    return frozenset(found)


def is_within(module: str, name: str) -> bool:
    return module == name or module.startswith(f"{name}.")


def layer_of(module: str) -> str | None:
    """Return the longest name of the table that the module belongs to."""
    return max((name for name in ROWS if is_within(module, name)), key=len, default=None)


def package_of(module: str) -> str:
    return module.partition(".")[0]


def imports_name(module: str, name: str) -> bool:
    """Return whether a module imports the module `name` or one inside it."""
    return any(is_within(imported, name) for imported in imports(module))


def importers_of(name: str) -> set[str]:
    return {module for module in MODULES if imports_name(module, name)}


def members_of(name: str) -> set[str]:
    """Return the modules that a name of the tables stands for."""
    return {module for module in MODULES if is_within(module, name)}


def test_every_module_has_a_place_in_the_table():
    homeless = [
        name
        for name, path in MODULES.items()
        if path.name != "__init__.py" and layer_of(name) is None
    ]
    assert not homeless, "give each of these a place in LAYERS"


def test_imports_of_the_own_package_run_downward():
    offenders = []
    for module in IN_LAYERS:
        layer = layer_of(module)
        for imported in imports(module):
            below = layer_of(imported)
            if package_of(imported) != package_of(module) or below in (None, layer):
                continue
            is_below = ROWS[below] < ROWS[layer]
            if not is_below or below not in SEES_ONLY.get(layer, {below}):
                offenders.append(f"{module} must not import {imported}")
    assert not offenders


def test_packages_meet_only_where_they_may():
    offenders = [
        f"{module} must not import {imported}"
        for module in MODULES
        for imported in imports(module)
        if package_of(imported) in LAYERS.keys() - {package_of(module)}
        and package_of(imported) not in NEIGHBORS[package_of(module)]
    ]
    assert not offenders


def test_what_few_may_import_is_imported_by_no_other():
    offenders = [
        f"{module} must not import {name}"
        for name, permitted in IMPORTED_ONLY_BY.items()
        for module in importers_of(name)
        if not any(is_within(module, importer) for importer in permitted)
    ]
    assert not offenders


def test_every_permission_is_used():
    # A permission that outlives its use would let the import come back unseen.
    permissions = [
        *((layer, name) for layer, names in SEES_ONLY.items() for name in names),
        *(
            (importer, name)
            for name, importers in IMPORTED_ONLY_BY.items()
            for importer in importers
        ),
        *((package, other) for package, others in NEIGHBORS.items() for other in others),
    ]
    stale = [
        f"{importer} no longer imports {name}"
        for importer, name in permissions
        if not members_of(importer) & importers_of(name)
    ]
    assert not stale, "take these out of the table"


def length_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines of a function, without its docstring."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    documentation = function.body[0]
    if ast.get_docstring(function) is None:
        return lines
    return lines - ((documentation.end_lineno or 0) - documentation.lineno + 1)


def test_no_function_is_longer_than_60_lines():
    offenders = [
        f"{module}.{node.name} has {length_of(node)} lines"
        for module in MODULES
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and length_of(node) > 60
    ]
    assert not offenders, "\n".join(offenders)


def test_the_table_names_only_what_exists():
    assert ROWS.keys() <= MODULES.keys()


def loaded_by(statements: str) -> set[str]:
    """Return the top-level packages that a fresh Python has loaded after `statements`."""
    code = f"{statements}\nimport sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    command = [sys.executable, "-c", code]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_environment_package_loads_nothing_heavy():
    assert not loaded_by("import mlagents_envs") & {"numpy", "google", "torch", "yaml"}


@pytest.mark.parametrize("package", ["mlagents_envs", "mlagents_native", "mlagents_sim"])
def test_no_module_without_torch_in_its_needs_loads_a_trainers_library(package):
    wrappers = "mlagents_envs.envs"
    modules = [
        name
        for name in MODULES
        if is_within(name, package) and not is_within(name, wrappers) and "__main__" not in name
    ]
    loaded = loaded_by(f"import {', '.join(modules)}")
    assert not loaded & {"torch", "gymnasium", "pettingzoo", "yaml", "PIL", "pydantic", "grpc"}


def test_acting_needs_no_torch():
    modules = [name for name in MODULES if is_within(name, "mlagents.trainers.acting")]
    modules += [name for name in MODULES if is_within(name, "mlagents.trainers.fleet")]
    assert len(modules) > 3
    assert "torch" not in loaded_by(f"import {', '.join(modules)}")
