"""Python types and function parameters as validators, and pydantic's problems in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from ..cached_property import cached_property
from ..data.json_values import decode_json, encode_json
from ..data.narrowing import is_mapping, is_sequence
from ..data.rich_values import from_tagged, is_rich, to_tagged
from ..host.steps import TooMuchWork
from .compiled import (
    MAX_PROBLEMS,
    TOO_MUCH,
    Conversion,
    JsonSchema,
    Problem,
    SchemaMismatch,
    ValidatedInput,
    clip,
    copy_json,
    path_text,
    unique,
)
from .lenient_outputs import LenientReader
from .patterns import refusal_of
from .type_guards import GuardedValidator, Refuse, raise_refusal
from .type_pieces import PieceSerializer, is_same
from .type_traits import (
    excludes_fields,
    field_keys,
    hiding_keys,
    may_convert,
    may_give_once,
    read_again,
    rewind,
    varies,
)

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


class TypeSchema:
    """Any type a pydantic ``TypeAdapter`` takes, or such an adapter.

    Where values are rich, what it is given and shows is tagged JSON.
    """

    takes_tags = True

    def __init__(self, python_type: Any, mode: Literal["input", "output"], refuse: Refuse = raise_refusal) -> None:
        from pydantic import TypeAdapter, ValidationError
        from pydantic.errors import PydanticUserError
        from pydantic_core import SchemaError

        self._mismatch = ValidationError  # an import in a function costs each call a microsecond
        try:
            is_adapter = isinstance(python_type, TypeAdapter)
            adapter = cast("Any", python_type if is_adapter else TypeAdapter(python_type))
            self.json_schema: JsonSchema = adapter.json_schema(
                mode="validation" if mode == "input" else "serialization", schema_generator=_schema_generator()
            )
            # The adapter's own methods would only hand on, in Python.
            self._validator = GuardedValidator(adapter, refuse)
            self._serializer = PieceSerializer(adapter)
            self._refuse = refuse
            self._core_schema: Any = adapter.core_schema
        except SchemaError as error:
            raise refusal_of(error) from error
        except (PydanticUserError, NameError, TypeError, AttributeError, SyntaxError) as error:
            raise ValueError(f"not a type that pydantic can describe: {error}") from error

    def validate_input(self, value: Any) -> ValidatedInput:
        """Check, coerce, fill defaults; the value is an instance of the type."""
        instance = self.instance_of(value)
        return ValidatedInput(instance, lambda: self.show(instance, value))

    @property
    def varies(self) -> bool:
        """Whether one input may give two values."""
        return varies(self._core_schema)

    @cached_property
    def conversion(self) -> Conversion:
        """What becomes of other scalars and names."""
        return "unknown" if may_convert(self._core_schema) else "pydantic"

    @cached_property
    def _hiding_keys(self) -> frozenset[str] | None:
        return hiding_keys(self._core_schema)

    def validate_output(self, value: Any, what: str) -> Any:  # noqa: ARG002 - the other kind needs the name
        """Check and serialise, by alias."""
        try:
            instance = self._validator.validate(value)
        except self._mismatch as error:
            raise SchemaMismatch(self._problems(error, value)) from None
        except TooMuchWork:
            raise SchemaMismatch([TOO_MUCH]) from None
        if is_rich.get():
            return self._serializer.to_rich(instance, round_trip=False)
        return self._serializer.to_python(instance, round_trip=False)

    def as_it_came(self, value: Any) -> tuple[Any, list[Problem]]:
        """Return an output that misses the type, without the fields that it excludes, and where its code fails."""
        return self._lenient.read(value)

    def without_excluded(self, value: Any) -> Any:
        """Return plain JSON without the fields that the type excludes."""
        return self._lenient.without_excluded(value)

    @cached_property
    def excludes_fields(self) -> bool:
        """Whether the type has fields that are no part of its JSON."""
        return excludes_fields(self._core_schema)

    @cached_property
    def _lenient(self) -> LenientReader:
        return LenientReader(self._core_schema, self._refuse)

    def instance_of(self, value: Any) -> Any:
        """Return the instance that plain JSON stands for. Raises `SchemaMismatch`."""
        if is_rich.get():
            value = _untagged(value)
        try:
            return self._settled(self._validator.validate(value))
        except self._mismatch as error:
            validator = self._validator.in_json
            if validator is None:
                raise SchemaMismatch(self._problems(error, value)) from None
        except TooMuchWork:
            raise SchemaMismatch([TOO_MUCH]) from None
        try:
            # Strict types take a date or a tuple only when told that the input is JSON.
            return self._settled(validator.validate_json(encode_json(value, what="The input")))
        except self._mismatch as error:
            raise SchemaMismatch(self._problems(error, value)) from None
        except TooMuchWork:
            raise SchemaMismatch([TOO_MUCH]) from None

    def _problems(self, error: ValidationError, value: Any) -> list[Problem]:
        return type_problems(error, value, lambda: self._field_keys)

    @cached_property
    def _field_keys(self) -> frozenset[str]:
        return field_keys(self._core_schema)

    def show(self, instance: Any, given: Any) -> Any:
        """Return plain JSON that stands for an instance: its own form if that tells all, else with what was given."""
        try:
            own = self._own_form(instance)
            # A secret, a hidden field or a one-way serialiser would not come back as it was. What the guest gave does.
            open_form = self._opened(own, given)
            if self._gives(open_form, instance) or self._is_changed_again(open_form):
                return open_form
        except Exception:  # noqa: BLE001 - serialisers are the tool author's code
            return copy_json(given)
        if isinstance(own, dict) and isinstance(given, dict):
            completed = cast("dict[str, Any]", {**own, **given})
            if self._gives(completed, instance):
                return copy_json(completed)
        return copy_json(given)

    @cached_property
    def _may_give_once(self) -> bool:
        return may_give_once(self._core_schema)

    def _settled(self, instance: Any) -> Any:
        return read_again(instance) if self._may_give_once else instance

    def _own_form(self, instance: Any) -> Any:
        try:
            if is_rich.get():
                own = to_tagged(self._serializer.to_rich(instance, round_trip=True))
                return decode_json(encode_json(own, what="an input"))
            return self._serializer.to_python(instance, round_trip=True)
        finally:
            if self._may_give_once:
                rewind(instance)

    def _opened(self, own: Any, given: Any) -> Any:
        """Return an own form with what was given in place of the fields that hide something."""
        keys = self._hiding_keys
        if not keys or not isinstance(given, dict) or not isinstance(own, dict):
            return own
        told = {key: item for key, item in cast("dict[str, Any]", own).items() if key not in keys}
        return {**told, **copy_json({key: given[key] for key in cast("dict[str, Any]", given) if key in keys})}

    def _is_changed_again(self, shown: Any) -> bool:
        """Return True when validators make something else of what they have made: cents of cents, or nothing at all."""
        if self._hiding_keys is None:
            return False
        try:
            return not is_same(self._opened(self._own_form(self.instance_of(shown)), shown), shown)
        except Exception:  # noqa: BLE001 - as below
            return True

    def _gives(self, plain: Any, instance: Any) -> bool:
        try:
            return is_same(self.instance_of(plain), instance)
        except Exception:  # noqa: BLE001 - validators are the tool author's code
            return False


def _untagged(value: Any) -> Any:
    try:
        return from_tagged(value)
    except ValueError as error:
        raise SchemaMismatch([{"path": "", "message": f"holds {error}"}]) from None


@cache
def _schema_generator() -> Any:
    from pydantic.json_schema import GenerateJsonSchema

    class WithoutNoise(GenerateJsonSchema):
        # A default that is no JSON is left out; titles made from field names say nothing new.
        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as pydantic has it

        def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
            return False

        def field_is_required(self, field: Any, total: bool) -> bool:
            # Pydantic writes fields with a default too.
            if self.mode == "serialization" and field["type"] in ("model-field", "dataclass-field"):
                return not (field.get("serialization_exclude") or "serialization_exclude_if" in field)
            return super().field_is_required(field, total)

        def default_schema(self, schema: Any) -> dict[str, Any]:
            is_output = self.mode == "serialization"
            return self.generate_inner(schema["schema"]) if is_output else super().default_schema(schema)

    return WithoutNoise
