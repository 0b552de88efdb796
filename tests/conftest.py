"""What holds for all tests."""

import os

# Before anything imports torch: the networks here are small, and threads only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
