"""Find the program in a model's input, and detect text that is not JavaScript."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

from ..data.narrowing import is_mapping

_MAX_CHECKED_CHARACTERS = 8_000
# Texts of expressions: `re` compiles, and keeps, those that a failure asks for. Most programs ask for none.
_PYTHON = (
    r"(?m)^[ \t]*(?:"
    r"(?:async )?def \w+\([^{}\n]*\)[^{}\n]*:|(?:class|for|while|with|if|elif|except) [^{}\n]*:|(?:else|try|finally):"
    r"|(?:import [\w.]+(?:[ \t]+as \w+)?|from [\w.]+ import [\w, *]+)"
    r"|print\(f[\"'].*|[\w.]+ = (?:f[\"'].*|lambda\b[^:\n]*:.*)"
    r"|\"{3}.*"
    r")[ \t]*(?:#.*)?$"
)
_ASSIGNED = r"(?m)^[ \t]*[\w.]+ = ([^\n{}?;]*)$"
_PRINT = r"(?m)^print\([^\n;]*\)[ \t]*$"
_KEYWORD_ARGUMENT = r"\bawait\s+[\w.]+\(\s*(?:[\"'][^\"'\n]*[\"']\s*,\s*)?\w+\s*=[^=>]"
_SHELL = (
    r"(?:\$\s+|sudo\s+)?(?:#!/\S*(?:bin/|env )|for \w+ in [^\n;]*; *do\b|if \[|"
    r"ls|cd|cat|pwd|echo|grep|find|git|npm|npx|yarn|pnpm|pip|pip3|python3?|node|curl|wget|"
    r"mkdir|rm|cp|mv|touch|chmod|chown|bash|sh|zsh|sed|awk|head|tail|docker|kubectl|make|cargo|go|apt|apt-get|brew|"
    r"ps|kill|which|env|source|tar|ssh|scp|jq|xargs|uname|whoami|df|du)(?=\s|$|[|;&]|(?<=/))(?!\s*=[^=])"
    r"|export \w+=\S"
)
_SQL = r"(?is)(?:SELECT\s.+\sFROM|INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM)\s"
_PROSE = r"\s*[^\W\d_][\w',\u2019-]*(?:[ \n]+[\w'\u2019,:()-]+){3,}[.!?:\u2026]?"
_CODE = r"[;={}\[\]]|\w\(|\breturn\b|\bawait\b|\bconst\b"
_KEYWORDS = r"\b(?:const|let|var|function|await|return)\b|=>"
_IDEOGRAPH = "[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]"
_FENCE = r"(?m)^[ \t]*(?:`{3,}|~{3,})[ \t]*(\w+)"
_LANGUAGE_BY_FENCE = {
    **dict.fromkeys(("python", "py", "python3"), "Python"),
    **dict.fromkeys(("bash", "sh", "shell", "zsh", "console"), "a shell command"),
    "sql": "SQL",
    "json": "JSON",
}


def looks_like_shell(text: str) -> bool:
    """Return whether a text starts like a shell command."""
    return re.match(_SHELL, text.lstrip()[:60]) is not None


def detect_language(text: str) -> str | None:
    """Return the language of a text ("Python", "a shell command", "JSON", "prose"); None if unclear."""
    beginning = text.strip()[:_MAX_CHECKED_CHARACTERS]
    if beginning[:1] in "{[" and _is_json(text):
        return "JSON"
    fences = [_LANGUAGE_BY_FENCE.get(info.lower()) for info in re.findall(_FENCE, beginning)]
    if fences and fences[-1] is not None:
        return fences[-1]
    if looks_like_shell(beginning):
        return "a shell command"
    if any(0 < value.find(" if ") < value.rfind(" else ") for value in re.findall(_ASSIGNED, beginning)):
        return "Python"
    if beginning.startswith("# ") or re.search(_PYTHON, beginning) or re.search(_KEYWORD_ARGUMENT, beginning):
        return "Python"
    if re.search(_PRINT, beginning) and not re.search(_KEYWORDS, beginning):
        return "Python"
    if re.match(_SQL, beginning) and not re.search(_KEYWORDS, beginning):
        return "SQL"
    if (re.match(_PROSE, beginning) or re.search(_IDEOGRAPH, beginning)) and not re.search(_CODE, beginning):
        return "prose"
    return None


def make_language_hint(text: str) -> str | None:
    """Return a hint about a text in another language; None if unclear."""
    language = detect_language(text)
    if language is None:
        return None
    return f"This is {language}, and a program is JavaScript. Write it as JavaScript and send the whole program."


def make_language_hint_for_error(name: str, text: str) -> str | None:
    """Return a hint for a text that ended with an error of this name; `ls -la` is a program of undefined names."""
    return make_language_hint(text) if name in ("SyntaxError", "ReferenceError") else None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


PROGRAM_FIELDS = ("js", "code", "script", "program", "source", "javascript", "typescript")


def rename_program_field(tool_input: Any, field: str | Collection[str]) -> Any:
    """Return an input with the program in ``field``, moved from another of `PROGRAM_FIELDS`, if it is there.

    ``field`` may be all fields of the input, including the program's.
    """
    if not isinstance(field, str):
        field = next((name for name in PROGRAM_FIELDS if name in field), "")
    if not field or not is_mapping(tool_input) or field in tool_input:
        return tool_input
    filled_fields = [name for name in PROGRAM_FIELDS if isinstance(tool_input.get(name), str)]
    if len(filled_fields) != 1:
        return tool_input
    return {
        field: tool_input[filled_fields[0]],
        **{key: value for key, value in tool_input.items() if key != filled_fields[0]},
    }
