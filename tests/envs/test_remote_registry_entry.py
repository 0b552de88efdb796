"""Builds from the network: downloads are bounded, checked, kept, and stay in their folder."""

import contextlib
import hashlib
import io
import os
import random
import shutil
import stat
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from file_server import file_server
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.registry import RemoteRegistryEntry, binary_utils, download, unpack
from mlagents_envs.registry.binary_utils import default_cache_folder, find_build, local_build

PROGRAM = "Maze/Maze.x86_64"
PLAYER = f"""#!{sys.executable}
import sys
from mlagents_sim.__main__ import main
sys.exit(main(sys.argv[1:]))
""".encode()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def server():
    with file_server() as server:
        yield server


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def entry_of(name: str, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def link_to(target: str, name: str = "link"):
    return entry_of(name, stat.S_IFLNK | 0o777), target


def archive_of(*contents: tuple[zipfile.ZipInfo | str, bytes | str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for info, data in contents:
            file.writestr(info if isinstance(info, zipfile.ZipInfo) else entry_of(info), data)
    return buffer.getvalue()


def build_archive(program: bytes = PLAYER) -> bytes:
    return archive_of((PROGRAM, program), ("Maze/Maze_Data/level0", b"walls" * 100))


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def fetch(url: str, cache: Path, content: bytes | None = None) -> Path:
    checksum = None if content is None else sha256(content)
    return local_build("Maze", url, sha256=checksum, cache=cache, platform="linux")


def nothing_but_locks(cache: Path) -> bool:
    return all(path.suffix == ".lock" for path in cache.iterdir())


def unpacked(tmp_path: Path, content: bytes) -> dict[str, int]:
    archive = tmp_path / "archive.zip"
    archive.write_bytes(content)
    return unpack.unpack(archive, tmp_path / "folder")


# Entries.


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the build is one for Linux")
def test_a_build_is_downloaded_and_played(server, tmp_path):
    content = build_archive()
    entry = RemoteRegistryEntry(
        "Maze",
        1.0,
        "a world behind a player",
        linux_url=server.serve("maze.zip", content),
        linux_sha256=sha256(content).upper(),
        additional_args=["Basic"],
        tmp_dir=str(tmp_path),
    )
    for seed in (1, 2):
        with contextlib.closing(
            entry.make(
                file_name="ignored", seed=seed, base_port=0, additional_args=["--timeout", "20"]
            )
        ) as env:
            env.reset()
            assert list(env.behavior_specs) == ["Basic?team=0"]
    assert server.asked == ["/maze.zip"]
    assert entry.fetch().is_relative_to(tmp_path / "ml-agents-binaries")


@pytest.mark.parametrize(
    ("platform", "name"), [("linux", "linux"), ("darwin", "darwin"), ("win32", "win")]
)
def test_a_platform_without_address_is_a_missing_file(monkeypatch, platform, name):
    monkeypatch.setattr(sys, "platform", platform)
    urls = {f"{other}_url": "http://127.0.0.1:1/" for other in {"linux", "darwin", "win"} - {name}}
    entry = RemoteRegistryEntry("Maze", 1.0, "", **urls, allow_unverified=True)
    with pytest.raises(FileNotFoundError, match=f"its {name}_url is missing"):
        entry.make()


def test_without_a_checksum_nothing_is_downloaded_unless_allowed(server, tmp_path):
    if not sys.platform.startswith("linux"):
        pytest.skip("the build is one for Linux")
    url = server.serve("maze.zip", build_archive())
    arguments = {"linux_url": url, "tmp_dir": str(tmp_path)}
    entry = RemoteRegistryEntry("Maze", None, None, **arguments)
    with pytest.raises(UnityEnvironmentException, match=r"no linux_sha256.*allow_unverified=True"):
        entry.make()
    assert server.asked == []
    entry = RemoteRegistryEntry("Maze", None, None, **arguments, allow_unverified=True)
    assert entry.fetch().name == "Maze.x86_64"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"linux_url": "ftp://example.org/maze.zip"}, "linux_url .* is not an HTTP address"),
        ({"win_url": "maze.zip"}, "win_url .* is not an HTTP address"),
        ({"darwin_sha256": "abc"}, "darwin_sha256 'abc' is not 64"),
        ({"linux_sha256": "g" * 64}, "is not 64 hexadecimal digits"),
    ],
)
def test_addresses_and_checksums_are_checked_at_once(wrong, message):
    with pytest.raises(ValueError, match=message):
        RemoteRegistryEntry("Maze", 1.0, "", **wrong)


