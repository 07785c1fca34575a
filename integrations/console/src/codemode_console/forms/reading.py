"""Forms of values, and what people made of them: the two functions that pages call. Renders nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias, cast

from codemode.interrupts.interrupt import same_json
from codemode.schemas.json_schemas import DictSchema, repair_schema

from ..bodies import MalformedBodyError, parse_json_text
from ..visible import visible_json_pieces, visible_text
from .building import Builder, TooManyFields
from .controls import sent_lines
from .model import ABSENT, ROOT, Edited, Field, Form, Items, MalformedForm, above, is_within, pointer_to

MOST_EDITABLE_CHARACTERS = 200_000
"""A value whose JSON is longer is decided as it is: a form would send it twice, and each character as up to nine."""

JSON_FIELD = "json"
_MOST_PROBLEMS = 64
_MOST_KEPT = 64
_MOST_KEPT_CHARACTERS = 64 * 1024
_TOO_LONG = "The value is too large to be edited on a page."
_TOO_MANY = "The value has too many parts for a form and is edited as JSON text."
_UNDECIDED = "the form and the JSON text were both changed and say different things: choose one of them"

Mode = Literal["form", "json"]
_Compiled: TypeAlias = tuple[DictSchema, tuple[str, ...]]


def fields_of(schema: Any, value: Any = ABSENT) -> Form:
    """Return the form of a value under its JSON Schema; without a value, one that a person fills in.

    ``schema``: a dict, True, or None where there is none. The work is bounded; a large value belongs in a
    thread (`codemode.host.threads.run_check`).
    """
    compiled, notes = _compiled(schema)
    text = _json_text(value)
    if text is None:
        return Form(None, "", "json", is_editable=False, notes=(*notes, _TOO_LONG))
    root, more = _root(Builder(compiled), value)
    return _form(root, text or _json_of(root), notes=(*notes, *more))


def read_form(form_items: Iterable[tuple[str, str]], schema: Any, shown_input: Any = ABSENT) -> Edited:
    """Return what a submitted form says of the value that it showed.

    A field of which no item says anything keeps what was shown, so that a caller may send what it changes alone. Raises
    `MalformedForm` for items that no form of this schema and value sends. Work as `fields_of` says.
    """
    compiled, notes = _compiled(schema)
    reading = _Reading(compiled, Items(form_items), shown_input, notes)
    if _json_text(shown_input) is None and reading.says_something:
        raise MalformedForm(_TOO_LONG)
    return reading.edited()


def _compiled(schema: Any) -> _Compiled:
    if not isinstance(schema, dict):
        return DictSchema(schema if isinstance(schema, bool) else {}), ()
    text = json.dumps(schema)
    return _compiled_text(text) if len(text) <= _MOST_KEPT_CHARACTERS else _compiled_text.__wrapped__(text)


@lru_cache(maxsize=_MOST_KEPT)
def _compiled_text(text: str) -> _Compiled:
    readable, warning = repair_schema(json.loads(text))
    notes = () if warning is None else (f"The schema {visible_text(warning, one_line=True)}.",)
    return DictSchema(readable), notes


def _root(builder: Builder, value: Any) -> tuple[Field | None, tuple[str, ...]]:
    try:
        root = builder.root(value, "Input")
    except TooManyFields:
        return None, (_TOO_MANY,)
    return (None if root.kind == "json" and not root.alternatives else root), ()


def _json_text(value: Any) -> str | None:
    """Return the JSON text of a value; nothing for none, None for one that is too long."""
    if value is ABSENT:
        return ""
    pieces: list[str] = []
    left = MOST_EDITABLE_CHARACTERS
    for piece in visible_json_pieces(value):
        pieces.append(piece)
        left -= len(piece)
        if left < 0:
            return None
    return "".join(pieces)


def _json_of(root: Field | None) -> str:
    if root is None or any(one.value is ABSENT and one.state == "set" for one in root.walk()):
        return ""
    return _json_text(root.value) or ""


def _form(
    root: Field | None,
    text: str,
    *,
    mode: Mode = "form",
    problems: dict[str, list[str]] | None = None,
    notes: tuple[str, ...] = (),
    is_undecided: bool = False,
) -> Form:
    found = problems or {}
    return Form(
        root=_with_problems(root, found) if root is not None else None,
        json_text=text,
        mode="json" if root is None else mode,
        was=f"{_digest_of_text(text)} {_digest(root)}",
        is_undecided=is_undecided,
        problems=found,
        notes=notes,
    )


def _with_problems(field: Field, problems: dict[str, list[str]]) -> Field:
    children = tuple(_with_problems(one, problems) for one in field.children)
    return replace(field, children=children, problems=tuple(problems.get(field.pointer, ())))


def _digest_of_text(text: str) -> str:
    return hashlib.sha256(sent_lines(text).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _digest(root: Field | None) -> str:
    """Return a digest of what the controls of a form hold."""
    found = hashlib.sha256()
    for one in root.walk() if root is not None else ():
        chosen = next((choice.value for choice in one.alternatives if choice.is_selected), "")
        said = "\0".join((one.name, one.state, "" if one.is_container else sent_lines(one.text), chosen))
        found.update(said.encode("utf-8", "surrogatepass") + b"\0\0")
    return found.hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class _Said:
    """What one half of a form says: the fields, or the JSON text. ``value`` is ABSENT where it cannot be read."""

    value: Any
    problems: dict[str, list[str]]


class _Reading:
    """Reads one submitted form."""

    def __init__(self, schema: DictSchema, items: Items, shown: Any, notes: tuple[str, ...]) -> None:
        self._schema = schema
        self._items = items
        self._shown = shown
        self._notes = notes
        self._json = items.whole.get(JSON_FIELD)

    @property
    def says_something(self) -> bool:
        """Whether any item is about the value."""
        return self._items.has_fields or self._json is not None or self._items.button is not None

    def edited(self) -> Edited:
        """Return what was decided, or the form again."""
        if not self.says_something and self._shown is not ABSENT:
            return Edited(self._shown, {}, fields_of(self._schema.json_schema, self._shown), unchanged=True)
        self._fill_unsent()
        self._items.press(has_array=self._items.has_fields)
        builder = Builder(self._schema, self._items)
        root, more = _root(builder, self._shown)
        self._notes += more
        if root is not None:
            self._items.refuse_unused()
        elif self._items.has_fields and not more:
            raise MalformedForm("the value is edited as JSON text: its form has no fields")
        is_lost = bool(more) and self._items.has_fields  # what was typed is in no text: it must not go unnoticed
        if self._items.button is not None or builder.is_redrawn or is_lost:
            text = self._json if self._json is not None else _json_of(root)
            return Edited(None, {}, _form(root, text, notes=self._notes), is_redrawn=True)
        by_fields = _Said(root.value if root is not None else ABSENT, builder.problems)
        mode = self._mode(root, by_fields)
        if mode is None:
            problems = {ROOT: [_UNDECIDED]}
            form = _form(root, self._json or "", problems=problems, notes=self._notes, is_undecided=True)
            return Edited(None, problems, form)
        said = self._from_json() if mode == "json" else self._from_fields(cast("Field", root), by_fields)
        if said.problems and not said.unchanged and self._is_untouched(root):
            return replace(said, value=self._shown, unchanged=True)
        return said

    def _is_untouched(self, root: Field | None) -> bool:
        """Tell whether all that was sent is as it was shown, also where that cannot be read back."""
        if self._shown is ABSENT:
            return False
        was_text, _, was_fields = fields_of(self._schema.json_schema, self._shown).was.partition(" ")
        is_text_so = self._json is None or _digest_of_text(self._json) == was_text
        return is_text_so and (not self._items.has_fields or _digest(root) == was_fields)

    def _fill_unsent(self) -> None:
        """Let controls that a caller did not send say what they showed, where that is known: nobody has typed there."""
        unsent = self._items.unsent
        root = _root(Builder(self._schema), self._shown)[0] if unsent and self._shown is not ABSENT else None
        if root is None or self._items.whole.get("was", "").partition(" ")[2] != _digest(root):
            return
        texts = {one.pointer: one.text for one in root.walk()}
        for pointer in unsent:
            if pointer in texts:
                self._items.send(pointer, texts[pointer])

    def _mode(self, root: Field | None, by_fields: _Said) -> Mode | None:
        """Return which half counts: the one that was changed; None when both were, to different values."""
        if root is None or (not self._items.has_fields and self._json is not None):
            return "json"
        said = self._items.whole.get("mode", "form")
        if said not in ("form", "json"):
            raise MalformedForm("mode is form or json")
        if self._json is None:
            return "form"
        was_text, _, was_fields = self._items.whole.get("was", "").partition(" ")
        if not was_text:  # of a caller that has no page: it says which it means
            return "json" if said == "json" else "form"
        has_text, has_fields = _digest_of_text(self._json) != was_text, _digest(root) != was_fields
        if has_text and has_fields:
            return "form" if self._is_same(by_fields) else None
        if has_text != has_fields:
            return "json" if has_text else "form"
        return "json" if said == "json" else "form"

    def _is_same(self, by_fields: _Said) -> bool:
        said = self._read_json()
        return not said.problems and not by_fields.problems and same_json(said.value, by_fields.value)

    def _read_json(self) -> _Said:
        if self._json is None or not self._json.strip():
            return _Said(ABSENT, {JSON_FIELD: ["is required"]})
        try:
            return _Said(parse_json_text(sent_lines(self._json)), {})
        except MalformedBodyError as error:
            return _Said(ABSENT, {JSON_FIELD: [str(error)]})

    def _from_json(self) -> Edited:
        said = self._read_json()
        text = sent_lines(self._json or "")
        if said.problems:
            root, _ = _root(Builder(self._schema), self._shown)
            return Edited(
                None, said.problems, _form(root, text, mode="json", problems=said.problems, notes=self._notes)
            )
        problems = self._misfits(said.value, {})
        root, _ = _root(Builder(self._schema), said.value)
        return self._done(said, problems, _form(root, text, mode="json", problems=problems, notes=self._notes))

    def _from_fields(self, root: Field, said: _Said) -> Edited:
        shown = {one.pointer for one in root.walk()}
        problems = dict(said.problems)
        for pointer, words in self._misfits(said.value, said.problems).items():
            # What is about no field belongs to the one around it.
            place = pointer
            while place not in shown and place != ROOT:
                place = above(place)
            problems[place] = [*problems.get(place, ()), *words]
        text = _json_of(root) if not said.problems else (self._json or _json_text(self._shown) or "")
        return self._done(said, problems, _form(root, text, problems=problems, notes=self._notes))

    def _misfits(self, value: Any, unread: dict[str, list[str]]) -> dict[str, list[str]]:
        """Return what a value breaks of the schema, but what is so because of values that could not be read."""
        found: dict[str, list[str]] = {}
        if value is ABSENT:
            return found
        for path, words in self._schema.locate_failures(_filled(value), _MOST_PROBLEMS):
            pointer = pointer_to(path)
            if not any(is_within(pointer, one) or is_within(one, pointer) for one in unread):
                found.setdefault(pointer, []).append(visible_text(words, one_line=True))
        return found

    def _done(self, said: _Said, problems: dict[str, list[str]], form: Form) -> Edited:
        if not said.problems and self._shown is not ABSENT and same_json(said.value, self._shown):
            return Edited(self._shown, problems, form, unchanged=True)
        return Edited(None if problems else said.value, problems, form)


def _filled(value: Any) -> Any:
    """Return a value with null for what could not be read of it. It is as deep as a form, at most."""
    if isinstance(value, dict):
        return {key: _filled(one) for key, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_filled(one) for one in cast("list[Any]", value)]
    return None if value is ABSENT else value
