"""Players of a run: processes that simulate an environment, and environments in this process."""
