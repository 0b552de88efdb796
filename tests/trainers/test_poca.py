"""What MA-POCA learns from, computed again agent by agent from what happened."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from actors import image_8_bit
from group_world import SPEC, GroupWorld, Step
from mlagents.trainers.acting.collector import Collector
from mlagents.trainers.acting.rollout import Rollout
from mlagents.trainers.algorithms import behavioral_cloning as behavioral_cloning_module
from mlagents.trainers.algorithms import reward_signals as reward_signals_module
from mlagents.trainers.algorithms.poca import POCA, Experience
from mlagents.trainers.algorithms.returns import advantages_of, joined_advantages
from mlagents.trainers.data.group_steps import group_steps
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.networks.group_critic import GroupCritic
from mlagents.trainers.players.env_manager import PlayerSteps
from mlagents.trainers.players.in_process import SimpleEnvManager
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import BehaviorSpec
from sacrifice_environment import SacrificeEnvironment
from steps import make_demonstrations, make_segments
from training_loop import make_trainer, train_while

CPU = torch.device("cpu")
GAMMA, LAMBDA, HORIZON = 0.9, 0.8, 5


def behavior_settings(**written: Any) -> BehaviorSettings:
    return BehaviorSettings.model_validate(
        {
            "trainer_type": "poca",
            "hyperparameters": {"batch_size": 16, "buffer_size": 64, "lambd": LAMBDA},
            "network_settings": {"hidden_units": 8, "num_layers": 1},
            "reward_signals": {"extrinsic": {"gamma": GAMMA}},
        }
        | written
    )


def make_poca(seed: int = 0, **written: Any) -> POCA:
    """Make an algorithm of random weights, all of which matter, in double precision."""
    poca = POCA(SPEC, behavior_settings(**written), device=CPU, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    for parameter in poca.network.parameters():
        torch.nn.init.normal_(parameter, std=0.5, generator=generator)
    return poca


def make_collector(**options: Any) -> Collector:
    return Collector(SPEC, time_horizon=HORIZON, with_groups=True, **options)


def encoding_of(critic: GroupCritic, steps: list[Step], own: Step | None) -> torch.Tensor:
    """Encode one set of members. Without `own` nobody shows an action, with it only `own` does
    not."""
    entities = []
    for step in steps:
        encoding = torch.from_numpy(step.obs)[None]
        if own is None or step is own:
            entities.append(critic.without_action(encoding))
            continue
        chosen = [torch.eye(n)[step.discrete[k]][None] for k, n in enumerate(critic.branches)]
        done = torch.cat([encoding, torch.from_numpy(step.continuous)[None], *chosen], 1)
        entities.append(critic.with_action(done))
    everybody = torch.ones(1, len(steps), dtype=torch.bool)
    return critic.dense(critic.attention(torch.stack(entities, 1), everybody))


def value_of(critic: GroupCritic, steps: list[Step], own: Step | None, largest: int) -> float:
    encoding = encoding_of(critic, steps, own)
    size = torch.tensor([[2 * len(steps) / largest - 1]])
    return critic.values(torch.cat([encoding, size], 1)).item()


def expected(poca: POCA, worlds: list[GroupWorld]) -> dict[bytes, tuple[float, float, float]]:
    """Return value, baseline and return of every closed step, by its observation."""
    critic = poca.network.critic
    agents = [m for world in worlds for m in (*world.gone, *world.members)]
    sets = [[s, *s.mates] for m in agents for s in m.steps] + [
        s.after for m in agents for s in m.steps
    ]
    largest = max(len(s) for s in sets)
    found = {}
    for agent in agents:
        closed = [step for step in agent.steps if step.is_closed]
        for first in range(0, len(closed), HORIZON):
            part = closed[first : first + HORIZON]
            follows = agent.steps[first + len(part) :][:1]  # the agent goes on
            after = [follows[0], *follows[0].mates] if follows else part[-1].after
            value_after = value_of(critic, after, None, largest) if after else 0.0
            total = value_after
            for step in reversed(part):
                # G[t] = r[t] + gamma ((1 - lambda) V[t+1] + lambda G[t+1])
                total = step.reward + GAMMA * ((1 - LAMBDA) * value_after + LAMBDA * total)
                members = [step, *step.mates]
                value_after = value_of(critic, members, None, largest)
                baseline = value_of(critic, members, step, largest)
                found[step.obs.tobytes()] = (value_after, baseline, total)
    return found


def play(worlds: list[GroupWorld], collector: Collector, n_reports: int) -> Segments:
    for _ in range(n_reports):
        for world in worlds:
            world.report(collector)
        for world in worlds[:-1]:
            world.decide()
        segments = None
        if _ == n_reports - 1:
            segments = collector.take(at_least=1)
        worlds[-1].decide()
    assert segments is not None
    return segments


@torch.no_grad()
def prepared(poca: POCA, segments: Segments) -> tuple[Experience, np.ndarray]:
    rewards = poca.score(segments)
    experience, _ = poca.prepare(segments, rewards)
    return experience, rewards


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n_worlds=st.integers(1, 3),
    n_reports=st.integers(3, 14),
    in_step=st.booleans(),
)
@torch.no_grad()
def test_values_baselines_and_returns_are_those_of_a_loop_over_agents(
    seed: int, n_worlds: int, n_reports: int, in_step: bool
) -> None:
    # Two teams of one player whose agents have the same group ids, and a second player.
    places = [(0, "Room?team=0", 0), (0, "Room?team=1", 8), (1, "Room?team=0", 0)]
    rng = np.random.default_rng(seed)
    worlds = [GroupWorld(rng, *place, in_step=in_step) for place in places[:n_worlds]]
    segments = play(worlds, make_collector(), n_reports)
    poca = make_poca()

    experience, rewards = prepared(poca, segments)

    wanted = expected(poca, worlds)
    assert len(wanted) == segments.n_steps
    rows = np.array([wanted[obs.tobytes()] for obs in segments.obs[0]])
    steps = {s.obs.tobytes(): s for w in worlds for m in (*w.gone, *w.members) for s in m.steps}
    paid = [steps[obs.tobytes()].reward for obs in segments.obs[0]]
    np.testing.assert_allclose(rewards[:, 0], paid, atol=1e-5)
    found = [
        experience.batch.old_values[:, 0],
        experience.old_baselines[:, 0],
        experience.batch.returns[:, 0],
    ]
    np.testing.assert_allclose(np.stack(found, 1), rows, atol=1e-5)
    if segments.n_steps > 1:
        gain = rows[:, 2] - rows[:, 1]
        advantages = (gain - gain.mean()) / (gain.std() + 1e-10)
        np.testing.assert_allclose(
            experience.batch.advantages[:, 0], advantages, atol=2e-5 / max(gain.std(), 0.1)
        )


def test_the_advantage_of_an_agent_alone_is_that_of_ppo() -> None:
    rng = np.random.default_rng(3)
    world = GroupWorld(rng)
    segments = play([world], make_collector(), 12)
    alone = replace(
        segments,
        group=-1 - segments.episode,
        open_steps=segments.open_steps._replace(group=-1 - segments.open_steps.episode),
    )
    poca = make_poca()

    experience, rewards = prepared(poca, alone)

    batch = experience.batch
    torch.testing.assert_close(experience.old_baselines, batch.old_values)
    np.testing.assert_allclose(rewards[:, 0], segments.reward + segments.group_reward, atol=1e-6)
    last = [torch.from_numpy(batch) for batch in segments.last_obs]
    after = [value_of(poca.network.critic, [Step(obs.numpy(), 0)], None, 1) for obs in last[0]]
    advantages = advantages_of(
        segments,
        rewards,
        batch.old_values.numpy(),
        np.array(after, "f4")[:, None],
        poca.signals,
        lambd=LAMBDA,
    )
    torch.testing.assert_close(
        batch.advantages, torch.from_numpy(joined_advantages(advantages)), rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("memory", [None, {"memory_size": 4, "sequence_length": 3}])
@pytest.mark.parametrize("in_step", [True, False])
def test_minibatches_estimate_what_was_estimated_before(
    in_step: bool, memory: dict[str, int] | None
) -> None:
    rng = np.random.default_rng(0)
    options = {} if memory is None else {"memory_size": 4, "sequence_length": 3}
    network = {"hidden_units": 8, "num_layers": 1, "memory": memory}
    poca, world = make_poca(network_settings=network), GroupWorld(rng, in_step=in_step)
    collector = make_collector(**options)
    for _ in range(2):  # the second time, memory is carried over
        experience, _ = prepared(poca, play([world], collector, 12))
    if memory is None:
        sizes = experience.steps.size[experience.steps.step_of_row]
        assert len(set(sizes.tolist())) > 2

    n_rows = 0
    seen: list[int] = []
    for rows, minibatch in poca.minibatches(experience):
        with torch.no_grad():
            of_critic = minibatch.sequences
            if of_critic is not None:
                of_critic = of_critic._replace(memory=of_critic.memory[:, 4:])
                assert of_critic.memory.any()
            values, baselines = poca.network.critic(minibatch.seen, minibatch.places, of_critic)
        torch.testing.assert_close(values, minibatch.batch.old_values, rtol=0, atol=1e-5)
        torch.testing.assert_close(baselines, minibatch.old_baselines, rtol=0, atol=1e-5)
        torch.testing.assert_close(experience.batch.take(rows).obs, minibatch.batch.obs)
        seen += rows.tolist()
        n_rows += len(rows)
    assert len(set(seen)) == n_rows, "no row twice"
    assert n_rows >= len(experience.batch.returns) - 2 * 16


def test_minibatches_are_of_whole_group_steps() -> None:
    poca, world = make_poca(), GroupWorld(np.random.default_rng(1))
    experience, _ = prepared(poca, play([world], make_collector(), 40))
    step_of_row = experience.steps.step_of_row
    orders = []
    for _ in range(2):
        dealt = [set(rows.tolist()) for rows, _ in poca.minibatches(experience)]
        assert len(dealt) == len(step_of_row) // 16
        for rows in dealt:
            assert abs(len(rows) - 16) < 5
            steps = set(step_of_row[list(rows)].tolist())
            assert rows == set(np.flatnonzero(np.isin(step_of_row, list(steps))).tolist())
        orders.append(dealt)
    assert orders[0] != orders[1]


def test_the_memory_of_a_critic_follows_its_agent_through_all_updates() -> None:
    # The critic's encodings of each step go through its memory, one agent after the other.
    memory = {"memory_size": 4, "sequence_length": 3}
    network = {"hidden_units": 8, "num_layers": 1, "memory": memory}
    poca = make_poca(network_settings=network)
    critic = poca.network.critic
    assert critic.memory is not None
    critic.note_sizes(5)  # the largest group does not grow meanwhile
    world = GroupWorld(np.random.default_rng(5))
    collector = make_collector(memory_size=4, sequence_length=3)
    found: dict[bytes, tuple[float, float]] = {}
    for _ in range(4):
        experience, _ = prepared(poca, play([world], collector, 4))
        estimates = torch.cat([experience.batch.old_values, experience.old_baselines], 1)
        rows = zip(experience.batch.obs[0].numpy(), estimates.tolist(), strict=True)
        found |= {obs.tobytes(): tuple(estimate) for obs, estimate in rows}
    wanted: dict[bytes, tuple[float, float]] = {}
    for agent in (*world.gone, *world.members):
        states = [torch.zeros(1, 4), torch.zeros(1, 4)]
        for step in agent.steps:
            members = [step, *step.mates]
            estimate = []
            for kind, own in enumerate((None, step)):
                encoding = encoding_of(critic, members, own)
                hidden, states[kind] = critic.memory.step(encoding, states[kind])
                estimate.append(critic.estimate(hidden, torch.tensor([len(members)])).item())
            if step.is_closed:
                wanted[step.obs.tobytes()] = (estimate[0], estimate[1])
    assert max(len(agent.steps) for agent in (*world.gone, *world.members)) > HORIZON
    assert wanted.keys() == found.keys()
    np.testing.assert_allclose([found[key] for key in wanted], list(wanted.values()), atol=1e-4)


DEMO = "expert.demo"
MEMORY = {"memory_size": 4, "sequence_length": 3}


@pytest.mark.parametrize(
    "written",
    [
        {"reward_signals": {"extrinsic": {}, "curiosity": {}, "rnd": {}}},
        {"reward_signals": {"extrinsic": {}, "gail": {"demo_path": DEMO, "use_actions": True}}},
        {"behavioral_cloning": {"demo_path": DEMO, "steps": 1000}},
        {"network_settings": {"hidden_units": 8, "memory": MEMORY, "normalize": True}},
        {
            "hyperparameters": {
                "batch_size": 16,
                "buffer_size": 64,
                **dict.fromkeys(("joint_ratio", "joint_entropy", "clip_values"), True),
                **{"normalize_each_signal": True, "max_grad_norm": 0.5},
            }
        },
    ],
    ids=["novelty", "gail", "cloning", "memory", "options"],
)
def test_learns_beside_everything_else(
    written: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    demonstrations = make_demonstrations(SPEC, [20, 20], np.random.default_rng(0))
    for module in (reward_signals_module, behavioral_cloning_module):
        monkeypatch.setattr(module, "load_demonstrations", lambda *_: demonstrations)
    has_memory = "memory" in written.get("network_settings", {})
    collector = make_collector(**(MEMORY if has_memory else {}))
    segments = play([GroupWorld(np.random.default_rng(0))], collector, 40)
    poca = POCA(SPEC, behavior_settings(**written), device=CPU, seed=0)
    before = copy.deepcopy(poca.network.state_dict())

    plotted = poca.update(segments, poca.score(segments), step=0)

    assert all(np.isfinite(value) for value in plotted.values())
    assert plotted.keys() >= {
        "Losses/Policy Loss",
        "Losses/Value Loss",
        "Losses/Baseline Loss",
        "Policy/Extrinsic Value Estimate",
        "Policy/Extrinsic Baseline Estimate",
        "Policy/Learning Rate",
        "Policy/Epsilon",
        "Policy/Beta",
    }
    unchanged = [
        name for name, value in poca.network.named_parameters() if torch.equal(value, before[name])
    ]
    assert not unchanged


def test_learns_from_images_of_mates() -> None:
    camera = image_8_bit(1, 24, 20)
    spec = BehaviorSpec([camera], SPEC.action_spec)
    segments = play([GroupWorld(np.random.default_rng(0))], make_collector(), 20)
    rng = np.random.default_rng(1)

    def seen(obs: list[np.ndarray]) -> list[np.ndarray]:
        return [rng.integers(0, 255, (len(obs[0]), *camera.shape)).astype(np.uint8)]

    assert segments.open_steps is not None
    segments = replace(
        segments,
        obs=seen(segments.obs),
        last_obs=seen(segments.last_obs),
        open_steps=segments.open_steps._replace(obs=seen(segments.open_steps.obs)),
    )
    poca = POCA(spec, behavior_settings(), device=CPU, seed=0)
    plotted = poca.update(segments, poca.score(segments), step=0)
    assert all(np.isfinite(value) for value in plotted.values())


def test_segments_without_groups_are_refused() -> None:
    segments = make_segments(SPEC, [3, 2], np.random.default_rng(0))
    with pytest.raises(ValueError, match="collect them with `with_groups=True`"):
        group_steps(segments)


@pytest.mark.parametrize("memory", [None, MEMORY])
def test_a_resumed_run_learns_the_same_bit_by_bit(memory: dict[str, int] | None) -> None:
    network = {"hidden_units": 8, "num_layers": 1, "memory": memory, "normalize": True}
    settings = behavior_settings(
        network_settings=network, time_horizon=8, summary_freq=10**6, max_steps=10_000
    )
    env = SacrificeEnvironment(n_groups=6)
    env.reset()
    first = make_trainer(env, settings)
    train_while(lambda: first.step < 300, first, env)
    first.seat.memories.take(at_least=1)  # what is unused is not saved
    second = make_trainer(env, settings, seed=1)
    second.load_state(copy.deepcopy(first.state()))
    found = []
    for trainer in (first, second):
        trainer.seat.memories.forget(0)
        trainer.seat.memories._free.sort(reverse=True)  # rows come in the same order
        end = trainer.step + 300
        train_while(lambda: trainer.step < end, trainer, SacrificeEnvironment(n_groups=6))  # noqa: B023
        found.append(trainer.learner.algorithm.network.state_dict())
    assert found[0]["critic.largest"] == 2
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=0, atol=0)


def test_learns_in_a_thread_from_several_players() -> None:
    settings = behavior_settings(threaded=True, time_horizon=8, max_steps=10**6)
    env = SacrificeEnvironment(n_groups=6)
    env.reset()
    trainer = make_trainer(env, settings)
    players = [SacrificeEnvironment(n_groups=3) for _ in range(2)]
    rollouts = [
        Rollout(Renumbered(player, number), lambda player, behavior: trainer.seat)
        for number, player in enumerate(players)
    ]
    for rollout in rollouts:
        rollout.reset()
    algorithm = trainer.learner.algorithm
    assert isinstance(algorithm, POCA)
    largest = []
    prepare = algorithm.prepare

    def spy(segments: Segments, rewards: np.ndarray) -> Any:
        experience, plotted = prepare(segments, rewards)
        largest.append(int(experience.steps.size.max()))
        return experience, plotted

    algorithm.prepare = spy  # type: ignore[method-assign]
    while trainer.step < 600:
        for rollout in rollouts:
            rollout.advance()
        trainer.advance()
        for rollout in rollouts:
            rollout.answer()
    trainer.learner.settle()
    assert len(largest) > 4
    assert set(largest) == {2}, "pairs of two players do not become groups of four"


class Renumbered(SimpleEnvManager):
    """One environment as a player with a number of its own."""

    def __init__(self, env: SacrificeEnvironment, number: int) -> None:
        super().__init__(env)
        self._number = number

    def receive(self) -> list[PlayerSteps]:
        return [report._replace(player=self._number) for report in super().receive()]

    def send(self, player: int, actions: Any) -> None:
        super().send(0, actions)


def test_the_exported_policy_acts_alone() -> None:
    env = SacrificeEnvironment()
    env.reset()
    trainer = make_trainer(env, behavior_settings())
    model = onnx.load_from_string(trainer.learner.export())
    assert [each.name for each in model.graph.input] == ["obs_0", "action_masks"]


@pytest.mark.parametrize("memory", [{}, MEMORY])
def test_options_that_need_fewer_steps(memory: dict[str, int]) -> None:
    written = {
        "batch_size": 16,
        "buffer_size": 64,
        "num_epoch": 4,
        "learning_rate_schedule": "adaptive",
        "desired_kl": 1e-9,
        "target_kl": 1e-8,
        "normalize_advantages": "minibatch",
        "normalize_values": True,
    }
    network = {"hidden_units": 8, "num_layers": 1, "memory": memory or None}
    poca = make_poca(hyperparameters=written, network_settings=network)
    world = GroupWorld(np.random.default_rng(0))
    segments = play([world], make_collector(**memory), 40)
    plotted = poca.update(segments, poca.score(segments), step=0)
    assert all(np.isfinite(value) for value in plotted.values())
    # The update ended after its first pass, which moved the policy more than desired.
    assert poca.optimizer.param_groups[0]["lr"] == pytest.approx(3e-4 / 1.5)
    assert poca.value_scale is not None and poca.value_scale.count > 1
    assert "Optimizer:value_scale" in poca.modules()
