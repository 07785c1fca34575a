"""Recognise a text that is no JavaScript: Python, a shell command, JSON, prose. Pure."""

from __future__ import annotations

import json
import re

_MAX_LOOKED_AT = 8_000
_PYTHON = re.compile(
    r"^[ \t]*(?:"
    r"(?:async )?def \w+\([^{}\n]*\)[^{}\n]*:|(?:class|for|while|with|if|elif|except) [^{}\n]*:|(?:else|try|finally):"
    r"|(?:import [\w.]+(?:[ \t]+as \w+)?|from [\w.]+ import [\w, *]+)"
    r"|print\(f[\"'].*"
    r")[ \t]*(?:#.*)?$",
    re.MULTILINE,
)
_KEYWORD_ARGUMENT = re.compile(r"\bawait\s+[\w.]+\(\s*\w+\s*=[^=>]")
_SHELL = re.compile(
    r"(?:\$\s+|sudo\s+|#!/)?(?:ls|cd|cat|pwd|echo|grep|find|git|npm|npx|yarn|pnpm|pip|pip3|python3?|node|curl|wget|"
    r"mkdir|rm|cp|mv|touch|chmod|chown|bash|sh|zsh|sed|awk|head|tail|docker|kubectl|make|cargo|go|apt|apt-get|brew|"
    r"ps|kill|which|env|export|source|tar|ssh|scp|jq|xargs|uname|whoami|df|du)(?:\s|$|[|;&])"
)
_PROSE = re.compile(r"\s*[A-Z][\w',\u2019-]*(?:[ \n]+[\w'\u2019,:()-]+){3,}[.!?:\u2026]?")
_CODE = re.compile(r"[;={}\[\]]|=>|\breturn\b|\bawait\b|\bconst\b")


def looks_like_shell(text: str) -> bool:
    """Return whether a text that is no JavaScript begins as a command of a shell does."""
    return _SHELL.match(text.lstrip()[:60]) is not None


def language_of(text: str) -> str | None:
    """Return what a text is that is no JavaScript ("Python", "a shell command", "JSON", "prose"); None if unclear."""
    looked_at = text.strip()[:_MAX_LOOKED_AT]
    if looked_at[:1] in "{[" and _is_json(text):
        return "JSON"
    if looks_like_shell(looked_at):
        return "a shell command"
    if _PYTHON.search(looked_at) or _KEYWORD_ARGUMENT.search(looked_at):
        return "Python"
    if _PROSE.match(looked_at) and not _CODE.search(looked_at):
        return "prose"
    return None


def language_hint(text: str) -> str | None:
    """Return what to do about a text that is another language; None where that is not clear."""
    language = language_of(text)
    if language is None:
        return None
    return f"This is {language}, and a program is JavaScript. Write it as JavaScript and send the whole program."


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
