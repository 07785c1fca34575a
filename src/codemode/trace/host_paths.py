"""Mask paths of this host in the text of an unexpected exception."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
from pathlib import Path

MASK = "[path]"

_CHARACTER = r"[^\s\"'`<>|]"
_REST = rf"(?:{_CHARACTER}*[^\s\"'`<>|,.;:!?)\]}}])?"  # punctuation that ends a sentence does not end a path
# A path may contain spaces: words are part of it as far as another separator follows.
_ONWARD = rf"(?:\ [^\s\"'`<>|/\\]{{1,80}}[/\\]{_REST})*"
_START = r"(?<![\w.~%@+-])"
_NAME = r"[\w.@%+~-]"
_METHODS = r"\b(?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)"
_SYSTEM_FOLDERS = r"etc|home|root|usr|var|opt|srv|tmp|proc|sys|mnt|nix|snap|private|run/(?:secrets|user)"
_MAC_FOLDERS = r"Users|Library|Volumes|Applications|System"
_SOURCE_SUFFIXES = r"py|pyx|js|mjs|cjs|ts|tsx|jsx|go|rb|rs|java|kt|scala|cs|c|cc|cpp|h|php|swift|ex|lua|pl"
_GENERAL_PATHS = rf"""
      (?P<kept>{_METHODS}\s+/{_CHARACTER}* | \b(?!file:)[A-Za-z][A-Za-z0-9+.-]{{0,20}}://{_CHARACTER}+)
    | (?P<quote>["'`])(?:file:/ | ~[\w.-]*[/\\]
        | /{{1,4}}(?:{_SYSTEM_FOLDERS}|{_MAC_FOLDERS})/{_NAME}
        | [A-Za-z]:[\\/]+\w{{2}} | \\\\(?:\\\\)?\w[\w.-]+\\)[^"'`\n]*(?P=quote)
    | \bfile:/{_REST}{_ONWARD}
    | {_START}/{{1,4}}(?:{_SYSTEM_FOLDERS}|{_MAC_FOLDERS})/{{1,4}}(?={_NAME}){_REST}{_ONWARD}
    | (?<![\w/.~)])~[\w.-]*[/\\](?=[\w.]){_REST}{_ONWARD}
    | (?<![A-Za-z0-9])[A-Za-z]:(?:\\{{1,2}}|/+)[\w.~$-][\w\ .()~$-]{{1,60}}[\\/]{_REST}{_ONWARD}
    | (?<![\w\\])\\\\(?:\\\\)?\w[\w.-]+\\{{1,2}}\w[\w.$-]{_REST}{_ONWARD}
    | (?<![\w./\\@%+~-])/*(?:{_NAME}+[/\\]+)*[\w-]+\.(?:{_SOURCE_SUFFIXES})(?:\(\d+(?:,\s*\d+)?\)|(?::\d+)+)
"""


def mask_host_paths(text: str) -> str:
    """Return the text with each path of this host replaced by ``[path]``.

    Paths of this host are those below its own folders (home, temporary, working directory, Python and its packages),
    below the usual folders of a system, and places in source files. Routes, dates, patterns and names are left.
    """
    if found := _operating_system_error().search(text):  # what it quotes is a path, whatever it looks like
        text = text[: found.end()] + _quoted_path().sub(MASK, text[found.end() :])
    text = _own_paths(_working_directory()).sub(MASK, text)
    return _general_paths().sub(lambda found: found["kept"] or MASK, text)


def _working_directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it was removed
        return ""


@functools.lru_cache(maxsize=4)
def _own_paths(working_directory: str) -> re.Pattern[str]:
    import tempfile

    named = [working_directory, sys.prefix, sys.base_prefix, str(Path(contextlib.__file__).parent), *sys.path]
    for find in (lambda: str(Path.home()), tempfile.gettempdir):
        with contextlib.suppress(OSError, RuntimeError):  # there is none
            named.append(find())
    absolute = [Path(name) for name in named if Path(name).is_absolute()]
    folders = {*map(str, absolute), *(str(path.resolve()) for path in absolute)}
    parts = [re.split(r"[\\/]+", folder.rstrip("\\/")) for folder in folders]
    known = sorted((p for p in parts if len(p) > 1), key=len, reverse=True)  # a root alone would match every path
    roots = "|".join(r"[\\/]{1,4}".join(map(re.escape, part)) for part in known) or r"(?!)"
    pattern = rf"""
          (?P<quote>["'`])(?:{roots})(?:[\\/][^"'`\n]*)?(?P=quote)
        | {_START}[\\/]{{0,4}}(?:{roots})(?![\w-])(?:[\\/]{_REST}{_ONWARD})?
    """
    return re.compile(pattern, re.VERBOSE | (re.IGNORECASE if os.name == "nt" else re.NOFLAG))


@functools.cache
def _operating_system_error() -> re.Pattern[str]:
    return re.compile(r"\[(?:Errno|WinError) -?\d+\]")


@functools.cache
def _quoted_path() -> re.Pattern[str]:
    return re.compile(r"""(["'])(?:[^"'\n]*[/\\])[^"'\n]*\1""")


@functools.cache
def _general_paths() -> re.Pattern[str]:
    return re.compile(_GENERAL_PATHS, re.VERBOSE)
