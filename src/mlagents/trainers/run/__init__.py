"""A run: its loop, folder, lessons, evaluations, saving and resuming."""
