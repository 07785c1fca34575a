"""Reads the names that import and export statements bind, from their text.

Loaded by path in locked workers. TypeScript's own rule distinguishes `{ type A }` from `{ type as A }`. The engine
decides whether a statement is valid at all.
"""

from __future__ import annotations

import re

from .lazy_patterns import compile_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = compile_lazily(
    r"""[\s\ufeff]+|/\*.*?\*/|//[^\n\r\u2028\u2029]*"""
    r"""|(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(?P<word>(?:\\u(?:\{[0-9a-fA-F]+\}|[0-9a-fA-F]{4})|[^\s\ufeff"'{},;*/\\()=])+)|(?P<mark>.)""",
    re.DOTALL,
)
ESCAPE = compile_lazily(
    r"\\(?:u\{([0-9a-fA-F]+)\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(\r\n|[\n\r\u2028\u2029])|(.))", re.DOTALL
)
WORD_ESCAPE = compile_lazily(r"\\u(?:\{([0-9a-fA-F]+)\}|([0-9a-fA-F]{4}))")
SURROGATES = compile_lazily("[\ud800-\udbff][\udc00-\udfff]")
LONE_SURROGATE = compile_lazily("[\ud800-\udfff]")
SINGLE_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "0": "\0"}
MAX_CODE_POINT = 0x10FFFF


class Token:
    """A word, string or mark of a statement; ``start`` and ``end`` are byte offsets in the program."""

    __slots__ = ("end", "kind", "start", "text")

    def __init__(self, kind: str, text: str, start: int, end: int) -> None:
        self.kind, self.text, self.start, self.end = kind, text, start, end

    def decode_name(self) -> str | None:
        """The name that it says, escapes decoded; None when it says none."""
        return decode_string_literal(self.text[1:-1]) if self.kind == "string" else decode_name_escapes(self.text)


class Specifier:
    """One name of a statement: ``exported`` of the module it names, ``local`` in the program (None: not given).

    The token of a namespace's ``exported`` is the mark `*`, that of a default's the local name itself.
    """

    __slots__ = ("end", "exported", "is_default", "is_type", "local", "start")

    def __init__(
        self, exported: Token, local: Token | None, end: int, *, is_type: bool = False, is_default: bool = False
    ) -> None:
        self.exported, self.local, self.is_type, self.is_default = exported, local, is_type, is_default
        self.start, self.end = exported.start, end

    def get_imported_name(self) -> str | None:
        """The imported name, with escapes decoded; "default" or "*"."""
        return "default" if self.is_default else "*" if self.exported.text == "*" else self.exported.decode_name()


class ImportOrExportClause:
    """The clause between a statement's first word and its module, and the module's token.

    ``comma`` is a comma without a name behind it.
    """

    __slots__ = ("comma", "is_type", "source", "specifiers")

    def __init__(self, specifiers: list[Specifier], *, is_type: bool) -> None:
        self.specifiers, self.is_type = specifiers, is_type
        self.source: Token | None = None
        self.comma: Token | None = None


def tokenize(data: bytes, start: int, end: int) -> list[Token]:
    """The tokens of a part of a program (UTF-8), without blanks and comments."""
    text = data[start:end].decode()
    is_ascii = len(text) == end - start
    tokens: list[Token] = []
    at, byte_end = 0, start
    for match in TOKEN.finditer(text):
        if match.lastgroup is not None:
            byte_start = start + match.start() if is_ascii else byte_end + len(text[at : match.start()].encode())
            at, byte_end = match.end(), byte_start + (len(match[0]) if is_ascii else len(match[0].encode()))
            tokens.append(Token(match.lastgroup, match[0], byte_start, byte_end))
    return tokens


