"""Find the alternative of a union that a value was meant for, to say what it breaks of that one."""

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
    """The keywords ``anyOf`` and ``oneOf``: of both, a value may fit several, as the declared union says."""
    branch = _named_by_discriminator(check, node, rule, value, path)
    if isinstance(branch, Failure):
        yield branch
    elif branch is not None:
        yield from check.inside(node, branch, value, path)
    elif not any(check.fits(node, schema, value) for schema in rule):
        yield from _explained(check, node, rule, value, path)


def _named_by_discriminator(check: Checking, node: Rules, branches: list[Any], value: Any, path: Path) -> Any:
    """Return the branch that OpenAPI's ``discriminator`` names, a failure for an unknown name, None without either."""
    said = mapping_or_empty(node.schema.get("discriminator"))
    name = said.get("propertyName")
    if not isinstance(name, str) or not is_object(value) or not isinstance(tag := value.get(name), str):
        return None
    mapping = mapping_or_empty(said.get("mapping"))
    check.take(1 + ((len(branches) + len(mapping)) >> 3))
    references = [one.get("$ref") if is_mapping(one) else None for one in branches]
    by_name = {_last_part(one): at for at, one in enumerate(references) if isinstance(one, str)}
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
    """What a value breaks of one alternative. The smaller the ``distance``, the likelier that it was meant.

    ``wrong_tags`` are properties for which the alternative names other values.
    """

    failures: list[Failure]
    distance: tuple[int, ...]
    wrong_tags: Mapping[str, list[Any]]


_OF_ANOTHER_KIND = (1,)


def _explained(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    rows = [_branch(check, node, *found, value) for found in check.explain(node, rule, value, path) if found[1]]
    least = min((row.distance for row in rows), default=None)
    likely = [row for row in rows if (row.distance == _OF_ANOTHER_KIND) == (least == _OF_ANOTHER_KIND)]
    if (unknown := _unknown_tag(likely)) is not None:
        choices = [choice for row in likely for choice in row.wrong_tags[unknown]]
        yield Failure.of_rule("enum", _once(choices), value[unknown], (path, unknown))
        return
    nearest = [row.failures for row in likely if row.distance == least]
    if any(failures[0].rule_name in _CHOICES and failures[0].value is value for failures in nearest):
        nearest = [row.failures for row in rows]  # a list of choices is no use with some of them alone
    if len(nearest) == 1:
        yield from nearest[0]
    else:
        yield _of_them_all(nearest, value, path)


def _unknown_tag(rows: list[_Branch]) -> str | None:
    """Return a property whose value no alternative names, though all of them name some."""
    if len(rows) < 2:
        return None
    return next((key for key in rows[0].wrong_tags if all(key in row.wrong_tags for row in rows)), None)


def _branch(check: Checking, node: Rules, schema: Any, failures: list[Failure], value: Any) -> _Branch:
    own = [one for one in failures if one.value is value]
    if any(_is_of_another_kind(one) for one in own):
        return _Branch(failures, _OF_ANOTHER_KIND, {})
    tags, known = _tags_of(check, check.rules_of(schema, node), value)
    given = {key: choices for key, choices in tags.items() if key in value}
    wrong = {key: choices for key, choices in given.items() if not _is_among(value[key], choices)}
    # A constant tells more than one of a list, and a tag more than how many mistakes there are.
    constants = [len(choices) == 1 for choices in wrong.values()]
    fitting = [len(choices) == 1 for key, choices in given.items() if key not in wrong]
    by_tags = (sum(constants), len(constants), -sum(fitting), -len(fitting))
    is_no_choice = any(one.rule_name in _CHOICES for one in own)
    in_common = -sum(key in known for key in islice(value, MAX_CHOICES)) if known else 0
    depth = -max(len(one.path) for one in failures)
    return _Branch(failures, (0, *by_tags, is_no_choice, in_common, len(own), len(failures), depth), wrong)


def _is_of_another_kind(failure: Failure) -> bool:
    if failure.rule_name in _CHOICES:
        kind = json_type(failure.value)
        return all(json_type(choice) != kind for choice in _choices_of(failure))
    return failure.rule_name in ("type", None)


def _choices_of(failure: Failure) -> list[Any]:
    return list_or_empty(failure.rule)[:MAX_CHOICES] if failure.rule_name == "enum" else [failure.rule]


def _tags_of(check: Checking, rules: Rules, value: Any) -> tuple[dict[str, list[Any]], dict[Any, Any]]:
    """Return the properties for which a schema of objects names values, and all its properties."""
    tags: dict[str, list[Any]] = {}
    properties: dict[Any, Any] = {}
    pending = [rules] if is_object(value) else []
    for _ in range(_MAX_FOLLOWED):
        if not pending:
            break
        one = pending.pop()
        schema = mapping_or_empty(one.schema)
        found = mapping_or_empty(schema.get("properties"))
        check.take(1 + (len(found) >> 3))
        properties |= found
        for name, inner in islice(found.items(), _MAX_TAGS):
            said = mapping_or_empty(inner)
            if "const" in said:
                tags[name] = [said["const"]]
            elif is_array(said.get("enum")):
                tags[name] = said["enum"][:MAX_CHOICES]
        if isinstance(schema.get("$ref"), str):
            pending.append(check.resolve(one, schema["$ref"]))
        pending += [check.rules_of(inner, one) for inner in list_or_empty(schema.get("allOf"))[:_MAX_FOLLOWED]]
    return tags, properties


def _is_among(value: Any, choices: list[Any]) -> bool:
    return any(isinstance(value, bool) == isinstance(one, bool) and value == one for one in choices)


def _of_them_all(branches: list[list[Failure]], value: Any, path: Path) -> Failure:
    """Return one failure for alternatives that are equally near: what they expect at one place, in a list."""
    first = [failures[0] for failures in branches]
    place = first[0] if first else None
    if place is None or any(one.value is not place.value for one in first):
        return Failure(value, path)
    kinds = {one.rule_name for one in first}
    if kinds == {"required"}:
        names = [name for name in place.rule if name not in place.value and all(name in one.rule for one in first)]
        return Failure.of_rule("required", names, place.value, place.place) if names else Failure(value, path)
    types = _once([name for one in first if one.rule_name == "type" for name in _names(one.rule)])
    choices = _once([choice for one in first if one.rule_name in _CHOICES for choice in _choices_of(one)])
    if not (types or choices) or not kinds.issubset(("type", None, *_CHOICES)):
        return Failure(value, path)
    if choices and types == ["null"]:
        types, choices = [], [*choices, None]
    if not types:
        return Failure.of_rule("enum", choices, place.value, place.place)
    return Failure.of_rule("type", [*types, choices] if choices else types, place.value, place.place)


def _names(rule: Any) -> Iterable[Any]:
    return [rule] if isinstance(rule, str) else list_or_empty(rule)


def _once(items: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for item in items:
        if not _is_among(item, kept):
            kept.append(item)
    return kept[:MAX_CHOICES]
