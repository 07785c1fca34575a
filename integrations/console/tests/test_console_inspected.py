"""Pauses whose keys are elsewhere, as the gateway's are bound to their user; and users who change meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from codemode_console import TokenAuth, User, approval_console, token_hash
from console_visitors import ANA, EVE, OWN

from codemode import (
    CallContext,
    CodeModeProtocolError,
    Interrupt,
    create_code_mode_tool,
    create_exec_wait_tools,
    inspect_interrupt,
    tool,
)
from codemode.stores import MemoryInterruptStore, Record
from codemode.types import PauseView

CALLS = '<ol class="calls">'  # is there where the calls of a program can be read
KEY = "a key of the tests, of 32 bytes."


@tool(needs_approval=True)
def refund(order: str) -> str:
    return "done"


async def paused(store: MemoryInterruptStore, tenant: str) -> str:
    options: Any = {
        "approval": {"mode": "interrupt"},
        "continuation": {"guard": store.guard, "keys": KEY, "max_age_ms": 86_400_000},
    }
    code_mode = create_code_mode_tool([refund], options)
    js = f"const whose = '{tenant}'; return await tools.refund({{ order: whose }})"
    interrupt = await code_mode.execute({"js": js}, call=CallContext(conversation_id=tenant))
    return await store.put(interrupt, tool=code_mode, tenant=tenant, app="shop")


def inspected(record: Record, interrupt: Interrupt) -> PauseView:
    return inspect_interrupt(interrupt, {"continuation": {"keys": KEY}}, conversation_id=record.tenant)


def refusing(record: Record, interrupt: Interrupt) -> PauseView:
    raise CodeModeProtocolError(f"nobody reads {record.tenant}")


def pages(options: dict[str, Any]) -> list[str]:
    """Return the pages of a record of each of two tenants, its program being in the pause alone."""

    async def main() -> list[str]:
        store = MemoryInterruptStore()
        auth = TokenAuth({token_hash(ANA): User("ana", ["acme", "globex"])})
        console = approval_console(store, auth=auth, options=options)
        transport = httpx.ASGITransport(console)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=OWN) as browser:
            await browser.post("/sign-in", data={"token": ANA})
            found = [await browser.get(f"/records/{await paused(store, one)}") for one in ("acme", "globex")]
            assert [one.status_code for one in found] == [200, 200]
            return [one.text for one in found]

    return asyncio.run(main())


def test_a_record_is_read_by_whoever_knows_its_keys_and_binding():
    acme, globex = pages({"inspect": inspected})
    assert "whose" in acme
    assert "whose" in globex


@pytest.mark.parametrize("options", [{}, {"inspect": refusing}])
def test_what_cannot_be_read_is_said_and_no_failure(options: dict[str, Any]):
    for page in pages(options):
        assert "The text of this program is not known here" in page
    if options:
        assert "nobody reads acme" in pages(options)[0]


def parked_page(scope: str, *, knows_the_keys: bool) -> str:
    """Return the page of a program of exec and wait that waits for a person."""

    async def main() -> str:
        store = MemoryInterruptStore()
        settings: Any = {"continuation": {"guard": store.guard, "keys": KEY, "max_age_ms": 86_400_000}}
        pair = create_exec_wait_tools([refund], {"approvals": "park"}, settings=settings, store=store, tenant="acme")
        await pair.exec.execute(
            {"code": "const whose = 1; return await tools.refund({ order: 'a' })"},
            call=CallContext(conversation_id=scope or None),
        )
        (record,) = (await store.list(tenant="acme", state="pending")).records
        resume = pair.resume if knows_the_keys else None
        auth = TokenAuth({token_hash(ANA): User("ana", ["acme"])})
        transport = httpx.ASGITransport(approval_console(store, auth=auth, resume=resume))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=OWN) as browser:
            await browser.post("/sign-in", data={"token": ANA})
            return (await browser.get(f"/records/{record.id}")).text

    return asyncio.run(main())


def test_a_parked_program_is_read_with_its_scope_and_never_called_changed():
    for scope in ("chat 1", ""):
        page = parked_page(scope, knows_the_keys=True)
        assert "signature" not in page
        assert CALLS in page, scope
        assert "changed" not in parked_page(scope, knows_the_keys=False)


def test_a_bound_pause_says_that_its_context_is_missing():
    async def main() -> str:
        store = MemoryInterruptStore()
        options: Any = {
            "approval": {"mode": "interrupt"},
            "continuation": {"guard": store.guard, "keys": KEY, "max_age_ms": 86_400_000},
        }
        code_mode = create_code_mode_tool([refund], options)
        interrupt = await code_mode.execute(
            {"js": "return tools.refund({ order: 'a' })"}, call=CallContext(conversation_id="thread 1")
        )
        record_id = await store.put(interrupt, tool=code_mode, tenant="acme")
        auth = TokenAuth({token_hash(ANA): User("ana", ["acme"])})
        transport = httpx.ASGITransport(approval_console(store, auth=auth, resume=code_mode.resume))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=OWN) as browser:
            await browser.post("/sign-in", data={"token": ANA})
            return (await browser.get(f"/records/{record_id}")).text

    page = asyncio.run(main())
    assert "belongs to a conversation, but no conversation_id was given" in page
    assert "it was changed" not in page


def test_users_who_are_replaced_are_nobody_at_once():
    async def main() -> None:
        auth = TokenAuth({token_hash(ANA): User("ana", ["acme"])})
        console = approval_console(MemoryInterruptStore(), auth=auth)
        transport = httpx.ASGITransport(console)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=OWN) as browser:
            await browser.post("/sign-in", data={"token": ANA})
            assert (await browser.get("/history")).status_code == 200
            with pytest.raises(ValueError, match="at least one"):
                auth.replace({})
            assert (await browser.get("/history")).status_code == 200
            auth.replace({token_hash(EVE): User("eve", ["acme"])})
            assert (await browser.get("/history")).status_code == 303
            assert (await browser.post("/sign-in", data={"token": ANA})).status_code == 401
            assert (await browser.post("/sign-in", data={"token": EVE})).status_code == 303

    asyncio.run(main())
