"""Algorithms, each a file that reads like its paper, and the pure functions they are made of."""
