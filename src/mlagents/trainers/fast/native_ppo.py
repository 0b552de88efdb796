"""Minibatches of PPO in C++, for actors and critics that are dense layers over vectors.

`ppo` computes the same with autograd and is the reference: read that module first. The functions
are in `mlagents_native/source/ppo.cpp`. A call takes all gradient steps of an epoch. It copies
weights and Adam's moments to an internal layout at the beginning, and back at the end.
"""

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import CDLL, POINTER, c_double, c_int64, c_void_p
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mlagents.trainers.algorithms.losses import normalized
from mlagents.trainers.algorithms.optimizer import BETAS, EPSILON, Adam, Moments
from mlagents.trainers.algorithms.ppo import PPO, Experience, Minibatch, Rows
from mlagents.trainers.algorithms.proximal import POLICY_LOSS, VALUE_LOSS, Batch
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.fast.native_dense import (
    Linear,
    hidden_layers,
    is_faster,
    linears,
    pointers,
    weights_of,
    with_means,
)
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec
from mlagents_envs.logging_util import get_logger
from mlagents_native.library import NativeError, Part

logger = get_logger(__name__)


class _Network(ctypes.Structure):
    """`PPONetwork` of `ppo.cpp`."""

    _fields_ = [
        *((name, POINTER(Linear)) for name in ("hidden", "heads")),
        *((name, c_void_p) for name in ("log_std", "log_std_mean", "log_std_square")),
        *((name, c_int64) for name in ("n_hidden", "n_heads", "has_actor", "has_critic")),
    ]


class _Batch(ctypes.Structure):
    """`PPOBatch` of `ppo.cpp`."""

    _fields_ = [
        *((name, c_void_p) for name in ("obs", "continuous", "discrete", "action_mask")),
        *((name, c_void_p) for name in ("old_log_probs", "old_values", "advantages", "returns")),
        ("branches", c_void_p),
        *((name, c_int64) for name in ("n_obs", "n_continuous", "n_branches", "n_signals")),
    ]


class _Settings(ctypes.Structure):
    """`PPOSettings` of `ppo.cpp`."""

    _fields_ = [
        *((name, c_double) for name in ("learning_rate", "beta1", "beta2", "adam_epsilon")),
        *((name, c_double) for name in ("epsilon", "beta", "max_grad_norm")),
        *((name, c_int64) for name in ("joint_ratio", "joint_entropy", "clip_values")),
    ]


class _Layers(NamedTuple):
    """A network of the library: hidden layers, followed by heads with a common input."""

    hidden: list[nn.Linear]
    heads: list[nn.Linear]
    log_std: nn.Parameter | None
    has_actor: bool
    has_critic: bool


class FastPPO(PPO):
    """PPO that learns with the native library if it is available and suits the networks.

    Attributes:
        native: Native replacement of `PPO.descents`; None to use PyTorch.

    Raises:
        UnityTrainerException: The settings require the library, but it cannot be loaded.
    """

    native: "NativePPO | None" = None

    def make_sources(self, settings: BehaviorSettings) -> None:
        """Create the reward signals and behavioral cloning, and load the library."""
        super().make_sources(settings)
        dense = self.compute.dense
        if dense == "torch" or not NativePPO.supports(self):
            return
        if self.shards.size > 1:
            logger.info(
                "PyTorch computes dense layers, because the native library does not support "
                "several learners."
            )
            return
        if dense == "auto" and not NativePPO.is_faster(self):
            return
        functions = PART.load()
        if functions is not None:
            self.native = NativePPO(self, functions)
        elif dense == "native":
            raise UnityTrainerException(
                "torch_settings.dense is native, but the native library cannot be used: "
                f"{PART.reason} Otherwise set torch_settings.dense to auto."
            )
        PART.announce(logger)

    def descents(
        self, experience: Experience, epsilon: float, beta: float
    ) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
        """Take the gradient steps of an update; see `PPO.descents`."""
        if self.native is None:
            yield from super().descents(experience, epsilon, beta)
            return
        learn = self.native.epochs(experience.batch, epsilon, beta)
        for _ in range(self.settings.num_epoch):
            minibatches = list(self.dealt(experience.segments))
            losses = learn(minibatches)
            for (rows, _), (policy_loss, value_loss) in zip(minibatches, losses, strict=True):
                yield rows, {POLICY_LOSS: policy_loss.abs(), VALUE_LOSS: value_loss}
            if self.has_moved_enough(experience):
                return


