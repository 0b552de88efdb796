"""Files are whole or not there."""

import errno
from pathlib import Path

import pytest

from mlagents_envs.atomic_file import PendingFile, write_atomically, written_atomically


def test_an_atomic_write_that_fails_leaves_the_old_content_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    with pytest.raises(TypeError):
        write_atomically(path, "not bytes")  # type: ignore[arg-type]

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_told_with_the_name_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "file"
    path.write_bytes(b"old")
    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(OSError, match=r"No space left on device: '.*/file'"):
        PendingFile(path).keep()
    with pytest.raises(OSError, match=r"Errno 28.*/file'"), written_atomically(path) as file:
        file.write(b"new")
        no_space(0)
    with pytest.raises(OSError, match=r"/file: the device is gone"), written_atomically(path):
        raise OSError("the device is gone")

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_stands_at_its_path_once_it_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    pending = PendingFile(path)
    pending.file.write(b"new")
    assert path.read_bytes() == b"old"
    pending.keep()
    pending.discard()
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_where_no_file_can_stand_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere/file'"):
        PendingFile(tmp_path / "nowhere" / "file")
    with pytest.raises(IsADirectoryError, match=tmp_path.name):
        PendingFile(tmp_path)
    assert not any(tmp_path.iterdir())
