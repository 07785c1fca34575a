"""The tools that public MCP servers list, as many as are wanted: repeated under other names."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import sys
from pathlib import Path
from typing import Any

from codemode import Tool, ToolSource, create_exec_wait_tools

SAMPLE = Path(__file__).parents[1] / "data" / "mcp_tools_sample.json"


def many_tools(count: int) -> list[Tool]:
    """Return so many tools; each gives its own name and what it was given."""
    servers = json.loads(SAMPLE.read_text(encoding="utf-8"))["servers"].values()
    told = itertools.islice(itertools.cycle([one for tools in servers for one in tools]), count)
    return [
        _tool(f"{one['name']}_{at}" if at >= 100 else one["name"] + f"_{at:02}", one) for at, one in enumerate(told)
    ]


def _tool(name: str, said: dict[str, Any]) -> Tool:
    return Tool(
        name,
        execute=lambda value, _: {"name": name, "given": value},
        description=said.get("description") or "",
        input_schema=said.get("inputSchema"),
        output_schema=None,
        annotations=said.get("annotations"),
    )


def digest(seed: str) -> str:
    """Return a digest of all that a model and a program are told of 1,002 tools, given in an order of this seed."""
    tools = many_tools(1_002)
    random.Random(seed).shuffle(tools)
    whole = create_exec_wait_tools([ToolSource(tools[:500]), ToolSource(tools[500:])])
    found = whole.catalog.answer_query("search", ["create an issue in a repository", {"limit": 50}])
    told = [
        whole.exec.description,
        *whole.catalog.entries_text_and_omitted_count,
        whole.catalog.ids_by_name_json,
        [one["id"] for one in found],
    ]
    return hashlib.sha256(json.dumps([told, dict(whole.catalog.catalog_digest_data)]).encode()).hexdigest()


if __name__ == "__main__":
    print(digest(sys.argv[1]))
