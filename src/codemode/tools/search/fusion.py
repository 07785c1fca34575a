"""One list made of what words found and of what meaning found. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .index import Found

_MEANING = 0.7
_MEANING_FOREIGN = 0.3
_RANK = 0.5  # what being early in both lists counts beside the scores
_RANK_HALVES_AT = 10
_PLACES = 6
_ALMOST_ONE = 0.999  # 1 is for a tool whose very name was asked for


def fused(
    worded: Sequence[Found], meant: Sequence[tuple[int, float]], limit: int, *, is_foreign: bool = False
) -> list[Found]:
    """Return at most ``limit`` tools of both lists, each in order: positions with scores up to 1.

    ``is_foreign`` says that the words had to be translated: models mostly know the language of the tools best.
    Scores of words and cosines are of different scales: each counts as a part of the best of its list.
    """
    most_worded = max((one.score for one in worded if one.score < 1), default=0.0) or 1.0
    meaning = _MEANING_FOREIGN if is_foreign else _MEANING
    most_meant = max((cosine for _, cosine in meant), default=0.0)
    if most_meant <= 0:
        return list(worded[:limit])
    sums: dict[int, float] = {}
    for rank, (position, score) in enumerate(worded):
        sums[position] = score / most_worded + _of_rank(rank)
    for rank, (position, cosine) in enumerate(meant):
        sums[position] = sums.get(position, 0.0) + meaning * (max(cosine, 0.0) / most_meant + _of_rank(rank))
    most = min(max(most_meant, most_worded if worded else 0.0), _ALMOST_ONE)
    scale = most / ((1 + meaning) * (1 + _RANK))
    named = {one.position for one in worded if one.score == 1}
    found = [Found(at, 1.0 if at in named else round(min(total * scale, most), _PLACES)) for at, total in sums.items()]
    return sorted(found, key=lambda one: (-one.score, one.position))[:limit]


def _of_rank(rank: int) -> float:
    return _RANK * _RANK_HALVES_AT / (_RANK_HALVES_AT + rank)
