"""Self-play: the time it takes and what it learns, in small games of two teams.

    acting     decisions by four snapshots, against those by one network
    overhead   CPU time per learner step, against PPO of both teams without self-play
    scissors   rock, paper, scissors: exploitability of the average snapshot
    both       steps until a script is beaten, with and without `learn_from_both`

The games are those of the tests: run it as

    PYTHONPATH=tests python benchmarks/self_play.py overhead
"""

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from actors import make_actor
from duels import Duel, LinePong, RockPaperScissors, chase
from mlagents.trainers.acting.policy import ActingPolicy
from mlagents.trainers.acting.roster import Roster
from mlagents.trainers.data.snapshot import Snapshot
from mlagents.trainers.networks.snapshots import snapshot_of
from mlagents.trainers.players.in_process import SimpleEnvManager
from mlagents.trainers.run.checkpoints import RunFolder
from mlagents.trainers.run.controller import Controller
from mlagents.trainers.run.interrupt import Interrupt
from mlagents.trainers.settings.run_options import RunOptions
from mlagents_envs.base_env import ActionSpec, ActionTuple, BehaviorSpec, ObservationSpec

PPO: dict[str, Any] = {
    "trainer_type": "ppo",
    "hyperparameters": {
        "batch_size": 256,
        "buffer_size": 2048,
        "learning_rate": 1e-3,
        "learning_rate_schedule": "constant",
    },
    "network_settings": {"hidden_units": 128, "num_layers": 2},
    "summary_freq": 10_000,
    "checkpoint_interval": 10**9,
    "time_horizon": 64,
}
SELF_PLAY = {"save_steps": 5000, "swap_steps": 1000, "team_change": 20_000}


def make_run(env: Duel, settings: dict[str, Any], folder: Path, *, seed: int) -> Controller:
    options = RunOptions.model_validate(
        {"default_settings": PPO | settings, "env_settings": {"seed": seed}}
    ).with_seed(seed)
    (folder / "run_logs").mkdir(parents=True)
    return Controller(
        options,
        SimpleEnvManager(env),
        RunFolder(folder),
        writers=[],
        device=torch.device("cpu"),
        interrupt=Interrupt(),
    )


def train(
    env: Duel,
    settings: dict[str, Any],
    *,
    seed: int,
    prepare: Callable[[Controller], None] = lambda run: None,
    done: Callable[[Controller], bool],
) -> Controller:
    """Train until a condition holds."""
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(env, settings, Path(folder) / "run", seed=seed)
        for behavior in _reset(run, env):
            run._trainer_of(behavior)
        prepare(run)
        while not done(run):
            run._advance()
    return run


def _reset(run: Controller, env: Duel) -> list[str]:
    run._fleet.reset()
    return list(env.behavior_specs)


def best_s(call: Callable[[], object], *, n_calls: int = 20) -> float:
    """Return the shortest mean time of a call, in s."""
    best = np.inf
    for _ in range(30):
        started = time.perf_counter()
        for _ in range(n_calls):
            call()
        best = min(best, (time.perf_counter() - started) / n_calls)
    return best


def acting() -> None:
    """Print the time of decisions by several snapshots, in alternation with one network."""
    for actions in (ActionSpec.create_continuous(4), ActionSpec.create_discrete((3, 3))):
        spec = BehaviorSpec([ObservationSpec.vector(32, "x")], actions)
        snapshots = [snapshot_of(make_actor(spec, seed=i, hidden_units=128)) for i in range(4)]
        roster = Roster(lambda latest=snapshots[0]: latest)
        roster.snapshots = dict(enumerate(snapshots))

        def policy(snapshot: Snapshot, actions: ActionSpec = actions) -> ActingPolicy:
            rng = np.random.default_rng(0)
            return ActingPolicy(snapshot, actions, deterministic=False, rng=rng)

        one, four = policy(snapshots[0]), policy(roster)
        for n_agents in (32, 320):
            rng = np.random.default_rng(1)
            obs = [rng.standard_normal((n_agents, 32)).astype(np.float32)]
            mask = np.zeros((n_agents, sum(actions.discrete_branches)), np.bool_)
            memory = rng.integers(4, size=(n_agents, 1)).astype(np.float32)
            alone = best_s(partial(one.act, obs, mask, memory[:, :0]))
            together = best_s(partial(four.act, obs, mask, memory))
            print(
                f"{actions}, {n_agents} agents: one network {alone * 1e6:.0f} us, four snapshots "
                f"{together * 1e6:.0f} us: {together / alone:.2f} times"
            )


def overhead(n_steps: int = 12_000) -> None:
    """Print CPU times per learner step, in alternation."""
    times: dict[str, list[float]] = {}
    kinds = {"PPO": None, "self-play": SELF_PLAY}
    for seed in range(3):
        for name, self_play in kinds.items():
            env = LinePong(num_areas=64, seed=seed)
            started: list[float] = []

            def begin(run: Controller, started: list[float] = started) -> None:
                started.append(time.process_time())

            run = train(
                env,
                {"self_play": self_play, "max_steps": 10**9},
                seed=seed,
                prepare=begin,
                done=lambda run: run.trainers["Duel"].step >= n_steps,
            )
            cpu_s = time.process_time() - started[0]
            times.setdefault(name, []).append(cpu_s / run.trainers["Duel"].step)
    for name, each in times.items():
        print(f"{name}: {np.median(each) * 1e6:.1f} us of CPU time per learner step")
    print(f"ratio {np.median(times['self-play']) / np.median(times['PPO']):.2f}")


