"""`TeamSeat`: agents that come and go, and the policies that play them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlagents.games import GameResult
from mlagents.trainers.acting.memories import Memories
from mlagents.trainers.acting.rollout import Seat, Share
from mlagents.trainers.acting.roster import LATEST
from mlagents.trainers.acting.teams import LEARNER, SCRIPT, TeamSeat
from mlagents_envs.base_env import DecisionSteps, TerminalSteps

LEARNERS, SNAPSHOTS, SCRIPTS = (Seat(object(), Memories()) for _ in range(3))  # type: ignore[arg-type]


class Team:
    """A team whose new episodes belong to `begins`, and its last report."""

    def __init__(self, begins: int = LEARNER) -> None:
        self.begins = begins
        self.seat = TeamSeat(
            LEARNERS, self.take_numbers, SCRIPTS, who_begins=lambda player: self.begins
        )

    def take_numbers(self, numbers_of: Any) -> Seat:
        self.numbers_of = numbers_of
        return SNAPSHOTS

    def report(
        self,
        asking: Sequence[int],
        ended: Sequence[int] = (),
        *,
        groups: dict[int, int] | None = None,
        reward: float = 0.0,
        group_reward: float = 0.0,
        interrupted: bool = False,
        player: int = 0,
    ) -> list[Share]:
        groups = groups or {}

        def columns(agents: Sequence[int]) -> dict[str, Any]:
            of = [groups.get(agent, 0) for agent in agents]
            return {
                "obs": [np.array(agents, np.float32).reshape(-1, 1)],
                "reward": [reward] * len(agents),
                "agent_id": agents,
                "groups": (of, [group_reward] * len(agents)),
            }

        masks = [np.zeros((len(asking), 2), np.bool_)]
        decisions = DecisionSteps.of(**columns(asking), masks=masks)
        terminals = TerminalSteps.of(**columns(ended), interrupted=[interrupted] * len(ended))
        return list(self.seat.shares(player, decisions, terminals))

    def games(self, player: int = 0) -> list[GameResult]:
        return self.seat.take_results(player)


def shared(shares: list[Share]) -> dict[Seat, tuple[list[int], list[int]]]:
    """Return the agents of every share that ask and that ended."""
    for share in shares:
        rows = share.rows if share.rows is not None else np.arange(len(share.decisions))
        assert len(rows) == len(share.decisions)
        # Each row has its own observation, mask and id.
        np.testing.assert_array_equal(share.decisions.obs[0][:, 0], share.decisions.agent_id)
        assert [len(mask) for mask in share.decisions.action_mask or []] == [len(rows)]
    return {
        share.seat: (share.decisions.agent_id.tolist(), share.terminals.agent_id.tolist())
        for share in shares
    }


def test_a_report_of_one_policy_is_not_divided() -> None:
    for begins, seat in (
        (LEARNER, LEARNERS),
        (3, SNAPSHOTS),
        (LATEST, SNAPSHOTS),
        (SCRIPT, SCRIPTS),
    ):
        team = Team(begins)
        (share,) = team.report([4, 5])
        assert (share.seat, share.rows) == (seat, None)
    assert shared(Team().report([])) == {LEARNERS: ([], [])}, "even no agent needs an answer"


def test_an_episode_keeps_its_policy_until_it_ends() -> None:
    team = Team(3)
    team.report([1, 2])
    team.begins = LEARNER
    assert shared(team.report([1, 2, 5])) == {LEARNERS: ([5], []), SNAPSHOTS: ([1, 2], [])}
    shares = team.report([1, 2, 5], [2])
    assert shared(shares) == {LEARNERS: ([2, 5], []), SNAPSHOTS: ([1], [2])}
    rows = [share.rows.tolist() for share in shares if share.rows is not None]
    assert sorted(rows) == [[0], [1, 2]]
    assert team.numbers_of(0, [1]) == [3]
    assert team.seat.present == {3, LEARNER}
    assert shared(team.report([], [1, 2, 5])) == {LEARNERS: ([], [2, 5]), SNAPSHOTS: ([], [1])}
    assert team.seat.present == set()


def test_every_player_has_its_own_agents() -> None:
    team = Team(3)
    team.report([1])
    team.begins = 4
    team.report([1], player=1)
    assert (team.numbers_of(0, [1]), team.numbers_of(1, [1])) == ([3], [4])
    team.seat.forget(0)
    team.report([1])
    assert team.numbers_of(0, [1]) == [4]
    assert team.seat.n_decisions == 3


def test_a_swap_changes_running_episodes() -> None:
    team = Team(3)
    team.report([1, 2], groups={1: 9})
    team.begins = 4
    team.seat.swap()
    assert team.numbers_of(0, [1, 2]) == [4, 4]
    team.begins = 5
    team.report([1, 2, 6], groups={1: 9, 6: 9})
    assert team.numbers_of(0, [6]) == [4], "as its group"


def test_the_score_is_the_sign_of_the_last_reward() -> None:
    for reward, score in ((0.25, 1.0), (-3.0, 0.0), (0.0, 0.5)):
        team = Team(2)
        team.report([1])
        team.report([1], [1], reward=reward)
        assert team.games() == [GameResult(2, score)]
        assert team.games() == [], "each game is returned once"


def test_interrupted_games_have_no_score() -> None:
    team = Team()
    team.report([1])
    team.report([1], [1], reward=1.0, interrupted=True)
    assert team.games() == [GameResult(LEARNER, None)]


def test_a_group_plays_one_game_with_one_policy() -> None:
    groups = {1: 7, 2: 7, 3: 8}
    team = Team(3)
    team.report([1, 2, 3], groups=groups)
    team.begins = 4
    # Agent 1 dies early; agent 5 joins its group and plays by the same snapshot.
    team.report([2, 3, 5], [1], groups=groups | {5: 7}, reward=-1.0)
    assert team.games() == []
    assert team.numbers_of(0, [2, 3, 5]) == [3, 3, 3]
    team.report([3], [2, 5], groups=groups | {5: 7}, group_reward=1.0, reward=-0.25)
    assert team.games() == [GameResult(3, 1.0)]
    # The group's id comes back with new members.
    team.report([3, 9], groups={3: 8, 9: 7})
    assert team.numbers_of(0, [9]) == [4]


def test_an_agent_may_join_and_change_groups_later() -> None:
    team = Team()
    team.report([1, 2])
    team.report([1, 2], groups={1: 5, 2: 5})
    team.report([1, 2], groups={1: 5, 2: 6})
    team.report([2], [1], groups={1: 5, 2: 6}, group_reward=1.0)
    assert team.games() == [GameResult(LEARNER, 1.0)]


def test_agents_that_end_without_having_acted_play_no_game() -> None:
    team = Team()
    assert shared(team.report([1], [2])) == {LEARNERS: ([1], [2])}
    assert team.games() == []


def test_vanished_agents_are_forgotten() -> None:
    team = Team(3)
    team.report(range(100), groups=dict.fromkeys(range(50), 1))
    team.begins = 4
    for _ in range(201):
        team.report([200])
    team.report(range(200, 400))
    assert len(team.seat._sides[0]._agents) == 200
    assert not team.seat._sides[0]._groups
    assert team.seat.present == {4}
