import io
import resource
import sys
import threading
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from mlagents_envs import images
from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityEnvironmentException,
    UnityException,
    UnityObservationException,
)
from mlagents_envs.images import (
    ImageLayout,
    ImageOptions,
    ImageReading,
    count_files,
    decode_image,
    encode_image,
    for_each_image,
    stacked_frames,
    to_channel_first,
    to_channel_last,
)
from png_by_hand import chunk, header, png, read_rgb, rgb_png

LOADERS = {"PIL": images._load_pillow, "cv2": images._load_opencv}


@pytest.fixture(params=LOADERS)
def decoder(request, monkeypatch) -> str:
    """Use one of the libraries, whichever others are installed."""
    pytest.importorskip(request.param)
    decode = LOADERS[request.param]()
    monkeypatch.setattr(images, "_decoder", lambda: decode)
    return request.param


@pytest.fixture(scope="module")
def any_decoder() -> None:
    pytest.importorskip("PIL")


def numbered(height: int, width: int, first: int = 0) -> Any:
    """Make (H, W, 3) pixels, all of them different as far as 8 bit go."""
    return (
        (np.arange(first, first + height * width * 3) % 256)
        .astype(np.uint8)
        .reshape(height, width, 3)
    )


def decoded(
    compressed: bytes, shape: tuple[int, int, int], mapping: Any = (), dtype: Any = np.float32, **k
) -> Any:
    out = np.full(shape, 77, dtype)
    decode_image(compressed, mapping, out, **k)
    return out


def uniform(*levels: int) -> bytes:
    """Make a file of one pixel with these three levels."""
    return rgb_png(np.array([[levels]], np.uint8))


# What files mean.


def test_a_file_is_read_as_rgb_from_the_top_row_down(decoder):
    # red green / blue white
    pixels = np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [255, 255, 255]]], np.uint8)
    assert decoded(rgb_png(pixels), (3, 2, 2)).tolist() == [
        [[1, 0], [0, 1]],
        [[0, 1], [0, 1]],
        [[0, 0], [1, 1]],
    ]


def test_every_level_of_8_bit_is_that_part_of_255(decoder):
    levels = np.repeat(np.arange(256, dtype=np.uint8).reshape(16, 16, 1), 3, axis=2)
    found = decoded(rgb_png(levels), (3, 16, 16))
    expected = np.arange(256, dtype=np.float32) / np.float32(255)
    np.testing.assert_array_equal(found.reshape(3, 256), np.tile(expected, (3, 1)))


@given(npst.arrays(np.uint8, npst.array_shapes(min_dims=2, max_dims=2, max_side=9)))
def test_the_decoder_agrees_with_one_written_by_hand(any_decoder, gray):
    pixels = np.stack([gray, gray * 7, 255 - gray], axis=2)
    file = rgb_png(pixels)
    by_hand, rest = read_rgb(file)
    np.testing.assert_array_equal(by_hand, pixels)
    assert rest == b""
    found = decoded(file, (3, *gray.shape), dtype=np.uint8)
    np.testing.assert_array_equal(found, pixels.transpose(2, 0, 1))


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1", "RGBA", "LA"])
def test_every_kind_of_file_of_8_bit_is_read_as_rgb(decoder, mode):
    image_module = pytest.importorskip("PIL.Image")

    image = image_module.fromarray(numbered(5, 7) // 64 * 85).convert(mode)
    file = io.BytesIO()
    image.save(file, "PNG")
    found = decoded(file.getvalue(), (3, 5, 7), dtype=np.uint8)
    expected = np.asarray(image.convert("RGB"))
    np.testing.assert_array_equal(found, expected.transpose(2, 0, 1))


def test_one_channel_is_the_mean_of_the_first_files_three(decoder):
    compressed = uniform(0, 51, 255) + uniform(9, 9, 9)
    assert decoded(compressed, (1, 1, 1)).tolist() == [[[np.float32(0.4)]]]  # 306 / 3 / 255


def test_the_mean_of_equal_channels_is_exactly_their_level(decoder):
    for level in range(256):
        found = decoded(uniform(level, level, level), (1, 1, 1))
        assert found.item() == np.float32(level) / np.float32(255)


def test_surplus_channels_are_dropped(decoder):
    compressed = uniform(10, 20, 30) + uniform(40, 50, 60) + b"in between" + uniform(70, 80, 90)
    assert count_files(compressed) == 3
    found = decoded(compressed, (5, 1, 1), dtype=np.uint8)
    assert found.ravel().tolist() == [10, 20, 30, 40, 50]
    assert decoded(compressed, (2, 1, 1), dtype=np.uint8).ravel().tolist() == [10, 20]
    assert decoded(compressed, (9, 1, 1), dtype=np.uint8).ravel().tolist() == [*range(10, 91, 10)]


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        ((0, 1, 2, 3, 4, 5), [10, 20, 30, 40, 50, 60]),
        ((5, 4, 3, 2, 1, 0), [60, 50, 40, 30, 20, 10]),
        ((0, -1, 1, -1, -1, 2), [10, 30, 60]),
        ((0, 0, 0, 1, 1, 1), [20, 50]),
        ((0, 0, 0, 0, 0, 0), [35]),
        ((1, -1, 1, 0, 2, 1), [40, 100 / 3, 50]),  # (10 + 30 + 60) / 3
        ((-1, -1, -1, 1, 0, -1), [50, 40]),
    ],
)
def test_a_mapping_says_where_channels_go(decoder, mapping, expected):
    compressed = uniform(10, 20, 30) + uniform(40, 50, 60)
    shape = (len(expected), 1, 1)
    found = decoded(compressed, shape, mapping)
    np.testing.assert_allclose(found.ravel(), np.array(expected) / 255, rtol=1e-6)
    found = decoded(compressed, shape, mapping, np.uint8)
    assert found.ravel().tolist() == np.rint(expected).tolist()


