"""Forms as a tree of fields, the JSON Pointers that name their controls, and submitted items."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args
from urllib.parse import quote, unquote_to_bytes

from ..visible import is_visible, visible_text

ROOT = ""
_FRAGMENT = "#"


def below(pointer: str, step: str | int) -> str:
    """Return the pointer of a member or an item."""
    return f"{pointer}/{str(step).replace('~', '~0').replace('/', '~1')}"


def pointer_to(path: tuple[str | int, ...]) -> str:
    """Return the pointer of a path of names and indices."""
    pointer = ROOT
    for step in path:
        pointer = below(pointer, step)
    return pointer


def is_within(pointer: str, outer: str) -> bool:
    """Tell whether a pointer leads to a value or into it."""
    return pointer == outer or pointer.startswith(f"{outer}/")


def above(pointer: str) -> str:
    """Return the pointer of what holds a value; of the root itself."""
    return pointer.rpartition("/")[0]


def name_of(pointer: str) -> str:
    """Return the name of a control: the pointer itself.

    In the form of a URI fragment (``#/a%0Ab``) where a browser would not keep it: a name must not be empty, and of ends
    of lines only one kind arrives.
    """
    if pointer != ROOT and is_visible(pointer):
        return pointer
    return _FRAGMENT + quote(pointer, safe="/~", errors="surrogatepass")


def pointer_of(name: str) -> str | None:
    """Return the pointer that names a control; None for another name."""
    if name.startswith("/"):
        return name
    if not name.startswith(_FRAGMENT):
        return None
    try:
        pointer = unquote_to_bytes(name[1:]).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return pointer if pointer == ROOT or pointer.startswith("/") else None


Kind = Literal[
    "object", "array", "text", "lines", "escaped", "date", "number", "boolean", "enum", "const", "json"
]  # fmt: skip
State = Literal["set", "absent", "null"]
_NAMES, _AROUND_A_CHOICE = 6, 30


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final[Any] = _Absent()
"""There is no value: of a property that is left out, of a question that shows none."""


class MalformedForm(ValueError):  # noqa: N818 - a status has its words: 400
    """Items are not those of a form that this package made."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several: what the control sends, what a person reads."""

    value: str
    label: str
    is_selected: bool


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a form.

    ``text`` is what the control holds, ``choices`` those of an enum, ``alternatives`` those of ``anyOf`` and ``oneOf``.
    ``value`` is what all of it says; ``ABSENT`` for what is left out. Texts are not escaped for HTML.
    """

    pointer: str
    label: str
    kind: Kind
    state: State = "set"
    text: str = ""
    value: Any = ABSENT
    description: str = ""
    constraints: tuple[str, ...] = ()
    choices: tuple[Choice, ...] = ()
    alternatives: tuple[Choice, ...] = ()
    children: tuple[Field, ...] = ()
    can_be_absent: bool = False
    can_be_null: bool = False
    can_grow: bool = False
    can_be_removed: bool = False
    is_integer: bool = False
    problems: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its control."""
        return name_of(self.pointer)

    @property
    def marker(self) -> str:
        """What the form says of how the field was shown."""
        chosen = next((one.value for one in self.alternatives if one.is_selected), "-")
        return f"{self.state} {self.kind} {chosen}"

    @property
    def has_state(self) -> bool:
        """Whether a person chooses between a value, null and nothing at all."""
        return self.can_be_absent or self.can_be_null

    @property
    def is_container(self) -> bool:
        """Whether it is of other fields."""
        return self.kind in ("object", "array")

    @property
    def characters(self) -> int:
        """About how many characters of a page it takes, without those in it: its name stands in many attributes."""
        listed = sum(len(one.value) + len(one.label) + _AROUND_A_CHOICE for one in (*self.choices, *self.alternatives))
        return _NAMES * len(self.name) + len(self.text) + listed

    def unmarked(self) -> Field:
        """Return it without problems, and all fields in it."""
        return replace(self, children=tuple(child.unmarked() for child in self.children), problems=())

    def walk(self) -> Iterator[Field]:
        """Yield it and all fields in it."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Form:
    """A form for one value, as it is rendered by ``templates/form.html``.

    ``root`` is None when the value is edited as JSON text alone, whose tab is always there. ``problems`` has the words
    for each pointer, those of the whole at ``""`` and those of the JSON text at ``"json"``; ``notes`` say what a person
    should know of the schema.
    """

    root: Field | None
    json_text: str
    mode: Literal["form", "json"]
    was: str = ""
    is_undecided: bool = False
    is_editable: bool = True
    problems: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    notes: tuple[str, ...] = ()

    @property
    def characters(self) -> int:
        """About how many characters of a page it takes."""
        fields = self.root.walk() if self.root is not None else ()
        return len(self.json_text) + sum(one.characters for one in fields)

    def unmarked(self) -> Form:
        """Return it with all that was typed and no problems, for what is decided without it."""
        return replace(self, root=None if self.root is None else self.root.unmarked(), problems={})

    @property
    def unplaced(self) -> dict[str, list[str]]:
        """The problems that no field of the form shows, by pointers as text for a page."""
        shown = {one.pointer for one in self.root.walk()} if self.root is not None else set[str]()
        left = {pointer: words for pointer, words in self.problems.items() if pointer not in {*shown, "json"}}
        return {visible_text(pointer, one_line=True): words for pointer, words in left.items()}


@dataclass(frozen=True, slots=True)
class Edited:
    """What was read of a form.

    ``value`` is None while there are problems or the form is to be shown again; ``typed`` is the form with all that was
    typed. ``unchanged``: it is what was shown, whatever problems that has. ``is_redrawn``: a button of the form itself
    was pressed, or a choice has opened fields that nobody has seen; nothing is to be decided.
    """

    value: Any
    problems: dict[str, list[str]]
    typed: Form
    unchanged: bool = False
    is_redrawn: bool = False

    @property
    def is_readable(self) -> bool:
        """Whether ``value`` is what a person decided."""
        return self.unchanged or (not self.problems and not self.is_redrawn)


MOST_ARRAY_ITEMS = 100

WAS, STATE, CHOICE, COUNT = "was:", "state:", "choice:", "count:"
_PREFIXES = (WAS, STATE, CHOICE, COUNT)
_BUTTONS = ("add", "remove", "choose")
_WHOLE = ("mode", "json", "was")
_INDEX = re.compile(r"/(0|[1-9][0-9]{0,3})(?=/|\Z)")


def is_of_form(name: str) -> bool:
    """Tell whether a form of this package may have an item of this name."""
    prefix = next((one for one in _PREFIXES if name.startswith(one)), "")
    return name in (*_BUTTONS, *_WHOLE) or pointer_of(name[len(prefix) :]) is not None


class Items:
    """Items of one form by what they are about. Raises `MalformedForm` for what no form of this package sends."""

    def __init__(self, items: Iterable[tuple[str, str]]) -> None:
        self._by_key: dict[tuple[str, str], str] = {}
        self.whole: dict[str, str] = {}
        self.button: tuple[str, str] | None = None
        for name, text in items:
            self._take(name, text)
        self._used: set[str] = set()
        self._let_go: list[str] = []
        self._known: set[str] | None = None

    def _take(self, name: str, text: str) -> None:
        if name in _BUTTONS:
            pointer = pointer_of(text)
            if pointer is None or self.button is not None:
                raise MalformedForm(f"{name} names no place")
            self.button = name, pointer
            return
        if name in _WHOLE:
            if name in self.whole:
                raise MalformedForm(f"{name} was sent twice")
            self.whole[name] = text
            return
        prefix = next((one for one in _PREFIXES if name.startswith(one)), "")
        pointer = pointer_of(name[len(prefix) :])
        if pointer is None:
            if prefix:
                raise MalformedForm(f"{prefix[:-1]} names no place")
            return  # a field of the page around
        if (prefix, pointer) in self._by_key:
            raise MalformedForm("a field was sent twice")
        self._by_key[prefix, pointer] = text

    @property
    def characters(self) -> int:
        """How many characters were typed."""
        return sum(map(len, self._by_key.values()))

    @property
    def has_fields(self) -> bool:
        """Whether there is any field of a form of controls."""
        return bool(self._by_key)

    def typed(self, pointer: str) -> str | None:
        """Return what a control sent; None when it is none, or a box without its tick."""
        self._used.add(pointer)
        return self._by_key.get(("", pointer))

    def marker(self, pointer: str) -> tuple[State, Kind, str] | None:
        """Return how a field was shown: state, kind and which alternative."""
        self._used.add(pointer)
        text = self._by_key.get((WAS, pointer))
        if text is None:
            return None
        parts = text.split(" ")
        if len(parts) != 3 or parts[0] not in get_args(State) or parts[1] not in get_args(Kind):
            raise MalformedForm("a field says wrongly how it was shown")
        return parts[0], parts[1], parts[2]  # pyright: ignore[reportReturnType] - looked at above

    def state(self, pointer: str) -> State | None:
        """Return the state that was chosen."""
        text = self._by_key.get((STATE, pointer))
        if text is not None and text not in get_args(State):
            raise MalformedForm("a field has a state that there is not")
        return text  # pyright: ignore[reportReturnType] - looked at above

    def chosen(self, pointer: str) -> str | None:
        """Return the alternative that was chosen."""
        return self._by_key.get((CHOICE, pointer))

    def count(self, pointer: str) -> int | None:
        """Return of how many items an array was shown."""
        text = self._by_key.get((COUNT, pointer))
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) <= MOST_ARRAY_ITEMS):
            raise MalformedForm("an array has a count that it cannot have")
        return int(text)

    @property
    def unsent(self) -> list[str]:
        """The pointers of fields that were shown with a value, and whose control sent none, which no browser does."""
        return [
            pointer
            for (prefix, pointer), text in self._by_key.items()
            if prefix == WAS
            and text.startswith("set ")
            and text.split(" ")[1] not in ("object", "array", "boolean")
            and ("", pointer) not in self._by_key
        ]

    def send(self, pointer: str, text: str) -> None:
        """Let a control say what it showed."""
        self._by_key["", pointer] = text

    def members(self, pointer: str) -> list[str]:
        """Return the pointers of what is directly in a place and has an item."""
        found = {one for _, one in self._by_key if is_within(one, pointer) and one != pointer}
        return sorted(one for one in found if above(one) == pointer)

    def let_go(self, pointer: str) -> None:
        """Read no more of a place: a choice has closed it."""
        self._let_go.append(pointer)

    def refuse_unused(self) -> None:
        """Raise `MalformedForm` for an item of a field that the form does not have."""
        for _, pointer in self._by_key:
            if pointer not in self._used and not any(is_within(pointer, one) for one in self._let_go):
                raise MalformedForm(f"the form has no field {name_of(pointer)[:200]}")

    def press(self, *, has_array: bool) -> None:
        """Do what the button of the form says: one item more at the end of an array, or one less."""
        if self.button is None or not has_array:
            return
        what, pointer = self.button
        if what == "add":
            count = self.count(pointer)
            if count is None or count >= MOST_ARRAY_ITEMS:
                raise MalformedForm("there is nothing to add to")
            self._by_key[COUNT, pointer] = str(count + 1)
        elif what == "remove":
            self._remove(pointer)

    def _remove(self, pointer: str) -> None:
        array = above(pointer)
        index = _INDEX.fullmatch(pointer[len(array) :])
        count = self.count(array)
        if index is None or count is None or int(index[1]) >= count:
            raise MalformedForm("there is nothing to remove")
        at = int(index[1])
        moved: dict[tuple[str, str], str] = {}
        for (prefix, one), text in self._by_key.items():
            if is_within(one, pointer):
                continue
            below = _INDEX.match(one, len(array)) if is_within(one, array) and one != array else None
            if below is not None and int(below[1]) > at:
                moved[prefix, f"{array}/{int(below[1]) - 1}{one[below.end() :]}"] = text
            else:
                moved[prefix, one] = text
        moved[COUNT, array] = str(count - 1)
        self._by_key = moved
