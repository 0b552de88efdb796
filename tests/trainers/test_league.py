"""Self-play of whole runs: real trainers, small games, a real folder."""

import json
import logging
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from duels import LinePong, RockPaperScissors, chase
from league_runs import (
    ASYMMETRIC,
    SAC,
    SELF_PLAY,
    SETTINGS,
    Summaries,
    make_run,
    options,
    step_until,
)
from mlagents.games import GameResult
from mlagents.trainers.acting.roster import LATEST
from mlagents.trainers.acting.teams import LEARNER, SCRIPT, TeamSeat
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.learning.league import League
from mlagents.trainers.networks.snapshots import weights_of
from mlagents.trainers.run.checkpoints import load_checkpoint
from mlagents.trainers.run.controller import Controller
from mlagents.trainers.settings.behavior import NetworkSettings, SelfPlaySettings
from mlagents_envs.base_env import ActionTuple, BehaviorId
from mlagents_envs.exception import UnityCommunicatorStoppedException
from original_network import OriginalNetwork


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """A run's folder; no module is imported from the folder around it, that of all results."""
    folder = tmp_path / "results" / "run"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("settings", [{}, SAC], ids=["ppo", "sac"])
def test_a_symmetric_game_is_learned_by_self_play(tmp_path: Path, settings: Any) -> None:
    summaries = Summaries()
    run = make_run(tmp_path, RockPaperScissors(), options(settings=settings), writers=[summaries])
    run.run()
    (trainer,) = run.trainers.values()
    assert trainer.step >= 512
    tags = set().union(*(values for _, _, values in summaries.seen))
    assert tags >= {
        "Self-play/ELO",
        "Self-play/Rating",
        "Self-play/Rating Deviation",
        "Self-play/Win Rate",
        "Self-play/Win Rate vs Oldest",
    }
    assert run._league.learning_team == 0  # after 192 and 384 of 512 steps, the turn was passed on
    status = json.loads((tmp_path / "run_logs" / "training_status.json").read_text())
    assert status["Duel"]["elo"] == run._league.elo("Duel")


def test_what_the_learner_exports_is_the_learner(tmp_path: Path) -> None:
    run = make_run(tmp_path, RockPaperScissors())
    run.run()
    (trainer,) = run.trainers.values()
    assert (tmp_path / "Duel.onnx").read_bytes() == trainer.learner.export()


def test_only_the_learning_team_learns_unless_the_opponent_is_the_learner(tmp_path: Path) -> None:
    env = RockPaperScissors(num_areas=5)
    for ratio, both, n_rows in ((0.0, True, 5), (1.0, False, 5), (1.0, True, 10)):
        written = {"play_against_latest_model_ratio": ratio, "learn_from_both": both}
        run = make_run(tmp_path, env, options(written))
        step_until(run, lambda run=run: bool(run.trainers and run.trainers["Duel"].step))
        assert run.trainers["Duel"].step == n_rows, (ratio, both)


def test_in_an_asymmetric_game_the_behaviors_take_turns(tmp_path: Path) -> None:
    run = make_run(tmp_path, RockPaperScissors(names=ASYMMETRIC, num_areas=4))
    steps = []
    step_until(
        run,
        lambda: steps.append(tuple(t.step for t in run.trainers.values())) or len(steps) > 130,
    )
    turns = [(even - e, odd - o) for (e, o), (even, odd) in pairwise(steps[1:])]
    assert set(turns) == {(4, 0), (0, 4)}
    assert turns.index((0, 4)) == 49, "192 steps, and those of the episodes that began before"
    ratings = [run._league.rating(name) for name in ("Even", "Odd")]
    assert all(np.isfinite(rating.mean) and rating.deviation > 0 for rating in ratings)
    elos = [run._league.elo(name) for name in ("Even", "Odd")]
    assert None not in elos


