"""Build the fields of a form from a value or from submitted items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from codemode.schemas.json_schemas import CompiledJsonSchema

from . import controls
from .controls import SchemaShape, UnreadableValueError, find_shape, fits_shape
from .model import (
    ABSENT,
    MAX_ARRAY_ITEMS,
    ROOT_POINTER,
    Choice,
    ControlKind,
    Field,
    FieldState,
    MalformedFormError,
    SubmittedItems,
    to_child_pointer,
)

MAX_FORM_DEPTH = 4
MAX_FORM_ITEMS = 1_500
"""Items that a form may send, out of the 2,000 fields of a body."""
MAX_FORM_CHARACTERS = 1_000_000
"""The size of a form on a page, where names and choices of a schema may be repeated."""

_ITEMS_PER_FIELD = 3


class TooManyFieldsError(Exception):
    """The form would not fit into one request."""


@dataclass(frozen=True, slots=True)
class _FieldPosition:
    pointer: str
    label: str
    level: int
    is_optional: bool = False
    can_be_removed: bool = False


class FormBuilder:
    """Builds one form from a value, or from submitted items; ``problems`` lists unreadable items by pointer.

    ``has_new_fields``: fields have appeared that the user has not filled in.
    """

    def __init__(self, schema: CompiledJsonSchema, items: SubmittedItems | None = None) -> None:
        self.problems: dict[str, list[str]] = {}
        self.has_new_fields = False
        self._schema = schema
        self._items = items
        self._items_left = MAX_FORM_ITEMS
        self._characters_left = MAX_FORM_CHARACTERS + (0 if items is None else items.character_count)
        self._fits_schema = schema.create_subschema_check(None)

    def build_root(self, value: Any, label: str) -> Field:
        """Return the field of the whole value. Raises `TooManyFieldsError`."""
        self._fits_schema = self._schema.create_subschema_check(value)
        return self._build_field(_FieldPosition(ROOT_POINTER, label, 1), self._schema.json_schema, value)

    def _build_field(self, position: _FieldPosition, schema: Any, current: Any) -> Field:
        self._items_left -= _ITEMS_PER_FIELD
        if self._items_left < 0:
            raise TooManyFieldsError
        root = self._schema.json_schema
        declared = find_shape(schema, root)
        marker = self._items.read_display_marker_and_mark_used(position.pointer) if self._items is not None else None
        shape, alternatives, has_new_alternative = self._select_alternative(position, declared, current, marker)
        is_nullable = declared.is_nullable or shape.is_nullable
        if self._needs_json_control(position, shape, current, marker, is_nullable=is_nullable):
            shape = SchemaShape("json", shape.keywords)
        field = Field(
            pointer=position.pointer,
            label=controls.to_short_visible_label(declared.keywords.get("title")) or position.label,
            kind=_to_control_kind(shape),
            description=controls.to_short_visible_label(declared.keywords.get("description")),
            constraints=controls.describe_constraints(shape.keywords, can_be_absent=position.is_optional),
            alternatives=alternatives,
            can_be_absent=position.is_optional,
            can_be_null=is_nullable and shape.kind != "json",
            can_be_removed=position.can_be_removed,
        )
        self._consume_character_budget(field)
        self._reject_unexpected_items(field)
        if marker is None:
            built = self._build_from_value(field, shape, position, current)
        else:
            built = self._build_from_submission(
                field, shape, position, marker[0], marker[1], has_new_alternative=has_new_alternative
            )
        if not built.is_container:
            self._consume_character_budget(built)
        return built

    def _reject_unexpected_items(self, field: Field) -> None:
        """Raise `MalformedFormError` for an item that no control of the field sends; ignoring it would lose an edit."""
        items, pointer = self._items, field.pointer
        if items is None or field.alternatives:
            return
        has_text = field.is_container and items.read_control_text_and_mark_used(pointer) is not None
        has_count = field.kind != "array" and items.get_array_length(pointer) is not None
        if has_text or has_count or items.get_alternative_key(pointer) is not None:
            raise MalformedFormError(f"{field.name[:200]} is not edited so: it is {field.kind}")

    def _consume_character_budget(self, field: Field) -> None:
        self._characters_left -= field.page_character_count
        if self._characters_left < 0:
            raise TooManyFieldsError

    def _needs_json_control(
        self,
        position: _FieldPosition,
        shape: SchemaShape,
        current: Any,
        marker: tuple[FieldState, ControlKind, str] | None,
        *,
        is_nullable: bool,
    ) -> bool:
        """Return whether the value has no controls of its own."""
        if shape.kind in ("object", "array") and position.level > MAX_FORM_DEPTH:
            return True
        if marker is not None:
            return marker[1] == "json" and marker[2] in (
                "-",
                self._find_submitted_or_displayed_alternative(position, marker),
            )
        if current is ABSENT or (current is None and is_nullable):
            return False
        return not fits_shape(current, shape) or (
            isinstance(current, list) and len(cast("list[Any]", current)) > MAX_ARRAY_ITEMS
        )

    # --- Alternatives ---

    def _select_alternative(
        self,
        position: _FieldPosition,
        declared: SchemaShape,
        current: Any,
        marker: tuple[FieldState, ControlKind, str] | None,
    ) -> tuple[SchemaShape, tuple[Choice, ...], bool]:
        """Return the chosen shape, the choices, and whether another one was displayed."""
        if declared.kind != "choice":
            return declared, (), False
        self._items_left -= len(declared.alternatives)
        shapes = [find_shape(schema, self._schema.json_schema) for schema in declared.alternatives]
        shapes = [SchemaShape("json", schema.keywords) if schema.kind == "choice" else schema for schema in shapes]
        selected_key = self._find_submitted_or_displayed_alternative(position, marker)
        if selected_key is None:
            index = self._find_matching_alternative(declared, shapes, current)
        elif selected_key in map(str, range(len(shapes))):
            index = int(selected_key)
        elif selected_key == "-":
            index = None
        else:
            raise MalformedFormError("a field has a choice that there is not")
        if index is None:
            return SchemaShape("json", declared.keywords), (), False
        labels = [_describe_alternative(*schema) for schema in zip(declared.alternatives, shapes, strict=True)]
        choices = tuple(
            Choice(str(option_index), label, option_index == index) for option_index, label in enumerate(labels)
        )
        return shapes[index], choices, marker is not None and marker[2] != str(index)

    def _find_submitted_or_displayed_alternative(
        self, position: _FieldPosition, marker: tuple[FieldState, ControlKind, str] | None
    ) -> str | None:
        if self._items is None:
            return None
        submitted_key = self._items.get_alternative_key(position.pointer)
        if marker is None:
            return submitted_key
        if submitted_key is None and marker[1] in ("object", "array"):
            submitted_key = self._items.read_control_text_and_mark_used(position.pointer)
        return marker[2] if submitted_key is None else submitted_key

    def _find_matching_alternative(self, declared: SchemaShape, shapes: list[SchemaShape], current: Any) -> int | None:
        if current is ABSENT or current is None:
            return 0
        for index, (schema, shape) in enumerate(zip(declared.alternatives, shapes, strict=True)):
            fits = fits_shape(current, shape) and (declared.matches_by_type or self._fits_schema(schema, current))
            if fits is None:
                raise TooManyFieldsError
            if fits:
                return index
        return None

    # --- Values and submissions ---

    def _build_from_value(
        self, field: Field, shape: SchemaShape, position: _FieldPosition, current: Any, *, is_open: bool = False
    ) -> Field:
        """Return the field of a value without submitted items."""
        items = self._items
        text = items.read_control_text_and_mark_used(position.pointer) if items is not None else None
        if text is not None and not field.is_container:
            return self._fill_field_from_text(field, shape, controls.choose_default_control(shape), text)
        if current is ABSENT and position.is_optional and not is_open:
            return self._clear_control_keeping_value(replace(field, state="absent"), shape)
        if current is None and field.can_be_null:
            return self._clear_control_keeping_value(replace(field, state="null", value=None), shape)
        if current is ABSENT:
            current = controls.get_initial_value(shape)
            current = current if fits_shape(current, shape) else ABSENT
        if field.is_container:
            return self._build_container(field, shape, position, current)
        if current is ABSENT:
            self._add_problem(position.pointer, "is required")
            return controls.clear_field(field, shape)
        return controls.fill_field(field, shape, current)

    def _build_from_submission(
        self,
        field: Field,
        shape: SchemaShape,
        position: _FieldPosition,
        displayed_state: FieldState,
        kind: ControlKind,
        *,
        has_new_alternative: bool,
    ) -> Field:
        """Return the field with the submitted items."""
        items = cast("SubmittedItems", self._items)
        state = items.get_state_choice(position.pointer) or displayed_state
        text = items.read_control_text_and_mark_used(position.pointer) or ""
        if has_new_alternative:
            state = "set" if state == displayed_state else state
            if state == "set" and (kind in ("object", "array") or shape.kind not in ("string", "number", "json")):
                # The user has not seen the fields of the other alternative.
                return self._build_newly_set_field(field, shape, position)
            kind = controls.choose_default_control(shape)
        has_text = bool(text) and not field.is_container
        if state == displayed_state and has_text:
            state = "set"
        if state != "set":
            return self._set_field_absent_or_null(field, shape, state)
        if not field.is_container:
            return self._fill_field_from_text(field, shape, kind, text)
        if displayed_state != "set":
            return self._build_newly_set_field(field, shape, position)
        return self._build_container(field, shape, position, ABSENT)

    def _build_newly_set_field(self, field: Field, shape: SchemaShape, position: _FieldPosition) -> Field:
        self.has_new_fields = True
        cast("SubmittedItems", self._items).ignore_field(position.pointer)
        items, self._items = self._items, None
        try:
            return self._build_from_value(field, shape, position, ABSENT, is_open=True)
        finally:
            self._items = items

    def _set_field_absent_or_null(self, field: Field, shape: SchemaShape, state: FieldState) -> Field:
        if state == "null" and not field.can_be_null:
            raise MalformedFormError("a field is null that cannot be")
        cast("SubmittedItems", self._items).ignore_field(field.pointer)
        field = replace(field, state=state, can_be_absent=field.can_be_absent or state == "absent")
        return self._clear_control_keeping_value(replace(field, value=None if state == "null" else ABSENT), shape)

    def _clear_control_keeping_value(self, field: Field, shape: SchemaShape) -> Field:
        if field.is_container:
            return field
        return replace(controls.clear_field(field, shape), value=field.value)

    def _fill_field_from_text(self, field: Field, shape: SchemaShape, kind: ControlKind, text: str) -> Field:
        controls.require_fitting_control(shape, kind)
        if controls.is_empty_control(kind, text):
            if field.can_be_absent:
                return self._clear_control_keeping_value(replace(field, state="absent"), shape)
            if field.can_be_null:
                return self._clear_control_keeping_value(replace(field, state="null", value=None), shape)
            self._add_problem(field.pointer, "is required: choose one" if kind == "enum" else "is required")
            return controls.set_submitted_text(field, shape, kind, text)
        try:
            value = controls.parse_control_text(shape, kind, text)
        except UnreadableValueError as error:
            self._add_problem(field.pointer, str(error))
            return controls.set_submitted_text(field, shape, kind, text)
        if kind == "json" or not fits_shape(value, shape):
            shape = SchemaShape("json", shape.keywords)
        return controls.fill_field(field, shape, value)

    # --- Containers ---

    def _build_container(self, field: Field, shape: SchemaShape, position: _FieldPosition, current: Any) -> Field:
        build_children = self._build_array_items if shape.kind == "array" else self._build_members
        children = tuple(build_children(shape, position, current))
        if shape.kind == "array":
            value: Any = [child.value for child in children]
            return replace(
                field, kind="array", children=children, value=value, can_add_item=len(children) < MAX_ARRAY_ITEMS
            )
        value = {
            _decode_last_pointer_token(child.pointer): child.value for child in children if child.value is not ABSENT
        }
        return replace(field, kind="object", children=children, value=value)

    def _build_members(self, shape: SchemaShape, position: _FieldPosition, current: Any) -> Iterable[Field]:
        properties = cast("Mapping[str, Any]", shape.keywords.get("properties") or {})
        required: Any = shape.keywords.get("required")
        required_names = set(map(str, cast("list[Any]", required))) if isinstance(required, list) else set[str]()
        members = cast("dict[str, Any]", current) if isinstance(current, dict) else None
        for name, schema in properties.items():
            # A displayed value may lack required members; the schema check reports them.
            is_optional = name not in required_names or (members is not None and name not in members)
            member_position = _FieldPosition(
                to_child_pointer(position.pointer, name), _format_member_label(name), position.level + 1, is_optional
            )
            yield self._build_field(member_position, schema, ABSENT if members is None else members.get(name, ABSENT))
        additional_schema = shape.keywords.get("additionalProperties")
        for name in self._list_additional_member_names(position.pointer, properties, members):
            member_position = _FieldPosition(
                to_child_pointer(position.pointer, name),
                _format_member_label(name),
                position.level + 1,
                is_optional=True,
            )
            yield self._build_field(
                member_position,
                additional_schema if isinstance(additional_schema, dict) else True,
                (members or {}).get(name, ABSENT),
            )

    def _list_additional_member_names(
        self, pointer: str, properties: Mapping[str, Any], members: dict[str, Any] | None
    ) -> list[str]:
        names = dict.fromkeys(members or ())
        if self._items is not None:
            names |= dict.fromkeys(
                _decode_last_pointer_token(member_pointer)
                for member_pointer in self._items.list_member_pointers(pointer)
            )
        return [name for name in names if name not in properties]

    def _build_array_items(self, shape: SchemaShape, position: _FieldPosition, current: Any) -> Iterable[Field]:
        values = cast("list[Any]", current) if isinstance(current, list) else []
        count = self._items.get_array_length(position.pointer) if self._items is not None else None
        if count is None:
            count = len(values)
        else:
            values = []
            cast("SubmittedItems", self._items).read_display_marker_and_mark_used(position.pointer)
        for index in range(count):
            item_position = _FieldPosition(
                to_child_pointer(position.pointer, index),
                f"{position.label} {index + 1}",
                position.level + 1,
                can_be_removed=True,
            )
            yield self._build_field(
                item_position, shape.keywords["items"], values[index] if index < len(values) else ABSENT
            )

    def _add_problem(self, pointer: str, message: str) -> None:
        self.problems.setdefault(pointer, []).append(message)


def _to_control_kind(shape: SchemaShape) -> ControlKind:
    return shape.kind if shape.kind in ("object", "array") else controls.choose_default_control(shape)


def _format_member_label(name: str) -> str:
    return controls.to_short_visible_label(name) or '""'


def _decode_last_pointer_token(pointer: str) -> str:
    return pointer.rpartition("/")[2].replace("~1", "/").replace("~0", "~")


def _describe_alternative(schema: Any, shape: SchemaShape) -> str:
    keywords = cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else dict[str, Any]()
    title = controls.to_short_visible_label(keywords.get("title")) or controls.to_short_visible_label(
        shape.keywords.get("title")
    )
    reference = keywords.get("$ref")
    if title or not isinstance(reference, str):
        return title or {"json": "anything else", "boolean": "yes or no", "object": "an object"}.get(
            shape.kind, controls.to_short_visible_label(keywords.get("type")) or shape.kind
        )
    return controls.to_short_visible_label(_decode_last_pointer_token(reference))
