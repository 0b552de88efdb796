"""Optimized code. Its readable form is elsewhere and serves as the reference in tests."""
