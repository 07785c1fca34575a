"""What a change of a client's file comes to, as it is shown to a person: a difference without secrets."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codemode.data.narrowing import is_mapping, list_or_empty

from ..config import secret_rules
from ..config.secrets import Secrets
from .texts import FileText


@dataclass(frozen=True)
class Change:
    """What was done to a client's file, or, in a dry run, would be. ``diff`` shows no secret.

    ``moved`` are the servers that went, or came back, by the names that the client has for them. ``backup`` is the
    file as it was, where one was made. ``notes`` are for the person who asked.
    """

    client: str
    path: Path
    is_changed: bool
    diff: str = ""
    moved: tuple[str, ...] = ()
    backup: Path | None = None
    notes: tuple[str, ...] = ()


def difference(texts: Iterable[tuple[FileText, str | None]], servers: Iterable[Any]) -> str:
    """Return the difference of files to their new texts, None for one that goes, without the secrets of servers."""
    lines = list[str]()
    for file, new in texts:
        names = (str(file.path) if file.is_there else "/dev/null", "/dev/null" if new is None else str(file.path))
        lines += difflib.unified_diff(file.text.splitlines(), (new or "").splitlines(), *names, lineterm="")
    shown = "\n".join(lines)
    return Secrets(_secrets(servers)).text(shown)


def _secrets(servers: Iterable[Any]) -> set[str]:
    found = set[str]()
    for entry in filter(is_mapping, servers):
        for key in ("headers", "http_headers", "httpHeaders"):
            found |= secret_rules.of_headers(_texts(entry.get(key)))
        for key in ("env", "environment"):
            found |= secret_rules.of_env(_texts(entry.get(key)), ())
        for key in ("auth", "oauth"):
            found |= secret_rules.long_enough(_texts(entry.get(key)).values())
        found |= secret_rules.of_args([one for one in list_or_empty(entry.get("args")) if isinstance(one, str)])
        urls = [entry.get(key) for key in ("url", "serverUrl", "httpUrl")]
        found |= {part for url in urls if isinstance(url, str) for part in secret_rules.of_url(url)}
    return found


def _texts(value: Any) -> dict[str, str]:
    return {key: one for key, one in value.items() if isinstance(one, str)} if is_mapping(value) else {}
