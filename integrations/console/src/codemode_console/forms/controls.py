"""Choose controls for schemas, show values in them and read them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from codemode.data.json_values import decode_json
from codemode.data.references import resolve_reference

from ..bodies import MalformedBodyError, parse_json_text
from ..visible_text import is_all_visible, to_visible_json, to_visible_text
from .model import ABSENT, Choice, ControlKind, Field, MalformedFormError

SchemaShapeKind = Literal["object", "array", "string", "number", "boolean", "enum", "const", "choice", "json"]

_MAX_CHOICES = 200
_MAX_REFERENCES = 16
_ANNOTATION_KEYWORDS = frozenset({
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$id", "id",
    "$comment", "$defs", "definitions", "$anchor", "discriminator", "contentMediaType", "contentEncoding",
})  # fmt: skip
_ASSERTION_KEYWORDS = frozenset({
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern",
    "format", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
})  # fmt: skip
_STRUCTURE_KEYWORDS = frozenset({
    "type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "oneOf",
})  # fmt: skip
_SUPPORTED_KEYWORDS = _ANNOTATION_KEYWORDS | _ASSERTION_KEYWORDS | _STRUCTURE_KEYWORDS
_SCALAR_TYPES = (str, int, float, type(None))
_KINDS_BY_TYPE: dict[str, SchemaShapeKind] = {
    "string": "string", "number": "number", "integer": "number", "boolean": "boolean",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SchemaShape:
    """The kind of value that a schema describes. ``keywords`` include those of a local ``$ref``."""

    kind: SchemaShapeKind
    keywords: Mapping[str, Any]
    is_nullable: bool = False
    options: tuple[Any, ...] = ()
    alternatives: tuple[Any, ...] = ()
    matches_by_type: bool = False


def find_shape(schema: Any, root: Any) -> SchemaShape:
    """Return the shape of part of a schema, ``json`` where a form has no controls."""
    is_nullable = False
    for _ in range(_MAX_REFERENCES):
        keywords = _resolve_keywords(schema, root)
        if keywords is None or not _SUPPORTED_KEYWORDS.issuperset(keywords):
            break
        shape = _find_simple_shape(keywords)
        if shape is not None:
            return replace(shape, is_nullable=shape.is_nullable or is_nullable)
        alternatives, has_null = _separate_null_from_alternatives(keywords, root)
        is_nullable = is_nullable or has_null
        if len(alternatives) != 1:
            by_type = "anyOf" not in keywords and "oneOf" not in keywords
            kind: SchemaShapeKind = "choice" if 1 < len(alternatives) <= _MAX_CHOICES else "json"
            return SchemaShape(kind, keywords, is_nullable, alternatives=alternatives, matches_by_type=by_type)
        # An optional value: the other keywords apply to its only alternative.
        inner = _resolve_keywords(alternatives[0], root)
        outer_keywords = {key: rule for key, rule in keywords.items() if key not in ("anyOf", "oneOf", "type")}
        schema = None if inner is None else {**inner, **outer_keywords}
    return SchemaShape("json", cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {})


def _resolve_keywords(schema: Any, root: Any) -> dict[str, Any] | None:
    """Return the keywords of a schema merged with those it refers to; None if that fails."""
    for _ in range(_MAX_REFERENCES):
        if not isinstance(schema, Mapping):
            return None
        keywords = dict(cast("Mapping[str, Any]", schema))
        if "$ref" in keywords:
            target = resolve_reference({"$ref": keywords.pop("$ref")}, root)
        elif isinstance(keywords.get("allOf"), list) and len(keywords["allOf"]) == 1:
            target = keywords.pop("allOf")[0]
        else:
            return keywords
        if not isinstance(target, Mapping):
            return None
        schema = {**cast("Mapping[str, Any]", target), **keywords}
    return None


def _find_simple_shape(keywords: Mapping[str, Any]) -> SchemaShape | None:
    """Return the shape of a schema without alternatives; None with them."""
    if "const" in keywords:
        return SchemaShape("const", keywords)
    if isinstance(keywords.get("enum"), list):
        return _create_enum_shape(keywords)
    if "anyOf" in keywords or "oneOf" in keywords:
        # Forms do not support properties together with alternatives.
        return (
            SchemaShape("json", keywords)
            if {"properties", "items"} & keywords.keys() or _has_two_unions(keywords)
            else None
        )
    kind = keywords.get("type")
    if isinstance(kind, list):
        return None
    if kind == "null":
        return SchemaShape("const", {**keywords, "const": None})
    if isinstance(kind, str) and kind in _KINDS_BY_TYPE:
        return SchemaShape(_KINDS_BY_TYPE[kind], keywords)
    if kind in (None, "object") and isinstance(keywords.get("properties"), Mapping) and keywords["properties"]:
        return SchemaShape("object", keywords)
    if kind in (None, "array") and isinstance(keywords.get("items"), Mapping):
        return SchemaShape("array", keywords)
    return SchemaShape("json", keywords)


def _has_two_unions(keywords: Mapping[str, Any]) -> bool:
    return "anyOf" in keywords and "oneOf" in keywords


def _create_enum_shape(keywords: Mapping[str, Any]) -> SchemaShape:
    options = cast("list[Any]", keywords["enum"])
    values = tuple(option for option in options if option is not None)
    has_null = len(values) < len(options)
    if not values:
        return SchemaShape("const", {**keywords, "const": None}) if has_null else SchemaShape("json", keywords)
    if len(values) > _MAX_CHOICES or not all(isinstance(option, _SCALAR_TYPES) for option in values):
        return SchemaShape("json", keywords)
    return SchemaShape("enum", keywords, has_null, options=values)


def _separate_null_from_alternatives(keywords: Mapping[str, Any], root: Any) -> tuple[tuple[Any, ...], bool]:
    types = keywords.get("type")
    if "anyOf" in keywords or "oneOf" in keywords:
        union = keywords.get("anyOf", keywords.get("oneOf"))
        alternatives = cast("list[Any]", union) if isinstance(union, list) else []
    else:
        type_names = [item for item in cast("list[Any]", types) if isinstance(item, str)]
        if "number" in type_names:
            type_names = [item for item in type_names if item != "integer"]
        alternatives = [{**keywords, "type": item} for item in type_names]
    non_null = tuple(item for item in alternatives if not _accepts_only_null(item, root))
    return non_null, len(non_null) < len(alternatives)


def _accepts_only_null(schema: Any, root: Any) -> bool:
    keywords = _resolve_keywords(schema, root)
    if keywords is None:
        return False
    return keywords.get("type") == "null" or ("const" in keywords and keywords["const"] is None)


def fits_shape(value: Any, shape: SchemaShape) -> bool:
    """Return whether controls of this shape can hold a value."""
    match shape.kind:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "enum":
            return isinstance(value, _SCALAR_TYPES) and value is not None
        case _:
            return True


# Browsers submit line ends as CR LF, and drop them from single-line controls.

StringKind = Literal["text", "lines", "escaped", "date"]

_MAX_SINGLE_LINE_CHARACTERS = 120
_NUMBER_PATTERN = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_DATE_PATTERN = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ESCAPE_PATTERN = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([\\nrt]))")
_ESCAPED_CHARACTERS = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}


class UnreadableValueError(Exception):
    """A submitted text is no value of its kind."""


def choose_string_control(text: str, *, has_date_format: bool) -> StringKind:
    """Return the control that shows a text completely and sends it back unchanged."""
    if has_date_format and is_date(text):
        return "date"
    if not is_all_visible(text, one_line=False):
        return "escaped"
    return "lines" if "\n" in text or "\t" in text or len(text) > _MAX_SINGLE_LINE_CHARACTERS else "text"


def parse_string(text: str, kind: str) -> str:
    """Return the text of a string control. Raises `UnreadableValueError`."""
    lines = normalize_line_ends(text)
    if kind == "escaped":
        return _unescape_text(lines)
    if kind == "date" and not is_date(lines):
        raise UnreadableValueError("is no date: write it like 2026-01-31")
    return lines


def normalize_line_ends(text: str) -> str:
    """Return a submitted text with newlines as line ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def escape_text(text: str) -> str:
    """Return a text with escapes for the control ``escaped``; newlines stay."""
    return "\n".join(
        to_visible_text(line.replace("\\", "\\\\"), one_line=True) if line else "" for line in text.split("\n")
    )


