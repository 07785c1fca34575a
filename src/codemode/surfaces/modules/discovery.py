"""Answers of `@codemode/discovery`, and the checks of its arguments."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NoReturn

from ...data.json_shape import weigh
from ...data.json_values import decode_json, encode_json
from ...data.narrowing import is_mapping, is_sequence, mapping_or_empty
from ...data.similar_names import nearest_names
from ...errors import CodeModeSerializationError, CodeModeToolError
from ...schemas.compiled import json_type
from ...tools.search.index import Found, ToolIndex
from .declarations import declare_in, declare_tool
from .module_tools import SERVERS, ListedServer, ModuleTool

DETAILS = ("name", "description", "full")
USAGE: Mapping[str, str] = {
    "listServers": "listServers()",
    "describeServer": "describeServer(serverId)",
    "listTools": 'listTools(serverId, { detail: "name" | "description" | "full" })',
    "getTool": "getTool(serverId, toolName)",
    "searchTools": 'searchTools("words", { detail, serverId, limit })',
}
_MAX_SHOWN = 100


class Arguments:
    """The arguments of one call, in their order. What is not given may also be null."""

    def __init__(self, function: str, given: Any) -> None:
        self.function = function
        if not is_sequence(given):
            self.refuse("", "a list of arguments", given)
        self._given: Sequence[Any] = given

    def text(self, at: int, name: str) -> str:
        """Return a string that must be there, and not be empty."""
        value = self._at(at)
        if not isinstance(value, str) or not value.strip():
            self.refuse(f"/{at}", f"{name} to be a string that is not empty", value, name)
        return value

    def detail(self, at: int, default: str) -> str:
        """Return how much of each tool is asked for."""
        value = self._options(at).get("detail")
        if value is None:
            return default
        if value not in DETAILS:
            self.refuse(f"/{at}/detail", f"detail to be one of {', '.join(DETAILS)}", value, "detail")
        return value

    def server(self, at: int) -> str | None:
        """Return the server that options name, if they name one."""
        value = self._options(at).get("serverId")
        if value is not None and (not isinstance(value, str) or not value.strip()):
            self.refuse(f"/{at}/serverId", "serverId to be a string that is not empty", value, "serverId")
        return value

    def limit(self, at: int, most: int) -> int:
        """Return how many are asked for: at least 1, and ``most`` where it is more or not said."""
        value = self._options(at).get("limit")
        if value is None:
            return most
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or value < 1 or value != value // 1:
            self.refuse(f"/{at}/limit", f"limit to be an integer from 1 to {most}", value, "limit")
        return min(int(value), most)

    def refuse(self, pointer: str, expected: str, value: Any, name: str = "") -> NoReturn:
        """Raise `CodeModeToolError` for an argument, with the reason "validation"."""
        received = _shown(value)
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

    def _at(self, at: int) -> Any:
        return self._given[at] if at < len(self._given) else None

    def _options(self, at: int) -> Mapping[str, Any]:
        value = self._at(at)
        if value is None:
            return {}
        if not is_mapping(value):
            self.refuse(f"/{at}", "options to be an object", value, "options")
        return value


def _shown(value: Any) -> str:
    """Return the type of a value, and of a short one the value."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return repr(value[:_MAX_SHOWN])
    if isinstance(value, bool | float) or (isinstance(value, int) and value.bit_length() <= _MAX_SHOWN):
        return str(value).lower()
    return f"an {json_type(value)}" if json_type(value)[0] in "ao" else f"a {json_type(value)}"


# A server is found by its path or by the host's own id for it, a tool by its name or by that of its export.

MAX_FOUND = 50
MAX_ANSWER_CHARACTERS = 4_000_000

_MAX_NAME_CHARACTERS = 100
_LOOKED_AT = 16  # tools that a search at least puts in order again
_MORE = 2  # times as many are looked at as are asked for, again where most are the same tools
_OF_SERVER = 0.5  # what the best server adds to the score of its tools, as a part of it: benchmarks/finding.py
_WORD = re.compile("[a-z0-9]+")
_COMPARED = 64  # names of parameters, to know a tool again
_NOTHING: dict[str, Any] = {"not": {}}
_Servers = Sequence[ListedServer]
_Place = tuple[ListedServer, ModuleTool]
_Places = Sequence[_Place]