# The download.


def test_another_checksum_is_refused_and_nothing_is_left(server, cache):
    url = server.serve("maze.zip", build_archive())
    with pytest.raises(UnityEnvironmentException, match=r"has the SHA-256 .*, expected"):
        fetch(url, cache, b"something else")
    assert nothing_but_locks(cache)


@pytest.mark.parametrize("missing", [1, 10_000])
def test_a_download_cut_short_leaves_nothing_and_can_be_repeated(server, cache, missing):
    content = build_archive()
    url = server.serve("maze.zip", content)
    server.announced_bytes["/maze.zip"] = len(content) + missing
    with pytest.raises(UnityEnvironmentException, match=f"after {len(content)} of"):
        fetch(url, cache, content)
    assert nothing_but_locks(cache)
    server.announced_bytes.clear()
    assert fetch(url, cache, content).is_file()


def test_an_interrupt_leaves_nothing(server, cache, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(binary_utils, "unpack", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch(server.serve("maze.zip", build_archive()), cache)
    assert nothing_but_locks(cache)


@pytest.mark.parametrize("announced", [True, False])
def test_a_download_is_no_larger_than_allowed(server, announced):
    url = server.serve("large", bytes(1001))
    if not announced:
        server.announced_bytes["/large"] = None
    with pytest.raises(UnityEnvironmentException, match="1000"):
        download.download(url, io.BytesIO(), max_bytes=1000)
    target = io.BytesIO()
    assert download.download(url, target, max_bytes=1001) == sha256(bytes(1001))
    assert target.getvalue() == bytes(1001)


def test_a_download_takes_no_longer_than_allowed(server, monkeypatch):
    monkeypatch.setattr(download, "_TOTAL_TIMEOUT_S", -1.0)
    with pytest.raises(UnityEnvironmentException, match="TimeoutError"):
        download.download(server.serve("slow", b"abc"), io.BytesIO(), max_bytes=10)


def test_progress_is_told(server, monkeypatch, capsys):
    monkeypatch.setattr(download, "_REPORT_INTERVAL_S", -1.0)
    download.download(server.serve("file", bytes(2_000_000)), io.BytesIO(), max_bytes=1 << 30)
    assert f"Downloaded 2 of 2 MB of {server.address}/file" in capsys.readouterr().out


def test_redirects_lead_only_to_http(server, tmp_path):
    server.serve("there", b"abc")
    server.redirects["/here"] = "/there"
    url = f"{server.address}/here"
    target = io.BytesIO()
    download.download(url, target, max_bytes=10)
    assert target.getvalue() == b"abc"
    for elsewhere in ("ftp://127.0.0.1/there", f"{tmp_path.as_uri()}/x", "data:,abc"):
        server.redirects["/here"] = elsewhere
        with pytest.raises(UnityEnvironmentException, match="cannot be downloaded"):
            download.download(url, io.BytesIO(), max_bytes=10)
    server.redirects["/here"] = "/here"
    with pytest.raises(UnityEnvironmentException, match="infinite loop"):
        download.download(url, io.BytesIO(), max_bytes=10)


def test_a_redirect_from_https_to_http_is_not_followed():
    redirects = download._OnlyToHttp()
    request = download.urllib.request.Request("https://127.0.0.1/here")
    body = io.BytesIO()
    with pytest.raises(OSError, match="is not allowed"):
        redirects.redirect_request(request, body, 302, "", {}, "http://127.0.0.1/there")
    assert body.closed
    assert redirects.redirect_request(request, body, 302, "", {}, "HTTPS://127.0.0.1/there")


@pytest.mark.parametrize("url", ["/missing", ":no-port/", "/a b"])
def test_what_cannot_be_had_is_named(server, url):
    with pytest.raises(UnityEnvironmentException, match="cannot be downloaded"):
        download.download(server.address + url, io.BytesIO(), max_bytes=10)


# The cache.


def test_a_build_is_downloaded_once_per_address_and_checksum(server, cache):
    content = build_archive()
    url = server.serve("maze.zip", content)
    first = fetch(url, cache, content)
    assert fetch(url, cache, content) == first
    assert server.asked == ["/maze.zip"]
    changed = build_archive(b"another")
    assert fetch(server.serve("maze.zip", changed), cache, changed) != first
    assert fetch(server.serve("maze2.zip", content), cache, content) != first
    assert server.asked == ["/maze.zip", "/maze.zip", "/maze2.zip"]


@pytest.mark.parametrize("damage", ["truncated", "missing", "no list", "bad list", "empty"])
def test_a_damaged_cache_is_downloaded_again(server, cache, damage, capsys):
    content = build_archive()
    url = server.serve("maze.zip", content)
    program = fetch(url, cache, content)
    level = program.parent / "Maze_Data" / "level0"
    listed = program.parents[2] / "contents.json"
    if damage == "truncated":
        level.write_bytes(b"wal")
    elif damage == "missing":
        program.unlink()
    elif damage == "no list":
        listed.unlink()
    elif damage == "bad list":
        listed.write_text("[1]")
    else:
        for path in (program, level, listed):
            path.unlink()
    assert fetch(url, cache, content) == program
    assert level.read_bytes() == b"walls" * 100
    assert program.read_bytes() == PLAYER
    assert "is incomplete and is removed" in capsys.readouterr().out


def test_what_a_killed_process_left_is_removed(server, cache):
    content = build_archive()
    url = server.serve("maze.zip", content)
    folder = fetch(url, cache, content).parents[2]
    part = folder.with_suffix(".part")
    folder.rename(part)
    assert fetch(url, cache, content).is_file()
    assert not part.exists()


def test_processes_at_the_same_time_download_once(server, cache):
    content = build_archive()
    url = server.serve("maze.zip", content)
    code = (
        "import pathlib, sys\n"
        "from mlagents_envs.registry.binary_utils import local_build\n"
        "url, checksum, cache = sys.argv[1:]\n"
        "print(local_build('Maze', url, sha256=checksum, cache=pathlib.Path(cache),"
        " platform='linux'))\n"
    )
    command = [sys.executable, "-c", code, url, sha256(content), str(cache)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [process.communicate(timeout=60)[0].splitlines()[-1] for process in processes]
    assert printed == [str(fetch(url, cache, content))] * 2
    assert server.asked == ["/maze.zip"]


def test_threads_wait_for_the_lock(cache, tmp_path):
    lock = tmp_path / "a.lock"
    entered = threading.Event()

    def enter():
        with binary_utils._locked(lock):
            entered.set()

    with binary_utils._locked(lock):
        thread = threading.Thread(target=enter)
        thread.start()
        assert not entered.wait(0.1)
    assert entered.wait(30)
    thread.join()


@pytest.mark.parametrize("identifier", ["..", "../../x", "a/b", "", "ü" * 500, "C:\\x", ".hidden"])
def test_no_identifier_leads_out_of_the_cache(server, cache, identifier):
    url = server.serve("maze.zip", build_archive())
    program = local_build(identifier, url, sha256=None, cache=cache, platform="linux")
    assert program.resolve().parents[3] == cache.resolve()


@pytest.mark.skipif(sys.platform == "win32", reason="owners are asked for on POSIX only")
def test_a_cache_of_another_user_is_not_used(server, cache, monkeypatch):
    url = server.serve("maze.zip", build_archive())
    cache.mkdir()
    if os.geteuid() == 0:
        os.chown(cache, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(UnityEnvironmentException, match="belongs to another user"):
        fetch(url, cache)
    assert server.asked == []


def test_a_cache_that_cannot_be_made_is_named(server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnityEnvironmentException, match="'Maze' cannot be stored in"):
        fetch(server.serve("maze.zip", build_archive()), tmp_path / "file" / "cache")


def test_the_cache_is_where_the_platform_keeps_caches(monkeypatch, tmp_path):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    end = "ml-agents-binaries"
    assert default_cache_folder("linux") == tmp_path / ".cache" / end
    assert default_cache_folder("darwin") == tmp_path / "Library" / "Caches" / end
    assert default_cache_folder("win32") == tmp_path / "AppData" / "Local" / end
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert default_cache_folder("linux") == tmp_path / "x" / end


# The executable.


@pytest.mark.parametrize(
    ("platform", "files", "expected"),
    [
        ("linux", ["b/Data/x.x86_64", "b/Maze.x86_64", "Maze.app/x", "Maze.exe"], "b/Maze.x86_64"),
        ("win32", ["UnityCrashHandler64.exe", "Maze.exe", "Data/a.exe"], "Maze.exe"),
        ("darwin", ["b/Maze.app/Contents/Helper.app/x", "Maze.x86_64", "a.app"], "b/Maze.app"),
    ],
)
def test_the_executable_nearest_to_the_top_is_found(tmp_path, platform, files, expected):
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("")
    assert find_build(tmp_path, platform=platform) == tmp_path / expected


def test_an_archive_without_a_build_is_named_and_not_kept(server, cache):
    url = server.serve("maze.zip", archive_of(("Maze.exe", b""), ("readme", b"")))
    message = r"ending in \.x86_64, got \['Maze.exe', 'readme'\] at its top"
    with pytest.raises(UnityEnvironmentException, match=message):
        fetch(url, cache)
    assert nothing_but_locks(cache)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no executable bit")
def test_a_mac_program_becomes_executable(server, cache):
    program = "Maze.app/Contents/MacOS/Maze"
    url = server.serve("maze.zip", archive_of((program, b""), ("Maze.app/Contents/x", b"")))
    build = local_build("Maze", url, sha256=None, cache=cache, platform="darwin")
    assert build.name == "Maze.app"
    assert os.access(build / "Contents" / "MacOS" / "Maze", os.X_OK)
    assert not (build / "Contents" / "x").stat().st_mode & 0o111


# Unpacking.


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no executable bit")
def test_only_what_was_executable_or_is_the_build_is(server, cache):
    tool = entry_of("Maze/tool", stat.S_IFREG | stat.S_ISUID | 0o777)
    content = archive_of((PROGRAM, PLAYER), (tool, b""), ("Maze/notes", b""))
    program = fetch(server.serve("maze.zip", content), cache)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in program.parent.iterdir()}
    assert modes == {"Maze.x86_64": 0o755, "tool": 0o755, "notes": 0o644}


def test_files_folders_and_backslashes_are_unpacked(tmp_path):
    sizes = unpacked(
        tmp_path,
        archive_of(("a/", b""), ("a/b", b"12"), (r"c\d", b"345"), ("./e", b"")),
    )
    assert sizes == {"a/b": 2, "c/d": 3, "e": 0}
    assert (tmp_path / "folder" / "c" / "d").read_bytes() == b"345"


@pytest.mark.parametrize(
    "name",
    ["../x", "a/../../x", "/x", "//x", r"..\x", r"\x", "C:x", "C:/x", "..", "/", "a/x:stream", "."],
)
def test_no_name_leads_out_of_the_folder(tmp_path, name):
    with pytest.raises(UnityEnvironmentException, match="is not a path within the archive"):
        unpacked(tmp_path, archive_of((name, b"slip")))
    assert not (tmp_path / "x").exists()


needs_links = pytest.mark.skipif(sys.platform == "win32", reason="links take privileges there")


@needs_links
def test_links_within_the_archive_are_made(tmp_path):
    unpacked(
        tmp_path, archive_of(link_to("lib.1", "a/lib"), link_to("a", "b"), ("a/lib.1", b"code"))
    )
    assert (tmp_path / "folder" / "b" / "lib").read_bytes() == b"code"


@needs_links
@pytest.mark.parametrize(
    "contents",
    [
        [link_to("/etc/passwd")],
        [link_to("../x")],
        [link_to("a/../../x"), ("a/y", b"")],
        # Read as text, the second stays within: "sub/x". Followed, it is the folder's neighbor.
        [link_to("..", "sub/up"), link_to("sub/up/../x")],
        [link_to("sub/up/../x"), link_to("..", "sub/up")],
        [link_to(".."), ("link/x", b"slip")],
        [("link/x", b"slip"), link_to("..")],
        [link_to("a"), link_to("a", "./link")],
        [(entry_of("link", stat.S_IFLNK | 0o777), b"a\0b")],
        [(entry_of("link", stat.S_IFLNK | 0o777), b"")],
        [link_to("a" * 5000)],
    ],
)
def test_no_link_leads_out_of_the_folder(tmp_path, contents):
    with pytest.raises(UnityEnvironmentException, match="cannot be unpacked"):
        unpacked(tmp_path, archive_of(*contents))
    assert not (tmp_path / "x").exists()


def test_an_absolute_link_is_refused_wherever_it_leads(tmp_path):
    content = archive_of(link_to(str(tmp_path / "folder" / "a")), ("a", b""))
    with pytest.raises(UnityEnvironmentException, match="points to"):
        unpacked(tmp_path, content)


@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK])
def test_devices_and_pipes_are_refused(tmp_path, kind):
    with pytest.raises(UnityEnvironmentException, match="neither file, folder nor link"):
        unpacked(tmp_path, archive_of((entry_of("x", kind | 0o644), b"")))


def test_two_files_of_one_name_are_refused(tmp_path):
    with pytest.raises(UnityEnvironmentException, match="cannot be unpacked"):
        unpacked(tmp_path, archive_of(("a/b", b"1"), ("a//b", b"2")))


def test_bombs_are_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(unpack, "MAX_UNPACKED_BYTES", 1_000_000)
    monkeypatch.setattr(unpack, "MAX_ENTRIES", 2)
    with pytest.raises(UnityEnvironmentException, match="1000001 bytes, more than 1000000"):
        unpacked(tmp_path, archive_of(("a", bytes(1_000_000)), ("b", b"1")))
    with pytest.raises(UnityEnvironmentException, match="3 entries, more than 2"):
        unpacked(tmp_path, archive_of(("a", b""), ("b", b""), ("c", b"")))
    monkeypatch.setattr(unpack, "_MAX_READ_BYTES", 40)
    with pytest.raises(UnityEnvironmentException, match="its directory has 47 bytes"):
        unpacked(tmp_path, archive_of(("a", b"")))
    assert not (tmp_path / "folder").exists()


def test_a_file_larger_than_it_says_is_not_written_out(tmp_path):
    content = archive_of(("a", bytes(1_000_000)))
    size = (1_000_000).to_bytes(4, "little")
    assert content.count(size) == 2
    with pytest.raises(UnityEnvironmentException, match="cannot be unpacked"):
        unpacked(tmp_path, content.replace(size, (10).to_bytes(4, "little")))
    assert (tmp_path / "folder" / "a").stat().st_size <= 10


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", build_archive()[:-30]])
def test_what_is_no_archive_is_refused(tmp_path, content):
    with pytest.raises(UnityEnvironmentException, match="cannot be unpacked"):
        unpacked(tmp_path, content)


def test_an_encrypted_archive_is_refused(tmp_path):
    content = bytearray(archive_of(("a", b"secret")))
    content[6] |= 1  # the flag, beside the file
    content[content.index(b"PK\1\2") + 8] |= 1  # and in the central directory
    with pytest.raises(UnityEnvironmentException, match="encrypted"):
        unpacked(tmp_path, bytes(content))


def test_a_damaged_archive_is_unpacked_within_or_refused(tmp_path):
    rng = random.Random(1)
    whole = archive_of(link_to("a/b"), ("a/b", b"text" * 50), ("c", b"more"))
    for _ in range(500):
        content = bytearray(whole)
        for _ in range(rng.randint(1, 8)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        with contextlib.suppress(UnityEnvironmentException):
            unpacked(tmp_path, bytes(content))
        assert {path.name for path in tmp_path.iterdir()} <= {"archive.zip", "folder"}
        shutil.rmtree(tmp_path / "folder", ignore_errors=True)