def _unescape_text(text: str) -> str:
    parts: list[str] = []
    end = 0
    for match in _ESCAPE_PATTERN.finditer(text):
        parts += [text[end : match.start()], _unescape_match(match)]
        end = match.end()
    parts.append(text[end:])
    # A remaining backslash is an invalid escape.
    if any("\\" in part for part in parts[::2]):
        raise UnreadableValueError(
            "holds an escape that is none: \\\\ is a backslash, \\u202e a character by its number"
        )
    unescaped = "".join(parts)
    # Joins surrogate pairs.
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _unescape_match(match: re.Match[str]) -> str:
    code = int(match[1] or match[2] or "0", 16)
    if match[3]:
        return _ESCAPED_CHARACTERS[match[3]]
    if code > 0x10FFFF:
        raise UnreadableValueError("holds the number of a character that there is not")
    return chr(code)


def parse_number(text: str) -> int | float:
    """Return an integer exactly, other numbers as float. Raises `UnreadableValueError`."""
    text = text.strip()
    if not _NUMBER_PATTERN.fullmatch(text):
        raise UnreadableValueError("is no number: write it like 12, -3.5 or 1e6")
    try:
        return decode_json(text)
    except ValueError:
        raise UnreadableValueError("is a number too large") from None


def is_date(text: str) -> bool:
    """Return whether a text is a date such as 2026-01-31."""
    from datetime import date

    if not _DATE_PATTERN.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


