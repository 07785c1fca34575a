"""The text of a host's error without what tells of the host: paths, line numbers, stacks. Knows no errors."""

from __future__ import annotations

import re

from ..cached_property import cached_property
from .visible_text import one_line

MAX_PUBLIC_CHARACTERS = 200
MAX_LINE_CHARACTERS = 500


class _Pattern:
    """A pattern that is compiled when it is first used: all of these take longer than the rest of a module's import."""

    def __init__(self, text: str, flags: re.RegexFlag = re.NOFLAG) -> None:
        self._text, self._flags = text, flags

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self._text, self._flags)


_CREDENTIALS = _Pattern(r"(://)[^/\s@]{1,500}@")
_MAX_READ_CHARACTERS = 8_000  # of a text that may be any size
_REMOVED = "[path]"

_TRACEBACK_LINE = _Pattern(
    r"""(?:[+|]\s?)*(?:
        (?:Exception\ Group\ )?Traceback\ \(most\ recent\ call\ last\) | File\ "[^"]*",\ line\ \d
      | During\ handling\ of\ the\ above\ exception | The\ above\ exception\ was\ the\ direct\ cause
      | \[Previous\ line\ repeated | (?:stack\ backtrace|stack\ trace):?\s*$ | goroutine\ \d+\ \[
    )""",
    re.VERBOSE | re.IGNORECASE,
)
# Below the message itself, or set in: one that begins so is no stack.
_FRAME_LINE = _Pattern(
    r"""(?:
        at\ .*(?:[:(]\d|:line\ \d|\(native|\(<anonymous|\([\w.$]+\.(?:java|kt|scala|groovy)|\(Unknown\ Source)
      | at\ [\w.$<>\[\]/]+\s*\(.*\)\s*$ | at\ async\  | at\ <anonymous>$ | from\ \S+:\d+ | \.\.\.\ \d+\ (?:more|common)
      | \#\d+\s | \d+:\ +(?:0x|\S+::) | [~^]+\s*$ | [\w.$*()/-]+\(.*\)\s*$ | \S+\.go:\d+
    )""",
    re.VERBOSE,
)
_HAS_SOURCE = _Pattern(r'(?:[+|]\s?)*File "[^"]*", line', re.IGNORECASE)

_CHARACTER = r"[^\s\"'`<>|]"
_REST = rf"(?:{_CHARACTER}*[^\s\"'`<>|,.;:!?)\]}}])?"  # what ends a sentence does not end a path
# A path may hold a space, and nothing tells where it ends: what leads on is taken for a part of it.
_ONWARD = rf"(?:\ [^\s\"'`<>|/\\]{{1,80}}[/\\]{_REST})*"
_PLACE = r"(?:\(\d+(?:,\s*\d+)?\)|(?::\d+)+)?"
_PART = r"[\w.@%+~-]+"
_PATHS = _Pattern(
    rf"""
      (?P<kept>\b(?:https?|wss?)://(?![^\s/]*@){_CHARACTER}+ | \b\d+/\d+/\d+\b | </[A-Za-z][\w:-]*>)
    | (?P<quote>["'`])(?:file:/|~|\.{{0,2}}/|[A-Za-z]:[\\/]|\\\\|[^"'`\s/\\]+[/\\][^"'`/\\]+[/\\])
        [^"'`\n]*(?P=quote){_PLACE}
    | \b[A-Za-z][A-Za-z0-9+.-]{{0,20}}://{_REST}
    | \bfile:/{_REST}{_ONWARD}
    | (?<![A-Za-z0-9])[A-Za-z]:[\\/]{_REST}{_ONWARD}
    | (?<![\w.~%-])[\w.~%-]*\\(?!["']){_REST}{_ONWARD}
    | (?<![\w/.~)])(?:~[\w.-]*|\.{{1,2}})?/+(?=[^\s/]){_REST}{_ONWARD}
    | (?<![\w/.@%+~-]){_PART}(?:/{_PART}){{2,}}/?{_PLACE}
    | (?<![\w/.@%+~-]){_PART}/[\w.@%+~-]*\.[A-Za-z]\w{{0,5}}\b{_PLACE}
    | (?<![\w-])[\w-]+\.[A-Za-z]\w{{0,5}}(?:\(\d+(?:,\s*\d+)?\)|(?::\d+)+)
    """,
    re.VERBOSE,
)
_STACK_IN_ONE_LINE = _Pattern(r"(?:\s+at\ (?:async\ )?(?:[\w.$<>]+\ )?\(?\[path\]\)?)+")
_LINE_NUMBERS = _Pattern(
    r"""[,;]?\s*\b(?:(?:on|at|in|near)\ )?(?:lines?|lineno)\b
        \s*(?:no\.?|number|\#|:|=)?\s*\#?\d+(?:\s*(?:-|,|and)\s*\d+)*
        (?:[\s,;:]*(?:and\ )?(?:col(?:umn)?|char(?:acter)?|offset|pos(?:ition)?)\b\.?\s*[:=\#]?\s*\d+)*""",
    re.VERBOSE | re.IGNORECASE,
)
_EMPTY_BRACKETS = _Pattern(r"\s*(?:\(\s*[,;:]?\s*\)|\[\s*\])")


def public_message(text: str, instead: str) -> str:
    """Return the text on one line, of at most 200 characters; ``instead`` where nothing is left of it."""
    shown = " ".join(filter(None, _without_stack(text[:_MAX_READ_CHARACTERS])))
    shown = without_paths(shown)
    for pattern in (_STACK_IN_ONE_LINE, _LINE_NUMBERS, _EMPTY_BRACKETS):
        shown = pattern.compiled.sub("", shown)
    shown = one_line(" ".join(shown.split()), MAX_PUBLIC_CHARACTERS)
    return shown if any(map(str.isalnum, shown.replace(_REMOVED, ""))) else instead


def first_line(text: str, instead: str) -> str:
    """Return the first line of a text without paths and credentials, at most 500 characters; ``instead`` of nothing."""
    line = next((one for one in text[:_MAX_READ_CHARACTERS].splitlines() if one.strip()), "")
    shown = one_line(without_paths(_CREDENTIALS.compiled.sub(r"\1", line)).strip(), MAX_LINE_CHARACTERS)
    return shown if any(map(str.isalnum, shown.replace(_REMOVED, ""))) else instead


def without_paths(text: str, name: str = "") -> str:
    """Return the text without the paths of files in it. A ``name`` may look like one: as a word of its own it stays."""
    pieces = re.split(rf"(?<![\w./\\~-]){re.escape(name)}(?![\w/\\-]|\.\w)", text) if name else [text]
    return name.join(_PATHS.compiled.sub(lambda found: found["kept"] or _REMOVED, piece) for piece in pieces)


def _without_stack(text: str) -> list[str]:
    kept: list[str] = []
    has_source = False
    for written in text.splitlines():
        is_set_in, line = written[:1].isspace(), " ".join(written.split())
        if has_source and is_set_in and not _TRACEBACK_LINE.compiled.match(line):
            continue
        has_source = _HAS_SOURCE.compiled.match(line) is not None
        is_below = bool(kept) or is_set_in
        if not _TRACEBACK_LINE.compiled.match(line) and not (is_below and _FRAME_LINE.compiled.match(line)):
            kept.append(line)
    return kept
