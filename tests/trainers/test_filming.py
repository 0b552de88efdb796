"""Films of a run while it trains."""

import sys
from pathlib import Path

import pytest

from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.learn import run_training
from mlagents.trainers.run.filming import filmer_maker
from mlagents.trainers.settings.run_options import RunOptions

pytest.importorskip("PIL")
pytest.importorskip("imageio_ffmpeg")


def options(folder: Path, env_path: str | None, **settings: object) -> RunOptions:
    return RunOptions.model_validate(
        {
            "behaviors": {
                "Basic": {
                    "trainer_type": "ppo",
                    "hyperparameters": {"batch_size": 16, "buffer_size": 64},
                    "max_steps": 300,
                    "summary_freq": 100,
                }
            },
            "env_settings": {"env_path": env_path, "seed": 1},
            "checkpoint_settings": {"run_id": "a", "results_dir": str(folder), **settings},
        }
    )


def test_the_present_policy_is_filmed_every_so_many_steps(tmp_path: Path) -> None:
    run_training(options(tmp_path, "Basic", film_every=200))
    films = tmp_path / "a" / "films"
    [film] = films.iterdir()  # the copies of the policies are gone
    assert film.suffix == ".mp4" and 200 <= int(film.stem) < 400
    assert film.read_bytes()[4:8] == b"ftyp"


def test_a_film_that_fails_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("import sys; sys.exit('no film today')")
    chosen = options(tmp_path, "Basic", film_every=200)
    monkeypatch.setattr("mlagents.trainers.run.filming.PROGRAM", [str(wrong)])
    run_training(chosen)
    assert "could not be made: no film today" in caplog.text
    assert (tmp_path / "a" / "Basic.onnx").exists()


def test_without_film_every_and_for_inference_there_is_no_filmer(tmp_path: Path) -> None:
    assert filmer_maker(options(tmp_path, "Basic"), tmp_path) is None
    acting = options(tmp_path, "Basic", film_every=5, resume=True, inference=True)
    assert filmer_maker(acting, tmp_path) is None


@pytest.mark.parametrize(
    ("env_path", "message"),
    [
        (None, "--film-every.*the Unity Editor draws no pictures"),
        (sys.executable, "--film-every.*the Unity build .*draws no pictures"),
        ("guess_environment:GuessEnvironment", "GuessEnvironment draws no pictures"),
    ],
)
def test_an_environment_without_pictures_is_refused(
    env_path: str | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(TrainerConfigError, match=message):
        filmer_maker(options(tmp_path, env_path, film_every=5), tmp_path)
