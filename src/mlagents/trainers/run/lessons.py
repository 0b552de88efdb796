"""Lessons of a run: when they begin, and what then changes for players and trainers."""

from collections.abc import Mapping

from mlagents.trainers.fleet.fleet import Fleet
from mlagents.trainers.learning.league import League
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.run.curriculum import BehaviorProgress, Curriculum
from mlagents.trainers.settings.run_options import RunOptions


def begin_lessons(
    curriculum: Curriculum, trainers: Mapping[str, Trainer], league: League, fleet: Fleet
) -> bool:
    """Begin the lessons that are due; return whether the players were reset for them.

    Args:
        curriculum: Lessons of the run.
        trainers: Trainers of the behaviors, by name. Their recent returns decide.
        league: Self-play, whose ratings and results decide too.
        fleet: Agents, which receive the parameters of the new lessons.
    """
    changes = curriculum.advance(
        {
            name: BehaviorProgress(
                trainer.step,
                trainer.settings.max_steps,
                trainer.meter.recent_returns,
                group_returns=trainer.meter.recent_group_returns,
                elo=league.elo(name),
                scores=league.scores(name),
            )
            for name, trainer in trainers.items()
        }
    )
    if not changes:
        return False
    for trainer in trainers.values():
        trainer.meter.recent_returns.clear()
        trainer.meter.recent_group_returns.clear()
        league.scores(trainer.name).clear()
    # Send only changed parameters: a sampler that is sent again restarts its sequence.
    parameters = curriculum.parameters
    fleet.set_parameters({c.parameter: parameters[c.parameter] for c in changes})
    needs_reset = any(change.needs_reset for change in changes)
    if needs_reset:
        fleet.reset()
    return needs_reset


def watches_episodes(options: RunOptions) -> bool:
    """Return whether lessons or the end of training depend on the returns of episodes."""
    settings = [options.default_settings, *options.behaviors.values()]
    return bool(options.environment_parameters) or any(
        each is not None and each.stop_at_reward is not None for each in settings
    )
