"""Compiles Python types and function parameters to validators; words pydantic's problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from ..cached_property import cached_property
from ..data.json_values import decode_json, encode_canonical_json, encode_json
from ..data.narrowing import is_mapping, is_sequence
from ..data.rich_values import from_tagged_json, is_rich, sort_set_items, to_tagged_json
from ..host.steps import WorkLimitError
from .compiled import (
    MAX_PROBLEMS,
    TOO_COMPLEX_PROBLEM,
    Conversion,
    JsonSchema,
    SchemaMismatchError,
    SchemaProblem,
    ValidatedInput,
    clip_message,
    copy_json,
    deduplicate_problems,
    format_path,
)
from .lenient_outputs import LenientOutputReader
from .patterns import to_validator_build_error
from .type_guards import RefusePattern, StepLimitedValidator, raise_pattern_refused
from .type_pieces import PieceSerializer, are_equal
from .type_traits import (
    buffer_iterators,
    collect_field_keys,
    find_keys_with_hidden_values,
    has_excluded_fields,
    has_varying_defaults,
    may_have_custom_conversions,
    may_hold_iterators,
    may_hold_sets,
    rewind_iterators,
)

if TYPE_CHECKING:
    from pydantic import ValidationError


Part = str | int
_MAX_LISTED_ERRORS = 1000
_CHOICE_ERRORS = ("literal_error", "enum")
_PRESENCE_ERRORS = ("missing", "extra_forbidden")
_INPUT_SHOULD_BE = "Input should be "


class _LocatedError(NamedTuple):
    """One error of pydantic's: what is left of its place, of which ``steps`` were taken, and the value there."""

    kind: str
    message: str
    rest: tuple[Part, ...]
    steps: tuple[Part, ...]
    value: Any


def describe_type_problems(
    error: ValidationError, value: Any, fields: Callable[[], frozenset[str]]
) -> list[SchemaProblem]:
    """Return the problems of a value that does not fit its type.

    ``fields`` gives the keys of all fields: other parts name branches.
    """
    if error.error_count() > _MAX_LISTED_ERRORS:
        # A guest can cause half a million of them, and pydantic cannot list only the first.
        return [{"path": "", "message": f"does not fit in {error.error_count()} places"}]
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    likely_errors = _select_likely_errors(
        [_LocatedError(item["type"], item["msg"], item["loc"], (), value) for item in errors], fields
    )
    return deduplicate_problems(
        {"path": format_path(item.steps), "message": clip_message(item.message)} for item in likely_errors
    )[:MAX_PROBLEMS]


def _select_likely_errors(errors: Iterable[_LocatedError], fields: Callable[[], frozenset[str]]) -> list[_LocatedError]:
    """Return the errors at their places in the value, those of one branch for each union."""
    located: list[_LocatedError] = []
    unions: dict[tuple[Part, ...], dict[Part, list[_LocatedError]]] = {}
    for error in errors:
        located_error = _locate_error(error, fields)
        if not located_error.rest:
            located.append(located_error)
            continue
        label, inside = located_error.rest[0], located_error._replace(rest=located_error.rest[1:])
        if located_error.steps not in unions:
            unions[located_error.steps] = {}
            located.append(located_error)  # which stands for all of them
        unions[located_error.steps].setdefault(label, []).append(inside)
    return [
        error_of_branch
        for entry in located
        for error_of_branch in (
            [entry] if not entry.rest else _select_union_errors([*unions[entry.steps].values()], fields)
        )
    ]


def _locate_error(error: _LocatedError, fields: Callable[[], frozenset[str]]) -> _LocatedError:
    """Return an error after the steps that lead to a part of the value; what is left begins with a branch."""
    value, steps, rest = error.value, error.steps, error.rest
    while rest:
        part = rest[0]
        is_known, child = _find_part(value, part)
        is_absent = len(rest) == 1 and error.kind in _PRESENCE_ERRORS
        if not (is_known or is_absent or isinstance(part, int) or part == "[key]" or part in fields()):
            break
        value, steps, rest = child, (*steps, part), rest[1:]
    return error._replace(value=value, steps=steps, rest=rest)


