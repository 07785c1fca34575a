"""Whether two texts of an input mean the same. Pure."""

from __future__ import annotations

import re

_MAX_COMPARED_CHARACTERS = 1 << 18  # a few milliseconds of the event loop
_STRING_OR_FRACTION = re.compile(r'"(?:[^"\\]|\\.)*"|[0-9]+(?:\.[0-9]+(?:e[+-]?[0-9]+)?|e[+-]?[0-9]+)')


def means_the_same(recorded: str | None, now: str | None) -> bool:
    """Compare two inputs. A host that wrote one itself and the engine may write a number with other digits."""
    if recorded == now or recorded is None or now is None:
        return recorded == now
    if max(len(recorded), len(now)) > _MAX_COMPARED_CHARACTERS:
        return False
    first, second = (_STRING_OR_FRACTION.sub(_shortest, text) for text in (recorded, now))
    return first == second


def _shortest(found: re.Match[str]) -> str:
    text = found[0]
    return text if text.startswith('"') else repr(float(text))
