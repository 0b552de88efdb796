"""The script that fills the zoo: it trains, adopts runs, judges, and skips what is there."""

import json
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from onnx import TensorProto, load_from_string

from mlagents.playing.policy import Policy
from mlagents.playing.tally import Score
from mlagents.playing.zoo import ZooIndex, find_in_zoo
from mlagents.trainers.learn import main as learn
from mlagents.trainers.settings.configurations import CONFIGURATIONS
from mlagents.trainers.settings.load import validated
from mlagents.trainers.settings.reading import read_configuration
from mlagents.trainers.settings.typed import CommandLine
from mlagents_envs.base_env import DecisionSteps

SCRIPT = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "train_zoo"))
MAIN, ZOO_RUNS = SCRIPT["main"], SCRIPT["zoo_runs"]
FEW_STEPS = ["--set", "behaviors.Basic.max_steps=600", "--set", "behaviors.Basic.summary_freq=200"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run."""
    results = tmp_path_factory.mktemp("results")
    arguments = [
        "--env",
        "Basic",
        "--results-dir",
        str(results),
        "--run-id",
        "first",
        "--seed",
        "5",
    ]
    assert learn([*arguments, *FEW_STEPS, "--num-areas", "2"]) == 0
    return results / "first"


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train_zoo(*arguments: str) -> int:
    places = ["--zoo", "zoo", "--curves", "curves", "--episodes", "4"]
    status: int = MAIN([*places, *arguments])
    return status


def test_a_run_is_adopted_with_its_origin_and_score(run: Path) -> None:
    assert train_zoo("--from", str(run), "--film", "gif") == 0

    (entry,) = ZooIndex.read(Path("zoo")).policies
    assert (entry.world, entry.behavior, entry.file) == ("Basic", "Basic", "Basic/Basic.onnx")
    assert Path("zoo", entry.file).stat().st_size == entry.bytes
    assert (entry.seed, entry.configuration) == (5, "config/ppo/Basic.yaml")
    assert 600 <= entry.steps < 700
    assert entry.changes == ("behaviors.Basic.max_steps=600", "env_settings.num_areas=2")
    assert entry.seconds is None  # three summaries do not say how long it took
    assert (entry.episodes, entry.opponents, entry.published) == (4, None, 0.93)
    model = (run / "Basic.onnx").read_bytes()
    score = ZOO_RUNS.evaluate("Basic", {"Basic": model}, episodes=4)["Basic"]
    assert entry.score == pytest.approx(score.mean, abs=1e-3)
    assert "mean reward" in Path("curves/Basic-Basic.svg").read_text()
    assert (run / "Basic.gif").stat().st_size > 0


def test_what_is_not_a_run_of_a_world_is_refused(
    run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert train_zoo("--from", str(tmp_path)) == 1
    assert "is not a run: it has no configuration.yaml" in capsys.readouterr().err
    other = shutil.copytree(run, tmp_path / "other")
    text = (other / "configuration.yaml").read_text()
    (other / "configuration.yaml").write_text(text.replace("env_path: Basic", "env_path: game.exe"))
    assert train_zoo("--from", str(other)) == 1
    assert "with --env game.exe, which is not a world" in capsys.readouterr().err


def test_the_nearest_configuration_counts_as_the_origin(run: Path, tmp_path: Path) -> None:
    settings = yaml.safe_load((run / "configuration.yaml").read_text())
    assert ZOO_RUNS.trained_by(run).configuration.parts[-2:] == ("ppo", "Basic.yaml")
    other = CONFIGURATIONS / "sac" / "Basic.yaml"
    settings |= validated(read_configuration(other), CommandLine(other, {})).as_dict()
    settings["env_settings"] |= {"env_path": "Basic", "seed": 5}
    copied = shutil.copytree(run, tmp_path / "copied")
    (copied / "configuration.yaml").write_text(yaml.safe_dump(settings))
    trained = ZOO_RUNS.trained_by(copied)
    assert (trained.configuration, trained.changes) == (other, ())


def test_the_seeds_of_a_curriculum_are_no_change(run: Path, tmp_path: Path) -> None:
    file = CONFIGURATIONS / "ppo" / "Sorter_curriculum.yaml"
    options = validated(read_configuration(file), CommandLine(file, {})).with_seed(5)
    settings = options.as_dict()
    assert settings != validated(read_configuration(file), CommandLine(file, {})).as_dict()
    settings["env_settings"]["env_path"] = "Sorter"
    assert ZOO_RUNS._origin(settings, "Sorter") == (file, ())
    criteria = settings["environment_parameters"]["num_tiles"]["curriculum"][2]
    criteria["completion_criteria"]["threshold"] = 0.5
    change = "environment_parameters.num_tiles.curriculum.2.completion_criteria.threshold=0.5"
    assert ZOO_RUNS._origin(settings, "Sorter") == (file, (change,))


@pytest.mark.slow
def test_the_table_is_trained_once(capsys: pytest.CaptureFixture[str]) -> None:
    Path("table.toml").write_text(
        '[Basic]\nseed = 3\nsteps = { Basic = 300 }\nset = ["behaviors.Basic.summary_freq=100"]\n'
    )
    assert train_zoo("--table", "table.toml") == 0
    (entry,) = ZooIndex.read(Path("zoo")).policies
    assert entry.seed == 3 and 300 <= entry.steps < 400
    assert json.loads(Path("results/zoo/Basic/3/run_logs/zoo.json").read_text())["set"][0] == (
        "behaviors.Basic.max_steps=300"
    )
    capsys.readouterr()
    assert train_zoo("Basic", "--table", "table.toml") == 0
    assert (
        capsys.readouterr().out == "Basic is in the zoo already; to train it again, use --again\n"
    )

    # The training is finished: to make the policy again, only its episodes are played again.
    find_in_zoo("Basic", folder=Path("zoo")).joinpath("Basic.onnx").write_bytes(b"damaged")
    assert train_zoo("Basic", "--table", "table.toml") == 0
    assert ZooIndex.read(Path("zoo")).policies == (entry,)

    Path("table.toml").write_text("[Basic]\nseed = 3\n")
    assert train_zoo("Basic", "--table", "table.toml", "--again") == 1
    assert "is a finished run with --set" in capsys.readouterr().out


def test_worlds_share_a_policy(capsys: pytest.CaptureFixture[str]) -> None:
    Path("table.toml").write_text('[Worm]\nseed = 1\n[WormStatic]\npolicy_of = "Worm"\n')
    arguments = ("WormStatic", "--table", "table.toml")
    assert train_zoo(*arguments) == 1
    says = capsys.readouterr().out
    assert "WormStatic: its policy is that of Worm, and the zoo has 0 of Worm" in says

    (worm,) = ZooIndex.read(SCRIPT["ZOO"]).of("Worm")
    Path("zoo/Worm").mkdir(parents=True)
    shutil.copy(SCRIPT["ZOO"] / worm.file, Path("zoo", worm.file))
    ZooIndex((worm,)).write(Path("zoo"))
    assert train_zoo(*arguments) == 0
    _, static = ZooIndex.read(Path("zoo")).policies
    assert (static.world, static.behavior, static.trained_in) == (
        "WormStatic",
        "WormStatic",
        "Worm",
    )
    assert (static.file, static.sha256, static.seed) == (worm.file, worm.sha256, worm.seed)
    assert static.episodes == 4 and static.published == 1200
    assert static.score > 800  # without turns toward new targets, it is above that of Worm
    assert find_in_zoo("WormStatic", folder=Path("zoo")) == Path("zoo", worm.file)
    assert train_zoo("Worm", *arguments[1:]) == 0  # looks after the worlds with its policy too
    assert "WormStatic is in the zoo already" in capsys.readouterr().out


def test_a_world_takes_the_policy_of_its_behavior() -> None:
    Path("table.toml").write_text('[WallJump]\nseed = 1\n[BigWallJump]\npolicy_of = "WallJump"\n')
    policies = ZooIndex.read(SCRIPT["ZOO"]).of("WallJump")
    shutil.copytree(SCRIPT["ZOO"] / "WallJump", "zoo/WallJump")
    ZooIndex(policies).write(Path("zoo"))
    assert train_zoo("BigWallJump", "--table", "table.toml") == 0
    (policy,) = ZooIndex.read(Path("zoo")).of("BigWallJump")
    assert (policy.behavior, policy.file) == ("BigWallJump", "WallJump/BigWallJump.onnx")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("[Basi]\nseed = 1", "'Basi' is not a world with a configuration"),
        ("[Basic]\nseed = 1\nstep = 5", "Basic: unknown key 'step'"),
        ("[Basic]\nsteps = {Basic = 5}", "expected a number `seed`"),
        ("[Basic]\npolicy_of = 'Basic'", "policy_of = 'Basic': expected a world with a `seed`"),
        ("[Basic]\npolicy_of = 'Worm'", "policy_of = 'Worm': expected a world with a `seed`"),
        ("[Basic]\nseed = 1\npolicy_of = 'Worm'", "cannot be combined with other keys"),
    ],
)
def test_an_invalid_table_is_named(
    table: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("table.toml").write_text(table)
    assert train_zoo("--table", "table.toml") == 1
    assert says in capsys.readouterr().err


def test_the_table_of_the_zoo_is_valid() -> None:
    assert len(SCRIPT["read_table"](SCRIPT["ZOO"] / SCRIPT["TABLE"])) > 30


@pytest.mark.parametrize(("precision", "error"), [("float16", 1e-3), ("int8", 0.02)])
def test_low_precision_changes_actions_little(run: Path, precision: str, error: float) -> None:
    model = (run / "Basic.onnx").read_bytes()
    small = SCRIPT["compressed"](model, precision)
    assert len(small) < len(model)
    decisions = DecisionSteps(
        obs=[np.eye(20, dtype=np.float32)],
        reward=np.zeros(20, np.float32),
        agent_id=np.arange(20, dtype=np.int32),
        action_mask=[np.zeros((20, 3), bool)],
        group_id=np.zeros(20, np.int32),
        group_reward=np.zeros(20, np.float32),
    )
    (expected,) = Policy(model).probabilities(decisions) or ()
    (found,) = Policy(small).probabilities(decisions) or ()
    np.testing.assert_allclose(found, expected, atol=error)
    stored = [each for each in load_from_string(small).graph.initializer if "weight" in each.name]
    kind = {"float16": TensorProto.FLOAT16, "int8": TensorProto.INT8}[precision]
    matrices = [each for each in stored if each.name.endswith(f"weight.{precision}")]
    assert len(matrices) == 2 and all(each.data_type == kind for each in matrices)


def test_the_lowest_precision_that_keeps_the_score_is_chosen() -> None:
    model, small = b"1" * 5_000_000, {"float16": b"2" * 3_000_000, "int8": b"3" * 1_500_000}
    means = {b"1": 1.0, b"2": 1.0, b"3": 0.9}
    judged = SCRIPT["judged"]
    originals = judged.__globals__["compressed"], ZOO_RUNS.evaluate

    def evaluate(world: str, models: dict[str, bytes], *, episodes: int) -> dict[str, Score]:
        return {"A": Score(100, means[models["A"][:1]], 1.0, 0.01, 5.0)}

    judged.__globals__["compressed"] = lambda _, precision: small[precision]
    ZOO_RUNS.evaluate = evaluate
    try:
        assert judged("W", {"A": model}, episodes=1)[2] == "float16"
        means[b"3"] = 0.99
        assert judged("W", {"A": model}, episodes=1)[2] == "int8"
        small["float16"] = b"2" * 1_500_000  # small enough, so it is not compressed further
        assert judged("W", {"A": model}, episodes=1)[2] == "float16"
        means[b"2"] = 0.9
        assert judged("W", {"A": model}, episodes=1)[2] == "float32"
    finally:
        judged.__globals__["compressed"], ZOO_RUNS.evaluate = originals


def test_a_lower_score_counts_beyond_two_standard_errors() -> None:
    def score(mean: float) -> Score:
        return Score(100, mean, 1.0, 0.1, 5.0)

    keeps_score = SCRIPT["keeps_score"]
    # The difference has an error of 0.1 * sqrt(2) = 0.14, twice that is 0.28.
    assert keeps_score(score(0.8), score(1.0)) and keeps_score(score(1.2), score(1.0))
    assert not keeps_score(score(0.7), score(1.0))


def test_each_behavior_of_a_game_plays_against_random_actions() -> None:
    played = []
    original = ZOO_RUNS._play

    def play(world: str, models: object, *, episodes: int, team: int | None) -> dict[str, Score]:
        played.append(team)
        return {name: Score(1, float(team or 0), 0.0, 0.0, 1.0) for name in ("Striker", "Goalie")}

    ZOO_RUNS._play = play
    try:
        models = {"Striker": b"", "Goalie": b""}
        scores = ZOO_RUNS.evaluate("StrikersVsGoalie", models, episodes=1)
    finally:
        ZOO_RUNS._play = original
    assert played == [0, 1]
    assert (scores["Striker"].mean, scores["Goalie"].mean) == (0.0, 1.0)


def test_rewards_of_groups_and_ratings_are_curves(tmp_path: Path) -> None:
    lines = [
        {"behavior": "A", "step": step, "time": step, "stats": {ZOO_RUNS.REWARD: 1.0, **more}}
        for step, more in ((10, {ZOO_RUNS.GROUP_REWARD: 2.0}), (20, {}), (20, {}))
    ]
    lines += [
        {"behavior": "B", "step": 10, "time": 1, "stats": {ZOO_RUNS.ELO: 1300.0}},
        {"behavior": "B", "step": 20, "time": 2, "stats": {ZOO_RUNS.REWARD: 0.5}},
    ]
    (tmp_path / "stats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    curves = ZOO_RUNS.curves_of(tmp_path)
    assert curves["A"].rewards.tolist() == [3.0, 1.0]
    assert curves["A"].steps.tolist() == [10, 20]
    assert (curves["B"].rewards.tolist(), curves["B"].measure) == ([1300.0], "Elo")


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        pytest.param((10, 20, 3620, 3630, 3640), 50.0, id="stopped for an hour"),
        pytest.param((1, 2, 3, 42, 43, 44, 83, 84, 85), 94.5, id="summaries between long updates"),
    ],
)
def test_the_duration_of_a_run_leaves_out_interruptions(
    times: tuple[int, ...], expected: float, tmp_path: Path
) -> None:
    lines = [
        {"behavior": "A", "step": step, "time": time, "stats": {}}
        for step, time in enumerate(times)
    ]
    (tmp_path / "stats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert ZOO_RUNS.seconds_of(tmp_path) == pytest.approx(expected)
    assert ZOO_RUNS.seconds_of(tmp_path / "nothing") is None
