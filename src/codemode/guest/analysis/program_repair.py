"""Find the program that was meant in a text that is not one: in Markdown, in JSON, with escapes.

Loaded by path in locked workers. `repaired` is a pure function of the text: the program, and what was done.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Parses = Callable[[str], bool]

MAX_PLACES = 20_000
MAX_COLUMN = 1 << 30
FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})([^`\n]*)$", re.MULTILINE)
ONE_LINE = re.compile(r"\s*```[ \t]*(?:(?:js|javascript|ts|typescript|jsx|tsx|mjs)[ \t])?(?P<code>[^\n]*?)```\s*\Z")
LANGUAGES = frozenset(("", "js", "javascript", "ts", "typescript", "jsx", "tsx", "mjs", "cjs", "ecmascript", "node"))
WRAPPED = re.compile(r'"(js|code|script|program)"\s*:\s*"')
ENTITIES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'", "nbsp": " "}
ENTITY = re.compile(r"&(?:(lt|gt|amp|quot|apos|nbsp)|#(\d{2,3})|#[xX]([0-9a-fA-F]{2}));")
ESCAPE = re.compile(r"\\u(d[89ab]..)\\u(d[c-f]..)|\\u([0-9a-f]{4})|\\(.)", re.DOTALL | re.IGNORECASE)
ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
WRITTEN_BREAK = re.compile(r'\\([ntr"\\])')
TICK = re.compile(r"\\(`|\$\{)")
NEWLINES = "\n\r\u2028\u2029"

EXPORT = re.compile(
    r"(?P<export>export[ \t]+(?:default[ \t]+|(?=(?:async[ \t]+)?function\b)))"
    r"(?:(?P<anonymous>(?:async[ \t]+)?function[ \t]*\*?[ \t]*\(|class[ \t]*\{)"
    r"|(?=(?:async|function|class)\b|[A-Za-z_$][\w$]*[ \t]*(?:;|$)|\())",
    re.MULTILINE,
)
NO_EXPORTS = "left out `export`, which only modules have"
FENCED = "took the program out of its Markdown fence"
FROM_JSON = "took the program out of the JSON around it"
DECODED = (("HTML entities", "html"), ("line breaks written as \\n", "breaks"), ("escaped backticks", "ticks"))


class Text:
    """A text with the place in the model's text that each of its characters, and its end, comes from."""

    __slots__ = ("origins", "text")

    def __init__(self, text: str, origins: list[int] | range) -> None:
        self.text, self.origins = text, origins

    def replaced(self, pattern: re.Pattern[str], with_what: Callable[[re.Match[str]], str]) -> Text:
        """Return this text with each match replaced."""
        pieces: list[str] = []
        origins: list[int] = []
        position = 0
        for match in pattern.finditer(self.text):
            new = with_what(match)
            pieces += (self.text[position : match.start()], new)
            origins += self.origins[position : match.start()]
            origins += [self.origins[match.start()]] * len(new)
            position = match.end()
        pieces.append(self.text[position:])
        origins += self.origins[position:]
        return Text("".join(pieces), origins)

    def slice(self, start: int, end: int) -> Text:
        """Return a part of this text."""
        return Text(self.text[start:end], list(self.origins[start : end + 1]))


class Repair:
    """A program that was meant: its ``text``, the ``notes`` on what was done, and ``origins`` as `Text` has them."""

    __slots__ = ("notes", "origins", "text")

    def __init__(self, text: str, notes: list[str], origins: list[int] | range) -> None:
        self.text, self.notes, self.origins = text, notes, origins


def may_need_repair(text: str) -> bool:
    """Return whether a text that parses may still not be what was meant: it has a fence, is JSON or one comment."""
    begins = text.lstrip()[:2]
    return "```" in text or (begins[:1] == "{" and WRAPPED.search(text) is not None) or _is_one_comment(text, begins)


def _is_one_comment(text: str, begins: str) -> bool:
    """Whether a text is one line that a comment begins, with line breaks written in it."""
    return begins == "//" and "\\n" in text and "\n" not in text.strip()


def without_exports(text: str, found: list[dict[str, Any]]) -> Repair | None:
    """Return the body of a function without the ``export`` of its declarations and of what it exports by default.

    ``found`` are the exports of the text, each with ``"line"`` and ``"column"``. None where one of them is another.
    """
    starts = {position: at for at, position in enumerate(_positions(text))}
    kept = text
    for use in found:
        match = EXPORT.match(kept, starts.get((use["line"], use["column"]), len(text)))
        if match is None:
            return None
        first = "0," if match["anonymous"] is not None else ""  # a statement cannot begin with a function without name
        start, end = match.start(), match.end("export")
        kept = kept[:start] + " " * (end - start - len(first)) + first + kept[end:]
    return Repair(kept, [NO_EXPORTS], range(len(text) + 1))


