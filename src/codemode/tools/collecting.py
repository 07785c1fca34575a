"""Collect a set of tools from `Tool` objects, functions and tool objects of frameworks."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar, cast

from ..data.narrowing import is_mapping, is_non_text_iterable
from ..options.checked_fields import WrongTypeError
from ..trace.failures import log_omitted_tool
from .adapters import ADAPTERS
from .prepared import PreparedTool, prepare_tool
from .server_lists import DUPLICATE_REASON, OmittedEntries, describe_json_type, format_entry_label
from .tool import ImpossibleNameError, Tool, require_callable_name

_ADAPTER_PAGE = "integrations/PLUGIN.md, section 2, The adapter"
# Attributes of tool objects of frameworks: a name, and a description or a schema.
_NAME_ATTRIBUTES = ("name", "tool_name")
_DESCRIPTION_ATTRIBUTES = (
    *("description", "desc", "inputs", "args_schema", "input_schema", "inputSchema", "parameters", "schema"),
    *("json_schema", "params_json_schema", "tool_spec", "metadata"),
)
_VARIADIC = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def collect_tools(tools: Mapping[str, Any] | Iterable[Any]) -> dict[str, PreparedTool]:
    """Collect and prepare tools; see `collect_unprepared_tools`."""
    return {name: prepare_tool(tool) for name, tool in collect_unprepared_tools(tools).items()}


def collect_unprepared_tools(
    tools: Mapping[str, Any] | Iterable[Any],
    check: Callable[[Any], str] = require_callable_name,
    left_out: OmittedEntries | None = None,
) -> dict[str, Tool]:
    """Collect tools from `Tool` objects, functions and tool objects of frameworks; a mapping's keys are their names.

    ``check`` returns a valid name or raises. Raises `ValueError` for an impossible or repeated name, and for an object
    that is not a tool. A framework's tool whose name no program could call is left out with a warning. ``left_out``
    collects all tools that cannot be used.
    """
    if left_out is not None:
        return _collect_usable_tools(tools, check, left_out)
    if is_mapping(tools):
        checked_items = [(check(name), value) for name, value in tools.items()]
        return {name: _convert_to_tool(value, name) for name, value in checked_items}
    if not is_non_text_iterable(tools):
        raise WrongTypeError(f"tools must be a mapping or an iterable of tools, got {type(tools).__name__}")
    collected: dict[str, Tool] = {}
    for value in tools:
        try:
            tool = _convert_to_tool(value, None)
            check(tool.name)
        except ImpossibleNameError as error:
            if isinstance(value, Tool) or _is_function(value):
                raise
            log_omitted_tool(error)
            continue
        if tool.name in collected:
            raise ValueError(f"two tools are called {tool.name!r}; name them with a mapping")
        collected[tool.name] = tool
    return collected


def _collect_usable_tools(
    tools: Mapping[str, Any] | Iterable[Any], check: Callable[[Any], str], left_out: OmittedEntries
) -> dict[str, Tool]:
    """Collect the tools that can be used. Raises `ValueError` for what is no collection."""
    if not is_mapping(tools) and not is_non_text_iterable(tools):
        raise WrongTypeError(f"tools must be a mapping or an iterable of tools, got {type(tools).__name__}")
    items = tools.items() if is_mapping(tools) else ((None, value) for value in tools)
    collected: dict[str, Tool] = {}
    for position, (name, value) in enumerate(items, 1):
        try:
            tool = _convert_to_tool(value, None if name is None else check(name))
            check(tool.name)
        except Exception as error:  # noqa: BLE001 - one that is no tool costs the others nothing
            reason = (
                "its name is empty"
                if isinstance(error, ImpossibleNameError)
                else f"{describe_json_type(value)}, not a tool"
            )
            left_out.add_entry(reason, format_entry_label(value if name is None else {"name": name}, position))
            if value is not None and not isinstance(error, ImpossibleNameError):
                log_omitted_tool(error)
            continue
        if tool.name in collected:
            left_out.add_entry(DUPLICATE_REASON, format_entry_label(tool, position))
        else:
            collected[tool.name] = tool
    return collected


def _is_function(value: Any) -> bool:
    return inspect.isroutine(value) or isinstance(value, functools.partial)


def _convert_to_tool(value: Any, name: str | None) -> Tool:
    if isinstance(value, Tool):
        return value.with_name(name or value.name)
    if _is_function(value):
        return Tool.from_function(cast("Callable[..., Any]", value), name=name)
    converted = ADAPTERS.convert_to_tool(value)
    if converted is not None:
        if not isinstance(converted, Tool):  # pyright: ignore[reportUnnecessaryIsInstance] - a plugin's word
            raise WrongTypeError(
                f"an adapter returned {type(converted).__name__} instead of a Tool for {_get_type_name(value)}"
            )
        return converted.with_name(name or converted.name)
    if callable(value) and not inspect.isclass(value):
        refuse_framework_tool_without_adapter(value)
        return Tool.from_function(value, name=name)
    raise WrongTypeError(
        f"Expected a Tool, a function or a tool object of a framework with an installed plugin;"
        f" got {_get_type_name(value)}.{_format_load_failures()}"
        f" To write an adapter for another framework: {_ADAPTER_PAGE}"
    )


def _format_load_failures() -> str:
    return f" Plugins that failed to load: {'; '.join(ADAPTERS.load_failures)}." if ADAPTERS.load_failures else ""


class _HasName(Protocol):
    @property
    def name(self) -> Any: ...


NamedT = TypeVar("NamedT", bound=_HasName)


def select_tools_with_callable_names(
    tools: Iterable[NamedT], check: Callable[[str], str] = require_callable_name
) -> list[NamedT]:
    """Return a framework's tools without those that no program could call, which are logged.

    ``check`` raises `ImpossibleNameError` for such a name. Raises `ValueError` for two tools with the same name.
    """
    found: dict[str, NamedT] = {}
    for tool in tools:
        if tool.name in found:
            raise ValueError(f"two tools are called {tool.name!r}")
        try:
            found[check(tool.name)] = tool
        except ImpossibleNameError as error:
            log_omitted_tool(error)
    return list(found.values())


def refuse_framework_tool_without_adapter(value: Any) -> None:
    """Refuse a callable object that describes itself as a tool and takes any arguments.

    Its ``__call__`` does not describe the tool's input. Raises `ValueError`; functions and callable objects with their
    own parameters are accepted.
    """
    if _is_function(value) or inspect.isclass(value) or not _looks_like_framework_tool(value):
        return
    raise WrongTypeError(
        f"{_get_type_name(value)} is a tool object of a framework that has no adapter here. Give a function that calls"
        f" it, or a codemode.Tool with its name, schema and function; or write an adapter: {_ADAPTER_PAGE}."
        f"{_format_load_failures()}"
    )


def _looks_like_framework_tool(value: Any) -> bool:
    try:
        metadata = getattr(value, "metadata", None)
        is_named = any(
            isinstance(getattr(owner, name, None), str) for owner in (value, metadata) for name in _NAME_ATTRIBUTES
        )
        has_description = any(getattr(value, name, None) is not None for name in _DESCRIPTION_ATTRIBUTES)
        kinds = {owner.kind for owner in inspect.signature(value).parameters.values()}
    except Exception:  # noqa: BLE001 - a stranger's properties may do anything when they are looked at
        return False
    return is_named and has_description and not kinds.isdisjoint(_VARIADIC)


def _get_type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
