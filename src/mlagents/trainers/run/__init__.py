"""One run: its loop, its folder, its lessons, its end."""
