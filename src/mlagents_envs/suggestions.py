"""Suggestions of similar names, for error messages."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[str], *, n: int = 1, cutoff: float = 0.6) -> str:
    """Return `; did you mean 'x'?` for the closest known names, or an empty string.

    The comparison ignores case.

    Args:
        name: Name that the user gave.
        known: Valid names.
        n: Largest number of names to suggest.
        cutoff: Smallest similarity of a name, from 0 to 1.
    """
    spelled = {other.casefold(): other for other in known}
    nearest = difflib.get_close_matches(str(name).casefold(), spelled, n=n, cutoff=cutoff)
    return f"; did you mean {' or '.join(repr(spelled[each]) for each in nearest)}?" * bool(nearest)
