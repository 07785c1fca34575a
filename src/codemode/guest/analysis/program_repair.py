"""Find the program that was meant in a text that is not one: in Markdown, in JSON, with escapes.

Loaded by path in locked workers. `repaired` is a pure function of the text: the program, and what was done.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from itertools import combinations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Parses = Callable[[str], bool]
    NodeAt = Callable[[str, int], str]

MAX_PLACES = 20_000
MAX_COLUMN = 1 << 30
MAX_ODD = 64
LITERALS = frozenset(
    ("comment", "string", "string_fragment", "escape_sequence", "template_string", "regex", "regex_pattern", "jsx_text")
)


class _WhenUsed:
    """A regular expression that is compiled when it is first used: most programs need none, and each takes 100 us."""

    __slots__ = ("_arguments", "_pattern")

    def __init__(self, *arguments: Any) -> None:
        self._arguments, self._pattern = arguments, None

    def __getattr__(self, name: str) -> Any:
        if self._pattern is None:
            self._pattern = re.compile(*self._arguments)
        return getattr(self._pattern, name)


def _when_used(pattern: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    lazy: Any = _WhenUsed(pattern, flags)
    return lazy


FENCE = _when_used(r"^[ \t\ufeff]*(`{3,}|~{3,})([^`\n]*)$", re.MULTILINE)
# A fence that text precedes on its line, and one that ends the last line of the program.
FENCE_BEHIND_TEXT = _when_used(r"^[^`\n]*[:.!>][ \t]*(`{3,})([^`\n]*)$", re.MULTILINE)
FENCE_BEHIND_CODE = _when_used(r"`{3,}([^`\n]*)$", re.MULTILINE)
ONE_LINE = _when_used(r"\s*```[ \t]*(?:(?:js|javascript|ts|typescript|jsx|tsx|mjs)[ \t])?(?P<code>[^\n]*?)```\s*\Z")
LANGUAGES = frozenset(("", "js", "javascript", "ts", "typescript", "jsx", "tsx", "mjs", "cjs", "ecmascript", "node"))
LANGUAGE_LINE = re.compile(r"\s*(js|javascript|ts|typescript|jsx|tsx):?[ \t]*\r?\n", re.IGNORECASE)
WRITTEN_FENCE = _when_used(r"```\w*\\n")
TAGS = _when_used(
    r"\s*<(code|script|program|execute|javascript|typescript)\b[^<>\n]*>(?P<code>.*)</\1>\s*\Z", re.DOTALL
)
WRAPPED = _when_used(r'"(js|code|script|program|source|javascript|typescript)"\s*:\s*"')
ARGUMENTS = ("arguments", "input", "parameters", "args")
CODE = _when_used(r"[;(=]|\b(?:return|await)\b")
ENTITIES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'", "nbsp": " "}
ENTITY = _when_used(r"&(?:(lt|gt|amp|quot|apos|nbsp)|#(\d{2,3})|#[xX]([0-9a-fA-F]{2}));")
ESCAPE = _when_used(r"\\u(d[89ab]..)\\u(d[c-f]..)|\\u([0-9a-f]{4})|\\(.)", re.DOTALL | re.IGNORECASE)
ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
WRITTEN_BREAK = _when_used(r"""\\(?:u00(2[0-9a-fA-F]|3[a-fA-F]|5[b-eB-E]|7[b-eB-E])|([ntr"'\\]))""")
WRITTEN_QUOTE = _when_used(r"""\\(?:u00(2[0-9a-fA-F]|3[a-fA-F]|5[b-eB-E]|7[b-eB-E])|(["'\\]))""")
TYPOGRAPHIC = _when_used("[\u2018\u2019\u201c\u201d]")
INVISIBLE = _when_used("[\u200b-\u200d\u2060\u00ad]")
TICK = _when_used(r"\\(`|\$\{)")
NEWLINES = "\n\r\u2028\u2029"

EXPORT = _when_used(
    r"(?P<export>export[ \t]+(?:default[ \t]+"
    r"|(?=(?:async[ \t]+)?function\b|(?:const|let|var)[ \t]+[\w$]+[ \t]*=[ \t]*(?:async\b|function\b|\())))"
    r"(?:(?P<anonymous>(?:async[ \t]+)?function[ \t]*\*?[ \t]*\(|class[ \t]*\{)"
    r"|(?=(?:async|function|class|const|let|var)\b|[A-Za-z_$][\w$]*[ \t]*(?:;|$)|\())",
    re.MULTILINE,
)
EXPORT_DEFAULT = _when_used(
    r"export[ \t]+default(?=[ \t]+(?:await[ \t]+)?[A-Za-z_$][\w$]*[ \t]*(?:;|$|\())", re.MULTILINE
)
EXPORT_LIST = _when_used(r"export[ \t]*\{\s*(?P<name>[\w$]+)(?:[ \t]+as[ \t]+default)?\s*(?:,\s*)?\}(?!\s*from\b)")
MODULE_EXPORTS = _when_used(r"module\.exports[ \t]*=(?!=)(?:\s*\{\s*(?P<name>[\w$]+)\s*(?:,\s*)?\})?")
MAIN_MODULE = _when_used(
    r"if[ \t]*\([ \t]*require\.main[ \t]*===?[ \t]*module[ \t]*\)(?:\s*\{(?P<block>[^{}]*)\}\s*|(?P<call>[^{}]*))\Z"
)
EXPORTED = _when_used(r"\s*(?:(async\b|function\b|\(|[\w$]+\s*=>)|([\w$]+)\s*(?:;|$))", re.MULTILINE)
OWN_MODULE = _when_used(r"\b(?:const|let|var|function|class)\s+(?:module|require)\b")
NO_EXPORTS = "left out `export`, which only modules have"
NO_NODE = "read what only Node.js has, `module.exports` or `require.main`, as the end of the program"
FENCED = "took the program out of its Markdown fence"
FROM_JSON = "took the program out of the JSON around it"
FROM_TAGS = "took the program out of the tags around it"
NO_LANGUAGE_LINE = "left out the line that names the language"


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


def then(first: Repair, second: Repair) -> Repair:
    """Return one repair for two, of which the second is of the first's text."""
    return Repair(second.text, [*first.notes, *second.notes], [first.origins[at] for at in second.origins])


def may_need_repair(text: str) -> bool:
    """Return whether a text that parses may still not be what was meant: it has a fence, is JSON or one comment."""
    begins = text.lstrip()[:2]
    return (
        "```" in text
        or (begins[:1] == "{" and WRAPPED.search(text) is not None)
        or (begins[:1] == '"' and text.rstrip()[-1:] == '"' and CODE.search(text) is not None)
        or _is_one_comment(text, begins)
        or (not text.isascii() and (TYPOGRAPHIC.search(text) or INVISIBLE.search(text)) is not None)
        or _language_line(text) is not None
    )


def is_json(text: str) -> bool:
    """Whether a text is an object or an array of JSON, with a text in it: to the parser it may be a program."""
    begins = text.lstrip()[:1]
    if begins == "" or begins not in "{[" or '"' not in text:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _language_line(text: str) -> re.Match[str] | None:
    """A first line that is the name of a language alone, as a fence leaves it, where the program has no such name."""
    match = LANGUAGE_LINE.match(text)
    is_used = match is None or not text[match.end() :].strip() or f"{match[1]}" in _words(text[match.end() :])
    return None if is_used else match


def _words(text: str) -> set[str]:
    return set(re.findall(r"[\w$]+", text))


def _is_one_comment(text: str, begins: str) -> bool:
    """Whether a text is one line that a comment begins, with line breaks written in it."""
    return begins == "//" and "\\n" in text and "\n" not in text.strip()


def without_node_modules(text: str, last_at: int, *, is_module: bool) -> Repair | None:
    """Return a program whose last statement, at ``last_at``, exports as in Node.js or runs its function there.

    None where it does neither, or has a `module` or `require` of its own.
    """
    match = MODULE_EXPORTS.match(text, last_at) or MAIN_MODULE.match(text, last_at)
    if match is None or OWN_MODULE.search(text):
        return None
    parts = match.groupdict()
    if "block" in parts:
        group = "call" if parts["block"] is None else "block"
        start, end = match.span(group)
        kept = text[:last_at] + _blank(text[last_at:start]) + text[start:end] + _blank(text[end:])
    else:
        kept = _as_statement(text, match, "export default" if is_module else "return")
    return Repair(kept, [NO_NODE], range(len(text) + 1))


def _as_statement(text: str, match: re.Match[str], keyword: str) -> str:
    """Return a text with ``keyword`` in place of a match, and the ``name`` alone that the match exports, if any."""
    start, end = match.span()
    name = match.groupdict().get("name")
    if keyword == "return" and _is_function(text, end, name):
        keyword = ""  # as the last expression it is called; some surfaces show a function that is returned
    shown = keyword if name is None else f"{keyword} {name}"
    return text[:start] + shown + _blank(text[start + len(shown) : end]) + text[end:]


def _is_function(text: str, at: int, name: str | None) -> bool:
    """Whether what is exported is a function, written at ``at`` or declared under its ``name``."""
    following = EXPORTED.match(text, at)
    if name is None and following is not None:
        if following[1] is not None:
            return True
        name = following[2]
    if name is None:
        return False
    declared = (
        rf"\bfunction(?:\s*\*)?\s*{re.escape(name)}\b|(?<![\w$.]){re.escape(name)}\s*=\s*(?:async\b|function\b|\()"
    )
    return re.search(declared, text) is not None


def without_exports(text: str, found: list[dict[str, Any]], last_at: int) -> Repair | None:
    """Return the body of a function without the ``export`` of its declarations and of what it exports by default.

    ``found`` are the exports of the text, each with ``"line"`` and ``"column"``; ``last_at`` is where its last
    statement begins. None where one of them is another.
    """
    starts = {position: at for at, position in enumerate(_positions(text))}
    kept = text
    for use in found:
        at = starts.get((use["line"], use["column"]), len(text))
        given = (EXPORT_LIST.match(kept, at) or EXPORT_DEFAULT.match(kept, at)) if at == last_at else None
        if given is not None:
            kept = _as_statement(kept, given, "return")
            continue
        match = EXPORT.match(kept, at)
        if match is None:
            return None
        first = "0," if match["anonymous"] is not None else ""  # a statement cannot begin with a function without name
        start, end = match.start(), match.end("export")
        kept = kept[:start] + " " * (end - start - len(first)) + first + kept[end:]
    return Repair(kept, [NO_EXPORTS], range(len(text) + 1))


def repaired(text: str, has_no_error: Parses, node_at: NodeAt) -> Repair | None:
    """Return the program that was meant, or None where the text is taken as it is.

    ``has_no_error`` tells whether the parser understands a text, ``node_at`` in which kind of node a character is.
    A fence or JSON around a program is removed whatever is inside; what is decoded must parse, which it did not before.
    """

    def parses(text: str) -> bool:
        # To the parser a character that no program may have is part of a name, or a space.
        odd = [*TYPOGRAPHIC.finditer(text), *INVISIBLE.finditer(text)][:MAX_ODD] if has_no_error(text) else None
        return odd is not None and all(node_at(text, match.start()) in LITERALS for match in odd)

    def in_comment(text: str, at: int) -> bool:
        return node_at(text, at) == "comment"

    current, notes = Text(text, range(len(text) + 1)), list[str]()
    is_program = parses(text) and not _is_one_comment(text, text.lstrip()[:2])
    if (inner := _out_of_json(current) or _out_of_text(current, parses)) is not None:
        current, is_program = inner, parses(inner.text)
        notes.append(FROM_JSON)
    line = current.text.strip()
    is_fenced = "\n" not in line and (line.startswith("```") or not is_program) and WRITTEN_FENCE.search(line)
    if is_fenced and (decoded := _with_breaks(current)) is not None:
        current, is_program = decoded[1], False
        notes.append(f"decoded {decoded[0]}")
    if (inner := _out_of_fence(current, is_program=is_program, in_comment=in_comment)) is not None:
        current = inner if (wrapped := _out_of_json(inner)) is None else wrapped
        is_program = parses(current.text)
        notes += [FENCED] if wrapped is None else [FENCED, FROM_JSON]
    elif not is_program and (tags := TAGS.match(current.text)) is not None:
        current = _only(current, tags.start("code"), tags.end("code"))
        is_program = parses(current.text)
        notes.append(FROM_TAGS)
    if (named := _language_line(current.text)) is not None:
        current = _only(current, named.end(), len(current.text))
        is_program = parses(current.text)
        notes.append(NO_LANGUAGE_LINE)
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


def place_in_program(line: int, column: int, rows: list[list[int]]) -> tuple[int, int]:
    """Return the place in the repaired text of one that `place_in_source` gives."""
    before = [row for row in rows if row[2] == line and row[3] <= column]
    row = max(before, key=lambda row: row[3]) if before else rows[0]
    return row[0], row[1] + max(0, column - row[3])


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
    fields: Any = value
    if match is None or not is_object:
        return None
    holders = [fields, *(fields.get(name) for name in ARGUMENTS)]  # a whole call of the tool may be written
    if not any(type(holder) is dict and type(holder.get(match[1])) is str for holder in holders):
        return None
    end = _end_of_string(current.text, match.end())
    return None if end is None else current.slice(match.end(), end).replaced(ESCAPE, _json_escape)


def _out_of_text(current: Text, parses: Parses) -> Text | None:
    """The program in a text that is one string of JSON."""
    text = current.text.strip()
    if not (len(text) > 1 and text[0] == text[-1] == '"' and CODE.search(text)):
        return None
    start = current.text.index('"') + 1
    if _end_of_string(current.text, start) != len(current.text.rstrip()) - 1:
        return None
    inner = current.slice(start, len(current.text.rstrip()) - 1).replaced(ESCAPE, _json_escape)
    return inner if CODE.search(inner.text) and parses(inner.text) else None


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
    is_program = is_program and not text.lstrip().startswith("```")  # to the parser, a template behind a template
    if (one_line := ONE_LINE.match(text)) is not None:
        return _only(current, one_line.start("code"), one_line.end("code"))
    found = list(_blocks(text, is_program=is_program, in_comment=in_comment))
    if any(block[2] and text[: block[0]].rstrip()[-1:] not in "`~" for block in found):  # one names its language
        found = [block for block in found if text[: block[0]].rstrip()[-1:] not in "`~"]
    fitting = [block for block in found if block[2]] or [
        block for block in found if _out_of_json(current.slice(*block[:2])) is not None
    ]
    if not fitting:  # of another language: what is in it says what is wrong
        fitting = found
    complete = [block for block in fitting if block[3]] or fitting
    return _only(current, *complete[-1][:2]) if complete else None


def _blocks(
    text: str, *, is_program: bool, in_comment: Callable[[str, int], bool]
) -> Iterator[tuple[int, int, bool, bool]]:
    """Of each fenced block its start and end, whether its language may be a program's, and whether it is closed."""
    opened: re.Match[str] | None = None
    fences = list(FENCE.finditer(text))
    if not is_program and (first := FENCE_BEHIND_TEXT.search(text, 0, fences[0].end() if fences else len(text))):
        fences.insert(0, first)
    for match in fences:
        # `~~~` at the beginning of a line, and what stands in a comment, may be a program's own.
        if opened is None and is_program and (match[1][0] == "~" or in_comment(text, match.start(1))):
            continue
        if opened is None:
            opened = match
        elif not match[2].strip() and match[1][0] == opened[1][0] and len(match[1]) >= len(opened[1]):
            yield opened.end(), match.start(), _is_fitting(opened[2]), True
            opened = None
    if opened is not None and text[opened.end() :].strip():
        behind = () if is_program else FENCE_BEHIND_CODE.finditer(text, opened.end())
        end = len(text.rstrip())
        closed = next((match for match in behind if not match[1].strip() or match.end() >= end), None)
        yield opened.end(), len(text) if closed is None else closed.start(), _is_fitting(opened[2]), closed is not None
    elif opened is not None and not opened[2].strip():  # one that nothing has opened ends the program
        yield 0, opened.start(), True, False


def _is_fitting(info: str) -> bool:
    words = info.strip().lower().replace("{", " ").replace("}", " ").split()
    return (words[0] if words else "") in LANGUAGES


def _only(current: Text, start: int, end: int) -> Text:
    kept = current.text[start:end]
    return Text(_blank(current.text[:start]) + kept + _blank(current.text[end:]), current.origins)


def _blank(text: str) -> str:
    # A character beyond the basic plane keeps its place in `origins`; its column is told from there.
    return "".join(character if character in NEWLINES else " " for character in text)


def _decodings(current: Text) -> Iterator[tuple[list[str], Text]]:
    """The text with one of the kinds of escapes decoded, then with several."""
    kinds = [kind for kind in (_with_entities, _with_breaks, _with_ticks, _with_quotes, _visible) if kind(current)]
    for count in range(1, len(kinds) + 1):
        for chosen in combinations(kinds, count):
            words, decoded = list[str](), current
            for kind in chosen:
                done = kind(decoded)
                if done is not None:
                    words.append(done[0])
                    decoded = done[1]
            yield words, decoded


def _with_entities(current: Text) -> tuple[str, Text] | None:
    if not ENTITY.search(current.text):
        return None
    decoded = current.replaced(ENTITY, _character)
    if "&amp;" in current.text and ENTITY.search(decoded.text):  # encoded twice
        decoded = decoded.replaced(ENTITY, _character)
    return "HTML entities", decoded


def _with_breaks(current: Text) -> tuple[str, Text] | None:
    # Literally throughout: a program that has lines of its own writes `\n` in its strings.
    is_one_line = "\n" not in current.text.strip()
    pattern = WRITTEN_BREAK if is_one_line else WRITTEN_QUOTE
    if not pattern.search(current.text):
        return None
    words = "line breaks written as \\n" if is_one_line and "\\n" in current.text else "escaped quotes"
    return words, current.replaced(pattern, _written)


def _written(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] is not None else ESCAPED.get(match[2], match[2])


def _with_ticks(current: Text) -> tuple[str, Text] | None:
    return ("escaped backticks", current.replaced(TICK, lambda match: match[1])) if TICK.search(current.text) else None


def _with_quotes(current: Text) -> tuple[str, Text] | None:
    if not TYPOGRAPHIC.search(current.text):
        return None
    plain = current.replaced(TYPOGRAPHIC, lambda match: "'" if match[0] in "\u2018\u2019" else '"')
    return "typographic quotes", plain


def _visible(current: Text) -> tuple[str, Text] | None:
    if not INVISIBLE.search(current.text):
        return None
    return "invisible characters", current.replaced(INVISIBLE, lambda _: "")


def _character(match: re.Match[str]) -> str:
    if match[1] is not None:
        return ENTITIES[match[1]]
    code = int(match[2]) if match[2] is not None else int(match[3], 16)
    return chr(code) if 32 <= code < 127 else match[0]
