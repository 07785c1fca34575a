"""What tools cost in every prompt: as JSON definitions, as `codeMode`'s description, behind CodeCall.

Run as ``python -m benchmarks.prompts``. The tools are those of public MCP servers in the tests' data, under numbered
names where there are fewer; a token is taken for four characters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from codemode import Tool, create_code_call_tools, create_code_mode_tool

COUNTS = (10, 100, 1_000)
_DATA = Path(__file__).parents[1] / "tests" / "data" / "mcp_tools_sample.json"
_CHARACTERS_OF_A_TOKEN = 4


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


def _length(tools: Any) -> int:
    shown = [{"name": one.name, "description": one.description, "input_schema": one.input_schema} for one in tools]
    return len(json.dumps(shown, separators=(",", ":"), ensure_ascii=False))


def main() -> None:
    print("| tools | as JSON definitions | as `codeMode` | as CodeCall |\n| --- | --- | --- | --- |")
    for count in COUNTS:
        cells = (f"{length // _CHARACTERS_OF_A_TOKEN:,}" for length in characters(sample(count)))
        print(f"| {count:,} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
