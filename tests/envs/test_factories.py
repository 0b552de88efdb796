"""A name becomes what makes an environment, and a wrong one an error that helps."""

import sys
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guess_environment import GuessEnvironment
from mlagents_envs.base_env import BaseEnv
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.factories import call_factory, find_build, find_factory, is_factory_name
from mlagents_envs.folder_names import DOWNLOADED
from mlagents_envs.registry import (
    BaseRegistryEntry,
    LocalRegistryEntry,
    UnityEnvRegistry,
    default_registry,
)


class Entry(BaseRegistryEntry):
    def make(self, **kwargs: Any) -> BaseEnv:
        return GuessEnvironment(seed=kwargs["seed"])


@pytest.fixture
def registry() -> UnityEnvRegistry:
    registry = UnityEnvRegistry()
    registry.register(Entry("Guess"))
    return registry


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("package.module:make", True),
        ("gym:CartPole-v1", True),
        ("gym:module:Name-v0", True),
        ("3DBall", False),
        ("C:\\builds\\Ball.exe", False),
        ("builds/Ball", False),
        ("module:", False),
    ],
)
def test_what_can_only_be_a_factory_is_told_from_paths_and_names(name: str, is_one: bool) -> None:
    assert is_factory_name(name) is is_one


@pytest.mark.parametrize("name", ["Guess", "guess_environment:GuessEnvironment"])
def test_a_factory_makes_an_environment(name: str, registry: UnityEnvRegistry) -> None:
    env = call_factory(find_factory(name, registry=registry), seed=1, num_areas=2)
    assert isinstance(env, GuessEnvironment)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("source", ["registry", "class", "gymnasium", "pettingzoo"])
def test_bytes_of_images_are_kept_where_that_is_asked_for(source: str, keep: bool) -> None:
    pytest.importorskip("gymnasium")
    pytest.importorskip("pettingzoo")
    from mlagents_envs.envs.from_gymnasium import from_gymnasium
    from mlagents_envs.envs.from_pettingzoo import from_pettingzoo
    from mlagents_envs.envs.unity_gym_env import UnityToGymWrapper
    from mlagents_envs.envs.unity_parallel_env import UnityParallelEnv

    make_world = find_factory("GridWorld")
    factory = {
        "registry": make_world,
        "class": find_factory("mlagents_sim.examples.grid_world:GridWorld"),
        "gymnasium": lambda: from_gymnasium(
            UnityToGymWrapper(make_world(), uint8_visual=True, ignore_other_agents=True)
        ),
        "pettingzoo": lambda: from_pettingzoo(UnityParallelEnv(make_world(), uint8_visual=True)),
    }[source]
    env: Any = call_factory(factory, keep_8_bit_images=keep)
    env.reset()
    (behavior,) = env.behavior_specs
    seen = env.get_steps(behavior)[0].obs
    image = next(batch for batch in seen if batch.ndim == 4)
    assert image.dtype == (np.uint8 if keep else np.float32)
    assert 1 < image.max() <= 255 if keep else 0 < image.max() <= 1
    with pytest.raises(UnityEnvironmentException, match="after the first reset"):
        env.keep_8_bit_images()
    env.close()


def test_a_gymnasium_environment_is_made_with_areas_and_parameters() -> None:
    pytest.importorskip("gymnasium")
    factory = find_factory("gym:Pendulum-v1")
    env = call_factory(factory, worker_id=1, seed=1, num_areas=2, parameters={"g": 5.0})
    env.reset()
    (name,) = env.behavior_specs
    assert len(env.get_steps(name)[0]) == 2
    env.close()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Gues", r"registered as 'Gues'; did you mean 'Guess'\? You can also use module:function"),
        ("xyz", r"registered as 'xyz'. Registered: Guess. You can also use module:function"),
        ("no_such_module:make", "No module named 'no_such_module'.*in this folder, .*PYTHONPATH"),
        ("guess_environment:GuesEnvironment", "did you mean 'GuessEnvironment'"),
    ],
)
def test_a_name_of_nothing_says_what_is_near(
    name: str, text: str, registry: UnityEnvRegistry
) -> None:
    with pytest.raises(UnityEnvironmentException, match=text):
        find_factory(name, registry=registry)


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one, in which no import looks yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    return tmp_path


def test_a_module_in_the_working_folder_is_found(working_folder: Path) -> None:
    (working_folder / "my_maze.py").write_text("def make(): ...")
    assert find_factory("my_maze:make").__module__ == "my_maze"
    assert sys.path[-1] == str(working_folder)
    find_factory("my_maze:make")
    assert sys.path.count(str(working_folder)) == 1


def test_a_module_in_the_working_folder_takes_no_others_place(working_folder: Path) -> None:
    (working_folder / "guess_environment.py").write_text("GuessEnvironment = None")
    (working_folder / "colorsys.py").write_text("def make(): ...")
    assert find_factory("guess_environment:GuessEnvironment") is GuessEnvironment
    with pytest.raises(UnityEnvironmentException, match="module colorsys has no make"):
        find_factory("colorsys:make")


def test_a_gymnasium_environment_in_the_working_folder_is_found(working_folder: Path) -> None:
    pytest.importorskip("gymnasium")
    (working_folder / "my_poles.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('MyPole-v0', CartPoleEnv)\n"
    )
    call_factory(find_factory("gym:my_poles:MyPole-v0"), seed=1, num_areas=1).close()


