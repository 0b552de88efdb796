"""`mlagents-load-from-hf`, at the import path it always had."""

from mlagents.tools.hub import load as main

__all__ = ["main"]
