"""The description of exec: bounded however many tools there are, the same bytes each time."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

from codemode import Tool
from codemode.surfaces.exec_wait.catalog import ExecCatalog
from codemode.surfaces.exec_wait.description import describe_exec
from codemode.surfaces.exec_wait.options import ExecWaitOptions
from codemode.surfaces.exec_wait.program_run import UsageCounts
from codemode.surfaces.exec_wait.sources import ToolSource, collect_non_server_entries

OPTIONS = ExecWaitOptions()
SAMPLE_FILE = Path(__file__).parents[3] / "data" / "mcp_tools_sample.json"
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


def tools(count: int) -> list[Tool]:
    return [
        Tool(
            f"tool_{at}",
            execute=lambda value, _: value,
            description=f"Does the thing number {at}. And more.",
            input_schema=SCHEMA,
            output_schema={"type": "string"} if at % 100 == 7 else None,
        )
        for at in range(count)
    ]


def test_a_thousand_tools_take_at_most_8000_characters_more_than_one():
    one = describe_exec(collect_non_server_entries(tools(1)), OPTIONS)
    many = describe_exec(collect_non_server_entries(tools(1_002)), OPTIONS)
    assert len(many) - len(one) <= 8_000
    assert "The catalog has 1002 tools:" in many
    assert "more: find them with `await tools.search(query)`" in many
    assert "and " not in one.rpartition("The catalog has 1 tool:")[2]


def test_signatures_come_first_and_those_with_outputs_before_those_without():
    lines = [
        one
        for one in describe_exec(collect_non_server_entries(tools(300)), OPTIONS).split("\n")
        if one.startswith("- host:")
    ]
    with_output = ["Promise<string>" in one for one in lines]
    assert with_output == sorted(with_output, reverse=True)
    assert sum(with_output) == 3
    assert lines[0] == "- host:core:tool_107(input: { query: string }): Promise<string> - Does the thing number 107."


def test_the_same_tools_in_any_order_give_the_same_bytes():
    texts: set[str] = set()
    for seed in range(4):
        shuffled = tools(50)
        random.Random(seed).shuffle(shuffled)
        half = ToolSource(shuffled[:25], owner="left"), ToolSource(shuffled[25:], owner="left")
        texts.add(describe_exec(collect_non_server_entries(half if seed % 2 else half[::-1]), OPTIONS))
        shuffled_half = sorted(shuffled[:25], key=lambda one: one.name)
        assert describe_exec(collect_non_server_entries(shuffled_half), OPTIONS) == describe_exec(
            collect_non_server_entries(shuffled[:25]), OPTIONS
        )
    assert len(texts) == 1


def test_an_empty_catalog_says_so():
    assert describe_exec((), OPTIONS).endswith("The catalog is empty.")


def sampled(count: int) -> list[Tool]:
    """Tools that public servers list, under other names where they come again."""
    listed = json.loads(SAMPLE_FILE.read_text(encoding="utf-8"))["servers"].values()
    told = itertools.islice(itertools.cycle([one for tools_of_one in listed for one in tools_of_one]), count)
    return [
        Tool(
            f"{one['name']}_{at}",
            execute=lambda value, _: value,
            description=one.get("description") or "",
            input_schema=one.get("inputSchema"),
            output_schema=one.get("outputSchema"),
        )
        for at, one in enumerate(told)
    ]


def test_1002_tools_of_public_servers_are_described_in_8000_characters_and_found_by_search():
    made = sampled(1_002)
    entries = collect_non_server_entries(made)
    text = describe_exec(entries, OPTIONS)
    assert len(text) - len(describe_exec(collect_non_server_entries(made[:1]), OPTIONS)) <= 8_000
    assert text == describe_exec(collect_non_server_entries(made[::-1]), OPTIONS)
    catalog = ExecCatalog(entries, OPTIONS, UsageCounts())
    for one in made[:40:8]:
        found = catalog.answer_query("search", [f"{one.name} {one.description}", {"limit": 8}])
        assert f"host:core:{one.name}" in [tool["id"] for tool in found]
