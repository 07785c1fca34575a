"""What tools without an output schema were seen to give, in declarations; what live servers say and learn of tools."""

from __future__ import annotations

from typing import Any

from in_loop import in_loop

from codemode import ModuleServer, Tool, create_modules_tool

ISSUES = {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "number"}}, "required": ["id"]}}


def tool(name: str, schema: Any, *, is_text: bool = False, **more: Any) -> Tool:
    said = {"observed": {"schema": schema, "isText": is_text}}
    return Tool(name, execute=lambda _: None, description="Give some.", metadata=said, **more)


def declared(*tools: Tool) -> str:
    return create_modules_tool([ModuleServer("s", tools)]).declarations("s")


def test_observed_types_are_declared_as_such() -> None:
    text = declared(tool("get", ISSUES), tool("read", ISSUES, is_text=True))
    assert "get(input?: unknown): Promise</* observed */ { id: number }[]>;" in text
    assert "@observed The result type is that of earlier calls; it is not guaranteed." in text
    assert "read(input?: unknown): Promise</* observed */ string>;" in text
    assert "JSON.parse it. It is not guaranteed to be { id: number }[]" in text


def test_what_is_declared_counts_and_what_is_no_observation_is_nothing() -> None:
    plain = declared(Tool("get", execute=lambda _: None, description="Give some."))
    assert "Promise<unknown>" in plain
    for wrong in (None, 1, {}, {"schema": "x"}):
        one = Tool("get", execute=lambda _: None, description="Give some.", metadata={"observed": wrong})
        assert declared(one) == plain
    promised = declared(tool("get", ISSUES, output_schema={"type": "string"}))
    assert "Promise<string>" in promised
    assert "observed" not in promised


def test_an_input_that_looks_like_a_result_is_left_as_it_is() -> None:
    odd = {"type": "object", "properties": {"x": {"const": "): Promise<"}}, "required": ["x"]}
    text = declared(tool("get", ISSUES, input_schema=odd))
    assert 'x: "): Promise<"' in text
    assert "): Promise</* observed */ { id: number }[]>;" in text


class Live:
    """A server whose tools are learned about while it runs."""

    server_id, revision = "live", 0

    def __init__(self) -> None:
        self.learned = 0
        self.notes: Any = ()
        self.lists = 0

    async def tools(self) -> list[Tool]:
        self.lists += 1
        return [tool("get", ISSUES)] if self.learned else [Tool("get", execute=lambda _: 1, description="Give some.")]


CODE = 'import { get } from "@codemode/servers/live"; globalThis.__codemode_result__ = typeof get;'


@in_loop
async def test_what_is_learned_is_declared_from_the_next_run_on_and_is_no_change_of_tools() -> None:
    live = Live()
    run = create_modules_tool([live])
    assert not (await run.execute({"code": CODE}))["diagnostics"]
    assert "Promise<unknown>" in run.declarations("live")
    learns = CODE.replace("typeof get", "await get()")
    execute = Live.tools

    async def learning(self: Live) -> list[Tool]:
        def get(_: Any) -> int:
            self.learned = 1
            return 1

        listed = await execute(self)
        return listed if self.learned else [Tool("get", execute=get, description="Give some.")]

    live.tools = learning.__get__(live)  # type: ignore[method-assign]
    live.revision = 1
    response = await run.execute({"code": learns})
    assert response["result"] == 1
    assert not response["diagnostics"]
    await run.execute({"code": CODE})
    assert "/* observed */ { id: number }[]" in run.declarations("live")
    lists = live.lists
    await run.execute({"code": CODE})
    assert live.lists == lists


@in_loop
async def test_notes_of_a_server_are_told_to_programs_that_import_it() -> None:
    live = Live()
    run = create_modules_tool([live, ModuleServer("other", [])])
    live.notes = ['"get" have changed', 7, "x" * 5000]
    response = await run.execute({"code": CODE})
    told = [one for one in response["diagnostics"] if one["code"] == "TOOLS_CHANGED"]
    assert [one["severity"] for one in told] == ["warning", "warning"]
    assert told[0]["message"] == 'the server "live": "get" have changed'
    assert len(told[1]["message"]) < 2000
    assert response["result"] == "function"
    missing = await run.execute({"code": CODE.replace("get", "gone")})
    assert [one["code"] for one in missing["diagnostics"]].count("TOOLS_CHANGED") == 2
    without = await run.execute({"code": "globalThis.__codemode_result__ = 1;"})
    assert not without["diagnostics"]
    for odd in (7, "text", {"a": 1}):
        live.notes = odd
        assert not (await run.execute({"code": CODE}))["diagnostics"]
