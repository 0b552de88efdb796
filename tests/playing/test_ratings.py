import numpy as np
import pytest

from mlagents.ratings import (
    Results,
    bradley_terry,
    elo_change,
    expected_score,
    rate_all,
)


def play(strengths: np.ndarray, n_games: int, rng: np.random.Generator) -> np.ndarray:
    """Return the scores of games between random pairs of contestants."""
    scores = np.zeros((len(strengths), len(strengths)))
    for _ in range(n_games):
        i, j = rng.choice(len(strengths), 2, replace=False)
        wins = rng.random() < expected_score(strengths[i], strengths[j])
        scores[(i, j) if wins else (j, i)] += 1
    return scores


def test_elo_by_hand() -> None:
    # 400 points ahead: expected to score 10 of 11. A win gains 16/11, a loss costs 160/11.
    assert expected_score(1600, 1200) == pytest.approx(10 / 11)
    assert elo_change(1600, 1200, 1.0) == pytest.approx(16 / 11)
    assert elo_change(1600, 1200, 0.0) == pytest.approx(-160 / 11)
    assert elo_change(1200, 1200, 0.5, k=32) == 0.0


def test_bradley_terry_by_hand() -> None:
    # Three wins and a loss are odds of 3: the rating is 400 log10(3) ahead. The information of four
    # games is 4 * 3/4 * 1/4 = 3/4 per squared logit.
    scores = np.array([[0.0, 3.0], [1.0, 0.0]])
    means, covariance = bradley_terry(scores, np.array([np.nan, 1200.0]))
    np.testing.assert_allclose(means, [1200 + 400 * np.log10(3), 1200])
    np.testing.assert_allclose(covariance, [[4 / 3 * (400 / np.log(10)) ** 2, 0], [0, 0]])


def test_ratings_are_the_most_likely_ones() -> None:
    strengths = np.array([0.0, 150.0, -200.0, 600.0])
    expected = 1 / (1 + 10 ** ((strengths[None] - strengths[:, None]) / 400))
    means, _ = bradley_terry(50 * expected, np.array([0.0, np.nan, np.nan, np.nan]))
    np.testing.assert_allclose(means, strengths, atol=1e-6)


def test_ratings_are_found_from_afar_too() -> None:
    # One contestant lost 9,999 of 10,000 games: 1600 points, many Newton steps away.
    means, _ = bradley_terry(np.array([[0.0, 1.0], [9999.0, 0.0]]), np.array([np.nan, 0.0]))
    assert means[0] == pytest.approx(-400 * np.log10(9999))


def test_the_scale_is_right_after_a_hundred_games() -> None:
    strengths = 60.0 * np.arange(12)
    rng = np.random.default_rng(0)
    slopes = []
    for _ in range(40):
        ratings = rate_all(play(strengths, 100, rng))
        slopes.append(np.polyfit(strengths, [rating.mean for rating in ratings], 1)[0])
    assert 0.9 <= np.mean(slopes) <= 1.1


def test_deviations_are_honest() -> None:
    strengths = 60.0 * np.arange(12)
    rng = np.random.default_rng(1)
    within = []
    for _ in range(40):
        ratings = rate_all(play(strengths, 300, rng), mean=strengths.mean())
        within += [
            abs(rating.mean - strength) < 1.96 * rating.deviation
            for rating, strength in zip(ratings, strengths, strict=True)
        ]
    assert 0.92 <= np.mean(within) <= 0.99


def test_who_won_all_games_has_a_finite_rating() -> None:
    best, worst = rate_all(np.array([[0.0, 20.0], [0.0, 0.0]]), mean=1200.0)
    assert 1200 < best.mean < 2000
    assert worst.mean == pytest.approx(2400 - best.mean)


def test_the_first_contestant_is_the_anchor_and_others_begin_near_their_predecessor() -> None:
    results: Results[str] = Results()
    results.enter("first")
    results.enter("second", "first")
    assert results.ratings()["second"].mean == 0.0
    for _ in range(9):
        results.add("second", "first", 1.0)
    results.enter("third", "second")
    ratings = results.ratings()
    # 9.5 of 10 points, the drawn game included.
    assert ratings["first"] == (0.0, 0.0)
    assert ratings["second"].mean == pytest.approx(400 * np.log10(19))
    assert ratings["third"].mean == pytest.approx(ratings["second"].mean)
    assert ratings["third"].deviation > ratings["second"].deviation > 0


def test_more_drawn_games_hold_a_contestant_nearer_to_its_predecessor() -> None:
    deviations = []
    for draws in (1, 4):
        results: Results[str] = Results()
        results.enter("first")
        results.enter("second", draws=draws)
        deviations.append(results.ratings()["second"].deviation)
    # The information of n drawn games is n / 4.
    np.testing.assert_allclose(deviations, [800 / np.log(10), 400 / np.log(10)])


def test_games_are_taken_back() -> None:
    results: Results[str] = Results()
    results.enter("a")
    results.enter("b")
    before = results.ratings()
    results.add("b", "a", 1.0)
    assert results.ratings()["b"].mean > 0
    results.add("b", "a", -1.0, games=-1)
    assert results.ratings() == before


def test_a_settled_rating_stays_and_still_counts() -> None:
    results: Results[int] = Results()
    for number in range(4):
        results.enter(number, number - 1 if number else None)
        for earlier in range(number):
            results.add(number, earlier, 7.0, games=10)
    before = results.ratings()
    results.settle(1)
    assert results.ratings()[1] == (pytest.approx(before[1].mean), 0.0)
    assert results.ratings()[3].mean == pytest.approx(before[3].mean)
    results.add(2, 3, 30.0, games=30)
    after = results.ratings()
    assert after[1].mean == pytest.approx(before[1].mean)
    assert after[2].mean > before[2].mean


def test_the_state_restores_all_ratings() -> None:
    results: Results[tuple[str, int]] = Results()
    for number in range(5):
        results.enter(("A", number), ("A", number - 1) if number else None)
        results.add(("A", number), ("A", 0), 2.0, games=3) if number else None
    results.settle(("A", 1))
    other: Results[tuple[str, int]] = Results()
    other.load_state(results.state())
    assert other.ratings() == results.ratings()
    assert list(other) == list(results)
    assert ("A", 4) in other
    assert ("B", 0) not in other
