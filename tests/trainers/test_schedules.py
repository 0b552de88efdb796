import pytest

from mlagents.trainers.algorithms.schedules import LEARNING_RATE_FLOOR, scheduled


@pytest.mark.parametrize("step", [0, 500, 1000, 5000])
def test_constant_stays(step: int) -> None:
    assert scheduled(3e-4, "constant", floor=1e-10, step=step, max_steps=1000) == 3e-4


@pytest.mark.parametrize(
    ("initial", "floor", "step", "wanted"),
    [
        # floor + (initial - floor) * (1 - step / 1000)
        (0.2, 0.1, 0, 0.2),
        (0.2, 0.1, 250, 0.175),
        (0.2, 0.1, 1000, 0.1),
        (3e-4, LEARNING_RATE_FLOOR, 0, 3e-4),
        (3e-4, LEARNING_RATE_FLOOR, 500, 1.500_000_5e-4),
        (3e-4, LEARNING_RATE_FLOOR, 1000, 1e-10),
        (5e-3, 1e-5, 500, 2.505e-3),
        (5e-3, 1e-5, 1000, 1e-5),
        (0.2, 0.0, 750, 0.05),
        (0.2, 0.0, 1000, 0.0),
    ],
)
def test_linear_falls_to_its_floor(initial: float, floor: float, step: int, wanted: float) -> None:
    found = scheduled(initial, "linear", floor=floor, step=step, max_steps=1000)
    assert found == pytest.approx(wanted, rel=1e-12)


def test_linear_stays_at_its_floor_beyond_the_last_step() -> None:
    # Steps are counted in segments, so the last update may come a little late.
    assert scheduled(0.2, "linear", floor=0.1, step=1064, max_steps=1000) == pytest.approx(0.1)


def test_linear_never_rises_to_a_floor_it_began_below() -> None:
    assert scheduled(0.05, "linear", floor=0.1, step=500, max_steps=1000) == 0.05
