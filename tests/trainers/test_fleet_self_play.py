"""Self-play whose agents act in rollout workers."""

import pickle
from collections.abc import Collection, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import league_runs
from fleets import KillsAWorker, assert_equal
from league_runs import SELF_PLAY
from mlagents.games import GameResult
from mlagents.trainers.acting.roster import Roster
from mlagents.trainers.acting.teams import Limits, Lineup, Opponents
from mlagents.trainers.fleet.handle import WorkerHandle
from mlagents.trainers.fleet.messages import Harvest, Order, TeamNews
from mlagents.trainers.fleet.teams import RemoteTeam, RemoteTeams
from mlagents.trainers.fleet.workers import Gone
from mlagents.trainers.learn import run_training
from mlagents.trainers.settings.run_options import EnvironmentSettings, RunOptions
from mlagents_envs.base_env import BehaviorId

SETTINGS = {**league_runs.SETTINGS, "checkpoint_interval": 200, "max_steps": 700}
SAC = {**league_runs.SAC, "max_steps": 300}
MEMORY = {
    "network_settings": {
        "hidden_units": 8,
        "num_layers": 1,
        "memory": {"memory_size": 4, "sequence_length": 4},
    }
}
LESSONS = {
    "speed": {
        "curriculum": [
            {
                "name": "low",
                "completion_criteria": {
                    "behavior": "Duel",
                    "measure": "win_rate",
                    "threshold": 0.3,
                    "min_lesson_length": 10,
                },
                "value": 1.0,
            },
            {"name": "high", "value": 2.0},
        ]
    }
}


@pytest.fixture(autouse=True)
def in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def trained(
    run_id: str,
    workers: int | None,
    *,
    env: str = "duels:LinePong",
    self_play: dict[str, Any] | None = None,
    of_behavior: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
    resume: bool = False,
    **written: Any,
) -> dict[str, Any]:
    """Run training; return the last checkpoints of all behaviors, and the exported policies."""
    behavior = SETTINGS | {"self_play": SELF_PLAY | (self_play or {})} | (of_behavior or {})
    options = {
        "default_settings": behavior,
        "env_settings": {"env_path": env, "seed": 3},
        "checkpoint_settings": {"run_id": run_id, "resume": resume},
        "cluster": {"workers": workers, **(cluster or {})},
        **written,
    }
    run_training(RunOptions.model_validate(options))
    folders = sorted(Path("results", run_id).glob("*/checkpoint.pt"))
    assert folders
    return {path.parent.name: torch.load(path, weights_only=True) for path in folders}


@pytest.mark.parametrize(
    "written",
    [
        pytest.param({}, id="symmetric"),
        pytest.param({"env": "duels:asymmetric"}, id="asymmetric"),
        pytest.param({"of_behavior": SAC}, id="sac"),
        pytest.param({"of_behavior": MEMORY}, id="memory"),
        pytest.param(
            {"self_play": {"swap_at": "step", "learn_from_both": False, "swap_steps": 20}},
            id="at once",
        ),
        pytest.param({"self_play": {"opponents": "pfsp", "window": 2}}, id="pfsp"),
        pytest.param(
            {"self_play": {"opponent": "duels:chase", "opponent_ratio": 0.5}}, id="script"
        ),
        pytest.param({"environment_parameters": LESSONS}, id="lessons"),
        pytest.param(
            {"env": "duels:in_groups", "of_behavior": {"trainer_type": "poca"}}, id="poca"
        ),
    ],
)
def test_one_worker_is_the_run_in_one_process(written: dict[str, Any]) -> None:
    of_worker, here = trained("worker", 1, **written), trained("here", None, **written)
    for each in here.values():
        assert len(each["self_play"]["window"]) > 1, "snapshots were saved"
        assert each["self_play"]["league"]["version"] > 4, "games were played"
    assert_equal(of_worker, here)


def test_a_resumed_worker_continues_the_same_run() -> None:
    for run_id, workers in (("worker", 1), ("here", None)):
        trained(run_id, workers, of_behavior={"max_steps": 400})
    assert_equal(
        trained("worker", 1, resume=True),
        trained("here", None, resume=True),
    )


def test_two_workers_give_the_same_run_each_time() -> None:
    first, second = trained("first", 2), trained("second", 2)
    assert_equal(first, second)
    state = first["Duel"]["self_play"]
    assert state["league"]["version"] > 20
    assert [kept["number"] for kept in state["window"]][-1] >= 5


