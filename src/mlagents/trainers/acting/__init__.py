"""Acting: snapshots decide for agents, and what follows is collected. Nothing here learns."""