_STRING_CONTROLS: frozenset[ControlKind] = frozenset({"text", "lines", "escaped", "date"})
_CHECKED_VALUE = "true"
_CONSTRAINT_TEXTS = {
    "minimum": "at least {}", "maximum": "at most {}", "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}", "multipleOf": "a multiple of {}", "minLength": "at least {} characters",
    "maxLength": "at most {} characters", "pattern": "fits {}", "format": "{}", "minItems": "at least {} items",
    "maxItems": "at most {} items",
}  # fmt: skip
_MAX_LABEL_CHARACTERS = 300


def fill_field(field: Field, shape: SchemaShape, value: Any) -> Field:
    """Return the field with a value of its shape."""
    field = replace(field, value=value, is_integer=shape.keywords.get("type") == "integer")
    match shape.kind:
        case "string":
            kind = choose_string_control(value, has_date_format=shape.keywords.get("format") == "date")
            return replace(field, kind=kind, text=escape_text(value) if kind == "escaped" else value)
        case "number":
            return replace(field, kind="number", text=json.dumps(value))
        case "boolean":
            return replace(field, kind="boolean", text=_CHECKED_VALUE if value else "")
        case "enum":
            return _fill_enum_field(field, shape, value)
        case "const":
            return replace(field, kind="const", text=to_visible_json(value, indent=None))
        case _:
            return replace(field, kind="json", text=to_visible_json(value))


def clear_field(field: Field, shape: SchemaShape) -> Field:
    """Return the field without a value."""
    field = replace(field, value=ABSENT, text="", kind=choose_default_control(shape))
    if shape.kind == "enum":
        return replace(field, choices=_create_choices(shape, None))
    return replace(field, is_integer=shape.keywords.get("type") == "integer")


def choose_default_control(shape: SchemaShape) -> ControlKind:
    """Return the control of a shape without a value."""
    if shape.kind == "string":
        return "date" if shape.keywords.get("format") == "date" else "text"
    return "json" if shape.kind in ("choice", "object", "array") else shape.kind


def set_submitted_text(field: Field, shape: SchemaShape, kind: ControlKind, text: str) -> Field:
    """Return the field with the submitted text."""
    cleared = replace(clear_field(field, shape), kind=kind, text=text)
    if kind != "enum":
        return cleared
    return replace(
        cleared, choices=tuple(replace(choice, is_selected=choice.value == text) for choice in cleared.choices)
    )


def require_fitting_control(shape: SchemaShape, kind: ControlKind) -> None:
    """Raise `MalformedFormError` for a control in which the shape is never shown."""
    fitting = _STRING_CONTROLS if shape.kind == "string" else {shape.kind}
    if kind != "json" and kind not in fitting:
        raise MalformedFormError(f"{kind} is no control for this field")


