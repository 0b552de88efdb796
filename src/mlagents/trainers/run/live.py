"""`LiveView`: shows a training run in a browser on this machine."""

import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from mlagents.trainers.acting.policy import ActingPolicy
from mlagents.trainers.acting.rollout import Policy
from mlagents.trainers.players.env_manager import EnvManager
from mlagents.trainers.players.watched import WatchedPlayers
from mlagents.trainers.reporting.stats import StatsSummary, StatsWriter
from mlagents.viewing.page import Page
from mlagents.viewing.stage import TRAINING_SHARE, Probabilities, Stage, Steps
from mlagents.viewing.statistics_panel import StatisticsPanel
from mlagents_envs.base_env import BehaviorName
from mlagents_envs.closing import Closing
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)


class LiveView(Closing):
    """A page that shows the first player of a run and the statistics of all behaviors.

    Args:
        port: Port of the page; 0 for any free port.
        title: Heading of the page.

    Attributes:
        writer: Writer that shows statistics on the page.

    Raises:
        UnityEnvironmentException: The port is in use.
        ModuleNotFoundError: A package of the extra `view` is missing.
    """

    def __init__(self, port: int, *, title: str) -> None:
        # CPU time, so that the share does not depend on the load of the machine.
        self._stage = Stage(share=TRAINING_SHARE, clock=time.thread_time)
        self._page = Page(self._stage, port=port, title=title)
        self._players: WatchedPlayers | None = None
        self.writer: StatsWriter = _Writer(StatisticsPanel(self._page.gui))

    def watch(self, players: EnvManager) -> EnvManager:
        """Wrap the players so that the page shows them."""
        logger.info(f"Open {self._page.url} in a browser on this machine to watch.")
        self._players = WatchedPlayers(players, self._stage)
        return self._players

    def show_choices(self, policy_of: Callable[[BehaviorName], Policy]) -> None:
        """Show the probabilities of discrete choices.

        Args:
            policy_of: Function that returns the learning policy of a behavior.
        """
        if self._players is not None:
            self._players.probabilities_of = partial(_probabilities, policy_of)

    def close(self) -> None:
        """Close the page. Calling it again does nothing."""
        self._page.close()


class _Writer(StatsWriter):
    """Writer that shows every summary in a panel."""

    def __init__(self, panel: StatisticsPanel) -> None:
        self._panel = panel

    def write_stats(self, category: str, values: Mapping[str, StatsSummary], step: int) -> None:
        shown = {name: value.aggregated_value for name, value in values.items()}
        self._panel.add(category, shown, step)


def _probabilities(policy_of: Callable[[BehaviorName], Policy], steps: Steps) -> Probabilities:
    """Return one array (N, choices) per branch, for each behavior with discrete actions."""
    found = {}
    for behavior, (decisions, _) in steps.items():
        policy = policy_of(behavior)
        if decisions.action_mask and isinstance(policy, ActingPolicy) and len(decisions):
            masks = np.concatenate(decisions.action_mask, axis=1)
            if probabilities := policy.probabilities(decisions.obs, masks):
                found[behavior] = probabilities
    return found
