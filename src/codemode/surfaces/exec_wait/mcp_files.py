"""The virtual files of servers: declarations as TypeScript, made of what was listed. Runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...data.json_shape import weigh
from ...data.narrowing import mapping_or_empty
from ...data.similar_names import did_you_mean, nearest_names
from ...errors import CodeModeToolError
from ...host import steps
from ...signatures.declarations import call_types, first_sentence, summary_of, take_steps, tool_doc
from ...signatures.described_tool import Renamed, renamed
from ...signatures.typescript import indented, jsdoc
from .mcp_server import McpServer
from .mcp_tool import ServerTool

ROOT = "mcp"
INDEX = f"{ROOT}/index.d.ts"
_SUFFIX = ".d.ts"
_MAX_SHOWN = 100
_STEPS_OF_A_LINE = 4
MAX_FILE_CHARACTERS = 1_000_000
"""How much of descriptions and schemas one file is made of."""
_RESOURCES = "resources: { list(): Promise<any>; read(uri: string): Promise<any> };"
_PROMPTS = "prompts: { list(): Promise<any>; get(name: string, input?: Record<string, string>): Promise<any> };"
_API = (
    "$api(tool?: string, options?: { schema?: boolean }):"
    " Promise<{ header: string; schemas: Record<string, unknown> }>;"
)


def listed_files(servers: Sequence[McpServer], prefix: Any) -> dict[str, Any]:
    """Return ``{files: [{path}]}`` of those whose path begins so. Raises `CodeModeToolError`."""
    if prefix is None:
        prefix = ""
    _require_path(prefix, "API.list(prefix)")
    paths = [INDEX, *(_path(one) for one in servers)]
    start = f"{ROOT}/" if prefix == ROOT else prefix
    return {"files": [{"path": path} for path in paths if path.startswith(start)]}


def read_file(servers: Sequence[McpServer], path: Any) -> dict[str, str]:
    """Return ``{content}`` of a file. Raises `CodeModeToolError`."""
    _require_path(path, "API.read(path)")
    if path == INDEX:
        return {"content": _index(servers)}
    for one in servers:
        if path == _path(one):
            return {"content": declared(one, one.tools)}
    near = nearest_names(path[:_MAX_SHOWN], [INDEX, *(_path(one) for one in servers)])
    said = f"There is no file {path[:_MAX_SHOWN]!r}.{did_you_mean(near)}"
    raise CodeModeToolError(f"{said} `await API.list()` has all of them.")


def api(server: McpServer, tool: Any, options: Any) -> dict[str, Any]:
    """Return ``{header, schemas}`` of a tool, or of a whole server. Raises `CodeModeToolError`."""
    tools: Sequence[ServerTool] = server.tools
    if tool is not None:
        found = server.find(tool) if isinstance(tool, str) else None
        if found is None:
            asked, known = str(tool)[:_MAX_SHOWN], [name for one in server.tools for name in one.names]
            hint = did_you_mean(nearest_names(asked, known))
            raise CodeModeToolError(f"MCP.{server.name} has no tool {asked!r}.{hint}")
        tools = (found,)
    wants = mapping_or_empty(options).get("schema") is True
    schemas = {one.names[0]: one.tool.input_json_schema or {} for one in tools} if wants else {}
    return {"header": declared(server, tools), "schemas": schemas}


def declared(server: McpServer, tools: Sequence[ServerTool]) -> str:
    """Return a server with these tools as TypeScript, as many as one file may hold; the others are named."""
    shown, others = _fitting([renamed(one.tool, one.names[0]) for one in tools])
    calls, aliases = call_types(shown)
    members = [f"{jsdoc(tool_doc(one))}{one.name}{call};" for one, call in zip(shown, calls, strict=True)]
    members += [f"// {one.name}: see $api({one.name!r})" for one in others]
    members += [_RESOURCES] if server.has_resources else []
    members += [_PROMPTS] if server.has_prompts else []
    body = "".join(f"{indented(indented(member))}\n" for member in [*members, _API])
    return "\n\n".join([*aliases, f"declare const MCP: {{\n  {server.name}: {{\n{body}  }};\n}};"])


def _fitting(tools: list[Renamed]) -> tuple[list[Renamed], list[Renamed]]:
    left = MAX_FILE_CHARACTERS
    for at, one in enumerate(tools):
        take_steps(one)  # before so much of it is weighed
        schemas = (one.input_json_schema, one.output_json_schema)
        left -= len(one.description) + sum(weigh(schema, left + 1) for schema in schemas if schema is not None)
        if left < 0 < at:
            return tools[:at], tools[at:]
    return tools, []


def _index(servers: Sequence[McpServer]) -> str:
    lines: list[str] = []
    for one in servers:
        lines.append(f"// {_path(one)}: MCP.{one.name}, {len(one.tools)} tools")
        for tool in one.tools:
            steps.take(_STEPS_OF_A_LINE)
            lines.append(f"//   {tool.names[0]}: {first_sentence(summary_of(tool.tool))}")
    members = "".join(f"  {one.name}: any; // {_path(one)}\n" for one in servers)
    return "\n".join([*lines, f"declare const MCP: {{\n{members}}};"])


def _path(server: McpServer) -> str:
    return f"{ROOT}/{server.name}{_SUFFIX}"


def _require_path(path: Any, usage: str) -> None:
    if not isinstance(path, str):
        raise CodeModeToolError(f"{usage} takes a string")
    if "\\" in path or path.startswith("/") or any(part in (".", "..") for part in path.split("/")):
        raise CodeModeToolError(f"{usage}: {path[:_MAX_SHOWN]!r} is no path here: no backslash, no . and .. segments")
