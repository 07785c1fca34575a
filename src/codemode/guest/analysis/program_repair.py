"""Finds the intended program in a text that is not one: Markdown, JSON, with escapes.

Loaded by path in locked workers. `repair_program` is a pure function of the text: the program, and the repairs.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from itertools import combinations

from .lazy_patterns import compile_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Parses = Callable[[str], bool]
    NodeAt = Callable[[str, int], str]

MAX_PLACE_ROWS = 20_000
MAX_COLUMN = 1 << 30
MAX_SUSPICIOUS_CHARACTERS = 64
LITERAL_NODES = frozenset(
    ("comment", "string", "string_fragment", "escape_sequence", "template_string", "regex", "regex_pattern", "jsx_text")
)

FENCE = compile_lazily(r"^[ \t\ufeff]*(`{3,}|~{3,})([^`\n]*)$", re.MULTILINE)
# A fence that text precedes on its line, and one that ends the last line of the program.
FENCE_AFTER_TEXT = compile_lazily(r"^[^`\n]*[:.!>][ \t]*(`{3,})([^`\n]*)$", re.MULTILINE)
FENCE_AFTER_CODE = compile_lazily(r"`{3,}([^`\n]*)$", re.MULTILINE)
ONE_LINE_FENCE = compile_lazily(
    r"\s*```[ \t]*(?:(?:js|javascript|ts|typescript|jsx|tsx|mjs)[ \t])?(?P<code>[^\n]*?)```\s*\Z"
)
LANGUAGES = frozenset(("", "js", "javascript", "ts", "typescript", "jsx", "tsx", "mjs", "cjs", "ecmascript", "node"))
LANGUAGE_LINE = compile_lazily(r"\s*(js|javascript|ts|typescript|jsx|tsx):?[ \t]*\r?\n", re.IGNORECASE)
ESCAPED_FENCE = compile_lazily(r"```\w*\\n")
TAGS = compile_lazily(
    r"\s*<(code|script|program|execute|javascript|typescript)\b[^<>\n]*>(?P<code>.*)</\1>\s*\Z", re.DOTALL
)
JSON_CODE_KEY = compile_lazily(r'"(js|code|script|program|source|javascript|typescript)"\s*:\s*"')
ARGUMENT_KEYS = ("arguments", "input", "parameters", "args")
CODE_HINT = compile_lazily(r"[;(=]|\b(?:return|await)\b")
ENTITIES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'", "nbsp": " "}
ENTITY = compile_lazily(r"&(?:(lt|gt|amp|quot|apos|nbsp)|#(\d{2,3})|#[xX]([0-9a-fA-F]{2}));")
ESCAPE = compile_lazily(r"\\u(d[89ab]..)\\u(d[c-f]..)|\\u([0-9a-f]{4})|\\(.)", re.DOTALL | re.IGNORECASE)
ESCAPED_CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
ESCAPED_BREAK_OR_QUOTE = compile_lazily(r"""\\(?:u00(2[0-9a-fA-F]|3[a-fA-F]|5[b-eB-E]|7[b-eB-E])|([ntr"'\\]))""")
ESCAPED_QUOTE = compile_lazily(r"""\\(?:u00(2[0-9a-fA-F]|3[a-fA-F]|5[b-eB-E]|7[b-eB-E])|(["'\\]))""")
TYPOGRAPHIC = compile_lazily("[\u2018\u2019\u201c\u201d]")
INVISIBLE = compile_lazily("[\u200b-\u200d\u2060\u00ad]")
ESCAPED_BACKTICK = compile_lazily(r"\\(`|\$\{)")
NEWLINES = "\n\r\u2028\u2029"

EXPORT = compile_lazily(
    r"(?P<export>export[ \t]+(?:default[ \t]+"
    r"|(?=(?:async[ \t]+)?function\b|(?:const|let|var)[ \t]+[\w$]+[ \t]*=[ \t]*(?:async\b|function\b|\())))"
    r"(?:(?P<anonymous>(?:async[ \t]+)?function[ \t]*\*?[ \t]*\(|class[ \t]*\{)"
    r"|(?=(?:async|function|class|const|let|var)\b|[A-Za-z_$][\w$]*[ \t]*(?:;|$)|\())",
    re.MULTILINE,
)
EXPORT_DEFAULT = compile_lazily(
    r"export[ \t]+default(?=[ \t]+(?:await[ \t]+)?[A-Za-z_$][\w$]*[ \t]*(?:;|$|\())", re.MULTILINE
)
EXPORT_LIST = compile_lazily(r"export[ \t]*\{\s*(?P<name>[\w$]+)(?:[ \t]+as[ \t]+default)?\s*(?:,\s*)?\}(?!\s*from\b)")
MODULE_EXPORTS = compile_lazily(r"module\.exports[ \t]*=(?!=)(?:\s*\{\s*(?P<name>[\w$]+)\s*(?:,\s*)?\})?")
MAIN_MODULE = compile_lazily(
    r"if[ \t]*\([ \t]*require\.main[ \t]*===?[ \t]*module[ \t]*\)(?:\s*\{(?P<block>[^{}]*)\}\s*|(?P<call>[^{}]*))\Z"
)
EXPORTED = compile_lazily(r"\s*(?:(async\b|function\b|\(|[\w$]+\s*=>)|([\w$]+)\s*(?:;|$))", re.MULTILINE)
OWN_MODULE = compile_lazily(r"\b(?:const|let|var|function|class)\s+(?:module|require)\b")
REMOVED_EXPORTS = "left out `export`, which only modules have"
REPLACED_NODE_EXPORTS = "read what only Node.js has, `module.exports` or `require.main`, as the end of the program"
FENCED = "took the program out of its Markdown fence"
FROM_JSON = "took the program out of the JSON around it"
FROM_TAGS = "took the program out of the tags around it"
REMOVED_LANGUAGE_LINE = "left out the line that names the language"


class MappedText:
    """A text with the place in the model's text that each of its characters, and its end, comes from."""

    __slots__ = ("origins", "text")

    def __init__(self, text: str, origins: list[int] | range) -> None:
        self.text, self.origins = text, origins

    def replace_matches(self, pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str]) -> MappedText:
        """Return this text with each match replaced."""
        pieces: list[str] = []
        origins: list[int] = []
        position = 0
        for match in pattern.finditer(self.text):
            new = replace(match)
            pieces += (self.text[position : match.start()], new)
            origins += self.origins[position : match.start()]
            origins += [self.origins[match.start()]] * len(new)
            position = match.end()
        pieces.append(self.text[position:])
        origins += self.origins[position:]
        return MappedText("".join(pieces), origins)

    def slice(self, start: int, end: int) -> MappedText:
        """Return a part of this text."""
        return MappedText(self.text[start:end], list(self.origins[start : end + 1]))


class ProgramRepair:
    """The intended program: ``text``, ``notes`` on what was changed, and ``origins`` as in `MappedText`."""

    __slots__ = ("notes", "origins", "text")

    def __init__(self, text: str, notes: list[str], origins: list[int] | range) -> None:
        self.text, self.notes, self.origins = text, notes, origins


def chain_repairs(first: ProgramRepair, second: ProgramRepair) -> ProgramRepair:
    """Return one repair for two, of which the second is of the first's text."""
    return ProgramRepair(second.text, [*first.notes, *second.notes], [first.origins[at] for at in second.origins])


def may_need_repair(text: str) -> bool:
    """Return whether a text that parses may still not be what was meant: it has a fence, is JSON or one comment."""
    beginning = text.lstrip()[:2]
    return (
        "```" in text
        or (beginning[:1] == "{" and JSON_CODE_KEY.search(text) is not None)
        or (beginning[:1] == '"' and text.rstrip()[-1:] == '"' and CODE_HINT.search(text) is not None)
        or _is_escaped_comment(text, beginning)
        or (not text.isascii() and (TYPOGRAPHIC.search(text) or INVISIBLE.search(text)) is not None)
        or _find_language_line(text) is not None
    )


def is_json_container(text: str) -> bool:
    """Return whether a text is an object or an array of JSON, with a text in it: to the parser it may be a program."""
    beginning = text.lstrip()[:1]
    if beginning == "" or beginning not in "{[" or '"' not in text:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _find_language_line(text: str) -> re.Match[str] | None:
    """A first line that is the name of a language alone, as a fence leaves it, where the program has no such name."""
    match = LANGUAGE_LINE.match(text)
    is_used = (
        match is None or not text[match.end() :].strip() or f"{match[1]}" in _find_identifiers(text[match.end() :])
    )
    return None if is_used else match


def _find_identifiers(text: str) -> set[str]:
    return set(re.findall(r"[\w$]+", text))


def _is_escaped_comment(text: str, beginning: str) -> bool:
    """Return whether a text is one line that a comment begins, with line breaks written in it."""
    return beginning == "//" and "\\n" in text and "\n" not in text.strip()


def replace_node_exports(text: str, last_at: int, *, is_module: bool) -> ProgramRepair | None:
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
        new_text = text[:last_at] + _blank_text(text[last_at:start]) + text[start:end] + _blank_text(text[end:])
    else:
        new_text = _replace_with_statement(text, match, "export default" if is_module else "return")
    return ProgramRepair(new_text, [REPLACED_NODE_EXPORTS], range(len(text) + 1))


def _replace_with_statement(text: str, match: re.Match[str], keyword: str) -> str:
    """Return a text with ``keyword`` in place of a match, and the ``name`` alone that the match exports, if any."""
    start, end = match.span()
    name = match.groupdict().get("name")
    if keyword == "return" and _exports_function(text, end, name):
        keyword = ""  # as the last expression it is called; some surfaces show a function that is returned
    statement = keyword if name is None else f"{keyword} {name}"
    return text[:start] + statement + _blank_text(text[start + len(statement) : end]) + text[end:]


def _exports_function(text: str, at: int, name: str | None) -> bool:
    """Return whether what is exported is a function, written at ``at`` or declared under its ``name``."""
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


def remove_exports_and_return_default(text: str, exports: list[dict[str, Any]], last_at: int) -> ProgramRepair | None:
    """Return the body of a function without the ``export`` of its declarations and of what it exports by default.

    ``exports`` are the exports of the text, each with ``"line"`` and ``"column"``; ``last_at`` is where its last
    statement begins. None where one of them is another.
    """
    index_by_place = {position: at for at, position in enumerate(_iterate_locations(text))}
    new_text = text
    for use in exports:
        at = index_by_place.get((use["line"], use["column"]), len(text))
        default_export = (
            (EXPORT_LIST.match(new_text, at) or EXPORT_DEFAULT.match(new_text, at)) if at == last_at else None
        )
        if default_export is not None:
            new_text = _replace_with_statement(new_text, default_export, "return")
            continue
        match = EXPORT.match(new_text, at)
        if match is None:
            return None
        first = "0," if match["anonymous"] is not None else ""  # a statement cannot begin with a function without name
        start, end = match.start(), match.end("export")
        new_text = new_text[:start] + " " * (end - start - len(first)) + first + new_text[end:]
    return ProgramRepair(new_text, [REMOVED_EXPORTS], range(len(text) + 1))


def repair_program(text: str, has_no_error: Parses, node_at: NodeAt) -> ProgramRepair | None:
    """Return the intended program, or None where the text stays unchanged.

    ``has_no_error`` returns whether the parser understands a text, ``node_at`` the kind of node of a character.
    A fence or JSON around a program is always removed; decoded text must parse, if the original did not.
    """

    def parses(text: str) -> bool:
        # To the parser a character that no program may have is part of a name, or a space.
        suspicious = (
            [*TYPOGRAPHIC.finditer(text), *INVISIBLE.finditer(text)][:MAX_SUSPICIOUS_CHARACTERS]
            if has_no_error(text)
            else None
        )
        return suspicious is not None and all(node_at(text, match.start()) in LITERAL_NODES for match in suspicious)

    def is_in_comment(text: str, at: int) -> bool:
        return node_at(text, at) == "comment"

    mapped_text, notes = MappedText(text, range(len(text) + 1)), list[str]()
    is_program = parses(text) and not _is_escaped_comment(text, text.lstrip()[:2])
    if (inner := _extract_from_json(mapped_text) or _extract_from_json_string(mapped_text, parses)) is not None:
        mapped_text, is_program = inner, parses(inner.text)
        notes.append(FROM_JSON)
    line = mapped_text.text.strip()
    is_fenced = "\n" not in line and (line.startswith("```") or not is_program) and ESCAPED_FENCE.search(line)
    if is_fenced and (decoded := _decode_escaped_breaks(mapped_text)) is not None:
        mapped_text, is_program = decoded[1], False
        notes.append(f"decoded {decoded[0]}")
    if (inner := _extract_from_fence(mapped_text, is_program=is_program, is_in_comment=is_in_comment)) is not None:
        mapped_text = inner if (wrapped := _extract_from_json(inner)) is None else wrapped
        is_program = parses(mapped_text.text)
        notes += [FENCED] if wrapped is None else [FENCED, FROM_JSON]
    elif not is_program and (tags := TAGS.match(mapped_text.text)) is not None:
        mapped_text = _blank_around(mapped_text, tags.start("code"), tags.end("code"))
        is_program = parses(mapped_text.text)
        notes.append(FROM_TAGS)
    if (language_line := _find_language_line(mapped_text.text)) is not None:
        mapped_text = _blank_around(mapped_text, language_line.end(), len(mapped_text.text))
        is_program = parses(mapped_text.text)
        notes.append(REMOVED_LANGUAGE_LINE)
    if not is_program:
        for kinds, decoded in _iterate_decodings(mapped_text):
            if parses(decoded.text):
                mapped_text = decoded
                notes.append(f"decoded {' and '.join(kinds)}")
                break
    return ProgramRepair(mapped_text.text, notes, mapped_text.origins) if notes else None


def build_location_rows(text: str, origins: list[int] | range, source: str) -> list[list[int]] | None:
    """Return where lines of ``text`` come from: ``[line, column, line in source, column in source]`` in order.

    A row holds for its line from its column to that of the next row. None where all is where it was, and where there
    would be too many rows. Columns are 1-based UTF-16 units.
    """
    if isinstance(origins, range) or _is_unmoved(text, source, origins):
        return None
    source_places = list(_iterate_locations(source))
    rows: list[list[int]] = []
    line, column, expected, is_new_line = 1, 1, -1, True
    for character, origin in zip(f"{text}\n", origins, strict=True):
        if is_new_line or origin != expected:
            rows.append([line, column, *source_places[origin]])
            if len(rows) > MAX_PLACE_ROWS:
                return None
        expected, is_new_line = origin + 1, character == "\n"
        line, column = (line + 1, 1) if is_new_line else (line, column + 1 + (character > "\uffff"))
    return rows


def restore_locations_and_add_repairs(analysis: dict[str, Any], repair: ProgramRepair, source: str) -> dict[str, Any]:
    """Return what was found of a repaired program with its places in the ``source``, and with what was done."""
    rows = build_location_rows(repair.text, repair.origins, source)
    if rows is not None:
        _restore_locations_in(analysis, rows)
    facts = analysis.get("facts")
    if facts is not None:
        facts["repairs"] = [*repair.notes, *facts.get("repairs", ())]
        if rows is not None:
            facts["places"] = rows
            names = facts.get("names")
            if names:
                _restore_name_offsets(names, repair, source)
    return analysis


def _restore_locations_in(value: Any, rows: list[list[int]]) -> None:
    """Put each place, an object with ``"line"`` and ``"column"`` or a pair in ``"places"``, where it was."""
    fields: Any = value
    if isinstance(value, dict):
        if isinstance(fields.get("line"), int) and isinstance(fields.get("column"), int):
            fields["line"], fields["column"] = to_source_location(fields["line"], fields["column"], rows)
        if "places" in fields:
            fields["places"] = [list(to_source_location(pair[0], pair[1], rows)) for pair in fields["places"]]
        for item in fields.values():
            _restore_locations_in(item, rows)
    elif isinstance(value, list):
        for item in fields:
            _restore_locations_in(item, rows)


def to_source_location(line: int, column: int, rows: list[list[int]]) -> tuple[int, int]:
    """Return the place in the model's text of one in the repaired text."""
    at = bisect_right(rows, [line, column, MAX_COLUMN, MAX_COLUMN]) - 1
    row = rows[max(0, at)]
    return (row[2], row[3] + column - row[1]) if row[0] == line else (row[2], row[3])


def to_repaired_location(line: int, column: int, rows: list[list[int]]) -> tuple[int, int]:
    """Return the place in the repaired text of one that `to_source_location` gives."""
    candidates = [row for row in rows if row[2] == line and row[3] <= column]
    row = max(candidates, key=lambda row: row[3]) if candidates else rows[0]
    return row[0], row[1] + max(0, column - row[3])


def _restore_name_offsets(names: dict[str, list[int]], repair: ProgramRepair, source: str) -> None:
    """Put byte offsets of names in the repaired text where they are in the ``source``."""
    character_by_byte = {offset: at for at, offset in enumerate(_iterate_byte_offsets(repair.text))}
    bytes_in_source = list(_iterate_byte_offsets(source))
    for name, offsets in names.items():
        names[name] = [bytes_in_source[repair.origins[character_by_byte[offset]]] for offset in offsets]


def _iterate_byte_offsets(text: str) -> Iterator[int]:
    at = 0
    for character in text:
        yield at
        at += len(character.encode())
    yield at


def _is_unmoved(text: str, source: str, origins: list[int]) -> bool:
    return len(text) == len(source) and all(origin == at for at, origin in enumerate(origins))


def _iterate_locations(text: str) -> Iterator[tuple[int, int]]:
    """The line and column of each character, and of the end."""
    line, column = 1, 1
    for character in text:
        yield line, column
        line, column = (line + 1, 1) if character == "\n" else (line, column + 1 + (character > "\uffff"))
    yield line, column


def _extract_from_json(mapped_text: MappedText) -> MappedText | None:
    """The program in ``{"js": "..."}``."""
    text = mapped_text.text.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return None
    try:
        value: Any = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    match = JSON_CODE_KEY.search(mapped_text.text)
    is_object = isinstance(value, dict)
    fields: Any = value
    if match is None or not is_object:
        return None
    holders = [fields, *(fields.get(name) for name in ARGUMENT_KEYS)]  # a whole call of the tool may be written
    if not any(type(holder) is dict and type(holder.get(match[1])) is str for holder in holders):
        return None
    end = _find_string_end(mapped_text.text, match.end())
    return None if end is None else mapped_text.slice(match.end(), end).replace_matches(ESCAPE, _decode_json_escape)


def _extract_from_json_string(mapped_text: MappedText, parses: Parses) -> MappedText | None:
    """The program in a text that is one string of JSON."""
    text = mapped_text.text.strip()
    if not (len(text) > 1 and text[0] == text[-1] == '"' and CODE_HINT.search(text)):
        return None
    start = mapped_text.text.index('"') + 1
    if _find_string_end(mapped_text.text, start) != len(mapped_text.text.rstrip()) - 1:
        return None
    inner = mapped_text.slice(start, len(mapped_text.text.rstrip()) - 1).replace_matches(ESCAPE, _decode_json_escape)
    return inner if CODE_HINT.search(inner.text) and parses(inner.text) else None


def _find_string_end(text: str, start: int) -> int | None:
    at = start
    while at < len(text) and text[at] != '"':
        at += 2 if text[at] == "\\" else 1
    return at if at < len(text) else None


def _decode_json_escape(match: re.Match[str]) -> str:
    high, low, code, character = match.groups()
    if high is not None:
        return chr(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF))
    if code is not None:
        return (
            chr(int(code, 16))
            if not code.lower().startswith(("d8", "d9", "da", "db", "dc", "dd", "de", "df"))
            else "\ufffd"
        )
    return ESCAPED_CHARACTERS.get(character, character)


