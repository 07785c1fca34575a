"""Create forms for values and read them when submitted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias, cast

from codemode.data.rich_values import from_tagged_json
from codemode.interrupts.interrupt import is_same_json
from codemode.schemas.json_schemas import CompiledJsonSchema, repair_schema

from ..bodies import MalformedBodyError, parse_json_text
from ..visible_text import iterate_visible_json, to_visible_text
from .builder import FormBuilder, TooManyFieldsError
from .controls import normalize_line_ends
from .model import (
    ABSENT,
    ROOT_POINTER,
    Field,
    Form,
    FormResult,
    MalformedFormError,
    SubmittedItems,
    is_within,
    to_parent_pointer,
    to_pointer,
)

MAX_EDITABLE_CHARACTERS = 200_000
"""Longer values cannot be edited: a form sends them twice, with up to nine bytes a character."""

JSON_FIELD = "json"
_MAX_PROBLEMS = 64
_MAX_CACHED_SCHEMAS = 64
_MAX_CACHED_SCHEMA_CHARACTERS = 64 * 1024
_VALUE_TOO_LARGE = "The value is too large to be edited on a page."
_TOO_MANY_PARTS = "The value has too many parts for a form and is edited as JSON text."
_AMBIGUOUS = "the form and the JSON text were both changed and say different things: choose one of them"

EditMode = Literal["form", "json"]
_CompiledSchema: TypeAlias = tuple[CompiledJsonSchema, tuple[str, ...]]


def create_form(schema: Any, value: Any = ABSENT) -> Form:
    """Return the form of a value; without a value, an empty one.

    ``schema`` is a dict, True, or None. The work is bounded; use a thread for large values
    (`codemode.host.threads.run_check`).
    """
    compiled, notes = _repair_and_compile_schema(schema)
    text = _to_editable_json_text(value)
    if text is None:
        return Form(None, "", "json", is_editable=False, notes=(*notes, _VALUE_TOO_LARGE))
    root, limit_notes = _build_root_or_none_with_notes(FormBuilder(compiled), value)
    return _assemble_form(root, text or _format_fields_as_json(root), notes=(*notes, *limit_notes))


def read_form(form_items: Iterable[tuple[str, str]], schema: Any, displayed_value: Any = ABSENT) -> FormResult:
    """Return the result of a submitted form.

    Fields without items keep the displayed value, so that API callers send only what they change. Raises
    `MalformedFormError` for items that no form of this schema and value sends. The work is bounded as in `create_form`.
    """
    compiled, notes = _repair_and_compile_schema(schema)
    reader = _FormReader(compiled, SubmittedItems(form_items), displayed_value, notes)
    if _to_editable_json_text(displayed_value) is None and reader.has_submission:
        raise MalformedFormError(_VALUE_TOO_LARGE)
    return reader.read()


def _repair_and_compile_schema(schema: Any) -> _CompiledSchema:
    if not isinstance(schema, dict):
        return CompiledJsonSchema(schema if isinstance(schema, bool) else {}), ()
    text = json.dumps(schema)
    return (
        _repair_and_compile_schema_text(text)
        if len(text) <= _MAX_CACHED_SCHEMA_CHARACTERS
        else _repair_and_compile_schema_text.__wrapped__(text)
    )


@lru_cache(maxsize=_MAX_CACHED_SCHEMAS)
def _repair_and_compile_schema_text(text: str) -> _CompiledSchema:
    readable, warning = repair_schema(json.loads(text))
    notes = () if warning is None else (f"The schema {to_visible_text(warning, one_line=True)}.",)
    return CompiledJsonSchema(readable), notes


def _build_root_or_none_with_notes(builder: FormBuilder, value: Any) -> tuple[Field | None, tuple[str, ...]]:
    try:
        root = builder.build_root(value, "Input")
    except TooManyFieldsError:
        return None, (_TOO_MANY_PARTS,)
    return (None if root.kind == "json" and not root.alternatives else root), ()


def _to_editable_json_text(value: Any) -> str | None:
    """Return the JSON text of a value; "" for ABSENT, None if it is too long."""
    if value is ABSENT:
        return ""
    pieces: list[str] = []
    characters_left = MAX_EDITABLE_CHARACTERS
    for piece in iterate_visible_json(value):
        pieces.append(piece)
        characters_left -= len(piece)
        if characters_left < 0:
            return None
    return "".join(pieces)


def _format_fields_as_json(root: Field | None) -> str:
    if root is None or any(field.value is ABSENT and field.state == "set" for field in root.walk()):
        return ""
    return _to_editable_json_text(root.value) or ""


def _assemble_form(
    root: Field | None,
    text: str,
    *,
    mode: EditMode = "form",
    problems: dict[str, list[str]] | None = None,
    notes: tuple[str, ...] = (),
    is_undecided: bool = False,
) -> Form:
    problems_by_pointer = problems or {}
    return Form(
        root=_attach_problems(root, problems_by_pointer) if root is not None else None,
        json_text=text,
        mode="json" if root is None else mode,
        initial_digests=f"{_digest_text(text)} {_digest_fields(root)}",
        is_ambiguous=is_undecided,
        problems=problems_by_pointer,
        notes=notes,
    )


def _attach_problems(field: Field, problems: dict[str, list[str]]) -> Field:
    children = tuple(_attach_problems(child, problems) for child in field.children)
    return replace(field, children=children, problems=tuple(problems.get(field.pointer, ())))


def _digest_text(text: str) -> str:
    return hashlib.sha256(normalize_line_ends(text).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _digest_fields(root: Field | None) -> str:
    """Return a digest of the texts of all controls."""
    digest = hashlib.sha256()
    for field in root.walk() if root is not None else ():
        selected = next((choice.value for choice in field.alternatives if choice.is_selected), "")
        control_state = "\0".join(
            (field.name, field.state, "" if field.is_container else normalize_line_ends(field.text), selected)
        )
        digest.update(control_state.encode("utf-8", "surrogatepass") + b"\0\0")
    return digest.hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class _ParsedValue:
    """The value of the fields or of the JSON text; ABSENT if it cannot be read."""

    value: Any
    problems: dict[str, list[str]]


class _FormReader:
    """Reads one submitted form."""

    def __init__(
        self, schema: CompiledJsonSchema, items: SubmittedItems, displayed_value: Any, notes: tuple[str, ...]
    ) -> None:
        self._schema = schema
        self._items = items
        self._displayed_value = displayed_value
        self._notes = notes
        self._json_input = items.form_values.get(JSON_FIELD)

    @property
    def has_submission(self) -> bool:
        """True if a field, the JSON text or a button was submitted."""
        return self._items.has_fields or self._json_input is not None or self._items.button is not None

    def read(self) -> FormResult:
        """Return the value, or the form to display again."""
        if not self.has_submission and self._displayed_value is not ABSENT:
            return FormResult(
                self._displayed_value,
                {},
                create_form(self._schema.json_schema, self._displayed_value),
                is_unchanged=True,
            )
        self._restore_missing_fields()
        self._items.apply_array_button(has_array=self._items.has_fields)
        builder = FormBuilder(self._schema, self._items)
        root, limit_notes = _build_root_or_none_with_notes(builder, self._displayed_value)
        self._notes += limit_notes
        if root is not None:
            self._items.reject_unused_items()
        elif self._items.has_fields and not limit_notes:
            raise MalformedFormError("the value is edited as JSON text: its form has no fields")
        is_lost = bool(limit_notes) and self._items.has_fields  # submitted texts would be lost
        if self._items.button is not None or builder.has_new_fields or is_lost:
            text = self._json_input if self._json_input is not None else _format_fields_as_json(root)
            return FormResult(None, {}, _assemble_form(root, text, notes=self._notes), needs_redisplay=True)
        field_value = _ParsedValue(root.value if root is not None else ABSENT, builder.problems)
        mode = self._select_mode(root, field_value)
        if mode is None:
            problems = {ROOT_POINTER: [_AMBIGUOUS]}
            form = _assemble_form(root, self._json_input or "", problems=problems, notes=self._notes, is_undecided=True)
            return FormResult(None, problems, form)
        result = (
            self._create_result_from_json_text()
            if mode == "json"
            else self._create_result_from_fields(cast("Field", root), field_value)
        )
        if result.problems and not result.is_unchanged and self._matches_displayed_value(root):
            return replace(result, value=self._displayed_value, is_unchanged=True)
        return result

    def _matches_displayed_value(self, root: Field | None) -> bool:
        """Return whether nothing was changed, even where the displayed value cannot be read back."""
        if self._displayed_value is ABSENT:
            return False
        initial_text, _, initial_fields = create_form(
            self._schema.json_schema, self._displayed_value
        ).initial_digests.partition(" ")
        is_text_unchanged = self._json_input is None or _digest_text(self._json_input) == initial_text
        return is_text_unchanged and (not self._items.has_fields or _digest_fields(root) == initial_fields)

    def _restore_missing_fields(self) -> None:
        """Restore the displayed texts of controls that the caller did not send."""
        pointers = self._items.pointers_without_text
        root = (
            _build_root_or_none_with_notes(FormBuilder(self._schema), self._displayed_value)[0]
            if pointers and self._displayed_value is not ABSENT
            else None
        )
        if root is None or self._items.form_values.get("was", "").partition(" ")[2] != _digest_fields(root):
            return
        texts = {field.pointer: field.text for field in root.walk()}
        for pointer in pointers:
            if pointer in texts:
                self._items.set_text(pointer, texts[pointer])

    def _select_mode(self, root: Field | None, field_value: _ParsedValue) -> EditMode | None:
        """Return the half that was changed; None if both were, to different values."""
        if root is None or (not self._items.has_fields and self._json_input is not None):
            return "json"
        requested_mode = self._items.form_values.get("mode", "form")
        if requested_mode not in ("form", "json"):
            raise MalformedFormError("mode is form or json")
        if self._json_input is None:
            return "form"
        initial_text, _, initial_fields = self._items.form_values.get("was", "").partition(" ")
        if not initial_text:  # an API caller names the mode
            return "json" if requested_mode == "json" else "form"
        has_text, has_fields = _digest_text(self._json_input) != initial_text, _digest_fields(root) != initial_fields
        if has_text and has_fields:
            return "form" if self._fields_agree_with_json_text(field_value) else None
        if has_text != has_fields:
            return "json" if has_text else "form"
        return "json" if requested_mode == "json" else "form"

    def _fields_agree_with_json_text(self, field_value: _ParsedValue) -> bool:
        read_value = self._parse_json_input()
        return (
            not read_value.problems and not field_value.problems and is_same_json(read_value.value, field_value.value)
        )

    def _parse_json_input(self) -> _ParsedValue:
        if self._json_input is None or not self._json_input.strip():
            return _ParsedValue(ABSENT, {JSON_FIELD: ["is required"]})
        try:
            return _ParsedValue(parse_json_text(normalize_line_ends(self._json_input)), {})
        except MalformedBodyError as error:
            return _ParsedValue(ABSENT, {JSON_FIELD: [str(error)]})

    def _create_result_from_json_text(self) -> FormResult:
        read_value = self._parse_json_input()
        text = normalize_line_ends(self._json_input or "")
        if read_value.problems:
            root, _ = _build_root_or_none_with_notes(FormBuilder(self._schema), self._displayed_value)
            return FormResult(
                None,
                read_value.problems,
                _assemble_form(root, text, mode="json", problems=read_value.problems, notes=self._notes),
            )
        problems = self._find_schema_problems(read_value.value, {})
        root, _ = _build_root_or_none_with_notes(FormBuilder(self._schema), read_value.value)
        return self._create_result(
            read_value, problems, _assemble_form(root, text, mode="json", problems=problems, notes=self._notes)
        )

    def _create_result_from_fields(self, root: Field, read_value: _ParsedValue) -> FormResult:
        displayed = {field.pointer for field in root.walk()}
        problems = dict(read_value.problems)
        for pointer, messages in self._find_schema_problems(read_value.value, read_value.problems).items():
            # Problems without a field belong to the enclosing one.
            target = pointer
            while target not in displayed and target != ROOT_POINTER:
                target = to_parent_pointer(target)
            problems[target] = [*problems.get(target, ()), *messages]
        text = (
            _format_fields_as_json(root)
            if not read_value.problems
            else (self._json_input or _to_editable_json_text(self._displayed_value) or "")
        )
        return self._create_result(
            read_value, problems, _assemble_form(root, text, problems=problems, notes=self._notes)
        )

    def _find_schema_problems(self, value: Any, unreadable: dict[str, list[str]]) -> dict[str, list[str]]:
        """Return the schema's problems, except those caused by unreadable fields."""
        problems: dict[str, list[str]] = {}
        if value is ABSENT:
            return problems
        for path, message in self._schema.locate_failures(_replace_absent_with_null(value), _MAX_PROBLEMS):
            pointer = to_pointer(path)
            if _is_tag(value, path) and _is_tag(self._displayed_value, path):
                continue  # a date, bytes or a set, which the tool itself checks
            if not any(
                is_within(pointer, unreadable_pointer) or is_within(unreadable_pointer, pointer)
                for unreadable_pointer in unreadable
            ):
                problems.setdefault(pointer, []).append(to_visible_text(message, one_line=True))
        return problems

    def _create_result(self, read_value: _ParsedValue, problems: dict[str, list[str]], form: Form) -> FormResult:
        if (
            not read_value.problems
            and self._displayed_value is not ABSENT
            and is_same_json(read_value.value, self._displayed_value)
        ):
            return FormResult(self._displayed_value, problems, form, is_unchanged=True)
        return FormResult(None if problems else read_value.value, problems, form)


def _is_tag(value: Any, path: Iterable[str | int]) -> bool:
    """Return whether the part of a value at ``path`` is a valid tag of a rich value."""
    try:
        for key in path:
            value = value[key]
        return isinstance(value, dict) and from_tagged_json(value) != value
    except (LookupError, TypeError, ValueError):
        return False


def _replace_absent_with_null(value: Any) -> Any:
    """Return the value with null for unreadable parts."""
    if isinstance(value, dict):
        return {key: _replace_absent_with_null(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_replace_absent_with_null(item) for item in cast("list[Any]", value)]
    return None if value is ABSENT else value
