"""Size and cost of what the model reads, for 10, 100 and 1,000 tools: real MCP tool lists, repeated under new names."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from codemode.signatures.declarations import format_tool_declarations
from codemode.surfaces.code_mode.description import describe_code_mode_tool
from codemode.tools.catalog import Catalog

SAMPLE = Path(__file__).parents[1] / "tests" / "data" / "mcp_tools_sample.json"
COUNTS = (10, 100, 1000)
ROUNDS = 5
CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True)
class McpTool:
    name: str
    description: str
    input_json_schema: dict[str, Any]
    output_json_schema: dict[str, Any] | None
    input_examples: tuple[Any, ...] = ()
    annotations: Mapping[str, Any] = field(default_factory=dict[str, Any])


def sample_tools(count: int) -> list[McpTool]:
    """``count`` tools, taken in turn from every server so that small counts are mixed too."""
    servers = json.loads(SAMPLE.read_text(encoding="utf-8"))["servers"]
    longest = max(map(len, servers.values()))
    mixed = [tools[i] for i in range(longest) for tools in servers.values() if i < len(tools)]
    tools = [
        McpTool(
            tool["name"],
            tool.get("description", ""),
            tool["inputSchema"],
            tool.get("outputSchema"),
            annotations=tool.get("annotations") or {},
        )
        for tool in mixed
    ]
    return [replace(tools[i % len(tools)], name=f"{tools[i % len(tools)].name}_{i}") for i in range(count)]


def best_ms(action: Callable[[], object]) -> float:
    """The fastest of some rounds, in milliseconds."""
    times: list[float] = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times) * 1000


def _first_search_ms(tools: Sequence[McpTool]) -> float:
    return best_ms(lambda: Catalog({tool.name: tool for tool in tools}).search("read file"))


def main() -> None:
    """Print one row per number of tools."""
    print(f"{'tools':>6} {'declared':>9} {'~tokens':>8} {'prompt':>7} {'~tokens':>8} {'ms':>8} {'us/tool':>8}", end="")
    print(f" {'index ms':>9} {'search ms':>9}")
    for count in COUNTS:
        tools = sample_tools(count)
        declared, prompt = len(format_tool_declarations(tools)), len(describe_code_mode_tool(tools))
        took_ms = best_ms(lambda tools=tools: format_tool_declarations(tools))
        catalog = Catalog({tool.name: tool for tool in tools})
        catalog.search("warm up")
        search_ms = best_ms(lambda catalog=catalog: catalog.search("list issues of a repository"))
        print(
            f"{count:>6} {declared:>9} {declared // CHARACTERS_PER_TOKEN:>8} {prompt:>7}"
            f" {prompt // CHARACTERS_PER_TOKEN:>8} {took_ms:>8.2f} {took_ms * 1000 / count:>8.0f}"
            f" {_first_search_ms(tools):>9.2f} {search_ms:>9.2f}"
        )


if __name__ == "__main__":
    main()
