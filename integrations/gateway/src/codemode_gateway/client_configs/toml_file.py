"""The servers in Codex' TOML file: read, taken out for the gateway, put back. Knows texts, no files."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ..config.values import ConfigError
from .json_edits import Edit, edited
from .toml_statements import Statement, statements


@dataclass(frozen=True)
class TomlFile:
    """A text with a table of servers of the name ``keys[0]``."""

    keys: tuple[str, ...]

    def servers(self, text: str) -> dict[str, Any]:
        found = tomllib.loads(text).get(self.keys[0], {})
        if not isinstance(found, dict):
            raise ConfigError(f"{self.keys[0]} is no table, so that no server can be there; mend it by hand")
        return cast("dict[str, Any]", found)

    def inputs(self, text: str) -> list[Any]:
        """Return nothing: Codex asks its user for nothing."""
        del text
        return []

    def put(self, text: str, moved: Collection[str], name: str, entry: Mapping[str, Any]) -> str:
        """Return the text with ``entry`` in the place of the servers that are ``moved``."""
        if self.servers(text).get(name) == entry:
            return edited(text, [(start, _behind(text, end), "") for start, end, _ in self._spans(text, moved)])
        return self._placed(text, {*moved, name}, self._written(text, name, entry))

    def restored(self, text: str, before: str, name: str, names: Collection[str]) -> str:
        """Return the text with the servers ``names`` of the text ``before`` in the place of the gateway ``name``."""
        tables = [before[start:end] for start, end, is_table in self._spans(before, names) if is_table]
        lines = [before[start:end] for start, end, is_table in self._spans(before, names) if not is_table]
        if lines:
            # Without a table they belong to whatever comes before; only their file as it was has the place for them.
            raise ConfigError("its servers were written without a table each; put them back by hand, from the backup")
        newline = _newline(text)
        return self._placed(text, {name}, newline.join(one.rstrip("\r\n") + newline for one in tables))

    def _placed(self, text: str, gone: Collection[str], new: str) -> str:
        spans = self._spans(text, gone)
        edits: list[Edit] = [(start, _behind(text, end), "") for start, end, _ in spans]
        place = next((index for index, (_, _, is_table) in enumerate(spans) if is_table), None)
        if place is not None:
            start, end, _ = spans[place]
            edits[place] = (start, end, new)
            return edited(text, edits)
        left = edited(text, edits)
        newline = _newline(text)
        gap = "" if not left or left.endswith(newline * 2) else newline if left.endswith(("\n", "\r")) else newline * 2
        return left + (gap + new if new else "")

    def _spans(self, text: str, names: Collection[str]) -> list[tuple[int, int, bool]]:
        """Return the parts of the text about the servers, and whether each is a table of its own."""
        found, table = list[tuple[int, int, bool]](), False
        for one in statements(text):
            is_meant = self._is_about(one, names)
            if one.is_header:
                table = is_meant
            if not is_meant:
                continue
            if table and not one.is_header and found:
                found[-1] = (found[-1][0], one.end, True)
            else:
                found.append((one.start, one.end, one.is_header))
        return found

    def _is_about(self, one: Statement, names: Collection[str]) -> bool:
        if one.keys[0] != self.keys[0]:
            return False
        # A whole inline table goes: it can have no server added elsewhere.
        return not one.is_header if len(one.keys) == 1 else one.keys[1] in names

    def _written(self, text: str, name: str, entry: Mapping[str, Any]) -> str:
        lines = [f"[{self.keys[0]}.{name}]", *(f"{key} = {_value(one)}" for key, one in entry.items())]
        newline = _newline(text)
        return newline.join(lines) + newline


def _behind(text: str, end: int) -> int:
    """Return where the blank lines behind a table end: without it they would pile up."""
    found = re.compile(r"(?:[ \t]*(?:\r\n|\n))*").match(text, end)
    return found.end() if found else end


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _value(value: Any) -> str:
    """Return a text, a number or an array of them as TOML has it: as JSON, but for one control character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