@pytest.mark.parametrize("of_behavior", [{}, league_runs.SAC], ids=["ppo", "sac"])
def test_workers_that_do_not_wait_play_against_snapshots(of_behavior: dict[str, Any]) -> None:
    state = trained("async", 2, of_behavior=of_behavior, cluster={"mode": "async"})["Duel"]
    assert state["global_step"] >= SETTINGS["max_steps"]
    window = [kept["number"] for kept in state["self_play"]["window"]]
    assert len(window) == 3
    n_saved = window[-1] + 1
    assert state["self_play"]["league"]["version"] > n_saved, "games were played"


def test_a_worker_that_is_killed_gets_its_opponents_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mlagents.trainers.fleet.remote.RemoteFleet", KillsAWorker)
    state = trained("run", 2, self_play={"play_against_latest_model_ratio": 0.0})["Duel"]
    assert state["global_step"] >= SETTINGS["max_steps"]
    assert capsys.readouterr().out.count("Worker 1 acts again.") == 1


class OfLeague:
    """Decisions of a league: a roster of numbers, and the policy that begins everywhere."""

    def __init__(self) -> None:
        self.begins = 7
        self.roster = Roster(lambda: "present")  # type: ignore[arg-type, return-value]
        policy: Any = SimpleNamespace(rng=np.random.default_rng(0))
        self.lineup = Lineup(
            Opponents(self.roster, policy, None),
            who_begins=lambda player: self.begins + player,
            learns=lambda: False,
            limits=lambda: Limits(5, 9),
        )


@pytest.fixture
def teams() -> tuple[RemoteTeams, RemoteTeam, OfLeague, WorkerHandle]:
    worker, league = WorkerHandle(1, EnvironmentSettings()), OfLeague()
    all_teams = RemoteTeams([worker], n_players=2)
    league.roster.snapshots.update(dict.fromkeys(range(8, 12), "an old policy"))  # type: ignore[arg-type]
    return all_teams, all_teams.add(TEAM, league.lineup), league, worker


TEAM = BehaviorId("Duel", 1)


def news(*, games: Sequence[tuple[int, Any]] = (), present: Collection[int] = ()) -> Harvest:
    teams = {TEAM: TeamNews(3, set(present))}
    return Harvest({}, {}, {}, [], 0.0, teams, list(games))


def test_a_worker_gets_each_snapshot_once_and_drops_it_when_none_acts_by_it(teams: Any) -> None:
    all_teams, _, league, worker = teams
    first = all_teams.opposition(worker)
    # The players of worker 1 are 2 and 3.
    assert first.begins == {TEAM: (9, 10)} and first.opposing == {TEAM}
    assert {n: pickle.loads(each) for n, each in first.snapshots["Duel"].items()} == {
        9: "an old policy",
        10: "an old policy",
    }
    league.begins = 8
    second = all_teams.opposition(worker)
    assert second.snapshots["Duel"].keys() == {11} and not second.drops
    del league.roster.snapshots[9]
    third = all_teams.opposition(worker)
    assert not third.snapshots and third.drops == {"Duel": {9}}
    assert not all_teams.opposition(worker).drops
    worker.has_answered()
    worker.begin_again(Gone("ended"), life=5, parameters={})
    again = all_teams.opposition(worker)
    assert again.snapshots["Duel"].keys() == {10, 11}, "another process has none of them"


def test_policies_are_present_from_the_order_to_the_end_of_their_last_episode(teams: Any) -> None:
    all_teams, team, _, worker = teams
    worker.orders.append(Order({}, opposition=all_teams.opposition(worker)))
    assert team.present == {9, 10}
    worker.orders.clear()
    all_teams.take_in(worker, news(present={8, 9}))
    assert team.present == {8, 9}
    assert team.n_decisions == 3
    all_teams.lose(1)
    assert team.present == set()


def test_all_workers_swap_opponents_once(teams: Any) -> None:
    all_teams, team, _, worker = teams
    all_teams.take_in(worker, news(present={8}))
    team.swap()
    assert all_teams.opposition(worker).swaps == {TEAM}
    assert all_teams.opposition(worker).swaps == set()


def test_results_stay_those_of_their_report(teams: Any) -> None:
    all_teams, team, _, worker = teams
    won, lost = GameResult(9, 1.0), GameResult(9, 0.0)
    other = BehaviorId("Duel", 0)
    games = [(0, {TEAM: [won], other: []}), (0, {TEAM: [lost, won]}), (1, {other: [won]})]
    assert all_teams.take_in(worker, news(games=games)) == [2, 2, 3]
    taken = [team.take_results(player) for player in (2, 2, 3, 2)]
    assert taken == [[won], [lost, won], [], []]
