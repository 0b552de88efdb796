"""A run goes to a hub and comes back, by the hub's own client."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hub_server import HubServer, hub_server
from mlagents.tools.hub import HubError, load_run, model_card, push_run
from mlagents.utils import load_from_hf, push_to_hf
from mlagents_envs.folder_names import DOWNLOADED
from mlagents_envs.programs import install_command

LARGE_FILES = ("Walker.onnx", "Walker/checkpoint.pt")
CONFIGURATION = "behaviors:\n  Walker: {trainer_type: ppo}\nenv_settings: {env_path: Walker}\n"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder as a run leaves it."""
    folder = tmp_path / "results" / "first"
    for name, content in {
        "configuration.yaml": CONFIGURATION.encode(),
        "Walker.onnx": bytes(range(256)) * 100,
        "Walker/checkpoint.pt": b"weights" * 5000,
        "Walker/events.out.tfevents.1": b"\x00curves",
        "run_logs/timers.json": b"{}",
        "run_logs/Player-0.log": b"",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


@pytest.fixture
def hub() -> Iterator[HubServer]:
    pytest.importorskip("huggingface_hub")
    with hub_server() as server:
        yield server


def command(
    function: str, *arguments: str, home: Path, endpoint: str, token: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own: the client reads its environment when imported."""
    code = f"import sys; from mlagents.utils.{function} import main; sys.exit(main())"
    environment = {name: v for name, v in os.environ.items() if not name.startswith("HF_")}
    environment |= {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home / "hf"),
        "HF_TOKEN": token,
        "HF_HUB_DISABLE_XET": "1",  # the client's other way for large files has no public protocol
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".cache" not in path.parts
    }


@pytest.mark.slow
def test_what_is_pushed_is_loaded(run: Path, hub: HubServer, tmp_path: Path) -> None:
    pushing = ("--run-id", "first", "--repo-id", "someone/walker", "--local-dir", str(run))
    pushed = command(
        "push_to_hf", *pushing, home=tmp_path, endpoint=hub.address, token=HubServer.TOKEN
    )
    assert pushed.returncode == 0, pushed.stdout + pushed.stderr
    assert f"Pushed: {hub.address}/someone/walker" in pushed.stdout
    assert hub.messages == ["Push to Hub"]
    assert set(hub.large.values()) == {(run / name).read_bytes() for name in LARGE_FILES}

    loading = ("--repo-id", "someone/walker", "--local-dir", "elsewhere")
    for attempt in ("into a new folder", "again, over what it brought"):
        loaded = command("load_from_hf", *loading, home=tmp_path, endpoint=hub.address)
        assert loaded.returncode == 0, attempt + loaded.stdout + loaded.stderr
        arrived = contents(tmp_path / "elsewhere" / "walker")
        assert arrived.pop(DOWNLOADED) == b"someone/walker\n"
        assert arrived == contents(run)
    assert {"config.json", "README.md", "Walker/checkpoint.pt"} < contents(run).keys()
    assert json.loads((run / "config.json").read_text()) == yaml.safe_load(CONFIGURATION)


@pytest.mark.slow
def test_what_the_hub_refuses_is_one_line(run: Path, hub: HubServer, tmp_path: Path) -> None:
    pushing = ("--run-id", "first", "--repo-id", "someone/walker", "--local-dir", str(run))
    loading = ("--repo-id", "someone/nothing")
    nobody_listens = "http://127.0.0.1:1"
    (tmp_path / "walker" / ".cache" / "huggingface").mkdir(parents=True)
    for function, arguments, endpoint, expected in (
        ("push_to_hf", pushing, hub.address, "hf auth login"),
        ("load_from_hf", loading, hub.address, "Check --repo-id."),
        ("load_from_hf", ("--repo-id", "someone/walker"), nobody_listens, "Check the network"),
    ):
        refused = command(function, *arguments, home=tmp_path, endpoint=endpoint)
        assert refused.returncode == 1, refused.stdout + refused.stderr
        errors = [line for line in refused.stdout.splitlines() if line.startswith("[ERROR]")]
        assert len(errors) == 1 and expected in errors[0], refused.stdout
        assert "Traceback" not in refused.stdout + refused.stderr
    assert hub.repositories == {}


@pytest.mark.parametrize("repo_id", ["walker", "a/b/c", "/walker", "someone/", ""])
def test_a_repository_has_one_slash(repo_id: str, run: Path, tmp_path: Path) -> None:
    with pytest.raises(HubError, match="<user>/<name>"):
        load_run(repo_id, tmp_path)
    before = contents(run)
    with pytest.raises(HubError, match="<user>/<name>"):
        push_run(run, repo_id, run_id="r", commit_message="m", configuration="configuration.yaml")
    assert contents(run) == before


def test_a_folder_that_is_no_run_names_those_below_it(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--run-id", "first", "--repo-id", "someone/walker"]
    assert push_to_hf.main([*arguments, "--local-dir", str(run.parent)]) == 1
    assert f"Runs below it: {run}." in capsys.readouterr().out
    assert push_to_hf.main([*arguments, "--local-dir", str(run), "--configfile-name", "x"]) == 1
    assert f"{run / 'x'} does not exist" in capsys.readouterr().out


def test_loading_never_overwrites_a_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--repo-id", "someone/first", "--local-dir", str(run.parent)]
    assert load_from_hf.main(arguments) == 1
    assert "would be overwritten" in capsys.readouterr().out


def test_without_the_client_the_extra_is_named(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    arguments = ["--run-id", "first", "--repo-id", "someone/walker", "--local-dir", str(run)]
    assert push_to_hf.main(arguments) == 1
    assert f"Install the client: {install_command('hub')}" in capsys.readouterr().out


def test_the_card_can_be_found_by_its_behavior() -> None:
    card = model_card("first", "someone/walker", ["3D: #Ball", "Other"])
    _, metadata, page = card.split("---\n", 2)
    assert yaml.safe_load(metadata) == {
        "library_name": "ml-agents",
        "tags": [
            "3D: #Ball",
            "deep-reinforcement-learning",
            "reinforcement-learning",
            "ML-Agents-3D: #Ball",
        ],
    }
    assert "--repo-id someone/walker" in page and "`Other.onnx`" in page


def test_the_card_leads_to_no_code(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    (run / "configuration.yaml").write_text("env_settings: {env_path: my_env:make}\n")
    with pytest.raises(HubError):
        push_run(run, "a/b", run_id="r", commit_message="m", configuration="configuration.yaml")
    card = (run / "README.md").read_text()
    assert "configuration.yaml --env ENVIRONMENT --run-id" in card
    assert "my_env" not in card
    assert "--env" not in model_card("first", "someone/walker", [])


def test_a_card_someone_wrote_is_kept(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    (run / "README.md").write_text("mine")
    with pytest.raises(HubError):
        push_run(run, "a/b", run_id="r", commit_message="m", configuration="configuration.yaml")
    assert (run / "README.md").read_text() == "mine"
