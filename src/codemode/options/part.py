"""The mechanism of a group of options: made of keywords or a mapping, checked, compared. Knows none of the groups."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, cast

from ..cached_property import cached_property
from .checked_fields import Check

_SHORT = 40
# What a dataclass compiles to be shown, compared and hashed stands here once: it would be half of this import.


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class OptionPart:
    """A group of options. Raises `ValueError` naming the full path of a wrong value when made."""

    path: ClassVar[str] = ""
    named: ClassVar[frozenset[str]] = frozenset()
    """The options that its maker named: each part has its own."""

    def __new__(cls, *_values: Any, **said: Any) -> Self:
        """Note what its maker names: a plugin may have other defaults for the rest."""
        part = super().__new__(cls)
        object.__setattr__(part, "named", frozenset(said))
        return part

    def __post_init__(self) -> None:
        """Check every field, and store what its check gives."""
        for option in fields(self):
            if check := cast("Check | None", option.metadata.get("check")):
                object.__setattr__(self, option.name, check(getattr(self, option.name), self._path_of(option.name)))

    @cached_property
    def told(self) -> dict[str, Any]:
        """The options that the worker is told of, by name. Every run asks."""
        return {option.name: getattr(self, option.name) for option in fields(self) if option.metadata.get("is_told")}

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return self._values() == cast("OptionPart", other)._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        shown = (f"{option.name}={getattr(self, option.name)!r}" for option in fields(self) if option.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, option.name) for option in fields(self))

    @classmethod
    def of(cls, value: Self | Mapping[str, Any] | None) -> Self:
        """Take options, a mapping with snake_case or camelCase keys, or None for the defaults."""
        if isinstance(value, cls):
            return value
        if value is None:
            return cls()
        if not isinstance(value, Mapping):
            path, article = cls.path or "options", "an" if cls.__name__[0] in "AEIOU" else "a"
            told = f"{value!r:.80}"  # it may be anything, such as the whole state of a framework's run
            raise ValueError(  # noqa: TRY004 - as above
                f"{path} must be {article} {cls.__name__} or a mapping such as {cls._example(value)}, got {told}"
            )
        return cls(**cls._keywords(value))

    def with_defaults(self, **defaults: Any) -> Self:
        """Return the same options, with these values for those that their maker did not name."""
        part = replace(self, **{name: value for name, value in defaults.items() if name not in self.named})
        object.__setattr__(part, "named", self.named | defaults.keys())
        return part

    def over(self, defaults: Self) -> Self:
        """Return the same options, with what the maker of ``defaults`` named for those that their own did not.

        They are of the class of ``defaults`` then, which may have other ranges.
        """
        if defaults.named <= self.named:
            return self
        part = self
        if not isinstance(self, type(defaults)):
            part = type(defaults)(**{name: getattr(self, name) for name in self.named})
        return part.with_defaults(**{name: getattr(defaults, name) for name in defaults.named})

    def says(self, name: str) -> bool:
        """Tell whether the maker of these options named this one."""
        return name in self.named

    def without(self, *names: str) -> Self:
        """Return the same options as if their maker had not named these: they have their defaults."""
        return type(self)(**{name: getattr(self, name) for name in self.named if name not in names})

    @classmethod
    def _keywords(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        known = {option.name for option in fields(cls)}
        keywords: dict[str, Any] = {}
        for key, value in given.items():
            name = _snake_case(key)
            if name not in known:
                elsewhere = cls._elsewhere(name)
                hint = _written(elsewhere) if elsewhere else _nearest(name, known)
                raise ValueError(f"{cls._path_of(str(key))} is not an option{hint}")
            if name in keywords:
                raise ValueError(f"{cls._path_of(name)} is given twice")
            keywords[name] = value
        return keywords

    @classmethod
    def _elsewhere(cls, name: str, /) -> str | None:
        """Return the path of an option that is looked for here and stands somewhere else."""
        names = {option.name for option in fields(cls)}
        # Where one option of pools stands too, the others are looked for beside it.
        parts = {*names, "pool"} if not cls.path or "on_saturation" in names else set[str]()
        having = (one.path for one in OptionPart.__subclasses__() if one.path in parts and _has(one, name))
        return next((f"{path}.{name}" for path in having), None)

    @classmethod
    def _example(cls, value: object) -> str:
        """Return a mapping as it is written: with a short text that one of the options takes, where it was given."""
        first, *_ = options = fields(cls)
        said = value if isinstance(value, str) and len(value) <= _SHORT else None
        taken = (option.name for option in options if said is not None and _takes(option.metadata.get("check"), said))
        name = next(taken, None)
        return f"{{{first.name!r}: ...}}" if name is None else f"{{{name!r}: {said!r}}}"

    @classmethod
    def _path_of(cls, name: str) -> str:
        return f"{cls.path}.{name}" if cls.path else name


def _written(path: str) -> str:
    """Return how the option at a path is written."""
    part, _, name = path.rpartition(".")
    if part == "pool":
        return f"; it is one of pools: write pool=WorkerPool({{{name!r}: ...}})"
    mapping = "..."
    for key in reversed(path.split(".")):
        mapping = f"{{{key!r}: {mapping}}}"
    return f"; did you mean {path!r}? Write {mapping}" if part else f"; did you mean {path!r}?"


def _takes(check: Check | None, value: object) -> bool:
    try:
        return check is not None and check(value, "") == value
    except ValueError:
        return False


def _has(part: type[OptionPart], name: str) -> bool:
    return any(option.name == name for option in fields(part))


def _snake_case(key: Any) -> str:
    return re.sub(r"(?<=[a-z0-9])[A-Z]", lambda capital: "_" + capital[0].lower(), str(key))


def _nearest(name: str, known: set[str]) -> str:
    import difflib  # late: most options are known

    matches = difflib.get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {matches[0]!r}?" if matches else f"; known are {', '.join(sorted(known))}"
