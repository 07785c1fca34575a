"""Find the branch of a union that a value was meant for and report its failures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from ...data.narrowing import is_array, is_mapping, is_object, list_or_empty, mapping_or_empty
from ..compiled import json_type
from .checking import Checking, Rules
from .failures import Failure, Path

MAX_CHOICES = 64
_MAX_FOLLOWED = 8
_MAX_TAGS = 64
_CHOICES = ("const", "enum")


def any_of(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    """Check ``anyOf`` and ``oneOf``. A value may match several branches of both, like the declared union type."""
    branch = _branch_of_discriminator(check, node, rule, value, path)
    if isinstance(branch, Failure):
        yield branch
    elif branch is not None:
        yield from check.inside(node, branch, value, path)
    elif not any(check.fits(node, schema, value) for schema in rule):
        yield from _nearest_failures(check, node, rule, value, path)


def _branch_of_discriminator(check: Checking, node: Rules, branches: list[Any], value: Any, path: Path) -> Any:
    """Return the branch that OpenAPI's ``discriminator`` names, a failure for an unknown tag, or None."""
    discriminator = mapping_or_empty(node.schema.get("discriminator"))
    name = discriminator.get("propertyName")
    if not isinstance(name, str) or not is_object(value) or not isinstance(tag := value.get(name), str):
        return None
    mapping = mapping_or_empty(discriminator.get("mapping"))
    check.take(1 + ((len(branches) + len(mapping)) >> 3))
    references = [branch.get("$ref") if is_mapping(branch) else None for branch in branches]
    by_name = {_last_part(target): at for at, target in enumerate(references) if isinstance(target, str)}
    named = by_name | {
        key: by_name[last]
        for key, target in mapping.items()
        if isinstance(key, str) and isinstance(target, str) and (last := _last_part(target)) in by_name
    }
    if tag in named:
        return branches[named[tag]]
    if len(set(named.values())) < len(branches):
        return None
    known = [key for key in mapping if key in named] or list(named)
    return Failure.of_rule("enum", known, tag, (path, name))


def _last_part(reference: str) -> str:
    return reference.rpartition("/")[2]


class _Branch(NamedTuple):
    """The failures of a value in one branch. The branch with the smallest ``distance`` was likely meant.

    ``wrong_tags`` maps properties whose value is not among the branch's ``const`` or ``enum`` to those.
    """

    failures: list[Failure]
    distance: tuple[int, ...]
    wrong_tags: Mapping[str, list[Any]]


_OTHER_TYPE = (1,)


