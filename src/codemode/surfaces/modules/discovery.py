"""Answer the functions of `@codemode/discovery` and check their arguments."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NoReturn

from ...data.json_shape import estimate_json_length
from ...data.json_values import decode_json, encode_json
from ...data.narrowing import is_mapping, is_sequence, mapping_or_empty
from ...data.similar_names import find_nearest_names
from ...errors import CodeModeSerializationError, CodeModeToolError
from ...schemas.compiled import get_json_type_name
from ...tools.search.index import ScoredTool, ToolIndex
from .declarations import declare_server_within, declare_tool
from .module_tools import SERVERS_PREFIX, ListedServer, ModuleTool

DETAILS = ("name", "description", "full")
USAGE: Mapping[str, str] = {
    "listServers": "listServers()",
    "describeServer": "describeServer(serverId)",
    "listTools": 'listTools(serverId, { detail: "name" | "description" | "full" })',
    "getTool": "getTool(serverId, toolName)",
    "searchTools": 'searchTools("words", { detail, serverId, limit })',
}
_MAX_QUOTED_CHARACTERS = 100


class DiscoveryArguments:
    """The positional arguments of one call. Null counts as absent."""

    def __init__(self, function: str, values: Any) -> None:
        self.function = function
        if not is_sequence(values):
            self.reject("", "a list of arguments", values)
        self._values: Sequence[Any] = values

    def require_text(self, index: int, name: str) -> str:
        """Return a required, non-empty string."""
        value = self._get_argument(index)
        if not isinstance(value, str) or not value.strip():
            self.reject(f"/{index}", f"{name} to be a string that is not empty", value, name)
        return value

    def get_detail(self, index: int, default: str) -> str:
        """Return the requested level of detail."""
        value = self._get_options(index).get("detail")
        if value is None:
            return default
        if value not in DETAILS:
            self.reject(f"/{index}/detail", f"detail to be one of {', '.join(DETAILS)}", value, "detail")
        return value

    def get_server_id(self, index: int) -> str | None:
        """Return the ``serverId`` option, if present."""
        value = self._get_options(index).get("serverId")
        if value is not None and (not isinstance(value, str) or not value.strip()):
            self.reject(f"/{index}/serverId", "serverId to be a string that is not empty", value, "serverId")
        return value

    def get_limit(self, index: int, maximum: int) -> int:
        """Return the ``limit`` option: at least 1, and at most and by default ``maximum``."""
        value = self._get_options(index).get("limit")
        if value is None:
            return maximum
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or value < 1 or value != value // 1:
            self.reject(f"/{index}/limit", f"limit to be an integer from 1 to {maximum}", value, "limit")
        return min(int(value), maximum)

    def reject(self, pointer: str, expected: str, value: Any, name: str = "") -> NoReturn:
        """Raise `CodeModeToolError` for an argument, with the reason "validation"."""
        received = _describe_value(value)
        usage = USAGE.get(self.function, self.function)
        message = f"{self.function}: expected {expected}, got {received}. It is called as {usage}."
        error = CodeModeToolError(
            message,
            details={
                "tool_name": self.function,
                "schema": "input",
                "problems": [{"path": name, "message": f"expected {expected}, got {received}"}],
                "pointer": pointer,
                "expected": expected,
                "received": received,
                "hint": f"Call it as {usage}.",
            },
        )
        error.reason = "validation"
        raise error

    def _get_argument(self, index: int) -> Any:
        return self._values[index] if index < len(self._values) else None

    def _get_options(self, index: int) -> Mapping[str, Any]:
        value = self._get_argument(index)
        if value is None:
            return {}
        if not is_mapping(value):
            self.reject(f"/{index}", "options to be an object", value, "options")
        return value


def _describe_value(value: Any) -> str:
    """Return the type of a value, or a short value itself."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return repr(value[:_MAX_QUOTED_CHARACTERS])
    if isinstance(value, bool | float) or (isinstance(value, int) and value.bit_length() <= _MAX_QUOTED_CHARACTERS):
        return str(value).lower()
    return (
        f"an {get_json_type_name(value)}" if get_json_type_name(value)[0] in "ao" else f"a {get_json_type_name(value)}"
    )


