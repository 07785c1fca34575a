"""A program that one release of a host has begun goes on under the next: with other limits, settings and tools."""

from __future__ import annotations

from typing import Any

from suite import each_row, full_only
from test_journaled_runs import Fast, Host, Shop
from waiting import within

from codemode import CallContext, ModuleServer, Tool, create_code_call_tools, create_code_mode_tool, create_modules_tool
from codemode.continuations.journal import MemoryJournal

BODY = """
const first = await tools.pay({amount: 1});
return [first, ...await Promise.all([tools.pay({amount: 2}), tools.pay({amount: 3})])];
"""
SCRIPT = """
const [known, first] = [getTool('pay').description, await callTool('pay', {amount: 1})];
return [known, typeof getTool('more'), first, await callTool('pay', {amount: 2})];
"""
MODULE = """
import * as shop from "@codemode/servers/shop";
const first = await shop.pay({amount: 1});
globalThis.__codemode_result__ = [Object.keys(shop).sort(), first, await shop.pay({amount: 2})];
"""
MORE = Tool("more", execute=lambda value: None, description="another tool")
AGAIN = {"idempotentHint": True}


def settings(journal, **more):
    return {"continuation": {"keys": "k", "conversation_id": "thread", "journal": journal}, **more}


def code_mode(*more, fetch=None, **limits):
    def run(shop, journal):
        given = settings(journal, execution_policy=limits, fetch_policy=fetch)
        return create_code_mode_tool([*shop.tools, *more], given).execute(
            {"js": BODY}, call=CallContext(tool_call_id="call_1")
        )

    return run


def code_call(*more, **options):
    def run(shop, journal):
        toolset = create_code_call_tools([*shop.tools, *more], {"settings": settings(journal), **options})
        return toolset.execute({"script": SCRIPT, "context": {"a": 1}}, call=CallContext(tool_call_id="call_1"))

    return run


def modules(*more, **limits):
    def run(shop, journal):
        server = ModuleServer("shop", [*shop.tools, *more])
        tool = create_modules_tool([server], {"limits": limits}, settings=settings(journal))
        return tool.execute({"code": MODULE}, call=CallContext(tool_call_id="call_1"))

    return run


BEFORE_AND_AFTER = {
    "fewer calls": (code_mode(), code_mode(max_bridge_requests=1)),
    "fewer calls at once": (code_mode(), code_mode(max_in_flight_bridge_requests=1)),
    "more calls": (code_mode(max_bridge_requests=3), code_mode()),
    "a small ledger": (code_mode(), code_mode(max_ledger_bytes=1)),
    "another clock": (code_mode(), code_mode(timeout_includes_tools=False)),
    "more memory": (code_mode(), code_mode(memory_limit_bytes=128 << 20)),
    "fetch": (code_mode(), code_mode(fetch={"allowed_origins": ["https://example.com"]})),
    "no fetch": (code_mode(fetch={"allowed_origins": ["https://example.com"]}), code_mode()),
    "a tool more": (code_mode(), code_mode(MORE)),
    "a definition more": (code_call(), code_call(MORE)),
    "another preset": (code_call(), code_call(vm={"preset": "secure"})),
    "a module's export more": (modules(), modules(MORE)),
    "a module's export less": (modules(MORE), modules()),
    "other limits of modules": (modules(), modules(max_tool_calls=17, max_log_bytes=100)),
}


def value_of(said: Any) -> Any:
    return said["result"] if isinstance(said, dict) else said


@each_row("change", BEFORE_AND_AFTER)
@each_row("dies_after", [1, 4, *full_only(2, 6)])
def test_what_one_release_has_begun_the_next_goes_on_with(change: str, dies_after: int):
    before, after = BEFORE_AND_AFTER[change]

    async def scenario() -> None:
        shop = Shop(annotations=AGAIN)
        undisturbed = value_of(await before(shop, MemoryJournal()))
        shop, journal = Shop(annotations=AGAIN), MemoryJournal(clock=Fast())
        try:
            said = await before(shop, Host(journal, dies_after=dies_after))
        except Exception:
            said = None
        assert said is None or value_of(said) != undisturbed
        assert value_of(await after(shop, journal)) == undisturbed
        assert value_of(await after(shop, journal)) == undisturbed
        assert shop.paid.count(1) == 1  # it had ended

    within(scenario())


def test_what_a_model_brings_along_makes_another_call():
    async def scenario() -> None:
        shop, journal = Shop(), MemoryJournal()
        toolset = create_code_call_tools(shop.tools, {"settings": settings(journal)})
        for context in ({"a": 1}, {"a": 2}, {"a": 1}):
            given = {"script": "return await callTool('pay', {amount: codecallContext.a})", "context": context}
            assert value_of(await toolset.execute(given, call=CallContext(tool_call_id="call_1"))) == context["a"]
        assert shop.paid == [1, 2]

    within(scenario())
