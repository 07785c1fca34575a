"""Rules of a JSON Schema, the check that applies them, and the wording of failures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Protocol, TypeAlias, cast

from ...data.narrowing import is_array, is_mapping, is_object
from ..compiled import SchemaProblem, clip_message, format_path, get_json_type_name

Path: TypeAlias = "tuple[Path, str | int] | None"

_UNNAMED_RULE = ""
_MAX_NAMES = 8
_MAX_CHOICES = 64
_MAX_SHOWN_VALUES = 200  # values of a rule, and characters of a text, as many as are shown of the whole


class ValidationFailure:
    """One rule that a value breaks. ``rule_name`` None: the schema takes nothing."""

    __slots__ = ("location", "names", "rule", "rule_name", "value")

    def __init__(self, value: Any, path: Path, *, names: list[str] | None = None) -> None:
        self.value = value
        self.location = path
        self.names = names
        self.rule_name: str | None = _UNNAMED_RULE
        self.rule: Any = None

    @classmethod
    def for_false_schema(cls, value: Any, path: Path) -> ValidationFailure:
        """Return the failure of a schema that takes nothing."""
        return cls.for_rule(None, None, value, path)

    @classmethod
    def for_rule(cls, rule_name: str | None, rule: Any, value: Any, path: Path) -> ValidationFailure:
        """Return a failure whose rule is known where it is made."""
        failure = cls(value, path)
        failure.rule_name, failure.rule = rule_name, rule
        return failure

    @property
    def lacks_rule_name(self) -> bool:
        """True while the rule is unknown."""
        return self.rule_name == _UNNAMED_RULE

    @property
    def path(self) -> list[str | int]:
        """The path of the value."""
        return path_to_list(self.location)

    def to_problem(self) -> SchemaProblem:
        """Return it as a path and a message."""
        return {"path": format_path(self.path), "message": _describe_expectation(self)}

    def iterate_located_messages(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield its paths, each with its message; for a missing property the path where it belongs."""
        rule: Any = self.rule
        if self.rule_name == "required" and isinstance(rule, list):
            missing = (key for key in cast("list[Any]", rule) if key not in self.value)
            for name in islice(missing, _MAX_NAMES):
                yield (*self.path, name), "is required"
        else:
            yield (*self.path,), _describe_expectation(self)


def path_to_list(path: Path) -> list[str | int]:
    """Return a place as a list of steps."""
    parts: list[str | int] = []
    while path is not None:
        path, part = path
        parts.append(part)
    return parts[::-1]


def _describe_expectation(failure: ValidationFailure) -> str:
    name, rule, value = failure.rule_name, failure.rule, failure.value
    if name is None:
        return "is not allowed"
    if name == "type":
        types: list[Any] = [rule] if isinstance(rule, str) else rule
        type_names = [
            *islice(dict.fromkeys(type_name for type_name in types if isinstance(type_name, str)), _MAX_NAMES)
        ]
        # The choices of a union that also takes types.
        type_names += [f"one of {_format_choices(type_name)}" for type_name in types if is_array(type_name)]
        return clip_message(f"expected {' or '.join(type_names)}, got {get_json_type_name(value)}")
    if name == "required" and isinstance(rule, list):
        missing = (item for item in cast("list[Any]", rule) if item not in value)
        return clip_message(f"missing required {', '.join(map(format_rule, islice(missing, _MAX_NAMES)))}")
    if failure.names is not None:
        return clip_message(f"does not take {', '.join(map(repr, failure.names[:_MAX_NAMES]))}")
    if name == "enum":
        return clip_message(f"must be one of {_format_choices(rule)}")
    return clip_message(f"must satisfy {name}: {format_rule(rule)}")


def _format_choices(choices: list[Any]) -> str:
    return ", ".join(map(format_rule, islice(choices, _MAX_CHOICES)))


