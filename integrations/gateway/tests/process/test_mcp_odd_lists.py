"""Servers whose lists of tools are odd: programs have the other tools, and the reason for what is left out."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from codemode_gateway import connect
from mcp_servers.configured import of, scripted, scripted_over_http
from suite import full_only
from waiting import within

from codemode import create_modules_tool


def tool(name: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


A, B = tool("a"), tool("b")

# Of each list: its pages, the tools that programs have, and words of what is left out, none for nothing.
LISTS: Mapping[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "overlap": (
        {"first": {"tools": [A, B], "nextCursor": "2"}, "2": {"tools": [B, tool("c")]}},
        ["a", "b", "c"],
        ['"b"', "more than once"],
    ),
    "different": (
        {"first": {"tools": [A, tool("a", description="another")]}},
        ["a"],
        ['"a"', "different definitions"],
    ),
    "cursor-same": (
        {"first": {"tools": [A], "nextCursor": "x"}, "x": {"tools": [B], "nextCursor": "x"}},
        ["a", "b"],
        ["cursor of an earlier page"],
    ),
    "cursor-circle": (
        {
            "first": {"tools": [A], "nextCursor": "x"},
            "x": {"tools": [B], "nextCursor": "y"},
            "y": {"tools": [tool("c")], "nextCursor": "x"},
        },
        ["a", "b", "c"],
        ["cursor of an earlier page"],
    ),
    "cursor-empty": ({"first": {"tools": [A], "nextCursor": ""}, "": {"tools": [B]}}, ["a", "b"], []),
    "cursor-empty-means-the-end": (
        {"first": {"tools": [A], "nextCursor": ""}, "": {"tools": [A], "nextCursor": ""}},
        ["a"],
        [],
    ),
    "cursor-empty-refused": ({"first": {"tools": [A], "nextCursor": ""}}, ["a"], []),
    "cursor-number": ({"first": {"tools": [A], "nextCursor": 2}, "2": {"tools": [B]}}, ["a", "b"], []),
    "cursor-object": ({"first": {"tools": [A], "nextCursor": {"at": 2}}}, ["a"], ["nextCursor that is an object"]),
    "page-refused": ({"first": {"tools": [A], "nextCursor": "gone"}}, ["a"], ["page 2", "no cursor 'gone'"]),
    "entries": (
        {"first": {"tools": [None, A, "x", {"inputSchema": {}}, tool(""), tool(7), tool("b", inputSchema=None)]}},
        ["a", "b"],
        ["entry 1: null", "entry 3: a string", "entry 4, entry 5: it has no name", "entry 6: its name is a number"],
    ),
    "schemas": (
        {"first": {"tools": [{"name": "bare"}, tool("empty", inputSchema=None), tool("array", inputSchema=[])]}},
        ["array", "bare", "empty"],
        ['"array": its inputSchema is an array'],
    ),
    "by-name": ({"first": {"tools": {"a": {"description": "one"}, "b": {}}}}, ["a", "b"], []),
    "names": (
        {"first": {"tools": [A, tool("n" * 600), tool("with space/and:more")]}},
        ["a", "with_space_and_more"],
        ["n" * 50, "no program could call it"],
    ),
}  # fmt: skip


def program(server: str, names: list[str]) -> str:
    imports = ", ".join([*names, "__meta__"])
    calls = ", ".join(f"await {name}({{}})" for name in names)
    return (
        f'import {{ {imports} }} from "@codemode/servers/{server}";\nimport {{ describeServer }} from'
        f' "@codemode/discovery";\nconst told = await describeServer("{server}", {{ detail: "description" }});\n'
        f"globalThis.__codemode_result__ = {{ called: [{calls}], leftOut: told.leftOut ?? [] }};"
    )


def run_over(servers: Any) -> tuple[dict[str, Any], str]:
    async def main() -> tuple[dict[str, Any], str]:
        async with connect(of(*servers)) as connected:
            run = create_modules_tool(connected)
            names = list(LISTS)
            answers = await asyncio.gather(*(run.execute({"code": program(one, LISTS[one][1])}) for one in names))
            return dict(zip(names, answers, strict=True)), run.description

    return within(main())


@pytest.mark.parametrize("transport", ["stdio", *full_only("http")])
def test_programs_have_the_other_tools_and_are_told_what_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, transport: str
):
    scripts = {name: {"pages": pages} for name, (pages, _, _) in LISTS.items()}
    with ExitStack() as serving, caplog.at_level(logging.WARNING):
        files = ((tmp_path / f"{name}.json", script) for name, script in scripts.items())
        over_http = (serving.enter_context(scripted_over_http(*one)) for one in files)
        servers = [scripted(*one) for one in files] if transport == "stdio" else [*over_http]
        answers, description = run_over(servers)
    lines = {line.partition(":")[0].removeprefix("- "): line for line in description.splitlines()}
    for name, (_, names, words) in LISTS.items():
        result = answers[name]["result"]
        assert result is not None, (name, answers[name])
        assert len(result["called"]) == len(names), name
        told = "; ".join(result["leftOut"])
        logged = "; ".join(one.getMessage() for one in caplog.records if f"server {name!r}" in one.getMessage())
        assert bool(told) is bool(words), (name, told)
        for word in words:
            assert word in told, (name, word, told)
            assert word in logged, (name, word, logged)
        assert ("left out of its list" in lines[name]) is bool(words), lines[name]


def test_a_program_that_imports_what_was_left_out_is_told_why(tmp_path: Path):
    async def main() -> Any:
        server = scripted(tmp_path / "odd.json", {"pages": {"first": {"tools": [A, tool("large", x="y" * 300_000)]}}})
        async with connect(of(server)) as connected:
            code = 'import { large } from "@codemode/servers/odd";\nawait large({});'
            return await create_modules_tool(connected).execute({"code": code})

    (problem, *_) = within(main())["diagnostics"]
    assert 'no export "large" (left out of its list: "large": larger than 256 KiB' in problem["message"]


def test_a_list_that_is_none_is_said_so(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async def main() -> Any:
        server = scripted(tmp_path / "odd.json", {"pages": {"first": {"tools": None}}})
        async with connect(of(server)) as connected:
            await connected.upstream("odd").tools()
            return connected.upstream("odd").left_out

    with caplog.at_level(logging.WARNING):
        (note,) = within(main())
    assert note == "a page of the list has no array of tools: tools is null"
    assert note in caplog.text


def test_what_is_left_out_is_known_from_a_kept_list_too(tmp_path: Path):
    async def main() -> tuple[Any, Any]:
        server = of(scripted(tmp_path / "odd.json", {"pages": {"first": {"tools": [A, A]}}}))
        async with connect(server, cache_folder=tmp_path / "lists") as connected:
            await connected.upstream("odd").tools()
        async with connect(server, cache_folder=tmp_path / "lists") as connected:
            return connected.upstream("odd").state, connected.upstream("odd").left_out

    state, left_out = within(main())
    assert state == "stopped"
    assert json.dumps(left_out).count("more than once") == 1
