"""Search for better settings: `mlagents-search`."""
