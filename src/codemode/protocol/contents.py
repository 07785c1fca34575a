"""The content that one invocation was given: which handles of its program are genuine, and how much there may be. Pure.

A part is known by its id, which follows from its bytes, or by a number that stands beside it wherever it is kept, so a
replay has the same. The tag, by which an object in JSON
text stands for one, is this invocation's own: data that a tool quotes of elsewhere are data.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..data.content import Content, Distinct
from ..errors import CodeModeSerializationError

if TYPE_CHECKING:
    from ..options.parts import ExecutionPolicy

CONTENT_LIMIT = "CODE_MODE_CONTENT_LIMIT"
"""The code of a call that gives more content than a program may have, and of a pause that cannot carry it."""

ID_CHARACTERS = 32
_NUMBER = "#"
MAX_CARRIED_BYTES = 1 << 20
"""Of content in a continuation, where no store keeps it."""


@lru_cache(maxsize=32)  # a run asks for its own several times
def tag_of(salt: str) -> str:
    """Return the tag of the content of the invocation with this salt."""
    return "$content:" + hashlib.sha256(b"content\0" + salt.encode("utf-8", "surrogatepass")).hexdigest()[:24]


class Contents:
    """The parts of one invocation by their names, in the order in which they came.

    A name is the part's id where ``by_digest``; else a number, so that nobody waits for a digest before one is needed:
    what leaves the run has the parts beside their names, and what people are shown has ids (`told`).
    """

    def __init__(self) -> None:
        self._parts: dict[str, Content] = {}
        self._distinct: Distinct[str] = Distinct()
        self._bytes = 0
        self._limits: ExecutionPolicy | None = None
        self.by_digest = True
        self.tag = ""
        self.kept: set[str] = set()  # the names of what a store has
        self.left: tuple[str, ...] = ()  # the ids of what a store has and is not here yet
        self.shown: list[str] = []  # the names of what the program has shown

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[Content]:
        return iter(self._parts.values())

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def items(self) -> Iterable[tuple[str, Content]]:
        """Return the parts and their names."""
        return self._parts.items()

    def under(self, limits: ExecutionPolicy, salt: str, recorded: Contents | None = None) -> Contents:
        """Belong to an invocation with these limits from now on, which had these parts before."""
        self._limits, self.tag, self.shown = limits, tag_of(salt), []
        if recorded is not None and recorded is not self:
            for name, part in recorded.items():
                self.put(part, name)
            self.kept |= recorded.kept
        return self

    @property
    def limits(self) -> ExecutionPolicy | None:
        """Those of the invocation that it belongs to."""
        return self._limits

    @property
    def bytes(self) -> int:
        """How much there is."""
        return self._bytes

    def at(self, part_id: object) -> Content:
        """Return a part by its name, or its id. Raises `CodeModeSerializationError` for none of this invocation."""
        part = self._parts.get(part_id) if isinstance(part_id, str) else None
        if part is None and isinstance(part_id, str) and len(part_id) == ID_CHARACTERS:
            part = next((one for one in self if one.id == part_id), None)
        if part is None:
            raise CodeModeSerializationError("a handle of content that no tool has given this program")
        return part

    def take(self, part: Content) -> dict[str, Any]:
        """Take a part, and return the object that stands for it in JSON text.

        Raises `CodeModeSerializationError` with the code `CONTENT_LIMIT`.
        """
        name = self._distinct.name_of(part)
        if name is None:
            self._admit(part)
            name = part.id if self.by_digest else f"{_NUMBER}{len(self._parts) + 1}"
            self.put(part, name)
        return {self.tag: name, **part.described}

    def put(self, part: Content, name: str | None = None) -> None:
        """Keep a part that was admitted before, under its id where it has no name."""
        name = part.id if name is None else name
        if name not in self._parts:
            self._parts[name] = part
            self._distinct.add(part, name)
            self._bytes += part.size

    def looked_at(self, part: Content) -> list[Content]:
        """Return the parts whose ids are needed to take this one, and may take a while."""
        return [part] if self.by_digest else self._distinct.alike(part)

    def told(self, text: str | None) -> str | None:
        """Return JSON text with ids in place of numbers; any other stays. May take as long as the ids."""
        if text is None or not self.tag or f'"{self.tag}":"{_NUMBER}' not in text:
            return text

        def named(found: re.Match[str]) -> str:
            part = self._parts.get(found[2])
            return found[0] if part is None else f'{found[1]}{part.id}"'

        return re.sub(f'("{re.escape(self.tag)}":")({_NUMBER}[0-9]+)"', named, text)

    def _admit(self, part: Content) -> None:
        self.require_room(part, self._bytes + part.size, len(self._parts) + 1)

    def require_room(self, part: Content, all_bytes: int, count: int) -> None:
        """Raise `CodeModeSerializationError` for a part that is too large, or with which others are too many."""
        limits = self._limits
        if limits is None:
            return
        for option, size, maximum, what in (
            ("max_content_part_bytes", part.size, limits.max_content_part_bytes, "one part of content has {} bytes"),
            ("max_content_bytes", all_bytes, limits.max_content_bytes, "all content has {} bytes"),
            ("max_content_parts", count, limits.max_content_parts, "there are {} parts of content"),
        ):
            if size > maximum:
                raise CodeModeSerializationError(
                    f"{what.format(size)} with what this call gives; execution_policy.{option} is {maximum}",
                    code=CONTENT_LIMIT,
                    details={"limit": option, "max": maximum},
                )

    def require_carried(self) -> None:
        """Raise `CodeModeSerializationError` for more than a continuation carries."""
        if self._bytes > MAX_CARRIED_BYTES:
            raise CodeModeSerializationError(
                f"the program cannot pause: its content has {self._bytes} bytes, and without a store a continuation"
                f" carries at most {MAX_CARRIED_BYTES}. Give the guard of a store as continuation.guard, its journal as"
                " continuation.journal, or a continuation.content_store",
                code=CONTENT_LIMIT,
                details={"limit": "content_store", "max": MAX_CARRIED_BYTES},
            )
