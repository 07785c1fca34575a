"""What getTool knows without asking: all definitions where they are small, else those that stand in the script."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from codemode import CodeCallToolset, Tool, create_code_call_tools

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}


def tools_of(count: int, characters: int = 10, **options: Any) -> CodeCallToolset:
    made = [
        Tool(
            f"tool_{at}",
            execute=None,
            description="d" * characters,
            input_schema=SCHEMA,
            output_schema={"type": "null"},
        )
        for at in range(count)
    ]
    return create_code_call_tools(made, options)


def result(tools: CodeCallToolset, script: str, **more: Any) -> Any:
    answer = tools.execute_sync({"script": script, **more})
    return answer.get("result", answer)


def test_small_definitions_are_all_known():
    tools = tools_of(100)
    script = "return getTool('tool_' + 99)"
    expected = {"name": "tool_99", "description": "d" * 10, "inputSchema": SCHEMA, "outputSchema": {"type": "null"}}
    assert result(tools, script) == expected
    assert result(tools, "return getTool('no' + 'ne') === undefined")
    assert result(tools, script.replace("99", "1"), allowedTools=["tool_2"]) is None


def test_of_many_those_are_known_that_stand_in_the_script():
    tools = tools_of(400, 400)
    assert result(tools, "return getTool('tool_399').name") == "tool_399"
    assert result(tools, "return getTool('none') === undefined")
    said = result(tools, "return getTool('tool_' + 1)")["error"]["message"]
    assert "tool_1" in said
    assert "stand in the program as text" in said
    # A script that may call few has few definitions.
    assert result(tools, "return getTool('tool_' + 1).name", allowedTools=["tool_1"]) == "tool_1"


def test_a_definition_of_any_size_is_no_trouble():
    large = {"type": "object", "description": "x" * 200_000}
    tools = create_code_call_tools([Tool("large", execute=None, input_schema=large), Tool("small", execute=None)])
    assert result(tools, "return getTool('small').name") == "small"
    assert result(tools, "return getTool('large').inputSchema.description.length") == 200_000
    assert result(tools, "return 1") == 1


def test_the_definitions_that_a_script_names_are_bounded_together():
    large = {"type": "object", "description": "x" * 300_000}
    names = [f"large_{at}" for at in range(6)]
    tools = create_code_call_tools(
        [*(Tool(name, execute=None, input_schema=large) for name in names), Tool("small", execute=None)]
    )
    every = ", ".join(f"() => getTool('{name}')" for name in [*names, "small", "none"])
    tried = "try { return typeof get() } catch (error) { return error.message }"
    said = result(tools, f"return [{every}].map((get) => {{ {tried} }})")
    assert said[:3] == ["object"] * 3
    assert all("large_" in one and "1 MiB together" in one for one in said[3:6])
    assert said[6:] == ["object", "undefined"]
    assert result(tools, "return getTool('large_5').inputSchema.description.length") == 300_000


def named(name: str, value: Any) -> list[Any]:
    return [name, value]


@pytest.mark.parametrize("change", ["x.name = 1", "x.inputSchema.type = 1", "delete x.name", "x.more = 1"])
def test_a_definition_is_frozen(change: str):
    answer = tools_of(1).execute_sync({"script": f"const x = getTool('tool_0'); {change}"})
    assert (answer["status"], answer["error"]["name"]) == ("runtime_error", "TypeError")


def test_a_namespace_is_no_global_of_the_engine_and_no_name_of_the_script():
    names = ["Math.floor", "shop.echo", "local.echo", "a.b.c", "process.exit"]
    tools = create_code_call_tools([Tool(name, execute=partial(named, name)) for name in names])
    assert result(tools, "return Math.floor(1.5)") == 1
    assert result(tools, "return await callTool('Math.floor', 1)") == ["Math.floor", 1]
    assert result(tools, "return await shop.echo(1)") == ["shop.echo", 1]
    assert result(tools, "const local = { echo: () => 'own' }; return await local.echo(1)") == "own"
    assert result(tools, "return await a.b.c(2)") == ["a.b.c", 2]
    assert tools.execute_sync({"script": "return await process.exit(1)"})["status"] == "illegal_access"
    assert result(tools, "return typeof other", allowedTools=[]) == "undefined"


@pytest.mark.parametrize("name", ["shop.echo", "dol$lar.echo", "поиск.файл", "a.b.c", "async.x", "_.y"])
def test_a_namespace_is_the_same_call_as_by_name(name: str):
    tools = create_code_call_tools([Tool(name, execute=partial(named, name)), Tool("other", execute=None)])
    assert result(tools, f"return await {name}(1)") == [name, 1]
    for allowed in ([], ["other"]):
        said = [
            tools.execute_sync({"script": script, "allowedTools": allowed})
            for script in (f"return await {name}(1)", f"const tool = '{name}'; return await callTool(tool, 1)")
        ]
        assert said[0] == said[1]
        assert said[0]["error"]["code"] == "ACCESS_DENIED"


def test_what_a_tool_gives_is_in_the_answer_even_when_it_is_nothing():
    tools = create_code_call_tools([Tool("nothing", execute=lambda _input, _context: None)])
    script = "return await callTool('nothing', {}, { throwOnError: false })"
    assert result(tools, script) == {"success": True, "data": None}