def _find_part(value: Any, part: Part) -> tuple[bool, Any]:
    if is_sequence(value) and isinstance(part, int):
        return part < len(value), value[part] if part < len(value) else None
    members: Mapping[Any, Any] = value if is_mapping(value) else getattr(value, "__dict__", {})
    return part in members, members.get(part)


def _select_union_errors(
    branches: list[list[_LocatedError]], fields: Callable[[], frozenset[str]]
) -> list[_LocatedError]:
    rows = [_select_likely_errors(branch, fields) for branch in branches]
    if len(rows) == 1:
        return rows[0]
    place = branches[0][0].steps
    distances = [_compute_branch_distance(row, place) for row in rows]
    likely = [row for row, distance in zip(rows, distances, strict=True) if distance[0] == min(distances)[0]]
    unmatched_tags = set[tuple[Part, ...]].intersection(*(_find_wrong_tag_paths(row, place) for row in likely))
    if unmatched_tags and len(likely) > 1:
        tag = min(unmatched_tags, key=str)
        return [_combine_errors([item for row in likely for item in row if item.steps == tag])]
    nearest = [row for row, distance in zip(rows, distances, strict=True) if distance == min(distances)]
    first = [row[0] for row in nearest]
    if len(nearest) > 1 and len({item.steps for item in first}) == 1 and all(len(row) == 1 for row in nearest):
        return [_combine_errors(first)]
    return [item for row in nearest for item in row]


def _compute_branch_distance(errors: list[_LocatedError], place: tuple[Part, ...]) -> tuple[int, ...]:
    """Return how far a value is from a branch: another kind of value, another tag, then how much is wrong."""
    own = [error for error in errors if error.steps == place]
    if any(
        error.kind.endswith(("_type", "_parsing")) or error.kind in ("none_required", *_CHOICE_ERRORS) for error in own
    ):
        return (1,)
    missing = sum(error.kind in _PRESENCE_ERRORS for error in errors)
    depth = -max(len(error.steps) for error in errors)
    return (0, len(_find_wrong_tag_paths(errors, place)), len(own), missing, len(errors), depth)


def _find_wrong_tag_paths(errors: list[_LocatedError], place: tuple[Part, ...]) -> set[tuple[Part, ...]]:
    inside = len(place) + 1
    return {error.steps for error in errors if error.kind in _CHOICE_ERRORS and len(error.steps) == inside}


def _combine_errors(errors: list[_LocatedError]) -> _LocatedError:
    """Return one error for what several branches expect at one place."""
    messages = [*dict.fromkeys(error.message for error in errors)]
    return errors[0]._replace(
        message=" or ".join([messages[0], *(error.removeprefix(_INPUT_SHOULD_BE) for error in messages[1:])])
    )


