"""Word what pydantic says of a value: of a union what the branch says that was meant, at the place in the value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..data.narrowing import is_mapping, is_sequence
from .compiled import MAX_PROBLEMS, Problem, clip, path_text, unique

if TYPE_CHECKING:
    from pydantic import ValidationError

Part = str | int
_MAX_LISTED_ERRORS = 1000
_OF_A_CHOICE = ("literal_error", "enum")
_ABSENT = ("missing", "extra_forbidden")
_SHOULD_BE = "Input should be "


class _Error(NamedTuple):
    """One error of pydantic's: what is left of its place, of which ``steps`` were taken, and the value there."""

    kind: str
    message: str
    rest: tuple[Part, ...]
    steps: tuple[Part, ...]
    value: Any


def type_problems(error: ValidationError, value: Any, fields: Callable[[], frozenset[str]]) -> list[Problem]:
    """Return what a value breaks of its type. ``fields`` gives the keys of all fields: other parts name branches."""
    if error.error_count() > _MAX_LISTED_ERRORS:
        # A guest can cause half a million of them, and pydantic cannot list only the first.
        return [{"path": "", "message": f"does not fit in {error.error_count()} places"}]
    found = error.errors(include_url=False, include_context=False, include_input=False)
    told = _meant([_Error(one["type"], one["msg"], one["loc"], (), value) for one in found], fields)
    return unique({"path": path_text(one.steps), "message": clip(one.message)} for one in told)[:MAX_PROBLEMS]


def _meant(errors: Iterable[_Error], fields: Callable[[], frozenset[str]]) -> list[_Error]:
    """Return the errors at their places in the value, those of one branch for each union."""
    told: list[_Error] = []
    unions: dict[tuple[Part, ...], dict[Part, list[_Error]]] = {}
    for error in errors:
        at = _walked(error, fields)
        if not at.rest:
            told.append(at)
            continue
        label, inside = at.rest[0], at._replace(rest=at.rest[1:])
        if at.steps not in unions:
            unions[at.steps] = {}
            told.append(at)  # which stands for all of them
        unions[at.steps].setdefault(label, []).append(inside)
    return [
        one for each in told for one in ([each] if not each.rest else _of_union([*unions[each.steps].values()], fields))
    ]


def _walked(error: _Error, fields: Callable[[], frozenset[str]]) -> _Error:
    """Return an error after the steps that lead to a part of the value; what is left begins with a branch."""
    value, steps, rest = error.value, error.steps, error.rest
    while rest:
        part = rest[0]
        is_known, inner = _inside(value, part)
        is_absent = len(rest) == 1 and error.kind in _ABSENT
        if not (is_known or is_absent or isinstance(part, int) or part == "[key]" or part in fields()):
            break
        value, steps, rest = inner, (*steps, part), rest[1:]
    return error._replace(value=value, steps=steps, rest=rest)


def _inside(value: Any, part: Part) -> tuple[bool, Any]:
    if is_sequence(value) and isinstance(part, int):
        return part < len(value), value[part] if part < len(value) else None
    held: Mapping[Any, Any] = value if is_mapping(value) else getattr(value, "__dict__", {})
    return part in held, held.get(part)


def _of_union(branches: list[list[_Error]], fields: Callable[[], frozenset[str]]) -> list[_Error]:
    rows = [_meant(branch, fields) for branch in branches]
    if len(rows) == 1:
        return rows[0]
    place = branches[0][0].steps
    distances = [_distance(row, place) for row in rows]
    likely = [row for row, distance in zip(rows, distances, strict=True) if distance[0] == min(distances)[0]]
    unknown_tags = set[tuple[Part, ...]].intersection(*(_wrong_tags(row, place) for row in likely))
    if unknown_tags and len(likely) > 1:
        tag = min(unknown_tags, key=str)
        return [_together([one for row in likely for one in row if one.steps == tag])]
    nearest = [row for row, distance in zip(rows, distances, strict=True) if distance == min(distances)]
    first = [row[0] for row in nearest]
    if len(nearest) > 1 and len({one.steps for one in first}) == 1 and all(len(row) == 1 for row in nearest):
        return [_together(first)]
    return [one for row in nearest for one in row]


def _distance(errors: list[_Error], place: tuple[Part, ...]) -> tuple[int, ...]:
    """Return how far a value is from a branch: another kind of value, another tag, then how much is wrong."""
    own = [one for one in errors if one.steps == place]
    if any(one.kind.endswith(("_type", "_parsing")) or one.kind in ("none_required", *_OF_A_CHOICE) for one in own):
        return (1,)
    missing = sum(one.kind in _ABSENT for one in errors)
    depth = -max(len(one.steps) for one in errors)
    return (0, len(_wrong_tags(errors, place)), len(own), missing, len(errors), depth)


def _wrong_tags(errors: list[_Error], place: tuple[Part, ...]) -> set[tuple[Part, ...]]:
    inside = len(place) + 1
    return {one.steps for one in errors if one.kind in _OF_A_CHOICE and len(one.steps) == inside}


def _together(errors: list[_Error]) -> _Error:
    """Return one error for what several branches expect at one place."""
    messages = [*dict.fromkeys(one.message for one in errors)]
    return errors[0]._replace(
        message=" or ".join([messages[0], *(one.removeprefix(_SHOULD_BE) for one in messages[1:])])
    )
