"""Fleets of agents: in this process, or in rollout workers."""
