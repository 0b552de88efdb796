"""What surrounds an algorithm: when to update, what to save, what to export."""
