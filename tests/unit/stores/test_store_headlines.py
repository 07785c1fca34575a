"""A record keeps the title and the summary that the host gave a tool, and none that a server brings."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from codemode import Tool, create_code_mode_tool, tool
from codemode.stores import ALL_TENANTS, MemoryInterruptStore

TITLED = {"title": "Refund", "summary": "{order.id}: {cents:.2f}"}


async def kept_request(**settings: Any) -> Any:
    """Return the request of a program that waits for a person, as a store has it."""
    store = MemoryInterruptStore()
    gated = Tool("refund", execute=lambda value: value, needs_approval=True, **settings)
    options: Any = {"approval": {"mode": "interrupt"}, "continuation": {"guard": store.guard}}
    code_mode = create_code_mode_tool([gated], options)
    record_id = await store.put(await code_mode.execute({"js": "await tools.refund({})"}), tool=code_mode)
    return (await store.record(record_id, tenant=ALL_TENANTS)).requests[0]


def test_a_record_keeps_the_title_and_summary_of_a_tool() -> None:
    hints = {"title": "a server's title", "destructiveHint": True}
    for settings, kept in (({}, None), ({"annotations": hints}, hints)):
        found = asyncio.run(kept_request(**TITLED, **settings))
        assert (found.title, found.summary, found.annotations) == (*TITLED.values(), kept), settings


def test_annotations_of_a_server_say_neither_title_nor_summary() -> None:
    spoofed = {"title": "Read", "summary": "{x}", "codemode/headline": ["Read", "only a look"]}
    found = asyncio.run(kept_request(annotations=spoofed))
    assert (found.title, found.summary) == ("", "")
    assert found.annotations == {"title": "Read", "summary": "{x}"}


def test_a_summary_names_fields_of_the_input_and_formats_numbers() -> None:
    for summary in ("", "all {{of}} it", "{a}", "{a.b_c:.2f} {d:,.0f}"):
        assert Tool("refund", execute=None, summary=summary).with_name("other").summary == summary
    for summary in ("{", "{}", "{0}", "{a[0]}", "{a!r}", "{a:>9999999}", "{a.}", "{a-b}", "{a:{b}}"):
        with pytest.raises(ValueError, match="summary of tool 'refund'"):
            Tool("refund", execute=None, summary=summary)
    with pytest.raises(ValueError, match="title of tool 'refund' must be a string"):
        Tool("refund", execute=None, title=1)  # pyright: ignore[reportArgumentType]


def test_a_decorated_function_has_a_title_and_a_summary() -> None:
    @tool(**TITLED)
    def refund(order: str) -> str:
        return order

    assert (refund.title, refund.summary) == tuple(TITLED.values())
