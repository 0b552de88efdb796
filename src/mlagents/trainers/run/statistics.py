"""`Statistics`: adds reports of players to the statistics of behaviors, and summarizes these."""

from collections.abc import Iterable

from mlagents.trainers.callbacks import Summary
from mlagents.trainers.fleet.fleet import PlayerReport
from mlagents.trainers.learning.league import League
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.reporting.stats import IS_TRAINING, STEP
from mlagents.trainers.run.agreement import Agreement
from mlagents.trainers.run.curriculum import Curriculum
from mlagents_envs.side_channel.stats_side_channel import StatsAggregationMethod


class Statistics:
    """Statistics of a run beyond those that trainers record themselves.

    Args:
        curriculum: Lessons, whose numbers are part of every summary.
        league: Self-play, whose ratings are part of every summary.
        agreement: Learners of the run, whose statistics the first one summarizes.
    """

    def __init__(self, curriculum: Curriculum, league: League, agreement: Agreement) -> None:
        self._curriculum = curriculum
        self._league = league
        self._agreement = agreement
        self._has_summary = False
        self._summaries: list[Summary] = []

    def add(self, report: PlayerReport, trainers: Iterable[Trainer]) -> None:
        """Add the statistics of a player's report to those of every behavior."""
        for key, values in report.statistics.items():
            for value, aggregation in values:
                if aggregation is StatsAggregationMethod.MOST_RECENT and report.player:
                    continue  # several players have no common latest value: use the first player's
                for trainer in trainers:
                    trainer.stats.add_stat(key, value, aggregation)

    def summarize(self, trainer: Trainer, step: int) -> None:
        """Write a summary of a behavior's statistics.

        Args:
            trainer: Trainer of the behavior.
            step: Step count of the summary.
        """
        self._has_summary = True
        trainer.stats.set_stat(STEP, step)
        trainer.stats.set_stat(IS_TRAINING, trainer.is_learning)
        self._league.summarize(trainer.name)
        self._agreement.gather_statistics(trainer.stats)
        if not self._agreement.is_first:
            return
        for parameter, number in self._curriculum.lesson_numbers.items():
            trainer.stats.set_stat(f"Environment/Lesson Number/{parameter}", number)
        values = trainer.stats.write_stats(step)
        self._summaries.append(Summary(trainer.name, step, values))

    def take_summaries(self) -> tuple[bool, list[Summary]]:
        """Return whether there were summaries since the last call, and those written here."""
        has_summary, self._has_summary = self._has_summary, False
        summaries, self._summaries = self._summaries, []
        return has_summary, summaries
