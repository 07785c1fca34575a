"""Writes the text that the engine evaluates for a module program, and its import facts.

Loaded by path in locked workers. The engine has no module loader: static imports become blanks, and one destructuring
in front of line 1 takes their names from a global; `import(` becomes a function call of equal length.
"""

from __future__ import annotations

import json
import re
from itertools import count

from .lazy_patterns import compile_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .import_calls import DynamicImport
    from .modules import ImportBinding

MAX_LOADS = 256
GLOBAL_NAME = "$codemode"
LOAD_NAME = "impo$_"
LAST_VALUE_NAME = "$last"
TAIL_LENGTH = 5
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
ESCAPE = compile_lazily(r"\\u(?:\{0*([0-9a-fA-F]{1,6})\}|([0-9a-fA-F]{4}))")
MAX_CODE_POINT = 0x10FFFF


class UnusedNameGenerator:
    """Names that occur nowhere in a text, however they are written."""

    def __init__(self, text: str) -> None:
        self._text = text if "\\u" not in text else text + "\n" + ESCAPE.sub(_decode_escape, text)

    def create_global_name(self) -> str:
        """The name of the global that the program reads once."""
        return (
            GLOBAL_NAME
            if GLOBAL_NAME not in self._text
            else GLOBAL_NAME + self._find_unused_suffix(re.escape(GLOBAL_NAME))
        )

    def create_import_function_name(self) -> str:
        """A name of the length of `import`."""
        return LOAD_NAME if LOAD_NAME not in self._text else "$" + self._find_unused_suffix(r"\$")

    def create_last_value_name(self) -> str:
        """The name of the object that keeps the value of the last statement."""
        return (
            LAST_VALUE_NAME
            if LAST_VALUE_NAME not in self._text
            else LAST_VALUE_NAME + self._find_unused_suffix(re.escape(LAST_VALUE_NAME))
        )

    def _find_unused_suffix(self, stem: str) -> str:
        taken = set(re.findall(rf"(?={stem}([0-9a-z]{{{TAIL_LENGTH}}}))", self._text))
        return next(tail for number in count() if (tail := _to_base36(number)) not in taken)


def build_import_prefix(bindings: list[ImportBinding], load_name: str, last_name: str, global_name: str) -> str:
    """Return the code in front of the program.

    Without a ``load_name`` the program calls no `import()`. Without a ``last_name`` the value of its last statement is
    not kept.
    """
    destructured: list[str] = []
    at = 0
    while at < len(bindings):
        index, exported = bindings[at].index, bindings[at].exported
        if exported is None:
            destructured.append(f"{index}:{bindings[at].source_text}")
            at += 1
            continue
        names: list[str] = []
        while at < len(bindings) and bindings[at].index == index and bindings[at].exported is not None:
            names.append(f"{json.dumps(bindings[at].exported)}:{bindings[at].source_text}")
            at += 1
        destructured.append(f"{index}:{{{','.join(names)}}}")
    if load_name:
        destructured.append(f"load:{load_name}")
    if last_name:
        destructured.append(f"last:{last_name}")
    return f"const{{{','.join(destructured)}}}={global_name};"


def describe_dynamic_imports(loads: list[DynamicImport]) -> list[dict[str, Any]]:
    """``{"from", "at"}`` of each; those beyond the bound are one of which nothing is known."""
    facts = [{"from": load.specifier, "at": load.at} for load in loads[:MAX_LOADS]]
    if len(loads) > MAX_LOADS:
        facts.append({"from": None, "at": loads[MAX_LOADS].at})
    return facts


def _to_base36(number: int) -> str:
    digits = ""
    for _ in range(TAIL_LENGTH):
        number, digit = divmod(number, len(DIGITS))
        digits = DIGITS[digit] + digits
    return digits


def _decode_escape(escape: re.Match[str]) -> str:
    number = int(escape[1] or escape[2], 16)
    return chr(number) if number <= MAX_CODE_POINT else escape[0]