def parse_import_or_export_clause(tokens: list[Token]) -> ImportOrExportClause:
    """Read the tokens of an import, or of an export with names or `*`, without the statement's first word."""
    is_type = _is_type_only(tokens)
    specifiers: list[Specifier] = []
    clause = ImportOrExportClause(specifiers, is_type=is_type)
    at = 1 if is_type else 0
    while at < len(tokens) and clause.source is None:
        token = tokens[at]
        following = tokens[at + 1] if at + 1 < len(tokens) else None
        if token.kind == "string":
            clause.source = token
        elif token.text == "{":
            end = next((i for i in range(at, len(tokens)) if tokens[i].text == "}"), len(tokens))
            specifiers += _parse_braced_specifiers(tokens[at + 1 : end])
            at = end + 1
        elif token.text == "*":
            has_name = following is not None and following.text == "as" and at + 2 < len(tokens)
            specifiers.append(Specifier(token, tokens[at + 2] if has_name else None, token.end))
            at += 3 if has_name else 1
        else:
            is_from = token.text == "from" and following is not None and following.kind == "string"
            if is_from and at > 0 and tokens[at - 1].text == ",":
                clause.comma = tokens[at - 1]
            elif token.kind == "word" and not is_from:
                specifiers.append(Specifier(token, token, token.end, is_default=True))
            at += 1
    return clause


def _is_type_only(tokens: list[Token]) -> bool:
    """`type` before a name or names, but not where it is itself the name of the default import."""
    if len(tokens) < 2 or tokens[0].text != "type":
        return False
    second = tokens[1]
    if second.text == "from":
        return len(tokens) > 2 and tokens[2].text == "from"
    return second.kind == "word" or second.text in ("{", "*")


def _parse_braced_specifiers(tokens: list[Token]) -> Iterator[Specifier]:
    """The specifiers between the braces; each ends behind its comma."""
    specifier_tokens: list[Token] = []
    for token in tokens:
        if token.text == ",":
            if specifier_tokens:
                yield _parse_specifier(specifier_tokens, token.end)
            specifier_tokens = []
        else:
            specifier_tokens.append(token)
    if specifier_tokens:
        yield _parse_specifier(specifier_tokens, specifier_tokens[-1].end)


def _parse_specifier(tokens: list[Token], end: int) -> Specifier:
    texts = [item.text for item in tokens]
    is_type = texts[0] == "type" and (len(tokens) in (2, 4) or (len(tokens) == 3 and texts[1] != "as"))
    first, *rest = tokens[1:] if is_type else tokens
    specifier = Specifier(first, rest[1] if len(rest) == 2 and rest[0].text == "as" else None, end, is_type=is_type)
    specifier.start = tokens[0].start
    return specifier


def decode_name_escapes(text: str) -> str | None:
    """A name without its escapes; None when one of them is no character."""
    try:
        return WORD_ESCAPE.sub(lambda found: chr(int(found[1] or found[2], 16)), text) if "\\" in text else text
    except (OverflowError, ValueError):
        return None


def decode_string_literal(quoted_text: str, *, is_template: bool = False) -> str | None:
    """Return the content of a string literal in strict code; None for other text."""
    if is_template:
        quoted_text = quoted_text.replace("\r\n", "\n").replace("\r", "\n")
    if "\\" not in quoted_text:
        return quoted_text
    pieces: list[str] = []
    position = 0
    while (at := quoted_text.find("\\", position)) >= 0:
        escape = ESCAPE.match(quoted_text, at)
        decoded = None if escape is None else _decode_escape(escape, quoted_text[escape.end() : escape.end() + 1])
        if escape is None or decoded is None:
            return None
        pieces += (quoted_text[position:at], decoded)
        position = escape.end()
    return SURROGATES.sub(_combine_surrogates, "".join([*pieces, quoted_text[position:]]))


def _decode_escape(escape: re.Match[str], following: str) -> str | None:
    code = escape[1] or escape[2] or escape[3]
    if code is not None:
        number = int(code, 16) if len(code.lstrip("0")) <= 6 else MAX_CODE_POINT + 1
        return chr(number) if number <= MAX_CODE_POINT else None
    if escape[4] is not None:
        return ""
    single = escape[5]
    if single in "ux123456789" or (single == "0" and following.isdigit()):
        return None
    return SINGLE_ESCAPES.get(single, single)


def _combine_surrogates(pair: re.Match[str]) -> str:
    high, low = (ord(unit) for unit in pair[0])
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def has_lone_surrogate(text: str) -> bool:
    """Return whether a text holds half of a pair."""
    return not text.isascii() and any("\ud800" <= unit <= "\udfff" for unit in text)


def replace_lone_surrogates(text: str) -> str:
    """A text with the replacement character for each half of a pair that stands alone."""
    return LONE_SURROGATE.sub("\ufffd", text) if has_lone_surrogate(text) else text
