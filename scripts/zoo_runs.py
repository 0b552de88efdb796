"""Training runs of worlds, with their curves and policies, for `train_zoo` and `benchmark_zoo`."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlagents.playing.game import Actor, Game, RandomActor
from mlagents.playing.policy import Policy, find_model
from mlagents.playing.tally import Score
from mlagents.trainers.settings.configurations import CONFIGURATIONS, configuration_of
from mlagents.trainers.settings.load import validated
from mlagents.trainers.settings.reading import read_configuration
from mlagents.trainers.settings.run_options import holds_run
from mlagents.trainers.settings.typed import CommandLine
from mlagents_envs.atomic_file import write_atomically
from mlagents_envs.base_env import BehaviorId, BehaviorName, BehaviorSpec
from mlagents_envs.checked_env import checked
from mlagents_envs.exception import UnityPolicyException
from mlagents_sim.catalog import CATALOG

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path("results/zoo")
REWARD, GROUP_REWARD = "Environment/Cumulative Reward", "Environment/Group Cumulative Reward"
ELO = "Self-play/ELO"
LAST = 0.2
"""Fraction of the steps of a run, at its end, over which its reward is averaged."""
MOST_STEPS = 500_000
"""Number of steps of a world after which an evaluation gives up."""

N_POINTS = 60
"""Number of points of a drawn curve."""

_FEWEST_TIMES = 5
_LONGEST_GAP = 10
"""Time between two summaries, in 90 % quantiles of these times, above which a run was interrupted.

