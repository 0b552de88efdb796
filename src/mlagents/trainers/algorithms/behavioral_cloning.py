"""Behavioral cloning: supervised learning of an actor from demonstrations."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from mlagents.trainers.algorithms.minibatches import deal, deal_sequences
from mlagents.trainers.algorithms.optimizer import Optimizer, adam, descend
from mlagents.trainers.algorithms.schedules import LEARNING_RATE_FLOOR, scheduled
from mlagents.trainers.algorithms.transitions import Transitions, transitions_of_experts
from mlagents.trainers.data.demonstrations import Demonstrations, load_demonstrations
from mlagents.trainers.data.segments import cut_into
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.networks.actor_critic import Actor
from mlagents.trainers.networks.layers import Sequences
from mlagents.trainers.settings.behavior import BehaviorSettings, MemorySettings
from mlagents.trainers.sharding import ALONE, Shards
from mlagents_envs.base_env import BehaviorSpec
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

PRETRAINING_LOSS = "Losses/Pretraining Loss"
DEFAULT_EPOCHS = 3


class DemonstrationSet:
    """Demonstrated steps on the device, split into minibatches for an actor to learn from.

    Args:
        demonstrations: Steps to learn from.
        memory: Memory settings of the actor; None for an actor without memory.
        device: Device to learn on.
    """

    def __init__(
        self, demonstrations: Demonstrations, memory: MemorySettings | None, device: torch.device
    ) -> None:
        self.steps = transitions_of_experts(demonstrations, device)
        self.n_steps = demonstrations.n_steps
        self.memory = memory
        self.device = device
        self.longest = 1 if memory is None else memory.sequence_length
        """Largest number of steps in a sequence."""
        self.lengths = torch.from_numpy(cut_into(self.longest, demonstrations.length))

    def minibatches(
        self, batch_size: int, generator: torch.Generator
    ) -> Iterator[tuple[Transitions, Sequences | None]]:
        """Yield random minibatches of single steps or, with memory, of whole sequences.

        Each sequence begins with an empty memory. An incomplete last minibatch is dropped.
        """
        for batch, sequences, _ in self.shares(batch_size, generator, ALONE):
            yield batch, sequences

    def shares(
        self, batch_size: int, generator: torch.Generator, shards: Shards
    ) -> Iterator[tuple[Transitions, Sequences | None, int]]:
        """Yield this learner's share of each of the `minibatches`, and the total number of rows.

        Learners whose generators are in the same state draw the same minibatches.

        Raises:
            UnityTrainerException: There are more learners than steps or sequences in a minibatch.
        """
        if self.memory is None:
            size = min(batch_size, self.n_steps)
            _require_shares(size, "steps", shards)
            for rows in deal(self.n_steps, size, generator).to(self.device):
                yield self.steps.take(rows[shards.rank :: shards.size]), None, size
            return
        size = min(max(shards.size, batch_size // self.longest), len(self.lengths))
        _require_shares(size, "sequences", shards)
        memory = torch.zeros(shards.share(size), self.memory.memory_size, device=self.device)
        for rows, _, place in deal_sequences(
            self.lengths, size, self.longest, generator, self.device
        ):
            n_rows, sequence = len(rows), place // self.longest
            if shards.size > 1:
                own = sequence % shards.size == shards.rank
                within = (place - sequence * self.longest)[own]
                rows, place = rows[own], sequence[own] // shards.size * self.longest + within
            yield self.steps.take(rows), Sequences(memory, place, self.longest), n_rows


def _require_shares(n: int, of_what: str, shards: Shards) -> None:
    if n < shards.size:
        raise UnityTrainerException(
            f"{shards.size} learners cannot share a minibatch of {n} demonstrated {of_what}. Use "
            "fewer learners (--learners), or more demonstrations and a larger batch_size."
        )


def cloning_loss(
    actor: Actor,
    batch: Transitions,
    sequences: Sequences | None,
    spec: BehaviorSpec,
    generator: torch.Generator,
) -> Tensor:
    """Return the squared error of continuous actions plus the cross-entropy of discrete ones.

    The first term is a mean over steps and actions, the second over steps and branches. Continuous
    actions are sampled, so the loss also shrinks their deviation, and compared on the environment's
    scale. Action masks are ignored, so the actor also learns to avoid masked choices.

    Args:
        actor: Network to train.
        batch: B demonstrated steps.
        sequences: Order of the steps, for an actor with memory.
        spec: Observations and actions of the behavior.
        generator: Random generator for the samples, on the CPU.
    """
    actions, heads = spec.action_spec, actor.heads
    encoding = actor.body(batch.obs, sequences)
    losses = []
    if actions.continuous_size:
        noise = torch.randn(batch.continuous.shape, generator=generator).to(encoding.device)
        sampled = heads.environment_actions(encoding, noise)
        losses.append(nn.functional.mse_loss(sampled, batch.continuous))
    if heads.logits is not None:
        branches = heads.logits(encoding).split(actions.discrete_branches, 1)
        of_branches = [
            nn.functional.cross_entropy(logits, choice)
            for logits, choice in zip(branches, batch.discrete.unbind(1), strict=True)
        ]
        losses.append(torch.stack(of_branches).mean())
    return sum(losses[1:], start=losses[0])


class BehavioralCloning:
    """Trains an actor on demonstrations, in addition to its other losses.

    Args:
        actor: Network to train.
        spec: Observations and actions of the behavior.
        settings: Settings of the behavior, with `behavioral_cloning`.
        device: Device to learn on.
        generator: Random generator for minibatches and samples, on the CPU.
        shards: Communication with the other learners. All learn from the same demonstrations.
        seed: Seed of the minibatches, used if there are several learners.

    Raises:
        UnityTrainerException: A demonstration cannot be read or does not fit the behavior.
    """

    def __init__(
        self,
        actor: Actor,
        spec: BehaviorSpec,
        settings: BehaviorSettings,
        *,
        device: torch.device,
        generator: torch.Generator,
        shards: Shards = ALONE,
        seed: int = 0,
    ) -> None:
        assert settings.behavioral_cloning is not None
        self.settings = settings.behavioral_cloning
        self.hyperparameters = settings.hyperparameters
        self.actor, self.spec, self.generator, self.shards = actor, spec, generator, shards
        # All learners draw the same minibatches, but their own samples.
        self.deals = generator if shards.size == 1 else torch.Generator().manual_seed(seed)
        demonstrations = load_demonstrations(self.settings.demo_path, spec)
        logger.info(f"Cloning learns from {self.settings.demo_path}: {demonstrations}.")
        self.expert = DemonstrationSet(demonstrations, settings.network_settings.memory, device)
        self.optimizer = adam(actor.parameters(), self.hyperparameters.learning_rate)

    def modules(self) -> dict[str, nn.Module | Optimizer]:
        """Return modules and optimizers other than the actor, by their names in a checkpoint."""
        return {"Optimizer:BehavioralCloning": self.optimizer}

    def update(self, *, step: int) -> dict[str, Tensor]:
        """Learn from demonstrations until cloning has faded out; return statistics to plot.

        Args:
            step: Step count of the behavior.
        """
        s = self.settings
        if s.steps and step >= s.steps:
            return {}
        self.optimizer.param_groups[0]["lr"] = scheduled(
            self.hyperparameters.learning_rate * s.strength,
            "linear" if s.steps else "constant",
            floor=LEARNING_RATE_FLOOR,
            step=step,
            max_steps=s.steps,
        )
        most = s.samples_per_update or self.expert.n_steps
        batch_size = min(s.batch_size or self.hyperparameters.batch_size, most)
        losses: list[Tensor] = []
        for _ in range(s.num_epoch or DEFAULT_EPOCHS):
            n_seen = 0
            shares = self.expert.shares(batch_size, self.deals, self.shards)
            for batch, sequences, n_rows in shares:
                if n_seen and n_seen + n_rows > most:
                    break
                n_seen += n_rows
                loss = cloning_loss(self.actor, batch, sequences, self.spec, self.generator)
                descend(
                    loss,
                    self.optimizer,
                    self.actor.parameters(),
                    max_norm=self.hyperparameters.max_grad_norm,
                    shards=self.shards,
                    n_rows=len(batch.reward),
                )
                losses.append(loss.detach())
        return {PRETRAINING_LOSS: torch.stack(losses).mean()}
