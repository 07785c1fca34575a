"""Hold the tools of CodeCall: index, visibility, and changes between versions."""

from __future__ import annotations

import copy
import inspect
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ...cached_property import cached_property
from ...data.json_shape import estimate_json_length
from ...data.json_values import CachedJsonObject, count_utf8_bytes, encode_json
from ...data.narrowing import is_array, mapping_or_empty
from ...errors import CodeModeToolError
from ...host.forks import create_fork_safe_lock, register_fork_reset
from ...options.checked_fields import WrongTypeError
from ...source.rules import list_requested_definition_names
from ...tools.catalog import MAX_NAME_CHARACTERS, Catalog, answer_catalog_query
from ...tools.collecting import collect_unprepared_tools
from ...tools.prepared import PreparedTool, compile_tools_and_log_missing_outputs, prepare_tool
from ...tools.search.tool_search import ToolSearch
from ...tools.tool import Tool
from .names import has_confusable_prefix, looks_like_meta_tool, reject_confusable_names
from .options import CodeCallOptions, SearchOptions
from .registered_tool import RegisteredTool, ToolInfo, build_registered_tool

if TYPE_CHECKING:
    from ...data.program_facts import ProgramFacts


# A name outside the index gets the same error as an unregistered name.

MAX_DEFINITIONS_BYTES = 64 * 1024
MAX_NAMED_DEFINITIONS_CHARACTERS = 1 << 20
_LARGE_CHARACTERS = 1 << 14
_DEFINITION_READERS = frozenset({"getTool", "globalThis"})


class CodeCallCatalog:
    """The tools that a run can call. ``allowed`` None means all in the index; ``whole`` is the unrestricted catalog."""

    paths_named_like_javascript_members: tuple[str, ...] = ()  # scripts name tools with strings
    shared_tools = None

    def __init__(
        self,
        index: Catalog[PreparedTool],
        definition: Callable[[str], dict[str, Any]],
        allowed: frozenset[str] | None = None,
        whole: CodeCallCatalog | None = None,
    ) -> None:
        self._index = index
        self._definition = definition
        self._allowed = allowed
        self._whole = self if whole is None else whole

    def __len__(self) -> int:
        return len(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self._index and (self._allowed is None or name in self._allowed)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self) -> tuple[str, ...]:
        """All tool names, in registration order."""
        return self._names

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(name for name in self._index if self._allowed is None or name in self._allowed)

    @property
    def may_wait_for_person(self) -> bool:
        """True if a call of some tool in the index can wait for a person."""
        return self._index.may_wait_for_person

    def get(self, name: str) -> PreparedTool | None:
        """Return the tool of exactly this name."""
        return self._index.get(name) if self._allowed is None or name in self._allowed else None

    def tool_not_found_error(self, name: str) -> CodeModeToolError:
        """Return the error for a name without a tool; names that resemble meta-tools have their own error."""
        shown = name[:MAX_NAME_CHARACTERS]
        if looks_like_meta_tool(name):
            return _create_tool_error(f"{shown!r} is a meta-tool; scripts cannot call it.", shown, "self_reference")
        if name in self._index:
            return _create_tool_error(f"Tool {shown!r} may not be called here.", shown, "access_denied")
        from ...data.similar_names import format_suggestion

        similar = [candidate for candidate in self._index.find_nearest_names(name) if candidate in self]
        return _create_tool_error(
            f"There is no tool named {shown!r}.{format_suggestion(similar)}", shown, "unknown_tool"
        )

    def search(self, query: str, limit: int = 10) -> list[dict[str, str]]:
        """Return the matches of a query, as `Catalog.search` does."""
        return [found for found in self._index.search(query, limit) if found["name"] in self]

    def describe(self, name: str) -> str:
        """Return the declaration of one tool as TypeScript. Raises `CodeModeToolError`."""
        if name not in self:
            raise self.tool_not_found_error(name)
        return self._index.describe(name)

    def answer_query(self, name: str, argument: Any) -> Any:
        """Return the answer to a program that searches tools or asks about one."""
        return answer_catalog_query(self, name, argument)

    def find_program_error(self, facts: ProgramFacts | None) -> None:
        """Return None: the profile checks scripts."""

    def prepare_for_program(self, facts: ProgramFacts | None, invocation_data: Mapping[str, Any] | None) -> None:
        """Return None: the index needs no preparation."""

    def check_resumed_program(self, invocation_data: Mapping[str, Any] | None, names: Iterable[str]) -> None:
        """Accept any tools: the host is responsible for them."""

    def for_invocation(self, invocation_data: Mapping[str, Any] | None) -> CodeCallCatalog:
        """Return the tools that an invocation with this data can see and call."""
        allowed = mapping_or_empty(invocation_data).get("allowedTools")
        if not is_array(allowed):
            return self
        return CodeCallCatalog(self._index, self._definition, frozenset(map(str, allowed)), self._whole)

    def build_invocation_data(self, facts: ProgramFacts | None) -> dict[str, Any]:
        """Return the tool definitions for ``getTool`` in a program, and the namespaces that it uses."""
        used = mapping_or_empty(mapping_or_empty(facts).get("names"))
        namespaces = [namespace for namespace in self._whole.namespaces if namespace in used]
        definitions: dict[str, Any] | None = self._all_definitions_if_small if _DEFINITION_READERS & used.keys() else {}
        are_all = definitions is not None
        if definitions is None:
            definitions = self._get_definitions_within_size_limit(list_requested_definition_names(facts))
        return {"definitions": definitions, "all": are_all, "namespaces": namespaces}

    def _get_definitions_within_size_limit(self, names: list[str]) -> dict[str, Any]:
        """Return the definitions of these names within the size limit; None for a name without a tool."""
        definitions: dict[str, Any] = {}
        remaining = MAX_NAMED_DEFINITIONS_CHARACTERS
        for name in names:
            tool = self.get(name)
            if tool is None:
                definitions[name] = None
                continue
            size = _measure_definition(tool, remaining + 1)
            if size <= remaining:
                remaining -= size
                definitions[name] = self._definition(name)
        return definitions

    @cached_property
    def _all_definitions_if_small(self) -> CachedJsonObject | None:
        """All definitions if they are small together, else None."""
        definitions = CachedJsonObject()
        remaining = MAX_DEFINITIONS_BYTES
        for name in self._names:
            tool = self._index.get(name)
            if (
                tool is None
                or estimate_json_length((tool.input_json_schema, tool.output_json_schema), 2 * remaining)
                >= 2 * remaining
            ):
                return None  # too large, known without encoding it
            definitions[name] = self._definition(name)
            remaining -= len(name) + count_utf8_bytes(encode_json(definitions[name], what="a definition"))
            if remaining < 0:
                return None
        return definitions

    @cached_property
    def namespaces(self) -> tuple[str, ...]:
        """The parts before the first dot of tool names that can name a variable.

        Includes namespaces of tools outside ``allowed``: calls through them are refused as ``callTool`` refuses them.
        """
        parts = (name.partition(".") for name in self._index)
        return tuple(
            dict.fromkeys(
                namespace for namespace, dot, method in parts if dot and method and _is_valid_variable_name(namespace)
            )
        )