def test_files_that_a_mapping_drops_are_not_decoded(decoder):
    broken = png(header(1, 1), chunk(b"IDAT", b"not zlib"))
    found = decoded(uniform(10, 20, 30) + broken, (3, 1, 1), (2, 1, 0, -1, -1, -1), np.uint8)
    assert found.ravel().tolist() == [30, 20, 10]


# Stacks of frames. A frame of 4 channels takes two files, and one black one before the episode.

TWO_FRAMES = (0, 1, 2, 3, -1, -1, 4, 5, 6, 7, -1, -1)
BLACK = uniform(0, 0, 0)
FRAME = uniform(1, 2, 3) + uniform(4, 0, 0)


def test_a_full_stack_of_frames_is_read(decoder):
    found = decoded(FRAME * 2, (8, 1, 1), TWO_FRAMES, np.uint8, n_frames=2)
    assert found.ravel().tolist() == [1, 2, 3, 4] * 2


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_frames_before_the_episode_are_black_however_many_files_they_lack(decoder, dtype):
    found = decoded(BLACK + FRAME, (8, 1, 1), TWO_FRAMES, dtype, n_frames=2)
    assert np.rint(found.ravel() * (255 if dtype is np.float32 else 1)).tolist() == [
        *[0, 0, 0, 0],
        *[1, 2, 3, 4],
    ]
    three = (*TWO_FRAMES, 8, 9, 10, 11, -1, -1)
    found = decoded(BLACK * 2 + FRAME, (12, 1, 1), three, dtype, n_frames=3)
    assert not found[:8].any() and found[8:].all()


def test_averaged_frames_before_the_episode_are_black(decoder):
    # Each frame is the mean of six channels.
    mapping = (0,) * 6 + (1,) * 6
    files = uniform(10, 20, 30) + uniform(40, 50, 60)
    found = decoded(BLACK + files, (2, 1, 1), mapping, np.uint8, n_frames=2)
    assert found.ravel().tolist() == [0, 35]


@pytest.mark.parametrize(
    ("files", "n_frames"),
    [(BLACK, 2), (BLACK + FRAME, 1), (BLACK + FRAME, 3), (BLACK + FRAME + FRAME, 2), (FRAME, 2)],
)
def test_a_stack_that_lacks_other_files_is_refused(decoder, files, n_frames):
    with pytest.raises(UnityObservationException, match=r"expected a mapping of .*, got 12"):
        decoded(files, (8, 1, 1), TWO_FRAMES, n_frames=n_frames)


@pytest.mark.parametrize(
    ("name", "frames"),
    [
        ("StackingSensor_size2_CameraSensor", 2),
        ("StackingSensor_size12_x", 12),
        ("StackingSensor_size0_x", 1),
        ("StackingSensor_size99999_x", 1),
        ("CameraSensor", 1),
        ("", 1),
    ],
)
def test_the_name_of_a_sensor_says_how_many_frames_it_stacks(name, frames):
    assert stacked_frames(name) == frames


# Files that do not fit.


