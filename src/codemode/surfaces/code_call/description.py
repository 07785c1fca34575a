"""Descriptions and input schemas of the meta-tools, and the meta-tools as `Tool`s."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from ...execution.call_context import CallContext
from ...tools.context import ToolCallContext
from ...tools.tool import Tool
from .names import meta_name
from .options import CodeCallOptions

_MAX_LISTED_CHARACTERS = 300
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_OBJECT = {"type": "object"}

_SEARCH = """\
Finds tools by what they do. Say in a few plain words what you need, one task at a time. Gives names, one sentence \
each and a score; read the definitions with {describe} before the first call."""
_DESCRIBE = """\
Gives the definitions of tools: input and output as JSON Schema, and examples of calls. Take the names from {search}."""
_EXECUTE = """\
Runs a JavaScript script that calls tools and returns one JSON value. It is the body of an async function: `await` and \
`return` work at the top level. TypeScript annotations are removed, not checked.
- `await callTool(name, input)` calls a tool that {search} found. It throws an Error with `code`, `message` and \
`toolName`; with a third argument `{{ throwOnError: false }}` it gives `{{ success, data, error }}` instead. \
A tool `ns.method` is `await ns.method(input)` too.
- `getTool(name)` gives name, description, inputSchema and outputSchema, or undefined. `codecallContext` is the \
context. `mcpLog(level, message, metadata)` and `mcpNotify(event, payload)` tell the client.
- Await every call; `Promise.all` runs independent ones at once, at most {in_flight}{beyond}. At most {max_steps} \
calls and {timeout_ms} ms, time in tools {waiting}.
- {loops}
- {console}
- Not available, by these names: {banned}, import and export.
- Integers beyond 2^53 are BigInt. Dates and `toLocaleString` know UTC and en-US alone: no other time zone or locale, \
no currency, no Intl.{sidecar}
Answers {{ "status": "ok", "result" }}, or status syntax_error, illegal_access, tool_error, runtime_error or timeout \
with `error`: read it, and send a better script."""
_INVOKE = """\
Calls one tool without a script: for a single call whose whole result is wanted. {execute} is for everything else."""
_SIDECAR = """
- A string of a tool's output of {threshold} bytes or more is a reference, typeof "object": length, indices, \
iteration, string methods and JSON.parse work, and it can be returned or passed to a tool as it is. {joins}=== and \
includes compare identity."""
_JOINS_THROW = "`+`, templates and `<` throw: call toString() first. "
_NO_LOOPS = "No loops (for, while, do): use map, filter, reduce and other array methods, or recursion."
_LOOPS = "Loops are allowed."
_CONSOLE = "`console` output comes back as `logs`."
_NO_CONSOLE = "There is no `console`."


def describe_meta_tool(meta_tool: str, options: CodeCallOptions) -> str:
    """Return the description of one, with the rules that are in force."""
    vm, policy = options.vm, options.settings.execution_policy
    banned = dict.fromkeys((*vm.disabled_builtins, *vm.disabled_globals))
    has_console = vm.allow_console and "console" not in banned
    named = {one: meta_name(one, options.names) for one in ("search", "describe", "execute")}
    text = {"search": _SEARCH, "describe": _DESCRIBE, "execute": _EXECUTE, "invoke": _INVOKE}[meta_tool]
    sidecar = options.sidecar
    joins = "" if sidecar.allow_composites else _JOINS_THROW
    return text.format(
        sidecar=_SIDECAR.format(threshold=sidecar.extraction_threshold, joins=joins) if sidecar.enabled else "",
        **named,
        max_steps=vm.max_steps,
        in_flight=policy.max_in_flight_bridge_requests,
        beyond="; one more throws" if policy.says("in_flight_limit") and policy.in_flight_limit == "fail" else "",
        timeout_ms=vm.timeout_ms,
        waiting="counted" if policy.says("clock") and policy.clock == "wall" else "not counted",
        loops=_LOOPS if vm.allow_loops else _NO_LOOPS,
        console=_CONSOLE if has_console else _NO_CONSOLE,
        banned=_listed([name for name in banned if name != "console"]),
    )


def _listed(names: list[str]) -> str:
    # A host's own list may be of any length.
    text = ", ".join(names)
    return (
        text
        if len(text) <= _MAX_LISTED_CHARACTERS
        else text[:_MAX_LISTED_CHARACTERS].rpartition(",")[0] + ", and others"
    )


def input_schema_of(meta_tool: str, options: CodeCallOptions) -> dict[str, Any]:
    """Return the JSON Schema of one's input."""
    if meta_tool == "search":
        return _object(
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
        return _object(
            {
                "tools": {**_TEXTS, "description": "Names of tools."},
                "max": {"type": "integer", "description": f"How many at most; {options.max_definitions} if not given."},
            },
            "tools",
        )
    if meta_tool == "execute":
        return _object(
            {
                "script": {**_TEXT, "description": "The body of an async function; end it with return."},
                "allowedTools": {**_TEXTS, "description": "Only these may be called."},
                "context": {**_OBJECT, "description": "Read in the script as codecallContext."},
            },
            "script",
        )
    return _object({"tool": _TEXT, "input": {"description": "What the tool's inputSchema asks for."}}, "tool")


def _object(properties: dict[str, Any], required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [required]}


def output_schema_of(meta_tool: str) -> dict[str, Any]:
    """Return the JSON Schema of what one answers."""
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


def meta_tool_as_tool(kind: str, options: CodeCallOptions, call: Callable[..., Coroutine[Any, Any, Any]]) -> Tool:
    """Return a meta-tool, whose calls ``call`` performs. Its calls bring along what the outer call has."""
    name = meta_name(kind, options.names)

    async def execute(value: Any, context: ToolCallContext) -> Any:
        outer = CallContext(tool_call_id=context.tool_call_id, messages=context.messages, context=context.context)
        return await call(name, value, outer)

    return Tool(
        name,
        execute=execute,
        description=describe_meta_tool(kind, options),
        input_schema=input_schema_of(kind, options),
        output_schema=output_schema_of(kind),
        annotations={"readOnlyHint": kind in ("search", "describe")},
    )
