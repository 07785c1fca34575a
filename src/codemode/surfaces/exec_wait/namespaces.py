"""Plugin namespaces: objects in programs whose functions call tools of the catalog."""

from __future__ import annotations

import inspect
import json
import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ...data.json_values import encode_json
from ...data.narrowing import is_mapping, is_sequence, list_or_empty
from ...errors import CodeModeError, CodeModeToolError
from ...host.cancellation import FAILURES
from ...host.forks import create_fork_safe_lock, register_fork_reset
from ...schemas.compiled import ValidatedInput
from ...tools.prepared import PreparedTool, create_tool_failed_error
from ...trace.failures import log_failure
from .options import InvalidConfigError
from .sources import CLIENT, INHERITED_NAMES, CatalogEntry

KEYWORDS = frozenset(
    """
    arguments async await break case catch class const continue debugger default delete do else enum eval export extends
    false finally for function if implements import in instanceof interface let new null of package private protected
    public return static super switch this throw true try typeof undefined var void while with yield
    """.split()  # noqa: SIM905 - a long list of words is easier to read as text
)
RESERVED_PREFIXES = ("__openclaw", "__codemode")
OWN_GLOBALS = frozenset(
    {
        *("tools", "ALL_TOOLS", "MCP", "API", "namespaces", "console", "text", "json", "yield_control", "content"),
        *("setTimeout", "clearTimeout", "fetch", "state"),
    }
)
ENGINE_GLOBALS = frozenset(
    """
    AggregateError AsyncDisposableStack DisposableStack SuppressedError atob btoa structuredClone
    Array ArrayBuffer AsyncFunction Atomics BigInt BigInt64Array BigUint64Array Boolean DOMException
    DataView Date Error EvalError FinalizationRegistry Float16Array Float32Array Float64Array Function Infinity
    Int16Array Int32Array Int8Array InternalError Iterator JSON Map Math NaN Number Object Promise Proxy RangeError
    ReferenceError Reflect RegExp Set SharedArrayBuffer String Symbol SyntaxError TypeError URIError Uint16Array
    Uint32Array Uint8Array Uint8ClampedArray WeakMap WeakRef WeakSet decodeURI decodeURIComponent encodeURI
    encodeURIComponent escape eval globalThis isFinite isNaN navigator parseFloat parseInt performance
    queueMicrotask undefined unescape
    """.split()  # noqa: SIM905 - easier to read as text
)
RESERVED_GLOBALS = OWN_GLOBALS | ENGINE_GLOBALS


_log = logging.getLogger("codemode.tools")
PATH_SEPARATOR = "."
CALL_PREFIX = "namespace:"
ARGUMENTS_KEY = "namespace arguments"
MAX_SCOPE_NODES = 10_000
MAX_SCOPE_DEPTH = 32
_NAMESPACE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]{0,63}", re.ASCII)
_FORBIDDEN_KEYS = frozenset({"__proto__", "constructor", "prototype", ""})
_CALLED_BY_LANGUAGE = frozenset({"then", "toJSON", "toLocaleString", "toString", "valueOf"})
"""JavaScript calls functions of these names implicitly: `await namespace`, `${namespace}`, JSON.stringify."""


@dataclass(frozen=True)
class NamespaceTool:
    """A tool call in a scope. Create it with `namespace_tool`."""

    name: str
    input_mapper: Callable[..., Any] | None = None


def namespace_tool(name: str, input_mapper: Callable[..., Any] | None = None) -> NamespaceTool:
    """Return a function for a scope that calls the tool of this name.

    ``input_mapper`` takes the program's arguments and returns the tool's input; by default the input is the first
    argument, or ``{}``. It runs on the host, possibly several times per call, and must have no side effects. Its
    exceptions are hidden from the program as those of tools are, except `CodeModeToolError`. Raises
    `InvalidConfigError`.
    """
    if not isinstance(cast("Any", name), str) or not name:
        raise InvalidConfigError(f"namespaces: a tool name must be a non-empty string, got {name!r}")
    if input_mapper is not None and not callable(input_mapper):
        raise InvalidConfigError(f"namespaces: the input_mapper of {name!r} must be a function")
    return NamespaceTool(name, input_mapper)