@pytest.mark.parametrize(
    ("compressed", "shape", "mapping", "reason"),
    [
        (uniform(1, 2, 3), (3, 1, 2), (), "1 x 2 pixels .*; got 1 x 1"),
        (uniform(1, 2, 3), (3, 0, 1), (), "expected a PNG file of 0 x 1 pixels"),
        (uniform(1, 2, 3), (4, 1, 1), (), "expected 4 channels, got 3 in 1 PNG files"),
        (uniform(1, 2, 3), (2**28, 1, 1), (), "expected 268435456 channels"),
        (
            uniform(1, 2, 3),
            (2, 1, 1),
            (0, 0, 0, 1, 1, 1),
            "mapping of 3 channels for 1 PNG files, got 6",
        ),
        (uniform(1, 2, 3), (2, 1, 1), (0, 1), "mapping of 3 channels for 1 PNG files, got 2"),
        (uniform(1, 2, 3), (2, 1, 1), (0, 0, 2), r"channels \[0, 2\]; expected each from 0 to 1"),
        (uniform(1, 2, 3), (3, 1, 1), (1, 2, 3), r"channels \[1, 2, 3\]"),
        (uniform(1, 2, 3), (1, 1, 1), (0, 1, 2), "expected each from 0 to 0"),
        (uniform(1, 2, 3), (1, 1, 1), (-1, -1, -1), r"channels \[\]"),
        (uniform(1, 2, 3), (2**28, 1, 1), (0, 1, 2), "0 to 268435455"),
        (uniform(1, 2, 3), (3, 1, 1), (0, 1, 2**31 - 1), "2147483647"),
    ],
)
def test_files_that_do_not_give_the_announced_shape_are_refused(
    decoder, compressed, shape, mapping, reason
):
    out = np.broadcast_to(np.float32(0), shape)  # takes no memory
    with pytest.raises(UnityObservationException, match=reason):
        decode_image(compressed, mapping, out)


PIXEL = chunk(b"IDAT", zlib.compress(b"\x00\x01\x02\x03"))


@pytest.mark.parametrize(
    ("compressed", "reason"),
    [
        (b"", "0 bytes are not a PNG file"),
        (b"\xff\xd8\xff\xe0 and so on", "not a PNG file: they begin with 'ff d8 ff e0"),
        (b"x" + uniform(1, 2, 3), "not a PNG file"),
        (uniform(1, 2, 3)[:-1], "PNG file 0 is cut short"),
        (uniform(1, 2, 3)[:8], "PNG file 0 is cut short"),
        (uniform(1, 2, 3) + uniform(1, 2, 3)[:40], "PNG file 1 is cut short"),
        (png(), "has a damaged header"),
        (png(PIXEL, header(1, 1)), "has a damaged header"),
        (png(chunk(b"IHDR", b"\x00" * 12), PIXEL), "has a damaged header"),
        (png(header(1, 1), header(9999, 9999), PIXEL), "has a damaged header"),
        (png(header(1, 1), PIXEL, header(9999, 9999)), "has a damaged header"),
        (png(header(1, 1, depth=16), PIXEL), "at most 8 bits per channel, got 16 bits"),
        (png(header(1, 1), chunk(b"IDAT", b"not zlib")), "damaged PNG file: "),
        (png(header(1, 1)), "damaged PNG file: "),
        (png(header(1, 1, depth=5), PIXEL), "damaged PNG file: "),
        (png(header(1, 1, color=9), PIXEL), "damaged PNG file: "),
    ],
)
def test_what_is_no_sound_file_is_refused(decoder, compressed, reason):
    with pytest.raises(UnityCommunicationException, match=reason):
        decoded(compressed, (3, 1, 1))


def test_a_file_larger_than_announced_is_refused_before_it_is_decoded(monkeypatch):
    monkeypatch.setattr(images, "_decoder", lambda: pytest.fail("it was decoded"))
    bomb = png(header(30_000, 30_000), chunk(b"IDAT", zlib.compress(bytes(10**6))))
    with pytest.raises(UnityObservationException, match="30000 x 30000"):
        decoded(bomb, (3, 84, 84))


def peak_memory_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_data_that_unpacks_to_far_more_than_announced_takes_no_memory(decoder):
    packer = zlib.compressobj(1)
    zeros = bytes(2**20)
    packed = b"".join(packer.compress(zeros) for _ in range(300)) + packer.flush()
    bombs = [
        png(header(8, 8), chunk(b"IDAT", packed)),
        png(header(8, 8), chunk(b"zTXt", b"a\x00\x00" + packed), chunk(b"IDAT", b"")),
        png(header(8, 8), chunk(b"iCCP", b"a\x00\x00" + packed), chunk(b"IDAT", b"")),
    ]
    before = peak_memory_bytes()
    for bomb in bombs:
        try:
            decoded(bomb, (3, 8, 8))
        except UnityException as error:
            assert str(error)
    assert peak_memory_bytes() - before < 150 * 2**20


