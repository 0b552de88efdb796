"""What holds for all tests."""

import os

from hypothesis import settings

# Before anything imports torch: the networks here are small, and threads only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples in every run, however slow the machine; look for new ones on purpose, with
# `--hypothesis-profile=default`.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")
