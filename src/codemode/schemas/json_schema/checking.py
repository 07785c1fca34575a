"""Rules of a JSON Schema and the check that applies them, as keywords are given them. Applies none itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias

from ...data.narrowing import is_mapping
from .failures import Failure, Path


class Draft(Protocol):
    """One draft of JSON Schema."""

    contains_evaluates: bool

    @property
    def specification(self) -> Any:
        """What finds the identifiers and parts of its schemas."""
        ...

    def knows(self, keyword: str) -> bool:
        """Tell whether the draft has a keyword."""
        ...

    def rules_of(self, schema: Any) -> tuple[tuple[str, Any, Keyword], ...] | None:
        """Return the keywords of a schema that ask something of a value; None when it takes none."""
        ...

    def is_of(self, value: Any, types: Any) -> bool:
        """Tell whether a value is of one of these types."""
        ...


class Rules:
    """One schema of a document, ready for use. ``resolver`` finds what references mean; None where there are none."""

    __slots__ = ("dialect", "is_nullable", "resolver", "rules", "schema")

    def __init__(self, schema: Any, resolver: Any, dialect: Draft) -> None:
        self.schema = schema
        self.resolver = resolver
        self.dialect = dialect
        self.rules = dialect.rules_of(schema)
        # As OpenAPI 3.0 has it, whatever else the schema says.
        self.is_nullable = is_mapping(schema) and schema.get("nullable") is True


class Checking(Protocol):
    """One check of one value, as a keyword sees it."""

    def take(self, count: int = 1) -> None:
        """Account for so many steps. Raises `TooMuchWork` when they are out of proportion to the value."""
        ...

    def failures(self, node: Rules, value: Any, path: Path) -> Iterator[Failure]:
        """Yield what a value breaks of these rules."""
        ...

    def inside(self, node: Rules, schema: Any, value: Any, path: Path) -> Iterator[Failure]:
        """Yield what a value breaks of a schema that stands inside these rules."""
        ...

    def fits(self, node: Rules, schema: Any, value: Any) -> bool:
        """Tell whether a value fits a schema that stands inside these rules."""
        ...

    def referred(self, node: Rules, value: Any, path: Path) -> Iterator[Failure]:
        """Yield what a value breaks of rules that a reference led to."""
        ...

    def explain(self, node: Rules, schemas: list[Any], value: Any, path: Path) -> list[tuple[Any, list[Failure]]]:
        """Return what a value breaks of each alternative, where it fits none, as long as that is cheap to say."""
        ...

    def matches(self, pattern: str, text: str) -> bool:
        """Tell whether a text holds what a pattern describes."""
        ...

    def rules_of(self, schema: Any, node: Rules) -> Rules:
        """Return the rules of a schema that stands inside others."""
        ...

    def resolve(self, node: Rules, reference: str, *, recursive: bool = False) -> Rules:
        """Return where a reference leads. Raises `UnknownReference`."""
        ...


Keyword: TypeAlias = Callable[[Checking, Rules, Any, Any, Path], Iterator[Failure]]