@dataclass(frozen=True)
class Namespace:
    """A namespace of a plugin. ``create_scope(context)``, sync or async, returns JSON values and `namespace_tool`s.

    ``id`` is unique in a registry and part of the paths of calls; ``global_name`` is the variable in programs. The
    namespace exists only if all ``required_tools`` (original names) are in the catalog with the plugin as owner.
    ``context`` is that of the exec call. ``description`` and ``prompt`` are added to the description of exec;
    ``prompt`` is a text, or a function of the context of ``pair.exec.describe(context)`` (None for
    ``pair.exec.description``). Raises `InvalidConfigError`, a `ValueError`.
    """

    id: str
    global_name: str
    required_tools: tuple[str, ...]
    create_scope: Callable[[Any], Any]
    description: str = ""
    prompt: str | Callable[[Any], str] = ""

    def __post_init__(self) -> None:
        """Check the names. Raises `InvalidConfigError`, a `ValueError`."""
        if not isinstance(cast("Any", self.id), str) or _NAMESPACE_ID.fullmatch(self.id) is None:
            raise InvalidConfigError(f"namespaces: an id must be 1 to 64 letters, digits, _ or -, got {self.id!r}")
        tools = cast("Any", self.required_tools)
        if isinstance(tools, str) or not isinstance(tools, Iterable):
            raise InvalidConfigError(f"namespaces.{self.id}.required_tools must be a list of names")
        tool_names = tuple(cast("Iterable[Any]", tools))
        if not tool_names or not all(isinstance(tool_name, str) and tool_name for tool_name in tool_names):
            raise InvalidConfigError(f"namespaces.{self.id}.required_tools must be a non-empty list of names")
        object.__setattr__(self, "required_tools", tool_names)
        _require_valid_global_name(self.id, self.global_name)
        if not callable(self.create_scope):
            raise InvalidConfigError(f"namespaces.{self.id}.create_scope must be a function")


def _require_valid_global_name(namespace_id: str, name: Any) -> None:
    path = f"namespaces.{namespace_id}.global_name"
    if not isinstance(name, str) or _IDENTIFIER.fullmatch(name) is None or name in KEYWORDS:
        raise InvalidConfigError(f"{path} must be a JavaScript identifier, got {name!r}")
    if name in RESERVED_GLOBALS or name in INHERITED_NAMES or name.startswith(RESERVED_PREFIXES):
        raise InvalidConfigError(f"{path}: {name!r} is reserved in programs")


class NamespaceRegistry:
    """The namespaces of an application's plugins, passed to `create_exec_wait_tools`. Thread-safe."""

    def __init__(self) -> None:
        self._registered: dict[str, tuple[str, Namespace]] = {}
        self._lock = create_fork_safe_lock()
        self.version = 0
        register_fork_reset(self)

    def after_fork(self) -> None:
        """Raise the version in a forked child: a thread of the parent may have been changing the registry."""
        self.version += 1

    def register(self, plugin_id: str, namespace: Namespace) -> None:
        """Add a namespace of a plugin. Raises `InvalidConfigError` for a duplicate id or global name."""
        if not isinstance(cast("Any", plugin_id), str) or not plugin_id:
            raise InvalidConfigError(f"namespaces: a plugin id must be a non-empty string, got {plugin_id!r}")
        if not isinstance(cast("Any", namespace), Namespace):
            raise InvalidConfigError(f"namespaces: expected a Namespace, got {namespace!r}")
        with self._lock:
            for _, other in self._registered.values():
                if other.id == namespace.id or other.global_name == namespace.global_name:
                    raise InvalidConfigError(
                        f"namespaces: the id {namespace.id!r} or the name {namespace.global_name!r} is taken"
                    )
            self._registered[namespace.id] = (plugin_id, namespace)
            self.version += 1

    def clear(self, plugin_id: str) -> None:
        """Remove the namespaces of a plugin."""
        with self._lock:
            self._registered = {
                key: registered for key, registered in self._registered.items() if registered[0] != plugin_id
            }
            self.version += 1

    def clear_all(self) -> None:
        """Remove all namespaces."""
        with self._lock:
            self._registered = {}
            self.version += 1

    def list_visible(self, entries: Iterable[CatalogEntry]) -> list[VisibleNamespace]:
        """Return the namespaces whose required tools exist with their plugin as owner, by global name."""
        # Tools of clients never count as a plugin's, even if they name it as their owner.
        entries_by_name = {(entry.owner, entry.name): entry for entry in entries if entry.source != CLIENT}
        with self._lock:
            registered = [*self._registered.values()]
        found = [
            VisibleNamespace(namespace, {name: entries_by_name[plugin, name] for name in namespace.required_tools})
            for plugin, namespace in registered
            if all((plugin, name) in entries_by_name for name in namespace.required_tools)
        ]
        return sorted(found, key=lambda entry: entry.namespace.global_name)


