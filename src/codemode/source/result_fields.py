"""Compares the fields of results that a program reads with what its tools say that they return. Runs in the host.

Facts are hostile. Only a field that a closed output cannot have is a problem: malformed facts, and schemas that leave
anything open, are none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..data.narrowing import is_array, list_or_empty, mapping_or_empty
from ..data.similar_names import nearest_names
from ..host import steps
from .checks import (
    INHERITED_NAMES,
    MAX_DEPTH,
    MAX_NAME_LENGTH,
    MAX_PROBLEMS,
    MAX_SUGGESTIONS,
    Root,
    Visits,
    is_closed,
    known_keys,
    placed_items,
    problem_at,
    resolved,
    shown_tool,
)

if TYPE_CHECKING:
    from ..data.program_facts import ProgramProblem

_MAX_ASKED = 8
# How like a name must be to be suggested, and how like to be a slip where the program may have asked.
_ALIKE, _SLIP = 0.6, 0.8
# What else decides which fields there are.
_OTHER_KEYWORDS = ("allOf", "if", "dependentSchemas", "$dynamicRef", "not", "nullable")


def check_results(
    facts: Any, catalog_names: Collection[str], get_output_schema: Callable[[str], Any]
) -> list[ProgramProblem]:
    """The fields that a program takes for granted and that its tools never return, as `checks.check_program` has them.

    ``facts`` is what the worker reported, unverified; ``get_output_schema`` gives a known tool's JSON Schema or None.
    """
    return list(islice(_problems(facts, catalog_names, get_output_schema), MAX_PROBLEMS))


def _problems(facts: Any, names: Collection[str], get_output_schema: Callable[[str], Any]) -> Iterator[ProgramProblem]:
    roots: dict[str, Root] = {}
    visits = Visits()
    suggestions = iter(range(MAX_SUGGESTIONS))
    for read in placed_items(facts, "reads"):
        tool, name = read.get("tool"), read.get("name")
        steps.take()
        if not isinstance(tool, str) or tool not in names or not isinstance(name, str):
            continue
        if not 0 < len(name) <= MAX_NAME_LENGTH or name in INHERITED_NAMES or name.startswith("__"):
            continue
        if tool not in roots:
            roots[tool] = Root(get_output_schema(tool), visits)
        known: dict[str, Any] = {}
        if _lacks(name, roots[tool].schema, roots[tool], known, 0) and known:
            is_sure = _is_sure(read, roots[tool])
            near = (
                nearest_names(name, known, _ALIKE if is_sure else _SLIP) if next(suggestions, None) is not None else []
            )
            if not near and not is_sure:
                continue
            hint = f"; did you mean {' or '.join(near)}?" if near else known_keys(known)
            yield problem_at(read, f"{shown_tool(tool)}: result.{name} does not exist{hint}")


def _is_sure(read: dict[str, Any], root: Root) -> bool:
    """Whether a program gets there: what it asks for before it goes there may be what no result has either."""
    asked = list_or_empty(read.get("asked"))[:_MAX_ASKED]
    return not read.get("doubtful") and not any(
        isinstance(name, str) and len(name) <= MAX_NAME_LENGTH and _lacks(name, root.schema, root, {}, 0)
        for name in asked
    )


def _lacks(name: str, schema: Any, root: Root, known: dict[str, Any], depth: int) -> bool:
    """Whether no result has the field; ``known`` gets those that there are. Reading one of null fails as well."""
    found = resolved(schema, root)
    if found is None or depth > MAX_DEPTH or any(keyword in found for keyword in _OTHER_KEYWORDS):
        return False
    if "anyOf" in found or "oneOf" in found:
        return _all_lack(name, found, root, known, depth)
    kind: Any = found.get("type")
    kinds: list[Any] = kind if is_array(kind) else [kind]
    if not kinds or any(one not in ("object", "null") for one in kinds):
        return False
    if "object" not in kinds:
        return True
    properties = mapping_or_empty(found.get("properties"))
    if not is_closed(found) or name in properties or not root.may_list(properties):
        return False
    known.update(properties)
    return True


def _all_lack(name: str, schema: Mapping[str, Any], root: Root, known: dict[str, Any], depth: int) -> bool:
    if "properties" in schema or ("anyOf" in schema and "oneOf" in schema):
        return False
    branches: Any = schema.get("anyOf", schema.get("oneOf"))
    return bool(is_array(branches) and branches) and all(
        _lacks(name, branch, root, known, depth + 1) for branch in branches
    )
