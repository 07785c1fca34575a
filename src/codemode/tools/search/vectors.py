"""Vectors that somebody else has made of texts, and which of them are near. Plain Python; knows no texts."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from heapq import nlargest
from operator import mul
from typing import Any, NamedTuple, cast

from ...host import steps

MAX_DIMENSION = 1 << 14
_LOOKED_AT = 512  # so many of the nearest by sign alone are compared in full
_NUMBERS_OF_A_STEP = 256
_ROWS_OF_A_STEP = 64


class Vector(NamedTuple):
    """A direction: numbers of length 1 together, or of length 0, and which of them are above 0, as bits."""

    numbers: array[float]
    signs: int


def vectors_of(given: Any, count: int, dimension: int | None) -> list[Vector]:
    """Return what was given as vectors. Raises `ValueError` unless they are ``count`` rows of ``dimension`` numbers."""
    rows = _listed(given)
    if len(rows) != count:
        raise ValueError(f"it gave {len(rows)} vectors for {count} texts")
    vectors: list[Vector] = []
    for row in rows:
        numbers = _listed(row)
        steps.take(1 + len(numbers) // _NUMBERS_OF_A_STEP)
        if not numbers:
            raise ValueError("it gave a vector without numbers")
        dimension = dimension or len(numbers)
        if len(numbers) != dimension or dimension > MAX_DIMENSION:
            raise ValueError(f"it gave a vector of {len(numbers)} numbers, not of {dimension}")
        vectors.append(_direction(numbers))
    return vectors


def _listed(given: Any) -> list[Any]:
    to_list = getattr(given, "tolist", None)  # of numpy, which need not be here
    held = to_list() if callable(to_list) else given
    if not isinstance(held, Sequence | array) or isinstance(held, str | bytes | bytearray):
        raise ValueError(f"it gave a {type(given).__name__}, not a list of vectors of numbers")  # noqa: TRY004
    return list(cast("Iterable[Any]", held))


def _direction(numbers: list[Any]) -> Vector:
    for number in numbers:
        if isinstance(number, bool) or not hasattr(number, "__float__"):
            raise ValueError(f"it gave a vector with a {type(number).__name__} in it")
    try:
        floats = list(map(float, numbers))
    except OverflowError:
        raise ValueError("it gave a vector with a number without bounds") from None
    most = max(map(abs, floats))
    if not math.isfinite(sum(map(abs, floats))) and not all(map(math.isfinite, floats)):
        raise ValueError("it gave a vector with a number that is not finite")
    # By the largest first: squares of what is very large or very small are not numbers any more.
    scaled = [number / most for number in floats] if most else floats
    length = math.sqrt(sum(map(mul, scaled, scaled))) or 1.0
    signs = "".join("1" if number > 0 else "0" for number in scaled)
    return Vector(array("f", [number / length for number in scaled]), int(signs, 2))


def nearest(to: Vector, vectors: Sequence[Vector], among: Iterable[int], limit: int) -> list[tuple[int, float]]:
    """Return places in ``vectors`` and their cosines, the nearest first; where there are very many, almost surely."""
    places = list(among)
    if len(places) > _LOOKED_AT:
        steps.take(len(places) // _ROWS_OF_A_STEP)
        signs = to.signs
        apart = sorted([((signs ^ vectors[place].signs).bit_count(), place) for place in places])
        places = [place for _, place in apart[: max(_LOOKED_AT, 4 * limit)]]
    cosines: list[tuple[float, int]] = []
    for place in places:
        steps.take(1 + len(to.numbers) // _NUMBERS_OF_A_STEP)
        cosines.append((sum(map(mul, to.numbers, vectors[place].numbers)), -place))
    return [(-place, cosine) for cosine, place in nlargest(limit, cosines)]
