"""Base class of option groups: built from keywords or a mapping, validated and comparable."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields, replace
from typing import Any, ClassVar, NoReturn, Self, TypeVar, cast, dataclass_transform

from ..cached_property import cached_property
from .checked_fields import Check

_MAX_EXAMPLE_CHARACTERS = 40
OptionGroupT = TypeVar("OptionGroupT")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def option_group(declared: type[OptionGroupT]) -> type[OptionGroupT]:
    """Make a subclass of `OptionGroup` a frozen dataclass with the methods of `OptionGroup`: none is compiled."""
    return dataclass(kw_only=True, init=False, repr=False, eq=False)(declared)


@option_group
class OptionGroup:
    """A group of options. Raises `ValueError` with the full path of an invalid value."""

    path: ClassVar[str] = ""
    explicit_names: ClassVar[frozenset[str]] = frozenset()
    """The options that were set explicitly."""

    def __new__(cls, *_values: Any, **options: Any) -> Self:
        """Note which options are set explicitly: a plugin may have other defaults for the rest."""
        part = super().__new__(cls)
        object.__setattr__(part, "explicit_names", frozenset(options))
        return part

    def __init__(self, **options: Any) -> None:
        for option in fields(self):
            value = options.pop(option.name, option.default)
            if value is MISSING:
                raise TypeError(f"{type(self).__name__}() needs the option {option.name!r}")
            object.__setattr__(self, option.name, value)
        for name in options:
            hint = self._suggest_option(name)
            raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument {name!r}{hint}")
        self.__post_init__()

    def __setattr__(self, name: str, _value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __post_init__(self) -> None:
        """Validate every field and store the result of its check."""
        for option in fields(self):
            if check := cast("Check | None", option.metadata.get("check")):
                object.__setattr__(
                    self, option.name, check(getattr(self, option.name), self._get_option_path(option.name))
                )

    @cached_property
    def worker_options(self) -> dict[str, Any]:
        """The options that the worker needs, by name. Every run reads them."""
        return {
            option.name: getattr(self, option.name)
            for option in fields(self)
            if option.metadata.get("is_sent_to_worker")
        }

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return self._get_option_values() == cast("OptionGroup", other)._get_option_values()

    def __hash__(self) -> int:
        return hash(self._get_option_values())

    def __repr__(self) -> str:
        shown = (f"{option.name}={getattr(self, option.name)!r}" for option in fields(self) if option.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _get_option_values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, option.name) for option in fields(self))

    @classmethod
    def of(cls, value: Self | Mapping[str, Any] | None) -> Self:
        """Return options for options, a mapping with snake_case or camelCase keys, or None for the defaults."""
        if isinstance(value, cls):
            return value
        if value is None:
            return cls()
        if not isinstance(value, Mapping):
            path, article = cls.path or "options", "an" if cls.__name__[0] in "AEIOU" else "a"
            value_text = f"{value!r:.80}"  # it may be anything, such as the whole state of a framework's run
            raise ValueError(  # noqa: TRY004 - as above
                f"{path} must be {article} {cls.__name__} or a mapping such as {cls._format_example(value)},"
                f" got {value_text}"
            )
        return cls(**cls._to_keywords(value))

    def with_defaults(self, **defaults: Any) -> Self:
        """Return the same options, with these values for those that were not set explicitly."""
        part = replace(self, **{name: value for name, value in defaults.items() if name not in self.explicit_names})
        object.__setattr__(part, "explicit_names", self.explicit_names | defaults.keys())
        return part

    def with_fallback(self, defaults: Self) -> Self:
        """Return the same options, with the explicit values of ``defaults`` for those that were not set explicitly.

        The result has the class of ``defaults``, whose ranges may differ.
        """
        if defaults.explicit_names <= self.explicit_names:
            return self
        part = self
        if not isinstance(self, type(defaults)):
            part = type(defaults)(**{name: getattr(self, name) for name in self.explicit_names})
        return part.with_defaults(**{name: getattr(defaults, name) for name in defaults.explicit_names})

    def is_set_explicitly(self, name: str) -> bool:
        """Return whether this option was set explicitly."""
        return name in self.explicit_names

    def with_options_reset(self, *names: str) -> Self:
        """Return the same options with the defaults for these names."""
        return type(self)(**{name: getattr(self, name) for name in self.explicit_names if name not in names})

    @classmethod
    def _to_keywords(cls, mapping: Mapping[str, Any]) -> dict[str, Any]:
        known = {option.name for option in fields(cls)}
        keywords: dict[str, Any] = {}
        for key, value in mapping.items():
            name = _to_snake_case(key)
            if name not in known:
                raise ValueError(f"{cls._get_option_path(str(key))} is not an option{cls._suggest_option(name)}")
            if name in keywords:
                raise ValueError(f"{cls._get_option_path(name)} is set twice")
            keywords[name] = value
        return keywords

    @classmethod
    def _suggest_option(cls, name: str) -> str:
        """Return the end of an error message about a name that is not an option."""
        other_path = cls._suggest_option_path(name)
        known = {option.name for option in fields(cls)}
        return _format_path_suggestion(other_path) if other_path else _format_option_suggestion(name, known)

    @classmethod
    def _suggest_option_path(cls, name: str, /) -> str | None:
        """Return the path of an option with this name in another group."""
        names = {option.name for option in fields(cls)}
        # A group with one option of pools suggests the others too.
        searched_paths = {*names, "pool"} if not cls.path or "on_saturation" in names else set[str]()
        paths = (
            part.path
            for part in OptionGroup.__subclasses__()
            if part.path in searched_paths and _has_option(part, name)
        )
        return next((f"{path}.{name}" for path in paths), None)

    @classmethod
    def _format_example(cls, value: object) -> str:
        """Return an example mapping, with the given short text if one of the options accepts it."""
        first, *_ = options = fields(cls)
        short_text = value if isinstance(value, str) and len(value) <= _MAX_EXAMPLE_CHARACTERS else None
        accepting = (
            option.name
            for option in options
            if short_text is not None and _accepts(option.metadata.get("check"), short_text)
        )
        name = next(accepting, None)
        return f"{{{first.name!r}: ...}}" if name is None else f"{{{name!r}: {short_text!r}}}"

    @classmethod
    def _get_option_path(cls, name: str) -> str:
        return f"{cls.path}.{name}" if cls.path else name


def _format_path_suggestion(path: str) -> str:
    """Return how to write the option at a path."""
    part, _, name = path.rpartition(".")
    if part == "pool":
        return f"; it is one of pools: write pool=WorkerPool({{{name!r}: ...}})"
    mapping = "..."
    for key in reversed(path.split(".")):
        mapping = f"{{{key!r}: {mapping}}}"
    return f"; did you mean {path!r}? Write {mapping}" if part else f"; did you mean {path!r}?"


def _accepts(check: Check | None, value: object) -> bool:
    try:
        return check is not None and check(value, "") == value
    except ValueError:
        return False


def _has_option(part: type[OptionGroup], name: str) -> bool:
    return any(option.name == name for option in fields(part))


def _to_snake_case(key: Any) -> str:
    return re.sub(r"(?<=[a-z0-9])[A-Z]", lambda capital: "_" + capital[0].lower(), str(key))


def _format_option_suggestion(name: str, known: set[str]) -> str:
    import difflib  # late: most options are known

    matches = difflib.get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {matches[0]!r}?" if matches else f"; known are {', '.join(sorted(known))}"
