"""Behavior and team ids as small types."""

from typing import NamedTuple

from mlagents_envs.base_env import BehaviorName


class BehaviorId(NamedTuple):
    """A behavior as the simulation names it, taken apart.

    Attributes:
        name: What the settings call it, for example `3DBall`.
        team: The team that plays it, 0 unless the simulation says otherwise.
    """

    name: str
    team: int

    @staticmethod
    def parse(full_name: BehaviorName) -> "BehaviorId":
        """Take `<name>?team=<id>` apart; a name without a team belongs to team 0."""
        name, separator, team = full_name.rpartition("?team=")
        if separator and team.removeprefix("-").isdecimal():
            return BehaviorId(name, int(team))
        return BehaviorId(full_name, 0)
