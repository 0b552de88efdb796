"""Behavioral cloning: an actor that learns from demonstrations only."""

from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from mlagents.trainers.algorithms.base import Algorithm
from mlagents.trainers.algorithms.behavioral_cloning import (
    PRETRAINING_LOSS,
    DemonstrationSet,
    cloning_loss,
)
from mlagents.trainers.algorithms.optimizer import Optimizer, adam
from mlagents.trainers.algorithms.plotting import means
from mlagents.trainers.data.demonstrations import load_demonstrations
from mlagents.trainers.networks.actor_critic import Actor
from mlagents.trainers.reporting.stats import HELD_OUT_ACCURACY, HELD_OUT_ERROR
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.hyperparameters import BCSettings
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)


class BC(Algorithm):
    """Trains an actor on most of the demonstrated episodes and evaluates it on the rest."""

    settings: BCSettings

    def make_networks(self, settings: BehaviorSettings) -> None:
        """Create the actor and its optimizer."""
        self._actor = Actor(self.spec, settings.network_settings, compute=self.compute).to(
            self.device
        )
        self.optimizer = adam(self.actor.parameters(), self.settings.learning_rate)

    def make_sources(self, settings: BehaviorSettings) -> None:
        """Load the demonstrations, split into episodes to learn from and held-out episodes."""
        assert settings.behavioral_cloning is not None
        path = settings.behavioral_cloning.demo_path
        demonstrations = load_demonstrations(path, self.spec)
        # The seed is fixed, so a resumed run holds out the same episodes and never trains on them.
        learned, held_out = demonstrations.split(self.settings.held_out, np.random.default_rng(0))
        logger.info(
            f"Learning from {path}: {learned}. "
            f"Held out: {held_out or 'nothing, because there is only one episode'}."
        )
        # All learners draw the same minibatches, but their own samples.
        self.samples = self.generator
        if self.shards.size > 1:
            self.samples = torch.Generator().manual_seed(self.generator.initial_seed())
            self.generator.manual_seed(self.seed)
        make = partial(
            DemonstrationSet, memory=settings.network_settings.memory, device=self.device
        )
        self.expert = make(learned)
        self.held_out = None if held_out is None else make(held_out)
        self.actor.body.observations.update_normalization(self.expert.steps.obs)

    @property
    def actor(self) -> Actor:
        """The network that acts."""
        return self._actor

    def networks(self) -> dict[str, nn.Module | Optimizer]:
        """Return the actor and its optimizer, by their names in a checkpoint."""
        return {"Policy": self.actor, "Optimizer:BehavioralCloning": self.optimizer}

    def reseed(self, seed: int) -> None:
        """Reseed the samples only, because all learners draw the same minibatches."""
        self.samples.manual_seed(seed)

    def update(self, n_steps: int, *, step: int) -> dict[str, float]:
        """Learn from about `n_steps` demonstrated steps; return the statistics to plot, by tag.

        Args:
            n_steps: Number of steps to learn from. The last minibatch may exceed it.
            step: Step count of the behavior, for the schedule.
        """
        s = self.settings
        learning_rate = self.set_learning_rate(step)
        plots: list[dict[str, Tensor]] = []
        n_seen = 0
        while n_seen < n_steps:
            shares = self.expert.shares(s.batch_size, self.generator, self.shards)
            for batch, sequences, n_rows in shares:
                loss = cloning_loss(self.actor, batch, sequences, self.spec, self.samples)
                self.descend(loss, self.actor.parameters(), n_rows=len(batch.reward))
                plots.append({PRETRAINING_LOSS: loss.detach()})
                n_seen += n_rows
                if n_seen >= n_steps:
                    break
        return means(plots) | self._judge() | {"Policy/Learning Rate": learning_rate}

    @torch.no_grad()
    def _judge(self) -> dict[str, float]:
        """Compare the actor's most likely actions with the actions of the held-out episodes."""
        if self.held_out is None:
            return {}
        everything = self.held_out.n_steps * self.held_out.longest
        ((batch, sequences),) = self.held_out.minibatches(everything, torch.Generator())
        encoding = self.actor.body(batch.obs, sequences)
        plotted = {}
        if self.spec.action_spec.continuous_size:
            actions = self.actor.heads.environment_actions(encoding).clamp(-1.0, 1.0)
            plotted[HELD_OUT_ERROR] = nn.functional.mse_loss(actions, batch.continuous)
        if self.actor.heads.logits is not None:
            branches = self.actor.heads.logits(encoding).split(
                self.spec.action_spec.discrete_branches, 1
            )
            choices = torch.stack([logits.argmax(1) for logits in branches], dim=1)
            plotted[HELD_OUT_ACCURACY] = (choices == batch.discrete).float().mean()
        return means([plotted])
