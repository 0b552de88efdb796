from typing import Any

import numpy as np
import pytest

from actors import make_actor
from guess_environment import GuessEnvironment
from mlagents.trainers.acting.collector import Collector
from mlagents.trainers.acting.memories import Memories
from mlagents.trainers.acting.policy import ActingPolicy
from mlagents.trainers.acting.rollout import Rollout, Seat
from mlagents.trainers.networks.snapshots import snapshot_of
from mlagents.trainers.players.env_manager import EnvManager, PlayerSteps
from mlagents_envs.base_env import ActionTuple, BehaviorName, BehaviorSpec


class Players(EnvManager):
    """Environments that report and step when a test says so.

    Args:
        envs: The environment of each player; a behavior may have other names in other players.
        names: What each player calls its behavior.
    """

    def __init__(self, envs: list[GuessEnvironment], names: list[BehaviorName]) -> None:
        self.envs, self.names = envs, names
        self.reporting = list(range(len(envs)))
        self.new: set[int] = set()
        self.sent: dict[int, ActionTuple] = {}

    @property
    def behavior_specs(self) -> dict[BehaviorName, BehaviorSpec]:
        return {
            name: env.behavior_specs[env.BEHAVIOR]
            for name, env in zip(self.names, self.envs, strict=True)
        }

    def set_parameters(self, parameters: Any) -> None:
        raise AssertionError("not called here")

    def reset(self) -> None:
        for env in self.envs:
            env.reset()
        self.new = set(range(len(self.envs)))

    def receive(self) -> list[PlayerSteps]:
        reports = []
        for player in self.reporting:
            env, name = self.envs[player], self.names[player]
            reports.append(
                PlayerSteps(player, {name: env.get_steps(env.BEHAVIOR)}, player in self.new)
            )
            self.new.discard(player)
        return reports

    def send(self, player: int, actions: Any) -> None:
        ((name, action),) = actions.items()
        assert name == self.names[player]
        self.sent[player] = action
        env = self.envs[player]
        env.set_actions(env.BEHAVIOR, action)
        env.step()

    def close(self) -> None:
        pass


def make_players(
    sizes: tuple[int, ...] = (3, 1, 5), names: list[BehaviorName] | None = None
) -> Players:
    envs = [GuessEnvironment(n_agents=n, seed=n, episode_steps=50) for n in sizes]
    return Players(envs, names or [GuessEnvironment.BEHAVIOR] * len(sizes))


def make_policy(spec: BehaviorSpec, *, seed: int = 0, **settings: Any) -> ActingPolicy:
    actor = make_actor(spec, seed=seed, **settings)
    return ActingPolicy(
        snapshot_of(actor), spec.action_spec, deterministic=True, rng=np.random.default_rng(0)
    )


def spec_of(players: Players) -> BehaviorSpec:
    return next(iter(players.behavior_specs.values()))


def test_players_get_their_own_actions() -> None:
    together, apart = make_players(), make_players()
    policy = make_policy(spec_of(together))
    seat = Seat(policy, Collector(spec_of(together), time_horizon=8))
    rollout = Rollout(together, lambda player, behavior: seat)
    rollout.reset()
    rollout.advance()
    rollout.answer()

    alone = {player: Seat(policy, Collector(spec_of(apart), time_horizon=8)) for player in range(3)}
    rollout = Rollout(apart, lambda player, behavior: alone[player])
    rollout.reset()
    for player in range(3):
        apart.reporting = [player]
        rollout.advance()
        rollout.answer()

    assert together.sent.keys() == apart.sent.keys() == {0, 1, 2}
    for player, action in together.sent.items():
        expected = apart.sent[player]
        np.testing.assert_allclose(action.continuous, expected.continuous, atol=1e-6)
        np.testing.assert_array_equal(action.discrete, expected.discrete)


def test_a_player_without_agents_that_ask_is_answered_with_no_actions() -> None:
    players = make_players((0,))
    policy = make_policy(spec_of(players))
    rollout = Rollout(players, lambda player, behavior: Seat(policy, Memories()))
    rollout.reset()
    rollout.advance()
    assert rollout.answer() == {}, "no distribution has an entropy"
    assert players.sent[0].continuous.shape == (0, 1)
    assert players.sent[0].discrete.shape == (0, 1)


MEMORY = {"memory": {"memory_size": 8, "sequence_length": 4}}


@pytest.mark.parametrize("settings", [{}, MEMORY], ids=["dense", "memory"])
def test_teams_act_by_two_snapshots_and_one_is_recorded(settings: dict[str, Any]) -> None:
    players = make_players((4, 4), ["Guess?team=0", "Guess?team=1"])
    spec = spec_of(players)
    learns, opponent = make_policy(spec, seed=1, **settings), make_policy(spec, seed=2, **settings)
    size = learns.snapshot.memory_size
    recorded = Collector(spec, time_horizon=3, memory_size=size)
    seats = {
        "Guess?team=0": Seat(learns, recorded),
        "Guess?team=1": Seat(opponent, Memories(size)),
    }
    rollout = Rollout(players, lambda player, behavior: seats[behavior])
    rollout.reset()
    memory = np.zeros((4, size), np.float32)
    for _ in range(4):
        rollout.advance()
        env = players.envs[1]
        obs = env.get_steps(env.BEHAVIOR)[0].obs
        expected = opponent.act(
            obs, np.zeros((4, sum(spec.action_spec.discrete_branches)), bool), memory
        )
        memory = expected.memory
        rollout.answer()
        np.testing.assert_allclose(
            players.sent[1].continuous, expected.action.continuous, atol=1e-6
        )
    segments = recorded.take()
    assert segments is not None
    assert segments.n_steps == 4 * 3, "the steps of the other team are not among them"
    learned = [make_policy(spec, seed=1, **settings).snapshot]
    first = np.cumsum(segments.length) - segments.length  # steps at which memory is kept
    obs = [batch[first] for batch in segments.obs]
    outputs = learned[0].forward(obs, segments.memory)
    assert outputs.mean is not None
    np.testing.assert_allclose(segments.continuous[first], outputs.mean, atol=1e-5)


def test_a_player_that_begins_again_leaves_nothing_unfinished() -> None:
    players = make_players((8, 8))
    collector = Collector(spec_of(players), time_horizon=100)
    policy = make_policy(spec_of(players))
    rollout = Rollout(players, lambda player, behavior: Seat(policy, collector))
    rollout.reset()
    for _ in range(3):
        rollout.advance()
        rollout.answer()
    rollout.advance()
    assert collector.n_unfinished == 2 * 8 * 3
    rollout.answer()
    players.envs[0].reset()
    players.new = {0}
    rollout.advance()
    assert collector.n_unfinished == 8 * 4, "those of the other player"


def test_a_reset_voids_what_was_not_answered() -> None:
    players = make_players((2, 2))
    collector = Collector(spec_of(players), time_horizon=100)
    policy = make_policy(spec_of(players))
    rollout = Rollout(players, lambda player, behavior: Seat(policy, collector))
    rollout.reset()
    rollout.advance()
    rollout.reset()
    rollout.answer()
    assert players.sent == {}
    rollout.advance()
    rollout.answer()
    assert players.sent.keys() == {0, 1}
