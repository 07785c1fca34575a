"""The CodeCall tools: search, describe, execute and optionally invoke."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from ...cached_property import cached_property
from ...execution.call_context import RICH_VALUES_RULE, CallContext
from ...execution.starting import append_library_description, bind_optional_library_unless_shadowed
from ...host.forks import create_fork_safe_lock
from ...host.sync import run_sync
from ...host.threads import run_in_single_use_thread
from ...stores.durability import StoreLike
from ...tools.context import ToolCallContext
from ...tools.tool import Tool
from ...workers.pool import WorkerPool
from .index import Listener, RegisteredToolSet, ToolChangeListeners, diff_visible_tools_or_none
from .meta_calls import MetaTools
from .names import META_TOOLS, format_meta_tool_name
from .options import CodeCallOptions

if TYPE_CHECKING:
    from ...execution.program_library import ProgramLibrary

_MAX_LISTED_CHARACTERS = 300
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_OBJECT = {"type": "object"}

_SEARCH = """\
Finds tools by what they do. Say in plain words what you need, one task at a time. Returns names, one sentence \
each and a score; read definitions with {describe} before the first call."""
_DESCRIBE = """\
Returns definitions of tools: input and output as JSON Schema, examples of calls. Take names from {search}."""
_EXECUTE = """\
Runs a JavaScript script that calls tools and returns one JSON value. It is the body of an async function: `await` and \
`return` work at the top level. TypeScript annotations are removed, not checked.
- `await callTool(name, input)` calls a tool that {search} found. It throws an Error with `code`, `message` and \
`toolName`; with a third argument `{{ throwOnError: false }}` it returns `{{ success, data, error }}`. \
A tool `ns.method` is `await ns.method(input)` too.
- `getTool(name)` returns name, description, inputSchema and outputSchema, or undefined. `codecallContext` is the \
context. `mcpLog(level, message, metadata)` and `mcpNotify(event, payload)` tell the client.
- Await every call; `Promise.all` runs several at once, at most {in_flight}{beyond}. At most {max_steps} \
calls and {timeout_ms} ms, time in tools {waiting}.
- {loops}
- {console}
- Not available: {banned}, import, export.
- Integers beyond 2^53 are BigInt. Dates and `toLocaleString`: UTC and en-US only, no currency, no Intl.\
{sidecar}{values}
Returns {{ "status": "ok", "result" }}, or status syntax_error, illegal_access, tool_error, runtime_error or timeout \
with `error`: send a better script."""
_INVOKE = """\
Calls one tool without a script, when its whole result is wanted; {execute} is for all else."""
_SIDECAR = """
- A string of a tool's output of {threshold} bytes or more is a reference, typeof "object": length, indices, \
iteration, string methods and JSON.parse work, and it can be returned or passed to a tool as it is. {joins}=== and \
includes compare identity."""
_JOINS_THROW = "`+`, templates and `<` throw: call toString() first. "
_NO_LOOPS = "No loops (for, while, do): use map, filter, reduce and other array methods, or recursion."
_LOOPS = "Loops are allowed."
_CONSOLE = "`console` output is in `logs`."
_NO_CONSOLE = "There is no `console`."


def describe_meta_tool(meta_tool: str, options: CodeCallOptions) -> str:
    """Return the description of a meta-tool with the rules in force."""
    vm, policy = options.vm, options.settings.execution_policy
    banned = dict.fromkeys((*vm.disabled_builtins, *vm.disabled_globals))
    has_console = vm.allow_console and "console" not in banned
    names = {kind: format_meta_tool_name(kind, options.names) for kind in ("search", "describe", "execute")}
    text = {"search": _SEARCH, "describe": _DESCRIBE, "execute": _EXECUTE, "invoke": _INVOKE}[meta_tool]
    sidecar = options.sidecar
    joins = "" if sidecar.allow_composites else _JOINS_THROW
    return text.format(
        sidecar=_SIDECAR.format(threshold=sidecar.extraction_threshold, joins=joins) if sidecar.enabled else "",
        **names,
        values=f"\n{RICH_VALUES_RULE}" if policy.values == "rich" else "",
        max_steps=vm.max_steps,
        in_flight=policy.max_in_flight_bridge_requests,
        beyond="; one more throws"
        if policy.is_set_explicitly("in_flight_limit") and policy.in_flight_limit == "fail"
        else "",
        timeout_ms=vm.timeout_ms,
        waiting="counted"
        if policy.is_set_explicitly("timeout_includes_tools") and policy.timeout_includes_tools
        else "not counted",
        loops=_LOOPS if vm.allow_loops else _NO_LOOPS,
        console=_CONSOLE if has_console else _NO_CONSOLE,
        banned=_join_names([name for name in banned if name != "console"]),
    )


