"""Gradient steps of SAC in C++, for networks that are dense layers over vectors.

`sac` computes the same with autograd and is the reference: read that module first. The functions
are in `mlagents_native/source/sac.cpp`. A learner of the library keeps all weights in an internal
layout. It writes them back to PyTorch after each call, and reads them again if PyTorch has changed
any, for example by loading a checkpoint.
"""

import ctypes
import math
import weakref
from collections.abc import Sequence
from ctypes import CDLL, POINTER, c_double, c_int64, c_void_p

import numpy as np
import torch
from torch import Tensor, nn

from mlagents.trainers.algorithms.optimizer import BETAS, EPSILON, Adam, Moments
from mlagents.trainers.algorithms.sac import SAC
from mlagents.trainers.algorithms.sac_types import Minibatch
from mlagents.trainers.data.decision import LOG_STD_LIMITS
from mlagents.trainers.fast.native_dense import (
    Linear,
    Weights,
    hidden_layers,
    is_faster,
    linears,
    pointers,
    weights_of,
    with_means,
)
from mlagents.trainers.fast.torch_internals import versions
from mlagents.trainers.networks.actor_critic import Critic
from mlagents.trainers.networks.twin_q import StackedLinear
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec
from mlagents_native.library import NativeError, Part


class _Network(ctypes.Structure):
    """`SACNetwork` of `sac.cpp`."""

    _fields_ = [
        *((name, POINTER(Linear)) for name in ("hidden", "heads")),
        *((name, c_int64) for name in ("n_hidden", "n_heads")),
    ]


class _Networks(ctypes.Structure):
    """`SACNetworks` of `sac.cpp`."""

    _fields_ = [
        *((name, _Network) for name in ("actor", "first_q", "second_q", "value", "target")),
        *((name, c_void_p) for name in ("log_alpha", "log_alpha_mean", "log_alpha_square")),
        *((name, c_void_p) for name in ("entropy_target", "entropy_weight", "gamma")),
        *((name, c_void_p) for name in ("respects_end", "branches")),
        *((name, c_int64) for name in ("n_obs", "n_continuous", "n_branches", "n_signals")),
        ("batch_size", c_int64),
    ]


class _Batch(ctypes.Structure):
    """`SACBatch` of `sac.cpp`."""

    _fields_ = [
        *((name, c_void_p) for name in ("obs", "next_obs", "continuous", "discrete")),
        *((name, c_void_p) for name in ("action_mask", "rewards", "terminated", "noise")),
    ]


class _Settings(ctypes.Structure):
    """`SACSettings` of `sac.cpp`."""

    _fields_ = [
        *((name, c_double) for name in ("learning_rate", "beta1", "beta2", "adam_epsilon")),
        *((name, c_double) for name in ("tau", "max_grad_norm")),
        *((name, c_double) for name in ("smallest_log_std", "largest_log_std")),
    ]


