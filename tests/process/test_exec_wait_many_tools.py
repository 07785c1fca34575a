"""exec over a thousand tools of public servers: what its description, its programs and its lookups make of them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import many_tools as support
import pytest
from many_tools import digest, many_tools
from suite import each_row
from waiting import until

from codemode import CallContext, Tool, ToolSource, create_exec_wait_tools

COUNT = 1_002


@pytest.fixture(scope="module")
def tools() -> list[Tool]:
    return many_tools(COUNT)


@pytest.fixture
def ran(within, pool):
    def run(code: str, sources: Any, **options: Any) -> Any:
        pair = create_exec_wait_tools(sources, options, pool=pool)

        async def main():
            try:
                return await pair.exec.execute({"code": code}, call=CallContext(conversation_id="s"))
            finally:
                await pair.aclose()

        return within(main())

    return run


def test_a_program_finds_the_right_one_of_a_thousand_and_calls_it(ran, tools):
    code = """const [found] = await tools.search("create a new issue in a GitHub repository");
        const {parameters} = await tools.describe(found.id);
        const given = Object.fromEntries(parameters.required.map((name) => [name, "a"]));
        const by = {id: await tools.call(found.id, given), name: await tools[found.name.replaceAll("-", "_")](given)};
        return [found.id, by.id, by.name, ALL_TOOLS.length, ALL_TOOLS.some(({id}) => id === found.id)]"""
    result = ran(code, tools)
    found, by_id, by_name, count, is_listed = result["value"]
    assert "issue" in found
    assert by_id["name"] == by_name["name"] == found.removeprefix("host:core:")
    assert (count, is_listed) == (COUNT, True)
    assert result["telemetry"]["calledTools"] == [found]


def test_the_description_grows_by_8000_characters_at_the_most_and_never_by_order(tools):
    one = create_exec_wait_tools(tools[:1]).exec.description
    texts = {create_exec_wait_tools(given).exec.description for given in (tools, tools[::-1], tools[7:] + tools[:7])}
    assert len(texts) == 1
    assert len(texts.pop()) - len(one) <= 8_000


@pytest.mark.full
def test_all_that_is_told_is_the_same_in_every_process():
    def elsewhere(seed: str) -> str:
        path = os.pathsep.join([str(Path(support.__file__).parent), *sys.path])
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        command = [sys.executable, support.__file__, seed]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout

    assert elsewhere("1").strip() == digest("2")


def test_all_tools_is_frozen_to_its_leaves_and_parsed_when_it_is_touched(ran, tools):
    code = """const lists = [ALL_TOOLS], entry = ALL_TOOLS[0];
        const change = () => { "use strict"; entry.id = 5; }, empty = () => { ALL_TOOLS.length = 0; };
        for (const one of [change, empty, () => ALL_TOOLS.push(1), () => ALL_TOOLS.sort()]) try { one(); } catch {}
        lists.push(ALL_TOOLS);
        const are = ALL_TOOLS.every(Object.isFrozen) && Object.isFrozen(ALL_TOOLS);
        return [lists[0] === lists[1], are, typeof entry.id, ALL_TOOLS.length, Object.keys(entry)]"""
    is_same, are_frozen, kind, count, keys = ran(code, tools)["value"]
    assert (is_same, are_frozen, kind, count) == (True, True, "string", COUNT)
    assert {*keys} <= {"id", "name", "label", "description", "source", "sourceName"}
    assert ran("return 1", tools, memoryLimitBytes=4 << 20)["value"] == 1


def test_a_list_that_is_too_long_is_cut_and_the_result_says_so(ran):
    tools = [Tool(f"tool_{at:05}", execute=lambda: 1, description="d" * 200) for at in range(6_000)]
    code = """const [found] = await tools.search("tool_05999");
        return [ALL_TOOLS.length, found.id, await tools.call(found.id, {})]"""
    result = ran(code, tools)
    count, found, called = result["value"]
    assert count < 6_000
    assert (found, called) == ("host:core:tool_05999", 1)
    [warning] = result["telemetry"]["warnings"]
    assert f"omits {6_000 - count} tools" in warning
    assert "warnings" not in ran("return 1", tools)["telemetry"]


def test_lookups_take_none_of_the_places_of_calls_and_are_no_calls(within, pool, tools):
    going = asyncio.Event()
    began: list[Any] = []

    async def slow(value: Any) -> Any:
        began.append(value)
        await going.wait()
        return value

    pair = create_exec_wait_tools([Tool("slow", execute=slow), *tools], {"maxPendingToolCalls": 1}, pool=pool)
    code = """const open = tools.slow(1), seen = [];
        for (let at = 0; at < 40; at++) seen.push(tools.search("issue", {limit: 1}), tools.describe("host:core:slow"));
        const all = await Promise.all(seen);
        await yield_control();
        const refused = await tools.slow(2).catch(({name}) => name);
        await yield_control();
        return [all.length, refused, await open]"""

    async def main():
        rest = await pair.exec.execute({"code": code}, call=CallContext(conversation_id="s"))
        await until(lambda: began)
        assert [one["tool"] for one in rest["pendingToolCalls"]] == ["host:core:slow"]
        again = await pair.wait.execute({"runId": rest["runId"]}, call=CallContext(conversation_id="s"))
        assert (again["reason"], len(began)) == ("yield", 1)
        going.set()
        last = await pair.wait.execute({"runId": rest["runId"]}, call=CallContext(conversation_id="s"))
        counts = pair.telemetry
        await pair.aclose()
        return last, counts

    last, counts = within(main())
    assert last["value"] == [80, "CodeModeBridgeLimitError", 1]
    assert last["telemetry"]["calledTools"] == ["host:core:slow"]
    assert (counts["search"], counts["describe"], counts["call"]) == (40, 40, 1)


NAMES = ["search", "describe", "call", "then", "constructor", "toString", "__proto__", "toJSON", "valueOf"]


def test_helpers_and_what_the_language_reads_are_never_replaced(ran):
    own = [Tool(name, execute=lambda: "reached") for name in NAMES]
    code = """const said = [];
        for (const name of Object.keys(tools)) said.push(name);
        said.push(typeof tools.then, tools.constructor === Object, String(tools), JSON.stringify(await tools));
        return [said, await Promise.all(ALL_TOOLS.map(({id}) => tools.call(id)))]"""
    said, reached = ran(code, own)["value"]
    assert said == ["search", "describe", "call", "undefined", True, "[object Object]", "{}"]
    assert reached == ["reached"] * len(NAMES)


def test_a_name_of_two_tools_is_undefined_and_each_is_called_by_its_id(ran):
    tools = [
        Tool(name, execute=lambda value, _, name=name: name)
        for name in ("send-mail", "send_mail", "send mail", "ß", "数")
    ]
    code = """return [typeof tools.send_mail, "send_mail" in tools, await tools["ß"](1), await tools.数(1),
        await tools.call("host:core:send-mail", 1), await tools.call("host:core:send mail", 1)]"""
    assert ran(code, tools)["value"] == ["undefined", False, "ß", "数", "send-mail", "send mail"]


@each_row(
    "given, near",
    [
        ("host:core:send_mial", "host:core:send_mail"),
        ("core:send_mail", "host:core:send_mail"),
        ("send_mail", "host:core:send_mail"),
        ("plugin:core:send_mail", "host:core:send_mail"),
        ("sendmail", "host:core:send_mail"),
        ("HOST:CORE:SEND_MAIL", None),
        ("x" * 100_000, None),
        ("\\ud800", None),
        ("", None),
    ],
)
def test_an_unknown_id_is_a_failure_that_says_what_may_be_meant(ran, given, near):
    tools = [Tool("send_mail", execute=lambda: 1), Tool("read_file", execute=lambda: 1)]
    code = f"""const said = [];
        for (const way of ["call", "describe"])
            await tools[way]("{given}", {{}}).catch(({{name, message}}) => said.push([name, message]));
        return said"""
    said = ran(code, tools)["value"]
    assert [name for name, _ in said] == ["CodeModeToolError"] * 2
    for _, message in said:
        assert "tools.search(query)" in message
        assert len(message) < 600
        if near is not None:
            assert repr(near) in message


@pytest.mark.parametrize("given", ["5", "null", "undefined", "{}", "['host:core:a']", "() => 1", "Symbol('a')"])
def test_what_is_no_id_is_refused(ran, given):
    code = f"const said = []; for (const way of ['call', 'describe']) try {{ await tools[way]({given}) }} catch (error) {{ said.push(error.name) }} return said.length"  # noqa: E501
    assert ran(code, [Tool("a", execute=lambda: 1)])["value"] == 2


def test_ids_are_told_by_source_owner_and_name(ran):
    tools = ToolSource([Tool("a/b:c", execute=lambda: "reached")], source="client", owner="me@home")
    code = "const [one] = ALL_TOOLS; return [one.id, one.sourceName, await tools.call(one.id), await tools.a_b_c()]"
    assert ran(code, tools)["value"] == ["client:me@home:a/b:c", "me@home", "reached", "reached"]
