"""Inputs and calls that show a tool in use. Placeholders stand where the schema gives no value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from ..data.narrowing import list_or_empty, mapping_or_empty
from ..data.references import LocalReferences
from ..data.rich_values import is_rich
from .described_tool import DescribedTool, may_ask, rich_sides
from .literals import Expression, literal, member_access

MAX_SAMPLE_DEPTH = 6
MAX_SAMPLE_PROPERTIES = 20
MAX_EXAMPLE_CHARACTERS = 400
_MAX_SAMPLE = 2.0**63
_SLIGHT = 1e-9

_MAX_VALUES = 300
_LEFT_OUT: Any = object()
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
    if tool.input_json_schema is None:
        return {}
    return _RichSampler.sample(tool) if is_rich.get() and rich_sides(tool)[0] else sample_value(tool.input_json_schema)


def sample_value(schema: Any) -> Any:
    """A value that fits ``schema`` as far as types, formats and limits go. Never raises."""
    sample = _Sampler(LocalReferences(schema)).value(schema, 0)
    return None if sample is _LEFT_OUT else sample


class _Sampler:
    """Makes one value of a schema and of those in it."""

    def __init__(self, local: LocalReferences) -> None:
        self._local = local
        self._left = _MAX_VALUES

    def value(self, schema: Any, depth: int) -> Any:
        """A value that fits a schema at this depth of the first; `_LEFT_OUT` for text that has to match a pattern."""
        self._left -= 1
        if self._left < 0 or not isinstance(schema, Mapping) or depth > MAX_SAMPLE_DEPTH:
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

    def _string(self, schema: Mapping[Any, Any]) -> Any:
        known_format = schema.get("format")
        if isinstance(known_format, str) and known_format in _BY_FORMAT:
            return _BY_FORMAT[known_format]
        if "pattern" in schema:
            return _LEFT_OUT
        least, most = schema.get("minLength"), schema.get("maxLength")
        text = "text"
        if isinstance(least, int) and least > len(text):
            text = text.ljust(min(least, 100), "x")
        return text[: max(most, 0)] if isinstance(most, int) else text

    def _array(self, schema: Mapping[Any, Any], depth: int) -> list[Any]:
        items = schema.get("items")
        listed = list_or_empty(schema.get("prefixItems")) or list_or_empty(items)
        if listed:
            made = [self.value(item, depth + 1) for item in listed[:MAX_SAMPLE_PROPERTIES]]
            return [] if _LEFT_OUT in made else made
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
        if one is _LEFT_OUT:
            return []
        return [_other(one, at) for at in range(count)] if schema.get("uniqueItems") is True else [one] * count

    def _object(self, schema: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        sample: dict[str, Any] = {}
        for branch in list_or_empty(schema.get("allOf"))[:MAX_SAMPLE_PROPERTIES]:
            sample.update(mapping_or_empty(self.value(branch, depth + 1)))
        known = mapping_or_empty(schema.get("properties"))
        for name in list_or_empty(schema.get("required"))[:MAX_SAMPLE_PROPERTIES]:
            if isinstance(name, str):
                sample[name] = self.value(known.get(name, schema.get("additionalProperties")), depth + 1)
        return {name: value for name, value in sample.items() if value is not _LEFT_OUT}


class _RichSampler(_Sampler):
    """Writes dates, bytes and sets as the expressions that make them."""

    @classmethod
    def sample(cls, tool: DescribedTool) -> Any:
        made = cls(LocalReferences(tool.input_json_schema)).value(tool.input_json_schema, 0)
        return None if made is _LEFT_OUT else made

    def _string(self, schema: Mapping[Any, Any]) -> Any:
        known_format, text = schema.get("format"), super()._string(schema)
        if known_format == "binary":
            return Expression("new Uint8Array([1, 2, 3])")
        return Expression(f"new Date({literal(text)})") if known_format in ("date-time", "date") else text

    def _array(self, schema: Mapping[Any, Any], depth: int) -> Any:
        items = super()._array(schema, depth)
        return Expression(f"new Set({literal(items)})") if schema.get("uniqueItems") is True else items


# What of a condition a sample is made to meet: not its `if`; its `if`, as one without it does; and both.
_WAYS = (("else",), ("then",), ("if", "then"))
_TYPES = {
    "pattern": "string",
    "minLength": "string",
    "format": "string",
    "contains": "array",
    "items": "array",
    "minItems": "array",
    "minProperties": "object",
    "properties": "object",
    "required": "object",
    "minimum": "number",
    "maximum": "number",
    "multipleOf": "number",
}
_PARTS = frozenset({"allOf", "if", "then", "else"})


def samples(schema: Any) -> Iterator[Any]:
    """Yield values that may fit a schema. Never raises."""
    seen = [sample_value(schema)]
    yield seen[0]
    for way in _WAYS:
        try:
            made = _CloserSampler(schema, way).value(schema, 0)
        except _TooMuch:
            return
        if made is not _LEFT_OUT and made not in seen:
            seen.append(made)
            yield made


class _TooMuch(Exception):  # noqa: N818 - no error: the schema has no small sample
    """A sample would be too large."""


class _CloserSampler(_Sampler):
    """Makes one value that minds more keywords. ``way`` names the parts of conditions that it is to meet."""

    def __init__(self, schema: Any, way: tuple[str, ...]) -> None:
        super().__init__(LocalReferences(schema))
        self._followed = LocalReferences(schema).followed
        self._way = way

    def value(self, schema: Any, depth: int) -> Any:
        self._spend()
        if not isinstance(schema, Mapping) or depth > MAX_SAMPLE_DEPTH:
            return super().value(schema, depth)
        whole = self._whole(mapping_or_empty(schema), depth)
        return whole["const"] if whole.get("const") is not None else super().value(whole, depth)

    def _spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _TooMuch

    def _whole(self, schema: Mapping[Any, Any], depth: int) -> Mapping[Any, Any]:
        """Return a schema with what stands in its parts as if it stood in the schema itself."""
        parts = [*list_or_empty(schema.get("allOf"))[:MAX_SAMPLE_PROPERTIES]]
        if "properties" in schema or "required" in schema:
            parts += [one for key in ("anyOf", "oneOf") for one in list_or_empty(schema.get(key))[:1]]
        parts += [schema[key] for key in self._way if key in schema and "if" in schema]
        whole = {key: value for key, value in schema.items() if key not in _PARTS}
        for part in parts:
            self._spend()
            followed = mapping_or_empty(self._followed(part))
            if depth < MAX_SAMPLE_DEPTH:
                whole = _both(whole, self._whole(followed, depth + 1))
        if "type" not in whole and (implied := next((_TYPES[key] for key in _TYPES if key in whole), None)):
            whole["type"] = implied
        return whole

    def _array(self, schema: Mapping[Any, Any], depth: int) -> list[Any]:
        wanted = mapping_or_empty(schema.get("contains"))
        if "items" not in schema and isinstance(schema.get("minItems"), int) and "prefixItems" not in schema:
            schema = {**schema, "items": wanted or {"type": "string"}}
        made = super()._array(schema, depth)
        least = schema.get("minContains", 1)
        if not wanted or not isinstance(least, int):
            return made
        of_items = mapping_or_empty(schema.get("items"))
        found = {**schema, "items": _both(of_items, wanted), "minItems": min(least, MAX_SAMPLE_PROPERTIES)}
        beside = made[: max(len(made) - least, 0)] if isinstance(schema.get("minItems"), int) else []
        return [*super()._array({key: value for key, value in found.items() if key != "prefixItems"}, depth), *beside]

    def _object(self, schema: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        sample = super()._object(schema, depth)
        known = mapping_or_empty(schema.get("properties"))
        for name, needed in mapping_or_empty(schema.get("dependentRequired")).items():
            for one in list_or_empty(needed)[:MAX_SAMPLE_PROPERTIES] if name in sample else ():
                if isinstance(one, str) and one not in sample:
                    self._put(sample, one, known.get(one), depth)
        least = schema.get("minProperties")
        if isinstance(least, int):
            self._fill(sample, schema, min(least, MAX_SAMPLE_PROPERTIES), depth)
        return sample

    def _fill(self, sample: dict[str, Any], schema: Mapping[Any, Any], least: int, depth: int) -> None:
        """Add members that may be there until there are enough."""
        known, other = mapping_or_empty(schema.get("properties")), schema.get("additionalProperties", True)
        named = list_or_empty(mapping_or_empty(schema.get("propertyNames")).get("enum"))
        names = [*known, *(named or [f"key{number + 1}" for number in range(least)] if other is not False else [])]
        for name in names:
            if len(sample) >= least:
                return
            if isinstance(name, str) and name not in sample:
                self._put(sample, name, known.get(name, mapping_or_empty(other) or {"type": "string"}), depth)

    def _put(self, sample: dict[str, Any], name: str, schema: Any, depth: int) -> None:
        value = self.value(schema, depth + 1)
        if value is not _LEFT_OUT:
            sample[name] = value


def _both(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the keywords of two schemas of one value; of the same keyword the second's counts."""
    both = {**one, **other}
    for key in ("properties", "dependentRequired"):
        first, second = mapping_or_empty(one.get(key)), mapping_or_empty(other.get(key))
        if first and second:
            both[key] = {**first, **{name: _of_both(first.get(name), second[name]) for name in second}}
    if "required" in one and "required" in other:
        both["required"] = [*list_or_empty(one["required"]), *list_or_empty(other["required"])]
    return both


