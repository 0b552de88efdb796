"""Optimized code. A readable form of it is elsewhere and is the reference in tests."""