class _Learner:
    """A learner of the library, and the memory that it points to.

    Args:
        sac: Algorithm whose weights to train.
        functions: Library with the part `PART`.
        batch_size: Number of rows in a minibatch.
        moments: State of the optimizer.
    """

    def __init__(self, sac: SAC, functions: CDLL, batch_size: int, moments: Moments) -> None:
        self.batch_size, self.moments = batch_size, moments
        self._sac = sac
        # Constants that the library reads while it learns.
        coefficients, spec = sac.coefficients, sac.action_spec
        self._held: list[object] = [
            coefficients.target.contiguous(),
            coefficients.weight.contiguous(),
            sac.gamma,
            sac.respects_end,
            branches := np.array(spec.discrete_branches, np.int64),
        ]
        log_alpha = with_means(coefficients.log_alpha, moments)
        networks = _Networks(
            *self._networks(moments),
            *pointers(log_alpha),
            *(each.data_ptr() for each in self._held if isinstance(each, Tensor)),
            branches.ctypes.data,
            *(sac.actor.body.observations.output_size, spec.continuous_size, len(branches)),
            *(len(sac.signals), batch_size),
        )
        self._held.append(networks)
        self._weights: list[Tensor] = [*sac.target_value.parameters()]
        self._weights += [tensor for weight in moments for tensor in with_means(weight, moments)]
        self._versions: list[int] = []
        self.address = functions.sac_new(networks)
        if not self.address:
            raise MemoryError("not enough memory for the arrays of the native library")
        weakref.finalize(self, functions.sac_delete, self.address)

    def has_changed(self) -> bool:
        """Return whether PyTorch has changed weights since the last call."""
        before, self._versions = self._versions, versions(self._weights)
        return before != self._versions

    def _networks(self, moments: Moments) -> list[_Network]:
        sac = self._sac
        heads = sac.actor.heads
        of_actor = (*(() if heads.mean is None else (heads.mean, heads.log_std)), heads.logits)

        def network(hidden: Sequence[Weights], heads: Sequence[Weights]) -> _Network:
            self._held += [hidden, heads]
            return _Network(linears(hidden), linears(heads), len(hidden), len(heads))

        def critic(of: Critic, moments: Moments | None) -> _Network:
            hidden = [weights_of(layer, moments) for layer in hidden_layers(of)]
            return network(hidden, [weights_of(of.values, moments)])

        return [
            network(
                [weights_of(layer, moments) for layer in hidden_layers(sac.actor)],
                [weights_of(head, moments) for head in of_actor if isinstance(head, nn.Linear)],
            ),
            *(
                network(
                    [_one_of(layer, i, moments) for layer in sac.q.dense],
                    [_one_of(sac.q.heads, i, moments)],
                )
                for i in range(2)
            ),
            critic(sac.value, moments),
            critic(sac.target_value, None),
        ]


