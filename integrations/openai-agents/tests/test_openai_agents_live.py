"""Calls of programs as stream events of the SDK, while the program runs."""

from __future__ import annotations

import asyncio
from typing import Any

from agents import Runner, function_tool
from codemode_openai_agents import code_mode, stream_events
from scripted_model import QUIET, Script, agent, program

JS = "const n = await tools.stock({ product: 'nut' }); return n + await tools.stock({ product: 'bolt' });"


class Desk:
    """A tool whose second call waits until somebody has seen the first end."""

    def __init__(self) -> None:
        self.seen = asyncio.Event()

        @function_tool
        async def stock(product: str) -> int:
            """How many of a product there are."""
            if product == "bolt":
                await asyncio.wait_for(self.seen.wait(), 60)
            return 7

        self.stock = stock

    def note(self, event: Any) -> tuple[str, str, Any] | None:
        if getattr(event, "item", None) is None or event.name not in ("tool_called", "tool_output"):
            return None
        item = event.item
        if event.name == "tool_output" and item.agent.name == "codeMode":
            self.seen.set()
        return event.name, item.agent.name, item.tool_name if event.name == "tool_called" else item.output


EXPECTED = [
    ("tool_called", "codeMode", "stock"),
    ("tool_output", "codeMode", 7),
    ("tool_called", "codeMode", "stock"),
    ("tool_output", "codeMode", 7),
]


def test_they_are_among_the_events_of_a_streamed_run() -> None:
    async def main() -> list[Any]:
        desk = Desk()
        made = agent(Script(program(JS), "done"), code_mode([desk.stock]))
        result = Runner.run_streamed(made, "go", run_config=QUIET)
        notes = [desk.note(event) async for event in stream_events(result)]
        assert result.final_output == "done"
        return [one for one in notes if one is not None]

    outer = ("tool_called", "desk", "codeMode"), ("tool_output", "desk", "14")
    assert asyncio.run(main()) == [outer[0], *EXPECTED, outer[1]]


def test_they_are_told_to_on_stream() -> None:
    async def main() -> list[Any]:
        desk = Desk()
        notes: list[Any] = []

        async def on_stream(told: Any) -> None:
            assert told["tool_call"].call_id == "outer-1"
            notes.append(desk.note(told["event"]))

        made = agent(Script(program(JS), "done"), code_mode([desk.stock], on_stream=on_stream))
        await Runner.run(made, "go", run_config=QUIET)
        return notes

    assert asyncio.run(main()) == EXPECTED


def test_a_listener_that_fails_changes_nothing() -> None:
    def broken(_told: Any) -> None:
        raise ValueError("deaf")

    def double(n: int) -> int:
        """Twice a number."""
        return 2 * n

    made = agent(Script(program("return await tools.double({ n: 1 });"), "done"), code_mode([double], on_stream=broken))
    assert asyncio.run(Runner.run(made, "go", run_config=QUIET)).final_output == "done"


def test_what_ends_the_run_is_raised_where_the_events_are_read() -> None:
    @function_tool(failure_error_function=None)
    def broken() -> None:
        """Fail."""
        raise ValueError("broken")

    async def main() -> str:
        made = agent(Script(program("return await tools.broken({});")), code_mode([broken]))
        try:
            async for _ in stream_events(Runner.run_streamed(made, "go", run_config=QUIET)):
                pass
        except Exception as error:
            return str(error)
        return "nothing"

    assert "broken" in asyncio.run(main())


def test_a_call_that_waited_is_told_of_once() -> None:
    @function_tool(needs_approval=True)
    def refund(order: str) -> str:
        """Give money back."""
        return order

    notes: list[Any] = []
    tool = code_mode([refund], on_stream=lambda told: notes.append(told["event"].name))
    made = agent(Script(program("return await tools.refund({ order: 'a' });"), "done"), tool)

    async def main() -> None:
        result = await Runner.run(made, "go", run_config=QUIET)
        state = result.to_state()
        state.approve(state.get_interruptions()[0])
        done = await Runner.run(made, state, run_config=QUIET)
        (call,) = done.new_items[-2].custom_data["codemode"]["calls"]
        assert (call["name"], call["outcome"], call["input"]) == ("refund", "done", {"order": "a"})

    asyncio.run(main())
    assert notes == ["tool_called", "tool_output"]


def test_a_listener_that_never_ends_is_cancelled_with_its_run() -> None:
    def double(n: int) -> int:
        """Twice a number."""
        return 2 * n

    async def main() -> bool:
        listening = asyncio.Event()

        async def on_stream(_told: Any) -> None:
            listening.set()
            await asyncio.Event().wait()

        script = Script(program("return await tools.double({ n: 1 });"), "done")
        running = asyncio.ensure_future(
            Runner.run(agent(script, code_mode([double], on_stream=on_stream)), "go", run_config=QUIET)
        )
        await asyncio.wait_for(listening.wait(), 60)
        running.cancel()
        await asyncio.wait([running], timeout=60)
        return running.cancelled()

    assert asyncio.run(main())


def test_a_long_input_is_not_listed() -> None:
    def count(text: str) -> int:
        """Count characters."""
        return len(text)

    js = "return await tools.count({ text: 'x'.repeat(5000) }) + await tools.count({ text: 'y' });"
    made = agent(Script(program(js), "done"), code_mode([count]))
    result = asyncio.run(Runner.run(made, "go", run_config=QUIET))
    item: Any = result.new_items[-2]
    assert [one.get("input") for one in item.custom_data["codemode"]["calls"]] == [None, {"text": "y"}]