def by_autograd(
    ppo: PPO, batch: Batch, epsilon: float, beta: float
) -> Callable[[Sequence[Rows]], Tensor]:
    """Return a function that learns from minibatches: the reference for `NativePPO.epochs`."""

    def learn(minibatches: Sequence[Rows]) -> Tensor:
        losses = []
        for rows, sequences in minibatches:
            terms = ppo.terms(Minibatch(batch.take(rows), sequences), epsilon)
            loss = terms.policy + 0.5 * terms.critic - beta * terms.entropy
            ppo.descend(loss, ppo.network.parameters())
            losses.append(torch.stack([terms.policy.detach(), terms.critic.detach()]))
        return torch.stack(losses)

    return learn


class NativePPO:
    """Learns from minibatches with the same results as `by_autograd`.

    If actor and critic share no layers, the gradient is not clipped and PyTorch may use two
    threads, actor and critic learn in separate threads. The results are the same.

    Args:
        ppo: Algorithm for which `supports` returns True.
        functions: Library with the part `PART`.
    """

    def __init__(self, ppo: PPO, functions: CDLL) -> None:
        assert isinstance(ppo.optimizer, Adam)
        self._ppo = ppo
        self._optimizer = ppo.optimizer
        self._functions = functions
        network = ppo.network
        actor, critic = network.actor, network.critic
        log_std = actor.heads.log_std if actor.heads.mean is not None else None
        assert not isinstance(log_std, nn.Linear)
        heads = [head for head in (actor.heads.mean, actor.heads.logits) if head is not None]
        if network.shared:
            joined = [*heads, critic.values]
            self._networks = [_Layers(hidden_layers(actor), joined, log_std, True, True)]
        else:
            self._networks = [
                _Layers(hidden_layers(actor), heads, log_std, True, False),
                _Layers(hidden_layers(critic), [critic.values], None, False, True),
            ]

    @staticmethod
    def supports(ppo: PPO) -> bool:
        """Return whether the library can take the gradient steps of this algorithm."""
        bodies = [ppo.network.actor.body, ppo.network.critic.body]
        return (
            ppo.device.type == "cpu"
            and isinstance(ppo.optimizer, Adam)
            and all(body.is_dense for body in bodies)
            and ppo.compute.precision is None
            and not ppo.compute.compile
            and all(weight.dtype is torch.float32 for weight in ppo.network.parameters())
        )

    @staticmethod
    def is_faster(ppo: PPO) -> bool:
        """Return whether the library is faster than PyTorch for these networks."""
        return is_faster(ppo.network.actor.body.output_size, ppo.settings.batch_size)

    def epochs(
        self, batch: Batch, epsilon: float, beta: float
    ) -> Callable[[Sequence[Rows]], Tensor]:
        """Return a function that takes a gradient step for each minibatch of a list.

        The function returns the policy loss and the value loss of each minibatch,
        (minibatches, 2).

        Args:
            batch: Experience to learn from.
            epsilon: Current `epsilon` of the settings.
            beta: Current `beta` of the settings.
        """
        ppo, s = self._ppo, self._ppo.settings
        # Statistics do not change during an update, so all observations are normalized together.
        with torch.no_grad():
            encoded = ppo.network.actor.body.observations.normalized(batch.obs)
            obs = torch.cat(encoded, dim=1).contiguous()
        branches = np.array(ppo.spec.action_spec.discrete_branches, np.int64)
        arrays = [obs, *(field.contiguous() for field in batch[1:])]
        native_batch = _Batch(
            *(array.data_ptr() for array in arrays),
            branches.ctypes.data,
            *(obs.shape[1], batch.continuous.shape[1], len(branches), batch.returns.shape[1]),
        )
        settings = _Settings(
            *(self._optimizer.param_groups[0]["lr"], *BETAS, EPSILON, epsilon, beta),
            math.inf if s.max_grad_norm is None else s.max_grad_norm,
            *(s.joint_ratio, s.joint_entropy, s.clip_values),
        )
        learn = partial(self._learn, native_batch, settings, (arrays, branches))
        if s.normalize_advantages == "buffer":
            return learn

        def with_own_advantages(minibatches: Sequence[Rows]) -> Tensor:
            rows = torch.stack([rows for rows, _ in minibatches])
            advantages = torch.zeros_like(batch.advantages)
            advantages[rows] = normalized(batch.advantages[rows])
            native_batch.advantages = advantages.data_ptr()
            return learn(minibatches)

        return with_own_advantages

    def _learn(
        self, batch: _Batch, settings: _Settings, held: object, minibatches: Sequence[Rows]
    ) -> Tensor:
        """Take a step for each minibatch; return the losses, (minibatches, 2).

        Args:
            batch: Experience to learn from.
            settings: Hyperparameters.
            held: Owners of the memory that `batch` points to, kept alive by this argument.
            minibatches: Rows of each minibatch.
        """
        rows = torch.stack([rows for rows, _ in minibatches])
        settings.learning_rate = self._optimizer.param_groups[0]["lr"]  # passes may adapt it
        moments, first_step = self._optimizer.moments()
        networks = [_network(layers, moments) for layers in self._networks]
        is_clipped = not math.isinf(settings.max_grad_norm)
        groups = [networks] if is_clipped else [[network] for network in networks]
        losses = np.zeros((len(groups), *(len(rows), 2)))
        stop = self._ppo.stop_flag

        def learn(group: list[_Network], of_group: np.ndarray) -> int:
            done: int = self._functions.dense_ppo(
                (_Network * len(group))(*group),
                len(group),
                batch,
                settings,
                *(rows.data_ptr(), *rows.shape, first_step + 1),
                *(of_group.ctypes.data, stop.ctypes.data),
            )
            return done

        if len(groups) > 1 and torch.get_num_threads() > 1:
            with ThreadPoolExecutor(len(groups)) as threads:
                done = list(threads.map(learn, groups, losses))
        else:
            done = [learn(*each) for each in zip(groups, losses, strict=True)]
        if min(done) < 0:
            raise MemoryError("not enough memory for the arrays of the native library")
        self._optimizer.advance(min(done))
        self._ppo.refuse_when_closed()
        return torch.from_numpy(losses.sum(0))


