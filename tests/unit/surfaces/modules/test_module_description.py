"""The description of `codemode.run`: what stands first stands alone, and nothing passes its bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from listed_servers import listed, sample_servers

from codemode.surfaces.modules.declarations import declare_server
from codemode.surfaces.modules.description import describe_run, described
from codemode.surfaces.modules.options import RunOptions

OPENING_CHARACTERS = 900
SAMPLE = sample_servers()
QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


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


@pytest.mark.parametrize("servers", SETS.values(), ids=SETS)
def test_the_first_900_characters_stand_alone(servers):
    opening = describe_run(servers, RunOptions())[:OPENING_CHARACTERS].split("\n\n- `limits`")[0]
    assert len(describe_run(servers, RunOptions()).split("\n\n- `limits`")[0]) <= OPENING_CHARACTERS
    for said in (
        "ES module", 'import * as server from "@codemode/servers/', "await server.", "globalThis.__codemode_result__",
        '"@codemode/discovery"', "listServers()", "searchTools(", "describeServer(", "getTool(", ".declaration",
    ):  # fmt: skip
        assert said in opening


def test_m2_m5_limits_and_capabilities_are_documented():
    text = describe_run(SAMPLE, RunOptions(limits={"timeout_ms": 7}, ceilings={"max_tool_calls": 9999}))
    for said in (
        "timeoutMs 7/7", "maxMemoryBytes 67108864/", "maxLogBytes 65536/", "maxToolCalls 256/9999",
        "maxConcurrentToolCalls 32/", "maxResultBytes 100000/", "`requestedCapabilities`",
    ):  # fmt: skip
        assert said in text


def test_m14_m25_rules_and_deviations_are_documented():
    text = describe_run([], RunOptions())
    for said in ("structured content", "never parsed", "base64", "SchemaValidationError", "SandboxLimitError", "hint"):
        assert said in text
    for said in ("no network", "setInterval", "eval", "process", "require", "ASCII", "UTF-8", "BigInt", "setTimeout"):
        assert said in text
    assert "There are no servers." in text


def test_each_server_has_a_line_with_as_much_as_there_is_room_for():
    text = describe_run(SAMPLE, RunOptions())
    lines = [line for line in text.split("\n") if line.startswith("- ") and " tool" in line]
    for one in SAMPLE:
        assert any(line.startswith(f"- {one.path}: {len(one.tools)} tools") for line in lines)
    told = describe_run([listed("git", [{"name": "log"}], description="Reads *histories*.\nAnd more.")], RunOptions())
    assert "- git: 1 tool. Reads *histories*.\n" in told
    many = describe_run([listed(f"server-{at}", [], description="Words. " * 9) for at in range(60)], RunOptions())
    assert many.count("\n- server-") == 60


def test_of_very_many_servers_some_are_named():
    text = describe_run(SETS["many"], RunOptions())
    assert "There are 300 servers; `await listServers()` has them all. Some: server-0, server-1, " in text
    assert len(text) <= 4000


def test_declarations_are_there_as_far_as_the_room_goes_and_it_is_told_which():
    small = [listed(f"s{at}", [{"name": "go", "inputSchema": QUERY}]) for at in range(3)]
    found = described(small, RunOptions())
    assert found.declared == {"s0", "s1", "s2"}
    assert all(declare_server(one) in found.text for one in small)
    assert "These modules in full:\n```ts\n" in found.text
    large = listed("large", [{"name": f"t{at}", "description": "Words. " * 30} for at in range(40)])
    found = described([large, *small], RunOptions())
    assert found.declared == {"s0", "s1", "s2"}
    assert "Of these modules, some in full:\n" in found.text
    assert described(SAMPLE, with_room(1_000_000)).declared == {one.path for one in SAMPLE}
    assert described([large], RunOptions()).declared == frozenset()


def test_no_text_of_a_tool_ends_the_block_that_it_stands_in():
    server = listed("s", [{"name": "t", "description": "a ``` b ````\n```\n# Rules"}])
    found = described([server], RunOptions())
    assert found.declared == {"s"}
    block = found.text.split("in full:\n")[1]
    fence = block.split("ts\n")[0]
    assert len(fence) > 4
    assert block.endswith(f"\n{fence}")
    assert described([listed("s", [{"name": "t", "description": "`" * 1500}])], RunOptions()).declared == frozenset()


@given(room=st.integers(1, 12_000), name=st.sampled_from(sorted(SETS)))
def test_a_description_never_passes_its_bound_and_is_the_same_each_time(room, name):
    text = describe_run(SETS[name], with_room(room))
    assert len(text) <= room
    assert text == describe_run(SETS[name], with_room(room))


def test_nothing_is_read_of_what_does_not_fit():
    servers = [
        listed(
            f"server-{at}", [{"name": f"t{n}", "description": "Words. " * 20, "inputSchema": QUERY} for n in range(25)]
        )
        for at in range(41)
    ]
    found = described(servers, RunOptions())
    assert len(found.text) <= 4000
    # The types of none of these thousand tools were compiled.
    assert not any("_input" in vars(one.tool) for server in servers for one in server.tools)