def _of_both(first: Any, second: Any) -> Any:
    one, other = mapping_or_empty(first), mapping_or_empty(second)
    return {**one, **other} if one and other else second


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
    """Return a short program in which one call depends on another, for a description.

    Models copy what they are shown, so it calls read-only tools alone. Without one it shows the form.
    """
    readers = [tool for tool in tools if tool.annotations.get("readOnlyHint") is True and not may_ask(tool)]
    for program in (_dependent_calls(readers), *(f"return await {_call(tool)};" for tool in readers[:_MAX_READERS])):
        if program is not None and len(program) <= _MAX_PROGRAM_CHARACTERS:
            return program
    return _FORM


_MAX_PROGRAM_CHARACTERS = 240
_MAX_READERS = 50
_FORM = """\
const first = await tools.firstTool({ key: "value" });
return await tools.secondTool({ id: first.id });"""


def _dependent_calls(tools: Sequence[DescribedTool]) -> str | None:
    """Return a program that passes a field of one tool's output to another tool; None if no field fits."""
    wanted = [(tool, name, kind) for tool in tools[:_MAX_READERS] for name, kind in _fields(tool.input_json_schema)]
    for producer in tools[:_MAX_READERS]:
        schema = LocalReferences(producer.output_json_schema)
        output = mapping_or_empty(schema.followed(producer.output_json_schema))
        is_list = output.get("type") == "array"
        item = schema.followed(output.get("items")) if is_list else output
        offered = set(_properties(item, schema))
        for consumer, name, kind in wanted:
            if consumer is producer or (name, kind) not in offered:
                continue
            value = member_access("item" if is_list else "found", name)
            call = _call(consumer, {name: Expression(value)})
            end = f"await Promise.all(found.map((item) => {call}))" if is_list else f"await {call}"
            program = f"const found = await {_call(producer)};\nreturn {end};"
            if len(program) <= _MAX_PROGRAM_CHARACTERS:
                return program
    return None


def _fields(schema: Any) -> Iterator[tuple[str, str]]:
    """Yield the required fields of an input, with their types."""
    required = list_or_empty(mapping_or_empty(schema).get("required"))[:MAX_SAMPLE_PROPERTIES]
    return ((name, kind) for name, kind in _properties(schema, LocalReferences(schema)) if name in required)


def _properties(schema: Any, references: LocalReferences) -> Iterator[tuple[str, str]]:
    properties = mapping_or_empty(mapping_or_empty(schema).get("properties"))
    for name in islice(properties, MAX_SAMPLE_PROPERTIES):
        kind = mapping_or_empty(references.followed(properties[name])).get("type")
        if isinstance(name, str) and kind in ("string", "integer", "number"):
            yield name, kind


def _call(tool: DescribedTool, values: Mapping[str, Any] | None = None) -> str:
    sample = sample_input(tool)
    if values is not None:
        sample = {**mapping_or_empty(sample), **values}
    text = literal(sample)
    if len(text) > MAX_EXAMPLE_CHARACTERS:
        text = "{ /* see its declaration */ }"
    return f"{member_access('tools', tool.name)}({text})"
