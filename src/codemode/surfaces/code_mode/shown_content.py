"""Results with images, audio and files, for hosts that show them to a model by themselves."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from ...data.content import Content
from ...data.json_values import canonical_json


def with_content(shown: dict[str, Any], parts: Sequence[Content]) -> dict[str, Any]:
    """Return what is shown with these parts beside it: ``{"type": "content", "value": [text, media, ...]}``.

    In the text a part is a description with its number, ``content``, from 1. Without parts it stays as it is.
    """
    if not parts:
        return shown
    value = shown["value"]
    text = value if shown["type"] == "text" else canonical_json(value)
    media = [{"type": "media", "mediaType": one.mime_type, "data": b64encode(one.data).decode()} for one in parts]
    return {"type": "content", "value": [{"type": "text", "text": text}, *media]}
