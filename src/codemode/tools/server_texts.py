"""Texts of servers about themselves and their tools, as plain values of bounded size. Knows no server and no tool.

A server may be a stranger's: a text of its, however long or odd, costs the other servers of a run nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from ..data.json_values import encode_json
from ..host import steps
from ..trace.visible_text import clipped

MAX_NAME_CHARACTERS = 256
MAX_DESCRIPTION_CHARACTERS = 16_000
MAX_CAPABILITIES = 64
MAX_ANNOTATIONS = 64
MAX_ANNOTATION_BYTES = 4_000
_MAX_ANNOTATION_VALUES = 200


def plain_text(said: Any, most: int = MAX_NAME_CHARACTERS) -> str | None:
    """Return a text in at most so many characters, none of whose methods is its author's; None for what is none."""
    if not isinstance(said, str):
        return None
    return clipped(str.__str__(said), most) or None


def plain_texts(said: Iterable[Any]) -> tuple[str, ...]:
    """Return the texts of a list, the first of them."""
    texts = (plain_text(one) for one in said)
    return tuple(islice((one for one in texts if one is not None), MAX_CAPABILITIES))


def plain_annotations(given: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the annotations that are small JSON, as such."""
    kept: dict[str, Any] = {}
    for name, value in islice(given.items(), MAX_ANNOTATIONS):
        steps.take()
        plain = plain_text(name)
        if plain is None:
            continue
        try:
            text = encode_json(
                value, max_bytes=MAX_ANNOTATION_BYTES, max_values=_MAX_ANNOTATION_VALUES, what="an annotation"
            )
            kept[plain] = json.loads(text)
        except Exception:  # noqa: BLE001, S112 - one that cannot be told costs the others nothing
            continue
    return kept