def search_index(servers: _Servers, before: ToolIndex | None = None) -> ToolIndex:
    """Return what `answer` searches for these servers. Of what ``before`` has, nothing is indexed again."""
    named = ((one.tool.name, one.tool) for server in servers for one in server.tools)
    return ToolIndex(named) if before is None else before.updated(named)


def answer(servers: _Servers, index: ToolIndex, name: str, argument: Any) -> Any:
    """Return what a function of discovery gives for a list of arguments, as plain JSON.

    ``index`` is what `search_index` made of the same servers. Raises `CodeModeToolError` with the reason "validation",
    "unknown_server" or "unknown_tool", or "limit" for an answer that is too large; ``details["hint"]`` says what to do.
    Work for a thread.
    """
    ask = _ANSWERS.get(name)
    given = Arguments(name, argument)
    if ask is None:
        given.refuse("", f"one of {', '.join(_ANSWERS)}", name)
    return ask(servers, index, given)


def find_server(servers: _Servers, server_id: str) -> ListedServer:
    """Return the server of this path, or that the host calls so. Raises `CodeModeToolError`, "unknown_server"."""
    path = server_id.removeprefix(SERVERS)
    found = next((one for one in servers if one.path == path), None)
    found = found or next((one for one in servers if one.server_id == server_id), None)
    if found is None:
        raise unknown_server(servers, server_id)
    return found


def unknown_server(servers: _Servers, server_id: str) -> CodeModeToolError:
    """Return the error for an id that is no server's, with the nearest that are."""
    shown = server_id.removeprefix(SERVERS)[:_MAX_NAME_CHARACTERS]
    near = nearest_names(shown.lower(), [one.path for one in servers])
    said = f" Did you mean {_either(near)}?" if near else "" if servers else " There are no servers here."
    hint = (
        f'Use "{near[0]}".' if near else "Take a serverId from listServers()." if servers else "Go on without servers."
    )
    return _unknown("unknown_server", f'There is no server "{shown}".{said}', server_id=shown, nearest=near, hint=hint)


def find_tool(servers: _Servers, server: ListedServer, name: str) -> ModuleTool:
    """Return a tool by its name, or by that of its export. Raises `CodeModeToolError`, "unknown_tool"."""
    found = _named(server, name)
    if found is None:
        raise unknown_tool(servers, server, name)
    return found


def unknown_tool(servers: _Servers, server: ListedServer, name: str) -> CodeModeToolError:
    """Return the error for a name that a server has not, with the nearest that it has, or the server that has it."""
    shown = name[:_MAX_NAME_CHARACTERS]
    near = nearest_names(
        shown, dict.fromkeys(known for one in server.tools for known in (one.tool_name, one.export_name))
    )
    elsewhere = next((one.path for one in servers if one is not server and _named(one, name)), None)
    said = f" Did you mean {_either(near)}?" if near else ""
    hint = f'Use "{near[0][:_MAX_NAME_CHARACTERS]}".' if near else "Find tools by what they do with searchTools."
    if elsewhere is not None:
        said, hint = f' Server "{elsewhere}" has a tool of that name.', f'Use the server "{elsewhere}".'
    message = f'Server "{server.path}" has no tool "{shown}"{server.why_left_out(shown)}.{said}'
    return _unknown("unknown_tool", message, server_id=server.path, tool_name=shown, nearest=near, hint=hint)


def _named(server: ListedServer, name: str) -> ModuleTool | None:
    by_name = (one for one in server.tools if one.tool_name == name)
    return next(by_name, None) or next((one for one in server.tools if one.export_name == name), None)


def _list_servers(servers: _Servers, _index: ToolIndex, _given: Arguments) -> Any:
    return [_info(one) for one in servers]


def _describe_server(servers: _Servers, _index: ToolIndex, given: Arguments) -> Any:
    server, detail = find_server(servers, given.text(0, "serverId")), given.detail(1, "full")
    said = _info(server)
    if detail != "name":
        said |= _there({"description": server.description, "version": server.version})
        said |= {"leftOut": [*server.left_out]} if server.left_out else {}
    if detail == "full":
        said["declaration"] = declare_in(server)
    return said


