"""Rollout: environments are stepped and their agents' steps become segments of experience."""