def repaired(text: str, parses: Parses, in_comment: Callable[[str, int], bool]) -> Repair | None:
    """Return the program that was meant, or None where the text is taken as it is.

    ``parses`` tells whether a text is a program; ``in_comment`` whether a character of one that parses is in a comment.
    A fence or JSON around a program is removed whatever is inside; what is decoded must parse, which it did not before.
    """
    current, notes = Text(text, range(len(text) + 1)), list[str]()
    is_program = parses(text) and not _is_one_comment(text, text.lstrip()[:2])
    if (inner := _out_of_json(current)) is not None:
        current, is_program = inner, parses(inner.text)
        notes.append(FROM_JSON)
    if (inner := _out_of_fence(current, is_program=is_program, in_comment=in_comment)) is not None:
        current = inner if (wrapped := _out_of_json(inner)) is None else wrapped
        is_program = parses(current.text)
        notes += [FENCED] if wrapped is None else [FENCED, FROM_JSON]
    if not is_program:
        for kinds, decoded in _decodings(current):
            if parses(decoded.text):
                current = decoded
                notes.append(f"decoded {' and '.join(kinds)}")
                break
    return Repair(current.text, notes, current.origins) if notes else None


def places(text: str, origins: list[int] | range, source: str) -> list[list[int]] | None:
    """Return where lines of ``text`` come from: ``[line, column, line in source, column in source]`` in order.

    A row holds for its line from its column to that of the next row. None where all is where it was, and where there
    would be too many rows. Columns are 1-based UTF-16 units.
    """
    if isinstance(origins, range) or _is_in_place(text, source, origins):
        return None
    at = list(_positions(source))
    rows: list[list[int]] = []
    line, column, expected, is_new_line = 1, 1, -1, True
    for character, origin in zip(f"{text}\n", origins, strict=True):
        if is_new_line or origin != expected:
            rows.append([line, column, *at[origin]])
            if len(rows) > MAX_PLACES:
                return None
        expected, is_new_line = origin + 1, character == "\n"
        line, column = (line + 1, 1) if is_new_line else (line, column + 1 + (character > "\uffff"))
    return rows


def moved_back(found: dict[str, Any], repair: Repair, source: str) -> dict[str, Any]:
    """Return what was found of a repaired program with its places in the ``source``, and with what was done."""
    rows = places(repair.text, repair.origins, source)
    if rows is not None:
        _move(found, rows)
    facts = found.get("facts")
    if facts is not None:
        facts["repairs"] = [*repair.notes, *facts.get("repairs", ())]
        if rows is not None:
            facts["places"] = rows
            names = facts.get("names")
            if names:
                _move_names(names, repair, source)
    return found


def _move(found: Any, rows: list[list[int]]) -> None:
    """Put each place, an object with ``"line"`` and ``"column"`` or a pair in ``"places"``, where it was."""
    fields: Any = found
    if isinstance(found, dict):
        if isinstance(fields.get("line"), int) and isinstance(fields.get("column"), int):
            fields["line"], fields["column"] = place_in_source(fields["line"], fields["column"], rows)
        if "places" in fields:
            fields["places"] = [list(place_in_source(pair[0], pair[1], rows)) for pair in fields["places"]]
        for item in fields.values():
            _move(item, rows)
    elif isinstance(found, list):
        for item in fields:
            _move(item, rows)


def place_in_source(line: int, column: int, rows: list[list[int]]) -> tuple[int, int]:
    """Return the place in the model's text of one in the repaired text."""
    at = bisect_right(rows, [line, column, MAX_COLUMN, MAX_COLUMN]) - 1
    row = rows[max(0, at)]
    return (row[2], row[3] + column - row[1]) if row[0] == line else (row[2], row[3])


def _move_names(names: dict[str, list[int]], repair: Repair, source: str) -> None:
    """Put byte offsets of names in the repaired text where they are in the ``source``."""
    characters = {offset: at for at, offset in enumerate(_byte_offsets(repair.text))}
    bytes_in_source = list(_byte_offsets(source))
    for name, offsets in names.items():
        names[name] = [bytes_in_source[repair.origins[characters[offset]]] for offset in offsets]


def _byte_offsets(text: str) -> Iterator[int]:
    at = 0
    for character in text:
        yield at
        at += len(character.encode())
    yield at


def _is_in_place(text: str, source: str, origins: list[int]) -> bool:
    return len(text) == len(source) and all(origin == at for at, origin in enumerate(origins))


def _positions(text: str) -> Iterator[tuple[int, int]]:
    """The line and column of each character, and of the end."""
    line, column = 1, 1
    for character in text:
        yield line, column
        line, column = (line + 1, 1) if character == "\n" else (line, column + 1 + (character > "\uffff"))
    yield line, column