# Servers are found by path or host id, tools by name or export name.

MAX_FOUND = 50
MAX_ANSWER_CHARACTERS = 4_000_000

_MAX_NAME_CHARACTERS = 100
_MIN_SEARCH_RESULTS = 16  # minimum number of results to rank again
_SEARCH_FACTOR = 2  # results per requested result; applied again if most are duplicates
_SERVER_WEIGHT = 0.5  # share added to the score of the best server's tools, see benchmarks/finding.py
_WORD = re.compile("[a-z0-9]+")
_MAX_COMPARED_PARAMETERS = 64  # parameter names compared to recognise a tool
_NEVER_SCHEMA: dict[str, Any] = {"not": {}}
_Servers = Sequence[ListedServer]
_Candidate = tuple[ListedServer, ModuleTool]
_Candidates = Sequence[_Candidate]


def build_search_index(servers: _Servers, previous: ToolIndex | None = None) -> ToolIndex:
    """Return the search index of these servers, reusing unchanged parts of ``previous``."""
    named_tools = ((tool.tool.name, tool.tool) for server in servers for tool in server.tools)
    return ToolIndex(named_tools) if previous is None else previous.with_tools(named_tools)


def call_discovery_function(servers: _Servers, index: ToolIndex, name: str, argument: Any) -> Any:
    """Return the result of a discovery function as plain JSON.

    ``index`` is the `build_search_index` of the same servers. Raises `CodeModeToolError` with the reason "validation",
    "unknown_server", "unknown_tool", or "limit" for an answer that is too large; ``details["hint"]`` says what to do.
    Call it in a thread.
    """
    function = _FUNCTIONS.get(name)
    arguments = DiscoveryArguments(name, argument)
    if function is None:
        arguments.reject("", f"one of {', '.join(_FUNCTIONS)}", name)
    return function(servers, index, arguments)


def require_server(servers: _Servers, server_id: str) -> ListedServer:
    """Return the server with this path or host id. Raises `CodeModeToolError`, "unknown_server"."""
    path = server_id.removeprefix(SERVERS_PREFIX)
    found = next((server for server in servers if server.path == path), None)
    found = found or next((server for server in servers if server.server_id == server_id), None)
    if found is None:
        raise server_not_found_error(servers, server_id)
    return found


def server_not_found_error(servers: _Servers, server_id: str) -> CodeModeToolError:
    """Return the error for an unknown server id, with similar ones."""
    quoted_id = server_id.removeprefix(SERVERS_PREFIX)[:_MAX_NAME_CHARACTERS]
    similar = find_nearest_names(quoted_id.lower(), [server.path for server in servers])
    suggestion = (
        f" Did you mean {_join_alternatives(similar)}?" if similar else "" if servers else " There are no servers here."
    )
    hint = (
        f'Use "{similar[0]}".'
        if similar
        else "Take a serverId from listServers()."
        if servers
        else "Continue without servers."
    )
    return _create_not_found_error(
        "unknown_server",
        f'There is no server "{quoted_id}".{suggestion}',
        server_id=quoted_id,
        nearest=similar,
        hint=hint,
    )


def require_tool(servers: _Servers, server: ListedServer, name: str) -> ModuleTool:
    """Return the tool with this name or export name. Raises `CodeModeToolError`, "unknown_tool"."""
    found = _find_by_name(server, name)
    if found is None:
        raise tool_not_found_error(servers, server, name)
    return found