def _list_tools(servers: _Servers, _index: ToolIndex, given: Arguments) -> Any:
    server, detail = find_server(servers, given.text(0, "serverId")), given.detail(1, "description")
    return _all_of("listTools", [(server, one) for one in server.tools], detail)


def _get_tool(servers: _Servers, _index: ToolIndex, given: Arguments) -> Any:
    server_id, name, detail = given.text(0, "serverId"), given.text(1, "toolName"), given.detail(2, "full")
    server = find_server(servers, server_id)
    one = find_tool(servers, server, name)
    said = definition(one, detail)
    if detail == "full":
        said["declaration"] = declare_tool(server, one)
    if weigh(said, MAX_ANSWER_CHARACTERS + 1) > MAX_ANSWER_CHARACTERS:
        _too_large("getTool")
    return said


def _search_tools(servers: _Servers, index: ToolIndex, given: Arguments) -> Any:
    query, detail = given.text(0, "query"), given.detail(1, "description")
    limit, chosen = given.limit(1, MAX_FOUND), given.server(1)
    asked = None if chosen is None else find_server(servers, chosen)
    places = [(server, one) for server in servers for one in server.tools]
    among = None if asked is None else {at for at, (server, _) in enumerate(places) if server is asked}
    # A name that is written out is what was meant, whatever its words say elsewhere.
    named = [at for at in _called(servers, query) if among is None or at in among]
    best = _found(places, named, lambda most: index.search(query, most, among), limit)
    best = best if asked else _first_listed(servers, best, query)
    also = {} if asked else _also_in(servers, best)
    results = _all_of("searchTools", best, detail)
    return {
        "query": query,
        "results": [
            {"serverId": server.path, **said, **also.get(one.tool.name, {})}
            for (server, one), said in zip(best, results, strict=True)
        ],
    }


def _called(servers: _Servers, name: str) -> Iterator[int]:
    """Yield the places of the tools that are called so."""
    before = 0
    for server in servers:
        if name in server.names:
            names = ((one.tool_name, one.export_name, one.tool.name) for one in server.tools)
            yield from (before + at for at, known in enumerate(names) if name in known)
        before += len(server.tools)


def _found(places: _Places, named: Sequence[int], search: Callable[[int], Sequence[Found]], limit: int) -> list[_Place]:
    """Return the tools that a search finds, behind those that were named, each tool of several servers once.

    Who has two accounts, or the same server twice, would else find half as much among the first.
    """
    asked = max(_MORE * limit, _LOOKED_AT)
    while True:
        found = search(asked)
        order = dict.fromkeys((*named, *_by_servers(places, found)))
        best = list(islice(_different(places[at] for at in order), limit))
        if len(best) == limit or len(found) < asked:
            return best
        asked *= _MORE


def _different(found: Iterable[_Place]) -> Iterator[_Place]:
    by_name: dict[str, list[ModuleTool]] = {}
    for place in found:
        alike = by_name.setdefault(place[1].tool_name, [])
        if not any(_is_same(place[1], one) for one in alike):
            alike.append(place[1])
            yield place


def _first_listed(servers: _Servers, best: Sequence[_Place], query: str) -> list[_Place]:
    """Return tools that several servers have under the first of these servers, unless the query names another.

    Whose tool fits best is the servers' own word: one that copies a tool would take the place of the original.
    """
    words = set(_WORD.findall(query.lower()))
    first = list(best)
    for at, (home, one) in enumerate(best):
        for server in servers:
            if server is home or words.issuperset(_WORD.findall(home.path)):
                break
            if one.tool_name in server.names and (other := _named(server, one.tool_name)) and _is_same(other, one):
                first[at] = server, other
                break
    return first


def _by_servers(places: _Places, found: Sequence[Found]) -> list[int]:
    """Return what was found, best first, where a tool counts for more whose server's other tools fit as well."""
    squares: dict[str, float] = {}
    for at, score in found:
        path = places[at][0].path
        squares[path] = squares.get(path, 0.0) + score * score
    sizes = {server.path: len(server.tools) for at, _ in found for server in (places[at][0],)}
    fits = {path: math.sqrt(total / sizes[path]) for path, total in squares.items()}
    most = max(fits.values(), default=0.0) or 1.0
    scores = [(score < 1, -score * (1 + _OF_SERVER * fits[places[at][0].path] / most), at) for at, score in found]
    return [at for _, _, at in sorted(scores)]


