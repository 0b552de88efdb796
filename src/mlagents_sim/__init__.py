"""The simulation side: native worlds, and a player that serves any `BaseEnv` on the wire."""
