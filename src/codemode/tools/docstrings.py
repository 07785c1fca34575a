"""Docstrings, read for what they say of a function and its parameters: Google, NumPy, Sphinx. Pure text."""

from __future__ import annotations

import re

_SPHINX = re.compile(r"^:param\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$")
_GOOGLE_HEADER = re.compile(r"^(?:Args|Arguments|Parameters|Params):$")
_GOOGLE = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_NUMPY_NAMES = re.compile(r"^(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")


def summary(doc: str) -> str:
    """Give the first paragraph as one line."""
    return " ".join(doc.strip().split("\n\n", 1)[0].split())


def parameter_descriptions(doc: str) -> dict[str, str]:
    """Map parameter names to their descriptions; empty where the style is none of the three."""
    lines = doc.expandtabs().splitlines()
    found = {**_numpy(lines), **_google(lines), **_sphinx(lines)}
    return {name: " ".join(text.split()) for name, text in found.items() if text.strip()}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _indented_below(lines: list[str], start: int, indent: int) -> list[str]:
    block: list[str] = []
    for line in lines[start:]:
        if line.strip() and _indent(line) <= indent:
            break
        block.append(line)
    return block


def _sphinx(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(lines):
        if match := _SPHINX.match(line.strip()):
            rest = _indented_below(lines, number + 1, _indent(line))
            found[match[1]] = " ".join([match[2], *rest])
    return found


def _google(lines: list[str]) -> dict[str, str]:
    start = next((n for n, line in enumerate(lines) if _GOOGLE_HEADER.match(line.strip())), None)
    if start is None:
        return {}
    block = _indented_below(lines, start + 1, _indent(lines[start]))
    indent = min((_indent(line) for line in block if line.strip()), default=0)
    found: dict[str, str] = {}
    for number, line in enumerate(block):
        if _indent(line) == indent and (match := _GOOGLE.match(line.strip())):
            rest = _indented_below(block, number + 1, indent)
            found[match[1]] = " ".join([match[2], *rest])
    return found


def _numpy(lines: list[str]) -> dict[str, str]:
    start = next((n for n in range(len(lines) - 1) if _is_numpy_header(lines[n], lines[n + 1])), None)
    if start is None:
        return {}
    indent = _indent(lines[start])
    found: dict[str, str] = {}
    for number in range(start + 2, len(lines)):
        line = lines[number]
        if number + 1 < len(lines) and lines[number + 1].strip().startswith("---"):
            break
        if line.strip() and _indent(line) == indent and (match := _NUMPY_NAMES.match(line.strip())):
            text = " ".join(_indented_below(lines, number + 1, indent))
            found.update({name.strip().lstrip("*"): text for name in match[1].split(",")})
    return found


def _is_numpy_header(line: str, underline: str) -> bool:
    return line.strip() == "Parameters" and underline.strip().startswith("---")
