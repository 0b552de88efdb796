"""Experience on its way from rollout to learning, and the ids it is filed under."""