def is_empty_control(kind: ControlKind, text: str) -> bool:
    """Return whether the control has no value."""
    return kind not in ("text", "lines", "escaped", "boolean") and not text.strip()


def parse_control_text(shape: SchemaShape, kind: ControlKind, text: str) -> Any:
    """Return the value of a control. Raises `UnreadableValueError`."""
    if kind in _STRING_CONTROLS:
        return parse_string(text, kind)
    if kind == "boolean":
        return text not in ("", "false")
    if kind == "number":
        return parse_number(text)
    if kind == "enum" and _has_plain_options(shape):
        return text
    try:
        return decode_json(text) if kind == "enum" else parse_json_text(normalize_line_ends(text))
    except (MalformedBodyError, ValueError) as error:
        raise UnreadableValueError("is none of the choices" if kind == "enum" else str(error)) from None


def get_initial_value(shape: SchemaShape) -> Any:
    """Return the value of a new field; ``ABSENT`` where the user has to enter one."""
    if "default" in shape.keywords:
        return shape.keywords["default"]
    match shape.kind:
        case "string":
            return ABSENT if shape.keywords.get("format") == "date" else ""
        case "boolean":
            return False
        case "const":
            return shape.keywords["const"]
        case _:
            return ABSENT


def _has_plain_options(shape: SchemaShape) -> bool:
    return all(isinstance(option, str) and option and is_all_visible(option) for option in shape.options)


def _encode_option_key(option: Any, *, is_plain: bool) -> str:
    return option if is_plain else to_visible_json(option, indent=None)


def _create_choices(shape: SchemaShape, selected: str | None) -> tuple[Choice, ...]:
    has_plain_options = _has_plain_options(shape)
    keys = {_encode_option_key(option, is_plain=has_plain_options): option for option in shape.options}
    labels = {key: _format_option_label(option) for key, option in keys.items()}
    # 1 and "1" have the same label.
    are_distinct = len(set(labels.values())) == len(labels)
    return tuple(
        Choice(key, labels[key] if are_distinct else to_short_visible_label(key), key == selected) for key in keys
    )


def _fill_enum_field(field: Field, shape: SchemaShape, value: Any) -> Field:
    has_plain_options = _has_plain_options(shape)
    if has_plain_options and not (isinstance(value, str) and value and is_all_visible(value)):
        return replace(field, kind="json", text=to_visible_json(value))
    key = _encode_option_key(value, is_plain=has_plain_options)
    choices = _create_choices(shape, key)
    if not any(choice.is_selected for choice in choices):
        choices = (*choices, Choice(key, _format_option_label(value), is_selected=True))
    return replace(field, kind="enum", text=key, choices=choices)


def _format_option_label(value: Any) -> str:
    text = value if isinstance(value, str) and value else to_visible_json(value, indent=None)
    return to_short_visible_label(text)


# --- Texts next to a control ---


def to_short_visible_label(text: Any) -> str:
    """Return a schema text as one short line; "" for other values."""
    if not isinstance(text, str):
        return ""
    visible_text = to_visible_text(text[: _MAX_LABEL_CHARACTERS + 1], one_line=True)
    return (
        visible_text
        if len(text) <= _MAX_LABEL_CHARACTERS
        else f"{visible_text[:_MAX_LABEL_CHARACTERS]} \N{HORIZONTAL ELLIPSIS}"
    )


def describe_constraints(keywords: Mapping[str, Any], *, can_be_absent: bool) -> tuple[str, ...]:
    """Return the constraints of a value as texts."""
    texts = [
        template.format(_format_constraint_value(keywords[name]))
        for name, template in _CONSTRAINT_TEXTS.items()
        if _is_scalar(keywords.get(name))
    ]
    if keywords.get("type") == "integer":
        texts.insert(0, "an integer")
    if can_be_absent and "default" in keywords:
        texts.append(f"{_format_constraint_value(keywords['default'])} when left out")
    return tuple(texts)


def _is_scalar(rule: Any) -> bool:
    return isinstance(rule, str | int | float) and not isinstance(rule, bool)


def _format_constraint_value(value: Any) -> str:
    text = value if isinstance(value, str) else "".join(to_visible_json(value, indent=None))
    return to_short_visible_label(text)
