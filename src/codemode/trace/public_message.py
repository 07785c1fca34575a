"""Show the text of an exception without paths, line numbers and stacks of the host."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
from pathlib import Path

from ..cached_property import cached_property
from .visible_text import clip_to_visible_line

MASK = "[path]"

_CHARACTER = r"[^\s\"'`<>|]"
_PATH_REST = rf"(?:{_CHARACTER}*[^\s\"'`<>|,.;:!?)\]}}])?"  # punctuation that ends a sentence does not end a path
# A path may contain spaces: words are part of it as far as another separator follows.
_PATH_CONTINUATION = rf"(?:\ [^\s\"'`<>|/\\]{{1,80}}[/\\]{_PATH_REST})*"
_PATH_START = r"(?<![\w.~%@+-])"
_NAME = r"[\w.@%+~-]"
_HTTP_METHODS = r"\b(?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)"
_SYSTEM_FOLDERS = r"etc|home|root|usr|var|opt|srv|tmp|proc|sys|mnt|nix|snap|private|run/(?:secrets|user)"
_MAC_FOLDERS = r"Users|Library|Volumes|Applications|System"
_SOURCE_SUFFIXES = r"py|pyx|js|mjs|cjs|ts|tsx|jsx|go|rb|rs|java|kt|scala|cs|c|cc|cpp|h|php|swift|ex|lua|pl"
_GENERAL_PATHS = rf"""
      (?P<kept>{_HTTP_METHODS}\s+/{_CHARACTER}* | \b(?!file:)[A-Za-z][A-Za-z0-9+.-]{{0,20}}://{_CHARACTER}+)
    | (?P<quote>["'`])(?:file:/ | ~[\w.-]*[/\\]
        | /{{1,4}}(?:{_SYSTEM_FOLDERS}|{_MAC_FOLDERS})/{_NAME}
        | [A-Za-z]:[\\/]+\w{{2}} | \\\\(?:\\\\)?\w[\w.-]+\\)[^"'`\n]*(?P=quote)
    | \bfile:/{_PATH_REST}{_PATH_CONTINUATION}
    | {_PATH_START}/{{1,4}}(?:{_SYSTEM_FOLDERS}|{_MAC_FOLDERS})/{{1,4}}(?={_NAME}){_PATH_REST}{_PATH_CONTINUATION}
    | (?<![\w/.~)])~[\w.-]*[/\\](?=[\w.]){_PATH_REST}{_PATH_CONTINUATION}
    | (?<![A-Za-z0-9])[A-Za-z]:(?:\\{{1,2}}|/+)[\w.~$-][\w\ .()~$-]{{1,60}}[\\/]{_PATH_REST}{_PATH_CONTINUATION}
    | (?<![\w\\])\\\\(?:\\\\)?\w[\w.-]+\\{{1,2}}\w[\w.$-]{_PATH_REST}{_PATH_CONTINUATION}
    | (?<![\w./\\@%+~-])/*(?:{_NAME}+[/\\]+)*[\w-]+\.(?:{_SOURCE_SUFFIXES})(?:\(\d+(?:,\s*\d+)?\)|(?::\d+)+)
"""


def mask_host_paths(text: str) -> str:
    """Return the text with each path of this host replaced by ``[path]``.

    Paths of this host are those below its own folders (home, temporary, working directory, Python and its packages),
    below the usual folders of a system, and places in source files. Routes, dates, patterns and names are left.
    """
    if found := _compile_os_error_pattern().search(text):  # its quoted part is always a path
        text = text[: found.end()] + _compile_quoted_path_pattern().sub(MASK, text[found.end() :])
    text = _compile_host_path_pattern(_find_working_directory()).sub(MASK, text)
    return _compile_general_path_pattern().sub(lambda found: found["kept"] or MASK, text)


def _find_working_directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it was removed
        return ""


@functools.lru_cache(maxsize=4)
def _compile_host_path_pattern(working_directory: str) -> re.Pattern[str]:
    import tempfile

    folder_names = [working_directory, sys.prefix, sys.base_prefix, str(Path(contextlib.__file__).parent), *sys.path]
    for find in (lambda: str(Path.home()), tempfile.gettempdir):
        with contextlib.suppress(OSError, RuntimeError):  # no home directory
            folder_names.append(find())
    absolute = [Path(name) for name in folder_names if Path(name).is_absolute()]
    folders = {*map(str, absolute), *(str(path.resolve()) for path in absolute)}
    parts = [re.split(r"[\\/]+", folder.rstrip("\\/")) for folder in folders]
    host_parts = sorted(
        (path_parts for path_parts in parts if len(path_parts) > 1), key=len, reverse=True
    )  # a root alone would match every path
    roots = "|".join(r"[\\/]{1,4}".join(map(re.escape, part)) for part in host_parts) or r"(?!)"
    pattern = rf"""
          (?P<quote>["'`])(?:{roots})(?:[\\/][^"'`\n]*)?(?P=quote)
        | {_PATH_START}[\\/]{{0,4}}(?:{roots})(?![\w-])(?:[\\/]{_PATH_REST}{_PATH_CONTINUATION})?
    """
    return re.compile(pattern, re.VERBOSE | (re.IGNORECASE if os.name == "nt" else re.NOFLAG))


@functools.cache
def _compile_os_error_pattern() -> re.Pattern[str]:
    return re.compile(r"\[(?:Errno|WinError) -?\d+\]")


@functools.cache
def _compile_quoted_path_pattern() -> re.Pattern[str]:
    return re.compile(r"""(["'])(?:[^"'\n]*[/\\])[^"'\n]*\1""")


@functools.cache
def _compile_general_path_pattern() -> re.Pattern[str]:
    return re.compile(_GENERAL_PATHS, re.VERBOSE)


MAX_PUBLIC_CHARACTERS = 200
MAX_LINE_CHARACTERS = 500


class _LazyPattern:
    """A pattern that is compiled when it is first used: all of these take longer than the rest of a module's import."""

    def __init__(self, text: str, flags: re.RegexFlag = re.NOFLAG) -> None:
        self._text, self._flags = text, flags

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self._text, self._flags)


_CREDENTIALS = _LazyPattern(r"(?<=://)[^/?#\s\"'<>]{1,500}@")
_MAX_READ_CHARACTERS = 8_000  # of a text that may be any size

_TRACEBACK_LINE = _LazyPattern(
    r"""(?:[+|]\s?)*(?:
        (?:Exception\ Group\ )?Traceback\ \(most\ recent\ call\ last\) | File\ "[^"]*",\ line\ \d
      | During\ handling\ of\ the\ above\ exception | The\ above\ exception\ was\ the\ direct\ cause
      | \[Previous\ line\ repeated | (?:stack\ backtrace|stack\ trace):?\s*$ | goroutine\ \d+\ \[
    )""",
    re.VERBOSE | re.IGNORECASE,
)
# Below the message itself, or set in: one that begins so is no stack.
_FRAME_LINE = _LazyPattern(
    r"""(?:
        at\ .*(?:[:(]\d|:line\ \d|\(native|\(<anonymous|\([\w.$]+\.(?:java|kt|scala|groovy)|\(Unknown\ Source)
      | at\ [\w.$<>\[\]/]+\s*\(.*\)\s*$ | at\ async\  | at\ <anonymous>$ | from\ \S+:\d+ | \.\.\.\ \d+\ (?:more|common)
      | \#\d+\s | \d+:\ +(?:0x|\S+::) | [~^]+\s*$ | [\w.$*()/-]+\(.*\)\s*$ | \S+\.go:\d+
    )""",
    re.VERBOSE,
)
_HAS_SOURCE = _LazyPattern(r'(?:[+|]\s?)*File "[^"]*", line', re.IGNORECASE)

_STACK_IN_ONE_LINE = _LazyPattern(r"(?:\s+at\ (?:async\ )?(?:[\w.$<>]+\ )?\(?\[path\]\)?)+")
_LINE_NUMBER_TEXT = r"""(?:(?:on|at|in|near)\ )?\b(?:lines?|lineno)\b
    \s*(?:no\.?|number|\#|:|=)?\s*\#?\d+(?:\s*(?:-|,|and)\s*\d+)*
    (?:[\s,;:]*(?:and\ )?(?:col(?:umn)?|char(?:acter)?|offset|pos(?:ition)?)\b\.?\s*[:=\#]?\s*\d+)*"""
_LINE_NUMBERS = _LazyPattern(
    rf"\s*\(\s*{_LINE_NUMBER_TEXT}\s*\)|[,;]?\s*\b{_LINE_NUMBER_TEXT}", re.VERBOSE | re.IGNORECASE
)


def to_public_message(text: str, fallback: str) -> str:
    """Return the text on one line, of at most 200 characters; ``fallback`` where nothing is left of it."""
    message = " ".join(filter(None, _split_without_stack_lines(text[:_MAX_READ_CHARACTERS])))
    message = _remove_paths_and_credentials(message)
    for pattern in (_STACK_IN_ONE_LINE, _LINE_NUMBERS):
        message = pattern.pattern.sub("", message)
    message = clip_to_visible_line(" ".join(message.split()), MAX_PUBLIC_CHARACTERS)
    return message if any(map(str.isalnum, message.replace(MASK, ""))) else fallback


def to_public_first_line(text: str, fallback: str) -> str:
    """Return the first line without paths and credentials, at most 500 characters; ``fallback`` if it is empty."""
    line = next((candidate for candidate in text[:_MAX_READ_CHARACTERS].splitlines() if candidate.strip()), "")
    message = clip_to_visible_line(_remove_paths_and_credentials(line).strip(), MAX_LINE_CHARACTERS)
    return message if any(map(str.isalnum, message.replace(MASK, ""))) else fallback


def _remove_paths_and_credentials(text: str) -> str:
    return mask_host_paths(_CREDENTIALS.pattern.sub("", text))


def _split_without_stack_lines(text: str) -> list[str]:
    lines: list[str] = []
    has_source = False
    for raw_line in text.splitlines():
        is_indented, line = raw_line[:1].isspace(), " ".join(raw_line.split())
        if has_source and is_indented and not _TRACEBACK_LINE.pattern.match(line):
            continue
        has_source = _HAS_SOURCE.pattern.match(line) is not None
        may_be_frame = bool(lines) or is_indented
        if not _TRACEBACK_LINE.pattern.match(line) and not (may_be_frame and _FRAME_LINE.pattern.match(line)):
            lines.append(line)
    return lines
