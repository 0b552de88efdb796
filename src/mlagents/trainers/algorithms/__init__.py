"""Learning algorithms, one file each, and the pure functions they share."""
