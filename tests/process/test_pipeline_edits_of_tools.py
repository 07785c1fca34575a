"""A tool that itself asks a person and lets them edit its input: the pipeline judges what goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from codemode import CodeModeToolError, Tool, ToolCallContext, create_code_mode_tool, request_interrupt

WAIT_SECONDS = 60.0
SCHEMA = {
    "type": "object",
    "properties": {"cents": {"type": "integer"}},
    "required": ["cents"],
    "additionalProperties": False,
}


async def resumed(edited: Any, pipeline: dict[str, Any] | None) -> tuple[Any, list[Any]]:
    ran: list[Any] = []

    async def refund(value: Any, context: ToolCallContext) -> str:
        if context.interrupt is None:
            request_interrupt({"kind": "desk"})
        await context.require_allowed(context.interrupt.resolution)
        ran.append(context.interrupt.resolution)
        return "refunded"

    options = {} if pipeline is None else {"pipeline": pipeline}
    tool = create_code_mode_tool([Tool("refund", execute=refund, input_schema=SCHEMA)], options)
    js = "try { return await tools.refund({ cents: 5 }) } catch (error) { return error.message }"
    paused = await tool.execute({"js": js})
    return await tool.resume(paused, edited), ran


def within(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, WAIT_SECONDS))


def at_most_100(call: Any) -> None:
    if call.input["cents"] > 100:
        raise CodeModeToolError("too much")


@pytest.mark.parametrize(
    ("edited", "before", "said"),
    [
        ({"cents": 7}, at_most_100, "refunded"),
        ({"cents": 700}, at_most_100, "too much"),
        ({"cents": "secret"}, at_most_100, "Invalid input"),
        ({"cents": 7}, lambda call: {"cents": 6} if call.input["cents"] == 7 else None, "would not run it unchanged"),
        ({"cents": 7}, lambda call: {}[call.input["cents"]] if call.input["cents"] == 7 else None, "failed"),
    ],
)
def test_what_a_tool_was_edited_into_meets_the_pipeline(edited: Any, before: Any, said: str):
    answer, ran = within(resumed(edited, {"before": before}))
    assert said in answer
    assert "secret" not in answer
    assert ran == ([edited] if said == "refunded" else [])


def test_after_hears_of_the_input_that_ran():
    heard: list[Any] = []
    pipeline = {"after": lambda call, output: heard.append((call.input, output))}
    assert within(resumed({"cents": 7}, pipeline)) == ("refunded", [{"cents": 7}])
    assert heard == [({"cents": 7}, "refunded")]


def test_without_a_pipeline_nothing_is_refused():
    assert within(resumed({"cents": 700}, None)) == ("refunded", [{"cents": 700}])
