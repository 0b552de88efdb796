"""Films hold the pictures that were added, at their time and of their size."""

import sys
from pathlib import Path

import numpy as np
import pytest

from mlagents.playing.film import Picture, open_film

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("imageio_ffmpeg")

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def picture(color: tuple[int, int, int], *, width: int = 20, height: int = 10) -> Picture:
    return np.full((height, width, 3), color, np.uint8)


def pixels(path: Path) -> Picture:
    """Return the first picture of a file."""
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def test_a_gif_shows_every_picture_in_real_time_and_repeats(tmp_path: Path) -> None:
    path = tmp_path / "play.gif"
    with open_film(path, fps=30) as film:
        for color in (RED, GREEN, BLUE):
            film.add(picture(color))

    durations_ms = []
    with Image.open(path) as gif:
        assert (gif.n_frames, gif.size, gif.info["loop"]) == (3, (20, 10), 0)
        for number, color in enumerate((RED, GREEN, BLUE)):
            gif.seek(number)
            durations_ms.append(gif.info["duration"])
            assert (np.asarray(gif.convert("RGB")) == color).all()
    assert durations_ms == [30, 40, 30]  # 3 pictures of 1/30 s: 100 ms in all


def test_pictures_of_many_colors_stay_alike_in_a_gif(tmp_path: Path) -> None:
    shades = np.linspace(0, 255, 16).astype(np.uint8)
    many = np.stack(np.broadcast_arrays(shades[:, None], shades, np.uint8(90)), axis=-1)
    with open_film(tmp_path / "play.gif", fps=10) as film:
        film.add(many)
        film.add(picture(RED, width=16, height=16))

    shown = pixels(tmp_path / "play.gif").astype(int)
    assert np.abs(shown - many).max() <= 16


def test_a_webp_shows_every_picture_in_real_time_and_repeats(tmp_path: Path) -> None:
    path = tmp_path / "play.webp"
    shown = [picture((40, 90, 160), width=64, height=32) for _ in range(4)]
    for number, drawn in enumerate(shown[:3]):  # the last two pictures are equal
        drawn[8 : 16 + number, 3 + 16 * number : 15 + 16 * number] = RED
    shown[3] = shown[2]
    with open_film(path, fps=30) as film:
        for drawn in shown:
            film.add(drawn)

    durations_ms = []
    with Image.open(path) as webp:
        assert (webp.n_frames, webp.size, webp.info["loop"]) == (4, (64, 32), 0)
        for number, drawn in enumerate(shown):
            webp.seek(number)
            seen = np.asarray(webp.convert("RGB")).astype(int)
            durations_ms.append(webp.info["duration"])
            assert np.abs(seen - drawn).mean() < 6.0
    assert sum(durations_ms) == 133


def test_a_video_has_every_picture_at_its_time(tmp_path: Path) -> None:
    path = tmp_path / "play.mp4"
    with open_film(path, fps=5) as film:
        for color in [RED] * 5 + [GREEN] * 5:
            film.add(picture(color, width=33, height=17))

    shown, fps = video(path)
    assert (len(shown), fps) == (10, 5.0)
    assert shown[0].shape == (16, 32, 3), "even numbers"
    for number, color in ((0, RED), (4, RED), (5, GREEN), (9, GREEN)):
        assert np.abs(shown[number].astype(int) - color).max() < 40


def video(path: Path) -> tuple[list[Picture], float]:
    """Return all pictures of a video and how many are shown per second."""
    cv2 = pytest.importorskip("cv2")
    capture = cv2.VideoCapture(str(path))
    pictures = []
    while (read := capture.read())[0]:
        pictures.append(read[1][:, :, ::-1])  # blue comes first
    fps = capture.get(cv2.CAP_PROP_FPS)
    capture.release()
    return pictures, fps


@pytest.mark.parametrize(
    ("n_pictures", "size", "shown"),
    [
        (1, (20, 10), [0]),
        (2, (40, 10), [0, 1]),
        (5, (60, 20), [0, 1, 2, 3, 4]),
        (9, (60, 30), list(range(9))),
        (17, (60, 30), list(range(0, 17, 2))),
    ],
)
def test_a_sheet_shows_nine_moments_from_the_first_to_the_last(
    n_pictures: int, size: tuple[int, int], shown: list[int], tmp_path: Path
) -> None:
    assert sheet(n_pictures, tmp_path) == (size, shown)


