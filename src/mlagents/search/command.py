"""`mlagents-search`: finds better settings for a task."""

from mlagents_envs.completion import add_completion
from mlagents_envs.interrupts import ends_quietly

with ends_quietly():
    import argparse
    import logging
    import sys
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np

    from mlagents import __version__
    from mlagents.search.population import Evolution
    from mlagents.search.report import write_report
    from mlagents.search.search import (
        Plan,
        Search,
        make_plan,
        remove_search,
        values_in_words,
        write_best,
    )
    from mlagents.search.study import Result
    from mlagents.trainers.cli_args import add_flags, add_set, nested
    from mlagents.trainers.exception import TrainerError
    from mlagents.trainers.settings.configurations import find_configuration
    from mlagents.trainers.settings.reading import read_configuration
    from mlagents.trainers.settings.typed import CommandLine
    from mlagents_envs.argument_types import count
    from mlagents_envs.cpus import n_cpus
    from mlagents_envs.logging_util import get_logger, set_log_level
    from mlagents_envs.programs import command, program

logger = get_logger(__name__)

EPILOG = """\
examples:
  mlagents-search my.yaml --env 3DBall --run-id balls
  mlagents-search my.yaml --env builds/MyGame --no-graphics --jobs 4

CONFIG is a file for mlagents-learn that also has the key `search`, beside
`behaviors`. docs/tuning.md explains this key. Every trial is an ordinary run.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status. A command line not understood exits with 2."""
    options = make_parser().parse_args(argv)
    set_log_level(logging.INFO)
    try:
        plan = _plan(options)
        if options.force:
            remove_search(plan.folder)
        if plan.settings.sampler == "population":
            _evolve(plan, resume=options.resume)
        else:
            _search(plan, resume=options.resume)
    except KeyboardInterrupt:
        logger.info("Interrupted. Continue the search with --resume.")
    except (TrainerError, OSError) as error:
        logger.error(error)
        return 1
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="mlagents-search",
        description="Find better settings for a task with many short runs.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("config", type=Path, metavar="CONFIG", help="YAML file with a key `search`")
    parser.add_argument("--version", action="version", version=f"mlagents-next {__version__}")
    add_completion(parser)
    search = parser.add_argument_group("search")
    search.add_argument(
        "--run-id", default="search", metavar="NAME", help="name of the search (default: search)"
    )
    search.add_argument(
        "--results-dir",
        type=Path,
        default=Path("results"),
        metavar="FOLDER",
        help="folder that contains the folder of the search (default: %(default)s)",
    )
    search.add_argument(
        "--trials", type=count, metavar="N", help="number of trials; overrides search.trials"
    )
    search.add_argument(
        "--jobs",
        type=count,
        default=n_cpus(),
        metavar="N",
        help="number of runs in parallel (default: the number of CPUs, %(default)s)",
    )
    add_set(search)
    begin = search.add_mutually_exclusive_group()
    begin.add_argument("--resume", action="store_true", help="continue the search of this name")
    begin.add_argument(
        "--force", action="store_true", help="delete an earlier search of this name first"
    )
    add_flags(parser, "environment", "Unity engine", "PyTorch")
    return parser


def _plan(options: argparse.Namespace) -> Plan:
    file = find_configuration(options.config)
    settings = nested(vars(options))
    settings["checkpoint_settings"] = {"run_id": options.run_id}
    line = CommandLine(file, settings, changes=tuple(options.set))
    folder = options.results_dir / options.run_id
    return make_plan(
        read_configuration(file), line, folder, jobs=options.jobs, trials=options.trials
    )


def _search(plan: Plan, *, resume: bool) -> None:
    search = Search(plan, resume=resume)
    settings = plan.settings
    logger.info(
        f"Searching {len(settings.space)} settings by {settings.trials} trials, {plan.jobs} at a "
        f"time, in {plan.folder}."
    )
    confirmed: list[float] = []
    try:
        search.run()
        if search.best is not None:
            logger.info(f"Judging trial {search.best.trial.number} by runs with fresh seeds.")
            confirmed = search.confirm(search.best)
    finally:
        report = write_report(plan, search.results, search.importances(), confirmed)
        logger.info(f"Report: {report}")
    if search.best is None:
        logger.warning("No trial has a value, so there are no best settings.")
        return
    _show_best(plan, search.best, confirmed)


def _show_best(plan: Plan, best: Result, confirmed: list[float]) -> None:
    in_search = f"{plan.in_words(best.value)} in the search, the best of {plan.settings.trials}"
    if confirmed:
        mean, deviation = float(np.mean(confirmed)), float(np.std(confirmed))
        judged = (
            f"{plan.in_words(mean)} ± {deviation:.3g} in {len(confirmed)} runs with fresh seeds"
        )
    else:
        judged = "not judged by runs with fresh seeds"
    words = values_in_words(best.trial.values)
    comment = (
        f"Found by mlagents-search, trial {best.trial.number}: {words}.\n{judged};\n{in_search}."
    )
    file = write_best(plan, best.trial.values, comment)
    logger.info(f"Best: {words}\n  {judged}\n  {in_search}")
    learn = [*program("mlagents-learn"), str(file), "--run-id", f"{plan.folder.name}-best"]
    logger.info(f"Next:\n  to train with the best settings:\n    {command(*learn)}")


def _evolve(plan: Plan, *, resume: bool) -> None:
    evolution = Evolution(plan, resume=resume)
    evolution.run()
    best = evolution.best
    file = write_best(
        plan,
        best.values,
        f"Found by mlagents-search with a population: the last settings of member {best.number}, "
        f"which reached {plan.in_words(best.value)}.\nThey changed while it learned; see "
        "population.json.",
    )
    logger.info(
        f"Best: member {best.number}, {plan.in_words(best.value)}, with "
        f"{values_in_words(best.values)}.\n  Its last settings: {file}\n"
        f"  Its models: {plan.folder / best.name}"
    )


if __name__ == "__main__":
    sys.exit(main())
