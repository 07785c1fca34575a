"""Every face has the journal: what its programs did is found again by the same call, whichever host it is made on."""

from __future__ import annotations

import asyncio

import pytest
from pausing import OK
from recovering import UNKNOWN
from stored_pauses import Clock
from test_journaled_resumes import DeadGuard
from test_journaled_runs import Fast, Host, Shop
from waiting import within

from codemode import (
    CallContext,
    CodeModeAbortedError,
    CodeModeProtocolError,
    Interrupt,
    ModuleServer,
    Tool,
    create_code_call_tools,
    create_code_mode_tool,
    create_modules_tool,
)
from codemode.continuations.journal import MemoryJournal
from codemode.stores import MemoryInterruptStore, Resumer, SqliteInterruptStore

SCRIPT = "return [await callTool('pay', {amount: 1}), await callTool('pay', {amount: 2})]"
MODULE = """
import * as shop from "@codemode/servers/shop";
globalThis.__codemode_result__ = [await shop.pay({amount: 1}), await shop.pay({amount: 2})];
"""
BODY = "return [await tools.pay({amount: 1}), await tools.pay({amount: 2})]"


def settings(journal):
    return {"continuation": {"keys": "k", "conversation_id": "thread", "journal": journal}}


def code_mode(shop, journal):
    tool = create_code_mode_tool(shop.tools, settings(journal))
    return lambda: tool.execute({"js": BODY}, call=CallContext(tool_call_id="call_1")), tool.resume


def code_call(shop, journal):
    tools = create_code_call_tools(shop.tools, {"settings": settings(journal)})
    return lambda: tools.execute({"script": SCRIPT}, call=CallContext(tool_call_id="call_1")), tools.resume


def modules(shop, journal):
    tool = create_modules_tool([ModuleServer("shop", shop.tools)], settings=settings(journal))
    return lambda: tool.execute({"code": MODULE}, call=CallContext(tool_call_id="call_1")), tool.resume


FACES = [code_mode, code_call, modules]


def value_of(said):
    return said["result"] if isinstance(said, dict) else said


@pytest.mark.parametrize("face", FACES)
def test_the_same_call_gets_what_it_came_to_and_runs_nothing(face):
    async def scenario():
        shop, journal = Shop(), MemoryJournal()
        for _ in range(2):
            call, _resume = face(shop, journal)
            assert value_of(await call()) == [1, 2]
        assert shop.paid == [1, 2]

    within(scenario())


@pytest.mark.parametrize("face", FACES)
def test_after_the_death_of_a_host_only_what_had_begun_is_asked_about(face):
    async def scenario():
        shop, journal = Shop(), MemoryJournal(clock=Fast())
        call, _resume = face(shop, Host(journal, dies_after=5, is_done=False))
        try:  # open, begins, ends, begins, and the second end is not written
            said = await call()
        except Exception as error:
            said = error
        assert not isinstance(said, Interrupt)
        assert shop.paid == [1, 2]
        call, resume = face(shop, journal)
        paused = await call()
        assert isinstance(paused, Interrupt), paused
        (request,) = paused.requests
        assert (request.payload["kind"], request.input) == (UNKNOWN, {"amount": 2})
        assert value_of(await resume(paused, {"value": 2})) == [1, 2]
        assert shop.paid == [1, 2]

    within(scenario())


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_the_journal_of_a_store_serves_as_well(kind, tmp_path):
    async def scenario():
        store = MemoryInterruptStore() if kind == "memory" else SqliteInterruptStore(tmp_path / "store.sqlite")
        async with store:
            shop, journal = Shop(), store.journal(tenant="acme", app="support")
            call, _resume = code_mode(shop, journal)
            assert await asyncio.gather(call(), call()) == [[1, 2]] * 2
            assert await call() == [1, 2]
            assert shop.paid == [1, 2]

    within(scenario())


