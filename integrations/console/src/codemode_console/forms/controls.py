"""Which control shows which part of a schema, how a value is shown in it, and what was typed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from codemode.data.json_values import decode_json
from codemode.data.references import resolve_reference

from ..bodies import MalformedBodyError, parse_json_text
from ..visible import is_visible, visible_json, visible_text
from .model import ABSENT, Choice, Field, Kind, MalformedForm

ShapeKind = Literal["object", "array", "string", "number", "boolean", "enum", "const", "choice", "json"]

_MOST_CHOICES = 200
_MOST_STEPS = 16
_ANNOTATIONS = frozenset({
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$id", "id",
    "$comment", "$defs", "definitions", "$anchor", "discriminator", "contentMediaType", "contentEncoding",
})  # fmt: skip
_CHECKS = frozenset({
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern",
    "format", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
})  # fmt: skip
_STRUCTURE = frozenset({
    "type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "oneOf",
})  # fmt: skip
_KNOWN = _ANNOTATIONS | _CHECKS | _STRUCTURE
_SCALARS = (str, int, float, type(None))
_OF_TYPE: dict[str, ShapeKind] = {
    "string": "string", "number": "number", "integer": "number", "boolean": "boolean",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """What a part of a schema asks for. ``rules`` are its keywords with those that a local ``$ref`` brings."""

    kind: ShapeKind
    rules: Mapping[str, Any]
    is_nullable: bool = False
    options: tuple[Any, ...] = ()
    alternatives: tuple[Any, ...] = ()
    fits_by_type: bool = False


def shape_of(schema: Any, root: Any) -> Shape:
    """Return the shape of a part of a schema; ``json`` for whatever a form has no controls for."""
    is_nullable = False
    for _ in range(_MOST_STEPS):
        rules = _resolved(schema, root)
        if rules is None or not _KNOWN.issuperset(rules):
            break
        shape = _simple(rules)
        if shape is not None:
            return replace(shape, is_nullable=shape.is_nullable or is_nullable)
        alternatives, has_null = _alternatives(rules, root)
        is_nullable = is_nullable or has_null
        if len(alternatives) != 1:
            by_type = "anyOf" not in rules and "oneOf" not in rules
            kind: ShapeKind = "choice" if 1 < len(alternatives) <= _MOST_CHOICES else "json"
            return Shape(kind, rules, is_nullable, alternatives=alternatives, fits_by_type=by_type)
        # An optional value: what stands beside the alternatives is about the one that is left.
        inner = _resolved(alternatives[0], root)
        beside = {key: rule for key, rule in rules.items() if key not in ("anyOf", "oneOf", "type")}
        schema = None if inner is None else {**inner, **beside}
    return Shape("json", cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {})


def _resolved(schema: Any, root: Any) -> dict[str, Any] | None:
    """Return the keywords of a schema and of what it refers to, as one; None where that leads nowhere."""
    for _ in range(_MOST_STEPS):
        if not isinstance(schema, Mapping):
            return None
        rules = dict(cast("Mapping[str, Any]", schema))
        if "$ref" in rules:
            target = resolve_reference({"$ref": rules.pop("$ref")}, root)
        elif isinstance(rules.get("allOf"), list) and len(rules["allOf"]) == 1:
            target = rules.pop("allOf")[0]
        else:
            return rules
        if not isinstance(target, Mapping):
            return None
        schema = {**cast("Mapping[str, Any]", target), **rules}
    return None


def _simple(rules: Mapping[str, Any]) -> Shape | None:
    """Return the shape of what is one thing; None for alternatives."""
    if "const" in rules:
        return Shape("const", rules)
    if isinstance(rules.get("enum"), list):
        return _enum(rules)
    if "anyOf" in rules or "oneOf" in rules:
        # Properties beside alternatives are too much for one form.
        return Shape("json", rules) if {"properties", "items"} & rules.keys() or _has_both(rules) else None
    kind = rules.get("type")
    if isinstance(kind, list):
        return None
    if kind == "null":
        return Shape("const", {**rules, "const": None})
    if isinstance(kind, str) and kind in _OF_TYPE:
        return Shape(_OF_TYPE[kind], rules)
    if kind in (None, "object") and isinstance(rules.get("properties"), Mapping) and rules["properties"]:
        return Shape("object", rules)
    if kind in (None, "array") and isinstance(rules.get("items"), Mapping):
        return Shape("array", rules)
    return Shape("json", rules)


def _has_both(rules: Mapping[str, Any]) -> bool:
    return "anyOf" in rules and "oneOf" in rules


def _enum(rules: Mapping[str, Any]) -> Shape:
    options = cast("list[Any]", rules["enum"])
    given = tuple(one for one in options if one is not None)
    has_null = len(given) < len(options)
    if not given:
        return Shape("const", {**rules, "const": None}) if has_null else Shape("json", rules)
    if len(given) > _MOST_CHOICES or not all(isinstance(one, _SCALARS) for one in given):
        return Shape("json", rules)
    return Shape("enum", rules, has_null, options=given)


def _alternatives(rules: Mapping[str, Any], root: Any) -> tuple[tuple[Any, ...], bool]:
    types = rules.get("type")
    if "anyOf" in rules or "oneOf" in rules:
        given = rules.get("anyOf", rules.get("oneOf"))
        inside = cast("list[Any]", given) if isinstance(given, list) else []
    else:
        named = [one for one in cast("list[Any]", types) if isinstance(one, str)]
        if "number" in named:
            named = [one for one in named if one != "integer"]
        inside = [{**rules, "type": one} for one in named]
    others = tuple(one for one in inside if not _is_null(one, root))
    return others, len(others) < len(inside)


def _is_null(schema: Any, root: Any) -> bool:
    rules = _resolved(schema, root)
    if rules is None:
        return False
    return rules.get("type") == "null" or ("const" in rules and rules["const"] is None)


def is_of(value: Any, shape: Shape) -> bool:
    """Tell whether controls of this kind can hold a value; what else it has to fit is for the whole schema to say."""
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
            return isinstance(value, _SCALARS) and value is not None
        case _:
            return True


# A browser makes every end of a line CR LF, and drops what is none from a control of one line.

StringKind = Literal["text", "lines", "escaped", "date"]

_ONE_LINE_CHARACTERS = 120
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([\\nrt]))")
_SAYS = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}


class Unreadable(Exception):  # noqa: N818 - a person reads its words at the field
    """What was typed is no value of its kind."""


def string_kind(text: str, *, is_date: bool) -> StringKind:
    """Return the control that shows all of a text and sends it back as it is."""
    if is_date and text_is_date(text):
        return "date"
    if not is_visible(text, one_line=False):
        return "escaped"
    return "lines" if "\n" in text or "\t" in text or len(text) > _ONE_LINE_CHARACTERS else "text"


def typed_string(text: str, kind: str) -> str:
    """Return the text that was typed into such a control. Raises `Unreadable`."""
    lines = sent_lines(text)
    if kind == "escaped":
        return _without_escapes(lines)
    if kind == "date" and not text_is_date(lines):
        raise Unreadable("is no date: write it like 2026-01-31")
    return lines


def sent_lines(text: str) -> str:
    """Return a sent text with the ends of lines that it had in the page."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def with_escapes(text: str) -> str:
    """Return what such a control shows of a text; ends of lines stay."""
    return "\n".join(
        visible_text(line.replace("\\", "\\\\"), one_line=True) if line else "" for line in text.split("\n")
    )


