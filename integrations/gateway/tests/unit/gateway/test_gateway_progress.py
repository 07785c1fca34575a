"""What a client hears while its program runs: every step, and now and then that it goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
from codemode_gateway.gateway.mcp_server import ProgressReporter
from codemode_gateway.gateway.workspaces import merge_annotations
from hypothesis import given
from hypothesis import strategies as st


class Session:
    def __init__(self) -> None:
        self.told: list[tuple[float, Any]] = []
        self.heard = asyncio.Condition()
        self.fails = False

    async def report_progress(self, number: float, _total: Any, message: str | None) -> None:
        if self.fails:
            raise OSError("gone")
        async with self.heard:
            self.told.append((number, message))
            self.heard.notify_all()

    async def until(self, count: int) -> None:
        async with self.heard:
            await asyncio.wait_for(self.heard.wait_for(lambda: len(self.told) >= count), 60)


def test_steps_are_told_in_order_and_numbers_rise():
    async def main() -> None:
        session = Session()
        async with ProgressReporter(session) as progress:
            for name in "abc":
                progress.queue_message(name)
            await progress("d" * 1_000)
            await session.until(4)
        assert [number for number, _ in session.told] == [1.0, 2.0, 3.0, 4.0]
        assert [message for _, message in session.told] == ["a", "b", "c", "d" * 200]

    asyncio.run(main())


def test_a_client_hears_that_it_goes_on_where_nothing_is_called():
    async def main() -> None:
        session = Session()
        async with ProgressReporter(session, interval_seconds=0.001):
            await session.until(3)
        assert [message for _, message in session.told[:3]] == ["running"] * 3

    asyncio.run(main())


def test_a_client_that_has_gone_ends_nothing():
    async def main() -> None:
        session = Session()
        session.fails = True
        async with ProgressReporter(session) as progress:
            progress.queue_message("a")
            await asyncio.sleep(0)
            progress.queue_message("b")

    asyncio.run(main())


def test_a_flood_of_steps_is_bounded():
    async def main() -> None:
        session = Session()
        async with ProgressReporter(session) as progress:
            for at in range(10_000):
                progress.queue_message(str(at))
            await session.until(64)
            progress.queue_message("last")
            await session.until(65)
        assert session.told[-1][1] == "last"
        assert len(session.told) == 65

    asyncio.run(main())


flags = st.none() | st.booleans()
annotations = st.none() | st.builds(
    types.ToolAnnotations, read_only_hint=flags, destructive_hint=flags, idempotent_hint=flags, open_world_hint=flags
)


@given(st.lists(annotations), st.booleans())
def test_the_tool_says_of_itself_the_worst_of_what_can_be_reached(said: list[Any], is_complete: bool):
    tools = [types.Tool(name="t", input_schema={"type": "object"}, annotations=one) for one in said]
    union = merge_annotations(tools, is_complete=is_complete)
    given_of = [one or types.ToolAnnotations() for one in said]
    assert union.read_only_hint == (is_complete and all(one.read_only_hint is True for one in given_of))
    writes = [one for one in given_of if one.read_only_hint is not True]
    assert union.destructive_hint == (not is_complete or any(one.destructive_hint is not False for one in writes))
    assert union.open_world_hint == (not is_complete or any(one.open_world_hint is not False for one in given_of))
