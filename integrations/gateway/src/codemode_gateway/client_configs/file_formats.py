"""Edit the servers in JSON and TOML files of clients without changing the rest."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from ..config.config_file import SPACE_PATTERN, JsonMember, JsonNode, parse_jsonc
from ..config.model import ConfigError

_REST_OF_LINE = re.compile(r"[ \t]*(?://[^\r\n]*|(?:/\*[^\r\n]*?\*/[ \t]*)+(?=[\r\n]))?")

Edit = tuple[int, int, str]


# Some clients store much in this file, and each step of a change parses the same text.
_parse_cached = lru_cache(maxsize=2)(parse_jsonc)


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """Return the text with each span replaced. Spans must not overlap."""
    for start, end, replacement in sorted(edits, reverse=True):
        text = text[:start] + replacement + text[end:]
    return text


@dataclass(frozen=True)
class JsonDocument:
    """A parsed text for editing: its root, its newline, and one step of its indentation."""

    text: str
    root: JsonNode
    newline: str
    indent_step: str

    @classmethod
    def parse(cls, text: str) -> JsonDocument:
        """Parse a text; a blank one is an empty object. Raises `JsonError`."""
        text = text if text.strip() else "{}\n"
        root = _parse_cached(text).root
        newline = "\r\n" if "\r\n" in text else "\n"
        first = root.members[0].start if root.members else 0
        return cls(text, root, newline, _get_blanks_before(text, first) or "  ")

    def find(self, keys: Sequence[str]) -> JsonNode | None:
        """Return the value at the path ``keys``, or None."""
        node: JsonNode | None = self.root
        for key in keys:
            node = node.get(key) if node else None
        return node

    def create_text_with_member(self, keys: Sequence[str], name: str, value: Any) -> str:
        """Return the text with a member appended to the object at ``keys``, which is created if missing."""
        depth, node = 0, self.root
        while depth < len(keys) and (child := node.get(keys[depth])) is not None:
            depth, node = depth + 1, child
        first, *further_keys = [*keys[depth:], name]
        for key in reversed(further_keys):
            value = {key: value}
        return self._create_text_with_last_member(node, first, value)

    def create_text_with_items(self, key: str, values: Sequence[Any]) -> str:
        """Return the text with values appended to the root's array ``key``, which is created if missing."""
        node = self.root.get(key)
        if node is None:
            return self.create_text_with_member((), key, list(values))
        new_items = ", ".join(json.dumps(value, ensure_ascii=False) for value in values)
        position, comma = (node.items[-1].end, ", ") if node.items else (node.start + 1, "")
        return apply_edits(self.text, [(position, position, f"{comma}{new_items}")])

    def _create_text_with_last_member(self, node: JsonNode, name: str, value: Any) -> str:
        if not node.members:
            return self._create_text_with_first_member(node, name, value)
        last = node.members[-1]
        comma = self._find_comma(last)
        end = last.node.end if comma is None else comma + 1
        if "\n" not in self.text[node.start : node.end]:
            new_text = f"{', ' if comma is None else ' '}{self.format_member(name, value, None)}"
            return apply_edits(self.text, [(end, end, new_text)])
        indent = self._compute_member_indent(last, node)
        rest_of_line = _REST_OF_LINE.match(self.text, end)
        position = rest_of_line.end() if rest_of_line else end
        new_text = f"{self.newline}{indent}{self.format_member(name, value, indent)}"
        if comma is not None:
            return apply_edits(self.text, [(position, position, f"{new_text},")])
        return apply_edits(self.text, [(end, position, f",{self.text[end:position]}{new_text}")])

    def _create_text_with_first_member(self, node: JsonNode, name: str, value: Any) -> str:
        outer = self._get_line_indent(node.start)
        indent = outer + self.indent_step
        inside = self.text[node.start + 1 : node.end - 1]
        new_text = f"{self.newline}{indent}{self.format_member(name, value, indent)}"
        if not inside.strip():
            return apply_edits(self.text, [(node.start + 1, node.end - 1, f"{new_text}{self.newline}{outer}")])
        # A comment after the bracket moves to its own line.
        gap = "" if inside.lstrip(" \t").startswith(("\r", "\n")) else f"{self.newline}{indent}"
        return apply_edits(self.text, [(node.start + 1, node.start + 1, new_text + gap)])

    def format_member(self, name: str, value: Any, indent: str | None) -> str:
        """Return a member as text with indented lines, or on one line if ``indent`` is None."""
        key = json.dumps(name, ensure_ascii=False)
        if indent is None:
            return f"{key}: {json.dumps(value, ensure_ascii=False)}"
        lines = json.dumps(value, ensure_ascii=False, indent=self.indent_step).split("\n")
        return f"{key}: " + f"{self.newline}{indent}".join(lines)

    def create_remove_or_replace_edits(
        self, node: JsonNode, names: Collection[str], instead: Mapping[str, str]
    ) -> list[Edit]:
        """Return the edits that remove members, or replace them with the texts of ``instead``. Comments stay."""
        edits = [
            (member.start, member.node.end, instead[member.key]) for member in node.members if member.key in instead
        ]
        remaining = [member for member in node.members if member.key not in names or member.key in instead]
        for member in node.members:
            if member.key in names and member.key not in instead:
                edits += self._create_removal_edits(member)
        is_last_removed = (
            node.members
            and self._find_comma(node.members[-1]) is None
            and remaining
            and remaining[-1] != node.members[-1]
        )
        if is_last_removed and (comma := self._find_comma(remaining[-1])) is not None:
            edits.append((comma, comma + 1, ""))
        return edits

    def _create_removal_edits(self, member: JsonMember) -> list[Edit]:
        comma = self._find_comma(member)
        before = _get_blanks_before(self.text, member.start)
        start = member.start - len(before or "")
        end = member.node.end if comma is None else comma + 1
        parts = [(member.start, member.node.end, "")]
        if comma is not None and not self.text[member.node.end : comma].strip():
            parts = [(member.start, end, "")]
        elif comma is not None:
            parts.append((comma, end, ""))
        following = re.compile(r"[ \t]*(\r\n|\r|\n)").match(self.text, end)
        is_whole_line = before is not None and following is not None and len(parts) == 1
        return [(start, following.end(), "")] if following and is_whole_line else parts

    def _find_comma(self, member: JsonMember) -> int | None:
        space = SPACE_PATTERN.match(self.text, member.node.end)
        position = space.end() if space else member.node.end
        return position if self.text.startswith(",", position) else None

    def _compute_member_indent(self, member: JsonMember, node: JsonNode) -> str:
        blanks = _get_blanks_before(self.text, member.start)
        return self._get_line_indent(node.start) + self.indent_step if blanks is None else blanks

    def get_member_indent(self, member: JsonMember, node: JsonNode) -> str:
        """Return the indentation of a member."""
        return self._compute_member_indent(member, node)

    def _get_line_indent(self, position: int) -> str:
        line = _get_line_before(self.text, position)
        return line[: len(line) - len(line.lstrip(" \t"))]