def test_without_a_library_the_error_says_what_to_install(monkeypatch):
    images._decoder.cache_clear()
    for name in ("PIL.Image", "cv2"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UnityEnvironmentException, match="pip install 'pillow>="):
        decoded(uniform(1, 2, 3), (3, 1, 1))


# Writing.


@given(npst.arrays(np.uint8, npst.array_shapes(min_dims=3, max_dims=3, max_side=8)))
@settings(deadline=None)
def test_what_is_written_is_read_back(any_decoder, image):
    compressed = encode_image(image)
    assert count_files(compressed) == -(-len(image) // 3)
    np.testing.assert_array_equal(decoded(compressed, image.shape, dtype=np.uint8), image)
    found = decoded(compressed, image.shape)
    np.testing.assert_array_equal(found, image.astype(np.float32) / np.float32(255))


def test_images_are_written_as_rgb_with_unused_channels_at_0():
    image = np.array([[[1, 2]], [[3, 4]], [[5, 6]], [[7, 8]]], np.uint8)  # 4 channels of 1 x 2
    first, rest = read_rgb(encode_image(image))
    assert first.tolist() == [[[1, 3, 5], [2, 4, 6]]]
    second, rest = read_rgb(rest)
    assert second.tolist() == [[[7, 0, 0], [8, 0, 0]]]
    assert rest == b""


def test_a_single_channel_is_written_as_gray():
    pixels, rest = read_rgb(encode_image(np.array([[[1, 2]]], np.uint8)))
    assert pixels.tolist() == [[[1, 1, 1], [2, 2, 2]]]
    assert rest == b""


# Axes.


def test_layouts_move_axes_there_and_back():
    for layout in ImageLayout:
        reading = ImageReading(layout)
        for axes in [(5,), (5, 6), (4, 5, 6)]:
            assert reading.announced(reading.in_spec_order(axes)) == axes
    last = ImageReading(ImageLayout.CHANNEL_LAST)
    assert last.in_spec_order(("H", "W", "C")) == ("C", "H", "W")
    kept = ImageReading(ImageLayout.CHANNEL_LAST, keep_channel_last=True)
    assert kept.in_spec_order(("H", "W", "C")) == ("H", "W", "C")
    for turn, back in ((to_channel_first, to_channel_last), (to_channel_last, to_channel_first)):
        assert back(turn((4, 5, 6))) == (4, 5, 6)


@pytest.mark.parametrize("layout", ImageLayout)
def test_options_turn_and_reorder_only_what_the_layout_needs(layout):
    assert ImageOptions().reading(layout) == ImageReading(layout)
    untouched = ImageOptions(turn_channel_last=False, reorder_uncompressed=False)
    assert (
        untouched.reading(layout)
        == {
            ImageLayout.CHANNEL_FIRST: ImageReading(),
            ImageLayout.NUMBERS_CHANNEL_LAST: ImageReading(),
            ImageLayout.CHANNEL_LAST: ImageReading(layout, keep_channel_last=True),
        }[layout]
    )


# Threads.


@pytest.mark.parametrize("n_processors", [1, 2, 5])
def test_every_image_is_done_once_whatever_the_processors(monkeypatch, n_processors):
    monkeypatch.setattr(images, "n_cpus", lambda: n_processors)
    for n_images in (0, 1, 2, 7, 100):
        rows = range(10, 10 + n_images)
        done: list[int] = []
        for_each_image(done.append, rows, n_pixels=10_000)
        assert sorted(done) == [*rows]


def test_small_images_stay_in_one_thread(monkeypatch):
    monkeypatch.setattr(images, "n_cpus", lambda: 4)
    threads: set[int] = set()
    for_each_image(lambda _: threads.add(threading.get_ident()), range(20), n_pixels=16)
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize("bad", [0, 1, 6, 7])
def test_an_error_in_any_thread_is_raised_after_all_have_finished(monkeypatch, bad):
    monkeypatch.setattr(images, "n_cpus", lambda: 3)
    begun, finished = [], []

    def work(row: int) -> None:
        begun.append(row)
        if row == bad:
            raise UnityObservationException(f"image {row}")
        finished.append(row)

    with pytest.raises(UnityObservationException, match=f"image {bad}"):
        for_each_image(work, range(8), n_pixels=10_000)
    assert set(begun) - set(finished) == {bad}


@given(st.integers(0, 40), st.integers(1, 8))
@settings(max_examples=20, deadline=None)
def test_results_do_not_depend_on_threads(n_images, n_processors):
    found = np.zeros(n_images)

    def work(row: int) -> None:
        found[row] = row + 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(images, "n_cpus", lambda: n_processors)
        for_each_image(work, range(n_images), n_pixels=10_000)
    assert found.tolist() == [*range(1, n_images + 1)]
