"""Hands what a browser has brought to the process that waits for it: the host that it came to may be another.

Whoever leads a sign-in keeps its URL in a file of the folder that the gateways share, and looks for the answer there.
"""

from __future__ import annotations

import json
import secrets
import time
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from ...data.narrowing import is_object
from .private_files import read_private, write_private

LONGEST_QUERY = 1 << 13
_MOST_BYTES = 1 << 14
_MOST_SIGN_INS = 1000


def said_in(query: str) -> dict[str, str] | None:
    """Return what a redirect says; None for one that is neither an answer nor a refusal."""
    if len(query) > LONGEST_QUERY:
        return None
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=32)
    except ValueError:
        return None
    said = dict(pairs)
    if len(said) != len(pairs) or not said.get("state") or not ("error" in said or said.get("code")):
        return None
    return said


def state_of(url: str) -> str | None:
    """Return the state in the URL of a sign-in."""
    return dict(parse_qsl(urlsplit(url).query)).get("state")


def is_state(said: str, expected: str | None) -> bool:
    """Compare in a time that tells nothing."""
    return expected is not None and secrets.compare_digest(said.encode(), expected.encode())


def hand_over(folder: Path, query: str) -> dict[str, str] | None:
    """Leave a query for the process whose sign-in it ends, and return what it says; None where there is none.

    Raises `OSError`. Blocks.
    """
    said = said_in(query)
    if said is None or not folder.exists():
        return None
    for path in islice(folder.glob("*.url"), _MOST_SIGN_INS):
        shown = _read(path)
        if float(shown.get("until", 0)) > time.time() and is_state(said["state"], state_of(str(shown.get("url", "")))):
            write_private(brought_beside(path), query)
            return said
    return None


def brought_beside(url_file: Path) -> Path:
    """Return the file in which the answer to a sign-in is left."""
    return url_file.with_suffix(".brought")


def brought(url_file: Path) -> str | None:
    """Take the query that was left for a sign-in; None where there is none."""
    path = brought_beside(url_file)
    try:
        query = read_private(path, _MOST_BYTES)
    except OSError:
        query = ""
    if query is not None:
        path.unlink(missing_ok=True)
    return query or None


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_private(path, _MOST_BYTES) or "null")
    except (OSError, ValueError):
        return {}
    return found if is_object(found) else {}
