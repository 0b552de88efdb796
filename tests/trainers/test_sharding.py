"""Several learners learn as one learner that has the experience of all."""

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from mlagents.trainers.algorithms.losses import normalized
from mlagents.trainers.algorithms.optimizer import adam, descend
from mlagents.trainers.algorithms.ppo import PPO
from mlagents.trainers.algorithms.returns import joined_advantages
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.networks.layers import Normalizer
from mlagents.trainers.sharding import ALONE, Shards
from sharded import (
    ALONE_AT_A_TIME,
    CASES,
    SPEC,
    Results,
    in_threads,
    learn_all,
    settings_of,
)
from steps import make_segments

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def of_processes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Results]]:
    """Return what two processes learned that add up their gradients with gloo."""
    return _in_processes(tmp_path_factory.mktemp("processes"), ["cpu", "cpu"])


@pytest.fixture(scope="module")
def of_one_process() -> list[dict[str, Results]]:
    """Return what two learners learned that this process computes with the same shards."""
    torch.set_num_threads(1)
    return learn_all(lambda learn_cases: in_threads(2, learn_cases))


def _in_processes(
    folder: Path, devices: list[str], backend: str = "gloo"
) -> list[dict[str, Results]]:
    environ = os.environ | {"PYTHONPATH": str(TESTS)}
    outputs = [folder / f"{rank}.pt" for rank in range(len(devices))]
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, str(TESTS / "sharded.py"), str(folder / "store"), str(rank)),
                *(str(len(devices)), str(output), device, backend),
            ],
            env=environ,
        )
        for rank, (output, device) in enumerate(zip(outputs, devices, strict=True))
    ]
    assert [process.wait(timeout=300) for process in processes] == [0] * len(devices)
    return [torch.load(output) for output in outputs]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_two_processes_equal_one_with_the_same_shards_to_the_bit(
    case: str,
    of_processes: list[dict[str, Results]],
    of_one_process: list[dict[str, Results]],
) -> None:
    reference = of_one_process[0][case]
    assert reference
    for learned in (of_one_process[1], *of_processes):
        assert learned[case].keys() == reference.keys()
        for name, value in reference.items():
            assert torch.equal(learned[case][name], value), name


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_two_learners_share_a_gpu(tmp_path: Path) -> None:
    first, second = _in_processes(tmp_path, ["cuda:0", "cuda:0"])
    for case in CASES:
        for name, value in first[case].items():
            assert torch.equal(second[case][name], value), (case, name)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_two_gpus_learn_the_same(tmp_path: Path) -> None:
    first, second = _in_processes(tmp_path, ["cuda:0", "cuda:1"], "nccl")
    for case in CASES:
        for name, value in first[case].items():
            assert torch.equal(second[case][name], value), (case, name)


def test_gradients_are_those_of_the_mean_over_all_rows() -> None:
    # 5 rows and 7 rows: a mean of both means would weigh the rows of the first more.
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))

    def stepped(rows: torch.Tensor, shards: Shards) -> list[torch.Tensor]:
        with ALONE_AT_A_TIME, torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            network = nn.Linear(3, 2)
        loss = network(rows).square().mean()
        parameters = list(network.parameters())
        optimizer = adam(parameters, 0.1)
        descend(loss, optimizer, parameters, max_norm=0.1, shards=shards, n_rows=len(rows))
        return [parameter.grad for parameter in parameters if parameter.grad is not None]

    parts = [x[:5], x[5:]]
    learners = in_threads(2, lambda shards: stepped(parts[shards.rank], shards))
    for of_all, *of_each in zip(stepped(x, ALONE), *learners, strict=True):
        for gradient in of_each:
            torch.testing.assert_close(gradient, of_all, rtol=1e-5, atol=1e-7)


