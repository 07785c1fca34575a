"""Read parameters, annotations and docstrings of functions, and build plain validators."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, cast

from ..records import record
from ..schemas.compiled import CompiledSchema, ValidatedInput
from ..schemas.plain_types import NotPlainValueError, PlainSchema, PlainType, find_plain_type

_SPHINX = re.compile(r"^:param\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$")
_GOOGLE_HEADER = re.compile(r"^(?:Args|Arguments|Parameters|Params):$")
_GOOGLE = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_NUMPY_NAMES = re.compile(r"^(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")


def extract_first_paragraph(doc: str) -> str:
    """Return the first paragraph as one line."""
    return " ".join(doc.strip().split("\n\n", 1)[0].split())


def parse_parameter_descriptions(doc: str) -> dict[str, str]:
    """Return parameter descriptions by name from Sphinx, Google or NumPy style; else nothing."""
    lines = doc.expandtabs().splitlines()
    found = {**_parse_numpy_parameters(lines), **_parse_google_parameters(lines), **_parse_sphinx_parameters(lines)}
    return {name: " ".join(text.split()) for name, text in found.items() if text.strip()}


def _count_indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _read_indented_block(lines: list[str], start: int, indent: int) -> list[str]:
    block: list[str] = []
    for line in lines[start:]:
        if line.strip() and _count_indentation(line) <= indent:
            break
        block.append(line)
    return block


def _parse_sphinx_parameters(lines: list[str]) -> dict[str, str]:
    descriptions: dict[str, str] = {}
    for number, line in enumerate(lines):
        if match := _SPHINX.match(line.strip()):
            rest = _read_indented_block(lines, number + 1, _count_indentation(line))
            descriptions[match[1]] = " ".join([match[2], *rest])
    return descriptions


def _parse_google_parameters(lines: list[str]) -> dict[str, str]:
    start = next((n for n, line in enumerate(lines) if _GOOGLE_HEADER.match(line.strip())), None)
    if start is None:
        return {}
    block = _read_indented_block(lines, start + 1, _count_indentation(lines[start]))
    indent = min((_count_indentation(line) for line in block if line.strip()), default=0)
    descriptions: dict[str, str] = {}
    for number, line in enumerate(block):
        if _count_indentation(line) == indent and (match := _GOOGLE.match(line.strip())):
            rest = _read_indented_block(block, number + 1, indent)
            descriptions[match[1]] = " ".join([match[2], *rest])
    return descriptions


def _parse_numpy_parameters(lines: list[str]) -> dict[str, str]:
    start = next((n for n in range(len(lines) - 1) if _is_numpy_header(lines[n], lines[n + 1])), None)
    if start is None:
        return {}
    indent = _count_indentation(lines[start])
    descriptions: dict[str, str] = {}
    for number in range(start + 2, len(lines)):
        line = lines[number]
        if number + 1 < len(lines) and lines[number + 1].strip().startswith("---"):
            break
        if line.strip() and _count_indentation(line) == indent and (match := _NUMPY_NAMES.match(line.strip())):
            text = " ".join(_read_indented_block(lines, number + 1, indent))
            descriptions.update({name.strip().lstrip("*"): text for name in match[1].split(",")})
    return descriptions


def _is_numpy_header(line: str, underline: str) -> bool:
    return line.strip() == "Parameters" and underline.strip().startswith("---")


ExecuteKind = Literal["async", "async_iterator", "sync"]

NO_VALUE: Any = inspect.Parameter.empty

_ASYNC_ITERATORS = (
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncGenerator,
)
_ITERATORS = (collections.abc.Iterator, collections.abc.Iterable, collections.abc.Generator)


@record
class Parameter:
    """A parameter that the guest can pass. ``default`` is `NO_VALUE` if it is required."""

    name: str
    annotation: Any
    default: Any
    description: str


@record
class Parameters:
    """The parameters of a function that the guest can pass, all by name.

    ``extra_annotation`` is the type of other keyword arguments, `NO_VALUE` if the function takes none.
    """

    members: tuple[Parameter, ...]
    extra_annotation: Any
    context_name: str | None


@record
class FunctionDescription:
    """The signature and docstring of a function. ``returns`` is `NO_VALUE` if unknown."""

    name: str
    description: str
    parameters: Parameters
    returns: Any


def describe_function(function: Callable[..., Any], context_type: type) -> FunctionDescription:
    """Read a function. A parameter annotated ``context_type`` is not part of the input.

    Raises `ValueError` for a positional-only parameter or an unresolvable annotation.
    """
    inner = _unwrap_partials(function)
    hints = _get_type_hints(inner, context_type)
    doc = inspect.getdoc(inner) or ""
    return FunctionDescription(
        name=getattr(inner, "__name__", ""),
        description=extract_first_paragraph(doc),
        parameters=_read_parameters(function, hints, parse_parameter_descriptions(doc), context_type),
        returns=_unwrap_result_type(hints.get("return", NO_VALUE)),
    )


def classify_function(function: Callable[..., Any]) -> ExecuteKind:
    """Return how a function must be called.

    A plain function that wraps a coroutine function counts as "sync": it may block before it returns an awaitable.
    """
    inner: Any = _unwrap_partials(function)
    if not (inspect.isroutine(inner) or inspect.isclass(inner)):
        inner = _unwrap_partials(inner.__call__)
    if inspect.iscoroutinefunction(inner):
        return "async"
    return "async_iterator" if inspect.isasyncgenfunction(inner) else "sync"


def count_positional_parameters_or_two(function: Callable[..., Any]) -> int:
    """Count the positional arguments of a callable; 2 if unknown or unlimited."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return 2
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return 2
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in kinds for parameter in parameters)


