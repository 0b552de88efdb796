"""`mlagents-push-to-hf` and `mlagents-load-from-hf`: share runs on the Hugging Face Hub.

They need the extra `hub`. Its client library determines the address of the hub (`HF_ENDPOINT`) and
the credentials (`HF_TOKEN`, or `hf auth login`).
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlagents import __version__
from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.settings.load import is_code
from mlagents.trainers.settings.reading import read_configuration
from mlagents_envs.completion import add_completion
from mlagents_envs.folder_names import DOWNLOADED
from mlagents_envs.logging_util import get_logger
from mlagents_envs.programs import install_command

if TYPE_CHECKING:
    from huggingface_hub import HfApi

logger = get_logger(__name__)


class HubError(Exception):
    """A run cannot be pushed or loaded. The message gives the reason and a remedy."""


def push(argv: Sequence[str] | None = None) -> int:
    """Run `mlagents-push-to-hf`; return its exit status: 0, or 1 after an error."""
    parser = argparse.ArgumentParser(
        prog="mlagents-push-to-hf",
        description="Upload the folder of a run to the Hugging Face Hub, with a model card.",
    )
    parser.add_argument(
        "--run-id", required=True, metavar="NAME", help="name of the run; title of the model card"
    )
    parser.add_argument(
        "--repo-id",
        required=True,
        metavar="USER/NAME",
        help="repository to upload to; it is created if it does not exist",
    )
    parser.add_argument(
        "--local-dir",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="folder of the run (default: ./)",
    )
    parser.add_argument(
        "--commit-message",
        default="Push to Hub",
        metavar="TEXT",
        help="message of the commit in the repository (default: %(default)s)",
    )
    parser.add_argument(
        "--configfile-name",
        default="configuration.yaml",
        metavar="FILE",
        help="name of the file with the run's options in that folder (default: %(default)s)",
    )
    add_completion(parser)
    arguments = parser.parse_args(argv)
    return _status_of(
        lambda: push_run(
            arguments.local_dir,
            arguments.repo_id,
            run_id=arguments.run_id,
            commit_message=arguments.commit_message,
            configuration=arguments.configfile_name,
        )
    )


def load(argv: Sequence[str] | None = None) -> int:
    """Run `mlagents-load-from-hf`; return its exit status: 0, or 1 after an error."""
    parser = argparse.ArgumentParser(
        prog="mlagents-load-from-hf",
        description="Download a run from the Hugging Face Hub.",
    )
    parser.add_argument(
        "--repo-id", required=True, metavar="USER/NAME", help="repository to download"
    )
    parser.add_argument(
        "--local-dir",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="folder in which the run's folder, named NAME, is created (default: ./)",
    )
    add_completion(parser)
    arguments = parser.parse_args(argv)
    return _status_of(lambda: load_run(arguments.repo_id, arguments.local_dir))


def _status_of(command: Callable[[], object]) -> int:
    try:
        command()
    except KeyboardInterrupt:
        logger.info("Interrupted.")
        return 1
    except (HubError, TrainerConfigError, OSError) as error:
        logger.error(str(error))
        return 1
    return 0


def push_run(
    folder: Path, repo_id: str, *, run_id: str, commit_message: str, configuration: str
) -> str:
    """Upload a run's folder, creating the repository if it does not exist.

    First adds two files to the folder: `config.json` with the run's options, and a model card
    `README.md` unless there is one.

    Args:
        folder: Folder of the run.
        repo_id: Repository, as `<user>/<name>`.
        run_id: Title of the model card.
        commit_message: Commit message of the upload.
        configuration: Name of the file with the run's options within the folder.

    Returns:
        Address of the repository.

    Raises:
        HubError: The folder is not the folder of a run, or the hub refuses or cannot be reached.
        TrainerConfigError: The file of options cannot be read.
    """
    _split(repo_id)
    options_file = folder / configuration
    if not options_file.is_file():
        below = sorted(path.parent for path in folder.glob(f"*/{configuration}"))
        hint = f" Runs below it: {', '.join(map(str, below))}." if below else ""
        raise HubError(
            f"{options_file} does not exist: --local-dir must be the folder of a run, with the "
            f"run's options in the file that --configfile-name names.{hint}"
        )
    options = read_configuration(options_file)
    (folder / "config.json").write_text(json.dumps(options, indent=2), encoding="utf-8")
    card = folder / "README.md"
    if not card.exists():
        behaviors = list(options.get("behaviors") or {})
        behaviors += sorted(path.stem for path in folder.glob("*.onnx"))  # of default_settings
        behaviors = list(dict.fromkeys(behaviors))
        env = (options.get("env_settings") or {}).get("env_path")
        text = model_card(run_id, repo_id, behaviors, needs_env=env is not None and is_code(env))
        card.write_text(text, "utf-8")

    api = _api()
    logger.info(f"Pushing run {run_id} from {folder} to {repo_id}.")
    with _hub_errors(repo_id):
        address = str(api.create_repo(repo_id, exist_ok=True))
        api.upload_folder(
            repo_id=repo_id,
            folder_path=folder,
            commit_message=commit_message,
            ignore_patterns=[DOWNLOADED],
        )
    logger.info(f"Pushed: {address}")
    return address


def load_run(repo_id: str, into: Path) -> Path:
    """Download a repository into the folder `<into>/<name>`, and return the folder.

    The folder is marked as downloaded. No module in it is imported, and no configuration in it may
    name code to run.

    Raises:
        HubError: The folder contains other files, or the hub refuses or cannot be reached.
    """
    _, name = _split(repo_id)
    folder = into / name
    is_from_hub = any((folder / mark).exists() for mark in (DOWNLOADED, ".cache/huggingface"))
    if not is_from_hub and folder.exists() and any(folder.iterdir()):
        raise HubError(
            f"{folder} contains files that are not from the hub and would be overwritten. "
            "Choose another --local-dir."
        )
    api = _api()
    with _hub_errors(repo_id):
        # Given a branch, the client returns an old copy if the hub cannot be reached.
        revision = api.model_info(repo_id).sha
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DOWNLOADED).write_text(f"{repo_id}\n", encoding="utf-8")
    with _hub_errors(repo_id):
        api.snapshot_download(repo_id, revision=revision, local_dir=folder)
    logger.info(f"Loaded {repo_id} to {folder}.")
    return folder


def model_card(
    run_id: str, repo_id: str, behaviors: Sequence[str], *, needs_env: bool = False
) -> str:
    """Return the page that the hub shows: metadata for search, and how to use the run.

    Args:
        run_id: Title of the card.
        repo_id: Repository, as `<user>/<name>`.
        behaviors: Names of the trained behaviors.
        needs_env: Whether the environment is code or a build that is not part of the run.
    """
    tags = ["deep-reinforcement-learning", "reinforcement-learning"]
    if behaviors:
        tags = [behaviors[0], *tags, f"ML-Agents-{behaviors[0]}"]
    _, name = _split(repo_id)
    # JSON text is also YAML, for any characters in a behavior's name.
    lines = ["---", "library_name: ml-agents", "tags:", *(f"- {json.dumps(tag)}" for tag in tags)]
    env = " --env ENVIRONMENT" if needs_env else ""
    own_env = (
        "\nReplace `ENVIRONMENT` by your own copy of the environment. The environment that the\n"
        "configuration names is not part of this run, and a downloaded configuration does not\n"
        "start code by itself.\n"
    )
    models = ", ".join(f"`{behavior}.onnx`" for behavior in behaviors) or "`<behavior>.onnx`"
    return (
        "\n".join(lines)
        + f"""
