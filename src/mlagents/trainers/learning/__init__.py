"""Learning: experience in, snapshots of a better policy out."""