def format_rule(rule: Any) -> str:
    """Return a rule as JSON, of a large one its beginning."""
    return "".join(islice(json.JSONEncoder().iterencode(_truncate_rule(rule, iter(range(_MAX_SHOWN_VALUES)))), 256))


def _truncate_rule(rule: Any, values_left: Iterator[int]) -> Any:
    """Return as much of a rule as may be shown: so many values, and so much of each text."""
    if next(values_left, None) is None:
        return None
    if isinstance(rule, str):
        return rule[:_MAX_SHOWN_VALUES]
    if is_array(rule):
        return [_truncate_rule(item, values_left) for item in islice(rule, _MAX_SHOWN_VALUES)]
    if is_object(rule):
        return {
            key[:_MAX_SHOWN_VALUES]: _truncate_rule(item, values_left)
            for key, item in islice(rule.items(), _MAX_SHOWN_VALUES)
        }
    return rule


class DialectProtocol(Protocol):
    """One draft of JSON Schema."""

    contains_evaluates: bool

    @property
    def specification(self) -> Any:
        """A function that finds the identifiers and subresources of its schemas."""
        ...

    def has_keyword(self, keyword: str) -> bool:
        """Tell whether the draft has a keyword."""
        ...

    def list_rules(self, schema: Any) -> tuple[tuple[str, Any, KeywordFunction], ...] | None:
        """Return the keywords of a schema that ask something of a value; None when it takes none."""
        ...

    def is_of_type(self, value: Any, types: Any) -> bool:
        """Tell whether a value is of one of these types."""
        ...


class SchemaNode:
    """One schema of a document, ready for use. ``resolver`` resolves references; None without any."""

    __slots__ = ("dialect", "is_nullable", "resolver", "rules", "schema")

    def __init__(self, schema: Any, resolver: Any, dialect: DialectProtocol) -> None:
        self.schema = schema
        self.resolver = resolver
        self.dialect = dialect
        self.rules = dialect.list_rules(schema)
        # OpenAPI 3.0: it applies with any other keywords.
        self.is_nullable = is_mapping(schema) and schema.get("nullable") is True


class CheckProtocol(Protocol):
    """One check of one value, as a keyword sees it."""

    def spend_steps(self, count: int = 1) -> None:
        """Account for so many steps. Raises `WorkLimitError` when they are out of proportion to the value."""
        ...

    def iterate_failures(self, node: SchemaNode, value: Any, path: Path) -> Iterator[ValidationFailure]:
        """Yield what a value breaks of these rules."""
        ...

    def iterate_subschema_failures(
        self, node: SchemaNode, schema: Any, value: Any, path: Path
    ) -> Iterator[ValidationFailure]:
        """Yield what a value breaks of a schema that stands inside these rules."""
        ...

    def fits_subschema(self, node: SchemaNode, schema: Any, value: Any) -> bool:
        """Tell whether a value fits a schema that stands inside these rules."""
        ...

    def iterate_reference_failures(self, node: SchemaNode, value: Any, path: Path) -> Iterator[ValidationFailure]:
        """Yield what a value breaks of rules that a reference led to."""
        ...

    def collect_alternative_failures_if_cheap(
        self, node: SchemaNode, schemas: list[Any], value: Any, path: Path
    ) -> list[tuple[Any, list[ValidationFailure]]]:
        """Return what a value breaks of each alternative, where it fits none, as long as that is cheap to say."""
        ...

    def matches_pattern(self, pattern: str, text: str) -> bool:
        """Tell whether a text holds what a pattern describes."""
        ...

    def get_or_create_node(self, schema: Any, node: SchemaNode) -> SchemaNode:
        """Return the node of a schema inside another one."""
        ...

    def resolve_reference(self, node: SchemaNode, reference: str, *, recursive: bool = False) -> SchemaNode:
        """Return where a reference leads. Raises `UnknownReferenceError`."""
        ...


KeywordFunction: TypeAlias = Callable[[CheckProtocol, SchemaNode, Any, Any, Path], Iterator[ValidationFailure]]
