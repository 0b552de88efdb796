"""Networks: observations to encodings to distributions of actions and to values."""
