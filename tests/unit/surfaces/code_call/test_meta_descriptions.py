"""What the model reads of the meta-tools: short, the same for any number of tools, and true of the rules in force."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sample_tools import sample_tools
from suite import each_row, rounds

from codemode import CodeCallToolset, Tool, create_code_call_tools

PRESETS = ["locked_down", "secure", "balanced", "experimental"]


def prompt(tools: CodeCallToolset) -> str:
    said = [{"name": t.name, "description": t.description, "input_schema": t.input_schema} for t in tools.tools]
    return json.dumps(said, separators=(",", ":"))


@each_row("preset", PRESETS)
@each_row("names", ["dotted", "underscore"])
def test_the_prompt_is_short_and_does_not_grow(preset: str, names: str):
    options = {"vm": {"preset": preset}, "names": names, "direct_calls": {"enabled": True}}
    prompts = {prompt(create_code_call_tools(sample_tools(count), options)) for count in (0, 10, rounds(200, 1_000))}
    assert len(prompts) == 1
    assert len(prompts.pop()) <= 4_000


def test_ten_thousand_tools_have_the_same_prompt():
    many = [Tool(f"tool_{at}", execute=None, description=f"Does thing {at}.") for at in range(10_000)]
    assert prompt(create_code_call_tools(many)) == prompt(create_code_call_tools(many[:10]))


def test_any_list_of_banned_names_fits():
    banned = [f"aGlobalOfThisHost{at}" for at in range(500)]
    assert len(prompt(create_code_call_tools([], {"vm": {"disabledGlobals": banned}}))) <= 4_000


def test_everything_that_can_be_said_fits():
    banned = [f"aGlobalOfThisHost{at}" for at in range(500)]
    options = {"vm": {"disabledGlobals": banned}, "sidecar": {"enabled": True}, "direct_calls": {"enabled": True}}
    assert len(prompt(create_code_call_tools([], options))) <= 4_000


def test_the_clock_is_the_one_in_force():
    wall = {"settings": {"execution_policy": {"timeout_includes_tools": True}}}
    told = [create_code_call_tools([], options).tools[2].description for options in ({}, wall)]
    assert ["time in tools not counted" in one for one in told] == [True, False]


def description(preset: str = "secure", **vm: Any) -> str:
    tools = create_code_call_tools([], {"vm": {"preset": preset, **vm}})
    return next(tool.description for tool in tools.tools if tool.name == "codecall.execute")


@pytest.mark.parametrize("preset", PRESETS)
def test_the_rules_are_those_of_the_preset(preset: str):
    text = description(preset)
    has_loops, has_console = preset in ("balanced", "experimental"), preset != "locked_down"
    assert ("No loops" in text) is not has_loops
    assert ("There is no `console`" in text) is not has_console
    assert "eval, Function, AsyncFunction" in text
    assert ("setTimeout" in text) is not has_loops
    assert "fetch" in text or preset == "experimental"


def test_the_rules_are_those_that_are_overridden():
    text = description(allowLoops=True, disabledGlobals=["WeakRef"], maxSteps=17, timeoutMs=1234, allowConsole=False)
    for said in ("Loops are allowed", "WeakRef", "17 calls", "1234 ms", "There is no `console`"):
        assert said in text
    assert "setTimeout" not in text
    assert "There is no `console`" in description(disabledGlobals=["console"])


@pytest.mark.parametrize(("policy", "most"), [({}, 32), ({"max_in_flight_bridge_requests": 5}, 5)])
def test_how_many_calls_may_be_made_at_once_is_said(policy: dict[str, int], most: int):
    tools = create_code_call_tools([], {"settings": {"execution_policy": policy}})
    assert f"`Promise.all` runs several at once, at most {most}." in tools.tools[2].description


def test_meta_tools_are_tools():
    tools = create_code_call_tools([Tool("echo", execute=None)], {"direct_calls": {"enabled": True}})
    for tool in tools.tools:
        assert isinstance(tool, Tool)
        assert tool.input_schema["type"] == tool.output_schema["type"] == "object"
        assert callable(tool.execute)
        assert tool.description
    assert [tool.annotations["readOnlyHint"] for tool in tools.tools] == [True, True, False, False]
    assert tools.tools is tools.tools
