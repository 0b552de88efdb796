"""Settings of training: models of every YAML key, and how they are read and written."""