class TypeSchema:
    """Any type a pydantic ``TypeAdapter`` takes, or such an adapter.

    Where values are rich, what it is given and shows is tagged JSON.
    """

    takes_tags = True

    def __init__(
        self, python_type: Any, mode: Literal["input", "output"], refuse: RefusePattern = raise_pattern_refused
    ) -> None:
        from pydantic import TypeAdapter, ValidationError
        from pydantic.errors import PydanticUserError
        from pydantic_core import SchemaError

        self._validation_error = ValidationError  # an import in a function costs each call a microsecond
        try:
            is_adapter = isinstance(python_type, TypeAdapter)
            adapter = cast("Any", python_type if is_adapter else TypeAdapter(python_type))
            self.json_schema: JsonSchema = adapter.json_schema(
                mode="validation" if mode == "input" else "serialization",
                schema_generator=_create_schema_generator_class(),
            )
            # The adapter's own methods would only hand on, in Python.
            self._validator = StepLimitedValidator(adapter, refuse)
            self._serializer = PieceSerializer(adapter)
            self._refuse = refuse
            self._core_schema: Any = adapter.core_schema
        except SchemaError as error:
            raise to_validator_build_error(error) from error
        except (PydanticUserError, NameError, TypeError, AttributeError, SyntaxError) as error:
            raise ValueError(f"not a type that pydantic can describe: {error}") from error

    def validate_input(self, value: Any) -> ValidatedInput:
        """Check, coerce, fill defaults; the value is an instance of the type."""
        instance = self.create_instance(value)
        return ValidatedInput(instance, lambda: self.to_displayed_json(instance, value))

    @property
    def is_nondeterministic(self) -> bool:
        """True when one input may give two values."""
        return has_varying_defaults(self._core_schema)

    @cached_property
    def conversion(self) -> Conversion:
        """The handling of other scalars and names."""
        return "unknown" if may_have_custom_conversions(self._core_schema) else "pydantic"

    @cached_property
    def _keys_with_hidden_values(self) -> frozenset[str] | None:
        return find_keys_with_hidden_values(self._core_schema)

    def validate_output(self, value: Any, what: str) -> Any:  # noqa: ARG002 - the other kind needs the name
        """Check and serialise, by alias."""
        try:
            instance = self._validator.validate(value)
        except self._validation_error as error:
            raise SchemaMismatchError(self._list_problems(error, value)) from None
        except WorkLimitError:
            raise SchemaMismatchError([TOO_COMPLEX_PROBLEM]) from None
        if is_rich.get():
            return self._serializer.to_python_values(instance, round_trip=False)
        return self._serializer.to_plain_json(instance, round_trip=False)

    def read_leniently(self, value: Any) -> tuple[Any, list[SchemaProblem]]:
        """Return an output that misses the type, without the fields that it excludes, and where its code fails."""
        return self._lenient_reader.read(value)

    def drop_excluded_fields(self, value: Any) -> Any:
        """Return plain JSON without the fields that the type excludes."""
        return self._lenient_reader.drop_excluded_fields(value)

    @cached_property
    def excludes_fields(self) -> bool:
        """True when the type has fields that are no part of its JSON."""
        return has_excluded_fields(self._core_schema)

    @cached_property
    def _lenient_reader(self) -> LenientOutputReader:
        return LenientOutputReader(self._core_schema, self._refuse)

    def create_instance(self, value: Any) -> Any:
        """Return the instance that plain JSON stands for. Raises `SchemaMismatchError`."""
        if is_rich.get():
            value = _decode_tagged_json(value)
        try:
            return self._buffer_iterators(self._validator.validate(value))
        except self._validation_error as error:
            validator = self._validator.json_retry_validator
            if validator is None:
                raise SchemaMismatchError(self._list_problems(error, value)) from None
        except WorkLimitError:
            raise SchemaMismatchError([TOO_COMPLEX_PROBLEM]) from None
        try:
            # Strict types take a date or a tuple only when told that the input is JSON.
            return self._buffer_iterators(validator.validate_json(encode_json(value, what="The input")))
        except self._validation_error as error:
            raise SchemaMismatchError(self._list_problems(error, value)) from None
        except WorkLimitError:
            raise SchemaMismatchError([TOO_COMPLEX_PROBLEM]) from None

    def _list_problems(self, error: ValidationError, value: Any) -> list[SchemaProblem]:
        return describe_type_problems(error, value, lambda: self._field_keys)

    @cached_property
    def _field_keys(self) -> frozenset[str]:
        return collect_field_keys(self._core_schema)

    def to_displayed_json(self, instance: Any, value: Any) -> Any:
        """Return plain JSON that stands for an instance: its own form if that tells all, else with what was given."""
        try:
            instance_json = self._to_adapter_json(instance)
            # A secret, a hidden field or a one-way serialiser would change the value. The guest's own input does not
            # change.
            open_form = self._restore_hidden_fields(instance_json, value)
            encode_canonical_json(open_form)  # raises for NaN and infinities, such as a default of math.inf
            if self._validates_to_instance(open_form, instance) or self._changes_when_validated_again(open_form):
                return open_form
        except Exception:  # noqa: BLE001 - serialisers are the tool author's code
            return copy_json(value)
        if isinstance(instance_json, dict) and isinstance(value, dict):
            completed = cast("dict[str, Any]", {**instance_json, **value})
            if self._validates_to_instance(completed, instance):
                return copy_json(completed)
        return copy_json(value)

    @cached_property
    def _may_hold_iterators(self) -> bool:
        return may_hold_iterators(self._core_schema)

    @cached_property
    def _may_hold_sets(self) -> bool:
        return may_hold_sets(self._core_schema)

    def _buffer_iterators(self, instance: Any) -> Any:
        return buffer_iterators(instance) if self._may_hold_iterators else instance

    def _to_adapter_json(self, instance: Any) -> Any:
        try:
            if is_rich.get():
                tagged = to_tagged_json(self._serializer.to_python_values(instance, round_trip=True))
                return decode_json(encode_json(tagged, what="an input"))
            plain = self._serializer.to_plain_json(instance, round_trip=True)
            if not self._may_hold_sets:
                return plain
            if self._may_hold_iterators:
                rewind_iterators(instance)
            return _sort_sets(plain, self._serializer.to_python_values(instance, round_trip=True))
        finally:
            if self._may_hold_iterators:
                rewind_iterators(instance)

    def _restore_hidden_fields(self, instance_json: Any, value: Any) -> Any:
        """Return an own form with what was given in place of the fields that hide something."""
        keys = self._keys_with_hidden_values
        if not keys or not isinstance(value, dict) or not isinstance(instance_json, dict):
            return instance_json
        visible = {key: item for key, item in cast("dict[str, Any]", instance_json).items() if key not in keys}
        return {**visible, **copy_json({key: value[key] for key in cast("dict[str, Any]", value) if key in keys})}

    def _changes_when_validated_again(self, shown: Any) -> bool:
        """Return True when validators make something else of what they have made: cents of cents, or nothing at all."""
        if self._keys_with_hidden_values is None:
            return False
        try:
            return not are_equal(
                self._restore_hidden_fields(self._to_adapter_json(self.create_instance(shown)), shown), shown
            )
        except Exception:  # noqa: BLE001 - as below
            return True

    def _validates_to_instance(self, json_value: Any, instance: Any) -> bool:
        try:
            return are_equal(self.create_instance(json_value), instance)
        except Exception:  # noqa: BLE001 - validators are the tool author's code
            return False


def _sort_sets(plain: Any, value: Any) -> Any:
    """Return the plain JSON of a value with the items of each set in an order that all processes agree on."""
    if isinstance(plain, list):
        items = cast("list[Any]", plain)
        if isinstance(value, set | frozenset):
            return sort_set_items(items)
        if isinstance(value, list | tuple) and len(items) == len(parts := cast("list[Any]", value)):
            return [_sort_sets(item, part) for item, part in zip(items, parts, strict=True)]
    elif isinstance(plain, dict) and isinstance(value, dict):
        members, values = cast("dict[str, Any]", plain), cast("dict[Any, Any]", value).values()
        if len(members) == len(values):
            return {key: _sort_sets(item, part) for (key, item), part in zip(members.items(), values, strict=True)}
    return cast("Any", plain)


def _decode_tagged_json(value: Any) -> Any:
    try:
        return from_tagged_json(value)
    except ValueError as error:
        raise SchemaMismatchError([{"path": "", "message": f"holds {error}"}]) from None


@cache
def _create_schema_generator_class() -> Any:
    from pydantic.json_schema import GenerateJsonSchema

    class CompactJsonSchemaGenerator(GenerateJsonSchema):
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

    return CompactJsonSchemaGenerator
