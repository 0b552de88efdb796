"""`mlagents-run-experiment`: runs training from a single file of options."""

from mlagents_envs.completion import add_completion
from mlagents_envs.interrupts import ends_quietly

with ends_quietly():
    import argparse
    import sys
    from collections.abc import Sequence
    from pathlib import Path

    from mlagents.trainers.learn import run
    from mlagents.trainers.settings.typed import CommandLine


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return an exit status, as `mlagents-learn` does."""
    parser = argparse.ArgumentParser(
        prog="mlagents-run-experiment",
        description="Train with the options of one file, such as the configuration.yaml of a run.",
        epilog="The file replaces all flags of mlagents-learn. For example, write "
        "`checkpoint_settings: {resume: true}` to continue a run. All settings: "
        "docs/configuration.md",
    )
    parser.add_argument(
        "experiment", type=Path, metavar="FILE", help="YAML or JSON file of all options"
    )
    add_completion(parser)
    return run(CommandLine(parser.parse_args(argv).experiment, {}))


if __name__ == "__main__":
    sys.exit(main())
