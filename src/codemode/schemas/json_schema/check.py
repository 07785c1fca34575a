"""Checks JSON values against JSON Schemas, in time and memory bounded by both sizes.

Every rule runs in counted steps that can be stopped. Results of references and alternatives are cached by value, so
that recursive schemas cost no more than each rule on each value. No message quotes a value, and no pattern runs on an
engine that backtracks. Nothing is ever fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, cast

from ...cached_property import cached_property
from ...data.narrowing import is_array, is_mapping, is_object
from ...host import steps
from ...host.steps import WorkLimitError
from .checking import Path, SchemaNode, ValidationFailure
from .dialects import select_dialect
from .keywords import matches_pattern

FREE_STEPS_PER_CHECK = 100_000
STEPS_PER_VALUE = 20
_STEPS_TO_EXPLAIN = 5000
_MAX_FAILURES_PER_ALTERNATIVE = 8
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_MAX_REMEMBERED_RESULTS = 1 << 16
# All instances of these classes themselves are of the type, in every draft.
_CLASSES_BY_TYPE: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}


class UnknownReferenceError(Exception):
    """A reference leads out of the schema."""

    def __init__(self, reference: str) -> None:
        super().__init__(reference)
        self.reference = reference


class SchemaDocument:
    """A whole JSON Schema, made ready by the first check. Safe to use from several threads.

    Every keyword of it has the shape that it must have. Nothing is imported that only references need, where it has
    none.
    """

    def __init__(self, schema: Any, text: str) -> None:
        self._schema = schema
        # The target of such a reference depends on the path to it, so it cannot be cached.
        self._is_dynamic = any(mark in text for mark in ('"$dynamicRef"', '"$recursiveRef"', '"$ref": "http'))
        self._has_references = any(f'"{keyword}"' in text for keyword in _REFERENCES)
        if self._has_references:
            _ = self.root  # an identifier in it may be none, and what resolves is imported where schemas are compiled

    @cached_property
    def root(self) -> SchemaNode:
        """Return the root node. Raises the exceptions of `referencing` for an invalid identifier."""
        dialect = select_dialect(self._schema, None)
        return SchemaNode(
            self._schema, self._create_resolver(dialect.specification) if self._has_references else None, dialect
        )

    def _create_resolver(self, specification: Any) -> Any:
        from jsonschema_specifications import REGISTRY  # pyright: ignore[reportMissingTypeStubs]

        registry: Any = REGISTRY  # an explicit one: nothing in it fetches
        return registry.resolver_with_root(specification.create_resource(self._schema))

    @cached_property
    def _nodes_by_id(self) -> dict[Any, SchemaNode]:
        return {id(self._schema): self.root}

    @cached_property
    def _simple_object_rules(self) -> tuple[frozenset[str], dict[str, tuple[type, ...]]] | None:
        """Required names, and classes by property, where the root is of objects and asks for nothing more."""
        rules = {name: rule for name, rule, _ in self.root.rules or ()}
        if rules.get("type") != "object" or not rules.keys() <= {"type", "properties", "required"}:
            return None
        classes: dict[str, tuple[type, ...]] = {}
        for name, schema in rules.get("properties", {}).items():
            steps.count_steps()
            inner_rules = self.root.dialect.list_rules(schema)
            if inner_rules is None:
                return None
            for keyword, rule, _ in inner_rules:
                if keyword != "type" or not isinstance(rule, str):
                    return None
                classes[name] = _CLASSES_BY_TYPE[rule]
        return frozenset(rules.get("required", ())), classes

    def find_failures(self, value: Any, max_count: int) -> list[ValidationFailure]:
        """Return at most ``max_count`` failures of a value.

        Raises `WorkLimitError`, `UnknownReferenceError`, `RecursionError`.
        """
        if self._simple_object_rules is not None and type(value) is dict:
            required, classes = self._simple_object_rules
            steps.count_steps(1 + (len(classes) >> 3))
            members = cast("dict[str, Any]", value)
            if required <= members.keys():
                for name, expected in classes.items():
                    if name in members and type(members[name]) not in expected:
                        break
                else:
                    return []
        return list(islice(self.create_check(value).iterate_failures(self.root, value, None), max_count))

    def create_check(self, value: Any) -> ValueCheck:
        """Return a check of a value, in whose parts something may be asked too."""
        return ValueCheck(value, {} if self._is_dynamic else self._nodes_by_id, is_dynamic=self._is_dynamic)


class ValueCheck:
    """One check of one value."""

    def __init__(self, value: Any, rules_by_key: dict[Any, SchemaNode], *, is_dynamic: bool) -> None:
        self._value = value
        self._nodes_by_key = rules_by_key
        self._is_dynamic = is_dynamic
        self._steps_left = FREE_STEPS_PER_CHECK
        self._is_extended = False
        self._results: dict[tuple[int, int], bool] = {}
        self._explanation_steps_left = _STEPS_TO_EXPLAIN
        self._is_quiet = False

    def spend_steps(self, count: int = 1) -> None:
        """Account for so many steps. Raises `WorkLimitError` when they are out of proportion to the value."""
        self._steps_left -= count
        if self._steps_left < 0 and not self._is_extended:
            self._is_extended = True
            self._steps_left += STEPS_PER_VALUE * _count_values(self._value)
        if self._steps_left < 0:
            raise WorkLimitError
        steps.count_steps(count)

    def iterate_failures(self, node: SchemaNode, value: Any, path: Path) -> Iterator[ValidationFailure]:
        """Yield what a value breaks of these rules."""
        if value is None and node.is_nullable:
            return
        if node.rules is None:
            yield ValidationFailure.for_false_schema(value, path)
            return
        self.spend_steps(1 + len(node.rules))
        for name, rule, apply in node.rules:
            for failure in apply(self, node, rule, value, path):
                if failure.lacks_rule_name:
                    failure.rule_name, failure.rule = name, rule
                yield failure

    def iterate_subschema_failures(
        self, node: SchemaNode, schema: Any, value: Any, path: Path
    ) -> Iterator[ValidationFailure]:
        """Yield what a value breaks of a schema that stands inside these rules."""
        return self.iterate_failures(self.get_or_create_node(schema, node), value, path)

    def fits_subschema(self, node: SchemaNode, schema: Any, value: Any) -> bool:
        """Tell whether a value fits a schema that stands inside these rules."""
        inner = self.get_or_create_node(schema, node)
        key = (id(inner), id(value))
        remembered = self._results.get(key)
        if remembered is not None:
            self.spend_steps()
            return remembered
        was_quiet, self._is_quiet = self._is_quiet, True
        try:
            fits = next(self.iterate_failures(inner, value, None), None) is None
        finally:
            self._is_quiet = was_quiet
        self._cache_result(key, value, fits=fits)
        return fits

    def iterate_reference_failures(self, node: SchemaNode, value: Any, path: Path) -> Iterator[ValidationFailure]:
        """Yield what a value breaks of rules that a reference led to."""
        key = (id(node), id(value))
        remembered = self._results.get(key)
        if remembered is not None and (remembered or self._is_quiet):
            self.spend_steps()
            if not remembered:
                yield ValidationFailure(value, path)
            return
        is_broken = False
        for failure in self.iterate_failures(node, value, path):
            if not is_broken:
                is_broken = True
                self._cache_result(key, value, fits=False)
            yield failure
        if not is_broken:
            self._cache_result(key, value, fits=True)

    def collect_alternative_failures_if_cheap(
        self, node: SchemaNode, schemas: list[Any], value: Any, path: Path
    ) -> list[tuple[Any, list[ValidationFailure]]]:
        """Return what a value breaks of each alternative, where it fits none, as long as that is cheap to say."""
        explained: list[tuple[Any, list[ValidationFailure]]] = []
        for schema in schemas:
            if self._is_quiet or self._explanation_steps_left < 0:
                return []
            steps_before = self._steps_left
            explained.append(
                (
                    schema,
                    list(
                        islice(
                            self.iterate_subschema_failures(node, schema, value, path), _MAX_FAILURES_PER_ALTERNATIVE
                        )
                    ),
                )
            )
            self._explanation_steps_left -= max(steps_before - self._steps_left, 1)
        return explained

    def matches_pattern(self, pattern: str, text: str) -> bool:
        """Tell whether a text holds what a pattern describes."""
        return matches_pattern(self, pattern, text)

    def get_or_create_node(self, schema: Any, node: SchemaNode) -> SchemaNode:
        """Return the node of a schema inside another one."""
        key: Any = (id(schema), id(node)) if self._is_dynamic else id(schema)
        rules = self._nodes_by_key.get(key)
        if rules is None:
            dialect = select_dialect(schema, node.dialect)
            resolver = node.resolver
            if resolver is not None and is_mapping(schema):
                resolver = resolver.in_subresource(dialect.specification.create_resource(cast("Any", schema)))
            rules = self._nodes_by_key[key] = SchemaNode(schema, resolver, dialect)
        return rules

    def resolve_reference(self, node: SchemaNode, reference: str, *, recursive: bool = False) -> SchemaNode:
        """Return where a reference leads. Raises `UnknownReferenceError`."""
        from referencing.exceptions import Unresolvable
        from referencing.jsonschema import lookup_recursive_ref

        key: Any = ("ref", reference, id(node), recursive)
        if (rules := self._nodes_by_key.get(key)) is not None:
            return rules
        self.spend_steps(10)
        try:
            resolved = lookup_recursive_ref(node.resolver) if recursive else node.resolver.lookup(reference)
        except Unresolvable as error:
            raise UnknownReferenceError(str(error.ref)) from None
        contents: Any = resolved.contents
        if not isinstance(contents, bool | Mapping):
            raise UnknownReferenceError(reference)
        contents_id = id(cast("Any", contents))
        rules = None if self._is_dynamic else self._nodes_by_key.get(contents_id)
        if rules is None:
            rules = SchemaNode(contents, resolved.resolver, select_dialect(contents, node.dialect))
            if not self._is_dynamic:
                self._nodes_by_key[contents_id] = rules
        self._nodes_by_key[key] = rules
        return rules

    def _cache_result(self, key: tuple[int, int], value: Any, *, fits: bool) -> None:
        if isinstance(value, dict | list):  # of scalars equal ones may be one object, and checking them costs nothing
            if len(self._results) >= _MAX_REMEMBERED_RESULTS:
                self._results.clear()
            self._results[key] = fits


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
