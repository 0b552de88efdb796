"""Time and memory of MA-POCA's critic, and of the usual arrangement, where rows contain mates.

In the usual arrangement, each row of a minibatch contains the observations and actions of all
members of its agent's group. Members are then encoded again for every row, and attention runs twice
over each row: for its value and for its baseline. Both arrangements have the same weights and give
the same results.

Seconds are CPU time of one thread, forward and backward, in alternation. Memory is that of the
inputs of a minibatch, and of all tensors that are kept for the backward pass.

    python benchmarks/group_critic.py [--rounds 9]
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from mlagents.trainers.data.group_steps import Arrangement
from mlagents.trainers.networks.group_critic import GroupCritic, Places, Seen
from mlagents.trainers.settings.behavior import NetworkSettings
from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec

Estimate = Callable[[], tuple[Tensor, Tensor]]

CASES = [(3, 420, 7, 1024, 256), (2, 336, 9, 2048, 256), (8, 420, 7, 1024, 256)]
"""Members of a group, inputs, choices of the branch, rows of a minibatch, width."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="rounds; the median is shown")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"{'members, inputs, choices, rows, width':40}{'once':>9}{'in rows':>10}{'time':>8}", end=""
    )
    print(f"{'inputs':>9}{'kept':>7}")
    for case in CASES:
        n_members, n_inputs, n_choices, n_rows, width = case
        n_rows -= n_rows % n_members
        spec = BehaviorSpec(
            [ObservationSpec.vector(n_inputs, "vector")], ActionSpec.create_discrete((n_choices,))
        )
        torch.manual_seed(0)
        critic = GroupCritic(spec, NetworkSettings(hidden_units=width), n_signals=1)
        critic.note_sizes(n_members)
        obs, action = torch.randn(n_rows, n_inputs), torch.randint(n_choices, (n_rows, 1))
        once = shared(critic, obs, action, n_members)
        in_rows, n_repeated = with_mates(critic, obs, action, n_members)
        for ours, theirs in zip(once(), in_rows(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
        times = [(seconds(once), seconds(in_rows)) for _ in range(arguments.rounds)][1:]
        of_once, of_rows = (statistics.median(column) for column in zip(*times, strict=True))
        inputs, activations = n_rows / n_repeated, kept(once) / kept(in_rows)
        print(
            f"{', '.join(map(str, case)):40}{1e3 * of_once:6.0f} ms{1e3 * of_rows:7.0f} ms"
            f"{of_once / of_rows:7.2f}x{inputs:8.2f}x{activations:6.2f}x"
        )


def shared(critic: GroupCritic, obs: Tensor, action: Tensor, n_members: int) -> Estimate:
    """Return the critic as it is: rows of a group are members of one group step."""
    rows = np.arange(len(obs))
    steps = rows // n_members
    sizes = [(len(obs) // n_members, n_members)]
    arrangement = Arrangement(np.unique(steps), rows, None, sizes, rows, steps, rows)
    places = Places.of(arrangement, obs.device)
    seen = Seen([obs], torch.zeros(len(obs), 0), action, None)
    return lambda: critic(seen, places)


def with_mates(
    critic: GroupCritic, obs: Tensor, action: Tensor, n_members: int
) -> tuple[Estimate, int]:
    """Return the critic over rows that contain all members, and the number of stored members."""
    (n_choices,) = critic.branches
    own = torch.arange(len(obs))
    first = own - own % n_members
    mates = torch.stack([first + (own + k) % n_members for k in range(1, n_members)], 1)
    of_mates, done = obs[mates], torch.nn.functional.one_hot(action[mates, 0], n_choices).float()
    members = torch.full((len(obs),), float(n_members))
    everybody = torch.ones(len(obs), n_members, dtype=torch.bool)

    def estimate() -> tuple[Tensor, Tensor]:
        encoding, _ = critic.observations([obs])
        encodings = torch.stack(
            [critic.observations([of_mates[:, k]])[0] for k in range(n_members - 1)], 1
        )
        alone = critic.without_action(encoding).unsqueeze(1)
        without = critic.without_action(encodings)
        acting = critic.with_action(torch.cat([encodings, done], 2))
        estimates = [
            critic.estimate(
                critic.dense(critic.attention(torch.cat([alone, mates], 1), everybody)), members
            )
            for mates in (without, acting)
        ]
        return estimates[0], estimates[1]

    return estimate, len(obs) * n_members


def seconds(estimate: Estimate) -> float:
    """Return the CPU time of a forward and a backward pass."""
    started_s = time.process_time()
    values, baselines = estimate()
    (values.square().mean() + baselines.square().mean()).backward()
    return time.process_time() - started_s


def kept(estimate: Estimate) -> int:
    """Return the bytes of all tensors that the backward pass needs, except weights."""
    storages: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, torch.nn.Parameter):
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        values, baselines = estimate()
    assert values.requires_grad and baselines.requires_grad
    return sum(storages.values())


if __name__ == "__main__":
    main()
