"""`PlanarWorld`: a `World` whose agents push and turn themselves over a floor."""

from abc import abstractmethod
from typing import ClassVar, Protocol

from mlagents_sim.world import World


class Mover(Protocol):
    """What moves the areas of a world: a `Motion`, `Pushers`, or a scene of a world's own."""

    def steer(self) -> None:
        """Let the agents push and turn: the first part of a step."""

    def move(self) -> None:
        """Move everything: the second part of a step."""

    def run(self, most_steps: int) -> int:
        """Run steps up to one in which something happens; return their number."""


class PlanarWorld(World):
    """Base of worlds that a `Mover` moves, the steps between two events at once.

    A subclass sets `motion`, to which it hands the agents' commands, and implements `judge`. Only
    steps that must be run part by part call `act` and `physics`: those with a time limit, and those
    that the motion leaves to them.

    Attributes:
        motion: Motion of all areas.
    """

    motion: Mover
    step_reward: ClassVar[float] = 0.0
    """Reward of every agent for every step."""

    @abstractmethod
    def judge(self, n_steps: int) -> None:
        """Set `reward` and call `end` by what happened.

        Args:
            n_steps: Number of steps that were run. Watched events happened only in the last.
        """

    def pay_step(self) -> None:
        """Add the rewards of a step, whatever happens in it: by default `step_reward`."""
        if self.step_reward:
            self.reward += self.step_reward

    def act(self) -> None:
        """Let the agents push and turn; reward the step."""
        self.motion.steer()
        self.pay_step()

    def physics(self) -> None:
        """Move everything; judge what happened."""
        self.motion.move()
        self.judge(1)

    def run(self, most_steps: int) -> int:
        """Run steps up to one in which something happens."""
        n_steps = self.motion.run(most_steps)
        if n_steps:
            self.step_count += n_steps
            for _ in range(n_steps):
                self.pay_step()
            self.judge(n_steps)
        return n_steps