def tool_not_found_error(servers: _Servers, server: ListedServer, name: str) -> CodeModeToolError:
    """Return the error for an unknown tool name, with similar names or another server that has it."""
    quoted_name = name[:_MAX_NAME_CHARACTERS]
    similar = find_nearest_names(
        quoted_name, dict.fromkeys(known for other in server.tools for known in (other.tool_name, other.export_name))
    )
    other_server_path = next(
        (other.path for other in servers if other is not server and _find_by_name(other, name)), None
    )
    suggestion = f" Did you mean {_join_alternatives(similar)}?" if similar else ""
    hint = f'Use "{similar[0][:_MAX_NAME_CHARACTERS]}".' if similar else "Find tools by what they do with searchTools."
    if other_server_path is not None:
        suggestion, hint = (
            f' Server "{other_server_path}" has a tool of that name.',
            f'Use the server "{other_server_path}".',
        )
    message = (
        f'Server "{server.path}" has no tool "{quoted_name}"{server.format_omission_suffix(quoted_name)}.{suggestion}'
    )
    return _create_not_found_error(
        "unknown_tool", message, server_id=server.path, tool_name=quoted_name, nearest=similar, hint=hint
    )


def _find_by_name(server: ListedServer, name: str) -> ModuleTool | None:
    by_name = (tool for tool in server.tools if tool.tool_name == name)
    return next(by_name, None) or next((tool for tool in server.tools if tool.export_name == name), None)


def _list_servers(servers: _Servers, _index: ToolIndex, _arguments: DiscoveryArguments) -> Any:
    return [_build_server_info(server) for server in servers]


def _describe_server(servers: _Servers, _index: ToolIndex, arguments: DiscoveryArguments) -> Any:
    server, detail = require_server(servers, arguments.require_text(0, "serverId")), arguments.get_detail(1, "full")
    description = _build_server_info(server)
    if detail != "name":
        description |= _drop_none({"description": server.description, "version": server.version})
        description |= {"leftOut": [*server.left_out]} if server.left_out else {}
    if detail == "full":
        description["declaration"] = declare_server_within(server)
    return description


def _list_tools(servers: _Servers, _index: ToolIndex, arguments: DiscoveryArguments) -> Any:
    server, detail = (
        require_server(servers, arguments.require_text(0, "serverId")),
        arguments.get_detail(1, "description"),
    )
    return _build_definitions("listTools", [(server, tool) for tool in server.tools], detail)


def _get_tool(servers: _Servers, _index: ToolIndex, arguments: DiscoveryArguments) -> Any:
    server_id, name, detail = (
        arguments.require_text(0, "serverId"),
        arguments.require_text(1, "toolName"),
        arguments.get_detail(2, "full"),
    )
    server = require_server(servers, server_id)
    tool = require_tool(servers, server, name)
    definition_fields = build_definition(tool, detail)
    if detail == "full":
        definition_fields["declaration"] = declare_tool(server, tool)
    if estimate_json_length(definition_fields, MAX_ANSWER_CHARACTERS + 1) > MAX_ANSWER_CHARACTERS:
        _raise_too_large("getTool")
    return definition_fields


def _search_tools(servers: _Servers, index: ToolIndex, arguments: DiscoveryArguments) -> Any:
    query, detail = arguments.require_text(0, "query"), arguments.get_detail(1, "description")
    limit, server_id = arguments.get_limit(1, MAX_FOUND), arguments.get_server_id(1)
    chosen_server = None if server_id is None else require_server(servers, server_id)
    candidates = [(server, tool) for server in servers for tool in server.tools]
    allowed_positions = (
        None
        if chosen_server is None
        else {position for position, (server, _) in enumerate(candidates) if server is chosen_server}
    )
    # An exact name comes before matches of its words.
    exact_matches = [
        position
        for position in _find_positions_by_exact_name(servers, query)
        if allowed_positions is None or position in allowed_positions
    ]
    matches = _search_distinct_tools(
        candidates, exact_matches, lambda max_results: index.search(query, max_results, allowed_positions), limit
    )
    matches = matches if chosen_server else _prefer_first_server(servers, matches, query)
    other_servers = {} if chosen_server else _build_also_in_fields(servers, matches)
    results = _build_definitions("searchTools", matches, detail)
    return {
        "query": query,
        "results": [
            {"serverId": server.path, **fields, **other_servers.get(tool.tool.name, {})}
            for (server, tool), fields in zip(matches, results, strict=True)
        ],
    }