Not in medians: with a large buffer, most summaries follow each other between two updates.
"""
_COMPARED = ("behaviors", "environment_parameters", "env_settings", "torch_settings", "cluster")
_NOT_COMPARED = re.compile(
    r"env_settings\.(?!num_envs|num_areas).*|torch_settings\.(threads|device|dense|compile)|"
    r"environment_parameters\..*\bseed|behaviors\.[^.]*\.(init_path|keep_checkpoints|threaded|"
    r"even_checkpoints|checkpoint_interval|summary_freq)|cluster\.(?!workers|mode).*"
)
"""Settings that do not change what is learned."""

Array = NDArray[np.float64]


class Curve(NamedTuple):
    """Rewards of one behavior in one run, or Elo ratings with self-play.

    Attributes:
        steps: (n,) steps of the summaries.
        rewards: (n,) mean rewards of episodes, or Elo ratings, at these steps.
        measure: Kind of `rewards`: `mean reward` or `Elo`.
    """

    steps: Array
    rewards: Array
    measure: str = "mean reward"

    @classmethod
    def of(cls, points: Sequence[tuple[float, float]], measure: str) -> "Curve":
        """Return the curve through points of a step and a reward."""
        steps, rewards = np.array(points, np.float64).T
        return cls(steps, rewards, measure)

    @property
    def score(self) -> float:
        """Mean of `rewards` in the last fifth of the run."""
        return float(self.rewards[self.steps > (1 - LAST) * self.steps[-1]].mean())

    def shortened(self) -> list[tuple[int, float]]:
        """Return at most `N_POINTS` points of a step and the mean reward up to it."""
        parts = np.array_split(np.arange(len(self.steps)), min(N_POINTS, len(self.steps)))
        return [(int(self.steps[part[-1]]), float(self.rewards[part].mean())) for part in parts]


# ------------------------------------------------------------------------------------- training


class Training(NamedTuple):
    """A training run of a world with its own configuration, in `results`/`world`/`seed`.

    Attributes:
        world: Name of the world.
        seed: Seed of the run.
        results: Folder of all runs.
        threads: Number of threads.
        changes: Settings to change, as `KEY=VALUE`.
    """

    world: str
    seed: int
    results: Path = RESULTS
    threads: int = 1
    changes: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.results / self.world / str(self.seed)

    @property
    def log(self) -> Path:
        """File with the output of the run."""
        return self.results / self.world / f"{self.seed}.txt"

    def run(self) -> float:
        """Train to the end, or continue an interrupted run; return the duration, in s.

        A finished run is not repeated.

        Raises:
            subprocess.CalledProcessError: The run failed.
            ValueError: The finished run had other settings.
        """
        if (record := read_record(self.folder)) is not None:
            self._require_same(record.get("set", []))
            return float(record["seconds"])
        resumes = holds_run(self.folder)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        spent = self.folder.parent / f"{self.seed}.seconds"
        before_s = float(spent.read_text()) if resumes and spent.exists() else 0.0
        started_s = time.monotonic()
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads)}
        try:
            with self.log.open("a") as output:
                subprocess.run(
                    self._command(resumes=resumes),
                    stdout=output,
                    stderr=output,
                    env=environment,
                    check=True,
                )
        finally:
            seconds = before_s + time.monotonic() - started_s
            write_atomically(spent, str(seconds).encode())
        content = json.dumps({"seconds": seconds, "set": self.changes})
        write_atomically(_record_of(self.folder), content.encode())
        print(f"{self.world}, seed {self.seed}: {seconds:.0f} s", flush=True)
        return seconds

    def _command(self, *, resumes: bool) -> list[str]:
        words = [sys.executable, "-m", "mlagents.trainers.learn", "--env", self.world]
        words += ["--seed", str(self.seed), "--results-dir", str(self.results)]
        words += ["--run-id", f"{self.world}/{self.seed}", "--track", "jsonl"]
        for change in (f"torch_settings.threads={self.threads}", *self.changes):
            words += ["--set", change]
        return [*words, "--resume"] if resumes else words

    def _require_same(self, changes: Sequence[str]) -> None:
        if list(changes) != list(self.changes):
            raise ValueError(
                f"{self.folder} is a finished run with --set {list(changes)}, expected "
                f"{list(self.changes)}. Delete it, or choose another --results folder."
            )


def _record_of(folder: Path) -> Path:
    return folder / "run_logs" / "zoo.json"


def read_record(folder: Path) -> dict[str, Any] | None:
    """Return the record of a finished run; None for an unfinished run."""
    path = _record_of(folder)
    record: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return record


# ----------------------------------------------------------------------------- results of a run


def curves_of(run: Path) -> dict[str, Curve]:
    """Return the curve of each behavior of a run."""
    entries: dict[str, list[dict[str, Any]]] = {}
    for entry in _summaries(run):
        entries.setdefault(entry["behavior"], []).append(entry)
    curves = {}
    for behavior, of_behavior in entries.items():
        has_elo = any(entry["stats"].get(ELO) is not None for entry in of_behavior)
        tags = (ELO,) if has_elo else (REWARD, GROUP_REWARD)
        points = []
        for entry in of_behavior:
            values = [entry["stats"][tag] for tag in tags if entry["stats"].get(tag) is not None]
            if values:
                points.append((entry["step"], sum(values)))
        if points:
            curves[behavior] = Curve.of(points, "Elo" if has_elo else "mean reward")
    return curves


def _summaries(run: Path) -> list[dict[str, Any]]:
    """Return all summaries of a run, without those that a resumed run repeated."""
    path = run / "stats.jsonl"
    if not path.exists():
        return []
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    latest = {(entry["behavior"], entry["step"]): entry for entry in entries}
    return sorted(latest.values(), key=lambda entry: int(entry["step"]))


def seconds_of(run: Path) -> float | None:
    """Return the duration of a run, in s, without the time in which it was stopped or suspended.

    It follows from the times of the summaries. If there are few summaries, the record of the run
    is used. Without a record, the duration is None.
    """
    times = np.unique([entry["time"] for entry in _summaries(run)])
    if len(times) < _FEWEST_TIMES:
        record = read_record(run)
        return None if record is None else float(record["seconds"])
    gaps = np.diff(times)
    usual = gaps[gaps < _LONGEST_GAP * np.quantile(gaps, 0.9, method="lower")]
    return float(usual.mean() * len(times))


def draw(curves: Sequence[Curve], title: str, file: Path) -> None:
    """Write an SVG image of the curves, and of their mean where all of them have values."""
    width, height, margin = 480, 240, 40
    short = [Curve.of(curve.shortened(), curve.measure) for curve in curves]
    common = np.linspace(
        max(curve.steps[0] for curve in short), min(curve.steps[-1] for curve in short), N_POINTS
    )
    mean = np.mean([np.interp(common, curve.steps, curve.rewards) for curve in short], axis=0)
    last = max(curve.steps[-1] for curve in short)
    low = min(float(curve.rewards.min()) for curve in short)
    high = max(float(curve.rewards.max()) for curve in short)
    scale = (high - low) or 1.0

    def line(steps: Array, rewards: Array, style: str) -> str:
        across = margin + steps / last * (width - 2 * margin)
        down = height - margin - (rewards - low) / scale * (height - 2 * margin)
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(across, down, strict=True))
        return f'<polyline points="{points}" fill="none" {style}/>'

    text = 'font-family="sans-serif" font-size="12" fill="#444"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *(line(each.steps, each.rewards, 'stroke="#9ab8d8" stroke-width="1"') for each in short),
        line(common, mean, 'stroke="#1f4e8c" stroke-width="2.5"'),
        f'<text x="{margin}" y="20" {text}>{title}</text>',
        f'<text x="2" y="{margin + 4}" {text}>{high:.3g}</text>',
        f'<text x="2" y="{height - margin}" {text}>{low:.3g}</text>',
        f'<text x="{width - 150}" y="{height - 12}" {text}>{last:,.0f} steps</text>',
        "</svg>",
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, ("\n".join(lines) + "\n").encode())


class Trained(NamedTuple):
    """Policies that a run trained, and its settings.

    Attributes:
        models: Newest model of each behavior.
        steps: Step count of each model.
        most_steps: Step count of each behavior in a complete run.
        seed: Seed of the run.
        version: Version of this package that trained it.
        configuration: File of this package that is nearest to the settings of the run.
        changes: Settings that differ from this file, as `KEY=VALUE`.
    """

    models: dict[str, Path]
    steps: dict[str, int]
    most_steps: dict[str, int]
    seed: int
    version: str
    configuration: Path
    changes: tuple[str, ...]


def world_of(run: Path) -> str:
    """Return the name of the world that a run trained in.

    Raises:
        ValueError: The folder does not contain a run in a world of this package.
    """
    world = _settings_of(run).get("env_settings", {}).get("env_path")
    if world not in CATALOG:
        raise ValueError(f"{run} was trained with --env {world}, which is not a world of the zoo")
    return str(world)


def _settings_of(run: Path) -> dict[str, Any]:
    """Return the settings of a run, and defaults for settings that are newer than the run."""
    path = run / "configuration.yaml"
    if not path.exists():
        raise ValueError(f"{run} is not a run: it has no configuration.yaml")
    return validated(read_configuration(path), CommandLine(path, {})).as_dict()


def trained_by(run: Path) -> Trained:
    """Return the policies that a run in a world of this package trained.

    Raises:
        ValueError: The folder does not contain such a run.
        UnityPolicyException: The model of a behavior is missing.
    """
    settings = _settings_of(run)
    status = json.loads((run / "run_logs" / "training_status.json").read_text())
    models, steps, most_steps = {}, {}, {}
    for behavior in behaviors_of(world_of(run)):
        most_steps[behavior] = int(_settings_of_behavior(settings, behavior)["max_steps"])
        models[behavior] = find_model(run, behavior)
        found = re.search(r"-(\d+)\.onnx$", models[behavior].name)
        steps[behavior] = int(found[1] if found else status[behavior]["final_checkpoint"]["steps"])
    return Trained(
        models,
        steps,
        most_steps,
        settings["env_settings"]["seed"],
        status["metadata"]["mlagents_version"],
        *_origin(settings, world_of(run)),
    )


def behaviors_of(world: str) -> list[str]:
    """Return the names of a world's behaviors, without teams."""
    names = CATALOG[world].make().behavior_specs
    return list(dict.fromkeys(BehaviorId.parse(name).name for name in names))