def _join_names(names: list[str]) -> str:
    # The host's list can be of any length.
    text = ", ".join(names)
    return (
        text
        if len(text) <= _MAX_LISTED_CHARACTERS
        else text[:_MAX_LISTED_CHARACTERS].rpartition(",")[0] + ", and others"
    )


def build_input_schema(meta_tool: str, options: CodeCallOptions) -> dict[str, Any]:
    """Return the JSON Schema of a meta-tool's input."""
    if meta_tool == "search":
        return _build_object_schema(
            {
                "query": {**_TEXT, "description": "What the tool should do, in a few words."},
                "topK": {"type": "integer", "description": f"How many at most, 1 to 50; {options.top_k} if not given."},
                "filter": {
                    "type": "object",
                    "properties": {
                        "appIds": _TEXTS,
                        "tags": _TEXTS,
                        "includeOpenApi": {"type": "boolean"},
                        "includeInline": {"type": "boolean"},
                    },
                },
            },
            "query",
        )
    if meta_tool == "describe":
        return _build_object_schema(
            {
                "tools": {**_TEXTS, "description": "Names of tools."},
                "max": {"type": "integer", "description": f"How many at most; {options.max_definitions} if not given."},
            },
            "tools",
        )
    if meta_tool == "execute":
        return _build_object_schema(
            {
                "script": {**_TEXT, "description": "The body of an async function; end it with return."},
                "allowedTools": {**_TEXTS, "description": "Only these may be called."},
                "context": {**_OBJECT, "description": "Read in the script as codecallContext."},
            },
            "script",
        )
    return _build_object_schema(
        {"tool": _TEXT, "input": {"description": "What the tool's inputSchema asks for."}}, "tool"
    )


def _build_object_schema(properties: dict[str, Any], required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [required]}


def build_output_schema(meta_tool: str) -> dict[str, Any]:
    """Return the JSON Schema of a meta-tool's result."""
    if meta_tool in ("execute", "invoke"):
        statuses = ["ok", "syntax_error", "illegal_access", "tool_error", "runtime_error", "timeout"]
        if meta_tool == "invoke":
            statuses = ["ok", "tool_error", "runtime_error", "timeout"]
        properties = {"status": {"enum": statuses}, "result": {}, "error": _OBJECT}
        return {"type": "object", "properties": properties, "required": ["status"]}
    item: dict[str, Any] = {"type": "object", "properties": {"name": _TEXT, "description": _TEXT}}
    return {
        "type": "object",
        "properties": {"tools": {"type": "array", "items": item}},
        "required": ["tools"],
    }


def create_meta_tool(
    kind: str,
    options: CodeCallOptions,
    call: Callable[..., Coroutine[Any, Any, Any]],
    library: ProgramLibrary | None = None,
) -> Tool:
    """Return a meta-tool that passes its calls, with the context of the outer call, to ``call``."""
    name = format_meta_tool_name(kind, options.names)

    async def execute(value: Any, context: ToolCallContext) -> Any:
        outer = CallContext(tool_call_id=context.tool_call_id, messages=context.messages, context=context.context)
        return await call(name, value, outer)

    return Tool(
        name,
        execute=execute,
        description=append_library_description(
            describe_meta_tool(kind, options), library if kind == "execute" else None
        ),
        input_schema=build_input_schema(kind, options),
        output_schema=build_output_schema(kind),
        annotations={"readOnlyHint": kind in ("search", "describe")},
    )


