"""The classic tasks, one world a file; `mlagents_sim.catalog` knows them by name."""