---

# {run_id}

Policies for {", ".join(behaviors) or "a Unity environment"}, trained with ML-Agents
(mlagents-next {__version__}).

Download the run:

    mlagents-load-from-hf --repo-id {repo_id} --local-dir results

Assign {models} to an agent in Unity, or continue training from these weights:

    mlagents-learn results/{name}/configuration.yaml{env} --run-id new --initialize-from {name}
{own_env if needs_env else ""}"""
    )


def _split(repo_id: str) -> tuple[str, str]:
    user, slash, name = repo_id.partition("/")
    if not (user and slash and name) or "/" in name:
        raise HubError(f"--repo-id must be <user>/<name>, with one slash, got {repo_id!r}.")
    return user, name


def _api() -> "HfApi":
    try:
        from huggingface_hub import HfApi
    except ModuleNotFoundError as error:
        raise HubError(f"{error}. Install the client: {install_command('hub')}") from error
    return HfApi(library_name="mlagents-next", library_version=__version__)


@contextmanager
def _hub_errors(repo_id: str) -> Iterator[None]:
    """Convert errors of the hub and its client to a `HubError` of one line."""
    try:
        yield
    except Exception as error:  # error types depend on the client's version and its HTTP library
        response: Any = getattr(error, "response", None)
        status = getattr(response, "status_code", None)
        says = f"{type(error).__name__}: {' '.join(str(error).split())}"
        if status in (401, 403):
            advice = "Log in with `hf auth login`, or set HF_TOKEN to a token with write access."
        elif status == 404 or isinstance(error, ValueError):
            advice = "Check --repo-id."
        else:
            advice = "Check the network and HF_ENDPOINT, and try again."
        raise HubError(f"{repo_id}: {advice} ({says:.500})") from error
