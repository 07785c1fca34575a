"""Example inputs and calls of a tool, with placeholders where the schema has no value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from ..data.narrowing import list_or_empty, mapping_or_empty
from ..data.references import LocalReferenceResolver
from ..data.rich_values import is_rich
from .described_tool import DescribedTool, get_rich_input_and_output_flags, may_need_approval
from .literals import JavaScriptExpression, to_literal, to_member_access

MAX_SAMPLE_DEPTH = 6
MAX_SAMPLE_PROPERTIES = 20
MAX_EXAMPLE_CHARACTERS = 400
_MAX_SAMPLE_NUMBER = 2.0**63
_TOLERANCE = 1e-9

_MAX_VALUES = 300
_OMITTED: Any = object()
_SAMPLE_BY_FORMAT = {
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


def create_sample_input(tool: DescribedTool) -> Any:
    """An input for ``tool``: its first example, else one made from the schema (required keys only)."""
    if tool.input_examples:
        return tool.input_examples[0]
    if tool.input_json_schema is None:
        return {}
    return (
        _RichSchemaSampler.create_input(tool)
        if is_rich.get() and get_rich_input_and_output_flags(tool)[0]
        else create_sample_value(tool.input_json_schema)
    )


def create_sample_value(schema: Any) -> Any:
    """A value that fits ``schema`` as far as types, formats and limits go. Never raises."""
    sample = _SchemaSampler(LocalReferenceResolver(schema)).create_value(schema, 0)
    return None if sample is _OMITTED else sample


class _SchemaSampler:
    """Makes one value of a schema and of those in it."""

    def __init__(self, local: LocalReferenceResolver) -> None:
        self._local = local
        self._values_left = _MAX_VALUES

    def create_value(self, schema: Any, depth: int) -> Any:
        """A value that fits a schema at this depth of the first; `_OMITTED` for text that has to match a pattern."""
        self._values_left -= 1
        if self._values_left < 0 or not isinstance(schema, Mapping) or depth > MAX_SAMPLE_DEPTH:
            return {} if depth == 0 else None
        schema_rules = mapping_or_empty(schema)
        for keyword in ("default", "const"):
            if schema_rules.get(keyword) is not None:
                return schema_rules[keyword]
        for keyword in ("examples", "enum"):
            choices = list_or_empty(schema_rules.get(keyword))
            if choices:
                return choices[0]
        return self._create_from_keywords(schema_rules, depth)

    def _create_from_keywords(self, schema: Mapping[Any, Any], depth: int) -> Any:
        reference = schema.get("$ref")
        if isinstance(reference, str):
            pointer = self._local.resolve_to_pointer(reference)
            return None if pointer is None else self.create_value(self._local.look_up_pointer(pointer), depth + 1)
        for keyword in ("anyOf", "oneOf"):
            branches = list_or_empty(schema.get(keyword))
            if branches and "properties" not in schema:
                return self.create_value(branches[0], depth + 1)
        return self._create_by_type(schema, depth)

    def _create_by_type(self, schema: Mapping[Any, Any], depth: int) -> Any:
        match _get_first_type(schema):
            case "string":
                return self._create_string(schema)
            case "integer" | "number":
                return _create_sample_number(schema)
            case "boolean":
                return True
            case "array":
                return self._create_array(schema, depth)
            case "object":
                return self._create_object(schema, depth)
            case _:
                return {} if depth == 0 else None

    def _create_string(self, schema: Mapping[Any, Any]) -> Any:
        format_name = schema.get("format")
        if isinstance(format_name, str) and format_name in _SAMPLE_BY_FORMAT:
            return _SAMPLE_BY_FORMAT[format_name]
        if "pattern" in schema:
            return _OMITTED
        min_length, max_length = schema.get("minLength"), schema.get("maxLength")
        text = "text"
        if isinstance(min_length, int) and min_length > len(text):
            text = text.ljust(min(min_length, 100), "x")
        return text[: max(max_length, 0)] if isinstance(max_length, int) else text

    def _create_array(self, schema: Mapping[Any, Any], depth: int) -> list[Any]:
        items = schema.get("items")
        item_schemas = list_or_empty(schema.get("prefixItems")) or list_or_empty(items)
        if item_schemas:
            values = [self.create_value(item, depth + 1) for item in item_schemas[:MAX_SAMPLE_PROPERTIES]]
            return [] if _OMITTED in values else values
        min_items = schema.get("minItems")
        count = min(max(min_items, 1), MAX_SAMPLE_PROPERTIES) if isinstance(min_items, int) else 1
        if depth >= MAX_SAMPLE_DEPTH and not min_items:
            return []
        if items is None:
            return []
        item_schemas = list_or_empty(mapping_or_empty(items).get("enum"))
        if schema.get("uniqueItems") is True and len(item_schemas) >= count > 1:
            return [*item_schemas[:count]]
        sample = self.create_value(items, depth + 1)
        if sample is _OMITTED:
            return []
        return (
            [_vary_value(sample, at) for at in range(count)] if schema.get("uniqueItems") is True else [sample] * count
        )

    def _create_object(self, schema: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        sample: dict[str, Any] = {}
        for branch in list_or_empty(schema.get("allOf"))[:MAX_SAMPLE_PROPERTIES]:
            sample.update(mapping_or_empty(self.create_value(branch, depth + 1)))
        properties = mapping_or_empty(schema.get("properties"))
        for name in list_or_empty(schema.get("required"))[:MAX_SAMPLE_PROPERTIES]:
            if isinstance(name, str):
                sample[name] = self.create_value(properties.get(name, schema.get("additionalProperties")), depth + 1)
        return {name: value for name, value in sample.items() if value is not _OMITTED}


class _RichSchemaSampler(_SchemaSampler):
    """Writes dates, bytes and sets as the expressions that make them."""

    @classmethod
    def create_input(cls, tool: DescribedTool) -> Any:
        value = cls(LocalReferenceResolver(tool.input_json_schema)).create_value(tool.input_json_schema, 0)
        return None if value is _OMITTED else value

    def _create_string(self, schema: Mapping[Any, Any]) -> Any:
        format_name, text = schema.get("format"), super()._create_string(schema)
        if format_name == "binary":
            return JavaScriptExpression("new Uint8Array([1, 2, 3])")
        return JavaScriptExpression(f"new Date({to_literal(text)})") if format_name in ("date-time", "date") else text

    def _create_array(self, schema: Mapping[Any, Any], depth: int) -> Any:
        items = super()._create_array(schema, depth)
        return JavaScriptExpression(f"new Set({to_literal(items)})") if schema.get("uniqueItems") is True else items


# The keywords of a condition that a sample meets: `else`; `then`; `if` and `then`.
_CONDITION_BRANCHES = (("else",), ("then",), ("if", "then"))
_TYPE_BY_KEYWORD = {
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
_MERGED_KEYWORDS = frozenset({"allOf", "if", "then", "else"})


def iterate_samples(schema: Any) -> Iterator[Any]:
    """Yield values that may fit a schema. Never raises."""
    seen = [create_sample_value(schema)]
    yield seen[0]
    for branches in _CONDITION_BRANCHES:
        try:
            sample = _ConstrainedSampler(schema, branches).create_value(schema, 0)
        except _SampleTooLargeError:
            return
        if sample is not _OMITTED and sample not in seen:
            seen.append(sample)
            yield sample


class _SampleTooLargeError(Exception):
    """A sample would be too large."""


class _ConstrainedSampler(_SchemaSampler):
    """Makes one value that follows more keywords. ``branches`` names the parts of conditions that it is to meet."""

    def __init__(self, schema: Any, branches: tuple[str, ...]) -> None:
        super().__init__(LocalReferenceResolver(schema))
        self._follow_reference = LocalReferenceResolver(schema).follow_reference_chain
        self._branches = branches

    def create_value(self, schema: Any, depth: int) -> Any:
        self._consume_value_budget()
        if not isinstance(schema, Mapping) or depth > MAX_SAMPLE_DEPTH:
            return super().create_value(schema, depth)
        merged = self._merge_applied_subschemas(mapping_or_empty(schema), depth)
        return merged["const"] if merged.get("const") is not None else super().create_value(merged, depth)

    def _consume_value_budget(self) -> None:
        self._values_left -= 1
        if self._values_left < 0:
            raise _SampleTooLargeError

    def _merge_applied_subschemas(self, schema: Mapping[Any, Any], depth: int) -> Mapping[Any, Any]:
        """Return a schema with what stands in its parts as if it stood in the schema itself."""
        parts = [*list_or_empty(schema.get("allOf"))[:MAX_SAMPLE_PROPERTIES]]
        if "properties" in schema or "required" in schema:
            parts += [branch for key in ("anyOf", "oneOf") for branch in list_or_empty(schema.get(key))[:1]]
        parts += [schema[key] for key in self._branches if key in schema and "if" in schema]
        merged = {key: value for key, value in schema.items() if key not in _MERGED_KEYWORDS}
        for part in parts:
            self._consume_value_budget()
            followed = mapping_or_empty(self._follow_reference(part))
            if depth < MAX_SAMPLE_DEPTH:
                merged = _merge_schemas(merged, self._merge_applied_subschemas(followed, depth + 1))
        if "type" not in merged and (
            implied_type := next((_TYPE_BY_KEYWORD[key] for key in _TYPE_BY_KEYWORD if key in merged), None)
        ):
            merged["type"] = implied_type
        return merged

    def _create_array(self, schema: Mapping[Any, Any], depth: int) -> list[Any]:
        contained_schema = mapping_or_empty(schema.get("contains"))
        if "items" not in schema and isinstance(schema.get("minItems"), int) and "prefixItems" not in schema:
            schema = {**schema, "items": contained_schema or {"type": "string"}}
        items = super()._create_array(schema, depth)
        min_contains = schema.get("minContains", 1)
        if not contained_schema or not isinstance(min_contains, int):
            return items
        item_schema = mapping_or_empty(schema.get("items"))
        schema_with_contained = {
            **schema,
            "items": _merge_schemas(item_schema, contained_schema),
            "minItems": min(min_contains, MAX_SAMPLE_PROPERTIES),
        }
        other_items = items[: max(len(items) - min_contains, 0)] if isinstance(schema.get("minItems"), int) else []
        return [
            *super()._create_array(
                {key: value for key, value in schema_with_contained.items() if key != "prefixItems"}, depth
            ),
            *other_items,
        ]

    def _create_object(self, schema: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        sample = super()._create_object(schema, depth)
        properties = mapping_or_empty(schema.get("properties"))
        for name, dependents in mapping_or_empty(schema.get("dependentRequired")).items():
            for dependent in list_or_empty(dependents)[:MAX_SAMPLE_PROPERTIES] if name in sample else ():
                if isinstance(dependent, str) and dependent not in sample:
                    self._add_member(sample, dependent, properties.get(dependent), depth)
        min_properties = schema.get("minProperties")
        if isinstance(min_properties, int):
            self._add_optional_members(sample, schema, min(min_properties, MAX_SAMPLE_PROPERTIES), depth)
        return sample

    def _add_optional_members(
        self, sample: dict[str, Any], schema: Mapping[Any, Any], min_properties: int, depth: int
    ) -> None:
        """Add optional members until there are ``min_properties``."""
        properties, additional = mapping_or_empty(schema.get("properties")), schema.get("additionalProperties", True)
        allowed_names = list_or_empty(mapping_or_empty(schema.get("propertyNames")).get("enum"))
        names = [
            *properties,
            *(
                allowed_names or [f"key{number + 1}" for number in range(min_properties)]
                if additional is not False
                else []
            ),
        ]
        for name in names:
            if len(sample) >= min_properties:
                return
            if isinstance(name, str) and name not in sample:
                self._add_member(
                    sample, name, properties.get(name, mapping_or_empty(additional) or {"type": "string"}), depth
                )

    def _add_member(self, sample: dict[str, Any], name: str, schema: Any, depth: int) -> None:
        value = self.create_value(schema, depth + 1)
        if value is not _OMITTED:
            sample[name] = value


def _merge_schemas(first: Mapping[Any, Any], other: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the keywords of two schemas of one value; of the same keyword the second's counts."""
    merged = {**first, **other}
    for key in ("properties", "dependentRequired"):
        first_members, second_members = mapping_or_empty(first.get(key)), mapping_or_empty(other.get(key))
        if first_members and second_members:
            merged[key] = {
                **first_members,
                **{name: _merge_property(first_members.get(name), second_members[name]) for name in second_members},
            }
    if "required" in first and "required" in other:
        merged["required"] = [*list_or_empty(first["required"]), *list_or_empty(other["required"])]
    return merged


