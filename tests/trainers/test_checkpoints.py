import errno
import json
from pathlib import Path

import pytest
import torch

from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.run.checkpoints import CheckpointStore, initial_checkpoint, load_checkpoint
from mlagents.trainers.run.fitting import fitted
from mlagents.trainers.run.folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "results" / "first")
    folder.prepare(resume=False, force=False, inference=False)
    return folder


def save(store: CheckpointStore, step: int, *, keep: int = 5, is_final: bool = False) -> None:
    store.save(
        "3DBall",
        step=step,
        state={"global_step": step, "weights": torch.full((2,), float(step))},
        model=f"model {step}".encode(),
        reward=step / 10,
        keep=keep,
        is_final=is_final,
    )


def names(folder: RunFolder) -> list[str]:
    return sorted(path.name for path in (folder.path / "3DBall").iterdir())


def status(folder: RunFolder) -> dict:
    return json.loads(folder.status.read_text())


def test_a_used_run_id_is_refused_and_both_ways_on_are_named(folder: RunFolder) -> None:
    CheckpointStore(folder, resume=False).write_status()
    with pytest.raises(UnityTrainerException, match=r"--resume.*--force"):
        folder.prepare(resume=False, force=False, inference=False)


def test_a_run_that_failed_before_its_first_step_may_be_tried_again(folder: RunFolder) -> None:
    folder.write_configuration("behaviors: {}")

    folder.prepare(resume=False, force=False, inference=False)


def test_a_run_of_another_program_is_not_mixed_with_this_one(folder: RunFolder) -> None:
    save(CheckpointStore(folder, resume=False), 10)
    folder.status.unlink()

    with pytest.raises(UnityTrainerException, match=r"--resume.*--force"):
        folder.prepare(resume=False, force=False, inference=False)


def test_resuming_what_is_not_there_lists_the_runs_that_are(folder: RunFolder) -> None:
    missing = RunFolder(folder.path.with_name("frist"))
    save(CheckpointStore(folder, resume=False), 10)
    folder.prepare(resume=False, force=True, inference=False)  # a backup, and nothing yet
    with pytest.raises(UnityTrainerException, match=r"to start a new run\.$"):
        missing.prepare(resume=True, force=False, inference=False)
    save(CheckpointStore(folder, resume=False), 10)

    with pytest.raises(
        UnityTrainerException, match=r"did you mean 'first'\?; runs there: first\.$"
    ):
        missing.prepare(resume=True, force=False, inference=False)
    assert not missing.path.exists()


def test_force_moves_the_earlier_run_aside_whole(folder: RunFolder) -> None:
    save(CheckpointStore(folder, resume=False), 10)

    folder.prepare(resume=False, force=True, inference=False)

    assert not (folder.path / "3DBall").exists()
    (backup,) = folder.path.parent.glob("first-backup-*")
    assert load_checkpoint(backup / "3DBall" / "checkpoint.pt")["global_step"] == 10


def test_resume_leaves_everything_in_place_even_with_force(folder: RunFolder) -> None:
    save(CheckpointStore(folder, resume=False), 10)

    folder.prepare(resume=True, force=True, inference=False)

    assert load_checkpoint(folder.checkpoint("3DBall"))["global_step"] == 10


def test_a_checkpoint_is_saved_with_its_model_and_listed(folder: RunFolder) -> None:
    store = CheckpointStore(folder, resume=False)

    save(store, 10)
    save(store, 20, is_final=True)

    assert names(folder) == [
        "3DBall-10.onnx",
        "3DBall-10.pt",
        "3DBall-20.onnx",
        "3DBall-20.pt",
        "checkpoint.pt",
    ]
    assert folder.model("3DBall").read_bytes() == b"model 20"
    torch.testing.assert_close(
        load_checkpoint(folder.checkpoint("3DBall"))["weights"], torch.full((2,), 20.0)
    )
    first, second = status(folder)["3DBall"]["checkpoints"]
    assert (first["steps"], first["reward"]) == (10, 1.0)
    assert Path(second["file_path"]).name == "3DBall-20.onnx"
    assert [Path(path).name for path in second["auxillary_file_paths"]] == ["3DBall-20.pt"]
    assert status(folder)["3DBall"]["final_checkpoint"]["file_path"] == str(folder.model("3DBall"))
    assert status(folder)["metadata"]["stats_format_version"] == "0.3.0"


def test_only_the_newest_are_kept(folder: RunFolder) -> None:
    store = CheckpointStore(folder, resume=False)

    for step in (10, 20, 30, 40):
        save(store, step, keep=2)

    assert [name for name in names(folder) if name.endswith(".pt")] == [
        "3DBall-30.pt",
        "3DBall-40.pt",
        "checkpoint.pt",
    ]
    assert [entry["steps"] for entry in status(folder)["3DBall"]["checkpoints"]] == [30, 40]


def test_keeping_none_means_keeping_all(folder: RunFolder) -> None:
    store = CheckpointStore(folder, resume=False)
    for step in range(10):
        save(store, step, keep=0)
    assert len(status(folder)["3DBall"]["checkpoints"]) == 10