def _extract_from_fence(
    mapped_text: MappedText, *, is_program: bool, is_in_comment: Callable[[str, int], bool]
) -> MappedText | None:
    """The last complete fenced block of a program's language; what is around it is blanked, so that lines stay."""
    text = mapped_text.text
    is_program = is_program and not text.lstrip().startswith("```")  # to the parser, a template behind a template
    if (one_line := ONE_LINE_FENCE.match(text)) is not None:
        return _blank_around(mapped_text, one_line.start("code"), one_line.end("code"))
    blocks = list(_find_fenced_blocks(text, is_program=is_program, is_in_comment=is_in_comment))
    if any(block[2] and text[: block[0]].rstrip()[-1:] not in "`~" for block in blocks):  # one names its language
        blocks = [block for block in blocks if text[: block[0]].rstrip()[-1:] not in "`~"]
    fitting = [block for block in blocks if block[2]] or [
        block for block in blocks if _extract_from_json(mapped_text.slice(*block[:2])) is not None
    ]
    if not fitting:  # of another language: what is in it says what is wrong
        fitting = blocks
    complete = [block for block in fitting if block[3]] or fitting
    return _blank_around(mapped_text, *complete[-1][:2]) if complete else None


def _find_fenced_blocks(
    text: str, *, is_program: bool, is_in_comment: Callable[[str, int], bool]
) -> Iterator[tuple[int, int, bool, bool]]:
    """Return each fenced block: start, end, whether its language fits a program, whether it is closed."""
    opening: re.Match[str] | None = None
    fences = list(FENCE.finditer(text))
    if not is_program and (first := FENCE_AFTER_TEXT.search(text, 0, fences[0].end() if fences else len(text))):
        fences.insert(0, first)
    for match in fences:
        # `~~~` at the beginning of a line, and what stands in a comment, may be a program's own.
        if opening is None and is_program and (match[1][0] == "~" or is_in_comment(text, match.start(1))):
            continue
        if opening is None:
            opening = match
        elif not match[2].strip() and match[1][0] == opening[1][0] and len(match[1]) >= len(opening[1]):
            yield opening.end(), match.start(), _is_program_language(opening[2]), True
            opening = None
    if opening is not None and text[opening.end() :].strip():
        closing_candidates = () if is_program else FENCE_AFTER_CODE.finditer(text, opening.end())
        end = len(text.rstrip())
        closing = next((match for match in closing_candidates if not match[1].strip() or match.end() >= end), None)
        yield (
            opening.end(),
            len(text) if closing is None else closing.start(),
            _is_program_language(opening[2]),
            closing is not None,
        )
    elif opening is not None and not opening[2].strip():  # one that nothing has opened ends the program
        yield 0, opening.start(), True, False


