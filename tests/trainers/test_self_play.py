from typing import Any

from mlagents.trainers.learning.self_play import SelfPlay
from mlagents.trainers.settings.behavior import SelfPlaySettings
from mlagents_envs.base_env import BehaviorId

ALL = {"A": True, "B": True}


def settings(**written: Any) -> SelfPlaySettings:
    return SelfPlaySettings(**{"save_steps": 100, "team_change": 300, "swap_steps": 50} | written)


def symmetric(n_teams: int = 2) -> SelfPlay:
    game = SelfPlay()
    for team in range(n_teams):
        game.enter(BehaviorId("A", team), settings(), step=0)
    return game


def asymmetric(**of_b: Any) -> SelfPlay:
    game = SelfPlay()
    game.enter(BehaviorId("A", 0), settings(), step=0)
    game.enter(BehaviorId("B", 1), settings(**of_b), step=0)
    return game


def test_the_first_team_learns_first_and_teams_take_turns() -> None:
    game = symmetric(3)
    learned = []
    for step in range(0, 1300, 100):
        game.advance({"A": step}, ALL)
        learned.append(game.learning_team)
    assert learned == [0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0, 0, 1]


def test_snapshots_are_due_every_save_steps() -> None:
    game = symmetric()
    assert game.advance({"A": 99}, ALL).saves == []
    assert game.advance({"A": 103}, ALL).saves == ["A"]
    game.has_saved("A", 103)
    assert game.advance({"A": 202}, ALL).saves == []
    assert game.advance({"A": 203}, ALL).saves == ["A"]


def test_opponents_change_after_their_own_steps_and_with_the_team() -> None:
    game = symmetric()
    game.count_opponents("A", 49)
    assert game.advance({"A": 10}, ALL).swaps == []
    game.count_opponents("A", 3)
    assert game.advance({"A": 20}, ALL).swaps == ["A"]
    assert game.advance({"A": 30}, ALL).swaps == []
    due = game.advance({"A": 300}, ALL)
    assert (due.swaps, due.has_changed) == (["A"], True)
    game.count_opponents("A", 49)
    assert game.advance({"A": 310}, ALL).swaps == []


def test_in_an_asymmetric_game_each_behavior_counts_its_own_steps() -> None:
    game = asymmetric(team_change=500)
    assert not game.advance({"A": 299, "B": 0}, ALL).has_changed
    assert game.advance({"A": 300, "B": 0}, ALL).has_changed
    assert game.learning_team == 1
    assert not game.advance({"A": 300, "B": 499}, ALL).has_changed
    assert game.advance({"A": 300, "B": 500}, ALL).has_changed
    assert not game.advance({"A": 599, "B": 500}, ALL).has_changed
    assert game.advance({"A": 600, "B": 500}, ALL).has_changed


def test_a_team_that_has_finished_learning_gives_its_turn_to_others() -> None:
    game = asymmetric()
    assert game.advance({"A": 150, "B": 0}, {"A": False, "B": True}).has_changed
    assert game.learning_team == 1
    assert not game.advance({"A": 150, "B": 300}, {"A": False, "B": True}).has_changed
    assert game.learning_team == 1, "the only one that learns keeps its turn"


def test_one_team_alone_learns_all_the_time() -> None:
    game = symmetric(1)
    assert [game.advance({"A": step}, ALL).has_changed for step in (100, 300, 900)] == [False] * 3
    assert game.learning_team == 0


def test_a_team_may_be_skipped() -> None:
    game = symmetric()
    assert game.skip_team({"A": 5}, ALL)
    assert game.learning_team == 1
    assert not game.advance({"A": 304}, ALL).has_changed
    assert game.advance({"A": 305}, ALL).has_changed
    assert not symmetric(1).skip_team({"A": 5}, ALL), "there is no other"


def test_teams_that_play_the_same_behaviors_learn_together() -> None:
    game = SelfPlay()
    for team in (0, 1):
        for name in ("A", "B"):
            game.enter(BehaviorId(name, team), settings(), step=0)
    assert game.behaviors_of(1) == ["A", "B"]
    assert game.advance({"A": 100, "B": 300}, ALL).has_changed
    assert not game.advance({"A": 390, "B": 590}, ALL).has_changed


def test_a_resumed_game_continues_the_turn() -> None:
    game = asymmetric()
    game.advance({"A": 300, "B": 0}, ALL)
    game.has_saved("A", 250)
    game.count_opponents("A", 30)
    state = game.state()
    resumed = SelfPlay()
    resumed.enter(BehaviorId("A", 0), settings(), step=300)
    resumed.load_state(state)
    resumed.enter(BehaviorId("B", 1), settings(), step=40)
    assert resumed.state() == state
    assert resumed.learning_team == 1
    assert resumed.advance({"A": 349, "B": 99}, ALL).saves == []
    resumed.count_opponents("A", 20)
    assert resumed.advance({"A": 350, "B": 299}, ALL) == (["A", "B"], ["A"], False)


def test_teams_of_an_earlier_run_that_no_longer_exist_are_passed_over() -> None:
    game = SelfPlay()
    game.load_state({"teams": [7, 0, 1], "behaviors": {"Z": [0, 0, 0]}})
    for team in (0, 1):
        game.enter(BehaviorId("A", team), settings(), step=0)
    assert game.advance({"A": 10}, ALL).has_changed
    assert game.learning_team == 0
