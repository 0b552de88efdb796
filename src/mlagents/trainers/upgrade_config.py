"""`python -m mlagents.trainers.upgrade_config`, at its original import path."""

import sys

from mlagents.tools.upgrade_config import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
