"""Creatures of rigid bodies and joints that move as in Unity's physics engine."""