class NativeSAC:
    """Takes gradient steps with the native library, with the same results as `SAC.descents`.

    Args:
        sac: Algorithm for which `supports` returns True.
        functions: Library with the part `PART`.
    """

    def __init__(self, sac: SAC, functions: CDLL) -> None:
        assert isinstance(sac.optimizer, Adam)
        self._sac = sac
        self._optimizer = sac.optimizer
        self._functions = functions
        self._learner: _Learner | None = None

    @staticmethod
    def supports(sac: SAC) -> bool:
        """Return whether the library can take the gradient steps of this algorithm."""
        networks = (sac.actor, sac.q, sac.value, sac.target_value, sac.coefficients)
        return (
            sac.shards.size == 1
            and sac.settings.critic_norm == "none"
            and sac.settings.n_step == 1
            and sac.device.type == "cpu"
            and isinstance(sac.optimizer, Adam)
            and sac.actor.body.is_dense
            and all(isinstance(layer, StackedLinear) for layer in sac.q.dense)
            and sac.compute.precision is None
            and not sac.compute.compile
            and all(p.dtype is torch.float32 for network in networks for p in network.parameters())
        )

    @staticmethod
    def is_faster(sac: SAC) -> bool:
        """Return whether the library is faster than PyTorch for these networks."""
        return is_faster(sac.actor.body.output_size, sac.settings.batch_size)

    def learn(self, batch: Minibatch, rewards: Tensor, batch_size: int) -> Tensor:
        """Take a gradient step for each minibatch; return their losses.

        Args:
            batch: Rows of all minibatches.
            rewards: (N, signals) rewards of the rows.
            batch_size: Number of rows in a minibatch.

        Returns:
            (minibatches, 4 + signals) losses, as in `SAC.descents`.

        Raises:
            ClosedError: The algorithm was closed.
        """
        sac, s = self._sac, self._sac.settings
        moments, first_step = self._optimizer.moments()
        learner = self._learner
        if learner is None or learner.batch_size != batch_size or learner.moments is not moments:
            learner = self._learner = _Learner(sac, self._functions, batch_size, moments)
        observations = sac.actor.body.observations
        with torch.no_grad():
            obs, next_obs = (
                torch.cat(observations.normalized(seen), dim=1)
                for seen in (batch.obs, batch.next_obs)
            )
        arrays = [
            *(obs, next_obs, batch.continuous, batch.discrete, batch.action_mask, rewards),
            *(batch.terminated, batch.noise),
        ]
        arrays = [array.contiguous() for array in arrays]
        settings = _Settings(
            *(self._optimizer.param_groups[0]["lr"], *BETAS, EPSILON, s.tau),
            math.inf if s.max_grad_norm is None else s.max_grad_norm,
            *LOG_STD_LIMITS,
        )
        losses = np.zeros((len(rewards) // batch_size, 4 + rewards.shape[1]))
        done = self._functions.sac_learn(
            *(learner.address, _Batch(*(array.data_ptr() for array in arrays)), settings),
            *(batch_size, rewards.shape[1], len(losses), learner.has_changed(), first_step + 1),
            *(losses.ctypes.data, sac.stop_flag.ctypes.data),
        )
        self._optimizer.advance(done)
        sac.refuse_when_closed()
        return torch.from_numpy(losses)


def _one_of(layer: nn.Module, i: int, moments: Moments) -> Weights:
    """Return one of two stacked layers."""
    assert isinstance(layer, StackedLinear)
    weight, bias = (
        [each[i] for each in with_means(parameter, moments)]
        for parameter in (layer.weight, layer.bias)
    )
    return Weights(weight, bias, is_transposed=True)


# ------------------------------------------------------------------------------------ self-check


def _declare(functions: CDLL) -> None:
    functions.sac_new.argtypes = [POINTER(_Networks)]
    functions.sac_new.restype = c_void_p
    functions.sac_delete.argtypes = [c_void_p]
    functions.sac_delete.restype = None
    functions.sac_learn.argtypes = [
        *(c_void_p, POINTER(_Batch), POINTER(_Settings)),
        *(c_int64, c_int64, c_int64, c_int64, c_int64, c_void_p, c_void_p),
    ]
    functions.sac_learn.restype = c_int64


def _check(functions: CDLL) -> None:
    """Compare two gradient steps with PyTorch.

    Raises:
        NativeError: The weights or losses differ.
    """
    spec = BehaviorSpec(
        [ObservationSpec.vector(5, "check")], ActionSpec(continuous_size=2, discrete_branches=(3,))
    )
    settings = BehaviorSettings.model_validate(
        {
            "trainer_type": "sac",
            "hyperparameters": {"batch_size": 40, "buffer_size": 80},
            "network_settings": {"hidden_units": 19, "num_layers": 2},
        }
    )
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(rng.standard_normal(shape, np.float32))

    batch = Minibatch(
        obs=[normal(80, 5)],
        next_obs=[normal(80, 5)],
        continuous=normal(80, 2).tanh(),
        discrete=torch.from_numpy(rng.integers(1, 3, (80, 1), np.int32)),
        action_mask=torch.from_numpy(rng.random((80, 3)) < [0.3, 0, 0]),
        reward=normal(80),
        terminated=torch.from_numpy(rng.random(80) < 0.3),
        noise=normal(80, 2),
        sequences=None,
        first=torch.arange(80),
    )
    results = []
    for learner in (None, functions):
        sac = SAC(spec, settings, device=torch.device("cpu"), seed=0)
        if learner is None:
            losses = torch.stack([sac.take_one(part) for part in batch.split([40, 40])])
        else:
            losses = NativeSAC(sac, learner).learn(batch, sac.rewards(batch), 40)
        assert isinstance(sac.optimizer, Adam)
        moments, _ = sac.optimizer.moments()
        # Compare mean gradients, because Adam's steps hardly depend on the size of gradients.
        means = [100 * mean.flatten() for mean, _ in moments.values()]
        weights = [
            weight.detach().flatten() for weight in (*moments, *sac.target_value.parameters())
        ]
        results.append(torch.cat([losses.flatten().float(), *means, *weights]))
    difference = (results[0] - results[1]).abs().max().item()
    if not difference < 1e-4:  # NaN included
        raise NativeError(
            f"its result differs from PyTorch's by {difference:g}. Please report this with the "
            "name of your processor and compiler."
        )


PART = Part("sac", version=1, declare=_declare, check=_check, otherwise="PyTorch")
