"""What tools cost in every prompt: as JSON definitions, as `codeMode`'s description, by CodeCall, exec and modules.

Run as ``python -m benchmarks.prompts``. The tools are those of public MCP servers in the tests' data, under numbered
names where there are fewer; a token is taken for four characters. Of modules it also says what looking up the
declarations of one server adds: of the server with the longest, and on average.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from codemode import Tool, create_code_call_tools, create_code_mode_tool, create_exec_wait_tools
from codemode.schemas.json_schemas import repair_schema
from codemode.surfaces.modules.declarations import declare_server_within
from codemode.surfaces.modules.description import describe_run_tool
from codemode.surfaces.modules.module_tools import ListedServer, ModuleTool
from codemode.surfaces.modules.options import RunOptions
from codemode.tools.prepared import prepare_tool

COUNTS = (1, 10, 100, 1_000, 1_002)
MANY_SERVERS, MANY_TOOLS = 41, 1_002
_DATA = Path(__file__).parents[1] / "tests" / "data" / "mcp_tools_sample.json"
CHARACTERS_OF_A_TOKEN = 4


def sample(count: int) -> list[Tool]:
    servers: dict[str, list[dict[str, Any]]] = json.loads(_DATA.read_text(encoding="utf-8"))["servers"]
    said = list({one["name"]: one for tools in servers.values() for one in tools}.values())
    return [
        Tool(
            said[at % len(said)]["name"] + (f"_{at // len(said)}" if at >= len(said) else ""),
            execute=None,
            description=said[at % len(said)].get("description") or "",
            input_schema=said[at % len(said)].get("inputSchema"),
        )
        for at in range(count)
    ]


def characters(tools: list[Tool]) -> Iterator[int]:
    yield _length(tools)
    code_mode = create_code_mode_tool(tools)
    shown = {"name": code_mode.name, "description": code_mode.description, "input_schema": code_mode.input_schema}
    yield len(json.dumps(shown, separators=(",", ":"), ensure_ascii=False))
    yield _length(create_code_call_tools(tools).tools)
    pair = create_exec_wait_tools(tools)
    yield _length([pair.exec, pair.wait])


def servers_of_the_sample() -> list[ListedServer]:
    """The servers as they are, each a module."""
    said: dict[str, list[dict[str, Any]]] = json.loads(_DATA.read_text(encoding="utf-8"))["servers"]
    return [_server(f"server-{at}", tools) for at, tools in enumerate(said.values())]


def many_servers() -> list[ListedServer]:
    """So many servers of 1 to 48 tools."""
    tools = _tools_without_end()
    sizes = [1 + at * 47 // (MANY_SERVERS - 1) for at in range(MANY_SERVERS)]
    sizes[-1] += MANY_TOOLS - sum(sizes)
    return [_server(f"server-{at}", list(islice(tools, size))) for at, size in enumerate(sizes)]


def _tools_without_end() -> Iterator[dict[str, Any]]:
    said: dict[str, list[dict[str, Any]]] = json.loads(_DATA.read_text(encoding="utf-8"))["servers"]
    at = 0
    while True:
        for tools in said.values():
            yield from ({**one, "name": f"{one['name']}_{at}"} for one in tools)
        at += 1


def _server(path: str, tools: Sequence[dict[str, Any]]) -> ListedServer:
    made: list[ModuleTool] = []
    for one in tools:
        tool = Tool(
            f"{path}.{one['name']}",
            execute=None,
            description=one.get("description") or "",
            input_schema=repair_schema(one.get("inputSchema"))[0],
            output_schema=repair_schema(one.get("outputSchema"))[0],
            annotations=one.get("annotations"),
        )
        made.append(ModuleTool(one["name"], one["name"].replace("-", "_"), prepare_tool(tool)))
    return ListedServer(path, path, path, None, None, (), tuple(made))


def characters_of_modules(servers: Sequence[ListedServer]) -> tuple[int, int, int, int]:
    """As definitions, as the description, the longest declarations of a server, and those of one on average."""
    definitions = len(direct_listing(servers))
    looked_up = [len(declare_server_within(server)) for server in servers]
    shown = len(describe_run_tool(servers, RunOptions()).text)
    return definitions, shown, max(looked_up), sum(looked_up) // len(looked_up)


def direct_listing(servers: Sequence[ListedServer]) -> str:
    """All tools of servers as JSON definitions."""
    return _definitions([one.tool for server in servers for one in server.tools], schema="input_json_schema")


def _length(tools: Any) -> int:
    return len(_definitions(tools, schema="input_schema"))


def _definitions(tools: Any, schema: str) -> str:
    shown = [{"name": one.name, "description": one.description, "input_schema": getattr(one, schema)} for one in tools]
    return json.dumps(shown, separators=(",", ":"), ensure_ascii=False)


def main() -> None:
    print("| tools | as JSON definitions | as `codeMode` | as CodeCall | as exec and wait |")
    print("| --- | --- | --- | --- | --- |")
    for count in COUNTS:
        cells = (f"{length // CHARACTERS_OF_A_TOKEN:,}" for length in characters(sample(count)))
        print(f"| {count:,} | {' | '.join(cells)} |")
    print_modules()


def print_modules() -> None:
    print("\n| as modules | JSON definitions | description | and the longest look-up | and one on average | made in |")
    print("| --- | --- | --- | --- | --- | --- |")
    for servers in (servers_of_the_sample(), many_servers()):
        started = time.perf_counter()
        describe_run_tool(servers, RunOptions())
        took = time.perf_counter() - started
        definitions, shown, longest, average = characters_of_modules(servers)
        count = sum(len(server.tools) for server in servers)
        lengths = (shown, shown + longest, shown + average)
        shares = [f"{length // CHARACTERS_OF_A_TOKEN:,} (1/{definitions / length:.0f})" for length in lengths]
        cells = [f"{definitions // CHARACTERS_OF_A_TOKEN:,}", *shares]
        print(f"| {count:,} of {len(servers)} servers | {' | '.join(cells)} | {took * 1000:.0f} ms |")


if __name__ == "__main__":
    main()