def _merge_property(first: Any, second: Any) -> Any:
    first_schema, second_schema = mapping_or_empty(first), mapping_or_empty(second)
    return {**first_schema, **second_schema} if first_schema and second_schema else second


def _get_first_type(schema: Mapping[Any, Any]) -> str:
    declared = schema.get("type")
    for name in list_or_empty(declared) or [declared]:
        if isinstance(name, str) and name != "null":
            return name
    return "object" if "properties" in schema or "allOf" in schema or "required" in schema else ""


def _vary_value(value: Any, index: int) -> Any:
    """Return a different number or text for each place."""
    if index == 0 or isinstance(value, bool) or not isinstance(value, int | float | str):
        return value
    return f"{value}{index + 1}" if isinstance(value, str) else value + index


def _create_sample_number(schema: Mapping[Any, Any]) -> float:
    bounds = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf")
    minimum, exclusive_minimum, maximum, exclusive_maximum, step = (_number_or_none(schema.get(key)) for key in bounds)
    step = None if step is None or step < _TOLERANCE else step
    low, high = (
        _choose_tighter_bound(minimum, exclusive_minimum, max),
        _choose_tighter_bound(maximum, exclusive_maximum, min),
    )
    candidates: list[float] = [step if step is not None and step > 1 else 1]
    for bound in (low, high):
        if bound is not None:
            candidates += [bound, math.floor(bound) + 1, math.ceil(bound) - 1]
            if step is not None:
                steps = math.floor(bound / step)
                candidates += [(steps + at) * step for at in (0, 1, -1)]
    if low is not None and high is not None:
        candidates.append((low + high) / 2)

    def fits_limits(value: float) -> bool:
        is_in = (minimum is None or value >= minimum) and (exclusive_minimum is None or value > exclusive_minimum)
        is_in = (
            is_in and (maximum is None or value <= maximum) and (exclusive_maximum is None or value < exclusive_maximum)
        )
        is_whole = schema.get("type") != "integer" or value == math.floor(value)
        return is_in and is_whole and (step is None or abs(value / step - round(value / step)) < _TOLERANCE)

    return next(filter(fits_limits, candidates), candidates[0])