def _also_in(servers: _Servers, best: Sequence[_Place]) -> dict[str, dict[str, list[str]]]:
    """Return which other servers have the very same tool, by the tool's qualified name."""
    shown: dict[str, list[_Place]] = {}
    for place in best:
        shown.setdefault(place[1].tool_name, []).append(place)
    also: dict[str, dict[str, list[str]]] = {}
    for server in servers:
        for name in server.names.intersection(shown):
            alike = [one for home, one in shown[name] if home is not server]
            other = _named(server, name) if alike else None
            for one in alike:
                if other is not None and _is_same(other, one):
                    also.setdefault(one.tool.name, {"alsoIn": []})["alsoIn"].append(server.path)
    return also


def _is_same(one: ModuleTool, other: ModuleTool) -> bool:
    """Tell whether two servers have the same tool. One that says nothing of itself is like no other."""
    said, said_of_other = one.tool.description, other.tool.description
    is_named_so = one.tool_name == other.tool_name
    return is_named_so and bool(said) and said == said_of_other and _parameters(one) == _parameters(other)


def _parameters(one: ModuleTool) -> list[Any]:
    return list(islice(mapping_or_empty(mapping_or_empty(one.tool.input_json_schema).get("properties")), _COMPARED))


_ANSWERS: Mapping[str, Callable[[_Servers, ToolIndex, Arguments], Any]] = {
    "listServers": _list_servers,
    "describeServer": _describe_server,
    "listTools": _list_tools,
    "getTool": _get_tool,
    "searchTools": _search_tools,
}


def definition(one: ModuleTool, detail: str) -> dict[str, Any]:
    """Return what is told of a tool: ``detail`` is "name", "description" or "full"."""
    said: dict[str, Any] = {"toolName": one.tool_name, "exportName": one.export_name}
    if detail == "name":
        return said
    annotations = _plain(dict(one.tool.annotations)) or None
    said |= _there({"description": one.tool.description or None, "annotations": annotations})
    if detail == "full":
        tool = one.tool
        said |= _there({"inputSchema": _plain(tool.input_json_schema), "outputSchema": _plain(tool.output_json_schema)})
    return said


def _all_of(function: str, tools: Iterable[tuple[ListedServer, ModuleTool]], detail: str) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = []
    room = MAX_ANSWER_CHARACTERS
    for _, one in tools:
        told = definition(one, detail)
        if detail != "name":
            weight = weigh(told, room + 1)
            room -= weight
            if room < 0:
                _too_large(function)
        said.append(told)
    return said


def _too_large(function: str) -> NoReturn:
    hint = 'Ask with the detail "name", or for one tool with getTool(serverId, toolName).'
    message = f"The answer of {function} would be longer than {MAX_ANSWER_CHARACTERS} characters. {hint}"
    details = {"limit": "answer_characters", "max": MAX_ANSWER_CHARACTERS, "hint": hint}
    error = CodeModeToolError(message, details=details)
    error.reason = "limit"
    raise error


def _info(server: ListedServer) -> dict[str, Any]:
    said: dict[str, Any] = {"serverId": server.path, "serverName": server.name}
    return said | ({"capabilities": list(server.capabilities)} if server.capabilities else {})


def _there(said: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in said.items() if value is not None}


def _plain(schema: Any) -> dict[str, Any] | None:
    """Return a schema as a JSON object. Of one that is none, as with a default of Python's own, nothing is told."""
    if schema is None:
        return None
    if isinstance(schema, bool):
        return {} if schema else _NOTHING
    try:
        return decode_json(encode_json(schema, what="a schema"))
    except (CodeModeSerializationError, ValueError):
        return {}


def _either(names: Sequence[str]) -> str:
    return " or ".join(f'"{name[:_MAX_NAME_CHARACTERS]}"' for name in names)


def _unknown(reason: str, message: str, **details: Any) -> CodeModeToolError:
    error = CodeModeToolError(message, details=details)
    error.reason = reason
    return error