def _origin(settings: Mapping[str, Any], world: str) -> tuple[Path, tuple[str, ...]]:
    """Return the configuration nearest to a run's settings, and the settings that differ."""
    own = configuration_of(world)
    behaviors = behaviors_of(world)
    found = []
    for file in sorted(CONFIGURATIONS.glob("*/*.yaml"), key=lambda file: (file != own, file)):
        tree = validated(read_configuration(file), CommandLine(file, {})).as_dict()
        if file == own or tree["behaviors"].keys() >= set(behaviors):
            found.append((file, _changes(settings, tree, behaviors)))
    if not found:
        raise ValueError(f"{world} has no configuration in this package")
    return min(found, key=lambda each: len(each[1]))


def _changes(
    settings: Mapping[str, Any], usual: Mapping[str, Any], behaviors: Sequence[str]
) -> tuple[str, ...]:
    """Return the relevant settings of a run that differ from the usual ones, as `KEY=VALUE`."""
    used_flat, usual_flat = (
        _flattened(
            {
                **{key: tree.get(key) for key in _COMPARED},
                "behaviors": {name: _settings_of_behavior(tree, name) for name in behaviors},
            }
        )
        for tree in (settings, usual)
    )
    values = {key: used_flat.get(key) for key in usual_flat | used_flat}
    return tuple(
        f"{key}={'null' if value is None else value}"
        for key, value in values.items()
        if value != usual_flat.get(key) and not _NOT_COMPARED.fullmatch(key)
    )