def test_snapshots_are_kept_in_a_window_and_are_of_their_step(tmp_path: Path) -> None:
    run = make_run(tmp_path, RockPaperScissors())
    seen: dict[int, Any] = {}

    def until() -> bool:
        if run.trainers:
            trainer = run.trainers["Duel"]
            for kept in run._league._members["Duel"].window:
                seen.setdefault(kept.step, (kept.snapshot, trainer.policy.snapshot))
            return trainer.step >= 400
        return False

    step_until(run, until)
    member = run._league._members["Duel"]
    assert [kept.number for kept in member.window] == [4, 5, 6]
    assert [step // 64 for step in seen] == [0, 1, 2, 3, 4, 5, 6]
    assert all(kept is then for kept, then in seen.values())
    # The roster may keep others that still act.
    assert set(member.roster.snapshots) >= {4, 5, 6}
    assert len(member.roster.snapshots) <= 5


def test_opponents_play_by_what_was_drawn_and_change_when_an_episode_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = {"play_against_latest_model_ratio": 0.0, "swap_steps": 1}
    run = make_run(tmp_path, LinePong(num_areas=3), options(written))
    played: dict[tuple[int, int], set[int]] = {}  # by agent and episode
    episode = dict.fromkeys(range(6), 0)
    shares = TeamSeat.shares

    def noted(seat: TeamSeat, player: int, decisions: Any, terminals: Any) -> Any:
        for agent in terminals:
            episode[agent] += 1
        divided = shares(seat, player, decisions, terminals)
        for agent in decisions:
            who = seat._sides[player]._agents[agent].who
            played.setdefault((agent, episode[agent]), set()).add(who)
        return divided

    monkeypatch.setattr(TeamSeat, "shares", noted)
    step_until(run, lambda: bool(run.trainers) and run.trainers["Duel"].step > 500)
    assert all(len(who) == 1 for who in played.values())
    assert len(set().union(*played.values()) - {LEARNER}) > 2


def test_with_swap_at_step_opponents_change_at_once_and_a_new_team_resets(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        LinePong(num_areas=3),
        options({"swap_at": "step", "swap_steps": 12, "play_against_latest_model_ratio": 0.5}),
    )
    resets: list[int] = []
    reset = run._fleet.reset
    run._fleet.reset = lambda: (resets.append(run._league.learning_team), reset())  # type: ignore[method-assign]
    seat_changes = 0
    numbers: dict[int, int] = {}

    def until() -> bool:
        nonlocal seat_changes
        if not run.trainers:
            return False
        seat = run._league._seats[BehaviorId("Duel", 1)]
        now = {a: p.who for a, p in seat._sides[0]._agents.items()} if seat._sides else {}
        assert LEARNER not in now.values() or run._league.learning_team == 1
        assert len(set(now.values())) <= 1, "all at once"
        seat_changes += now != numbers
        numbers.update(now)
        return run.trainers["Duel"].step > 250

    step_until(run, until)
    assert resets == [None, 1]
    assert seat_changes > 3


def test_players_have_opponents_of_their_own() -> None:
    league = League(seed=0)
    league._self_play.learning_team = 0
    drawn = iter(range(10))
    league._draw = lambda name: next(drawn)  # type: ignore[method-assign]
    who = BehaviorId("Duel", 1)
    assert [league._who_begins(who, player) for player in (0, 1, 0, 2, 1)] == [0, 1, 0, 2, 1]
    assert league._who_begins(BehaviorId("Duel", 0), 0) == LEARNER


def test_a_run_that_is_killed_and_resumed_keeps_everything(tmp_path: Path) -> None:
    names = ASYMMETRIC
    run_options = options(settings={"max_steps": 4000, "checkpoint_interval": 128})

    class Killed(RockPaperScissors):
        n_left = 190

        def advance(self) -> Any:
            self.n_left -= 1
            if not self.n_left:
                raise KeyboardInterrupt
            return super().advance()

    run = make_run(tmp_path, Killed(names=names, num_areas=4), run_options)
    with pytest.raises(KeyboardInterrupt):
        run.run()
    saved = {
        name: load_checkpoint(tmp_path / name / "checkpoint.pt")["self_play"]
        for name in ("Even", "Odd")
    }
    newest = max(saved.values(), key=lambda state: state["league"]["version"])
    assert len(newest["league"]["turns"]["teams"]) == 2
    resumed = make_run(
        tmp_path,
        RockPaperScissors(names=names, num_areas=4),
        run_options.model_copy(
            update={
                "checkpoint_settings": run_options.checkpoint_settings.model_copy(
                    update={"resume": True}
                )
            }
        ),
    )
    resumed._fleet.reset()
    for name in names:
        resumed._trainer_of(name)
    league = resumed._league
    assert league._self_play.state() == newest["league"]["turns"]
    assert league._results.state() == newest["league"]["results"]
    assert league._elo == dict(newest["league"]["elo"])
    for name, state in saved.items():
        window = league._members[name].window
        assert [kept.number for kept in window] == [kept["number"] for kept in state["window"]]
        assert [kept.beaten for kept in window] == [kept["beaten"] for kept in state["window"]]
        for kept, of_kept in zip(window, state["window"], strict=True):
            for key, tensor in weights_of(kept.snapshot).items():
                torch.testing.assert_close(tensor, of_kept["weights"][key], rtol=0, atol=0)
        assert np.isfinite(league.rating(name).mean)
    resumed._fleet.reset()
    for _ in range(60):
        resumed._advance()


def test_a_run_may_begin_self_play_when_it_is_resumed(tmp_path: Path) -> None:
    without = options(settings={"self_play": None})
    make_run(tmp_path, RockPaperScissors(), without).run()
    resume = {"checkpoint_settings": {"resume": True}}
    run = make_run(tmp_path, RockPaperScissors(), options(settings={"max_steps": 800}, **resume))
    run.run()
    steps = [kept.step for kept in run._league._members["Duel"].window]
    assert steps[0] >= 512
    ended = make_run(
        tmp_path,
        RockPaperScissors(),
        options(settings={"max_steps": 1000, "self_play": None}, **resume),
    )
    ended.run()
    assert ended.trainers["Duel"].step >= 1000


@pytest.mark.parametrize("trainer_type", ["ppo", "poca"])
def test_a_self_play_run_of_the_original_continues_with_its_networks(
    tmp_path: Path, trainer_type: str
) -> None:
    env = RockPaperScissors(groups=trainer_type == "poca")
    spec = env.behavior_specs[env.names[0]]
    network = NetworkSettings.model_validate(SETTINGS["network_settings"])
    actor, critic = (OriginalNetwork(spec, network, seed=seed) for seed in (1, 2))
    obs, nothing = [np.ones((1, 1), np.float32)], np.zeros((1, 0), np.float32)
    _, logits, _ = actor.act(obs, nothing)
    if trainer_type == "ppo":
        critic.value(obs, nothing, ["extrinsic"])
    else:
        members = [(obs, None), (obs, np.ones((1, 3), np.float32))]
        critic.value_of_group(members, largest=2, signals=["extrinsic"])
    (tmp_path / "Duel").mkdir()
    torch.save(
        {
            "Policy": actor.saved(),
            "global_step": {"_GlobalSteps__global_step": torch.tensor([400])},
            "Optimizer:critic": critic.saved(),
        },
        tmp_path / "Duel" / "checkpoint.pt",
    )
    written = {"settings": {"trainer_type": trainer_type}, "checkpoint_settings": {"resume": True}}
    run = make_run(tmp_path, env, options(**written))
    run._fleet.reset()
    run._trainer_of(env.names[0])
    assert run.trainers["Duel"].step == 400
    (first,) = run._league._members["Duel"].window
    assert first.step == 400
    found = first.snapshot.forward(obs, nothing).logits
    np.testing.assert_allclose(found, torch.cat(logits, dim=1), atol=1e-5)
    run.run()
    assert run.trainers["Duel"].step >= 512


def test_a_resumed_run_may_have_a_smaller_window(tmp_path: Path) -> None:
    make_run(tmp_path, RockPaperScissors()).run()
    resume = {"checkpoint_settings": {"resume": True}}
    run = make_run(
        tmp_path, RockPaperScissors(), options({"window": 1}, settings={"max_steps": 640}, **resume)
    )
    run.run()
    assert len(run._league._members["Duel"].window) == 1


def test_snapshots_of_another_network_are_named(tmp_path: Path) -> None:
    make_run(tmp_path, RockPaperScissors()).run()
    path = tmp_path / "Duel" / "checkpoint.pt"
    state = load_checkpoint(path)
    state["self_play"]["window"][1]["weights"]["layers.0.0"] = torch.zeros(2, 8)
    torch.save(state, path)
    run = make_run(tmp_path, RockPaperScissors(), options(checkpoint_settings={"resume": True}))
    step = state["self_play"]["window"][1]["step"]
    with pytest.raises(
        UnityTrainerException,
        match=rf"snapshot of step {step} does not fit the network: layers.0.0 is \(2, 8\); "
        r"expected \(1, 8\)",
    ):
        run.run()


def test_inference_plays_without_a_league(tmp_path: Path) -> None:
    make_run(tmp_path, RockPaperScissors()).run()

    class Ends(RockPaperScissors):
        n_left = 20

        def advance(self) -> Any:
            self.n_left -= 1
            if not self.n_left:
                raise UnityCommunicatorStoppedException("enough")
            return super().advance()

    written = {"checkpoint_settings": {"resume": True, "inference": True}}
    run = make_run(tmp_path, Ends(), options(**written))
    run.run()
    assert not run._league


def test_a_scripted_opponent_is_met_rated_and_not_learned_from(tmp_path: Path) -> None:
    summaries = Summaries()
    written = {"opponent": "duels:always_paper", "opponent_ratio": 1.0}
    run = make_run(tmp_path, RockPaperScissors(num_areas=4), options(written), writers=[summaries])
    run.run()
    member = run._league._members["Duel"]
    assert {opponent for opponent, _ in member.games} <= {("Duel", SCRIPT)}
    assert any("Self-play/Win Rate vs Script" in values for _, _, values in summaries.seen)
    assert run.trainers["Duel"].step == 512


@pytest.mark.parametrize(
    ("opponent", "message"),
    [
        ("duels:always_papre", "always_papre; did you mean 'always_paper'?"),
        ("no_such_module:f", "No module named 'no_such_module'"),
    ],
)
def test_a_scripted_opponent_that_is_missing_is_named(
    tmp_path: Path, opponent: str, message: str
) -> None:
    run = make_run(tmp_path, RockPaperScissors(), options({"opponent": opponent}))
    with pytest.raises(UnityTrainerException, match=r"behaviors.Duel: self_play.opponent: ") as e:
        run.run()
    assert message in str(e.value)


def test_a_scripted_opponent_that_returns_something_else_is_named(tmp_path: Path) -> None:
    written = {"opponent": "duels:nothing", "opponent_ratio": 1.0}
    run = make_run(tmp_path, RockPaperScissors(num_areas=4), options(written))
    with pytest.raises(
        UnityTrainerException,
        match=r"duels:nothing returned a NoneType; expected an .*ActionTuple of \(4, 0\) "
        r"continuous and \(4, 1\) discrete",
    ):
        run.run()


class OneSided(RockPaperScissors):
    """The second team is announced and never acts."""

    def _reports(self, *arguments: Any) -> Any:
        reports = super()._reports(*arguments)
        return {self.names[0]: reports[self.names[0]]}

    def play(self, one: ActionTuple, other: ActionTuple) -> Any:
        return super().play(one, one)


def with_clock(run: Controller) -> list[float]:
    """Replace the time of a run's self-play; return a list with the time in s."""
    now = [0.0]
    run._league._watch._clock = lambda: now[0]
    return now


def test_a_team_that_never_acts_is_named_after_a_minute_and_the_other_learns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run(tmp_path, OneSided(names=ASYMMETRIC, num_areas=4))
    now = with_clock(run)
    with caplog.at_level(logging.WARNING):
        step_until(run, lambda: run._league.learning_team == 1)
        run._advance()
        assert not caplog.records
        # It is the turn of the team that does not act; nothing is learned meanwhile.
        stuck_at = run.trainers["Even"].step
        run._advance()
        assert run.trainers["Even"].step == stuck_at
        now[0] = 61.0
        for _ in range(9):
            run._advance()
    assert run.trainers["Even"].step > stuck_at
    text = caplog.text
    assert "no agent of team 1 of Odd has requested a decision in the first 60 s" in text
    assert "it was the turn of team 1 to learn" in text
    assert "Team 0 learns instead" in text
    assert "only team 0 has acted" in text


def test_a_behavior_that_never_appears_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    behaviors = {"Duel": SETTINGS | {"self_play": SELF_PLAY}, "Goalie": {"self_play": {}}}
    run = make_run(
        tmp_path, RockPaperScissors(names=("Duel?team=0",) * 2), options(behaviors=behaviors)
    )
    now = with_clock(run)
    with caplog.at_level(logging.WARNING):
        step_until(run, lambda: bool(run.trainers) and run.trainers["Duel"].step > 20)
        now[0] = 61.0
        run._advance()
        n_warnings = len(caplog.records)
        now[0] = 300.0
        run._advance()
    assert "behaviors.Goalie has self_play, but no agent of Goalie has appeared" in caplog.text
    assert "Give the opposing agents a different Team Id" in caplog.text
    assert len(caplog.records) == n_warnings, "once"


def test_groups_play_one_game_each(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        RockPaperScissors(num_areas=4, groups=True),
        options({"play_against_latest_model_ratio": 0.0}),
    )
    scores: list[float] = []
    league = run._league
    record = league._record_game

    def noted(*arguments: Any) -> None:
        scores.append(arguments[-1])
        record(*arguments)

    league._record_game = noted  # type: ignore[method-assign]
    step_until(run, lambda: len(scores) >= 40)
    assert len(scores) == 40
    assert set(scores) == {0.0, 0.5, 1.0}


def test_old_games_of_the_present_policy_are_forgotten(tmp_path: Path) -> None:
    written = {"keep_results": 10, "play_against_latest_model_ratio": 0.0, "save_steps": 10000}
    run = make_run(tmp_path, RockPaperScissors(num_areas=4), options(written))
    step_until(run, lambda: bool(run.trainers) and run.trainers["Duel"].step > 60)
    member = run._league._members["Duel"]
    assert len(member.games) == 10
    scores = run._league._results._scores[member.present]
    mean = sum(score for _, score in member.games)
    assert scores == {("Duel", 0): pytest.approx(5.0 + mean)}, "with ten drawn games at first"


def test_lessons_follow_the_win_rate_and_the_rating(tmp_path: Path) -> None:
    for measure, threshold in (("win_rate", 0.01), ("elo", 1.0)):
        lesson = {
            "behavior": "Duel",
            "measure": measure,
            "threshold": threshold,
            "min_lesson_length": 20,
        }
        curriculum = [
            {"name": "a", "value": 1.0, "completion_criteria": lesson},
            {"name": "b", "value": 2.0},
        ]
        run = make_run(
            tmp_path / measure,
            RockPaperScissors(),
            options(environment_parameters={"size": {"curriculum": curriculum}}),
        )
        run.run()
        assert run._curriculum.lesson_numbers == {"size": 1}


def test_the_present_policy_meets_itself_without_a_result(tmp_path: Path) -> None:
    run = make_run(tmp_path, RockPaperScissors(), options({"play_against_latest_model_ratio": 1.0}))
    step_until(run, lambda: bool(run.trainers) and run.trainers["Duel"].step > 60)
    assert not run._league._members["Duel"].games
    assert run._league.rating("Duel").mean == 1200.0


def test_three_teams_are_ranked_pairwise() -> None:
    league = League(seed=0)
    for team in range(3):
        league._self_play.enter(BehaviorId("A", team), SelfPlaySettings(), step=0)
    noted = []
    league._record_game = lambda *arguments: noted.append(arguments[1:])  # type: ignore[method-assign]
    league._record_games(
        BehaviorId("A", 0), [GameResult(LEARNER, 1.0)], BehaviorId("A", 1), [GameResult(2, 0.0)]
    )
    league._record_games(
        BehaviorId("A", 1), [GameResult(2, 0.0)], BehaviorId("A", 2), [GameResult(LATEST, 0.0)]
    )
    assert noted == [(LEARNER, "A", 2, 1.0), (2, "A", LATEST, 0.5)]


def test_games_that_end_together_are_paired_in_order() -> None:
    league = League(seed=0)
    noted = []
    league._record_game = lambda *arguments: noted.append(arguments[1:])  # type: ignore[method-assign]
    one, other = BehaviorId("A", 0), BehaviorId("B", 1)
    # Two agents without a group against one; the learner's reward tells who has won.
    league._record_games(
        one,
        [GameResult(3, 0.5), GameResult(3, 0.5), GameResult(4, 0.5), GameResult(4, None)],
        other,
        [GameResult(LEARNER, 1.0), GameResult(LEARNER, 0.0)],
    )
    won, lost, interrupted = ((4, "B", LEARNER, score) for score in (1.0, 0.0, None))
    assert noted == [(3, *lost[1:]), (3, *lost[1:]), won, interrupted]


def test_an_interrupted_game_is_a_draw_for_the_rating_and_nothing_for_elo(tmp_path: Path) -> None:
    run = make_run(tmp_path, RockPaperScissors(interrupts=True))
    step_until(run, lambda: bool(run.trainers) and len(run._league._members["Duel"].games) > 8)
    league, member = run._league, run._league._members["Duel"]
    assert {score for _, score in member.games} == {0.5}
    assert league.rating("Duel").mean == pytest.approx(1200.0)
    present, oldest = member.contestant(LEARNER), member.window[0].number
    league._elo[present] = 1300.0
    for score, elo in ((None, 1300.0), (0.5, 1297.76)):
        league._record_game("Duel", LEARNER, "Duel", oldest, score)
        assert league._elo[present] == pytest.approx(elo, abs=0.01)


def test_the_script_of_the_toy_plays_well() -> None:
    env = LinePong(num_areas=1)
    env.reset()
    action = chase(env.get_steps(env.names[0])[0].obs, np.zeros((1, 3), np.bool_))
    assert action.discrete.shape == (1, 1)