def _get_line_before(text: str, position: int) -> str:
    return text[max(text.rfind("\n", 0, position), text.rfind("\r", 0, position)) + 1 : position]


def _get_blanks_before(text: str, position: int) -> str | None:
    """Return the white space from the start of the line to ``position``, or None if there is other text."""
    line = _get_line_before(text, position)
    return None if line.strip(" \t") else line


@dataclass(frozen=True)
class JsonServersFormat:
    """A JSON format with the servers at the path ``keys``. Raises `ConfigError` if that is not an object."""

    keys: tuple[str, ...]

    def parse_servers(self, text: str) -> dict[str, Any]:
        node = self._find_servers(JsonDocument.parse(text))
        return {member.key: member.node.to_python() for member in node.members} if node else {}

    def parse_inputs(self, text: str) -> list[Any]:
        """Return the inputs that VS Code asks its user for."""
        node = JsonDocument.parse(text).find((*self.keys[:-1], "inputs"))
        return node.to_python() if node and node.kind == "array" else []

    def replace_servers_with_gateway(
        self, text: str, moved: Collection[str], name: str, entry: Mapping[str, Any]
    ) -> str:
        """Return the text with the gateway's ``entry`` in place of the ``moved`` servers."""
        document = JsonDocument.parse(text)
        node = self._find_servers(document)
        if node is None:
            return document.create_text_with_member(self.keys, name, entry)
        members = {member.key: member for member in node.members}
        target_name = name if name in members else next((member for member in members if member in moved), None)
        if target_name is None:
            return document.create_text_with_member(self.keys, name, entry)
        removed = [member for member in moved if member != target_name]
        is_same = target_name == name and members[name].node.to_python() == entry
        instead = (
            {} if is_same else {target_name: self._format_entry(document, node, members[target_name], name, entry)}
        )
        return apply_edits(document.text, document.create_remove_or_replace_edits(node, removed, instead))

    def restore_servers(self, text: str, original_text: str, name: str, names: Collection[str]) -> str:
        """Return the text with the servers ``names`` from ``original_text`` in place of the gateway ``name``."""
        document, old_document = JsonDocument.parse(text), JsonDocument.parse(original_text)
        node, source = self._find_servers(document), self._find_servers(old_document)
        if node is None:
            return text
        moved = [member for member in (source.members if source else ()) if member.key in names]
        if not moved:
            return apply_edits(document.text, document.create_remove_or_replace_edits(node, [name], {}))
        gateway_member = next(member for member in node.members if member.key == name)
        separator = f",{document.newline}{document.get_member_indent(gateway_member, node)}"
        parts = [old_document.text[member.start : member.node.end] for member in moved]
        return apply_edits(document.text, [(gateway_member.start, gateway_member.node.end, separator.join(parts))])

    def _format_entry(
        self, document: JsonDocument, node: JsonNode, member: JsonMember, name: str, entry: Mapping[str, Any]
    ) -> str:
        is_one_line = "\n" not in document.text[node.start : node.end]
        return document.format_member(name, entry, None if is_one_line else document.get_member_indent(member, node))

    def _find_servers(self, document: JsonDocument) -> JsonNode | None:
        node = document.root
        for depth, key in enumerate(self.keys):
            if node.kind != "object":
                path_text = ".".join(self.keys[:depth]) or "the file"
                raise ConfigError(f"{path_text} is not an object, so it cannot have servers; fix it by hand")
            following = node.get(key)
            if following is None:
                return None
            node = following
        if node.kind != "object":
            raise ConfigError(f"{'.'.join(self.keys)} is not an object, so it cannot have servers; fix it by hand")
        return node


