"""Catalog of the worlds by name. The module of a world is imported when the world is created."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from mlagents_envs.base_env import BaseEnv
from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.registry.base_registry_entry import BaseRegistryEntry
from mlagents_envs.side_channel.side_channel import SideChannel
from mlagents_sim.world import World

_FOR_BUILDS_ONLY = frozenset({"file_name", "additional_args"})
"""Arguments of `UnityEnvironment` that no world uses."""

_FOR_PLAYERS_ONLY = _FOR_BUILDS_ONLY | {
    "worker_id",
    "base_port",
    "no_graphics",
    "no_graphics_monitor",
    "timeout_wait",
    "log_folder",
}
"""Arguments of `UnityEnvironment` that have no meaning without another process."""


class WorldEntry(BaseRegistryEntry):
    """A world of this package.

    Args:
        identifier: Name of the world.
        expected_reward: Published mean reward of a trained policy.
        description: Task of the agents, in one sentence.
        factory: Class of the world, as `module:class` below `mlagents_sim.examples`.
        tags: Properties to choose worlds by.
    """

    only_computes = True

    def __init__(
        self,
        identifier: str,
        *,
        expected_reward: float,
        description: str,
        factory: str,
        tags: Iterable[str],
    ) -> None:
        super().__init__(identifier, expected_reward, description)
        self.tags = frozenset(tags)
        self._factory = factory

    def make(
        self,
        *,
        side_channels: Sequence[SideChannel] | None = None,
        keep_8_bit_images: bool = False,
        **kwargs: Any,
    ) -> BaseEnv:
        """Return the world: in this process, or in another one if there are side channels.

        Args:
            side_channels: Channels to communicate with the world. If there are any, the world runs
                in its own process, and this returns the `UnityEnvironment` connected to it.
            keep_8_bit_images: Whether 8-bit images are returned as uint8, 0 to 255, instead of
                float32, 0 to 1. They then take a quarter of the memory.
            kwargs: `seed`, `num_areas` and `parameters`, as for `mlagents_sim.world.World`.
                Arguments of `UnityEnvironment` are accepted too. Without side channels, those for
                its player are ignored.

        Raises:
            UnityEnvironmentException: The world cannot be made with these arguments.
            TypeError: An argument is unknown.
            UnityException: As `UnityEnvironment`, with side channels.
        """
        if side_channels:
            return self._play_elsewhere(
                side_channels=side_channels, keep_8_bit_images=keep_8_bit_images, **kwargs
            )
        module, _, name = self._factory.partition(":")
        make_world = getattr(import_module(f"mlagents_sim.examples.{module}"), name)
        world: World = make_world(
            **{key: value for key, value in kwargs.items() if key not in _FOR_PLAYERS_ONLY}
        )
        if keep_8_bit_images:
            world.keep_8_bit_images()
        return world

    def _play_elsewhere(
        self, *, parameters: Mapping[str, float] | None = None, **kwargs: Any
    ) -> UnityEnvironment:
        """Run the world in another process."""
        command = [sys.executable, "-m", "mlagents_sim", self.identifier]
        for name, value in (parameters or {}).items():
            command += ["--parameter", f"{name}={float(value)!r}"]
        arguments = {key: value for key, value in kwargs.items() if key not in _FOR_BUILDS_ONLY}
        return UnityEnvironment(command=command, **{"base_port": 0, **arguments})


CATALOG = {
    entry.identifier: entry
    for entry in (
        WorldEntry(
            "Basic",
            expected_reward=0.93,
            description="Walk along a line to the cell that pays best.",
            factory="basic:Basic",
            tags=("vector", "discrete"),
        ),
        WorldEntry(
            "3DBall",
            expected_reward=100.0,
            description="Tilt a platform so that the ball on it does not fall.",
            factory="ball_3d:Ball3D",
            tags=("vector", "continuous"),
        ),
        WorldEntry(
            "3DBallHard",
            expected_reward=100.0,
            description="Balance a ball without observing its velocity.",
            factory="ball_3d_hard:Ball3DHard",
            tags=("vector", "continuous"),
        ),
        WorldEntry(
            "GridWorld",
            expected_reward=0.8,
            description="Walk to the goal of the requested kind, seen from above.",
            factory="grid_world:GridWorld",
            tags=("image", "goal signal", "discrete", "mask"),
        ),
        WorldEntry(
            "GridWorldPits",
            expected_reward=0.8,
            description="Walk to the goal past the pits, seen from above.",
            factory="grid_world_pits:GridWorldPits",
            tags=("image", "discrete", "mask", "older"),
        ),
        WorldEntry(
            "Match3VectorObs",
            expected_reward=38.5,
            description="Swap neighboring gems so that three of a color lie in a line.",
            factory="match3:Match3VectorObs",
            tags=("vector", "discrete", "mask"),
        ),
        WorldEntry(
            "Match3VisualObs",
            expected_reward=39.5,
            description="Match-3, observed as images.",
            factory="match3:Match3VisualObs",
            tags=("image", "discrete", "mask"),
        ),
        WorldEntry(
            "Match3SimpleHeuristic",
            expected_reward=34.2,
            description="Match-3, played by a rule: any valid move.",
            factory="match3:Match3SimpleHeuristic",
            tags=("vector", "discrete", "mask", "heuristic"),
        ),
        WorldEntry(
            "Match3SmartHeuristic",
            expected_reward=37.0,
            description="Match-3, played by a rule: the move with the most points.",
            factory="match3:Match3SmartHeuristic",
            tags=("vector", "discrete", "mask", "heuristic"),
        ),
        WorldEntry(
            "Visual3DBall",
            expected_reward=100.0,
            description="Balance a ball that is observed by a camera.",
            factory="visual_3d_ball:Visual3DBall",
            tags=("image", "continuous"),
        ),
        WorldEntry(
            "PushBlock",
            expected_reward=4.5,
            description="Push a block into the goal.",
            factory="push_block:PushBlock",
            tags=("rays", "discrete"),
        ),
        WorldEntry(
            "Hallway",
            expected_reward=0.7,
            description="Remember a symbol and walk to the goal with that symbol.",
            factory="hallway:Hallway",
            tags=("rays", "vector", "discrete", "memory"),
        ),
        WorldEntry(
            "Pyramids",
            expected_reward=1.75,
            description="Press a switch, knock a pyramid over and touch the gold from its top.",
            factory="pyramids:Pyramids",
            tags=("rays", "vector", "discrete"),
        ),
        WorldEntry(
            "Sorter",
            expected_reward=10.0,
            description="Visit numbered tiles in ascending order.",
            factory="sorter:Sorter",
            tags=("buffer", "vector", "discrete"),
        ),
        WorldEntry(
            "WallJump",
            expected_reward=0.8,
            description="Get over low and high walls, with two behaviors in one scene.",
            factory="wall_jump:WallJump",
            tags=("rays", "vector", "discrete", "behaviors"),
        ),
        WorldEntry(
            "SmallWallJump",
            expected_reward=0.8,
            description="Get over a low wall.",
            factory="wall_jump:SmallWallJump",
            tags=("rays", "vector", "discrete"),
        ),
        WorldEntry(
            "BigWallJump",
            expected_reward=0.8,
            description="Get over a high wall with the help of a block.",
            factory="wall_jump:BigWallJump",
            tags=("rays", "vector", "discrete"),
        ),
        WorldEntry(
            "GridFoodCollector",
            expected_reward=10.0,
            description="Gather good food, avoid bad food and freeze other agents.",
            factory="food_collector:GridFoodCollector",
            tags=("grid", "continuous", "discrete"),
        ),
        WorldEntry(
            "VisualFoodCollector",
            expected_reward=10.0,
            description="Gather good food that is observed by a camera.",
            factory="visual_food_collector:VisualFoodCollector",
            tags=("image", "vector", "continuous", "discrete"),
        ),
        WorldEntry(
            "FoodCollector",
            expected_reward=10.0,
            description="Gather good food that is observed by rays.",
            factory="ray_food_collector:RayFoodCollector",
            tags=("rays", "vector", "discrete"),
        ),
        WorldEntry(
            "DungeonEscape",
            expected_reward=1.0,
            description="Slay the dragon, take its key and escape, as a group.",
            factory="dungeon_escape:DungeonEscape",
            tags=("rays", "vector", "discrete", "groups"),
        ),
        WorldEntry(
            "SoccerTwos",
            expected_reward=0.0,
            description="Play football, two against two.",
            factory="soccer_twos:SoccerTwos",
            tags=("rays", "discrete", "groups", "teams"),
        ),
        WorldEntry(
            "StrikersVsGoalie",
            expected_reward=0.0,
            description="Score against a goalie or keep the goal, with two behaviors in one scene.",
            factory="strikers_vs_goalie:StrikersVsGoalie",
            tags=("rays", "discrete", "groups", "teams", "behaviors"),
        ),
        WorldEntry(
            "Crawler",
            expected_reward=3000.0,
            description="Run to a target on four legs, at a requested speed.",
            factory="crawler:Crawler",
            tags=("vector", "continuous", "creature"),
        ),
        WorldEntry(
            "Walker",
            expected_reward=2500.0,
            description="Walk to a target on two legs, at a requested speed.",
            factory="walker:Walker",
            tags=("vector", "continuous", "creature"),
        ),
        WorldEntry(
            "Worm",
            expected_reward=800.0,
            description="Crawl to a target without legs.",
            factory="worm:Worm",
            tags=("vector", "continuous", "creature"),
        ),
        WorldEntry(
            "CrawlerStatic",
            expected_reward=4000.0,
            description="Run on four legs to a target far ahead.",
            factory="creature_variants:CrawlerStatic",
            tags=("vector", "continuous", "creature", "older"),
        ),
        WorldEntry(
            "CrawlerStaticVariableSpeed",
            expected_reward=4000.0,
            description="The same, at a requested speed.",
            factory="creature_variants:CrawlerStaticVariableSpeed",
            tags=("vector", "continuous", "creature", "older"),
        ),
        WorldEntry(
            "CrawlerDynamic",
            expected_reward=2000.0,
            description="Run on four legs to targets, at full speed.",
            factory="creature_variants:CrawlerDynamic",
            tags=("vector", "continuous", "creature", "older"),
        ),
        WorldEntry(
            "CrawlerDynamicVariableSpeed",
            expected_reward=3000.0,
            description="Crawler by its name of 2020.",
            factory="creature_variants:CrawlerDynamicVariableSpeed",
            tags=("vector", "continuous", "creature", "older"),
        ),
        WorldEntry(
            "CrawlerStaticTarget",
            expected_reward=2000.0,
            description="Crawler of 2019: run as fast as possible to a target far ahead.",
            factory="crawler_2019:CrawlerStaticTarget",
            tags=("vector", "continuous", "creature", "older"),
        ),
        WorldEntry(
            "CrawlerDynamicTarget",
            expected_reward=400.0,
            description="Crawler of 2019: run as fast as possible to targets.",
            factory="crawler_2019:CrawlerDynamicTarget",
            tags=("vector", "continuous", "creature", "older"),
        ),
        WorldEntry(
            "WalkerStatic",
            expected_reward=3500.0,
            description="Walk on two legs to a target far ahead.",
            factory="creature_variants:WalkerStatic",
            tags=("vector", "continuous", "creature", "older"),
        ),
        WorldEntry(
            "WalkerStaticVariableSpeed",
            expected_reward=3500.0,
            description="The same, at a requested speed.",
            factory="creature_variants:WalkerStaticVariableSpeed",
            tags=("vector", "continuous", "creature", "older"),
        ),
        WorldEntry(
            "WalkerDynamic",
            expected_reward=2500.0,
            description="Walk on two legs to targets, at full speed.",
            factory="creature_variants:WalkerDynamic",
            tags=("vector", "continuous", "creature", "older"),
        ),
        WorldEntry(
            "WalkerDynamicVariableSpeed",
            expected_reward=2500.0,
            description="Walker by its name of 2020.",
            factory="creature_variants:WalkerDynamicVariableSpeed",
            tags=("vector", "continuous", "creature", "older"),
        ),
        WorldEntry(
            "WormStatic",
            expected_reward=1200.0,
            description="Crawl without legs to a target far ahead.",
            factory="creature_variants:WormStatic",
            tags=("vector", "continuous", "creature", "older"),
        ),
        WorldEntry(
            "WormDynamic",
            expected_reward=800.0,
            description="Worm by its name of 2020.",
            factory="creature_variants:WormDynamic",
            tags=("vector", "continuous", "creature", "older"),
        ),
        WorldEntry(
            "Reacher",
            expected_reward=30.0,
            description="Keep the hand of an arm inside a goal that moves.",
            factory="reacher:Reacher",
            tags=("vector", "continuous"),
        ),
        WorldEntry(
            "Bouncer",
            expected_reward=10.0,
            description="Bounce to catch a floating target, with a decision at each touchdown.",
            factory="bouncer:Bouncer",
            tags=("vector", "continuous", "on demand"),
        ),
        WorldEntry(
            "PushBlockCollab",
            expected_reward=11.0,
            description="Push blocks of three sizes into the goal, as a group.",
            factory="push_block_collab:PushBlockCollab",
            tags=("grid", "vector", "discrete", "groups"),
        ),
        WorldEntry(
            "Tennis",
            expected_reward=0.0,
            description="Win the point against the other player.",
            factory="tennis:Tennis",
            tags=("vector", "continuous", "teams"),
        ),
        WorldEntry(
            "TennisRally",
            expected_reward=2.5,
            description="Keep the ball in play, both players together.",
            factory="tennis:TennisRally",
            tags=("vector", "continuous"),
        ),
    )
}


def registry_entries() -> Iterable[BaseRegistryEntry]:
    """Return all worlds, for `mlagents_envs.registry.default_registry`."""
    return CATALOG.values()