def _is_valid_variable_name(name: str) -> bool:
    return name.replace("$", "_").isidentifier()


def _measure_definition(tool: PreparedTool, max_size: int) -> int:
    """Return the size of a definition, at most ``max_size``; check large ones off the event loop."""
    parts = (tool.description, tool.input_json_schema, tool.output_json_schema)
    size = estimate_json_length(parts, min(max_size, _LARGE_CHARACTERS))
    return size if size < _LARGE_CHARACTERS else estimate_json_length(parts, max_size)


def _create_tool_error(message: str, name: str, reason: str) -> CodeModeToolError:
    error = CodeModeToolError(message, details={"tool_name": name})
    error.reason = reason
    return error


class RegisteredToolSet:
    """An immutable set of tools with their options. Thread-safe.

    ``catalog`` holds the indexed tools; other tools cannot be found, described or called.
    """

    def __init__(
        self, registered: Mapping[str, RegisteredTool], search: SearchOptions, previous: RegisteredToolSet | None
    ) -> None:
        self.version = 1 if previous is None else previous.version + 1
        tools = ((name, tool.tool) for name, tool in registered.items() if tool.is_indexed)
        # Unchanged tools are not indexed or embedded again.
        self.search: ToolSearch = (
            _create_tool_search(tools, search) if previous is None else previous.search.with_tools(tools)
        )
        self.registered = dict(registered)
        self.indexed = {name: tool for name, tool in self.registered.items() if tool.is_indexed}
        index = Catalog({name: tool.tool for name, tool in self.indexed.items()})
        self.catalog = CodeCallCatalog(index, self._get_tool_definition)

    @classmethod
    def from_tools(
        cls,
        tools: Mapping[str, Any] | Iterable[Any],
        options: CodeCallOptions,
        old_set: RegisteredToolSet | None = None,
    ) -> RegisteredToolSet:
        """Collect tools. Raises `ValueError` for an invalid tool and for a filter that raises."""
        collected = collect_unprepared_tools(tools)
        reject_confusable_names(collected)
        compile_tools_and_log_missing_outputs((name, prepare_tool(tool)) for name, tool in collected.items())
        previous = {} if old_set is None else old_set.registered
        registered = {
            name: _apply_visibility_options(_reuse_or_build_registered_tool(tool, previous.get(name)), options)
            for name, tool in collected.items()
        }
        return cls(registered, options.search, old_set)

    def _get_tool_definition(self, name: str) -> dict[str, Any]:
        return self.indexed[name].definition

    def iter_listed_tools(self) -> Iterator[Tool]:
        """Return the tools that clients see next to the meta-tools, in registration order."""
        return (tool.original for tool in self.registered.values() if tool.is_listed)


def _create_tool_search(tools: Iterable[tuple[str, PreparedTool]], options: SearchOptions) -> ToolSearch:
    return ToolSearch(tools, embed=options.embed, strategy=options.strategy)