def test_saving_twice_at_one_step_lists_it_once_and_deletes_nothing(folder: RunFolder) -> None:
    store = CheckpointStore(folder, resume=False)

    for step in (10, 20, 20):
        save(store, step, keep=2)

    assert [entry["steps"] for entry in status(folder)["3DBall"]["checkpoints"]] == [10, 20]
    assert {"3DBall-10.pt", "3DBall-20.pt"} <= set(names(folder))


def test_a_resumed_list_goes_on_and_rotates_old_files_of_a_moved_run(folder: RunFolder) -> None:
    save(CheckpointStore(folder, resume=False), 10)
    moved = RunFolder(folder.path.with_name("moved"))
    folder.path.rename(moved.path)

    save(CheckpointStore(moved, resume=True), 20, keep=1)

    assert [name for name in names(moved) if name.endswith(".pt")] == [
        "3DBall-20.pt",
        "checkpoint.pt",
    ]


def test_a_full_disk_leaves_the_last_checkpoint_whole(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(folder, resume=False)
    save(store, 10)
    before = names(folder)

    def no_space(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", no_space)
        with pytest.raises(OSError, match="No space left"):
            save(store, 20)

    assert names(folder) == before
    assert load_checkpoint(folder.checkpoint("3DBall"))["global_step"] == 10
    save(store, 30)
    assert load_checkpoint(folder.checkpoint("3DBall"))["global_step"] == 30


def test_a_list_never_names_a_file_that_is_gone(folder: RunFolder) -> None:
    store = CheckpointStore(folder, resume=False)
    for step in (10, 20):
        save(store, step)
    (folder.path / "3DBall" / "3DBall-10.onnx").unlink()

    save(store, 30)

    assert [entry["steps"] for entry in status(folder)["3DBall"]["checkpoints"]] == [20, 30]
    assert "3DBall-10.pt" not in names(folder), "half a checkpoint is of no use"


def test_what_the_finished_model_was_made_of_is_kept_until_there_is_another(
    folder: RunFolder,
) -> None:
    save(CheckpointStore(folder, resume=False), 10, is_final=True)
    store = CheckpointStore(folder, resume=True)

    for step in (20, 30):
        save(store, step, keep=1)

    assert {"3DBall-10.pt", "3DBall-30.pt"} <= set(names(folder))
    assert "3DBall-10.onnx" not in names(folder)
    save(store, 40, keep=1, is_final=True)
    assert [name for name in names(folder) if name.endswith(".pt")] == [
        "3DBall-40.pt",
        "checkpoint.pt",
    ]


def test_files_outlive_a_list_that_could_not_be_written(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(folder, resume=False)
    save(store, 10, keep=1)
    replace = Path.replace

    def refuse_the_status(path: Path, target: Path) -> Path:
        if Path(target) == folder.status:
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", refuse_the_status)
        with pytest.raises(OSError, match=r"No space left.*training_status\.json"):
            save(store, 20, keep=1)

    (entry,) = status(folder)["3DBall"]["checkpoints"]
    assert entry["steps"] == 10
    assert {"3DBall-10.pt", "3DBall-10.onnx", "3DBall-20.pt"} <= set(names(folder))
    save(store, 30, keep=1)
    assert names(folder) == ["3DBall-30.onnx", "3DBall-30.pt", "checkpoint.pt"]


def test_a_moved_run_names_its_files_where_they_are(folder: RunFolder) -> None:
    save(CheckpointStore(folder, resume=False), 10, is_final=True)
    moved = RunFolder(folder.path.with_name("moved"))
    folder.path.rename(moved.path)

    CheckpointStore(moved, resume=True).write_status()

    section = status(moved)["3DBall"]
    for entry in (*section["checkpoints"], section["final_checkpoint"]):
        for path in (entry["file_path"], *entry["auxillary_file_paths"]):
            assert Path(path).exists() and Path(path).is_relative_to(moved.path)


def test_a_run_goes_on_from_the_newest_checkpoint_there_is(folder: RunFolder) -> None:
    store = CheckpointStore(folder, resume=False)
    assert store.newest("3DBall") is None
    for step in (10, 20):
        save(store, step)
    assert store.newest("3DBall") == folder.checkpoint("3DBall")

    folder.checkpoint("3DBall").unlink()

    store = CheckpointStore(folder, resume=True)
    assert store.newest("3DBall") == folder.path / "3DBall" / "3DBall-20.pt"


def test_lessons_are_kept_beside_a_behavior_of_the_same_name(folder: RunFolder) -> None:
    store = CheckpointStore(folder, resume=False)
    store.set_lessons({"3DBall": {"lesson_num": 2}, "wall": {"lesson_num": 1}})
    save(store, 10)

    assert len(status(folder)["3DBall"]["checkpoints"]) == 1
    lessons = CheckpointStore(folder, resume=True).lessons
    assert {name: lesson["lesson_num"] for name, lesson in lessons.items()} == {
        "3DBall": 2,
        "wall": 1,
    }


def test_what_a_killed_run_left_half_written_is_cleared_away(folder: RunFolder) -> None:
    save(CheckpointStore(folder, resume=False), 10)
    litter = folder.path / "3DBall" / ".3DBall-20.pt.4711.tmp"
    litter.write_bytes(b"half")

    folder.prepare(resume=True, force=False, inference=True)
    assert litter.exists()
    folder.prepare(resume=True, force=False, inference=False)

    assert not litter.exists()
    assert "3DBall-10.pt" in names(folder)


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file")
    folder = RunFolder(tmp_path / "results" / "first")

    with pytest.raises(
        UnityTrainerException, match=r"cannot write to the run folder .*--results-dir"
    ):
        folder.prepare(resume=False, force=False, inference=False)


def test_a_broken_checkpoint_is_named(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(UnityTrainerException, match=r"checkpoint\.pt cannot be read"):
        load_checkpoint(path)
    with pytest.raises(UnityTrainerException, match=r"there is no checkpoint .*none\.pt"):
        load_checkpoint(tmp_path / "none.pt")


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple:
            return Path.touch, (tmp_path / "evil",)

    torch.save({"Policy": Evil()}, tmp_path / "checkpoint.pt")

    with pytest.raises(UnityTrainerException, match="cannot be read"):
        load_checkpoint(tmp_path / "checkpoint.pt")
    assert not (tmp_path / "evil").exists()


def test_layers_are_taken_whole_where_they_fit() -> None:
    fresh = {
        "Policy": {
            "normalizer.count": torch.ones(()),
            "normalizer.mean": torch.zeros(3),
            "dense.weight": torch.zeros(2, 3),
            "dense.bias": torch.zeros(2),
            "new.weight": torch.zeros(1),
        },
        "Optimizer:adam": {"state": {}, "param_groups": []},
        "global_step": 0,
    }
    saved = {
        "Policy": {
            "normalizer.count": torch.tensor(9.0),
            "normalizer.mean": torch.ones(4),
            "dense.weight": torch.ones(2, 3),
            "dense.bias": torch.ones(2),
            "old.weight": torch.ones(1),
        },
        "Optimizer:adam": {"state": {0: {}}, "param_groups": [{}]},
        "global_step": 7,
    }

    fitting, unlike = fitted(saved, fresh)

    assert unlike == ["Policy: normalizer", "Policy: new"]
    assert fitting == fresh | {
        "Policy": fresh["Policy"]
        | {name: saved["Policy"][name] for name in ("dense.weight", "dense.bias")}
    }
    assert fresh["Policy"]["dense.bias"].sum() == 0
    with pytest.raises(ValueError, match="no layer"):
        fitted({"Policy": {"dense.bias": torch.ones(2)}}, fresh)


@pytest.mark.parametrize("text", ['{"3DBall": ', "[]", '{"3DBall": {"checkpoints": [1]}}'])
def test_a_broken_status_file_is_named(folder: RunFolder, text: str) -> None:
    folder.status.write_text(text)
    with pytest.raises(UnityTrainerException, match=r"training_status\.json cannot be read"):
        CheckpointStore(folder, resume=True)


@pytest.mark.parametrize(
    ("run_id", "init_path", "expected"),
    [
        (None, None, None),
        ("old", None, "results/old/3DBall/checkpoint.pt"),
        ("old", "3DBall-10.pt", "results/old/3DBall/3DBall-10.pt"),
        ("old", "elsewhere/any.pt", "elsewhere/any.pt"),
        (None, "elsewhere/any.pt", "elsewhere/any.pt"),
        (None, "here.pt", "here.pt"),
    ],
)
def test_where_a_behavior_begins(
    run_id: str | None,
    init_path: str | None,
    expected: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if expected:
        Path(expected).parent.mkdir(parents=True, exist_ok=True)
        Path(expected).touch()

    found = initial_checkpoint(run_id, init_path, results_dir=Path("results"), behavior="3DBall")

    assert found == (Path(expected) if expected else None)


def test_a_missing_beginning_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        UnityTrainerException, match=r"old.3DBall.checkpoint\.pt.*--initialize-from"
    ):
        initial_checkpoint("old", None, results_dir=tmp_path, behavior="3DBall")


def test_two_runs_are_not_in_one_folder(tmp_path: Path):
    folder = RunFolder(tmp_path / "run")
    with folder.opened(resume=False, force=False, inference=False):
        for options in ({"force": True}, {"resume": True}, {}):
            asked = {"resume": False, "force": False, "inference": False} | options
            with (
                pytest.raises(UnityTrainerException, match="another run uses"),
                RunFolder(folder.path).opened(**asked),
            ):
                pass
        assert [path.name for path in tmp_path.iterdir()] == ["run"]  # nothing was moved aside
        with folder.opened(resume=False, force=False, inference=True):
            pass
    with folder.opened(resume=True, force=False, inference=False):
        pass
