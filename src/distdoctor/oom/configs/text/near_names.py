"""Keys that nobody reads because of a slip: the known name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

# Of a section with more keys than this the first are looked at: no configuration of people has so many.
MAX_KEYS = 400

# Letters more or less that a slip makes. Our own bound.
MAX_LETTERS = 2

# Of two keys this alike one is nearly always a slip of the other (`zero_optimisation`); our own bound, on difflib's ratio.
ALIKE = 0.84


def near_name(key: str, known: Iterable[str]) -> str | None:
    """The known key that `key` is probably a slip of; None when it is known, or like none."""
    names = list(known)
    if key in names or key.startswith(("_", "#", "//")) or len(key) < 4 or len(key) > 80:
        return None
    lowered = {name.lower().replace("-", "_"): name for name in names}
    plain = key.lower().replace("-", "_").strip()
    if plain in lowered:
        return lowered[plain]
    found = get_close_matches(plain, lowered, n=1, cutoff=ALIKE)
    # A slip loses or doubles a letter; a word more or less is another key, perhaps of a newer version.
    return lowered[found[0]] if found and abs(len(found[0]) - len(plain)) <= MAX_LETTERS else None
