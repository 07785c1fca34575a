"""Fields of one control: how a value is shown in it, and what was typed into it. Knows no other fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from codemode.plugins import decode_json

from ..limits import MalformedBody, json_value
from ..visible import is_visible, visible_json, visible_text
from .model import ABSENT, Choice, Field, Kind, MalformedForm
from .shapes import Shape
from .texts import Unreadable, sent_lines, string_kind, typed_number, typed_string, with_escapes

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
            return _enum(field, shape, value)
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
        return decode_json(text) if kind == "enum" else json_value(sent_lines(text))
    except (MalformedBody, ValueError) as error:
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
        case "enum":
            return shape.options[0]
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


def _enum(field: Field, shape: Shape, value: Any) -> Field:
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
