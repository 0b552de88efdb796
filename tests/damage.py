"""Random damage to bytes."""

import random
from collections.abc import Sequence


def damaged(data: bytes, rng: random.Random, spare: Sequence[bytes] = ()) -> bytes:
    """Change a few bytes, mostly in place; also remove, repeat or insert some, or cut the rest off.

    Args:
        data: What to change.
        rng: Source of randomness.
        spare: What may be inserted beside random bytes.
    """
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(changed))
        end = min(len(changed), at + rng.choice([1, 1, 2, 4, 20]))
        kind = rng.randrange(12)
        if kind == 0:
            del changed[at:end]
        elif kind == 1:
            changed[at:at] = rng.choice([rng.randbytes(4), changed[at:end], *spare])
        elif kind == 2:
            del changed[at:]
        elif kind < 6:
            changed[at:end] = rng.randbytes(end - at)
        elif at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
    return bytes(changed)