def _unwrap_partials(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    return function


def _get_qualified_name(function: Any) -> str:
    return getattr(function, "__qualname__", repr(function))


def _get_type_hints(function: Any, context_type: type) -> Mapping[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    names = {context_type.__name__: context_type}
    try:
        return typing.get_type_hints(target, localns=names, include_extras=True)
    except NameError as error:
        raise ValueError(f"an annotation of {_get_qualified_name(function)} cannot be resolved: {error}") from None
    except TypeError:
        # Built-in callables carry no annotations.
        return {}


def _read_parameters(
    function: Callable[..., Any], hints: Mapping[str, Any], docs: Mapping[str, str], context_type: type
) -> Parameters:
    items: list[Parameter] = []
    context_name = None
    variadic_name = None
    extra_annotation: Any = NO_VALUE
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            annotation = hints.get(name, Any)
            extra_annotation = Any if typing.get_origin(annotation) is typing.Unpack else annotation
        elif parameter.kind is parameter.VAR_POSITIONAL:
            variadic_name = name
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            raise ValueError(f"parameter {name!r} of {function!r} cannot be passed by name")
        elif name == "self" and name not in hints:
            raise ValueError(f"{_get_qualified_name(function)} is an unbound method: pass a bound method")
        elif _is_context_annotation(hints.get(name), context_type):
            context_name = name
        else:
            annotation = hints.get(name, Any)
            items.append(
                Parameter(
                    name=name,
                    annotation=annotation,
                    default=parameter.default,
                    description=_get_annotated_description(annotation) or docs.get(name, ""),
                )
            )
    if variadic_name is not None and extra_annotation is NO_VALUE:  # a wrapper that forwards everything has both
        raise ValueError(
            f"*{variadic_name} of {function!r} cannot be passed by name: make it a list, {variadic_name}: list[...]"
        )
    return Parameters(members=tuple(items), extra_annotation=extra_annotation, context_name=context_name)


def _is_context_annotation(annotation: Any, context_type: type) -> bool:
    return annotation is context_type or context_type in typing.get_args(annotation)


def _get_annotated_description(annotation: Any) -> str:
    if typing.get_origin(annotation) is not Annotated:
        return ""
    extras = typing.get_args(annotation)[1:]
    texts = [extra if isinstance(extra, str) else getattr(extra, "description", None) for extra in extras]
    return next((text for text in texts if isinstance(text, str)), "")


def _unwrap_result_type(annotation: Any) -> Any:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in _ASYNC_ITERATORS and arguments:
        return _unwrap_result_type(arguments[0])
    if origin in (collections.abc.Awaitable, collections.abc.Coroutine) and arguments:
        return _unwrap_result_type(arguments[-1])
    if origin in _ITERATORS and arguments:
        return list[arguments[0]]
    return NO_VALUE if annotation is Any else annotation


def create_plain_validator(
    parameters: Parameters, compile_with_pydantic: Callable[[], CompiledSchema]
) -> CompiledSchema | None:
    """Return a validator; None if pydantic has to validate, through ``compile_with_pydantic``."""
    if parameters.extra_annotation is not NO_VALUE:
        return None
    plain_types: dict[str, PlainType] = {}
    for parameter in parameters.members:
        plain = find_plain_type(parameter.annotation)
        if plain is None or not _has_plain_or_no_default(parameter, plain):
            return None
        plain_types[parameter.name] = plain
    return _PlainParametersSchema(parameters.members, plain_types, compile_with_pydantic)


def _has_plain_or_no_default(parameter: Parameter, plain: PlainType) -> bool:
    if parameter.default is NO_VALUE:
        return True
    if isinstance(parameter.default, list | dict):
        return False  # a mutable default: copied for each call
    try:
        plain.validate_and_copy(parameter.default)
    except NotPlainValueError:
        return False
    return True


class _PlainParametersSchema(PlainSchema):
    """A validator whose value is the keyword arguments, as that of `ParametersSchema`."""

    def __init__(
        self,
        parameters: tuple[Parameter, ...],
        plain_types: Mapping[str, PlainType],
        compile_with_pydantic: Callable[[], CompiledSchema],
    ) -> None:
        self._plain_types = plain_types
        self._defaults = {
            parameter.name: parameter.default for parameter in parameters if parameter.default is not NO_VALUE
        }
        super().__init__(PlainType(_create_object_schema(parameters, plain_types), dict), compile_with_pydantic)

    def validate_input(self, value: Any) -> ValidatedInput:
        """Validate; values that are not exactly of their types go to pydantic."""
        try:
            keywords = self._to_keyword_arguments(value)
        except NotPlainValueError:
            return self.pydantic_schema.validate_input(value)
        return ValidatedInput(keywords, lambda: self._to_validated_json(keywords, value))

    def validate_output(self, value: Any, what: str) -> Any:
        """Refuse: parameters describe no output."""
        raise NotImplementedError(what)

    def _to_keyword_arguments(self, value: Any) -> dict[str, Any]:
        if type(value) is not dict or not self._plain_types.keys() >= value.keys():
            raise NotPlainValueError
        keywords: dict[str, Any] = {**self._defaults, **value}
        if len(keywords) < len(self._plain_types):
            raise NotPlainValueError
        copied: dict[str, Any] = {}
        for name, plain in self._plain_types.items():  # hot path: a loop is faster than a comprehension
            copied[name] = plain.validate_and_copy(keywords[name])
        return copied

    def _to_validated_json(self, keywords: dict[str, Any], value: Any) -> Any:
        try:
            return self._to_keyword_arguments(keywords)
        except NotPlainValueError:  # the tool mutated its arguments
            return self.pydantic_schema.validate_input(value).json_value


def _create_object_schema(parameters: tuple[Parameter, ...], plain_types: Mapping[str, PlainType]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for parameter in parameters:
        property_schema = dict(plain_types[parameter.name].json_schema)
        if parameter.description:
            property_schema["description"] = parameter.description
        if parameter.default is not NO_VALUE:
            property_schema["default"] = parameter.default
        properties[parameter.name] = dict(sorted(property_schema.items()))
    required = [parameter.name for parameter in parameters if parameter.default is NO_VALUE]
    schema = {"additionalProperties": False, "properties": properties, "required": required, "type": "object"}
    return schema if required else {key: value for key, value in schema.items() if key != "required"}
