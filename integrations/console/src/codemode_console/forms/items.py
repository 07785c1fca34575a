"""The items of a submitted form: which say what, and what adding or removing does to them. Knows no schema."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import get_args

from .model import Kind, MalformedForm, State
from .pointers import above, is_within, name_of, pointer_of

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
