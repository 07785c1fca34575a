"""What was denied or ended in a store, no answer that a host gives to `resume` goes on with."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from exec_wait_world import KEYED, SCOPE, run, wait
from pausing import NO, OK, Spy
from waiting import within

from codemode import CallContext, CodeModeProtocolError, Interrupt, create_exec_wait_tools
from codemode.stores import ALL_TENANTS, SqliteInterruptStore, StoreUnavailableError

ASKING = "await yield_control(); return await tools.pay({ n: 1 })"


class Desk:
    """Pairs over one store, as several processes would have them, and the question of one program."""

    def __init__(self, store: Any, pool: Any, approvals: str) -> None:
        self.spy, self.store, self._pool, self._approvals = Spy(), store, pool, approvals
        self.pairs: list[Any] = []

    def pair(self) -> Any:
        pay = self.spy.tool("pay", lambda value, _: value, needs_approval=True)
        more: dict[str, Any] = {"settings": KEYED, "pool": self._pool, "store": self.store}
        made = create_exec_wait_tools([pay], {"approvals": self._approvals}, **more)
        self.pairs.append(made)
        return made

    async def asked(self, pair: Any) -> tuple[str, Interrupt]:
        rest = await run(pair, ASKING)
        await wait(pair, rest)
        (record,) = (await self.store.list(tenant=ALL_TENANTS, state="pending")).records
        interrupt = await self.store.get(record.requests[0].interrupt_id, tenant=ALL_TENANTS)
        return record.id, interrupt


async def deny(desk: Desk, record_id: str, interrupt: Interrupt) -> None:
    await desk.store.decide({interrupt.interrupt_id: NO}, actor="ana", tenant=ALL_TENANTS)


async def edit(desk: Desk, record_id: str, interrupt: Interrupt) -> None:
    edited = {**OK, "input": {"n": 2}}
    await desk.store.decide({interrupt.interrupt_id: edited}, actor="ana", tenant=ALL_TENANTS)


async def withdraw(desk: Desk, record_id: str, interrupt: Interrupt) -> None:
    await desk.store.withdraw(record_id, actor="ana", tenant=ALL_TENANTS)


async def abort(desk: Desk, record_id: str, interrupt: Interrupt) -> None:
    assert await desk.pairs[0].abort(conversation_id=SCOPE) == 1


async def go_on_and_abort(desk: Desk, record_id: str, interrupt: Interrupt) -> None:
    other = desk.pair()
    lease = await desk.store.claim(owner="other", tenant=ALL_TENANTS, record_id=record_id)
    if lease is None:
        await desk.store.decide({interrupt.interrupt_id: OK}, actor="ana", tenant=ALL_TENANTS)
        lease = await desk.store.claim(owner="other", tenant=ALL_TENANTS, record_id=record_id)
    assert lease is not None
    assert not other.runs(SCOPE)
    await desk.store.settle(lease, {"status": "failed", "error": "this run was aborted", "code": "aborted"})


@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["here", "elsewhere"])
@pytest.mark.parametrize("approvals", ["interrupt", "park"])
@pytest.mark.parametrize("ends", [deny, edit, withdraw, abort, go_on_and_abort])
def test_what_was_denied_or_ended_does_not_run_whatever_a_host_answers(pool, tmp_path, ends, approvals, is_elsewhere):

    async def main() -> Any:
        async with SqliteInterruptStore(tmp_path / "runs.db") as store:
            desk = Desk(store, pool, approvals)
            first = desk.pair()
            record_id, interrupt = await desk.asked(first)
            await ends(desk, record_id, interrupt)
            pair = desk.pair() if is_elsewhere else first
            try:
                for answered in (interrupt, interrupt.to_dict(), interrupt):
                    with pytest.raises(CodeModeProtocolError):
                        await pair.resume(answered, OK, call=CallContext(conversation_id=SCOPE))
                return desk.spy.ran, [one._runner.runs._active_count for one in desk.pairs]
            finally:
                await asyncio.gather(*(one.aclose() for one in desk.pairs))

    ran, live = within(main())
    assert not ran
    assert not any(live)


def test_while_the_store_is_away_nobody_can_say_what_was_decided_and_nothing_runs(pool, tmp_path, monkeypatch):

    async def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailableError("it is away")

    async def main() -> Any:
        async with SqliteInterruptStore(tmp_path / "runs.db") as store:
            desk = Desk(store, pool, "interrupt")
            pair = desk.pair()
            record_id, interrupt = await desk.asked(pair)
            await deny(desk, record_id, interrupt)
            with monkeypatch.context() as patched:
                patched.setattr(store, "get", away)
                while_away = await pair.resume(interrupt, OK, call=CallContext(conversation_id=SCOPE))
            with pytest.raises(CodeModeProtocolError):
                await pair.resume(interrupt, OK, call=CallContext(conversation_id=SCOPE))
            denied = await wait(pair, {"runId": f"run_{record_id}"})
            live = pair._runner.runs._active_count
            await pair.aclose()
            return while_away["code"], denied["code"], desk.spy.ran, live

    assert within(main()) == ("runtime_unavailable", "nested_tool_failed", [], 0)