def _is_program_language(info: str) -> bool:
    info_tokens = info.strip().lower().replace("{", " ").replace("}", " ").split()
    return (info_tokens[0] if info_tokens else "") in LANGUAGES


def _blank_around(mapped_text: MappedText, start: int, end: int) -> MappedText:
    program = mapped_text.text[start:end]
    return MappedText(
        _blank_text(mapped_text.text[:start]) + program + _blank_text(mapped_text.text[end:]), mapped_text.origins
    )


def _blank_text(text: str) -> str:
    # A character beyond the basic plane keeps its place in `origins`, from which its column is counted.
    return "".join(character if character in NEWLINES else " " for character in text)


def _iterate_decodings(mapped_text: MappedText) -> Iterator[tuple[list[str], MappedText]]:
    """The text with one of the kinds of escapes decoded, then with several."""
    decoders = [
        decoder
        for decoder in (
            _decode_entities,
            _decode_escaped_breaks,
            _decode_backticks,
            _replace_typographic_quotes,
            _remove_invisible_characters,
        )
        if decoder(mapped_text)
    ]
    for count in range(1, len(decoders) + 1):
        for chosen in combinations(decoders, count):
            descriptions, decoded = list[str](), mapped_text
            for decoder in chosen:
                result = decoder(decoded)
                if result is not None:
                    descriptions.append(result[0])
                    decoded = result[1]
            yield descriptions, decoded