def test_a_gradient_that_one_learner_lacks_is_zero_there() -> None:
    def stepped(shards: Shards) -> list[torch.Tensor | None]:
        used, unused, sometimes = (nn.Parameter(torch.ones(2)) for _ in range(3))
        loss = used.sum() + (sometimes.sum() if shards.rank else 0.0)
        descend(loss, adam([used, unused, sometimes], 0.1), shards=shards, n_rows=1 + shards.rank)
        return [used.grad, unused.grad, sometimes.grad]

    for used, unused, sometimes in in_threads(2, stepped):
        assert unused is None
        torch.testing.assert_close(used, torch.ones(2))
        torch.testing.assert_close(sometimes, torch.full((2,), 2 / 3))


def test_statistics_of_observations_are_those_of_all_rows() -> None:
    rng = np.random.default_rng(0)
    batches = torch.from_numpy(rng.normal(50.0, 3.0, (3, 40, 2)).astype("f4"))

    def normalizer(shards: Shards, rows: slice) -> Normalizer:
        result = Normalizer(2)
        result.shards = shards
        for batch in batches:
            result.update(batch[rows])
        return result

    alone = normalizer(ALONE, slice(None))
    rows = [slice(0, 11), slice(11, 40)]
    for together in in_threads(2, lambda shards: normalizer(shards, rows[shards.rank])):
        for name, value in alone.state_dict().items():
            torch.testing.assert_close(together.state_dict()[name], value, rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("strengths", [None, [1.0, 0.5]])
def test_advantages_are_normalized_over_all_rows(strengths: list[float] | None) -> None:
    advantages = np.random.default_rng(0).normal(2.0, 3.0, (50, 2)).astype("f4")
    parts = [advantages[:9], advantages[9:]]
    joined = in_threads(2, lambda shards: joined_advantages(parts[shards.rank], strengths, shards))
    alone = joined_advantages(advantages, strengths)
    np.testing.assert_allclose(np.concatenate(joined), alone, rtol=1e-4, atol=1e-5)


def test_a_minibatch_is_normalized_over_the_rows_of_all_learners() -> None:
    advantages = torch.randn(50, 1, generator=torch.Generator().manual_seed(0)) * 3 + 2
    parts = [advantages[:9], advantages[9:]]
    each = in_threads(2, lambda shards: normalized(parts[shards.rank], shards))
    torch.testing.assert_close(torch.cat(list(each)), normalized(advantages))


def test_the_divergence_is_the_mean_over_the_rows_of_all_learners() -> None:
    settings = settings_of("ppo_until_moved", batch_size=1000)  # one minibatch has all rows
    rng = np.random.default_rng(0)
    parts = [make_segments(SPEC, lengths, rng) for lengths in ([3, 4], [9, 11, 10])]

    def moved(segments: Segments, shards: Shards) -> float:
        with ALONE_AT_A_TIME:
            ppo = PPO(SPEC, settings, device=torch.device("cpu"), seed=3, shards=shards)
        experience, _ = ppo.prepare(segments, ppo.score(segments))
        return ppo.divergence(experience)

    alone = moved(Segments.concatenate(parts), ALONE)
    each = in_threads(2, lambda shards: moved(parts[shards.rank], shards))
    assert each[0] == each[1] == pytest.approx(alone, rel=1e-5)
    assert alone != pytest.approx(moved(parts[0], ALONE), rel=1e-2)


def test_shares_add_up_and_differ_by_one_at_most() -> None:
    for n in range(2, 40):
        shares = in_threads(3, lambda shards, n=n: shards.share(n))
        assert sum(shares) == n
        assert max(shares) - min(shares) <= 1


def test_learners_draw_different_numbers() -> None:
    seeds = in_threads(3, lambda shards: shards.seed(7))
    assert seeds[0] == 7
    assert len(set(seeds)) == 3


def test_a_copy_of_a_network_learns_alone() -> None:
    def copies(shards: Shards) -> list[Normalizer]:
        normalizer = Normalizer(2)
        normalizer.shards = shards
        return [copy.deepcopy(normalizer), pickle.loads(pickle.dumps(normalizer))]

    for of_learner in in_threads(2, copies):
        assert [each.shards for each in of_learner] == [ALONE, ALONE]