class CodeCallToolset(MetaTools):
    """A few meta-tools over any number of tools. Create it with `create_code_call_tools`. Thread-safe."""

    def __init__(
        self,
        tools: Mapping[str, Any] | Iterable[Any],
        options: CodeCallOptions | Mapping[str, Any] | None,
        pool: WorkerPool | None,
        store: StoreLike | None = None,
        library: ProgramLibrary | None = None,
    ) -> None:
        super().__init__(tools, options, pool, store, library)
        self._listeners = ToolChangeListeners()
        self._update_lock = create_fork_safe_lock()

    def __repr__(self) -> str:
        return f"<CodeCallToolset over {len(self._tools.indexed)} tools>"

    def __contains__(self, name: object) -> bool:
        """Return True if a tool of this name is in the index."""
        return name in self._tools.catalog

    @property
    def version(self) -> int:
        """The version of the tool set in use; it grows with each `update`."""
        return self._tools.version

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The meta-tools. An `Interrupt` that one returns is for the host, not for the model.

        With a library they are created at each access, because its saved programs change.
        """
        return self._cached_tools if self.library is None else self._create_tools()

    @cached_property
    def _cached_tools(self) -> tuple[Tool, ...]:
        return self._create_tools()

    def _create_tools(self) -> tuple[Tool, ...]:
        kinds = META_TOOLS if self.options.direct_calls.enabled else META_TOOLS[:-1]
        return tuple(create_meta_tool(kind, self.options, self.call, self.library) for kind in kinds)

    def list_tools(self) -> list[Tool]:
        """Return the tools that a client sees: the meta-tools, then the tools that stay visible."""
        return [*self.tools, *self._tools.iter_listed_tools()]

    def update(self, tools: Mapping[str, Any] | Iterable[Any]) -> None:
        """Replace the tools. Running scripts keep theirs.

        Checking thousands of new tools takes seconds; on an event loop use `update_async`. Raises `ValueError` as
        `create_code_call_tools` does, without changing anything.
        """
        self._replace_tools(tools)
        self._listeners.notify_all()

    async def update_async(self, tools: Mapping[str, Any] | Iterable[Any]) -> None:
        """Do what `update` does in a thread, without blocking the event loop. Listeners are called on the loop."""
        await run_in_single_use_thread(partial(self._replace_tools, tools))
        self._listeners.notify_all()

    def _replace_tools(self, tools: Mapping[str, Any] | Iterable[Any]) -> None:
        with self._update_lock:
            previous = self._tools
            current = RegisteredToolSet.from_tools(tools, self.options, previous)
            self._tools = current
            bind_optional_library_unless_shadowed(self.library, current.catalog, current.catalog.names())
            change = diff_visible_tools_or_none(previous, current)
            if change is not None:
                self._listeners.enqueue_change(change)

    def with_tools(self, tools: Mapping[str, Any] | Iterable[Any]) -> CodeCallToolset:
        """Return a tool set with these options over other tools. Tools in both sets are indexed once.

        For hosts whose conversations see different tools. Raises `ValueError` as `create_code_call_tools` does.
        """
        overrides: dict[str, Any] = {
            "_tools": RegisteredToolSet.from_tools(tools, self.options, self._tools),
            "_listeners": ToolChangeListeners(),
        }
        copied = copy(self)
        copied.__dict__.pop("_cached_tools", None)
        copied.__dict__.update(overrides)
        copied._update_lock = create_fork_safe_lock()  # noqa: SLF001 - a copy of this object
        bind_optional_library_unless_shadowed(copied.library, overrides["_tools"].catalog, ())
        return copied

    def on_tools_changed(self, listener: Listener) -> Callable[[], None]:
        """Call a function with ``{"version", "added", "removed", "changed"}`` after updates; return its remover."""
        return self._listeners.add(listener)

    # --- sync versions ---

    def search_sync(
        self,
        input: Mapping[str, Any],  # noqa: A002 - the name that frameworks use
        *,
        tool_call_id: str | None = None,
    ) -> dict[str, Any]:
        """Call `search` from sync code."""
        return run_sync(self.search(input, tool_call_id=tool_call_id))

    def describe_sync(
        self,
        input: Mapping[str, Any],  # noqa: A002 - the name that frameworks use
        *,
        tool_call_id: str | None = None,
    ) -> dict[str, Any]:
        """Call `describe` from sync code."""
        return run_sync(self.describe(input, tool_call_id=tool_call_id))

    def execute_sync(
        self,
        program: str | Mapping[str, Any],
        call: CallContext | None = None,
        *,
        script_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `execute` from sync code."""
        self._start_pool()
        return run_sync(self.execute(program, call, script_context=script_context))

    def invoke_sync(
        self,
        input: Mapping[str, Any],  # noqa: A002 - the name that frameworks use
        call: CallContext | None = None,
    ) -> Any:
        """Call `invoke` from sync code."""
        return run_sync(self.invoke(input, call))

    def call_sync(
        self,
        meta_name: str,
        input: Mapping[str, Any],  # noqa: A002 - the name that frameworks use
        call: CallContext | None = None,
        *,
        script_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `call` from sync code."""
        return run_sync(self.call(meta_name, input, call, script_context=script_context))


def create_code_call_tools(
    tools: Mapping[str, Any] | Iterable[Any],
    options: CodeCallOptions | Mapping[str, Any] | None = None,
    *,
    pool: WorkerPool | None = None,
    store: StoreLike | None = None,
    library: ProgramLibrary | None = None,
) -> CodeCallToolset:
    """Turn many tools into three or four: search, describe, execute and, if direct calls are enabled, invoke.

    ``tools``, ``pool``, ``store`` and ``library`` are as in `create_code_mode_tool`; ``options`` are `CodeCallOptions`
    or a mapping. Raises `ValueError` for invalid options, tools, names, schemas, metadata or pools, and for a tool name
    that looks like a meta-tool.
    """
    return CodeCallToolset(tools, options, pool, store, library)