def _decode_entities(mapped_text: MappedText) -> tuple[str, MappedText] | None:
    if not ENTITY.search(mapped_text.text):
        return None
    decoded = mapped_text.replace_matches(ENTITY, _decode_entity)
    if "&amp;" in mapped_text.text and ENTITY.search(decoded.text):  # encoded twice
        decoded = decoded.replace_matches(ENTITY, _decode_entity)
    return "HTML entities", decoded


def _decode_escaped_breaks(mapped_text: MappedText) -> tuple[str, MappedText] | None:
    # Literally throughout: a program that has lines of its own writes `\n` in its strings.
    is_one_line = "\n" not in mapped_text.text.strip()
    pattern = ESCAPED_BREAK_OR_QUOTE if is_one_line else ESCAPED_QUOTE
    if not pattern.search(mapped_text.text):
        return None
    description = "line breaks written as \\n" if is_one_line and "\\n" in mapped_text.text else "escaped quotes"
    return description, mapped_text.replace_matches(pattern, _decode_break_or_quote)


def _decode_break_or_quote(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] is not None else ESCAPED_CHARACTERS.get(match[2], match[2])


def _decode_backticks(mapped_text: MappedText) -> tuple[str, MappedText] | None:
    return (
        ("escaped backticks", mapped_text.replace_matches(ESCAPED_BACKTICK, lambda match: match[1]))
        if ESCAPED_BACKTICK.search(mapped_text.text)
        else None
    )


def _replace_typographic_quotes(mapped_text: MappedText) -> tuple[str, MappedText] | None:
    if not TYPOGRAPHIC.search(mapped_text.text):
        return None
    plain = mapped_text.replace_matches(TYPOGRAPHIC, lambda match: "'" if match[0] in "\u2018\u2019" else '"')
    return "typographic quotes", plain


def _remove_invisible_characters(mapped_text: MappedText) -> tuple[str, MappedText] | None:
    if not INVISIBLE.search(mapped_text.text):
        return None
    return "invisible characters", mapped_text.replace_matches(INVISIBLE, lambda _: "")


def _decode_entity(match: re.Match[str]) -> str:
    if match[1] is not None:
        return ENTITIES[match[1]]
    code = int(match[2]) if match[2] is not None else int(match[3], 16)
    return chr(code) if 32 <= code < 127 else match[0]