def _out_of_json(current: Text) -> Text | None:
    """The program in ``{"js": "..."}``."""
    text = current.text.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return None
    try:
        value: Any = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    match = WRAPPED.search(current.text)
    is_object = isinstance(value, dict)
    given: Any = value
    if match is None or not is_object or not isinstance(given.get(match[1]), str):
        return None
    end = _end_of_string(current.text, match.end())
    return None if end is None else current.slice(match.end(), end).replaced(ESCAPE, _json_escape)


def _end_of_string(text: str, start: int) -> int | None:
    at = start
    while at < len(text) and text[at] != '"':
        at += 2 if text[at] == "\\" else 1
    return at if at < len(text) else None


def _json_escape(match: re.Match[str]) -> str:
    high, low, code, character = match.groups()
    if high is not None:
        return chr(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF))
    if code is not None:
        return (
            chr(int(code, 16))
            if not code.lower().startswith(("d8", "d9", "da", "db", "dc", "dd", "de", "df"))
            else "\ufffd"
        )
    return ESCAPED.get(character, character)


def _out_of_fence(current: Text, *, is_program: bool, in_comment: Callable[[str, int], bool]) -> Text | None:
    """The last complete fenced block of a program's language; what is around it is blanked, so that lines stay."""
    text = current.text
    if (one_line := ONE_LINE.match(text)) is not None:
        return _only(current, one_line.start("code"), one_line.end("code"))
    found = list(_blocks(text, is_program=is_program, in_comment=in_comment))
    fitting = [block for block in found if block[2]] or [
        block for block in found if _out_of_json(current.slice(*block[:2])) is not None
    ]
    complete = [block for block in fitting if block[3]] or fitting
    return _only(current, *complete[-1][:2]) if complete else None


def _blocks(
    text: str, *, is_program: bool, in_comment: Callable[[str, int], bool]
) -> Iterator[tuple[int, int, bool, bool]]:
    """Of each fenced block its start and end, whether its language may be a program's, and whether it is closed."""
    opened: re.Match[str] | None = None
    for match in FENCE.finditer(text):
        # `~~~` at the beginning of a line, and what stands in a comment, may be a program's own.
        if opened is None and is_program and (match[1][0] == "~" or in_comment(text, match.start(1))):
            continue
        if opened is None:
            opened = match
        elif not match[2].strip() and match[1][0] == opened[1][0] and len(match[1]) >= len(opened[1]):
            yield opened.end(), match.start(), _is_fitting(opened[2]), True
            opened = None
    if opened is not None and text[opened.end() :].strip():
        yield opened.end(), len(text), _is_fitting(opened[2]), False
    elif opened is not None and not opened[2].strip():  # one that nothing has opened ends the program
        yield 0, opened.start(), True, False


def _is_fitting(info: str) -> bool:
    words = info.strip().lower().replace("{", " ").split()
    return (words[0] if words else "") in LANGUAGES


def _only(current: Text, start: int, end: int) -> Text:
    kept = current.text[start:end]
    return Text(_blank(current.text[:start]) + kept + _blank(current.text[end:]), current.origins)


def _blank(text: str) -> str:
    # A character beyond the basic plane keeps its place in `origins`; its column is told from there.
    return "".join(character if character in NEWLINES else " " for character in text)


def _decodings(current: Text) -> Iterator[tuple[list[str], Text]]:
    """The text with one of the kinds of escapes decoded, then with several."""
    for mask in (0b001, 0b010, 0b100, 0b011, 0b101, 0b110, 0b111):
        chosen = [kind for bit, kind in enumerate(DECODED) if mask >> bit & 1]
        decoded: Text | None = current
        for _, name in chosen:
            decoded = decoded and _decoded(decoded, name)
        if decoded is not None:
            yield [words for words, _ in chosen], decoded


def _decoded(current: Text, name: str) -> Text | None:
    if name == "html":
        return current.replaced(ENTITY, _character) if ENTITY.search(current.text) else None
    if name == "ticks":
        return current.replaced(TICK, lambda match: match[1]) if TICK.search(current.text) else None
    # Literally throughout: a program that has lines of its own writes `\n` in its strings.
    is_meant = "\\n" in current.text and "\n" not in current.text.strip()
    return current.replaced(WRITTEN_BREAK, lambda match: ESCAPED.get(match[1], match[1])) if is_meant else None


def _character(match: re.Match[str]) -> str:
    if match[1] is not None:
        return ENTITIES[match[1]]
    code = int(match[2]) if match[2] is not None else int(match[3], 16)
    return chr(code) if 32 <= code < 127 else match[0]