def _number_or_none(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and abs(value) < _MAX_SAMPLE_NUMBER else None


def _choose_tighter_bound(
    first: float | None, second: float | None, choose: Callable[[float, float], float]
) -> float | None:
    return choose(first, second) if first is not None and second is not None else second if first is None else first


def create_example_program(tools: Sequence[DescribedTool]) -> str:
    """Return a short program in which one call depends on another, for a description.

    Models copy what they are shown, so it calls read-only tools alone. Without one it shows the form.
    """
    readers = [tool for tool in tools if tool.annotations.get("readOnlyHint") is True and not may_need_approval(tool)]
    for program in (
        _create_dependent_calls_program(readers),
        *(f"return await {_format_call_example(tool)};" for tool in readers[:_MAX_READERS]),
    ):
        if program is not None and len(program) <= _MAX_PROGRAM_CHARACTERS:
            return program
    return _FORM


_MAX_PROGRAM_CHARACTERS = 240
_MAX_READERS = 50
_FORM = """\
const first = await tools.firstTool({ key: "value" });
return await tools.secondTool({ id: first.id });"""


def _create_dependent_calls_program(tools: Sequence[DescribedTool]) -> str | None:
    """Return a program that passes a field of one tool's output to another tool; None if no field fits."""
    wanted = [
        (tool, name, kind)
        for tool in tools[:_MAX_READERS]
        for name, kind in _iterate_required_fields(tool.input_json_schema)
    ]
    for producer in tools[:_MAX_READERS]:
        schema = LocalReferenceResolver(producer.output_json_schema)
        output = mapping_or_empty(schema.follow_reference_chain(producer.output_json_schema))
        is_list = output.get("type") == "array"
        item = schema.follow_reference_chain(output.get("items")) if is_list else output
        offered = set(_iterate_scalar_properties(item, schema))
        for consumer, name, kind in wanted:
            if consumer is producer or (name, kind) not in offered:
                continue
            value = to_member_access("item" if is_list else "found", name)
            call = _format_call_example(consumer, {name: JavaScriptExpression(value)})
            end = f"await Promise.all(found.map((item) => {call}))" if is_list else f"await {call}"
            program = f"const found = await {_format_call_example(producer)};\nreturn {end};"
            if len(program) <= _MAX_PROGRAM_CHARACTERS:
                return program
    return None


def _iterate_required_fields(schema: Any) -> Iterator[tuple[str, str]]:
    """Yield the required fields of an input, with their types."""
    required = list_or_empty(mapping_or_empty(schema).get("required"))[:MAX_SAMPLE_PROPERTIES]
    return (
        (name, kind)
        for name, kind in _iterate_scalar_properties(schema, LocalReferenceResolver(schema))
        if name in required
    )


def _iterate_scalar_properties(schema: Any, references: LocalReferenceResolver) -> Iterator[tuple[str, str]]:
    properties = mapping_or_empty(mapping_or_empty(schema).get("properties"))
    for name in islice(properties, MAX_SAMPLE_PROPERTIES):
        kind = mapping_or_empty(references.follow_reference_chain(properties[name])).get("type")
        if isinstance(name, str) and kind in ("string", "integer", "number"):
            yield name, kind


def _format_call_example(tool: DescribedTool, values: Mapping[str, Any] | None = None) -> str:
    sample = create_sample_input(tool)
    if values is not None:
        sample = {**mapping_or_empty(sample), **values}
    text = to_literal(sample)
    if len(text) > MAX_EXAMPLE_CHARACTERS:
        text = "{ /* see its declaration */ }"
    return f"{to_member_access('tools', tool.name)}({text})"