def _find_positions_by_exact_name(servers: _Servers, name: str) -> Iterator[int]:
    """Yield the positions of the tools with exactly this name."""
    offset = 0
    for server in servers:
        if name in server.all_tool_names:
            names = ((tool.tool_name, tool.export_name, tool.tool.name) for tool in server.tools)
            yield from (offset + index for index, known in enumerate(names) if name in known)
        offset += len(server.tools)


def _search_distinct_tools(
    candidates: _Candidates, exact_matches: Sequence[int], search: Callable[[int], Sequence[ScoredTool]], limit: int
) -> list[_Candidate]:
    """Return the exact matches, then the search results, with a tool of several servers only once.

    Otherwise two accounts of one server would halve the number of different tools in the results.
    """
    search_limit = max(_SEARCH_FACTOR * limit, _MIN_SEARCH_RESULTS)
    while True:
        found = search(search_limit)
        order = dict.fromkeys((*exact_matches, *_rank_by_server_fit(candidates, found)))
        matches = list(islice(_skip_duplicate_tools(candidates[position] for position in order), limit))
        if len(matches) == limit or len(found) < search_limit:
            return matches
        search_limit *= _SEARCH_FACTOR


def _skip_duplicate_tools(found: Iterable[_Candidate]) -> Iterator[_Candidate]:
    by_name: dict[str, list[ModuleTool]] = {}
    for candidate in found:
        same_name_tools = by_name.setdefault(candidate[1].tool_name, [])
        if not any(_is_same_tool(candidate[1], tool) for tool in same_name_tools):
            same_name_tools.append(candidate[1])
            yield candidate


def _prefer_first_server(servers: _Servers, matches: Sequence[_Candidate], query: str) -> list[_Candidate]:
    """Assign tools of several servers to the first of these servers, unless the query names another.

    The score depends on texts of the servers: a server that copies a tool must not displace the original.
    """
    query_terms = set(_WORD.findall(query.lower()))
    result = list(matches)
    for position, (server_of_tool, tool) in enumerate(matches):
        for server in servers:
            if server is server_of_tool or query_terms.issuperset(_WORD.findall(server_of_tool.path)):
                break
            if (
                tool.tool_name in server.all_tool_names
                and (other := _find_by_name(server, tool.tool_name))
                and _is_same_tool(other, tool)
            ):
                result[position] = server, other
                break
    return result


def _rank_by_server_fit(candidates: _Candidates, found: Sequence[ScoredTool]) -> list[int]:
    """Return search results, best first; a tool scores higher if other tools of its server match too."""
    squares: dict[str, float] = {}
    for position, score in found:
        path = candidates[position][0].path
        squares[path] = squares.get(path, 0.0) + score * score
    sizes = {server.path: len(server.tools) for position, _ in found for server in (candidates[position][0],)}
    fit_by_path = {path: math.sqrt(total / sizes[path]) for path, total in squares.items()}
    best_fit = max(fit_by_path.values(), default=0.0) or 1.0
    scores = [
        (score < 1, -score * (1 + _SERVER_WEIGHT * fit_by_path[candidates[position][0].path] / best_fit), position)
        for position, score in found
    ]
    return [position for _, _, position in sorted(scores)]


def _build_also_in_fields(servers: _Servers, matches: Sequence[_Candidate]) -> dict[str, dict[str, list[str]]]:
    """Return the other servers that have the same tool, by the tool's qualified name."""
    matches_by_name: dict[str, list[_Candidate]] = {}
    for candidate in matches:
        matches_by_name.setdefault(candidate[1].tool_name, []).append(candidate)
    other_servers: dict[str, dict[str, list[str]]] = {}
    for server in servers:
        for name in server.all_tool_names.intersection(matches_by_name):
            tools_of_other_servers = [
                tool for server_of_tool, tool in matches_by_name[name] if server_of_tool is not server
            ]
            other = _find_by_name(server, name) if tools_of_other_servers else None
            for tool in tools_of_other_servers:
                if other is not None and _is_same_tool(other, tool):
                    other_servers.setdefault(tool.tool.name, {"alsoIn": []})["alsoIn"].append(server.path)
    return other_servers


