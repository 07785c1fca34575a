"""Asks the engine what is wrong with a module's text, and finds the place in the author's text that it means.

Loaded by path in locked workers. Knows the engine's words, and nothing of syntax trees. The engine counts columns in
bytes, and says no place for an export of what does not exist nor for a regular expression.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Problem = dict[str, Any]
    Ask = Callable[[str], str]
    Places = Callable[[bytes, list[int]], Any]

# A module of this name cannot be had: of a text behind it the engine says its syntax error, and runs nothing of it.
NEVER = 'import"codemode:never";'
SYNTAX_ERROR = "SyntaxError: "
PLACE = re.compile(r"\n +at <input>:(\d+):(\d+)\s*\Z")
NO_EXPORT = re.compile(r"exported variable '(.+)' does not exist")
EXPORTS = re.compile(r"\bexport\s*\{([^}]*)\}")
MAX_REGEXES = 64


class Engine:
    """What the engine says of texts. ``ask`` evaluates a module that cannot be linked and returns what is said of it.

    ``places`` and ``plain`` are `places.places` and `places.with_plain_breaks`.
    """

    def __init__(self, ask: Ask, places: Places, plain: Callable[[bytes], bytes]) -> None:
        self._ask, self._places, self._plain = ask, places, plain

    def problem(self, text: str, prefix: str = "", regexes: tuple[str, ...] = ()) -> Problem | None:
        """What is wrong with a module, ``{"message", "line", "column"}``; None: nothing, or it was no syntax error.

        ``text`` begins with ``prefix``, which no author wrote. ``regexes`` are regular expressions that it has.
        """
        said = self._ask(NEVER + text)
        if not said.startswith(SYNTAX_ERROR):
            return None
        message = said[len(SYNTAX_ERROR) :].partition("\n")[0]
        found = PLACE.search(said)
        at = self._guessed(message, text, regexes) if found is None else self._at(text, int(found[1]), int(found[2]))
        at = max(0, at - len(prefix.encode()))
        body = self._plain(text[len(prefix) :].encode())
        ((line, column),) = self._places(body, [min(at, len(body))])
        return {"message": message, "line": line, "column": column}

    def _at(self, text: str, line: int, column: int) -> int:
        """The byte of ``text`` that the engine means."""
        data = self._plain(text.encode())
        start = 0
        for _ in range(line - 1):
            start = data.find(b"\n", start) + 1
        return max(0, start + column - 1 - (len(NEVER) if line == 1 else 0))

    def _guessed(self, message: str, text: str, regexes: tuple[str, ...]) -> int:
        """The byte at which something stands that the engine says no place for; the first, where that is not known."""
        name = NO_EXPORT.fullmatch(message)
        if name is not None:
            word = re.compile(rf"(?<![\w$]){re.escape(name[1])}(?![\w$])")
            for names in EXPORTS.finditer(text):
                found = word.search(text, names.start(1), names.end(1))
                if found is not None:
                    return len(text[: found.start()].encode())
            return 0
        position = 0
        for regex in regexes[:MAX_REGEXES]:
            position = max(0, text.find(regex, position))
            if PLACE.search(said := self._ask(NEVER + regex)) is None and said.startswith(SYNTAX_ERROR):
                return len(text[:position].encode())
            position += len(regex)
        return 0