# Finds only the start and end of each statement; `tomllib` validates the text.

_GAP = re.compile(r"(?:[ \t\r\n]+|#[^\r\n]*)*")
_KEY = re.compile(r'[ \t]*(?:([A-Za-z0-9_-]+)|"((?:[^"\\\r\n]|\\.)*)"|\'([^\'\r\n]*)\')[ \t]*')
_PIECE = re.compile(
    r"""
    \"{3}(?:[^\\]|\\.)*?\"{3,5} | '{3}.*?'{3,5}   # multi-line: one or two more quotes belong to the text
    | "(?:[^"\\\r\n]|\\.)*" | '[^'\r\n]*'
    | \#[^\r\n]* | [^"'\#\[\]{}\r\n]+ | .
    """,
    re.DOTALL | re.VERBOSE,
)
_END = re.compile(r"[ \t]*(?:#[^\r\n]*)?(?:\r\n|\r|\n|\Z)")


@dataclass(frozen=True)
class TomlStatement:
    """A TOML statement at ``start`` to ``end``, with its line end. ``keys`` is its full path."""

    start: int
    end: int
    keys: tuple[str, ...]
    is_header: bool


def iterate_toml_statements(text: str) -> Iterator[TomlStatement]:
    """Yield the statements of a valid TOML text."""
    table: tuple[str, ...] = ()
    position = _get_match_end(_GAP, text, 0)
    while position < len(text):
        start = position
        is_header = text[position] == "["
        if is_header:
            depth = 2 if text.startswith("[[", position) else 1
            keys, position = _read_key_path(text, position + depth)
            position, table = position + depth, keys
        else:
            key_path, position = _read_key_path(text, position)
            keys, position = (*table, *key_path), _find_value_end(text, position + 1)
        position = _get_match_end(_END, text, position)
        yield TomlStatement(start, position, keys, is_header)
        position = _get_match_end(_GAP, text, position)


def _read_key_path(text: str, position: int) -> tuple[tuple[str, ...], int]:
    keys = list[str]()
    while True:
        key = _KEY.match(text, position)
        if key is None:
            raise ValueError("no key of TOML")
        bare, basic, literal = key.groups()
        keys.append(bare if bare is not None else literal if literal is not None else _unescape_toml_string(basic))
        position = key.end()
        if not text.startswith(".", position):
            return tuple(keys), position
        position += 1


def _unescape_toml_string(escaped: str) -> str:
    # JSON has no escapes with eight digits.
    json_escaped = re.sub(r"\\U([0-9A-Fa-f]{8})", lambda escape: json.dumps(chr(int(escape[1], 16)))[1:-1], escaped)
    return json.loads(f'"{json_escaped}"', strict=False)


def _find_value_end(text: str, position: int) -> int:
    depth = 0
    while position < len(text):
        if depth == 0 and text[position] in "\r\n#":
            return position
        piece = _PIECE.match(text, position)
        if piece is None:
            return len(text)
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(piece[0], 0)
        position = piece.end()
    return position


