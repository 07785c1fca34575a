"""Build the descriptions and input schemas of exec and wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...data.rich_values import is_rich
from ...execution.call_context import RICH_VALUES_RULE, STATE_RULE
from ...signatures.declarations import create_call_types_and_aliases, extract_first_sentence, find_tool_description
from ...signatures.literals import to_comment_line
from .options import ExecWaitOptions
from .sources import CatalogEntry

MAX_INDEX_CHARACTERS = 7_000
_MAX_SIGNATURE_CHARACTERS = 400
_MAX_LATE_SCHEMAS = 20  # each compiles a schema, which takes time
_MAX_SERVERS = 50

_RULES = """\
Runs a JavaScript program over a catalog of tools, and returns its value and output, or that it waits.

Rules for the program:
- It is the body of an async function: `await` and `return` work at the top level. TypeScript types are removed.
- `await tools.search(query, {{limit}})` finds tools, `await tools.describe(id)` adds the JSON Schema of `parameters`,
  `await tools.call(id, input)` calls one. Ids are `<source>:<owner>:<tool>`. `tools.<name>(input)` calls the tool of
  a name that only one has (`-` becomes `_`). `ALL_TOOLS` lists all of them, without schemas.
- `Promise.all` runs calls at once{at_once}. A failed call throws an Error that can be caught.
- `text(value)` and `json(value)` add to the output, in order. `await yield_control()` returns the output so far.
- When its tools take long the result is {{"status": "waiting", "runId"}}: call `wait` with that runId to continue.
{values}There is no fetch, import, require, eval, file or process, but `setTimeout` and `console`.
- Dates and `toLocaleString`: UTC and en-US only, no currency, no Intl."""

WAIT_DESCRIPTION = (
    "Continues a program of exec that is waiting: takes its runId and returns the same kind of result, without earlier"
    " output."
)


def describe_exec(
    entries: Sequence[CatalogEntry],
    options: ExecWaitOptions,
    servers: Sequence[str] = (),
    namespaces: Sequence[str] = (),
    *,
    has_state: bool = False,
    may_queue: bool = False,
) -> str:
    """Return the description of exec. The same tools always give the same text. ``servers``: names of MCP servers.

    ``may_queue``: calls beyond ``options.max_pending_tool_calls`` wait instead of failing.
    """
    limit_text = "" if may_queue else f", at most {options.max_pending_tool_calls}; one more throws"
    parts = [
        _RULES.format(
            at_once=limit_text, values=f"{RICH_VALUES_RULE}\n- " if is_rich.get() else "- Only JSON crosses. "
        )
    ]
    if servers:
        parts.append(_describe_servers(servers))
    if namespaces:
        parts.append("\n".join(["Namespaces, which are globals and in `namespaces`:", *namespaces]))
    if has_state:
        parts.append(STATE_RULE)
    if options.approvals == "park":
        parts.append("A call may wait for a person's decision; asking again does not make it faster.")
    if not entries and servers:
        return "\n\n".join(parts)
    if not entries:
        return "\n\n".join([*parts, "The catalog is empty."])
    return "\n\n".join([*parts, _format_entry_list(entries)])


def _describe_servers(servers: Sequence[str]) -> str:
    listed_names = [f"MCP.{server}" for server in servers[:_MAX_SERVERS]]
    more_text = f" and {len(servers) - len(listed_names)} more" if len(servers) > len(listed_names) else ""
    return (
        f"MCP servers: {', '.join(listed_names)}{more_text}. Their tools are called as"
        " `await MCP.<server>.<tool>(input)` with one object. `await API.list()`"
        " names the files that declare them, `await API.read(path)` gives one, and"
        " `await MCP.<server>.$api(tool, {schema: true})` the declaration of a single tool."
    )


def _format_entry_list(entries: Sequence[CatalogEntry]) -> str:
    """Return signatures, tools with output schemas first, and the number of omitted tools."""
    ordered = sorted(
        entries, key=lambda entry: (not entry.tool.has_late_schemas and entry.tool.output_json_schema is None, entry.id)
    )
    lines: list[str] = []
    remaining = MAX_INDEX_CHARACTERS
    for line in _iter_entry_lines(ordered):
        if len(line) + 1 > remaining:
            break
        lines.append(line)
        remaining -= len(line) + 1
    left_out = len(entries) - len(lines)
    tail = [f"and {left_out} more: find them with `await tools.search(query)`."] if left_out else []
    count = "1 tool" if len(entries) == 1 else f"{len(entries)} tools"
    return "\n".join([f"The catalog has {count}:", *lines, *tail])


def _iter_entry_lines(entries: Sequence[CatalogEntry]) -> Iterable[str]:
    has_types = sum(entry.tool.has_late_schemas for entry in entries) <= _MAX_LATE_SCHEMAS
    for entry in entries:
        summary = extract_first_sentence(find_tool_description(entry.tool))
        signature = _format_signature(entry) if has_types or not entry.tool.has_late_schemas else ""
        yield f"- {to_comment_line(entry.id, 300)}{signature}{f' - {summary}' if summary else ''}"


def _format_signature(entry: CatalogEntry) -> str:
    calls, aliases = create_call_types_and_aliases([entry.tool], has_comments=False)
    text = " ".join(calls[0].split())
    # Types with declarations of their own are left to describe.
    return "" if aliases or len(text) > _MAX_SIGNATURE_CHARACTERS else text


def build_exec_schema(options: ExecWaitOptions) -> dict[str, Any]:
    """Return the JSON Schema of exec's input."""
    return {
        "type": "object",
        "properties": {
            "code": {"type": "string", "description": "The program: the body of an async JavaScript function."},
            "command": {"type": "string", "description": "Another name of code."},
            "language": {"type": "string", "enum": list(options.languages)},
        },
        "additionalProperties": False,
    }


def build_wait_schema() -> dict[str, Any]:
    """Return the JSON Schema of wait's input."""
    return {
        "type": "object",
        "properties": {"runId": {"type": "string", "description": "The runId of a result whose status is waiting."}},
        "required": ["runId"],
        "additionalProperties": False,
    }
