"""Learning: turns experience into snapshots of better policies."""