def _without_escapes(text: str) -> str:
    parts: list[str] = []
    end = 0
    for found in _ESCAPE.finditer(text):
        parts += [text[end : found.start()], _character(found)]
        end = found.end()
    parts.append(text[end:])
    # What is left of a backslash is none of the escapes.
    if any("\\" in part for part in parts[::2]):
        raise Unreadable("holds an escape that is none: \\\\ is a backslash, \\u202e a character by its number")
    said = "".join(parts)
    # Two halves of a character, as JSON has them, are one.
    return said.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _character(found: re.Match[str]) -> str:
    code = int(found[1] or found[2] or "0", 16)
    if found[3]:
        return _SAYS[found[3]]
    if code > 0x10FFFF:
        raise Unreadable("holds the number of a character that there is not")
    return chr(code)


def typed_number(text: str) -> int | float:
    """Return the number that was typed: an integer exactly, else a float. Raises `Unreadable`."""
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        raise Unreadable("is no number: write it like 12, -3.5 or 1e6")
    try:
        return decode_json(text)
    except ValueError:
        raise Unreadable("is a number too large") from None


def text_is_date(text: str) -> bool:
    """Tell whether a text is a date as browsers have them, from the year 1 on."""
    from datetime import date

    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


_STRINGS: frozenset[Kind] = frozenset({"text", "lines", "escaped", "date"})
_TICKED = "true"
_WORDS = {
    "minimum": "at least {}", "maximum": "at most {}", "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}", "multipleOf": "a multiple of {}", "minLength": "at least {} characters",
    "maxLength": "at most {} characters", "pattern": "fits {}", "format": "{}", "minItems": "at least {} items",
    "maxItems": "at most {} items",
}  # fmt: skip
_MOST_CHARACTERS = 300


def with_value(field: Field, shape: Shape, value: Any) -> Field:
    """Return a field that shows a value of its shape."""
    field = replace(field, value=value, is_integer=shape.rules.get("type") == "integer")
    match shape.kind:
        case "string":
            kind = string_kind(value, is_date=shape.rules.get("format") == "date")
            return replace(field, kind=kind, text=with_escapes(value) if kind == "escaped" else value)
        case "number":
            return replace(field, kind="number", text=json.dumps(value))
        case "boolean":
            return replace(field, kind="boolean", text=_TICKED if value else "")
        case "enum":
            return _enum_field(field, shape, value)
        case "const":
            return replace(field, kind="const", text=visible_json(value, indent=None))
        case _:
            return replace(field, kind="json", text=visible_json(value))