def _nearest_failures(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    rows = [_branch(check, node, *found, value) for found in check.explain(node, rule, value, path) if found[1]]
    least = min((row.distance for row in rows), default=None)
    likely = [row for row in rows if (row.distance == _OTHER_TYPE) == (least == _OTHER_TYPE)]
    if (unknown := _unknown_tag(likely)) is not None:
        choices = [choice for row in likely for choice in row.wrong_tags[unknown]]
        yield Failure.of_rule("enum", _unique(choices), value[unknown], (path, unknown))
        return
    nearest = [row.failures for row in likely if row.distance == least]
    if any(failures[0].rule_name in _CHOICES and failures[0].value is value for failures in nearest):
        nearest = [row.failures for row in rows]  # list the choices of all branches
    if len(nearest) == 1:
        yield from nearest[0]
    else:
        yield _combined_failure(nearest, value, path)


def _unknown_tag(rows: list[_Branch]) -> str | None:
    """Return a property that is a tag in all branches and whose value fits none of them."""
    if len(rows) < 2:
        return None
    return next((key for key in rows[0].wrong_tags if all(key in row.wrong_tags for row in rows)), None)


def _branch(check: Checking, node: Rules, schema: Any, failures: list[Failure], value: Any) -> _Branch:
    top_level = [failure for failure in failures if failure.value is value]
    if any(_is_other_type(failure) for failure in top_level):
        return _Branch(failures, _OTHER_TYPE, {})
    tags, known = _tags_of(check, check.rules_of(schema, node), value)
    present = {key: choices for key, choices in tags.items() if key in value}
    wrong = {key: choices for key, choices in present.items() if not _is_among(value[key], choices)}
    # A constant identifies a branch better than a list of values, and tags better than the number of failures.
    constants = [len(choices) == 1 for choices in wrong.values()]
    fitting = [len(choices) == 1 for key, choices in present.items() if key not in wrong]
    by_tags = (sum(constants), len(constants), -sum(fitting), -len(fitting))
    is_no_choice = any(failure.rule_name in _CHOICES for failure in top_level)
    in_common = -sum(key in known for key in islice(value, MAX_CHOICES)) if known else 0
    depth = -max(len(failure.path) for failure in failures)
    return _Branch(failures, (0, *by_tags, is_no_choice, in_common, len(top_level), len(failures), depth), wrong)


def _is_other_type(failure: Failure) -> bool:
    if failure.rule_name in _CHOICES:
        kind = json_type(failure.value)
        return all(json_type(choice) != kind for choice in _choices_of(failure))
    return failure.rule_name in ("type", None)


def _choices_of(failure: Failure) -> list[Any]:
    return list_or_empty(failure.rule)[:MAX_CHOICES] if failure.rule_name == "enum" else [failure.rule]


def _tags_of(check: Checking, rules: Rules, value: Any) -> tuple[dict[str, list[Any]], dict[Any, Any]]:
    """Return the properties of an object schema that have ``const`` or ``enum``, and all its properties."""
    tags: dict[str, list[Any]] = {}
    properties: dict[Any, Any] = {}
    pending = [rules] if is_object(value) else []
    for _ in range(_MAX_FOLLOWED):
        if not pending:
            break
        node = pending.pop()
        schema = mapping_or_empty(node.schema)
        found = mapping_or_empty(schema.get("properties"))
        check.take(1 + (len(found) >> 3))
        properties |= found
        for name, inner in islice(found.items(), _MAX_TAGS):
            property_schema = mapping_or_empty(inner)
            if "const" in property_schema:
                tags[name] = [property_schema["const"]]
            elif is_array(property_schema.get("enum")):
                tags[name] = property_schema["enum"][:MAX_CHOICES]
        if isinstance(schema.get("$ref"), str):
            pending.append(check.resolve(node, schema["$ref"]))
        pending += [check.rules_of(inner, node) for inner in list_or_empty(schema.get("allOf"))[:_MAX_FOLLOWED]]
    return tags, properties


def _is_among(value: Any, choices: list[Any]) -> bool:
    return any(isinstance(value, bool) == isinstance(choice, bool) and value == choice for choice in choices)


def _combined_failure(branches: list[list[Failure]], value: Any, path: Path) -> Failure:
    """Return one failure for equally near branches that lists what they expect at the same place."""
    first = [failures[0] for failures in branches]
    place = first[0] if first else None
    if place is None or any(failure.value is not place.value for failure in first):
        return Failure(value, path)
    kinds = {failure.rule_name for failure in first}
    if kinds == {"required"}:
        names = [
            name for name in place.rule if name not in place.value and all(name in failure.rule for failure in first)
        ]
        return Failure.of_rule("required", names, place.value, place.place) if names else Failure(value, path)
    types = _unique([name for failure in first if failure.rule_name == "type" for name in _names(failure.rule)])
    choices = _unique([choice for failure in first if failure.rule_name in _CHOICES for choice in _choices_of(failure)])
    if not (types or choices) or not kinds.issubset(("type", None, *_CHOICES)):
        return Failure(value, path)
    if choices and types == ["null"]:
        types, choices = [], [*choices, None]
    if not types:
        return Failure.of_rule("enum", choices, place.value, place.place)
    return Failure.of_rule("type", [*types, choices] if choices else types, place.value, place.place)


def _names(rule: Any) -> Iterable[Any]:
    return [rule] if isinstance(rule, str) else list_or_empty(rule)


def _unique(items: list[Any]) -> list[Any]:
    unique: list[Any] = []
    for item in items:
        if not _is_among(item, unique):
            unique.append(item)
    return unique[:MAX_CHOICES]
