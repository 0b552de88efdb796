"""A gradient step of SAC with hand-written gradients, for dense layers over vectors.

It is used where the native library cannot be: without a compiler, with mixed precision, which is
faster for wide networks, and on a GPU.

The losses are defined in `sac`; read that module first. These are their gradients, with B rows,
S signals, K branches, and c = alpha * weight for each part of the entropy:

    Q of actions taken      (Q - target) / (B S)
    V of the states         (V - target) / (B S)
    Q of policy actions     -1 / (B S), through the first network to the actions
    a = tanh(u)             du = (1 - a²) da + 2 c a / B
    u = mean + std * noise  d mean = du,  d log std = du * std * noise - c / B, unless clamped
    p = softmax(logits)     d logits = -p (v - sum of p v) / B,  v = mean of Q / K - c log p
"""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mlagents.trainers.algorithms.reward_signals import ExtrinsicReward
from mlagents.trainers.algorithms.sac import MINIBATCHES_AT_ONCE, SAC
from mlagents.trainers.algorithms.sac_types import Losses, Minibatch
from mlagents.trainers.data.decision import LOG_STD_LIMITS, MASKED_LOGIT
from mlagents.trainers.data.replay import Replay
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.fast.dense import Copies, Layer, Stack, Weights, Workspace, weights_of
from mlagents.trainers.fast.native_sac import PART, NativeSAC
from mlagents.trainers.fast.products import LARGE, prepared_product
from mlagents.trainers.networks.actions import ActionHeads, log_slope_of_tanh
from mlagents.trainers.networks.actor_critic import Actor, Critic
from mlagents.trainers.networks.twin_q import StackedLinear
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


class Acting(NamedTuple):
    """Actions of a policy in B states.

    Attributes:
        entropy: (B, parts) entropies.
        actions: (B, A) continuous actions.
        deviation: (B, A) difference of a sample from its mean.
        is_free: (B, A) bool, True where the log-deviation is not clamped.
        chances: (B, sum of branches) probabilities of discrete actions.
        log_chances: (B, sum of branches) logarithms of `chances`.
    """

    entropy: Tensor
    actions: Tensor
    deviation: Tensor
    is_free: Tensor
    chances: Tensor
    log_chances: Tensor


class FastSAC(SAC):
    """SAC that learns with the native library if it is available and suits the networks.

    Otherwise, PyTorch computes gradients: without autograd if the networks consist of dense layers
    only and losses are not compiled, else with autograd.

    Attributes:
        native: Native replacement of `SAC.descents`; None to use PyTorch.

    Raises:
        UnityTrainerException: The settings require the library, but it cannot be loaded.
    """

    native: NativeSAC | None = None
    _step: "DenseStep | None" = None

    def make_sources(self, settings: BehaviorSettings) -> None:
        """Create the reward signals and behavioral cloning, and load the library."""
        super().make_sources(settings)
        dense = self.compute.dense
        fits = dense != "torch" and NativeSAC.supports(self)
        if fits and (dense == "native" or NativeSAC.is_faster(self)):
            functions = PART.load()
            if functions is not None:
                self.native = NativeSAC(self, functions)
            elif dense == "native":
                raise UnityTrainerException(
                    "torch_settings.dense is native, but the native library cannot be used: "
                    f"{PART.reason} Otherwise set torch_settings.dense to auto."
                )
            PART.announce(logger)
        if self.native is None and self.is_by_hand:
            logger.info("The gradients of SAC are computed without autograd.")
        elif self.settings.critic_norm != "none":
            logger.info("critic_norm: the gradients of SAC are computed with autograd.")

    def descents(self, replay: Replay, n_updates: int) -> Iterator[tuple[Minibatch, Tensor]]:
        """Take gradient steps; see `SAC.descents`."""
        if self.native is None:
            yield from super().descents(replay, n_updates)
            return
        # Trained reward signals and cloning learn after each gradient step.
        is_alone = self.cloning is None and all(
            isinstance(signal, ExtrinsicReward) for signal in self.signals
        )
        for done in range(0, n_updates, MINIBATCHES_AT_ONCE):
            drawn, n_rows = self.draw(replay, min(n_updates - done, MINIBATCHES_AT_ONCE))
            batches = list(drawn.split(n_rows))
            for together in [drawn] if is_alone else batches:
                losses = self.native.learn(together, self.rewards(together), n_rows[0])
                yield from zip(batches if is_alone else [together], losses, strict=True)

    @property
    def is_by_hand(self) -> bool:
        """Whether PyTorch computes gradients without autograd."""
        is_plain = self.settings.critic_norm == "none" and not self.compute.compile
        return self.actor.body.is_dense and is_plain

    def differentiate(self, batch: Minibatch, rewards: Tensor) -> Losses:
        """Return the losses of one gradient step and store their gradients in `grad`."""
        if not self.is_by_hand:
            return super().differentiate(batch, rewards)
        if self._step is None or self._step.n_rows != len(rewards):
            self._step = DenseStep(self, n_rows=len(rewards))
        return self._step(batch, rewards)