@dataclass(frozen=True)
class VisibleNamespace:
    """A namespace with the catalog entries of its tools, by name."""

    namespace: Namespace
    tools: Mapping[str, CatalogEntry]

    def describe(self, context: Any = None) -> str:
        """Return the description of the namespace; a failing prompt is left out."""
        namespace = self.namespace
        try:
            prompt = namespace.prompt if isinstance(namespace.prompt, str) else str(namespace.prompt(context))
        except Exception as error:  # noqa: BLE001 - plugin code; the tools work without a prompt
            log_failure(_log, "the prompt of namespace %r failed", (namespace.id,), error)
            prompt = ""
        heading = f"- `{namespace.global_name}`"
        return "\n".join(
            [f"{heading}: {namespace.description}" if namespace.description else heading, *([prompt] if prompt else [])]
        )


class ScopedTool(PreparedTool):
    """A catalog tool as a function of a namespace; its input is mapped from the program's arguments."""

    input_varies = True  # pyright: ignore[reportAssignmentType] - a mapper is host code

    def __init__(self, entry: CatalogEntry, mapper: Callable[..., Any] | None) -> None:
        super().__init__(entry.original)
        self.id = entry.id
        self._mapper = mapper

    def validate_input(self, value: Any) -> ValidatedInput:
        """Map the arguments and validate the result. An input that a person saw or edited is already mapped."""
        if not is_mapping(value) or set(value) != {ARGUMENTS_KEY}:
            return super().validate_input(value)
        arguments = list_or_empty(value[ARGUMENTS_KEY])
        if self._mapper is None:
            return super().validate_input(arguments[0] if arguments else {})
        return super().validate_input(self._map_arguments(self._mapper, arguments))

    def _map_arguments(self, mapper: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """Return the mapped arguments as an independent copy of plain JSON."""
        try:
            mapped = mapper(*arguments)
            if inspect.isawaitable(mapped):
                if inspect.iscoroutine(mapped):
                    mapped.close()
                raise TypeError("an input_mapper must not be async")
            return {} if mapped is None else json.loads(encode_json(mapped, what="what an input_mapper returns"))
        except CodeModeToolError:  # its message is for the program
            raise
        except FAILURES as error:
            raise create_tool_failed_error(self.name, error) from error


@dataclass(frozen=True)
class NamespaceScopes:
    """The namespaces of one program: ``text`` is their JSON for the guest, ``tools`` the tools by path."""

    text: str
    tools: Mapping[str, ScopedTool]


async def create_scopes(visible: Iterable[VisibleNamespace], context: Any) -> NamespaceScopes | None:
    """Return the scopes of a program, or None without namespaces. Raises `InvalidConfigError` for an invalid scope."""
    trees: dict[str, Any] = {}
    tools: dict[str, ScopedTool] = {}
    for visible_namespace in visible:
        scope = await _create_scope(visible_namespace.namespace, context)
        if not is_mapping(scope):
            raise InvalidConfigError(
                f"namespaces.{visible_namespace.namespace.id}: a scope must be a mapping, got {type(scope).__name__}"
            )
        trees[visible_namespace.namespace.global_name] = _ScopeEncoder(visible_namespace, tools).encode_value(scope, ())
    if not trees:
        return None
    try:
        return NamespaceScopes(encode_json(trees, what="the namespaces"), tools)
    except CodeModeError as error:
        raise InvalidConfigError(f"namespaces: a scope contains a value that is not JSON: {error.message}") from error


async def _create_scope(namespace: Namespace, context: Any) -> Any:
    try:
        scope = namespace.create_scope(context)
        return await scope if inspect.isawaitable(scope) else scope
    except (Exception, SystemExit) as error:  # the plugin's error is only for the host
        log_failure(_log, "create_scope of namespace %r failed", (namespace.id,), error)
        raise InvalidConfigError(f"namespaces.{namespace.id}: create_scope failed") from error


class _ScopeEncoder:
    """Converts one scope to JSON for the guest and collects its tools by path."""

    def __init__(self, visible: VisibleNamespace, tools: dict[str, ScopedTool]) -> None:
        self._visible = visible
        self._tools = tools
        self._ancestor_ids: list[int] = []
        self._remaining_nodes = MAX_SCOPE_NODES

    def encode_value(self, value: Any, path: tuple[str, ...]) -> dict[str, Any]:
        self._remaining_nodes -= 1
        if self._remaining_nodes < 0 or len(path) > MAX_SCOPE_DEPTH:
            raise self._create_scope_error(
                path, f"more than {MAX_SCOPE_NODES} values, or deeper than {MAX_SCOPE_DEPTH}"
            )
        if isinstance(value, NamespaceTool):
            return self._encode_and_register_call(value, path)
        if is_mapping(value):
            return {
                "members": self._encode_children_without_cycle(
                    value, path, lambda: {key: self._encode_member(child, path, key) for key, child in value.items()}
                )
            }
        if is_sequence(value):
            return {
                "items": self._encode_children_without_cycle(
                    value,
                    path,
                    lambda: [self.encode_value(child, (*path, str(index))) for index, child in enumerate(value)],
                )
            }
        if isinstance(value, float) and not math.isfinite(value):
            raise self._create_scope_error(path, f"{value}, which is not JSON")
        if value is None or isinstance(value, str | bool | int | float):
            return {"value": value}
        problem = "a function other than a namespace_tool" if callable(value) else f"a {type(value).__name__}"
        raise self._create_scope_error(path, problem)

    def _encode_children_without_cycle(
        self, value: Any, path: tuple[str, ...], write_children: Callable[[], Any]
    ) -> Any:
        if id(value) in self._ancestor_ids:
            raise self._create_scope_error(path, "a cycle")
        self._ancestor_ids.append(id(value))
        try:
            return write_children()
        finally:
            self._ancestor_ids.pop()

    def _encode_member(self, value: Any, path: tuple[str, ...], key: Any) -> dict[str, Any]:
        if not isinstance(key, str) or key in _FORBIDDEN_KEYS or PATH_SEPARATOR in key:
            raise self._create_scope_error(path, f"the key {key!r}")
        return self.encode_value(value, (*path, key))

    def _encode_and_register_call(self, mark: NamespaceTool, path: tuple[str, ...]) -> dict[str, Any]:
        if path and path[-1] in _CALLED_BY_LANGUAGE:
            raise self._create_scope_error(
                path, "a call under this name, which JavaScript calls implicitly: choose another name"
            )
        entry = self._visible.tools.get(mark.name)
        if entry is None:
            raise self._create_scope_error(path, f"a call of {mark.name!r}, which is not in required_tools")
        name = f"{CALL_PREFIX}{self._visible.namespace.id}:{PATH_SEPARATOR.join(path)}"
        self._tools[name] = ScopedTool(entry, mark.input_mapper)
        return {"path": name}

    def _create_scope_error(self, path: tuple[str, ...], problem: str) -> InvalidConfigError:
        scope_path = PATH_SEPARATOR.join((self._visible.namespace.id, *path))
        return InvalidConfigError(f"namespaces.{scope_path}: a scope cannot contain {problem}")
