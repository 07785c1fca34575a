"""The servers in a client's JSON file: read, taken out for the gateway, put back. Knows texts, no files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ..config.jsonc import Member, Node
from ..config.values import ConfigError
from .json_edits import JsonEdits, edited


@dataclass(frozen=True)
class JsonFile:
    """A text with servers where ``keys`` lead to. Raises `ConfigError` where something else is there."""

    keys: tuple[str, ...]

    def servers(self, text: str) -> dict[str, Any]:
        node = self._servers(JsonEdits.of(text))
        return {one.key: one.node.plain() for one in node.members} if node else {}

    def inputs(self, text: str) -> list[Any]:
        """Return what VS Code asks its user for."""
        node = JsonEdits.of(text).at((*self.keys[:-1], "inputs"))
        return node.plain() if node and node.kind == "array" else []

    def put(self, text: str, moved: Collection[str], name: str, entry: Mapping[str, Any]) -> str:
        """Return the text with ``entry`` in the place of the servers that are ``moved``."""
        doc = JsonEdits.of(text)
        node = self._servers(doc)
        if node is None:
            return doc.added(self.keys, name, entry)
        members = {one.key: one for one in node.members}
        place = name if name in members else next((one for one in members if one in moved), None)
        if place is None:
            return doc.added(self.keys, name, entry)
        gone = [one for one in moved if one != place]
        is_same = place == name and members[name].node.plain() == entry
        instead = {} if is_same else {place: self._written(doc, node, members[place], name, entry)}
        return edited(doc.text, doc.without(node, gone, instead))

    def restored(self, text: str, before: str, name: str, names: Collection[str]) -> str:
        """Return the text with the servers ``names`` of the text ``before`` in the place of the gateway ``name``."""
        doc, old = JsonEdits.of(text), JsonEdits.of(before)
        node, source = self._servers(doc), self._servers(old)
        if node is None:
            return text
        moved = [one for one in (source.members if source else ()) if one.key in names]
        if not moved:
            return edited(doc.text, doc.without(node, [name], {}))
        mine = next(one for one in node.members if one.key == name)
        between = f",{doc.newline}{doc.indent_of(mine, node)}"
        parts = [old.text[one.start : one.node.end] for one in moved]
        return edited(doc.text, [(mine.start, mine.node.end, between.join(parts))])

    def _written(self, doc: JsonEdits, node: Node, one: Member, name: str, entry: Mapping[str, Any]) -> str:
        is_one_line = "\n" not in doc.text[node.start : node.end]
        return doc.member(name, entry, None if is_one_line else doc.indent_of(one, node))

    def _servers(self, doc: JsonEdits) -> Node | None:
        node = doc.root
        for depth, key in enumerate(self.keys):
            if node.kind != "object":
                where = ".".join(self.keys[:depth]) or "the file"
                raise ConfigError(f"{where} is no object, so that no server can be there; mend it by hand")
            following = node.get(key)
            if following is None:
                return None
            node = following
        if node.kind != "object":
            raise ConfigError(f"{'.'.join(self.keys)} is no object, so that no server can be there; mend it by hand")
        return node
