import numpy as np
import pytest

from mlagents.trainers.learning.matchmaking import PROBABILITIES

RATES = np.array([0.0, 0.5, 1.0])


def test_uniform_prefers_no_opponent() -> None:
    np.testing.assert_allclose(PROBABILITIES["uniform"](RATES), 1 / 3)


def test_pfsp_prefers_opponents_that_win() -> None:
    # (1 - x)^2: 1, 1/4 and 0; 2 % are shared evenly.
    expected = 0.98 * np.array([0.8, 0.2, 0.0]) + 0.02 / 3
    np.testing.assert_allclose(PROBABILITIES["pfsp"](RATES), expected)


def test_even_prefers_opponents_of_equal_strength() -> None:
    expected = 0.98 * np.array([0.0, 1.0, 0.0]) + 0.02 / 3
    np.testing.assert_allclose(PROBABILITIES["even"](RATES), expected)


@pytest.mark.parametrize("choice", PROBABILITIES)
@pytest.mark.parametrize("rates", [np.ones(4), np.zeros(4), np.array([0.3])])
def test_there_is_always_an_opponent(choice: str, rates: np.ndarray) -> None:
    probabilities = PROBABILITIES[choice](rates)
    assert probabilities.sum() == pytest.approx(1.0)
    assert (probabilities > 0).all()
