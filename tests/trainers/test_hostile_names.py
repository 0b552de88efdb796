"""Names that come from outside never decide where files are written."""

import contextlib
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from guess_environment import GuessEnvironment
from mlagents.trainers.exception import TrainerConfigError, UnityTrainerException
from mlagents.trainers.learn import main
from mlagents.trainers.reporting.stats import StatsSummary, TensorBoardWriter
from mlagents.trainers.run.checkpoints import CheckpointStore
from mlagents.trainers.run.folder import RunFolder
from mlagents.trainers.settings.load import load_run_options
from mlagents.trainers.settings.run_options import RunOptions
from mlagents.trainers.settings.typed import CommandLine
from mlagents_envs.base_env import BehaviorId, check_behavior_name
from mlagents_envs.codec import Output, decode_output, encode_output
from mlagents_envs.exception import UnityEnvironmentException

HOSTILE = [
    "../../EVIL?team=0",
    "..",
    ".",
    "",
    "/tmp/EVIL",
    "a/b",
    "a\\b",
    "a\0b",
    "n" * 250,
    "x?team=",
    "x?team=" + "1" * 5000,
    "\x1b[2Jx",
    ".hidden",
]
TAKEN = ["metadata", "run_logs", "configuration.yaml", "training.png", "Walker.onnx", "README.md"]

fragments = st.sampled_from(
    [
        "..",
        ".",
        "/",
        "\\",
        "~",
        "\0",
        "\n",
        "C:",
        "?team=",
        "?",
        "-1",
        "9" * 30,
        " ",
        "x",
        "ü",
        "🤖",
    ]
)
names = st.one_of(
    st.sampled_from(HOSTILE + TAKEN),
    st.text(),
    st.lists(fragments, max_size=8).map("".join),
    st.integers(190, 260).map("n".__mul__),
)


def files(root: Path) -> set[Path]:
    return {path for path in root.rglob("*") if path.is_file()}


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard")
@settings(deadline=None, max_examples=150)
@given(names)
@example("3DBall?team=0")
@example("n" * 200)
def test_a_behavior_is_refused_or_saved_in_the_folder_of_its_run(behavior: str) -> None:
    with TemporaryDirectory() as root:
        folder = RunFolder(Path(root, "a", "results", "run"))
        folder.prepare(resume=False, force=False, inference=False)
        with contextlib.suppress(UnityEnvironmentException, UnityTrainerException):
            check_behavior_name(behavior)
            name = BehaviorId.parse(behavior).name
            folder.require_free(name)
            store = CheckpointStore(folder, resume=False)
            for step in (1, 10**12):  # deletes the first
                store.save(name, step=step, state={}, model=b"", reward=0.0, keep=1, is_final=True)
            folder.experience(name).write_bytes(b"")
            values = {"Reward": StatsSummary(np.ones(1))}
            TensorBoardWriter(folder.path).write_stats(name, values, 1)
            assert CheckpointStore(folder, resume=True).newest(name) is not None
            assert len(files(folder.path / name)) == 5
        assert all(path.is_relative_to(folder.path) for path in files(Path(root)))


@pytest.mark.parametrize("behavior", HOSTILE + TAKEN)
def test_a_behavior_of_an_environment_is_refused_before_anything_is_learned(
    behavior: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    here = tmp_path / "a" / "b" / "c"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setattr(GuessEnvironment, "BEHAVIOR", behavior)
    assert main(["--env", "guess_environment:GuessEnvironment", "--run-id", "first"]) == 1
    errors = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[ERROR]")]
    assert len(errors) == 1
    assert f"a behavior is named {behavior[:80]!r}" in errors[0]
    logs = here / "results" / "first" / "run_logs"
    assert all(path.is_relative_to(logs) for path in files(tmp_path))


@pytest.mark.parametrize("behavior", HOSTILE)
def test_a_behavior_of_a_message_is_refused(behavior: str) -> None:
    env = GuessEnvironment()
    env.reset()
    steps = env.get_steps(env.BEHAVIOR)
    for name, is_safe in (("Guess", True), (behavior, False)):
        message = encode_output(Output({name: env.spec}, {name: steps}, b""), {})
        refused = pytest.raises(UnityEnvironmentException, match="a behavior is named")
        with contextlib.nullcontext() if is_safe else refused:
            assert list(decode_output(message, {}).specs) == ["Guess"]


@pytest.mark.parametrize("name", [*HOSTILE, "x?team=red"])
def test_a_behavior_of_a_file_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="this name is not possible"):
        RunOptions.model_validate({"behaviors": {name: {}}})


def problem_of_run_id(run_id: str) -> str:
    try:
        RunOptions.model_validate({"checkpoint_settings": {"run_id": run_id}})
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("run_id", ["..", "../x", "a/../../x", "/tmp/x", "a//b", "a\\..\\b", "a\0"])
def test_a_run_that_is_no_folder_below_the_results_is_refused(run_id: str) -> None:
    assert "must be the name of a folder" in problem_of_run_id(run_id)


@pytest.mark.parametrize("run_id", ["ppo", "group/run", "2030-01-31 12:00", "a.b..c"])
def test_an_ordinary_run_is_taken(run_id: str) -> None:
    assert not problem_of_run_id(run_id)


@settings(deadline=None, max_examples=300)
@given(names)
def test_a_run_stays_below_the_results(run_id: str) -> None:
    if not problem_of_run_id(run_id):
        results = Path("/somewhere/results")
        path = results / run_id
        assert path.is_relative_to(results) and path != results
        assert not {"..", ""} & set(run_id.split("/"))


@pytest.mark.parametrize("results_dir", ["..", "../elsewhere", "a/../../b", "a\\..\\b"])
def test_results_elsewhere_have_to_be_typed(
    results_dir: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    Path("c.yaml").write_text(
        "default_settings: {max_steps: 64}\n"
        f"checkpoint_settings: {{results_dir: '{results_dir}'}}\n"
        "env_settings: {env_path: 'guess_environment:GuessEnvironment'}\n"
    )
    assert main(["c.yaml"]) == 1
    assert "command line: --results-dir" in capsys.readouterr().out
    assert files(tmp_path) == {here / "c.yaml"}


def test_results_elsewhere_can_be_typed_and_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    Path("c.yaml").write_text("default_settings: {max_steps: 64}\n")
    env = ["--env", "guess_environment:GuessEnvironment"]
    assert main(["c.yaml", *env, "--results-dir", "../elsewhere"]) == 0
    assert main([str(tmp_path / "elsewhere/ppo/configuration.yaml"), "--run-id", "again"]) == 0
    assert (tmp_path / "elsewhere" / "again" / "Guess.onnx").exists()


def test_an_error_of_a_file_names_the_behavior(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("behaviors: {../../EVIL: {}}\n")
    with pytest.raises(TrainerConfigError, match=r"behaviors\.\.\./\.\./EVIL: this name is not"):
        load_run_options(CommandLine(file, {}))
