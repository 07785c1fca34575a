"""Forms as trees of fields, JSON Pointers as control names, and submitted items."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args
from urllib.parse import quote, unquote_to_bytes

from ..visible_text import is_all_visible, to_visible_text

ROOT_POINTER = ""
_FRAGMENT_PREFIX = "#"


def to_child_pointer(pointer: str, name_or_index: str | int) -> str:
    """Return the pointer of a member or array item."""
    return f"{pointer}/{str(name_or_index).replace('~', '~0').replace('/', '~1')}"


def to_pointer(path: tuple[str | int, ...]) -> str:
    """Return the pointer of a path of names and indices."""
    pointer = ROOT_POINTER
    for name_or_index in path:
        pointer = to_child_pointer(pointer, name_or_index)
    return pointer


def is_within(pointer: str, outer: str) -> bool:
    """Return whether a pointer leads to or into the value at ``outer``."""
    return pointer == outer or pointer.startswith(f"{outer}/")


def to_parent_pointer(pointer: str) -> str:
    """Return the pointer of the container; of the root itself."""
    return pointer.rpartition("/")[0]


def to_control_name(pointer: str) -> str:
    """Return the name of a control: its pointer.

    It is a URI fragment (``#/a%0Ab``) where a browser would change the name: empty names and line ends.
    """
    if pointer != ROOT_POINTER and is_all_visible(pointer):
        return pointer
    return _FRAGMENT_PREFIX + quote(pointer, safe="/~", errors="surrogatepass")


def parse_control_name(name: str) -> str | None:
    """Return the pointer of a control name; None for other names."""
    if name.startswith("/"):
        return name
    if not name.startswith(_FRAGMENT_PREFIX):
        return None
    try:
        pointer = unquote_to_bytes(name[1:]).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return pointer if pointer == ROOT_POINTER or pointer.startswith("/") else None


ControlKind = Literal[
    "object", "array", "text", "lines", "escaped", "date", "number", "boolean", "enum", "const", "json"
]  # fmt: skip
FieldState = Literal["set", "absent", "null"]
_NAMES_PER_FIELD, _MARKUP_CHARACTERS_PER_CHOICE = 6, 30


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final[Any] = _Absent()
"""No value: a property that is left out, a question without a displayed value."""


class MalformedFormError(ValueError):
    """The items are not those of a form of this package."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An option: the submitted value and its label."""

    value: str
    label: str
    is_selected: bool


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a form.

    ``text`` is the content of the control, ``choices`` are those of an enum, ``alternatives`` those of ``anyOf`` and
    ``oneOf``. ``value`` is ``ABSENT`` if it is left out. Texts are not escaped for HTML.
    """

    pointer: str
    label: str
    kind: ControlKind
    state: FieldState = "set"
    text: str = ""
    value: Any = ABSENT
    description: str = ""
    constraints: tuple[str, ...] = ()
    choices: tuple[Choice, ...] = ()
    alternatives: tuple[Choice, ...] = ()
    children: tuple[Field, ...] = ()
    can_be_absent: bool = False
    can_be_null: bool = False
    can_add_item: bool = False
    can_be_removed: bool = False
    is_integer: bool = False
    problems: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its control."""
        return to_control_name(self.pointer)

    @property
    def display_marker(self) -> str:
        """The text that records how the field was displayed."""
        selected = next((choice.value for choice in self.alternatives if choice.is_selected), "-")
        return f"{self.state} {self.kind} {selected}"

    @property
    def has_state_choice(self) -> bool:
        """True if the user chooses between a value, null and leaving it out."""
        return self.can_be_absent or self.can_be_null

    @property
    def is_container(self) -> bool:
        """True if it consists of other fields."""
        return self.kind in ("object", "array")

    @property
    def page_character_count(self) -> int:
        """The approximate size on a page, without child fields."""
        choice_characters = sum(
            len(choice.value) + len(choice.label) + _MARKUP_CHARACTERS_PER_CHOICE
            for choice in (*self.choices, *self.alternatives)
        )
        return _NAMES_PER_FIELD * len(self.name) + len(self.text) + choice_characters

    def without_problems(self) -> Field:
        """Return the field and its children without problems."""
        return replace(self, children=tuple(child.without_problems() for child in self.children), problems=())

    def walk(self) -> Iterator[Field]:
        """Yield the field and all fields in it."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Form:
    """A form for one value, rendered by ``templates/form.html``.

    ``root`` is None if the value is edited as JSON text only. ``problems`` are messages by pointer, ``""`` for the
    whole value and ``"json"`` for the JSON text; ``notes`` are remarks about the schema.
    """

    root: Field | None
    json_text: str
    mode: Literal["form", "json"]
    initial_digests: str = ""
    is_ambiguous: bool = False
    is_editable: bool = True
    problems: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    notes: tuple[str, ...] = ()

    @property
    def page_character_count(self) -> int:
        """The approximate size on a page."""
        fields = self.root.walk() if self.root is not None else ()
        return len(self.json_text) + sum(field_.page_character_count for field_ in fields)

    def without_problems(self) -> Form:
        """Return the form with its texts and no problems."""
        return replace(self, root=None if self.root is None else self.root.without_problems(), problems={})

    @property
    def general_problems(self) -> dict[str, list[str]]:
        """The problems that no field shows, by visible pointer."""
        displayed = {field_.pointer for field_ in self.root.walk()} if self.root is not None else set[str]()
        remaining = {
            pointer: messages for pointer, messages in self.problems.items() if pointer not in {*displayed, "json"}
        }
        return {to_visible_text(pointer, one_line=True): messages for pointer, messages in remaining.items()}


@dataclass(frozen=True, slots=True)
class FormResult:
    """The result of reading a submitted form.

    ``value`` is None with problems or if the form has to be displayed again; ``form`` has all submitted texts.
    ``is_unchanged``: the value is the displayed one, valid or not. ``needs_redisplay``: a button of the form was
    pressed or new fields appeared, so nothing is decided.
    """

    value: Any
    problems: dict[str, list[str]]
    form: Form
    is_unchanged: bool = False
    needs_redisplay: bool = False

    @property
    def is_valid(self) -> bool:
        """True if a decision can use the value."""
        return self.is_unchanged or (not self.problems and not self.needs_redisplay)


MAX_ARRAY_ITEMS = 100

MARKER_PREFIX, STATE_PREFIX, CHOICE_PREFIX, COUNT_PREFIX = "was:", "state:", "choice:", "count:"
_CONTROL_PREFIXES = (MARKER_PREFIX, STATE_PREFIX, CHOICE_PREFIX, COUNT_PREFIX)
_BUTTON_NAMES = ("add", "remove", "choose")
_FORM_VALUE_NAMES = ("mode", "json", "was")
_ARRAY_INDEX = re.compile(r"/(0|[1-9][0-9]{0,3})(?=/|\Z)")


def is_form_item_name(name: str) -> bool:
    """Return whether a form of this package may have an item of this name."""
    prefix = next((candidate for candidate in _CONTROL_PREFIXES if name.startswith(candidate)), "")
    return name in (*_BUTTON_NAMES, *_FORM_VALUE_NAMES) or parse_control_name(name[len(prefix) :]) is not None


class SubmittedItems:
    """The items of one form by pointer. Raises `MalformedFormError` for unknown items."""

    def __init__(self, items: Iterable[tuple[str, str]]) -> None:
        self._by_key: dict[tuple[str, str], str] = {}
        self.form_values: dict[str, str] = {}
        self.button: tuple[str, str] | None = None
        for name, text in items:
            self._add_item(name, text)
        self._read_pointers: set[str] = set()
        self._ignored_pointers: list[str] = []
        self._known: set[str] | None = None

    def _add_item(self, name: str, text: str) -> None:
        if name in _BUTTON_NAMES:
            pointer = parse_control_name(text)
            if pointer is None or self.button is not None:
                raise MalformedFormError(f"{name} names no place")
            self.button = name, pointer
            return
        if name in _FORM_VALUE_NAMES:
            if name in self.form_values:
                raise MalformedFormError(f"{name} was sent twice")
            self.form_values[name] = text
            return
        prefix = next((candidate for candidate in _CONTROL_PREFIXES if name.startswith(candidate)), "")
        pointer = parse_control_name(name[len(prefix) :])
        if pointer is None:
            if prefix:
                raise MalformedFormError(f"{prefix[:-1]} names no place")
            return  # a field outside of the form
        if (prefix, pointer) in self._by_key:
            raise MalformedFormError("a field was sent twice")
        self._by_key[prefix, pointer] = text

    @property
    def character_count(self) -> int:
        """The size of all submitted texts."""
        return sum(map(len, self._by_key.values()))

    @property
    def has_fields(self) -> bool:
        """True if any control of a field was submitted."""
        return bool(self._by_key)

    def read_control_text_and_mark_used(self, pointer: str) -> str | None:
        """Return the text of a control; None without one, or for an unticked box."""
        self._read_pointers.add(pointer)
        return self._by_key.get(("", pointer))

    def read_display_marker_and_mark_used(self, pointer: str) -> tuple[FieldState, ControlKind, str] | None:
        """Return how a field was displayed: state, control and alternative."""
        self._read_pointers.add(pointer)
        text = self._by_key.get((MARKER_PREFIX, pointer))
        if text is None:
            return None
        parts = text.split(" ")
        if len(parts) != 3 or parts[0] not in get_args(FieldState) or parts[1] not in get_args(ControlKind):
            raise MalformedFormError("a field says wrongly how it was shown")
        return parts[0], parts[1], parts[2]  # pyright: ignore[reportReturnType] - looked at above

    def get_state_choice(self, pointer: str) -> FieldState | None:
        """Return the chosen state."""
        text = self._by_key.get((STATE_PREFIX, pointer))
        if text is not None and text not in get_args(FieldState):
            raise MalformedFormError("a field has a state that there is not")
        return text  # pyright: ignore[reportReturnType] - looked at above

    def get_alternative_key(self, pointer: str) -> str | None:
        """Return the chosen alternative."""
        return self._by_key.get((CHOICE_PREFIX, pointer))

    def get_array_length(self, pointer: str) -> int | None:
        """Return the displayed length of an array."""
        text = self._by_key.get((COUNT_PREFIX, pointer))
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) <= MAX_ARRAY_ITEMS):
            raise MalformedFormError("an array has a count that it cannot have")
        return int(text)

    @property
    def pointers_without_text(self) -> list[str]:
        """Fields displayed with a value whose control is missing; browsers always send it."""
        return [
            pointer
            for (prefix, pointer), text in self._by_key.items()
            if prefix == MARKER_PREFIX
            and text.startswith("set ")
            and text.split(" ")[1] not in ("object", "array", "boolean")
            and ("", pointer) not in self._by_key
        ]

    def set_text(self, pointer: str, text: str) -> None:
        """Set the text of a control."""
        self._by_key["", pointer] = text

    def list_member_pointers(self, pointer: str) -> list[str]:
        """Return the pointers of direct children that have items."""
        descendants = {
            candidate for _, candidate in self._by_key if is_within(candidate, pointer) and candidate != pointer
        }
        return sorted(candidate for candidate in descendants if to_parent_pointer(candidate) == pointer)

    def ignore_field(self, pointer: str) -> None:
        """Ignore the items of a field that a choice has closed."""
        self._ignored_pointers.append(pointer)

    def reject_unused_items(self) -> None:
        """Raise `MalformedFormError` for items of unknown fields."""
        for _, pointer in self._by_key:
            if pointer not in self._read_pointers and not any(
                is_within(pointer, ignored) for ignored in self._ignored_pointers
            ):
                raise MalformedFormError(f"the form has no field {to_control_name(pointer)[:200]}")

    def apply_array_button(self, *, has_array: bool) -> None:
        """Add or remove the array item that a button names."""
        if self.button is None or not has_array:
            return
        action, pointer = self.button
        if action == "add":
            count = self.get_array_length(pointer)
            if count is None or count >= MAX_ARRAY_ITEMS:
                raise MalformedFormError("there is nothing to add to")
            self._by_key[COUNT_PREFIX, pointer] = str(count + 1)
        elif action == "remove":
            self._remove_array_item(pointer)

    def _remove_array_item(self, pointer: str) -> None:
        array = to_parent_pointer(pointer)
        match = _ARRAY_INDEX.fullmatch(pointer[len(array) :])
        count = self.get_array_length(array)
        if match is None or count is None or int(match[1]) >= count:
            raise MalformedFormError("there is nothing to remove")
        removed_index = int(match[1])
        shifted: dict[tuple[str, str], str] = {}
        for (prefix, item_pointer), text in self._by_key.items():
            if is_within(item_pointer, pointer):
                continue
            following = (
                _ARRAY_INDEX.match(item_pointer, len(array))
                if is_within(item_pointer, array) and item_pointer != array
                else None
            )
            if following is not None and int(following[1]) > removed_index:
                shifted[prefix, f"{array}/{int(following[1]) - 1}{item_pointer[following.end() :]}"] = text
            else:
                shifted[prefix, item_pointer] = text
        shifted[COUNT_PREFIX, array] = str(count - 1)
        self._by_key = shifted
