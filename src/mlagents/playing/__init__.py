"""Acts by exported models, and counts and films the episodes; needs no PyTorch."""
