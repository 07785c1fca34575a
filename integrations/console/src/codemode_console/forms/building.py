"""Builds the fields of a form: of a value that is shown, or of what was typed. Reads no request, renders nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from codemode.schemas.json_schemas import DictSchema

from . import controls
from .controls import Shape, Unreadable, is_of, shape_of
from .model import ABSENT, MOST_ARRAY_ITEMS, ROOT, Choice, Field, Items, Kind, MalformedForm, State, below

MOST_LEVELS = 4
MOST_ITEMS = 1_500
"""So many items a form may send, of the 2,000 fields that a body may have."""
MOST_CHARACTERS = 1_000_000
"""So many a form takes of a page: names and choices that a schema says once may stand in it many times."""

_ITEMS_OF_A_FIELD = 3


class TooManyFields(Exception):  # noqa: N818 - never leaves this package
    """A form of controls would not fit into one request."""


@dataclass(frozen=True, slots=True)
class _Place:
    pointer: str
    label: str
    level: int
    is_optional: bool = False
    can_be_removed: bool = False


class Builder:
    """Builds one form. Without items it shows a value; with items it reads them, and ``problems`` says what it cannot.

    ``is_redrawn``: fields have appeared that nobody has filled in.
    """

    def __init__(self, schema: DictSchema, items: Items | None = None) -> None:
        self.problems: dict[str, list[str]] = {}
        self.is_redrawn = False
        self._schema = schema
        self._items = items
        self._left = MOST_ITEMS
        self._characters_left = MOST_CHARACTERS + (0 if items is None else items.characters)
        self._fits = schema.create_fit_check(None)

    def root(self, value: Any, label: str) -> Field:
        """Return the field of the whole value. Raises `TooManyFields`."""
        self._fits = self._schema.create_fit_check(value)
        return self._field(_Place(ROOT, label, 1), self._schema.json_schema, value)

    def _field(self, place: _Place, schema: Any, current: Any) -> Field:
        self._left -= _ITEMS_OF_A_FIELD
        if self._left < 0:
            raise TooManyFields
        root = self._schema.json_schema
        whole = shape_of(schema, root)
        marker = self._items.marker(place.pointer) if self._items is not None else None
        shape, alternatives, has_moved = self._alternative(place, whole, current, marker)
        is_nullable = whole.is_nullable or shape.is_nullable
        if self._is_json(place, shape, current, marker, is_nullable=is_nullable):
            shape = Shape("json", shape.rules)
        field = Field(
            pointer=place.pointer,
            label=controls.clipped(whole.rules.get("title")) or place.label,
            kind=_kind_of(shape),
            description=controls.clipped(whole.rules.get("description")),
            constraints=controls.constraints_of(shape.rules, can_be_absent=place.is_optional),
            alternatives=alternatives,
            can_be_absent=place.is_optional,
            can_be_null=is_nullable and shape.kind != "json",
            can_be_removed=place.can_be_removed,
        )
        self._pay(field)
        self._refuse_strangers(field)
        if marker is None:
            made = self._unmarked(field, shape, place, current)
        else:
            made = self._marked(field, shape, place, marker[0], marker[1], has_moved=has_moved)
        if not made.is_container:
            self._pay(made)
        return made

    def _refuse_strangers(self, field: Field) -> None:
        """Raise `MalformedForm` for what no control of a field sends: passed over it would be a change that is lost."""
        items, place = self._items, field.pointer
        if items is None or field.alternatives:
            return
        has_text = field.is_container and items.typed(place) is not None
        has_count = field.kind != "array" and items.count(place) is not None
        if has_text or has_count or items.chosen(place) is not None:
            raise MalformedForm(f"{field.name[:200]} is not edited so: it is {field.kind}")

    def _pay(self, field: Field) -> None:
        self._characters_left -= field.characters
        if self._characters_left < 0:
            raise TooManyFields

    def _is_json(
        self, place: _Place, shape: Shape, current: Any, marker: tuple[State, Kind, str] | None, *, is_nullable: bool
    ) -> bool:
        """Tell whether there are no controls for what is, or was, in a place."""
        if shape.kind in ("object", "array") and place.level > MOST_LEVELS:
            return True
        if marker is not None:
            return marker[1] == "json" and marker[2] in ("-", self._chosen(place, marker))
        if current is ABSENT or (current is None and is_nullable):
            return False
        return not is_of(current, shape) or (
            isinstance(current, list) and len(cast("list[Any]", current)) > MOST_ARRAY_ITEMS
        )

    # --- alternatives ---

    def _alternative(
        self, place: _Place, whole: Shape, current: Any, marker: tuple[State, Kind, str] | None
    ) -> tuple[Shape, tuple[Choice, ...], bool]:
        """Return the shape that is chosen, the choices, and whether another one was shown."""
        if whole.kind != "choice":
            return whole, (), False
        self._left -= len(whole.alternatives)
        shapes = [shape_of(one, self._schema.json_schema) for one in whole.alternatives]
        shapes = [Shape("json", one.rules) if one.kind == "choice" else one for one in shapes]
        known = self._chosen(place, marker)
        if known is None:
            index = self._fitting(whole, shapes, current)
        elif known in map(str, range(len(shapes))):
            index = int(known)
        elif known == "-":
            index = None
        else:
            raise MalformedForm("a field has a choice that there is not")
        if index is None:
            return Shape("json", whole.rules), (), False
        labels = [_alternative_label(*one) for one in zip(whole.alternatives, shapes, strict=True)]
        choices = tuple(Choice(str(at), label, at == index) for at, label in enumerate(labels))
        return shapes[index], choices, marker is not None and marker[2] != str(index)

    def _chosen(self, place: _Place, marker: tuple[State, Kind, str] | None) -> str | None:
        if self._items is None:
            return None
        known = self._items.chosen(place.pointer)
        if marker is None:
            return known
        if known is None and marker[1] in ("object", "array"):
            known = self._items.typed(place.pointer)
        return marker[2] if known is None else known

    def _fitting(self, whole: Shape, shapes: list[Shape], current: Any) -> int | None:
        if current is ABSENT or current is None:
            return 0
        for index, (schema, shape) in enumerate(zip(whole.alternatives, shapes, strict=True)):
            fits = is_of(current, shape) and (whole.fits_by_type or self._fits(schema, current))
            if fits is None:
                raise TooManyFields
            if fits:
                return index
        return None

    # --- what was shown, what was typed ---

    def _unmarked(self, field: Field, shape: Shape, place: _Place, current: Any, *, is_open: bool = False) -> Field:
        """Return the field of a value that no item says how it was shown."""
        items = self._items
        text = items.typed(place.pointer) if items is not None else None
        if text is not None and not field.is_container:
            return self._typed(field, shape, controls.plain_kind(shape), text)
        if current is ABSENT and place.is_optional and not is_open:
            return self._empty(replace(field, state="absent"), shape)
        if current is None and field.can_be_null:
            return self._empty(replace(field, state="null", value=None), shape)
        if current is ABSENT:
            current = controls.blank(shape)
            current = current if is_of(current, shape) else ABSENT
        if field.is_container:
            return self._container(field, shape, place, current)
        if current is ABSENT:
            self._say(place.pointer, "is required")
            return controls.without_value(field, shape)
        return controls.with_value(field, shape, current)

    def _marked(self, field: Field, shape: Shape, place: _Place, was: State, kind: Kind, *, has_moved: bool) -> Field:
        """Return the field of what was typed into one that was shown."""
        items = cast("Items", self._items)
        state = items.state(place.pointer) or was
        text = items.typed(place.pointer) or ""
        if has_moved:
            state = "set" if state == was else state
            if state == "set" and (kind in ("object", "array") or shape.kind not in ("string", "number", "json")):
                # What is to be filled in is another thing, which nobody has seen.
                return self._opened(field, shape, place)
            kind = controls.plain_kind(shape)
        has_typed = bool(text) and not field.is_container
        if state == was and has_typed:
            state = "set"
        if state != "set":
            return self._closed(field, shape, state)
        if not field.is_container:
            return self._typed(field, shape, kind, text)
        if was != "set":
            return self._opened(field, shape, place)
        return self._container(field, shape, place, ABSENT)

    def _opened(self, field: Field, shape: Shape, place: _Place) -> Field:
        self.is_redrawn = True
        cast("Items", self._items).let_go(place.pointer)
        items, self._items = self._items, None
        try:
            return self._unmarked(field, shape, place, ABSENT, is_open=True)
        finally:
            self._items = items

    def _closed(self, field: Field, shape: Shape, state: State) -> Field:
        if state == "null" and not field.can_be_null:
            raise MalformedForm("a field is null that cannot be")
        cast("Items", self._items).let_go(field.pointer)
        field = replace(field, state=state, can_be_absent=field.can_be_absent or state == "absent")
        return self._empty(replace(field, value=None if state == "null" else ABSENT), shape)

    def _empty(self, field: Field, shape: Shape) -> Field:
        if field.is_container:
            return field
        return replace(controls.without_value(field, shape), value=field.value)

    def _typed(self, field: Field, shape: Shape, kind: Kind, text: str) -> Field:
        controls.require_kind(shape, kind)
        if controls.is_empty(kind, text):
            if field.can_be_absent:
                return self._empty(replace(field, state="absent"), shape)
            if field.can_be_null:
                return self._empty(replace(field, state="null", value=None), shape)
            self._say(field.pointer, "is required: choose one" if kind == "enum" else "is required")
            return controls.as_typed(field, shape, kind, text)
        try:
            value = controls.read(shape, kind, text)
        except Unreadable as error:
            self._say(field.pointer, str(error))
            return controls.as_typed(field, shape, kind, text)
        if kind == "json" or not is_of(value, shape):
            shape = Shape("json", shape.rules)
        return controls.with_value(field, shape, value)

    # --- containers ---

    def _container(self, field: Field, shape: Shape, place: _Place, current: Any) -> Field:
        children = self._items_of if shape.kind == "array" else self._members_of
        inside = tuple(children(shape, place, current))
        if shape.kind == "array":
            value: Any = [one.value for one in inside]
            return replace(field, kind="array", children=inside, value=value, can_grow=len(inside) < MOST_ARRAY_ITEMS)
        value = {_last(one.pointer): one.value for one in inside if one.value is not ABSENT}
        return replace(field, kind="object", children=inside, value=value)

    def _members_of(self, shape: Shape, place: _Place, current: Any) -> Iterable[Field]:
        properties = cast("Mapping[str, Any]", shape.rules.get("properties") or {})
        required: Any = shape.rules.get("required")
        needed = set(map(str, cast("list[Any]", required))) if isinstance(required, list) else set[str]()
        known = cast("dict[str, Any]", current) if isinstance(current, dict) else None
        for name, schema in properties.items():
            # What a shown value lacks it may go on lacking: what that breaks is for the schema to say.
            is_optional = name not in needed or (known is not None and name not in known)
            at = _Place(below(place.pointer, name), _label(name), place.level + 1, is_optional)
            yield self._field(at, schema, ABSENT if known is None else known.get(name, ABSENT))
        more = shape.rules.get("additionalProperties")
        for name in self._further(place.pointer, properties, known):
            at = _Place(below(place.pointer, name), _label(name), place.level + 1, is_optional=True)
            yield self._field(at, more if isinstance(more, dict) else True, (known or {}).get(name, ABSENT))

    def _further(self, pointer: str, properties: Mapping[str, Any], known: dict[str, Any] | None) -> list[str]:
        names = dict.fromkeys(known or ())
        if self._items is not None:
            names |= dict.fromkeys(_last(one) for one in self._items.members(pointer))
        return [name for name in names if name not in properties]

    def _items_of(self, shape: Shape, place: _Place, current: Any) -> Iterable[Field]:
        rows = cast("list[Any]", current) if isinstance(current, list) else []
        count = self._items.count(place.pointer) if self._items is not None else None
        if count is None:
            count = len(rows)
        else:
            rows = []
            cast("Items", self._items).marker(place.pointer)
        for index in range(count):
            at = _Place(below(place.pointer, index), f"{place.label} {index + 1}", place.level + 1, can_be_removed=True)
            yield self._field(at, shape.rules["items"], rows[index] if index < len(rows) else ABSENT)

    def _say(self, pointer: str, words: str) -> None:
        self.problems.setdefault(pointer, []).append(words)


def _kind_of(shape: Shape) -> Kind:
    return shape.kind if shape.kind in ("object", "array") else controls.plain_kind(shape)


def _label(name: str) -> str:
    return controls.clipped(name) or '""'


def _last(pointer: str) -> str:
    return pointer.rpartition("/")[2].replace("~1", "/").replace("~0", "~")


def _alternative_label(schema: Any, shape: Shape) -> str:
    rules = cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else dict[str, Any]()
    title = controls.clipped(rules.get("title")) or controls.clipped(shape.rules.get("title"))
    reference = rules.get("$ref")
    if title or not isinstance(reference, str):
        return title or {"json": "anything else", "boolean": "yes or no", "object": "an object"}.get(
            shape.kind, controls.clipped(rules.get("type")) or shape.kind
        )
    return controls.clipped(_last(reference))
