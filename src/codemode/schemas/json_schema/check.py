"""Checks plain JSON values against JSON Schemas, in time and memory that the sizes of both bound.

Every rule is applied in steps that are counted and can be stopped; what a reference or an alternative has found of a
value is remembered, so that recursive schemas cost no more than each rule on each value; no message quotes a value, and
no pattern runs on an engine that backtracks. Nothing is ever fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, cast

from ...cached_property import cached_property
from ...data.narrowing import is_array, is_mapping, is_object
from ...host import steps
from ...host.steps import TooMuchWork
from .checking import Failure, Path, Rules
from .dialects import dialect_of
from .keywords import matches

FREE_STEPS = 100_000
STEPS_PER_VALUE = 20
_STEPS_TO_EXPLAIN = 5000
_EXPLAINED_AT_ONCE = 8
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_MAX_REMEMBERED = 1 << 16
# All instances of these classes themselves are of the type, in every draft.
_CLASSES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}


class UnknownReference(Exception):  # noqa: N818 - never leaves this package
    """A reference leads out of the schema."""

    def __init__(self, reference: str) -> None:
        super().__init__(reference)
        self.reference = reference


class Document:
    """A whole JSON Schema, made ready by the first check. Safe to use from several threads.

    Every keyword of it has the shape that it must have. Nothing is imported that only references need, where it has
    none.
    """

    def __init__(self, schema: Any, text: str) -> None:
        self._schema = schema
        # Where such a reference leads depends on the way to it, so that what it leads to cannot be kept.
        self._is_dynamic = any(mark in text for mark in ('"$dynamicRef"', '"$recursiveRef"', '"$ref": "http'))
        self._is_resolved = any(f'"{keyword}"' in text for keyword in _REFERENCES)
        if self._is_resolved:
            _ = self.root  # an identifier in it may be none, and what resolves is imported where schemas are compiled

    @cached_property
    def root(self) -> Rules:
        """Its rules. Raises what `referencing` raises for an identifier that is none."""
        dialect = dialect_of(self._schema, None)
        return Rules(self._schema, self._resolver(dialect.specification) if self._is_resolved else None, dialect)

    def _resolver(self, specification: Any) -> Any:
        from jsonschema_specifications import REGISTRY  # pyright: ignore[reportMissingTypeStubs]

        registry: Any = REGISTRY  # an explicit one: nothing in it fetches
        return registry.resolver_with_root(specification.create_resource(self._schema))

    @cached_property
    def _known(self) -> dict[Any, Rules]:
        return {id(self._schema): self.root}

    @cached_property
    def _simple(self) -> tuple[frozenset[str], dict[str, tuple[type, ...]]] | None:
        """Required names, and classes by property, where the root is of objects and asks for nothing more."""
        rules = {name: rule for name, rule, _ in self.root.rules or ()}
        if rules.get("type") != "object" or not rules.keys() <= {"type", "properties", "required"}:
            return None
        classes: dict[str, tuple[type, ...]] = {}
        for name, schema in rules.get("properties", {}).items():
            steps.take()
            inner = self.root.dialect.rules_of(schema)
            if inner is None:
                return None
            for keyword, rule, _ in inner:
                if keyword != "type" or not isinstance(rule, str):
                    return None
                classes[name] = _CLASSES[rule]
        return frozenset(rules.get("required", ())), classes

    def failures(self, value: Any, most: int) -> list[Failure]:
        """Return what a value breaks, at most so many. Raises `TooMuchWork`, `UnknownReference`, `RecursionError`."""
        if self._simple is not None and type(value) is dict:
            required, classes = self._simple
            steps.take(1 + (len(classes) >> 3))
            members = cast("dict[str, Any]", value)
            if required <= members.keys():
                for name, expected in classes.items():
                    if name in members and type(members[name]) not in expected:
                        break
                else:
                    return []
        return list(islice(self.check(value).failures(self.root, value, None), most))

    def check(self, value: Any) -> Check:
        """Return a check of a value, in whose parts something may be asked too."""
        return Check(value, {} if self._is_dynamic else self._known, is_dynamic=self._is_dynamic)


class Check:
    """One check of one value."""

    def __init__(self, value: Any, known: dict[Any, Rules], *, is_dynamic: bool) -> None:
        self._value = value
        self._known = known
        self._is_dynamic = is_dynamic
        self._left = FREE_STEPS
        self._is_extended = False
        self._found: dict[tuple[int, int], bool] = {}
        self._explaining = _STEPS_TO_EXPLAIN
        self._is_quiet = False

    def take(self, count: int = 1) -> None:
        """Account for so many steps. Raises `TooMuchWork` when they are out of proportion to the value."""
        self._left -= count
        if self._left < 0 and not self._is_extended:
            self._is_extended = True
            self._left += STEPS_PER_VALUE * _count_values(self._value)
        if self._left < 0:
            raise TooMuchWork
        steps.take(count)

    def failures(self, node: Rules, value: Any, path: Path) -> Iterator[Failure]:
        """Yield what a value breaks of these rules."""
        if value is None and node.is_nullable:
            return
        if node.rules is None:
            yield Failure.of_no_value(value, path)
            return
        self.take(1 + len(node.rules))
        for name, rule, apply in node.rules:
            for failure in apply(self, node, rule, value, path):
                if failure.is_anonymous:
                    failure.rule_name, failure.rule = name, rule
                yield failure

    def inside(self, node: Rules, schema: Any, value: Any, path: Path) -> Iterator[Failure]:
        """Yield what a value breaks of a schema that stands inside these rules."""
        return self.failures(self.rules_of(schema, node), value, path)

    def fits(self, node: Rules, schema: Any, value: Any) -> bool:
        """Tell whether a value fits a schema that stands inside these rules."""
        inner = self.rules_of(schema, node)
        key = (id(inner), id(value))
        known = self._found.get(key)
        if known is not None:
            self.take()
            return known
        before, self._is_quiet = self._is_quiet, True
        try:
            fits = next(self.failures(inner, value, None), None) is None
        finally:
            self._is_quiet = before
        self._remember(key, value, fits=fits)
        return fits

    def referred(self, node: Rules, value: Any, path: Path) -> Iterator[Failure]:
        """Yield what a value breaks of rules that a reference led to."""
        key = (id(node), id(value))
        known = self._found.get(key)
        if known is not None and (known or self._is_quiet):
            self.take()
            if not known:
                yield Failure(value, path)
            return
        broken = False
        for failure in self.failures(node, value, path):
            if not broken:
                broken = True
                self._remember(key, value, fits=False)
            yield failure
        if not broken:
            self._remember(key, value, fits=True)

    def explain(self, node: Rules, schemas: list[Any], value: Any, path: Path) -> list[tuple[Any, list[Failure]]]:
        """Return what a value breaks of each alternative, where it fits none, as long as that is cheap to say."""
        found: list[tuple[Any, list[Failure]]] = []
        for schema in schemas:
            if self._is_quiet or self._explaining < 0:
                return []
            before = self._left
            found.append((schema, list(islice(self.inside(node, schema, value, path), _EXPLAINED_AT_ONCE))))
            self._explaining -= max(before - self._left, 1)
        return found

    def matches(self, pattern: str, text: str) -> bool:
        """Tell whether a text holds what a pattern describes."""
        return matches(self, pattern, text)

    def rules_of(self, schema: Any, node: Rules) -> Rules:
        """Return the rules of a schema that stands inside others."""
        key: Any = (id(schema), id(node)) if self._is_dynamic else id(schema)
        found = self._known.get(key)
        if found is None:
            dialect = dialect_of(schema, node.dialect)
            resolver = node.resolver
            if resolver is not None and is_mapping(schema):
                resolver = resolver.in_subresource(dialect.specification.create_resource(cast("Any", schema)))
            found = self._known[key] = Rules(schema, resolver, dialect)
        return found

    def resolve(self, node: Rules, reference: str, *, recursive: bool = False) -> Rules:
        """Return where a reference leads. Raises `UnknownReference`."""
        from referencing.exceptions import Unresolvable
        from referencing.jsonschema import lookup_recursive_ref

        key: Any = ("ref", reference, id(node), recursive)
        if (found := self._known.get(key)) is not None:
            return found
        self.take(10)
        try:
            resolved = lookup_recursive_ref(node.resolver) if recursive else node.resolver.lookup(reference)
        except Unresolvable as error:
            raise UnknownReference(str(error.ref)) from None
        contents: Any = resolved.contents
        if not isinstance(contents, bool | Mapping):
            raise UnknownReference(reference)
        same = id(cast("Any", contents))
        found = None if self._is_dynamic else self._known.get(same)
        if found is None:
            found = Rules(contents, resolved.resolver, dialect_of(contents, node.dialect))
            if not self._is_dynamic:
                self._known[same] = found
        self._known[key] = found
        return found

    def _remember(self, key: tuple[int, int], value: Any, *, fits: bool) -> None:
        if isinstance(value, dict | list):  # of scalars equal ones may be one object, and checking them costs nothing
            if len(self._found) >= _MAX_REMEMBERED:
                self._found.clear()
            self._found[key] = fits


def _count_values(value: Any) -> int:
    count, pending = 0, [value]
    while pending:
        item = pending.pop()
        count += 1
        if is_object(item):
            pending.extend(item.values())
        elif is_array(item):
            pending.extend(item)
    return count