def _get_match_end(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match else position


@dataclass(frozen=True)
class TomlServersFormat:
    """A TOML format with the servers in the table ``keys[0]``."""

    keys: tuple[str, ...]

    def parse_servers(self, text: str) -> dict[str, Any]:
        table = tomllib.loads(text).get(self.keys[0], {})
        if not isinstance(table, dict):
            raise ConfigError(f"{self.keys[0]} is not a table, so it cannot have servers; fix it by hand")
        return cast("dict[str, Any]", table)

    def parse_inputs(self, text: str) -> list[Any]:
        """Return an empty list: Codex has no inputs."""
        del text
        return []

    def replace_servers_with_gateway(
        self, text: str, moved: Collection[str], name: str, entry: Mapping[str, Any]
    ) -> str:
        """Return the text with the gateway's ``entry`` in place of the ``moved`` servers."""
        if self.parse_servers(text).get(name) == entry:
            return self.remove_servers(text, moved)
        return self._replace_server_spans(text, {*moved, name}, self._format_entry(text, name, entry))

    def restore_servers(self, text: str, original_text: str, name: str, names: Collection[str]) -> str:
        """Return the text with the servers ``names`` from ``original_text`` in place of the gateway ``name``."""
        tables = [
            original_text[start:end]
            for start, end, is_table in self._find_server_spans(original_text, names)
            if is_table
        ]
        lines = [
            original_text[start:end]
            for start, end, is_table in self._find_server_spans(original_text, names)
            if not is_table
        ]
        if lines:
            # Without their own tables they cannot be inserted elsewhere.
            raise ConfigError("its servers had no tables of their own; restore them by hand from the backup")
        newline = _detect_newline(text)
        return self._replace_server_spans(
            text, {name}, newline.join(table.rstrip("\r\n") + newline for table in tables)
        )

    def remove_servers(self, text: str, names: Collection[str]) -> str:
        """Return the text without the servers ``names``."""
        spans = self._find_server_spans(text, names)
        return apply_edits(text, [(start, _find_blank_lines_end(text, end), "") for start, end, _ in spans])

    def _replace_server_spans(self, text: str, names: Collection[str], new_text: str) -> str:
        spans = self._find_server_spans(text, names)
        edits: list[Edit] = [(start, _find_blank_lines_end(text, end), "") for start, end, _ in spans]
        table_index = next((index for index, (_, _, is_table) in enumerate(spans) if is_table), None)
        if table_index is not None:
            start, end, _ = spans[table_index]
            edits[table_index] = (start, end, new_text)
            return apply_edits(text, edits)
        remaining = apply_edits(text, edits)
        newline = _detect_newline(text)
        gap = (
            ""
            if not remaining or remaining.endswith(newline * 2)
            else newline
            if remaining.endswith(("\n", "\r"))
            else newline * 2
        )
        return remaining + (gap + new_text if new_text else "")

    def _find_server_spans(self, text: str, names: Collection[str]) -> list[tuple[int, int, bool]]:
        """Return the spans of the servers, and whether each is its own table."""
        spans, is_in_table = list[tuple[int, int, bool]](), False
        for statement in iterate_toml_statements(text):
            is_selected = self._concerns_servers(statement, names)
            if statement.is_header:
                is_in_table = is_selected
            if not is_selected:
                continue
            if is_in_table and not statement.is_header and spans:
                spans[-1] = (spans[-1][0], statement.end, True)
            else:
                spans.append((statement.start, statement.end, statement.is_header))
        return spans

    def _concerns_servers(self, statement: TomlStatement, names: Collection[str]) -> bool:
        if statement.keys[0] != self.keys[0]:
            return False
        # An inline table is removed as a whole: TOML allows no additions to it.
        return not statement.is_header if len(statement.keys) == 1 else statement.keys[1] in names

    def _format_entry(self, text: str, name: str, entry: Mapping[str, Any]) -> str:
        lines = [f"[{self.keys[0]}.{name}]", *(f"{key} = {_format_toml_value(value)}" for key, value in entry.items())]
        newline = _detect_newline(text)
        return newline.join(lines) + newline


def _find_blank_lines_end(text: str, end: int) -> int:
    """Return the end of the blank lines after a table, so that they do not accumulate."""
    match = re.compile(r"(?:[ \t]*(?:\r\n|\n))*").match(text, end)
    return match.end() if match else end


def _detect_newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _format_toml_value(value: Any) -> str:
    """Return a string, a number or an array as TOML, which is JSON except for one control character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
