"""Environment parameters: where their values come from."""

import numpy as np
import pytest

from mlagents_envs.exception import UnityEnvironmentException
from mlagents_sim.parameters import Gaussian, Parameters, Sampler, Uniform

N = 20_000


def test_a_uniform_sampler_fills_its_range_evenly():
    values = Uniform([(2.0, 6.0)], seed=0).draw(N)
    assert 2.0 <= values.min() < 2.01 and 5.99 < values.max() <= 6.0
    # A quarter of the range has a quarter of the values.
    assert np.mean(values < 3.0) == pytest.approx(0.25, abs=0.01)


def test_of_several_intervals_the_longer_ones_have_more_values():
    values = Uniform([(-1.0, 0.0), (10.0, 13.0)], seed=0).draw(N)
    is_low = values <= 0.0
    assert (values[is_low] >= -1.0).all()
    assert (10.0 <= values[~is_low]).all() and (values[~is_low] <= 13.0).all()
    assert is_low.mean() == pytest.approx(1 / 4, abs=0.01)  # its share of the length


def test_intervals_without_length_are_chosen_alike():
    values = Uniform([(1.0, 1.0), (5.0, 5.0)], seed=0).draw(N)
    assert set(values) == {1.0, 5.0}
    assert np.mean(values == 1.0) == pytest.approx(0.5, abs=0.015)


def test_a_gaussian_sampler_has_its_mean_and_deviation():
    values = Gaussian(3.0, 0.5, seed=0).draw(N)
    assert values.mean() == pytest.approx(3.0, abs=0.02)
    assert values.std() == pytest.approx(0.5, abs=0.01)
    assert (Gaussian(3.0, 0.0, seed=0).draw(5) == 3.0).all()


@pytest.mark.parametrize(
    "make", [lambda seed: Uniform([(0.0, 1.0), (2.0, 3.0)], seed), lambda s: Gaussian(0.0, 1.0, s)]
)
def test_values_depend_on_the_seed_alone(make):
    sampler, same, other = make(-7), make(-7), make(1)
    for n in (1, 3, 2):
        values = sampler.draw(n)
        assert values.shape == (n,)
        assert not np.array_equal(values, other.draw(n))  # drawn in between
        np.testing.assert_array_equal(values, same.draw(n))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Uniform([], 0), "at least one interval"),
        (lambda: Uniform([(0.0, 1.0), (2.0, 1.0)], 0), "does not exceed their maximum"),
        (lambda: Uniform([(0.0, float("inf"))], 0), "finite 32-bit numbers"),
        (lambda: Uniform([(float("nan"), 1.0)], 0), "finite 32-bit numbers"),
        (lambda: Uniform([(-1e308, 1e308)], 0), "finite 32-bit numbers"),
        (lambda: Gaussian(float("nan"), 1.0, 0), "mean nan"),
        (lambda: Gaussian(0.0, -1.0, 0), "standard deviation of at least 0"),
        (lambda: Gaussian(0.0, float("inf"), 0), "standard deviation inf"),
        (lambda: Parameters({"mass": 1.0}).set("mass", float("inf")), "'mass' is inf"),
    ],
)
def test_what_cannot_be_drawn_or_fixed_is_refused(make, text):
    with pytest.raises(UnityEnvironmentException, match=text):
        make()


def test_a_parameter_is_fixed_until_it_has_a_sampler():
    parameters = Parameters({"mass": 1, "scale": 2.0})
    assert dict(parameters) == {"mass": 1, "scale": 2.0}
    assert parameters.draw("mass", 3).tolist() == [1.0, 1.0, 1.0]

    sampler: Sampler = Uniform([(5.0, 6.0)], seed=1)
    parameters.set("mass", sampler)
    read = [parameters["mass"], parameters["mass"], *parameters.draw("mass", 2)]
    assert len(set(read)) == 4 and all(5.0 <= value <= 6.0 for value in read)
    assert len(parameters) == 2 and "mass" in parameters and "height" not in parameters

    parameters.set("mass", 7.0)
    assert parameters["mass"] == 7.0


def test_there_are_no_other_parameters():
    parameters = Parameters({"mass": 1.0})
    for read in (lambda: parameters.draw("height", 2), lambda: parameters["height"]):
        with pytest.raises(KeyError, match=r"no environment parameter 'height': .* \['mass'\]"):
            read()
    assert "height" not in parameters and parameters.get("height") is None


def test_values_stay_within_the_range_of_their_parameter():
    parameters = Parameters({"mass": 1.0, "scale": 1.0}, {"mass": (0.5, 2.0)})
    parameters.set("mass", 2.0)
    parameters.set("scale", 20.0)
    for source, text in (
        (2.5, "'mass' is 2.5: expected at least 0.5 and at most 2"),
        (0.4, "'mass' is 0.4: expected"),
        (Uniform([(0.5, 1.0), (1.5, 3.0)], 0), "'mass' is drawn from 0.5 to 3.0: expected"),
    ):
        with pytest.raises(UnityEnvironmentException, match=text):
            parameters.set("mass", source)
    assert parameters["mass"] == 2.0
    parameters.set("mass", Uniform([(0.5, 1.0)], 0))
    assert parameters.draw("mass", 100).max() <= 1.0
    parameters.set("mass", Gaussian(1.0, 5.0, 0))
    drawn = parameters.draw("mass", 100)
    assert (drawn.min(), drawn.max()) == (0.5, 2.0)
    assert 0.5 <= parameters["mass"] <= 2.0
