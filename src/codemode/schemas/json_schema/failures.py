"""Failures: what a value breaks of a JSON Schema, and their wording. No text quotes the value, which may be large."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeAlias, cast

from ...data.narrowing import is_array, is_object
from ..compiled import Problem, clip, json_type, path_text

Path: TypeAlias = "tuple[Path, str | int] | None"

_NOT_SAID = ""
_MAX_NAMES = 8
_MAX_CHOICES = 64
_MAX_SHOWN = 200  # values of a rule, and characters of a text, as many as are shown of the whole
_ALTERNATIVES = ("anyOf", "oneOf")


class Failure:
    """One rule that a value breaks. ``inner`` is what the alternatives of the rule said, as far as that was asked.

    ``rule_name`` None: the schema takes nothing.
    """

    __slots__ = ("_path", "fits_type", "inner", "names", "rule", "rule_name", "value")

    def __init__(
        self, value: Any, path: Path, *, inner: list[Failure] | None = None, names: list[str] | None = None
    ) -> None:
        self.value = value
        self._path = path
        self.inner = inner or []
        self.names = names
        self.rule_name: str | None = _NOT_SAID
        self.rule: Any = None
        self.fits_type = False

    @classmethod
    def of_no_value(cls, value: Any, path: Path) -> Failure:
        """Return the failure of a schema that takes nothing."""
        failure = cls(value, path)
        failure.rule_name = None
        return failure

    @property
    def is_anonymous(self) -> bool:
        """True as long as nobody has said which rule it is."""
        return self.rule_name == _NOT_SAID

    @property
    def path(self) -> list[str | int]:
        """Where the value stands."""
        parts: list[str | int] = []
        path = self._path
        while path is not None:
            path, part = path
            parts.append(part)
        return parts[::-1]

    def problem(self) -> Problem:
        """Word it. For alternatives the one that came closest says more."""
        closest = _closest(self)
        return {"path": path_text(closest.path), "message": _expectation(closest)}

    def located(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield its places, whole, with the wording of each: of what is missing, the place where it belongs."""
        closest = _closest(self)
        rule: Any = closest.rule
        if closest.rule_name == "required" and isinstance(rule, list):
            missing = (one for one in cast("list[Any]", rule) if one not in closest.value)
            for name in islice(missing, _MAX_NAMES):
                yield (*closest.path, name), "is required"
        else:
            yield (*closest.path,), _expectation(closest)


def _closest(failure: Failure) -> Failure:
    while failure.inner:
        ranked = sorted(failure.inner, key=_rank)
        if len(ranked) > 1 and _rank(ranked[0]) == _rank(ranked[1]):
            return failure
        failure = ranked[0]
    return failure


def _rank(failure: Failure) -> tuple[Any, ...]:
    # The deeper the more specific; of equals the earlier, and the one about a value of the right type.
    path = [(isinstance(part, str), part) for part in failure.path]
    return -len(path), path, failure.rule_name not in _ALTERNATIVES, not failure.fits_type


def _expectation(failure: Failure) -> str:
    name, rule, value = failure.rule_name, failure.rule, failure.value
    if name is None:
        return "is not allowed"
    if name == "type":
        types = [rule] if isinstance(rule, str) else dict.fromkeys(one for one in rule if isinstance(one, str))
        return f"expected {' or '.join(islice(types, _MAX_NAMES))}, got {json_type(value)}"
    if name == "required" and isinstance(rule, list):
        missing = (item for item in cast("list[Any]", rule) if item not in value)
        return clip(f"missing required {', '.join(map(_shown, islice(missing, _MAX_NAMES)))}")
    if failure.names is not None:
        return clip(f"does not take {', '.join(map(repr, failure.names[:_MAX_NAMES]))}")
    if name == "enum":
        return clip(f"must be one of {', '.join(map(_shown, islice(cast('list[Any]', rule), _MAX_CHOICES)))}")
    return clip(f"must satisfy {name}: {_shown(rule)}")


def _shown(rule: Any) -> str:
    # A rule may be large too, and no more than its beginning is shown.
    return "".join(islice(json.JSONEncoder().iterencode(_beginning(rule, iter(range(_MAX_SHOWN)))), 256))


def _beginning(rule: Any, left: Iterator[int]) -> Any:
    """Return as much of a rule as may be shown: so many values, and so much of each text."""
    if next(left, None) is None:
        return None
    if isinstance(rule, str):
        return rule[:_MAX_SHOWN]
    if is_array(rule):
        return [_beginning(one, left) for one in islice(rule, _MAX_SHOWN)]
    if is_object(rule):
        return {key[:_MAX_SHOWN]: _beginning(one, left) for key, one in islice(rule.items(), _MAX_SHOWN)}
    return rule
