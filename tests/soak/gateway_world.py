"""What the calls of `tests.soak.gateways` change, what is known of it, and what everybody thinks of each."""

from __future__ import annotations

import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.soak.pause_hosts import Lines


def key_of(value: Mapping[str, Any]) -> str:
    """The name of a call, by its input."""
    return f"{value['run']}.{value['number']}"


def verdict_on(value: Mapping[str, Any]) -> str:
    """What everybody thinks of a call: "deny", "edit" or "allow"."""
    return ("deny", "edit", "allow", "allow", "allow")[zlib.crc32(key_of(value).encode()) % 5]


def edited(value: Mapping[str, Any]) -> dict[str, Any]:
    """The input with which a call runs that is allowed."""
    return {**value, "edited": True} if verdict_on(value) == "edit" else dict(value)


class World:
    """What is known of the calls: lines of a file that only grows."""

    def __init__(self, path: Path) -> None:
        self.lines = Lines(path)
        self._read_file = path.open()
        self.effects: dict[str, list[Any]] = defaultdict(list)
        self._began: dict[str, list[int]] = defaultdict(list)
        self._ended: Counter[tuple[str, int]] = Counter()
        self.shops: set[int] = set()
        self.latest: int | None = None

    def look(self) -> None:
        """Read what is new."""
        for kind, value, pid in map(json.loads, self._read_file.readlines()):
            if kind == "effect":
                self.effects[key_of(value)].append(value)
                self.latest = pid
            elif kind == "began":
                self._began[key_of(value)].append(pid)
            elif kind == "ended":
                self._ended[key_of(value), pid] += 1
            else:
                self.shops.add(pid)

    def found_out(self, value: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what became of a call; None while a process that is alive may be at it.

        One that has not begun may have been on its way: nobody may say that it is to be made again.
        """
        self.look()
        key = key_of(value)
        if key in self.effects:
            return {"value": f"done {key}"}
        began = Counter(self._began.get(key, ()))
        if any(count > self._ended[key, pid] and Path(f"/proc/{pid}").exists() for pid, count in began.items()):
            return None
        return {"runAgain": True} if began else {"error": {"message": "nobody knows"}}

    def close(self) -> None:
        """Read no more."""
        self._read_file.close()
        self.lines.close()