def test_a_sheet_of_a_long_film_is_spaced_evenly(tmp_path: Path) -> None:
    # Of 240 pictures 36 are drawn, then every second until there are 36 again, and so on: every
    # eighth in the end, 30 in all.
    size, shown = sheet(240, tmp_path)
    assert size == (60, 30)
    assert shown[0] == 0 and 239 - 8 < shown[-1]
    np.testing.assert_allclose(np.diff(shown), 239 / 8, atol=8)


def test_of_a_long_film_few_pictures_are_drawn_for_a_sheet(tmp_path: Path) -> None:
    n_drawn = 0

    def draw() -> Picture:
        nonlocal n_drawn
        n_drawn += 1
        return picture(RED)

    with open_film(tmp_path / "play.png", fps=10) as film:
        for _ in range(36 * 16):
            film.shoot(draw)
    # 36, then 18 for each of the four times that the film has become twice as long.
    assert n_drawn == 36 + 4 * 18


def test_a_suffix_may_be_in_capitals(tmp_path: Path) -> None:
    path = tmp_path / "PLAY.PNG"
    with open_film(path, fps=10) as film:
        film.add(picture(RED))
    assert (pixels(path) == RED).all()


def sheet(n_pictures: int, folder: Path) -> tuple[tuple[int, int], list[int]]:
    """Return the sheet's (width, height) and which pictures are on it; 255 is background."""
    with open_film(folder / "play.png", fps=10) as film:
        for number in range(n_pictures):
            film.add(picture((number, number, number)))
    image = pixels(folder / "play.png")
    shown = image[::10, ::20, 0].ravel().tolist()
    return (image.shape[1], image.shape[0]), [number for number in shown if number != 255]


@pytest.mark.parametrize("suffix", [".gif", ".mp4", ".png", ".webp"])
def test_pictures_are_brought_to_the_size_wanted(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"play{suffix}"
    with open_film(path, fps=10, size=(40, 24)) as film:
        film.add(picture(BLUE))
    shown = video(path)[0][0] if suffix == ".mp4" else pixels(path)
    assert shown.shape == (24, 40, 3)


@pytest.mark.parametrize("suffix", [".gif", ".mp4", ".png", ".webp"])
def test_a_film_stands_at_its_name_when_it_is_closed(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"play{suffix}"
    path.write_bytes(b"old")
    film = open_film(path, fps=10)
    film.add(picture(RED))
    assert path.read_bytes() == b"old"
    film.close()
    film.close()
    assert len(path.read_bytes()) > 3
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", [".gif", ".mp4", ".png", ".webp"])
def test_a_film_without_pictures_leaves_what_was_there(suffix: str, tmp_path: Path) -> None:
    def draw() -> Picture:
        raise RuntimeError

    path = tmp_path / f"play{suffix}"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), open_film(path, fps=10) as film:
        film.shoot(draw)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", [".gif", ".mp4", ".png", ".webp"])
def test_a_full_disk_leaves_nothing_half_written(
    suffix: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    resource = pytest.importorskip("resource", reason="the system cannot limit file sizes")
    path = tmp_path / f"play{suffix}"
    path.write_bytes(b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    noise = np.random.default_rng(0).integers(0, 255, (100, 200, 3), np.uint8)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match=rf"/play{suffix}"), open_film(path, fps=10) as film:
            for _ in range(40):
                film.add(noise)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    assert capfd.readouterr().err == "", "ffmpeg has nothing to add"


def test_what_cannot_be_written_is_refused_before_the_first_picture(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere/play\.mp4'"):
        open_film(tmp_path / "nowhere" / "play.mp4", fps=10)
    with pytest.raises(ValueError, match=r"expected a name in \.gif, \.mp4, \.png"):
        open_film(tmp_path / "play.avi", fps=10)


@pytest.mark.parametrize(("package", "suffix"), [("PIL", ".gif"), ("imageio_ffmpeg", ".mp4")])
def test_a_package_that_is_missing_is_named(
    package: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*pillow") as error:
        open_film(tmp_path / f"play{suffix}", fps=10)
    assert package in str(error.value)
    assert not any(tmp_path.iterdir())
