"""Find known names similar to an unknown one, with bounded work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from heapq import nlargest

MAX_NEAREST = 3
_MAX_COMPARED = 16
_CUTOFF = 0.6
# How many times as long a name may be and be near: what is less alike than 0.4 never is.
_MAX_LENGTH_RATIO = 4


def find_nearest_names(name: str, known: Iterable[str], cutoff: float = _CUTOFF) -> list[str]:
    """Return at most three of the known names that resemble ``name``, best first.

    ``cutoff`` is how like they must be, as `difflib` has it: from 0.8 on, one letter in five may be another.
    """
    pairs, max_length = _get_character_pairs(name), _MAX_LENGTH_RATIO * len(name)

    def compute_similarity(other: str) -> float:
        if len(other) > max_length:
            return 0.0
        other_pairs = _get_cached_character_pairs(other)
        return len(pairs & other_pairs) / (len(pairs) + len(other_pairs) or 1)

    from difflib import get_close_matches  # late: most names are known

    # A real comparison takes up to a fifth of a millisecond, and a thousand tools are no rarity.
    candidates = nlargest(_MAX_COMPARED, known, key=compute_similarity)
    return get_close_matches(name, candidates, n=MAX_NEAREST, cutoff=cutoff)


def format_suggestion(near: Sequence[str]) -> str:
    """Return the question that is added to a message about an unknown name; nothing where no name is near."""
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def _get_character_pairs(text: str) -> frozenset[str]:
    """Return the pairs of neighbouring characters, the edges included."""
    padded = f" {text} "
    return frozenset(padded[index : index + 2] for index in range(len(padded) - 1))


_get_cached_character_pairs = lru_cache(maxsize=2048)(_get_character_pairs)