class DenseStep:
    """Computes losses and gradients of all parameters, for minibatches of a fixed size.

    Args:
        sac: Algorithm whose networks are dense layers over vectors. Small products on a CPU use
            the precision of the weights.
        n_rows: Number of rows in a minibatch.
    """

    def __init__(self, sac: SAC, *, n_rows: int) -> None:
        self.n_rows = n_rows
        self._sac = sac
        actor, q = sac.actor, sac.q
        self._observations = actor.body.observations
        networks = (actor, q, sac.value, sac.coefficients)
        self._parameters = [p for network in networks for p in network.parameters()]
        for parameter in self._parameters:
            parameter.grad = torch.zeros_like(parameter)
        self._heads = _Heads(actor.heads)
        self._gradients = [p.grad for p in self._parameters if p.grad is not None]
        self._by_log_alpha = self._gradients[-1]

        log_alpha = sac.coefficients.log_alpha.detach()
        layers = _dense_layers(actor)
        largest = n_rows * max(weights.weight.numel() for weights in layers)
        precision = sac.compute.precision
        if precision is None or (largest <= LARGE and log_alpha.device.type == "cpu"):
            precision = log_alpha.dtype
        self._copies = Copies(precision)

        def space(*shape: int, dtype: torch.dtype | None = None) -> Tensor:
            return log_alpha.new_zeros(n_rows, *shape, dtype=dtype)

        def stack(layers: Iterable[Weights], x: Tensor, space: Workspace) -> Stack:
            return Stack([self._copies.of(weights) for weights in layers], x, space)

        # All networks have layers of the same widths. All except the actor take turns in one
        # workspace.
        widths = [len(weights.bias) for weights in layers]
        of_actor, shared = (Workspace(n_rows, widths, precision, log_alpha) for _ in range(2))
        n_observed, n_signals = self._observations.output_size, len(sac.gamma)
        actions = actor.heads.spec
        self._n_actions, self._branches = actions.continuous_size, actions.discrete_branches

        # Observations joined with actions: actions taken, and actions sampled from the policy.
        self._taken = space(n_observed + self._n_actions, dtype=precision)
        self._tried = torch.zeros_like(self._taken) if self._n_actions else self._taken
        self._obs, self._next_obs = (space(n_observed, dtype=precision) for _ in range(2))
        self._actor = stack(layers, self._obs, of_actor)
        self._actor_head = Layer(self._heads.weights, of_actor.out, space(len(self._heads.bias)))
        self._value = stack(_dense_layers(sac.value), self._obs, shared)
        self._value_head = Layer(weights_of(sac.value.values), shared.out, space(n_signals))
        self._target = stack(_dense_layers(sac.target_value), self._next_obs, shared)
        self._target_head = Layer(weights_of(sac.target_value.values), shared.out, space(n_signals))

        self._q = space(n_signals, q.n_outputs)
        of_q = [[self._copies.of(_one_of(layer, i)) for layer in q.dense] for i in range(2)]
        self._q_taken = [Stack(layers, self._taken, shared) for layers in of_q]
        self._q_tried = [Stack(layers, self._tried, shared) for layers in of_q]
        self._q_head = [
            Layer(_one_of(q.heads, i), shared.out, self._q.view(n_rows, -1)) for i in range(2)
        ]
        self._by_actions = space(self._n_actions, dtype=precision)
        self._back_to_actions = prepared_product(
            shared.layers[0][0], of_q[0][0].weight[n_observed:].t(), self._by_actions
        )

        branch = [i for i, size in enumerate(self._branches) for _ in range(size)]
        self._belongs = torch.eye(len(self._branches))[branch].to(self._q)  # (sum of branches, K)

    @torch.inference_mode()
    def __call__(self, batch: Minibatch, rewards: Tensor) -> Losses:
        """Return the same losses as `SAC.losses`, and store the gradients in `grad`.

        Args:
            batch: Minibatch to learn from.
            rewards: (B, signals) rewards of the steps.
        """
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient
        torch.cat(self._observations.normalized(batch.obs), 1, out=self._obs)
        torch.cat([self._obs, batch.continuous], 1, out=self._taken)
        torch.cat(self._observations.normalized(batch.next_obs), 1, out=self._next_obs)
        self._copies.take_weights()
        log_alpha, weight = self._sac.coefficients.log_alpha, self._sac.coefficients.weight
        worth = log_alpha.exp() * weight  # (parts,)

        acting = self._act(batch)
        bonus = acting.entropy @ worth  # (B,)
        goes_on = ~(batch.terminated.unsqueeze(1) & self._sac.respects_end)
        q_target = rewards + self._sac.discount(batch) * self._next_values() * goes_on
        q_errors, q_policy, q_mean = self._learn_q(batch.discrete, q_target, acting.chances)
        value_target = torch.minimum(*q_policy) + bonus.unsqueeze(1)
        value_error, estimate = self._learn_values(value_target)
        self._learn_policy(acting, q_mean, worth / self.n_rows)
        self._copies.give_gradients()
        surplus = acting.entropy.mean(0) - self._sac.coefficients.target
        torch.mul(weight, surplus, out=self._by_log_alpha)

        *q_losses, value_loss = 0.5 * torch.stack([*q_errors, value_error]).square().mean((1, 2))
        return Losses(
            policy=-(q_policy[0].mean() + bonus.mean()),
            q=torch.stack(q_losses),
            value=value_loss,
            entropy=(log_alpha * self._by_log_alpha).sum(),
            estimate=estimate,
        )

    def _act(self, batch: Minibatch) -> Acting:
        self._heads.join()
        self._actor.forward()
        self._actor_head.forward()
        sizes = (self._n_actions, self._n_actions, sum(self._branches))
        mean, log_std, logits = self._actor_head.y.split(sizes, 1)
        entropies = []
        actions = deviation = is_free = mean  # empty if there are no continuous actions
        chances = log_chances = logits
        if self._n_actions:
            clamped = log_std.clamp(*LOG_STD_LIMITS)
            is_free = clamped == log_std
            deviation = clamped.exp() * batch.noise
            before = mean + deviation
            actions = before.tanh()
            torch.cat([self._obs, actions], 1, out=self._tried)
            density = clamped + log_slope_of_tanh(before) + 0.5 * batch.noise.square()
            entropies.append((density + HALF_LOG_TAU).sum(1, keepdim=True))
        if self._branches:
            logits = logits.masked_fill(batch.action_mask, MASKED_LOGIT)
            branches = [branch.log_softmax(1) for branch in logits.split(self._branches, 1)]
            log_chances = torch.cat(branches, 1)
            chances = log_chances.exp()
            entropies.append(-(chances * log_chances) @ self._belongs)
        entropy = torch.cat(entropies, 1)
        return Acting(entropy, actions, deviation, is_free, chances, log_chances)

    def _next_values(self) -> Tensor:
        self._target.forward()
        self._target_head.forward()
        return self._target_head.y

    def _learn_q(
        self, discrete: Tensor, target: Tensor, chances: Tensor
    ) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Compute the gradients of both Q networks, and Q of the policy's actions.

        Returns:
            Errors (B, signals) of each network; Q of the policy's actions (B, signals) from each
            network; and the mean outputs of the first network over signals, (B, outputs).
        """
        n_branches, n_mean = len(self._branches), target.numel()
        chosen = wanted = None
        if self._branches:
            wanted = chances / n_branches
            choices = discrete + self._sac.branch_starts
            chosen = torch.zeros_like(wanted).scatter_(1, choices, 1 / n_branches)
        errors, q_policy = [], []
        for i, head in enumerate(self._q_head):
            self._q_tried[i].forward()
            head.forward()
            q_policy.append(_valued(self._q, wanted))
            if i == 0:
                q_mean = self._q.mean(1)
            if self._n_actions:
                if i == 0:
                    self._q.copy_(_spread(torch.full_like(target, -1 / n_mean), wanted))
                    head.back()
                    self._q_tried[i].back(learn=False)
                    self._back_to_actions()
                self._q_taken[i].forward()
                head.forward()
            errors.append(_valued(self._q, chosen) - target)
            self._q.copy_(_spread(errors[i] / n_mean, chosen))
            head.learn()
            head.back()
            self._q_taken[i].back()
        return errors, q_policy, q_mean

    def _learn_values(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """Compute gradients of the values; return errors (B, signals) and means (signals,)."""
        self._value.forward()
        head = self._value_head
        head.forward()
        estimate, error = head.y.mean(0), head.y - target
        torch.div(error, target.numel(), out=head.y)
        head.learn()
        head.back()
        self._value.back()
        return error, estimate

    def _learn_policy(self, acting: Acting, q_mean: Tensor, worth: Tensor) -> None:
        """Compute the gradients of the actor.

        Args:
            acting: Actions of the actor.
            q_mean: (B, outputs) mean outputs of the first Q network over signals.
            worth: (parts,) weight of entropy in the loss.
        """
        sizes = (self._n_actions, self._n_actions, sum(self._branches))
        by_mean, by_log_std, by_logits = self._actor_head.y.split(sizes, 1)
        if self._n_actions:
            actions, by_actions = acting.actions, self._by_actions
            torch.add(by_actions, actions * (2 * worth[0] - by_actions * actions), out=by_mean)
            torch.mul(by_mean * acting.deviation - worth[0], acting.is_free, out=by_log_std)
        if self._branches:
            worth_of_choices = self._belongs @ worth[-len(self._branches) :]
            share = q_mean / (len(self._branches) * self.n_rows)
            v = share - worth_of_choices * acting.log_chances
            expected = (acting.chances * v) @ self._belongs @ self._belongs.t()
            torch.mul(acting.chances, expected - v, out=by_logits)
        self._actor_head.learn()
        self._actor_head.back()
        self._actor.back()


class _Heads:
    """The heads of an actor as one layer. Gradients of the heads are views of its gradients."""

    def __init__(self, heads: ActionHeads) -> None:
        layers = (*(() if heads.mean is None else (heads.mean, heads.log_std)), heads.logits)
        self._layers = [layer for layer in layers if isinstance(layer, nn.Linear)]
        weight = torch.cat([layer.weight.detach() for layer in self._layers])
        self.bias = torch.cat([layer.bias.detach() for layer in self._layers])
        self._weight = weight
        by_weight, by_bias = torch.zeros_like(weight), torch.zeros_like(self.bias)
        self.weights = Weights(weight.t(), self.bias, by_weight.t(), by_bias)
        sizes = [layer.out_features for layer in self._layers]
        for layer, of_weight, of_bias in zip(
            self._layers, by_weight.split(sizes), by_bias.split(sizes), strict=True
        ):
            layer.weight.grad, layer.bias.grad = of_weight, of_bias

    def join(self) -> None:
        """Update the joined layer from the heads' current weights."""
        torch.cat([layer.weight for layer in self._layers], out=self._weight)
        torch.cat([layer.bias for layer in self._layers], out=self.bias)


def _dense_layers(network: Actor | Critic) -> list[Weights]:
    return [weights_of(layer) for layer in network.body.dense if isinstance(layer, nn.Linear)]


def _one_of(layer: nn.Module, i: int) -> Weights:
    """Return views of one of two stacked layers."""
    assert isinstance(layer, StackedLinear)
    weight, bias = layer.weight, layer.bias
    assert weight.grad is not None and bias.grad is not None
    return Weights(weight.detach()[i], bias.detach()[i, 0], weight.grad[i], bias.grad[i, 0])


def _valued(q: Tensor, shares: Tensor | None) -> Tensor:
    """Return the sum (B, signals) of the outputs (B, signals, outputs), weighted by `shares`."""
    return (q if shares is None else q * shares.unsqueeze(1)).sum(2)


def _spread(gradient: Tensor, shares: Tensor | None) -> Tensor:
    """Return the gradient of the outputs in `_valued`, given the gradient of its result."""
    spread = gradient.unsqueeze(2)
    return spread if shares is None else spread * shares.unsqueeze(1)
