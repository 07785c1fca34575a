"""Forms as data: a tree of fields, and what was read of one. Knows no schema and no page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from ..visible import visible_text
from .pointers import name_of

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
