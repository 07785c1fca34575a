"""Parameters and annotations of plain functions, as descriptions of tools. Knows `inspect`, not validation."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, cast

from ..data.records import record
from .docstrings import parameter_descriptions, summary

ExecuteKind = Literal["async", "async_iterator", "sync"]

NOTHING: Any = inspect.Parameter.empty

_ASYNC_ITERATORS = (
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncGenerator,
)
_ITERATORS = (collections.abc.Iterator, collections.abc.Iterable, collections.abc.Generator)


@record
class Parameter:
    """One parameter that the guest may give. ``default`` is `NOTHING` when it is required."""

    name: str
    annotation: Any
    default: Any
    description: str


@record
class Parameters:
    """The parameters of a function that the guest may give, all by name."""

    given: tuple[Parameter, ...]
    takes_any_keyword: bool
    context_name: str | None


@record
class FunctionDescription:
    """All that a function's signature and docstring say. ``returns`` is `NOTHING` when they say nothing."""

    name: str
    description: str
    parameters: Parameters
    returns: Any


def describe_function(function: Callable[..., Any], context_type: type) -> FunctionDescription:
    """Read a function. A parameter annotated ``context_type`` is no part of the input.

    Raises `ValueError` for a positional-only parameter or an annotation that cannot be resolved.
    """
    inner = _without_partials(function)
    hints = _type_hints(inner, context_type)
    doc = inspect.getdoc(inner) or ""
    return FunctionDescription(
        name=getattr(inner, "__name__", ""),
        description=summary(doc),
        parameters=_parameters(function, hints, parameter_descriptions(doc), context_type),
        returns=_result_type(hints.get("return", NOTHING)),
    )


def execute_kind(function: Callable[..., Any]) -> ExecuteKind:
    """Tell how a function must be called.

    A plain function that wraps a coroutine function counts as "sync": it may block before it hands out an awaitable.
    """
    inner: Any = _without_partials(function)
    if not (inspect.isroutine(inner) or inspect.isclass(inner)):
        inner = _without_partials(inner.__call__)
    if inspect.iscoroutinefunction(inner):
        return "async"
    return "async_iterator" if inspect.isasyncgenfunction(inner) else "sync"


def count_positional(function: Callable[..., Any]) -> int:
    """Count the positional arguments a callable takes; 2 when it does not say or takes any number."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return 2
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return 2
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in kinds for parameter in parameters)


def _without_partials(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    return function


def _path_of(function: Any) -> str:
    return getattr(function, "__qualname__", repr(function))


def _type_hints(function: Any, context_type: type) -> Mapping[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    names = {context_type.__name__: context_type}
    try:
        return typing.get_type_hints(target, localns=names, include_extras=True)
    except NameError as error:
        raise ValueError(f"an annotation of {_path_of(function)} cannot be resolved: {error}") from None
    except TypeError:
        # Built-in callables carry no annotations.
        return {}


def _parameters(
    function: Callable[..., Any], hints: Mapping[str, Any], docs: Mapping[str, str], context_type: type
) -> Parameters:
    given: list[Parameter] = []
    context_name = None
    rest = None
    takes_any_keyword = False
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_any_keyword = True
        elif parameter.kind is parameter.VAR_POSITIONAL:
            rest = name
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            raise ValueError(f"parameter {name!r} of {function!r} cannot be given by name")
        elif name == "self" and name not in hints:
            raise ValueError(f"{_path_of(function)} is a method without its object: make the tool of a bound method")
        elif _is_context(hints.get(name), context_type):
            context_name = name
        else:
            annotation = hints.get(name, Any)
            given.append(
                Parameter(
                    name=name,
                    annotation=annotation,
                    default=parameter.default,
                    description=_own_description(annotation) or docs.get(name, ""),
                )
            )
    if rest is not None and not takes_any_keyword:  # a wrapper that passes all on has both
        raise ValueError(f"*{rest} of {function!r} cannot be given by name: make it a list, {rest}: list[...]")
    return Parameters(given=tuple(given), takes_any_keyword=takes_any_keyword, context_name=context_name)


def _is_context(annotation: Any, context_type: type) -> bool:
    return annotation is context_type or context_type in typing.get_args(annotation)


def _own_description(annotation: Any) -> str:
    if typing.get_origin(annotation) is not Annotated:
        return ""
    extras = typing.get_args(annotation)[1:]
    texts = [extra if isinstance(extra, str) else getattr(extra, "description", None) for extra in extras]
    return next((text for text in texts if isinstance(text, str)), "")


def _result_type(annotation: Any) -> Any:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in _ASYNC_ITERATORS and arguments:
        return _result_type(arguments[0])
    if origin in (collections.abc.Awaitable, collections.abc.Coroutine) and arguments:
        return _result_type(arguments[-1])
    if origin in _ITERATORS and arguments:
        return list[arguments[0]]
    return NOTHING if annotation is Any else annotation
