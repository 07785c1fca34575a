"""Show the text of an unexpected exception without paths, line numbers and stacks of the host."""

from __future__ import annotations

import re

from ..cached_property import cached_property
from .host_paths import MASK, mask_host_paths
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


_CREDENTIALS = _Pattern(r"(?<=://)[^/?#\s\"'<>]{1,500}@")
_MAX_READ_CHARACTERS = 8_000  # of a text that may be any size

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

_STACK_IN_ONE_LINE = _Pattern(r"(?:\s+at\ (?:async\ )?(?:[\w.$<>]+\ )?\(?\[path\]\)?)+")
_LINES = r"""(?:(?:on|at|in|near)\ )?\b(?:lines?|lineno)\b
    \s*(?:no\.?|number|\#|:|=)?\s*\#?\d+(?:\s*(?:-|,|and)\s*\d+)*
    (?:[\s,;:]*(?:and\ )?(?:col(?:umn)?|char(?:acter)?|offset|pos(?:ition)?)\b\.?\s*[:=\#]?\s*\d+)*"""
_LINE_NUMBERS = _Pattern(rf"\s*\(\s*{_LINES}\s*\)|[,;]?\s*\b{_LINES}", re.VERBOSE | re.IGNORECASE)


def public_message(text: str, instead: str) -> str:
    """Return the text on one line, of at most 200 characters; ``instead`` where nothing is left of it."""
    shown = " ".join(filter(None, _without_stack(text[:_MAX_READ_CHARACTERS])))
    shown = _without_paths_and_credentials(shown)
    for pattern in (_STACK_IN_ONE_LINE, _LINE_NUMBERS):
        shown = pattern.compiled.sub("", shown)
    shown = one_line(" ".join(shown.split()), MAX_PUBLIC_CHARACTERS)
    return shown if any(map(str.isalnum, shown.replace(MASK, ""))) else instead


def first_line(text: str, instead: str) -> str:
    """Return the first line of a text without paths and credentials, at most 500 characters; ``instead`` of nothing."""
    line = next((one for one in text[:_MAX_READ_CHARACTERS].splitlines() if one.strip()), "")
    shown = one_line(_without_paths_and_credentials(line).strip(), MAX_LINE_CHARACTERS)
    return shown if any(map(str.isalnum, shown.replace(MASK, ""))) else instead


def _without_paths_and_credentials(text: str) -> str:
    return mask_host_paths(_CREDENTIALS.compiled.sub("", text))


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