def takes_all(**kwargs: Any) -> BaseEnv:
    return remembers(GuessEnvironment(), kwargs)


def takes_all_and_the_worker(worker_id: int, **kwargs: Any) -> BaseEnv:
    return remembers(GuessEnvironment(), {"worker_id": worker_id, **kwargs})


def remembers(env: Any, arguments: dict[str, Any]) -> BaseEnv:
    env.arguments = arguments
    return env


class Ours(GuessEnvironment):
    def __init__(self, seed: int, num_areas: int) -> None:
        super().__init__(seed=seed)
        self.arguments = {"seed": seed, "num_areas": num_areas}


class HandsOn(Ours):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)


class HandsOnTwice(HandsOn):
    def __init__(self, parameters: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.arguments["parameters"] = parameters


@pytest.mark.parametrize(
    ("factory", "taken"),
    [
        (takes_all, "seed num_areas parameters"),
        (takes_all_and_the_worker, "worker_id seed num_areas parameters"),
        (Ours, "seed num_areas"),
        (HandsOn, "seed num_areas"),
        (HandsOnTwice, "seed num_areas parameters"),
    ],
)
def test_a_factory_gets_what_it_takes(factory: Callable[..., Any], taken: str) -> None:
    env: Any = call_factory(factory, worker_id=3, seed=1, num_areas=2, parameters={})
    assert list(env.arguments) == taken.split()


def needs_a_map(seed: int, map: str) -> BaseEnv:
    raise AssertionError("not called")


class Unfinished(GuessEnvironment):
    @abstractmethod
    def draw(self) -> None: ...


class NeedsAMap(Ours):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(map=1, **kwargs)


@pytest.mark.parametrize(
    ("factory", "text"),
    [
        (Unfinished, "Unfinished'> is abstract. Implement draw"),
        (
            NeedsAMap,
            r"NeedsAMap'> was called with seed=1, num_areas=1 and failed: .*"
            r"__init__\(\) got an unexpected "
            r"keyword argument 'map' \(.*test_factories\.py, line \d+\)$",
        ),
        (
            needs_a_map,
            "missing a required argument: 'map'. The available keywords are seed, num_areas",
        ),
        (lambda: "env", "returned a str"),
        ("text", "cannot be called"),
    ],
)
def test_what_is_no_factory_is_refused(factory: Any, text: str) -> None:
    with pytest.raises(UnityEnvironmentException, match=text):
        call_factory(factory, seed=1, num_areas=1)


def test_a_build_goes_before_a_world_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_build("Basic") is None
    Path("Basic").touch(mode=0o755)
    assert find_build("Basic") is not None


def test_a_registered_build_is_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Maze").touch(mode=0o755)
    entry = LocalRegistryEntry("Labyrinth", str(tmp_path / "Maze"))
    monkeypatch.setattr(default_registry, "_entries", {"Labyrinth": entry})
    assert find_build("Labyrinth") == entry.make
    (tmp_path / "Maze").unlink()
    with pytest.raises(UnityEnvironmentException, match="cannot find the executable"):
        find_build("Labyrinth")


def test_what_is_made_in_this_process_is_no_build() -> None:
    assert find_build("gym:CartPole-v1") is None
    assert find_build("guess_environment:GuessEnvironment") is None
    assert find_build("Unheard") is None


def test_a_path_without_a_build_is_an_error_of_that_path(tmp_path: Path) -> None:
    with pytest.raises(UnityEnvironmentException, match="is a folder, not an executable"):
        find_build(str(tmp_path))


def write_module(file: Path) -> Path:
    """Write a module that leaves a file beside it when it runs."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("import pathlib\npathlib.Path(__file__ + '.ran').touch()\nmake = None\n")
    return Path(f"{file}.ran")


@pytest.mark.parametrize("prefix", ["", "gym:"])
@pytest.mark.parametrize("package", [True, False])
def test_nothing_among_results_is_imported(
    working_folder: Path, prefix: str, package: bool
) -> None:
    if prefix:
        pytest.importorskip("gymnasium")
    results = working_folder / "outcomes1"
    trace = write_module(results / "walker" / "evil.py")
    if package:
        write_module(results / "walker" / "__init__.py")
    name = f"{prefix}outcomes1.walker.evil:make"
    with pytest.raises(UnityEnvironmentException, match="outcomes1, a folder of results"):
        call_factory(find_factory(name, results=[Path("outcomes1")]), seed=1)
    assert not trace.exists()
    assert not (results / "walker" / "__init__.py.ran").exists()


def test_nothing_that_was_downloaded_is_imported(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    download = working_folder / "walker2"
    traces = [write_module(download / name) for name in ("__init__.py", "evil2.py", "a/evil3.py")]
    (download / DOWNLOADED).touch()
    for name in ("walker2.evil2:make", "walker2.a.evil3:make", "walker2:make"):
        with pytest.raises(UnityEnvironmentException, match="a folder of results or of a download"):
            find_factory(name)
    monkeypatch.chdir(download)
    for name in ("evil2:make", "a.evil3:make"):
        with pytest.raises(UnityEnvironmentException, match="a folder of results or of a download"):
            find_factory(name)
    assert not any(trace.exists() for trace in traces)


def test_what_lies_beside_results_is_imported(working_folder: Path) -> None:
    module = working_folder / "beside4.py"
    module.write_text("from guess_environment import GuessEnvironment as make\n")
    assert call_factory(find_factory("beside4:make", results=[Path("results"), Path()]))
