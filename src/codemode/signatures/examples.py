"""Inputs and calls that show a tool in use. Invents no facts: placeholders only where the schema gives nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..data.narrowing import list_or_empty, mapping_or_empty
from ..data.references import LocalReferences
from .described_tool import DescribedTool
from .literals import literal, member_access
from .typescript import pascal_case

MAX_SAMPLE_DEPTH = 6
MAX_SAMPLE_PROPERTIES = 20
MAX_EXAMPLE_TOOLS = 3
MAX_EXAMPLE_CHARACTERS = 400
_MAX_SAMPLE = 2.0**63
_SLIGHT = 1e-9

_BY_FORMAT = {
    "date-time": "2025-01-31T12:00:00Z",
    "date": "2025-01-31",
    "time": "12:00:00Z",
    "duration": "P1D",
    "email": "user@example.com",
    "idn-email": "user@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com",
    "url": "https://example.com",
    "iri": "https://example.com",
    "uri-reference": "/path",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "json-pointer": "/path",
    "regex": ".*",
    "binary": "",
    "byte": "",
}


def sample_input(tool: DescribedTool) -> Any:
    """An input for ``tool``: its first example, else one made from the schema (required keys only)."""
    if tool.input_examples:
        return tool.input_examples[0]
    return sample_value(tool.input_json_schema) if tool.input_json_schema is not None else {}


def sample_value(schema: Any) -> Any:
    """A value that fits ``schema`` as far as types, formats and limits go. Never raises."""
    return Sampler(LocalReferences(schema)).value(schema, 0)


class Sampler:
    """Makes one value of a schema and of those in it."""

    def __init__(self, local: LocalReferences) -> None:
        self._local = local

    def value(self, schema: Any, depth: int) -> Any:
        """A value that fits a schema at this depth of the first."""
        if not isinstance(schema, Mapping) or depth > MAX_SAMPLE_DEPTH:
            return {} if depth == 0 else None
        known = mapping_or_empty(schema)
        for keyword in ("default", "const"):
            if known.get(keyword) is not None:
                return known[keyword]
        for keyword in ("examples", "enum"):
            listed = list_or_empty(known.get(keyword))
            if listed:
                return listed[0]
        return self._made(known, depth)

    def _made(self, schema: Mapping[Any, Any], depth: int) -> Any:
        reference = schema.get("$ref")
        if isinstance(reference, str):
            pointer = self._local.resolve(reference)
            return None if pointer is None else self.value(self._local.lookup(pointer), depth + 1)
        for keyword in ("anyOf", "oneOf"):
            branches = list_or_empty(schema.get(keyword))
            if branches and "properties" not in schema:
                return self.value(branches[0], depth + 1)
        return self._typed(schema, depth)

    def _typed(self, schema: Mapping[Any, Any], depth: int) -> Any:
        match _first_type(schema):
            case "string":
                return self._string(schema)
            case "integer" | "number":
                return _sample_number(schema)
            case "boolean":
                return True
            case "array":
                return self._array(schema, depth)
            case "object":
                return self._object(schema, depth)
            case _:
                return {} if depth == 0 else None

    def _string(self, schema: Mapping[Any, Any]) -> str:
        known_format = schema.get("format")
        if isinstance(known_format, str) and known_format in _BY_FORMAT:
            return _BY_FORMAT[known_format]
        least, most = schema.get("minLength"), schema.get("maxLength")
        text = "text"
        if isinstance(least, int) and least > len(text):
            text = text.ljust(min(least, 100), "x")
        return text[: max(most, 0)] if isinstance(most, int) else text

    def _array(self, schema: Mapping[Any, Any], depth: int) -> list[Any]:
        items = schema.get("items")
        listed = list_or_empty(schema.get("prefixItems")) or list_or_empty(items)
        if listed:
            return [self.value(item, depth + 1) for item in listed[:MAX_SAMPLE_PROPERTIES]]
        least = schema.get("minItems")
        count = min(max(least, 1), MAX_SAMPLE_PROPERTIES) if isinstance(least, int) else 1
        if depth >= MAX_SAMPLE_DEPTH and not least:
            return []
        if items is None:
            return []
        listed = list_or_empty(mapping_or_empty(items).get("enum"))
        if schema.get("uniqueItems") is True and len(listed) >= count > 1:
            return [*listed[:count]]
        one = self.value(items, depth + 1)
        return [_other(one, at) for at in range(count)] if schema.get("uniqueItems") is True else [one] * count

    def _object(self, schema: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        sample: dict[str, Any] = {}
        for branch in list_or_empty(schema.get("allOf"))[:MAX_SAMPLE_PROPERTIES]:
            sample.update(mapping_or_empty(self.value(branch, depth + 1)))
        known = mapping_or_empty(schema.get("properties"))
        for name in list_or_empty(schema.get("required"))[:MAX_SAMPLE_PROPERTIES]:
            if isinstance(name, str):
                sample[name] = self.value(known.get(name, schema.get("additionalProperties")), depth + 1)
        return sample


def _first_type(schema: Mapping[Any, Any]) -> str:
    declared = schema.get("type")
    for name in list_or_empty(declared) or [declared]:
        if isinstance(name, str) and name != "null":
            return name
    return "object" if "properties" in schema or "allOf" in schema or "required" in schema else ""


def _other(value: Any, at: int) -> Any:
    """Of a number or a text another one for each place."""
    if at == 0 or isinstance(value, bool) or not isinstance(value, int | float | str):
        return value
    return f"{value}{at + 1}" if isinstance(value, str) else value + at


def _sample_number(schema: Mapping[Any, Any]) -> float:
    bounds = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf")
    least, above, most, below, step = (_number(schema.get(key)) for key in bounds)
    step = None if step is None or step < _SLIGHT else step
    low, high = (_either(least, above, max), _either(most, below, min))
    offered: list[float] = [step if step is not None and step > 1 else 1]
    for bound in (low, high):
        if bound is not None:
            offered += [bound, math.floor(bound) + 1, math.ceil(bound) - 1]
            if step is not None:
                steps = math.floor(bound / step)
                offered += [(steps + at) * step for at in (0, 1, -1)]
    if low is not None and high is not None:
        offered.append((low + high) / 2)

    def fits(value: float) -> bool:
        is_in = (least is None or value >= least) and (above is None or value > above)
        is_in = is_in and (most is None or value <= most) and (below is None or value < below)
        is_whole = schema.get("type") != "integer" or value == math.floor(value)
        return is_in and is_whole and (step is None or abs(value / step - round(value / step)) < _SLIGHT)

    return next(filter(fits, offered), offered[0])


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and abs(value) < _MAX_SAMPLE else None


def _either(one: float | None, other: float | None, choose: Callable[[float, float], float]) -> float | None:
    return choose(one, other) if one is not None and other is not None else other if one is None else one


def call_example(tools: Sequence[DescribedTool]) -> str:
    """A program that calls one tool, or several at once. ``tools`` must not be empty."""
    # A model copies what it is shown: show calls that change nothing first.
    safest = sorted(tools, key=lambda tool: tool.annotations.get("readOnlyHint") is not True)
    shown = safest[:MAX_EXAMPLE_TOOLS]
    names = _variable_names(shown)
    if len(shown) == 1:
        return f"const {names[0]} = await {_call(shown[0])};\nreturn {_projected(names[0], shown[0])};"
    calls = "".join(f"  {_call(tool)},\n" for tool in shown)
    results = ", ".join(
        f"{name}: {_projected(name, tool)}" if _projected(name, tool) != name else name
        for name, tool in zip(names, shown, strict=True)
    )
    return f"const [{', '.join(names)}] = await Promise.all([\n{calls}]);\nreturn {{ {results} }};"


def _call(tool: DescribedTool) -> str:
    text = literal(sample_input(tool))
    if len(text) > MAX_EXAMPLE_CHARACTERS:
        text = "{ /* see its declaration */ }"
    return f"{member_access('tools', tool.name)}({text})"


def _projected(variable: str, tool: DescribedTool) -> str:
    schema = mapping_or_empty(tool.output_json_schema)
    if schema.get("type") != "object":
        return variable
    first = next((key for key in mapping_or_empty(schema.get("properties")) if isinstance(key, str)), None)
    return variable if first is None else member_access(variable, first)


def _variable_names(tools: Sequence[DescribedTool]) -> list[str]:
    taken: dict[str, None] = {}
    for tool in tools:
        words = pascal_case(tool.name)
        wanted = f"{words[:1].lower()}{words[1:]}Result" if words[:1].isalpha() else f"result{words}"
        name, number = wanted, 2
        while name in taken:
            name, number = f"{wanted}{number}", number + 1
        taken[name] = None
    return list(taken)