def _settings_of_behavior(settings: Mapping[str, Any], behavior: str) -> Mapping[str, Any]:
    found = (settings.get("behaviors") or {}).get(behavior) or settings.get("default_settings")
    return found or {}


def _flattened(tree: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, list):
            value = dict(enumerate(value))
        if isinstance(value, Mapping):
            flat |= _flattened(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


# -------------------------------------------------------------------------------------- evaluation


def evaluate(world: str, models: Mapping[str, bytes], *, episodes: int) -> dict[str, Score]:
    """Play episodes with models, and count them as `mlagents-play` does with seed 0.

    In a game of teams, each behavior plays against a team that acts at random.

    Args:
        world: Name of the world.
        models: Content of the `.onnx` file of each behavior, by its name without the team.
        episodes: Number of episodes of each behavior.

    Returns:
        Score of each behavior, by its name.

    Raises:
        UnityPolicyException: A model does not fit its behavior, or the episodes do not end.
    """
    if not is_game(world):
        return _play(world, models, episodes=episodes, team=None)
    scores: dict[str, Score] = {}
    for full_name in CATALOG[world].make().behavior_specs:
        name, team = BehaviorId.parse(full_name)
        if name in models and name not in scores:
            scores[name] = _play(world, models, episodes=episodes, team=team)[name]
    return scores


def is_game(world: str) -> bool:
    """Return whether teams play against each other in a world."""
    return "teams" in CATALOG[world].tags


def _play(
    world: str, models: Mapping[str, bytes], *, episodes: int, team: int | None
) -> dict[str, Score]:
    """Return the scores of the behaviors of one team against random actions; None for all teams."""
    n_made = 0

    def acts(full_name: BehaviorName) -> bool:
        name, of_team = BehaviorId.parse(full_name)
        return name in models and team in (None, of_team)

    def make_actor(full_name: BehaviorName, spec: BehaviorSpec) -> Actor:
        nonlocal n_made
        seed, n_made = n_made, n_made + 1
        if not acts(full_name):
            return RandomActor(spec.action_spec, seed=seed)
        name = BehaviorId.parse(full_name).name
        policy = Policy(models[name], name=f"{world}: {name}", seed=seed)
        policy.check(spec, full_name)
        return policy

    env = checked(CATALOG[world].make(seed=0, keep_8_bit_images=True))
    try:
        env.reset()
        game = Game(env, make_actor, n_episodes=episodes)
        for n_steps, _ in enumerate(game.play()):
            counted = {name: each for name, each in game.tallies.items() if acts(name)}
            if counted and all(tally.is_complete for tally in counted.values()):
                break
            if n_steps > MOST_STEPS:
                raise UnityPolicyException(
                    f"{world}: the episodes have not ended after {MOST_STEPS} steps"
                )
    finally:
        env.close()
    return {BehaviorId.parse(name).name: Score.of(each.episodes) for name, each in counted.items()}