def test_a_record_whose_resumer_died_asks_about_what_had_begun_without_waiting_for_the_guard():
    async def scenario():
        clock = Clock()
        async with MemoryInterruptStore(clock=clock) as store:
            shop, journal = Shop(needs_approval=True), store.journal(tenant="acme", app="support", lease_ms=20_000)
            js = "return await tools.pay({amount: 1})"

            def host(guard, journal):
                keeping = {**settings(journal)["continuation"], "guard": guard}
                return create_code_mode_tool(shop.tools, {"approval": {"mode": "interrupt"}, "continuation": keeping})

            living = host(store.guard, journal)
            paused = await living.execute({"js": js}, call=CallContext(tool_call_id="call_1"))
            record_id = await store.put(paused, tool=living, tenant="acme", app="support")
            await store.decide({paused.interrupt_id: OK}, actor="ana", tenant="acme")
            lease = await store.claim(owner="dying", tenant="acme", lease_ms=20_000)
            with pytest.raises(CodeModeAbortedError):  # peek, open, resume, begins; it has paid, and says so to nobody
                await host(DeadGuard(store.guard), Host(journal, dies_after=5, is_done=False)).resume(
                    lease.interrupt, resolutions=lease.resolutions
                )
            assert shop.paid == [1]
            clock.moved_ms = 21_000
            async with Resumer(store, tenant="acme", resume=living.resume):
                async for change in store.changes(tenant="acme"):
                    if change.kind == "paused" and (await store.record(record_id, tenant="acme")).version == 2:
                        break
                record = await store.record(record_id, tenant="acme")
                (waiting,) = [one for one in record.requests if one.state == "waiting"]
                assert waiting.kind == UNKNOWN
                await store.decide({waiting.interrupt_id: {"value": 1}}, actor="ana", tenant="acme")
                assert await store.outcome(record_id, tenant="acme", timeout_ms=60_000) == 1
        assert shop.paid == [1]

    within(scenario())


class Placed:
    """A server whose tools may change, at a place that its name does not say."""

    name, version, description, capabilities, revision = "shop", None, None, (), 1

    def __init__(self, server_id, shop, home):
        self.server_id, self.home = server_id, home
        self._tools = shop.tools

    async def tools(self):
        return self._tools


HIDDEN = MODULE.replace('import * as shop from "@codemode/servers/shop"', "const shop = await import(WHERE)")
PLACES = [
    ("shop", MODULE, 5),
    ("My Shop.2", MODULE.replace("servers/shop", "servers/my-shop-2"), 5),
    ("shop", HIDDEN.replace("WHERE", '["@codemode/servers", "shop"].join("/")'), 6),  # of which one is the import
]


@pytest.mark.parametrize(("server_id", "code", "operations"), PLACES)
def test_what_a_server_has_done_is_not_taken_for_what_another_of_its_name_did(server_id, code, operations):
    async def scenario():
        here, there, journal = Shop(), Shop(), MemoryJournal(clock=Fast())

        def at(shop, journal, *others):
            placed = Placed(server_id, shop, "here" if shop is here else "there")
            return create_modules_tool([placed, *others], settings=settings(journal))

        async def call(tool):
            return await tool.execute({"code": code}, call=CallContext(tool_call_id="call_1"))

        dying = Host(journal, dies_after=operations, is_done=False)
        assert (await call(at(here, dying)))["diagnostics"][0]["severity"] == "error"
        said = await call(at(there, journal))
        assert "is not the one" in said["diagnostics"][0]["message"], said
        other = Placed("another", there, "changed, and nothing to the program")
        paused = await call(at(here, journal, other))
        assert [one.payload["kind"] for one in paused.requests] == [UNKNOWN]
        with pytest.raises(CodeModeProtocolError, match="is not the one") as refused:
            await at(there, journal).resume(paused, {"value": 2})
        assert refused.value.details["not_resumable"] is True
        assert value_of(await at(here, journal).resume(paused, {"value": 2})) == [1, 2]
        assert (here.paid, there.paid) == ([1, 2], [])

    within(scenario())


def test_whoever_takes_a_program_over_is_told_that_tools_have_changed():
    async def scenario():
        shop, journal = Shop(), MemoryJournal(clock=Fast())
        more = Shop()
        more.tools = [*shop.tools, Tool("refund", execute=lambda value, context: None)]

        async def call(shop, journal):
            tool = create_modules_tool([Placed("shop", shop, "here")], settings=settings(journal))
            return await tool.execute({"code": MODULE}, call=CallContext(tool_call_id="call_1"))

        await call(shop, Host(journal, dies_after=3))
        said = await call(more, journal)
        assert said["result"] == [1, 2]
        assert [one["code"] for one in said["diagnostics"]] == ["TOOLS_CHANGED"]
        assert shop.paid == [1, 2]

    within(scenario())
