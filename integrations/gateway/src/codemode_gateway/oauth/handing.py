"""Hands what a browser has brought to the process that waits for it: the host that it came to may be another.

Whoever leads a sign-in keeps its URL in a file of the folder that the gateways share, and looks for the answer there.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from codemode.data.narrowing import is_object

from .browser_binding import BoundSignIn, bound_sign_in, state_of
from .pages import DECLINED, OTHER_BROWSER, SIGNED_IN
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


def is_state(said: str, expected: str | None) -> bool:
    """Compare in a time that tells nothing."""
    return expected is not None and secrets.compare_digest(said.encode(), expected.encode())


def hand_over(folder: Path, query: str, cookies: Mapping[str, str]) -> str | None:
    """Leave a query for the process whose sign-in it ends, and return what to tell; None where there is none.

    Raises `OSError`. Blocks.
    """
    said = said_in(query)
    for path, sign_in in () if said is None else _sign_ins(folder):
        if said is not None and is_state(said["state"], state_of(sign_in.url)):
            if not sign_in.is_begun_by(cookies):
                return OTHER_BROWSER
            write_private(brought_beside(path), query)
            return DECLINED if "error" in said else SIGNED_IN
    return None


def find_ticket(folder: Path, ticket: str) -> BoundSignIn | None:
    """Return the sign-in of a start page that another process leads; None where there is none. Blocks."""
    return next((sign_in for _, sign_in in _sign_ins(folder) if sign_in.has_ticket(ticket)), None)


def _sign_ins(folder: Path) -> Iterator[tuple[Path, BoundSignIn]]:
    for path in islice(folder.glob("*.url"), _MOST_SIGN_INS) if folder.exists() else ():
        said = _read(path)
        sign_in = bound_sign_in(said)
        if sign_in is not None and float(said.get("until", 0)) > time.time():
            yield path, sign_in


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
