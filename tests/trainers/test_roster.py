import numpy as np
import pytest

from actors import make_actor
from mlagents.trainers.acting.roster import LATEST, Roster, RosterMemories
from mlagents.trainers.networks.snapshots import snapshot_of
from mlagents_envs.base_env import (
    ActionSpec,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
    TerminalSteps,
)

DENSE = BehaviorSpec([ObservationSpec.vector(4, "x")], ActionSpec.create_hybrid(2, (3, 2)))
MEMORY = {"memory": {"memory_size": 8, "sequence_length": 4}}
NETWORKS = [{}, MEMORY, {"hidden_units": 300}, {"normalize": True}]


def outputs_by_row(spec, snapshots, numbers, obs, memory):
    """Return what each agent's own snapshot outputs, agent by agent."""
    return [
        snapshots[number].forward([batch[[i]] for batch in obs], memory[[i]])
        for i, number in enumerate(numbers)
    ]


@pytest.mark.parametrize(
    "network", [{}, MEMORY, {"hidden_units": 300}, {"normalize": True}], ids=str
)
@pytest.mark.parametrize("squashed", [False, True])
@pytest.mark.parametrize("numbers", [[5, 0, LATEST, 0, 5, 5, 0], [2] * 7, [0, 1, 2, 3, 4, 5, 6]])
def test_each_agent_acts_by_its_own_snapshot(network, squashed, numbers) -> None:
    snapshots = {
        number: snapshot_of(make_actor(DENSE, seed=number + 2, squashed=squashed, **network))
        for number in {*numbers, LATEST}
    }
    roster = Roster(lambda: snapshots[LATEST])
    roster.snapshots = {number: each for number, each in snapshots.items() if number != LATEST}
    rng = np.random.default_rng(0)
    obs = [rng.standard_normal((7, 4)).astype(np.float32)]
    memory = rng.standard_normal((7, roster.memory_size)).astype(np.float32)
    memory[:, -1] = numbers
    assert roster.squashed == squashed
    outputs = roster.forward(obs, memory)
    expected = outputs_by_row(DENSE, snapshots, numbers, obs, memory[:, :-1])
    for i, each in enumerate(expected):
        np.testing.assert_allclose(outputs.mean[i], each.mean[0], atol=1e-5)
        np.testing.assert_allclose(outputs.logits[i], each.logits[0], atol=1e-5)
        own = outputs.log_std if outputs.log_std.ndim == 1 else outputs.log_std[i]
        np.testing.assert_allclose(own, each.log_std.reshape(-1, 2)[0], atol=1e-5)
        np.testing.assert_allclose(outputs.memory[i, :-1], each.memory[0], atol=1e-5)
    np.testing.assert_array_equal(outputs.memory[:, -1], numbers)


def test_a_changed_snapshot_clears_the_memory() -> None:
    numbers = {7: 1, 8: 2}
    memories = RosterMemories(3, lambda player, agents: [numbers[agent] for agent in agents])
    decisions = DecisionSteps.of([np.zeros((2, 1), np.float32)], [0, 0], [7, 8])
    none = TerminalSteps.empty(DENSE)
    lanes = memories.observe(0, decisions, none)
    np.testing.assert_array_equal(memories.memory(lanes), [[0, 0, 1], [0, 0, 2]])
    memories._remembered[lanes, :2] = 0.5
    np.testing.assert_array_equal(memories.observe(0, decisions, none), lanes)
    np.testing.assert_array_equal(memories.memory(lanes), [[0.5, 0.5, 1], [0.5, 0.5, 2]])
    numbers[8] = LATEST
    memories.observe(0, decisions, none)
    np.testing.assert_array_equal(memories.memory(lanes), [[0.5, 0.5, 1], [0, 0, LATEST]])
