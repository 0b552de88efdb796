"""Experience: decisions, segments, replay buffer, demonstrations and snapshots."""
