"""Find the program in a model's input, under the name of its field or another usual one."""

from __future__ import annotations

from typing import Any

from ..data.narrowing import is_mapping

PROGRAM_FIELDS = ("js", "code", "script", "program", "source", "javascript", "typescript")


def with_program_field(given: Any, field: str) -> Any:
    """Return an input whose program is in ``field``, where it came in one other of `PROGRAM_FIELDS`; else as it is."""
    if not is_mapping(given) or field in given:
        return given
    found = [name for name in PROGRAM_FIELDS if isinstance(given.get(name), str)]
    if len(found) != 1:
        return given
    return {field: given[found[0]], **{key: value for key, value in given.items() if key != found[0]}}
