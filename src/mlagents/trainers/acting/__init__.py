"""Acting: snapshots decide for agents, and collectors record the experience. Nothing learns."""