def without_value(field: Field, shape: Shape) -> Field:
    """Return a field in which nothing has been typed."""
    field = replace(field, value=ABSENT, text="", kind=plain_kind(shape))
    if shape.kind == "enum":
        return replace(field, choices=_choices(shape, None))
    return replace(field, is_integer=shape.rules.get("type") == "integer")


def plain_kind(shape: Shape) -> Kind:
    """Return the kind of control for a shape of which there is no value."""
    if shape.kind == "string":
        return "date" if shape.rules.get("format") == "date" else "text"
    return "json" if shape.kind in ("choice", "object", "array") else shape.kind


def as_typed(field: Field, shape: Shape, kind: Kind, text: str) -> Field:
    """Return a field with what was typed, as it stands there."""
    shown = replace(without_value(field, shape), kind=kind, text=text)
    if kind != "enum":
        return shown
    return replace(shown, choices=tuple(replace(one, is_selected=one.value == text) for one in shown.choices))


def require_kind(shape: Shape, kind: Kind) -> None:
    """Raise `MalformedForm` for a kind of control in which a shape is never shown."""
    fitting = _STRINGS if shape.kind == "string" else {shape.kind}
    if kind != "json" and kind not in fitting:
        raise MalformedForm(f"{kind} is no control for this field")


def is_empty(kind: Kind, text: str) -> bool:
    """Tell whether a control of this kind is empty, which for most is no value."""
    return kind not in ("text", "lines", "escaped", "boolean") and not text.strip()


def read(shape: Shape, kind: Kind, text: str) -> Any:
    """Return the value that was typed. Raises `Unreadable`."""
    if kind in _STRINGS:
        return typed_string(text, kind)
    if kind == "boolean":
        return text not in ("", "false")
    if kind == "number":
        return typed_number(text)
    if kind == "enum" and _is_plain(shape):
        return text
    try:
        return decode_json(text) if kind == "enum" else parse_json_text(sent_lines(text))
    except (MalformedBodyError, ValueError) as error:
        raise Unreadable("is none of the choices" if kind == "enum" else str(error)) from None


def blank(shape: Shape) -> Any:
    """Return the value that a new field of a shape begins with; ``ABSENT`` where a person has to say it."""
    if "default" in shape.rules:
        return shape.rules["default"]
    match shape.kind:
        case "string":
            return ABSENT if shape.rules.get("format") == "date" else ""
        case "boolean":
            return False
        case "const":
            return shape.rules["const"]
        case _:
            return ABSENT


def _is_plain(shape: Shape) -> bool:
    return all(isinstance(one, str) and one and is_visible(one) for one in shape.options)


def _key(option: Any, *, is_plain: bool) -> str:
    return option if is_plain else visible_json(option, indent=None)


def _choices(shape: Shape, selected: str | None) -> tuple[Choice, ...]:
    is_plain = _is_plain(shape)  # of all of them, which is asked once
    keys = {_key(one, is_plain=is_plain): one for one in shape.options}
    labels = {key: _label(one) for key, one in keys.items()}
    # 1 and "1" read the same.
    are_told_apart = len(set(labels.values())) == len(labels)
    return tuple(Choice(key, labels[key] if are_told_apart else clipped(key), key == selected) for key in keys)


def _enum_field(field: Field, shape: Shape, value: Any) -> Field:
    is_plain = _is_plain(shape)
    if is_plain and not (isinstance(value, str) and value and is_visible(value)):
        return replace(field, kind="json", text=visible_json(value))
    key = _key(value, is_plain=is_plain)
    choices = _choices(shape, key)
    if not any(one.is_selected for one in choices):
        choices = (*choices, Choice(key, _label(value), is_selected=True))
    return replace(field, kind="enum", text=key, choices=choices)


def _label(value: Any) -> str:
    text = value if isinstance(value, str) and value else visible_json(value, indent=None)
    return clipped(text)


# --- words beside the control ---


def clipped(text: Any) -> str:
    """Return a text of a schema for one line of a page; nothing for what is no text."""
    if not isinstance(text, str):
        return ""
    shown = visible_text(text[: _MOST_CHARACTERS + 1], one_line=True)
    return shown if len(text) <= _MOST_CHARACTERS else f"{shown[:_MOST_CHARACTERS]} \N{HORIZONTAL ELLIPSIS}"


def constraints_of(rules: Mapping[str, Any], *, can_be_absent: bool) -> tuple[str, ...]:
    """Return what a value has to fit, in words."""
    said = [words.format(_value_text(rules[name])) for name, words in _WORDS.items() if _is_scalar(rules.get(name))]
    if rules.get("type") == "integer":
        said.insert(0, "an integer")
    if can_be_absent and "default" in rules:
        said.append(f"{_value_text(rules['default'])} when left out")
    return tuple(said)


def _is_scalar(rule: Any) -> bool:
    return isinstance(rule, str | int | float) and not isinstance(rule, bool)


def _value_text(value: Any) -> str:
    text = value if isinstance(value, str) else "".join(visible_json(value, indent=None))
    return clipped(text)
