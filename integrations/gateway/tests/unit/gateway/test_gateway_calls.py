"""The one tool as clients see it, in both eras: its list, its names, its answers, its progress, its log."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from codemode_gateway import Gateway, GatewayConfig, GatewayOptions, GatewaySettings
from codemode_gateway.gateway.container import should_learn_schemas
from gateway_clients import ERAS, Era, client_of, gateway_over
from mcp import MCPError
from suite import each_row

from codemode import ModuleServer, Tool, tool

BOUND = 60.0


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


SUMS = ModuleServer("sums", [add])


def program(expression: str, imports: str = 'import { add } from "@codemode/servers/sums"') -> dict[str, str]:
    return {"code": f"{imports};\nglobalThis.__codemode_result__ = {expression};"}


def text_of(result: Any) -> Any:
    return json.loads(result.content[0].text)


def run(folder: Path, era: Era, use: Any, servers: Any = (SUMS,), **settings: Any) -> Any:
    async def main() -> Any:
        async with gateway_over(servers, folder, **settings) as gateway, client_of(gateway, era) as client:
            return await asyncio.wait_for(use(client, gateway), BOUND)

    return asyncio.run(main())


@pytest.mark.parametrize("era", ERAS)
def test_there_is_one_tool_whose_schema_takes_a_program_or_the_id_of_one_that_waits(tmp_path: Path, era: Era):
    async def use(client: Any, _: Gateway) -> None:
        listed = (await client.list_tools()).tools
        assert [one.name for one in listed] == ["codemode_run"]
        schema = listed[0].input_schema
        assert {"code", "resume", "limits", "requestedCapabilities"} == set(schema["properties"])
        assert "required" not in schema
        assert listed[0].output_schema is None
        assert "sums" in listed[0].description
        assert len(listed[0].description) <= 4_000

    run(tmp_path, era, use)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", ["codemode.run", "codemode_run"])
def test_both_names_run_a_program(tmp_path: Path, era: Era, name: str):
    async def use(client: Any, _: Gateway) -> None:
        result = await client.call_tool(name, program("await add({ a: 1, b: 2 })"))
        assert text_of(result)["result"] == result.structured_content["result"] == 3
        assert not result.is_error

    run(tmp_path, era, use)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("output", ["both", "text", "structured"])
def test_the_output_is_the_operators_choice(tmp_path: Path, era: Era, output: Any):
    async def use(client: Any, _: Gateway) -> None:
        result = await client.call_tool("codemode_run", program("1"))
        assert bool(result.content) == (output != "structured")
        assert (result.structured_content is not None) == (output != "text")

    run(tmp_path, era, use, output=output)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("code", "diagnosed"),
    [
        ("throw new Error('no')", "UNCAUGHT_EXCEPTION"),
        ("const (", "SYNTAX_ERROR"),
        ("import 'fs'", "IMPORT_FAILURE"),
        (7, "BAD_REQUEST"),
        (None, "BAD_REQUEST"),
    ],
)
def test_a_program_that_fails_is_a_normal_answer(tmp_path: Path, era: Era, code: Any, diagnosed: str):
    async def use(client: Any, _: Gateway) -> None:
        result = await client.call_tool("codemode_run", {"code": code})
        assert not result.is_error
        assert text_of(result)["diagnostics"][0]["code"] == diagnosed

    run(tmp_path, era, use)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", ["", "run", "codemode__run", "sums", "x" * 100_000, "\ud800\n"])
def test_a_name_that_is_not_the_tools_is_an_error_of_the_protocol(tmp_path: Path, era: Era, name: str):
    async def use(client: Any, _: Gateway) -> None:
        with pytest.raises(MCPError, match="codemode_run") as caught:
            await client.call_tool(name, {})
        assert caught.value.error.code == -32602
        assert len(caught.value.error.message) < 1_000

    if "\ud800" not in name:  # which no client can send
        run(tmp_path, era, use)


def test_a_client_hears_of_every_inner_call(tmp_path: Path):
    async def use(client: Any, _: Gateway) -> None:
        told: list[tuple[float, Any]] = []
        heard = asyncio.Event()

        async def progress(number: float, _total: float | None, message: str | None) -> None:
            told.append((number, message))
            if len(told) == 3:
                heard.set()

        sums = "[await add({ a: 1, b: 1 }), await add({ a: 2, b: 2 }), await add({ a: 3, b: 3 })]"
        await client.call_tool("codemode_run", program(sums), progress_callback=progress)
        await heard.wait()
        assert [number for number, _ in told] == [1.0, 2.0, 3.0]
        assert {message for _, message in told} == {"sums.add"}

    run(tmp_path, "legacy", use)  # the other one has no token within a process


def test_a_call_that_was_told_of_is_not_told_of_again_when_its_program_goes_on(tmp_path: Path):
    async def use(gateway: Gateway) -> None:
        told: list[Any] = []
        heard = asyncio.Event()

        async def progress(_number: float, _total: float | None, message: str | None) -> None:
            told.append(message)
            if message == "sums.take":
                heard.set()

        async def person(_ctx: Any, _params: Any) -> Any:
            return types.ElicitResult(action="accept", content={"decision": "once"})

        sums = program(
            "[await add({ a: 1, b: 1 }), await take({})]", 'import { add, take } from "@codemode/servers/sums"'
        )
        async with client_of(gateway, "legacy", elicitation_callback=person) as client:
            answer = await client.call_tool("codemode_run", sums, progress_callback=progress)
            assert text_of(answer)["result"] == [2, 1]
            await heard.wait()
        assert told.count("sums.add") == 1

    async def main() -> None:
        asks = ModuleServer("sums", [add, Tool("take", execute=lambda _: 1, needs_approval=True)])
        async with gateway_over([asks], tmp_path) as gateway:
            await asyncio.wait_for(use(gateway), BOUND)

    asyncio.run(main())


@each_row(
    "settings, options, is_learned",
    [
        ({}, {}, True),
        ({}, {"over_http": True}, False),
        ({}, {"verifier": object()}, False),
        ({"auth": {"tokens": {}}}, {}, False),
        ({"auth": {"tokens": {}}, "learn": True}, {"over_http": True}, True),
        ({"learn": False}, {}, False),
    ],
)
def test_names_in_results_are_learned_by_default_where_there_is_one_user(settings: Any, options: Any, is_learned: bool):
    config = GatewayConfig(settings=GatewaySettings(**settings))
    assert should_learn_schemas(config, GatewayOptions(**options)) is is_learned


@pytest.mark.parametrize("era", ERAS)
def test_a_cancelled_call_ends_the_program_and_what_runs_for_it(tmp_path: Path, era: Era):
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait(input: Any) -> None:  # noqa: A002
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    slow = ModuleServer("slow", [Tool("wait", execute=wait)])

    async def use(client: Any, gateway: Gateway) -> None:
        waiting = asyncio.create_task(
            client.call_tool("codemode_run", program("await wait()", 'import { wait } from "@codemode/servers/slow"'))
        )
        await begun.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await ended.wait()
        seat = await gateway.get_or_create_workspace()
        while seat.active_runs:  # noqa: ASYNC110 - until its worker is gone as well, which nobody tells of
            await asyncio.sleep(0)

    run(tmp_path, era, use, [slow])


def test_each_call_is_one_line_of_the_log_without_what_went_in_or_out(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async def use(client: Any, _: Gateway) -> None:
        await client.call_tool("codemode_run", program("(await add({ a: 4711, b: 2 }), 'what came out')"))

    with caplog.at_level(logging.INFO, "codemode.mcp"):
        run(tmp_path, "auto", use)
    lines = [json.loads(one.getMessage()) for one in caplog.records if one.getMessage().startswith("{")]
    assert len(lines) == 1
    assert "4711" not in caplog.text
    assert "what came out" not in caplog.text
    said = lines[0]
    assert said["event"] == "call"
    assert said["ended"] == "answered"
    assert said["calls"] == 1
    assert said["codes"] == []
    assert said["principal"] == "local"
    assert said["id"].startswith("gw-")


def test_a_call_is_known_by_an_id_of_the_gateways_own(tmp_path: Path):
    seen: list[str] = []

    async def outer(_: Any, context: Any) -> None:
        seen.append(context.outer_tool_call_id)
        assert context.context.outer_id == context.outer_tool_call_id
        assert context.context.session is not None

    async def use(client: Any, _: Gateway) -> None:
        for _ in range(2):
            await client.call_tool("codemode_run", program("await who()", 'import { who } from "@codemode/servers/w"'))

    run(tmp_path, "auto", use, [ModuleServer("w", [Tool("who", execute=outer)])])
    assert len(set(seen)) == 2
    assert all(one.startswith("gw-") for one in seen)


def test_images_of_a_program_are_shown_to_the_client(tmp_path: Path):
    async def use(client: Any, _: Gateway) -> None:
        shot = "{ shot: { type: 'image', data: 'aGk=', mimeType: 'image/png' } }"
        result = await client.call_tool("codemode_run", program(shot))
        assert [one.type for one in result.content] == ["text", "image"]
        assert result.structured_content is None

    run(tmp_path, "auto", use)