def _network(layers: _Layers, moments: Moments) -> _Network:
    hidden, heads = (
        linears([weights_of(layer, moments) for layer in each])
        for each in (layers.hidden, layers.heads)
    )
    log_std = [] if layers.log_std is None else with_means(layers.log_std, moments)
    return _Network(
        hidden,
        heads,
        *pointers(log_std),
        *(len(hidden), len(heads), layers.has_actor, layers.has_critic),
    )


# ------------------------------------------------------------------------------------ self-check


def _declare(functions: CDLL) -> None:
    functions.dense_ppo.argtypes = [
        *(POINTER(_Network), c_int64, POINTER(_Batch), POINTER(_Settings)),
        *(c_void_p, c_int64, c_int64, c_int64, c_void_p, c_void_p),
    ]
    functions.dense_ppo.restype = c_int64


def _check(functions: CDLL) -> None:
    """Compare two minibatches with PyTorch.

    Raises:
        NativeError: The weights or losses differ.
    """
    spec = BehaviorSpec(
        [ObservationSpec.vector(5, "check")], ActionSpec(continuous_size=2, discrete_branches=(3,))
    )
    settings = BehaviorSettings.model_validate(
        {"trainer_type": "ppo", "network_settings": {"hidden_units": 19, "num_layers": 2}}
    )
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(rng.standard_normal(shape, np.float32))

    batch = Batch(
        obs=[normal(80, 5)],
        continuous=normal(80, 2),
        discrete=torch.from_numpy(rng.integers(1, 3, (80, 1))),
        action_mask=torch.from_numpy(rng.random((80, 3)) < [0.3, 0, 0]),
        old_log_probs=0.1 * normal(80, 3) - 1.2,
        old_values=normal(80, 1),
        advantages=normal(80, 1),
        returns=normal(80, 1),
    )
    minibatches = [(torch.arange(first, 80, 2), None) for first in range(2)]
    results = []
    for learner in (None, functions):
        ppo = PPO(spec, settings, device=torch.device("cpu"), seed=0)
        if learner is None:
            losses = by_autograd(ppo, batch, 0.2, 0.01)(minibatches)
        else:
            losses = NativePPO(ppo, learner).epochs(batch, 0.2, 0.01)(minibatches)
        assert isinstance(ppo.optimizer, Adam)
        moments, _ = ppo.optimizer.moments()
        # Compare mean gradients, because Adam's steps hardly depend on the size of gradients.
        means = [100 * mean.flatten() for mean, _ in moments.values()]
        weights = [weight.detach().flatten() for weight in ppo.network.parameters()]
        results.append(torch.cat([losses.flatten().float(), *means, *weights]))
    difference = (results[0] - results[1]).abs().max().item()
    if not difference < 1e-5:  # NaN included
        raise NativeError(
            f"its result differs from PyTorch's by {difference:g}. Please report this with the "
            "name of your processor and compiler."
        )


PART = Part("dense", version=2, declare=_declare, check=_check, otherwise="PyTorch")
