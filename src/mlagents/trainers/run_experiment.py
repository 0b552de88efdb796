"""`mlagents-run-experiment`: a run of which one file says everything."""

from mlagents_envs.interrupts import ends_quietly

with ends_quietly():
    import argparse
    import sys
    from collections.abc import Sequence
    from pathlib import Path

    from mlagents.trainers.learn import run
    from mlagents.trainers.settings.typed import CommandLine


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status, as `mlagents-learn` does."""
    parser = argparse.ArgumentParser(
        prog="mlagents-run-experiment",
        description="Train as one file of options says, such as the configuration.yaml of a run.",
        epilog="What flags of mlagents-learn say stands in the file: a run is continued by "
        "`checkpoint_settings: {resume: true}`. All settings: docs/configuration.md",
    )
    parser.add_argument(
        "experiment", type=Path, metavar="FILE", help="YAML or JSON file of all options"
    )
    return run(CommandLine(parser.parse_args(argv).experiment, {}))


if __name__ == "__main__":
    sys.exit(main())
