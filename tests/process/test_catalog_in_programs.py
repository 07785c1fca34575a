"""The catalog as programs see it: `tools.$search` and `tools.$describe`."""

from __future__ import annotations

import pytest

from codemode import CodeModeToolError, Tool
from codemode.tools.catalog import Catalog


async def echo(value):
    return value


ECHO = Tool("echo", execute=echo)
OBJECT_SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"default": 5}}, "required": ["a"]}


def test_the_catalog_can_be_searched_and_asked(run):
    weather = Tool("get_weather", execute=echo, description="Current weather for a city.", input_schema=OBJECT_SCHEMA)
    js = "return [await tools.$search('weather'), await tools.$describe('get_weather'), await tools.$search('nothing')]"
    found, described, nothing = run(js, [weather, ECHO])
    assert found == [{"name": "get_weather", "description": "Current weather for a city."}]
    assert "get_weather(" in described
    assert "a: number" in described
    assert nothing == []


@pytest.mark.parametrize(
    "js", ["tools.$describe('nope')", "tools.$describe(3)", "tools.$search()", "tools.$search({a: 1})"]
)
def test_a_wrong_question_to_the_catalog_is_a_tool_error(run, fails, js):
    fails(CodeModeToolError, f"await {js}", [ECHO])
    assert run(f"try {{ await {js} }} catch (e) {{ return e.name }}", [ECHO]) == "CodeModeToolError"


def test_a_catalog_that_fails_hides_what_it_raised(run, monkeypatch):
    def broken(*_given):
        raise RuntimeError("/secret/path")

    monkeypatch.setattr(Catalog, "search", broken)
    js = "try { await tools.$search('x') } catch (e) { return [e.name, e.message, e.code] }"
    assert run(js, [ECHO]) == ["Error", "the call failed", "CODE_MODE_HOST_BRIDGE_ERROR"]
