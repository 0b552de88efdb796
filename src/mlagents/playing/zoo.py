"""The zoo: policies of the worlds of this package, trained with the worlds' own configurations.

zoo/
  index.json                    origin and score of each policy
  runs.toml                     seed and steps of each training
  <world>/<behavior>.onnx
  older/<world>/<behavior>.onnx policies of replaced worlds; not part of an installed package

Worlds with the same observations and actions may share a policy.
"""

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from mlagents_envs.atomic_file import write_atomically
from mlagents_envs.exception import UnityPolicyException
from mlagents_envs.programs import command, program
from mlagents_envs.suggestions import did_you_mean

ZOO = "zoo"
"""Value of `--model` that stands for the policies of the zoo."""
FOLDER = Path(str(files("mlagents"))) / "zoo"
OLDER = "older"
INDEX = "index.json"

_NOT_INSTALLED = "An installed package leaves out policies of replaced worlds. "


@dataclass(frozen=True)
class ZooPolicy:
    """A policy of the zoo, with its origin and its score.

    Attributes:
        world: Name of the world.
        behavior: Name of the behavior, without the team.
        trained_in: Name of the world in which it was trained: `world`, or one with the same
            observations and actions.
        file: Path of the model, below the folder of the zoo.
        bytes: Size of the file.
        sha256: Hash of the file.
        precision: Type of the weights in the file: `float32`, `float16` or `int8`.
        configuration: Name of the file of settings, such as `config/ppo/3DBall.yaml`.
        changes: Settings that differ from this file, as `KEY=VALUE`.
        seed: Seed of the training.
        steps: Step count of the behavior when the policy was saved.
        seconds: Duration of the training, in s; None if it is unknown.
        version: Version of this package that trained the policy.
        score: Mean reward of `episodes` episodes with sampled actions.
        error: Standard error of the score.
        episodes: Number of episodes.
        opponents: Policy of the other team in these episodes: `random`; None without another team.
        published: Published mean reward; None if no reward is published.
    """

    world: str
    behavior: str
    trained_in: str
    file: str
    bytes: int
    sha256: str
    precision: str
    configuration: str
    changes: tuple[str, ...]
    seed: int
    steps: int
    seconds: float | None
    version: str
    score: float
    error: float
    episodes: int
    opponents: str | None
    published: float | None

    @property
    def is_shared(self) -> bool:
        """Whether the policy was trained in another world."""
        return self.trained_in != self.world


@dataclass(frozen=True)
class Reference:
    """Score, in a world of this package, of a policy that was trained in Unity.

    Attributes:
        world: Name of the world.
        score: Mean reward of `episodes` episodes with sampled actions.
        error: Standard error of the score.
        episodes: Number of episodes.
    """

    world: str
    score: float
    error: float
    episodes: int


@dataclass(frozen=True)
class ZooIndex:
    """Content of the index.

    Attributes:
        policies: Policies of the zoo, ordered by world.
        trained_in_unity: Scores of policies that were trained in Unity.
    """

    policies: tuple[ZooPolicy, ...] = ()
    trained_in_unity: tuple[Reference, ...] = ()

    @classmethod
    def read(cls, folder: Path = FOLDER) -> "ZooIndex":
        """Return the index of a zoo; an empty one if the file does not exist.

        Raises:
            UnityPolicyException: The index cannot be read.
        """
        path = folder / INDEX
        if not path.exists():
            return cls()
        try:
            read = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                tuple(
                    ZooPolicy(**{**entry, "changes": tuple(entry["changes"])})
                    for entry in read["policies"]
                ),
                tuple(Reference(**entry) for entry in read["trained_in_unity"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UnityPolicyException(
                f"the index of the zoo, {path}, cannot be read: {error}. Install the package "
                "again, or restore the file."
            ) from error

    def write(self, folder: Path = FOLDER) -> None:
        """Write the index.

        Raises:
            OSError: The file cannot be written.
        """
        text = json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False)
        write_atomically(folder / INDEX, f"{text}\n".encode())

    def of(self, world: str) -> tuple[ZooPolicy, ...]:
        """Return the policies of a world."""
        return tuple(policy for policy in self.policies if policy.world == world)

    def reference_of(self, world: str) -> Reference | None:
        """Return the score of the policy that Unity trained for a world, if there is one."""
        return next((each for each in self.trained_in_unity if each.world == world), None)


def find_in_zoo(world: str | None, *, folder: Path = FOLDER) -> Path:
    """Return where the policies of a world are, for `find_model` and `mlagents-play --model`.

    Args:
        world: Registered name of the world; None for a build or the Editor.
        folder: Folder of the zoo.

    Returns:
        A folder with one `<behavior>.onnx` for each behavior, or the file of a policy that was
        trained in another world.

    Raises:
        UnityPolicyException: The zoo has no policy of the world, or this installation does not
            contain it.
    """
    index = ZooIndex.read(folder)
    entries = index.of(world or "")
    if not entries:
        raise UnityPolicyException(_explain_missing(world, index.policies))
    file = folder / entries[0].file
    place = file if entries[0].is_shared else file.parent
    missing = [entry.file for entry in entries if not (folder / entry.file).is_file()]
    if missing:
        raise UnityPolicyException(
            f"the zoo has a policy for {world!r}, but {missing[0]} is missing in {folder}. "
            + _NOT_INSTALLED * missing[0].startswith(f"{OLDER}/")
            + f"Take src/mlagents/zoo/{place.relative_to(folder).as_posix()} of a checkout of this "
            "project, and give its path in place of 'zoo'."
        )
    return place


def _explain_missing(world: str | None, policies: Iterable[ZooPolicy]) -> str:
    names = list(dict.fromkeys(policy.world for policy in policies))
    there = f"It has policies for: {', '.join(names) or 'none yet'}."
    if world is None:
        return f"'zoo' needs --env with the name of a world. {there}"
    train = command(*program("mlagents-learn"), "--env", world, "--run-id", "mine")
    return (
        f"the zoo has no policy for {world!r}{did_you_mean(world, names) or '.'} {there} Give the "
        f"path of an .onnx file in place of 'zoo', or train a policy: {train}"
    )
