"""`mlagents-push-to-hf`, at the import path it always had."""

from mlagents.tools.hub import push as main

__all__ = ["main"]
