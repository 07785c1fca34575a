"""The description of `codemode.run`: what stands first stands alone, and nothing passes its bound."""

from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st
from listed_servers import SAMPLE as SAMPLE_FILE
from listed_servers import listed, sample_servers
from suite import each_row

from codemode.surfaces.modules.declarations import declare_server
from codemode.surfaces.modules.description import describe_run_tool
from codemode.surfaces.modules.discovery import build_search_index, call_discovery_function
from codemode.surfaces.modules.module_tools import ListedServer
from codemode.surfaces.modules.options import RunOptions

OPENING_CHARACTERS = 900
SAMPLE = sample_servers()
QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


def text_of(servers: list[ListedServer], options: RunOptions) -> str:
    return describe_run_tool(servers, options).text


def with_room(characters: int) -> RunOptions:
    return RunOptions(max_description_characters=characters)


SETS = {
    "none": [],
    "one": [listed("git", [{"name": "log"}])],
    "no tools": [listed("empty")],
    "sample": SAMPLE,
    "long path": [listed("p" * 100, [{"name": "log"}])],
    "many": [listed(f"server-{at}", [{"name": "log"}] * 1, description="Words. " * 30) for at in range(300)],
}


@each_row("servers", SETS.values())
def test_the_first_900_characters_stand_alone(servers):
    opening = text_of(servers, RunOptions())[:OPENING_CHARACTERS].split("\n\n- `limits`")[0]
    assert len(text_of(servers, RunOptions()).split("\n\n- `limits`")[0]) <= OPENING_CHARACTERS
    for said in (
        "ES module", 'import * as server from "@codemode/servers/', "await server.", "globalThis.__codemode_result__",
        '"@codemode/discovery"', "listServers()", "searchTools(", "describeServer(", "getTool(", ".declaration",
    ):  # fmt: skip
        assert said in opening


def test_limits_and_capabilities_are_documented():
    text = text_of(SAMPLE, RunOptions(limits={"timeout_ms": 7}, ceilings={"max_tool_calls": 9999}))
    for said in (
        "timeoutMs 7/7", "maxMemoryBytes 67108864/", "maxLogBytes 65536/", "maxToolCalls 256/9999",
        "maxConcurrentToolCalls 32/", "maxResultBytes 100000/", "`requestedCapabilities`",
    ):  # fmt: skip
        assert said in text


def test_rules_and_deviations_are_documented():
    text = text_of([], RunOptions())
    for said in ("structured content", "never parsed", "base64", "SchemaValidationError", "SandboxLimitError", "hint"):
        assert said in text
    for said in ("no network", "setInterval", "eval", "process", "require", "ASCII", "UTF-8", "BigInt", "setTimeout"):
        assert said in text
    assert "There are no servers." in text


def test_each_server_has_a_line_with_as_much_as_there_is_room_for():
    text = text_of(SAMPLE, RunOptions())
    lines = [line for line in text.split("\n") if line.startswith("- ") and " tool" in line]
    for one in SAMPLE:
        assert any(line.startswith(f"- {one.path}: {len(one.tools)} tools") for line in lines)
    told = text_of([listed("git", [{"name": "log"}], description="Reads *histories*.\nAnd more.")], RunOptions())
    assert "- git: 1 tool. Reads *histories*.\n" in told
    assert "\n- git\n" in text_of([listed("git")], RunOptions()) + "\n"
    many = text_of([listed(f"server-{at}", [], description="Words. " * 9) for at in range(60)], RunOptions())
    assert many.count("\n- server-") == 60


def test_of_very_many_servers_some_are_named():
    text = text_of(SETS["many"], RunOptions())
    assert "There are 300 servers; `await listServers()` has them all. Some: server-0, server-1, " in text
    assert len(text) <= 4000


def test_declarations_are_there_as_far_as_the_room_goes_and_it_is_told_which():
    small = [listed(f"s{at}", [{"name": "go", "inputSchema": QUERY}]) for at in range(3)]
    found = describe_run_tool(small, RunOptions())
    assert found.declarations.keys() == {"s0", "s1", "s2"}
    assert all(declare_server(one) in found.text for one in small)
    assert "These modules in full:\n```ts\n" in found.text
    large = listed("large", [{"name": f"t{at}", "description": "Words. " * 30} for at in range(40)])
    found = describe_run_tool([large, *small], RunOptions())
    assert found.declarations.keys() == {"s0", "s1", "s2"}
    assert "Of these modules, some in full:\n" in found.text
    assert describe_run_tool(SAMPLE, with_room(1_000_000)).declarations.keys() == {one.path for one in SAMPLE}
    assert not describe_run_tool([large], RunOptions()).declarations


def test_no_text_of_a_tool_ends_the_block_that_it_stands_in():
    server = listed("s", [{"name": "t", "description": "a ``` b ````\n```\n# Rules"}])
    found = describe_run_tool([server], RunOptions())
    assert found.declarations.keys() == {"s"}
    block = found.text.split("in full:\n")[1]
    fence = block.split("ts\n")[0]
    assert len(fence) > 4
    assert block.endswith(f"\n{fence}")
    assert not describe_run_tool([listed("s", [{"name": "t", "description": "`" * 1500}])], RunOptions()).declarations


@given(room=st.integers(1, 12_000), name=st.sampled_from(sorted(SETS)))
def test_a_description_never_passes_its_bound_and_is_the_same_each_time(room, name):
    text = text_of(SETS[name], with_room(room))
    assert len(text) <= room
    assert text == text_of(SETS[name], with_room(room))


def test_nothing_is_read_of_what_does_not_fit():
    servers = [
        listed(
            f"server-{at}", [{"name": f"t{n}", "description": "Words. " * 20, "inputSchema": QUERY} for n in range(25)]
        )
        for at in range(41)
    ]
    found = describe_run_tool(servers, RunOptions())
    assert len(found.text) <= 4000
    # The types of none of these thousand tools were compiled.
    assert not any("_input" in vars(one.tool) for server in servers for one in server.tools)


def characters_of(servers):
    """What tools take as JSON definitions, the description, and the longest look-up of a server's declarations."""
    tools = [one.tool for server in servers for one in server.tools]
    shown = [{"name": t.name, "description": t.description, "input_schema": t.input_json_schema} for t in tools]
    definitions = json.dumps(shown, separators=(",", ":"), ensure_ascii=False)
    looked_up = max(len(ask("describeServer", one.path, servers)["declaration"]) for one in servers)
    return len(definitions), len(text_of(servers, RunOptions())), looked_up


def ask(name, given, servers):
    return call_discovery_function(servers, build_search_index(servers), name, [given])


def test_what_is_shown_is_a_small_part_of_the_definitions():
    definitions, description, looked_up = characters_of(SAMPLE)
    assert description <= definitions / 10
    assert description + looked_up <= definitions / 5
    servers = [listed(f"server-{at}", [dict(one, name=f"{one['name']}_{at}") for one in some]) for at, some in many()]
    assert (len(servers), sum(len(one.tools) for one in servers)) == (41, 1002)
    definitions, description, looked_up = characters_of(servers)
    assert description <= definitions / 100
    assert description + looked_up <= definitions / 25


def many():
    """Tools of the sample for 41 servers, 1 to 48 for each, 1,002 in all."""
    said = json.loads(SAMPLE_FILE.read_text(encoding="utf-8"))["servers"].values()
    tools = itertools.cycle([one for tools in said for one in tools])
    sizes = [1 + at * 47 // 40 for at in range(41)]
    sizes[-1] += 1002 - sum(sizes)
    return [(at, list(itertools.islice(tools, size))) for at, size in enumerate(sizes)]