def _reuse_or_build_registered_tool(tool: Tool, previous: RegisteredTool | None) -> RegisteredTool:
    return previous if previous is not None and previous.original is tool else build_registered_tool(tool)


def _apply_visibility_options(tool: RegisteredTool, options: CodeCallOptions) -> RegisteredTool:
    if _is_excluded(tool.info, options):
        return tool.with_visibility(is_indexed=False, is_listed=True)
    is_enabled = tool.metadata.enabled_in_code_call
    if is_enabled is None:
        is_enabled = options.mode == "codecall_only"
    is_indexed = is_enabled and not has_confusable_prefix(tool.info.name, options.reserved_prefixes)
    return tool.with_visibility(is_indexed=is_indexed, is_listed=tool.metadata.visible_in_list_tools is True)


def _is_excluded(info: ToolInfo, options: CodeCallOptions) -> bool:
    """Return True for a tool outside CodeCall, which stays listed as usual."""
    if options.include_tools is not None and not _passes_filter(options.include_tools, info):
        return True
    return options.app_ids is not None and info.app_id not in options.app_ids


def _passes_filter(include_tools: Any, info: ToolInfo) -> bool:
    try:
        answer = include_tools(info)
    except Exception as error:
        raise ValueError(f"include_tools raised {type(error).__name__} for tool {info.name!r}: {error}") from error
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise ValueError("include_tools must be a sync function; it returned an awaitable")
    return bool(answer)


Listener: TypeAlias = Callable[[dict[str, Any]], Any]
_log = logging.getLogger("codemode.tools")


class ToolChangeListeners:
    """Functions to notify of tool changes, in order. Exceptions that they raise are logged."""

    def __init__(self) -> None:
        self._lock = create_fork_safe_lock()
        self._listeners: dict[object, Listener] = {}
        self._pending_changes: deque[dict[str, Any]] = deque()
        self._is_notifying = False
        register_fork_reset(self)

    def after_fork(self) -> None:
        """Reset in a forked child, whose parent may have had a thread notifying; pending changes are sent next."""
        self._is_notifying = False

    def add(self, listener: Listener) -> Callable[[], None]:
        """Add a listener; return a function that removes it. Raises `ValueError` for an object that is not callable."""
        if not callable(listener):
            raise WrongTypeError(f"a listener must be a function, got {listener!r}")
        key = object()
        with self._lock:
            self._listeners[key] = listener

        def remove_listener() -> None:
            with self._lock:
                self._listeners.pop(key, None)

        return remove_listener

    def enqueue_change(self, change: dict[str, Any]) -> None:
        """Store a change for the next notification."""
        self._pending_changes.append(change)

    def notify_all(self) -> None:
        """Send a copy of each pending change to all listeners, unless another caller is doing so already."""
        with self._lock:
            if self._is_notifying:
                return
            self._is_notifying = True
        try:
            while (pending := self._take_pending_change_or_stop()) is not None:
                change, listeners = pending
                for listener in listeners:
                    _notify_listener(listener, copy.deepcopy(change))
        except BaseException:  # such as KeyboardInterrupt: notify again at the next change
            self._is_notifying = False
            raise

    def _take_pending_change_or_stop(self) -> tuple[dict[str, Any], list[Listener]] | None:
        with self._lock:
            if self._pending_changes:
                return self._pending_changes.popleft(), list(self._listeners.values())
            self._is_notifying = False  # the caller that enqueues the next change notifies
            return None


def _notify_listener(listener: Listener, change: dict[str, Any]) -> None:
    try:
        listener(change)
    except Exception:  # noqa: BLE001 - host code must not undo the change
        _log.exception("a listener for tool changes failed")


def diff_visible_tools_or_none(previous: RegisteredToolSet, current: RegisteredToolSet) -> dict[str, Any] | None:
    """Return the visible names that were added, removed or changed, or None without a difference."""
    old, new = _select_visible_tools(previous), _select_visible_tools(current)
    change: dict[str, Any] = {
        "version": current.version,
        "added": [name for name in new if name not in old],
        "removed": [name for name in old if name not in new],
        "changed": [name for name in new if name in old and _is_changed_for_clients(old[name], new[name])],
    }
    return change if change["added"] or change["removed"] or change["changed"] else None


def _select_visible_tools(tools: RegisteredToolSet) -> dict[str, RegisteredTool]:
    return {name: tool for name, tool in tools.registered.items() if tool.is_indexed or tool.is_listed}


def _is_changed_for_clients(tool: RegisteredTool, other: RegisteredTool) -> bool:
    return tool is not other and _to_client_view(tool) != _to_client_view(other)


def _to_client_view(registered: RegisteredTool) -> tuple[Any, ...]:
    tool = registered.tool
    schemas = tool.input_json_schema, tool.output_json_schema
    return (
        *schemas,
        tool.input_examples,
        registered.metadata,
        registered.info,
        registered.is_indexed,
        registered.is_listed,
    )