def _is_same_tool(tool: ModuleTool, other: ModuleTool) -> bool:
    """Return True if two servers have the same tool. A tool without description equals no other."""
    description, other_description = tool.tool.description, other.tool.description
    is_named_so = tool.tool_name == other.tool_name
    return (
        is_named_so
        and bool(description)
        and description == other_description
        and _list_parameter_names(tool) == _list_parameter_names(other)
    )


def _list_parameter_names(tool: ModuleTool) -> list[Any]:
    return list(
        islice(
            mapping_or_empty(mapping_or_empty(tool.tool.input_json_schema).get("properties")), _MAX_COMPARED_PARAMETERS
        )
    )


_FUNCTIONS: Mapping[str, Callable[[_Servers, ToolIndex, DiscoveryArguments], Any]] = {
    "listServers": _list_servers,
    "describeServer": _describe_server,
    "listTools": _list_tools,
    "getTool": _get_tool,
    "searchTools": _search_tools,
}


def build_definition(module_tool: ModuleTool, detail: str) -> dict[str, Any]:
    """Return the definition of a tool; ``detail`` is "name", "description" or "full"."""
    fields: dict[str, Any] = {"toolName": module_tool.tool_name, "exportName": module_tool.export_name}
    if detail == "name":
        return fields
    annotations = _schema_to_json(dict(module_tool.tool.annotations)) or None
    fields |= _drop_none({"description": module_tool.tool.description or None, "annotations": annotations})
    if detail == "full":
        tool = module_tool.tool
        fields |= _drop_none(
            {
                "inputSchema": _schema_to_json(tool.input_json_schema),
                "outputSchema": _schema_to_json(tool.output_json_schema),
            }
        )
    return fields


def _build_definitions(
    function: str, tools: Iterable[tuple[ListedServer, ModuleTool]], detail: str
) -> list[dict[str, Any]]:
    definitions: list[dict[str, Any]] = []
    remaining = MAX_ANSWER_CHARACTERS
    for _, tool in tools:
        fields = build_definition(tool, detail)
        if detail != "name":
            weight = estimate_json_length(fields, remaining + 1)
            remaining -= weight
            if remaining < 0:
                _raise_too_large(function)
        definitions.append(fields)
    return definitions


def _raise_too_large(function: str) -> NoReturn:
    hint = 'Ask with the detail "name", or for one tool with getTool(serverId, toolName).'
    message = f"The answer of {function} would be longer than {MAX_ANSWER_CHARACTERS} characters. {hint}"
    details = {"limit": "answer_characters", "max": MAX_ANSWER_CHARACTERS, "hint": hint}
    error = CodeModeToolError(message, details=details)
    error.reason = "limit"
    raise error


def _build_server_info(server: ListedServer) -> dict[str, Any]:
    fields: dict[str, Any] = {"serverId": server.path, "serverName": server.name}
    return fields | ({"capabilities": list(server.capabilities)} if server.capabilities else {})


def _drop_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _schema_to_json(schema: Any) -> dict[str, Any] | None:
    """Return a schema as a JSON object; ``{}`` if it is not JSON, such as with a Python object as default."""
    if schema is None:
        return None
    if isinstance(schema, bool):
        return {} if schema else _NEVER_SCHEMA
    try:
        return decode_json(encode_json(schema, what="a schema"))
    except (CodeModeSerializationError, ValueError):
        return {}


def _join_alternatives(names: Sequence[str]) -> str:
    return " or ".join(f'"{name[:_MAX_NAME_CHARACTERS]}"' for name in names)


def _create_not_found_error(reason: str, message: str, **details: Any) -> CodeModeToolError:
    error = CodeModeToolError(message, details=details)
    error.reason = reason
    return error