PAYOFF = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
"""Reward of each throw against each other throw."""


def exploitability(policy: np.ndarray) -> float:
    """Return the mean reward of the best answer to the probabilities (3,) of the throws."""
    return float((PAYOFF @ policy).max())


def scissors(n_steps: int = 100_000) -> None:
    """Print the exploitability after starts that prefer rock, paper and scissors."""
    kinds: dict[str, dict[str, Any]] = {
        "pfsp": {"opponents": "pfsp"},
        "uniform": {"opponents": "uniform"},
        "latest only": {"play_against_latest_model_ratio": 1.0},
    }
    for name, written in kinds.items():
        found = [_scissors(bias, written, n_steps) for bias in range(3)]
        of_average, of_each = np.array(found).T
        print(f"{name}: exploitability of the average {of_average.round(2)}, ", end="")
        print(f"of a snapshot {of_each.round(2)}", flush=True)


def _scissors(bias: int, written: dict[str, Any], n_steps: int) -> tuple[float, float]:
    self_play = {
        "save_steps": 1000,
        "team_change": 10**9,
        "swap_steps": 256,
        "window": 100,
        "play_against_latest_model_ratio": 0.2,
    }
    hyperparameters = {
        "batch_size": 128,
        "buffer_size": 256,
        "learning_rate": LEARNING_RATE,
        "learning_rate_schedule": "constant",
        "beta": BETA,
        "beta_schedule": "constant",
    }
    settings = {
        "hyperparameters": hyperparameters,
        "network_settings": {"hidden_units": 16, "num_layers": 1},
        "max_steps": 10**9,
        "self_play": self_play | written,
    }

    def prefer(run: Controller) -> None:
        trainer = run.trainers["Duel"]
        with torch.no_grad():
            trainer.learner.algorithm.actor.heads.logits.bias[bias] += 3.0
        trainer.policy.snapshot = trainer.learner.algorithm.snapshot()
        run._league._members["Duel"].window[0].snapshot = trainer.policy.snapshot

    run = train(
        RockPaperScissors(num_areas=32, seed=bias),
        settings,
        seed=bias,
        prepare=prefer,
        done=lambda run: run.trainers["Duel"].step >= n_steps,
    )
    policies = []
    for kept in run._league._members["Duel"].window:
        logits = kept.snapshot.forward([np.ones((1, 1))], np.zeros((1, 0))).logits
        likely = np.exp(logits[0] - logits.max())
        policies.append(likely / likely.sum())
    return exploitability(np.mean(policies, axis=0)), float(
        np.mean([*map(exploitability, policies)])
    )


LEARNING_RATE, BETA = 2e-3, 0.3


def score_against(run: Controller, script: Any, *, n_games: int = 400) -> float:
    """Return the mean score of the present policy against a script."""
    env = LinePong(num_areas=n_games, seed=99)
    env.reset()
    policy = run.trainers["Duel"].policy
    acts = ActingPolicy(
        policy.snapshot, policy.spec, deterministic=False, rng=np.random.default_rng(0)
    )
    first = np.full(n_games, np.nan)
    for _ in range(1000):
        one, other = (env.get_steps(name) for name in env.names)
        ended = one[1].agent_id
        new = np.isnan(first[ended])
        first[ended[new]] = 0.5 + 0.5 * one[1].reward[new]
        if not np.isnan(first).any():
            break
        mask = np.zeros((n_games, 3), np.bool_)
        action: ActionTuple = acts.act(one[0].obs, mask).action
        env.set_actions(env.names[0], action)
        env.set_actions(env.names[1], script(other[0].obs, mask))
        env.step()
    return float(np.nanmean(first))


def both(goal: float = 0.4) -> None:
    """Print the environment steps until the score against a script reaches a goal."""
    counts: dict[bool, list[int]] = {True: [], False: []}
    for seed in range(3):
        for learn_from_both, found in counts.items():
            env = LinePong(num_areas=32, seed=seed)
            n_env_steps = 0
            scored = 0.0

            def done(run: Controller) -> bool:
                nonlocal n_env_steps, scored
                n_env_steps += 1
                if n_env_steps % 100 == 0:
                    scored = score_against(run, chase)
                return scored >= goal or n_env_steps >= 12_000

            train(
                env,
                {"self_play": SELF_PLAY | {"learn_from_both": learn_from_both}, "max_steps": 10**9},
                seed=seed,
                done=done,
            )
            found.append(n_env_steps)
            print(f"seed {seed}, learn_from_both {learn_from_both}: {n_env_steps}", flush=True)
    ratio = np.mean(counts[True]) / np.mean(counts[False])
    print(f"environment steps to a score of {goal}: {counts}, ratio {ratio:.2f}")


def main() -> int:
    kinds = {"acting": acting, "overhead": overhead, "scissors": scissors, "both": both}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=kinds)
    logging.disable(logging.INFO)
    kinds[parser.parse_args().what]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
