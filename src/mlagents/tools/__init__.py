"""Small commands beside training: carry a run to a hub and back, renew an old configuration."""
