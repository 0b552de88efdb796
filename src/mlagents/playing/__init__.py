"""Play with exported models, without PyTorch: episodes, films and tournaments."""
