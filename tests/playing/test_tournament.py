"""Tournaments of policies, from the command line and inside."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from duels import RockPaperScissors
from mlagents.playing.play import main
from mlagents.playing.tournament import Tournament, names_of
from mlagents_envs.base_env import ActionTuple, DecisionSteps, TerminalSteps
from mlagents_envs.exception import UnityEnvironmentException
from models import make_model, node

ROCK, PAPER, SCISSORS = range(3)
SCISSORS_GAME = "duels:RockPaperScissors"


class Always:
    """A policy of one throw."""

    def __init__(self, throw: int) -> None:
        self.throw = throw

    def act(self, decisions: DecisionSteps, terminals: TerminalSteps) -> ActionTuple:
        return ActionTuple(discrete=np.full((len(decisions), 1), self.throw))

    def check(self, *arguments: Any) -> None:
        pass

    def reset(self) -> None:
        pass


def write_model(path: Path, throw: int) -> str:
    """Write a policy that always throws the same."""
    scores = [[float(choice == throw) for choice in range(3)]]
    model = make_model(
        [
            node("MatMul", "obs_0 zeros", "nothing"),
            node("Add", "nothing preference", "scores"),
            node("ArgMax", "scores", "discrete_actions", axis=1, keepdims=1),
            node("Identity", "discrete_actions", "deterministic_discrete_actions"),
        ],
        {"obs_0": [1]},
        integers=["discrete_actions", "deterministic_discrete_actions"],
        constants={
            "version_number": [3],
            "memory_size": [0],
            "discrete_action_output_shape": [[3]],
        },
        weights={"zeros": np.zeros((1, 3)), "preference": scores},
    )
    path.write_bytes(model)
    return str(path)


def play(env: RockPaperScissors, throws: list[int], *, n_games: int) -> Tournament:
    tournament = Tournament(
        env,
        [str(throw) for throw in throws],
        lambda contestant, name: Always(throws[contestant]),  # type: ignore[return-value,arg-type]
        n_games=n_games,
    )
    for _ in tournament.play():
        pass
    return tournament


def test_all_pairs_play_on_both_sides() -> None:
    tournament = play(RockPaperScissors(num_areas=3), [ROCK, PAPER, PAPER], n_games=5)
    # A round is three games; three of at least five are played on each side.
    expected = [[0, 0, 0], [6, 0, 3], [6, 3, 0]]
    np.testing.assert_array_equal(tournament.scores, expected)
    ratings = tournament.ratings
    assert ratings[1].mean == pytest.approx(ratings[2].mean)
    assert ratings[0].mean < 1200 < ratings[1].mean


def test_groups_play_as_one() -> None:
    tournament = play(RockPaperScissors(num_areas=2, groups=True), [ROCK, SCISSORS], n_games=8)
    np.testing.assert_array_equal(tournament.scores, [[0, 8], [0, 0]])


class Staggered(RockPaperScissors):
    """Area k plays games of k + 1 throws; the last throw decides. Games of the last area break off.

    Attributes:
        n_ended: Number of ended games in each area, since the last reset.
    """

    def begin(self, areas: Any) -> None:
        if not hasattr(self, "left") or len(areas) == self.n:
            self.left = np.arange(self.n) + 1
        self.left[areas] = areas + 1

    def play(self, one: ActionTuple, other: ActionTuple) -> Any:
        reward, _ = super().play(one, other)
        self.left -= 1
        over = self.left == 0
        return reward * over, over

    def _reports(self, *arguments: Any) -> Any:
        reports = super()._reports(*arguments)
        for report in reports.values():
            if report.terminals is not None:
                areas = report.terminals.agent_id % self.n
                report.terminals.interrupted[:] = areas == self.n - 1
        return reports


def test_short_games_do_not_count_more_often_and_interrupted_games_are_drawn() -> None:
    tournament = play(Staggered(num_areas=3), [PAPER, ROCK], n_games=6)
    # Two rounds, one on each side, of two wins and a draw.
    np.testing.assert_array_equal(tournament.scores, [[0, 5], [1, 0]])


def test_the_table_has_the_best_first() -> None:
    tournament = play(RockPaperScissors(num_areas=5), [ROCK, PAPER], n_games=10)
    header, first, second = tournament.table().splitlines()
    assert header.split() == ["rating", "+/-", "games", "score", "1", "2"]
    assert re.fullmatch(r"1 1 +1[3-9]\d\d +\d+ +10 +1.00 +- +1.00", first)
    assert re.fullmatch(r"2 0 +\d+ +\d+ +10 +0.00 +0.00 +-", second)


def test_a_game_of_one_team_is_refused() -> None:
    env = RockPaperScissors(names=("Duel?team=3",) * 2)
    with pytest.raises(UnityEnvironmentException, match=r"two teams; this environment has Duel"):
        play(env, [ROCK, PAPER], n_games=2)


def test_names_are_short_where_they_differ() -> None:
    assert names_of(["a/Duel.onnx", "b/Striker.onnx"]) == ["Duel", "Striker"]
    assert names_of(["a/Duel.onnx", "b/Duel.onnx"]) == ["a/Duel.onnx", "b/Duel.onnx"]


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    monkeypatch.chdir(tmp_path)
    yield [
        write_model(tmp_path / f"{name}.onnx", throw)
        for throw, name in enumerate(["rock", "paper", "scissors"])
    ]


def test_the_command_prints_a_table_and_draws_it(
    models: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--env", SCISSORS_GAME, "--tournament", *models, "--episodes", "4"]
    assert main([*command, "--picture", "table.png"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "INFO" not in line]
    # Each beats one and loses to another.
    assert [line.split()[1] for line in lines[1:]] == ["rock", "paper", "scissors"]
    assert all(line.split()[2:6] == ["1200", line.split()[3], "8", "0.50"] for line in lines[1:])
    with Image.open("table.png") as picture:
        assert picture.width > 200
        colors = picture.convert("RGB").getcolors(10_000)
    assert colors is not None
    found = {color for _, color in colors}
    assert {(90, 150, 240), (240, 110, 90), (224, 224, 224)} <= found, "won, lost and not played"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--picture", "x.png"], "--picture needs --tournament"),
        (["--tournament", "a.onnx"], "at least two models, all different"),
        (["--tournament", "a.onnx", "a.onnx"], "at least two models, all different"),
        (["--tournament", "a", "b", "--model", "c"], "cannot be combined with --model"),
        (["--tournament", "a", "b", "--picture", "x.jpg"], "does not end in .png"),
    ],
)
def test_flags_that_do_not_fit_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--env", SCISSORS_GAME, *arguments])
    assert message in capsys.readouterr().err


def test_a_model_of_another_game_is_named(
    models: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--env", "duels:LinePong", "--tournament", *models]) == 1
    assert "rock.onnx" in capsys.readouterr().err
