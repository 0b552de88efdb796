"""The zoo: its index and its files agree, its policies act, and `--model zoo` finds them."""

import dataclasses
import hashlib
import tomllib
from pathlib import Path

import numpy as np
import pytest

from mlagents.playing.play import main
from mlagents.playing.zoo import OLDER, Reference, ZooIndex, ZooPolicy, find_in_zoo
from mlagents.policy import Policy, find_model
from mlagents.trainers.settings.configurations import find_configuration
from mlagents_envs.base_env import BehaviorId
from mlagents_envs.exception import UnityPolicyException
from mlagents_sim.catalog import CATALOG

FOLDER = Path(__file__).parents[2] / "src" / "mlagents" / "zoo"  # an installed one lacks a part
MOST_BYTES = 25_000_000
MOST_BYTES_INSTALLED = 15_000_000
N_DECISIONS = 3

INDEX = ZooIndex.read(FOLDER)
WORLDS = list(dict.fromkeys(policy.world for policy in INDEX.policies))

ENTRY = ZooPolicy(
    world="Basic",
    behavior="Basic",
    trained_in="Basic",
    file="Basic/Basic.onnx",
    bytes=1,
    sha256="",
    precision="float32",
    configuration="config/ppo/Basic.yaml",
    changes=(),
    seed=1,
    steps=10,
    seconds=1.0,
    version="2.0.0",
    score=0.9,
    error=0.1,
    episodes=100,
    opponents=None,
    published=0.93,
)


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ------------------------------------------------------------------------------ what the zoo has


def test_the_index_has_every_file_and_no_other() -> None:
    assert {FOLDER / policy.file for policy in INDEX.policies} == set(FOLDER.rglob("*.onnx"))
    for policy in INDEX.policies:
        content = (FOLDER / policy.file).read_bytes()
        assert len(content) == policy.bytes
        assert hashlib.sha256(content).hexdigest() == policy.sha256, policy.file


def test_the_zoo_is_small() -> None:
    sizes = {policy.file: policy.bytes for policy in INDEX.policies}  # some worlds share a file
    installed = [size for file, size in sizes.items() if not file.startswith(f"{OLDER}/")]
    assert sum(sizes.values()) <= MOST_BYTES
    assert sum(installed) <= MOST_BYTES_INSTALLED


def test_the_package_carries_all_but_older_worlds(tmp_path: Path) -> None:
    files = {"zoo/index.json", "zoo/A/A.onnx", "zoo/A/B.onnx", "zoo/older/C/C.onnx"}
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    project = tomllib.loads((FOLDER.parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["mlagents"]
    carried = {path.relative_to(tmp_path).as_posix() for p in patterns for path in tmp_path.glob(p)}
    assert carried == files - {"zoo/older/C/C.onnx"}


@pytest.mark.parametrize("world", WORLDS)
def test_the_index_says_how_policies_came_about(world: str) -> None:
    names = [BehaviorId.parse(name).name for name in CATALOG[world].make().behavior_specs]
    policies = INDEX.of(world)
    assert {policy.behavior for policy in policies} == set(names)
    for policy in policies:
        assert policy.file.startswith(OLDER) == ("older" in CATALOG[policy.trained_in].tags)
        assert find_configuration(Path(policy.configuration)).is_file()
        assert policy.steps > 0 and policy.episodes == 100
        assert np.isfinite([policy.score, policy.error]).all()
        assert (policy.opponents == "random") == ("teams" in CATALOG[world].tags)


@pytest.mark.parametrize("world", WORLDS)
def test_the_policies_act_in_their_world(world: str) -> None:
    env = CATALOG[world].make(seed=1, keep_8_bit_images=True)
    env.reset()
    place = find_in_zoo(world, folder=FOLDER)
    policies = {}
    for name, spec in env.behavior_specs.items():
        model = find_model(place, BehaviorId.parse(name).name)
        policies[name] = Policy.load(model, seed=1)
        policies[name].check(spec, name)
    n_decided = 0
    while n_decided < N_DECISIONS:
        for name, policy in policies.items():
            decisions, terminals = env.get_steps(name)
            action = policy.act(decisions, terminals)
            assert np.isfinite(action.continuous).all()
            env.set_actions(name, action)
            n_decided += len(decisions) > 0
        env.step()
    env.close()


# --------------------------------------------------------------------------- what --model zoo finds


@pytest.mark.skipif(not INDEX.of("Basic"), reason="the zoo has no policy for Basic")
def test_a_policy_of_the_zoo_plays(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--env", "Basic", "--model", "zoo", "--episodes", "100"]) == 0
    score = INDEX.of("Basic")[0].score
    assert f"mean {score:.3f}" in capsys.readouterr().out


def test_a_world_without_a_policy_gets_a_list_of_those_that_have_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--env", "3DBal", "--model", "zoo"]) == 1
    says = capsys.readouterr().err
    assert "mlagents-play: the zoo has no policy for '3DBal'" in says
    assert "It has policies for: " in says
    assert "--env 3DBal --run-id mine" in says


def test_the_zoo_needs_the_name_of_a_world(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "zoo"]) == 1
    assert "'zoo' needs --env with the name of a world" in capsys.readouterr().err


def test_a_model_of_the_zoo_may_act_for_one_behavior(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--env", "Nothing", "--model", "Striker=zoo", "--model", "Goalie=x.onnx"]) == 1
    assert "the zoo has no policy for 'Nothing'" in capsys.readouterr().err


def test_contestants_may_come_from_the_zoo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--env", "Nothing", "--tournament", "zoo", "x.onnx"]) == 1
    assert "the zoo has no policy for 'Nothing'" in capsys.readouterr().err


def test_a_run_named_zoo_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    Path("results/zoo/run_logs").mkdir(parents=True)
    assert main(["--env", "Basic", "--model", "zoo"]) == 1
    assert "there is no model of 'Basic' in results/zoo" in capsys.readouterr().err


def test_what_an_installation_leaves_out_is_named(tmp_path: Path) -> None:
    world = "CrawlerStaticTarget"
    older = dataclasses.replace(ENTRY, world=world, trained_in=world, file=f"older/{world}/x.onnx")
    ZooIndex((ENTRY, older)).write(tmp_path)
    with pytest.raises(UnityPolicyException, match=rf"zoo/older/{world} of a checkout"):
        find_in_zoo(world, folder=tmp_path)


def test_an_index_is_read_as_it_was_written(tmp_path: Path) -> None:
    index = ZooIndex((ENTRY,), (Reference("Basic", 0.5, 0.25, 3),))
    index.write(tmp_path)
    assert ZooIndex.read(tmp_path) == index
    assert index.reference_of("Basic") == index.trained_in_unity[0]
    assert index.reference_of("3DBall") is None


def test_a_zoo_without_an_index_is_empty_and_a_broken_index_is_named(tmp_path: Path) -> None:
    assert ZooIndex.read(tmp_path) == ZooIndex()
    (tmp_path / "index.json").write_text('{"policies": [{}]}')
    with pytest.raises(UnityPolicyException, match=r"index\.json, cannot be read"):
        ZooIndex.read(tmp_path)
