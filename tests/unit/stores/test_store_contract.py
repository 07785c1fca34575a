"""What every store promises, on every database: records, decisions, leases, ends."""

from __future__ import annotations

import asyncio
import os
import socket
from datetime import timedelta

import pytest
from stored_pauses import HOUR_MS, NO, OK, Catalog, paused, request
from waiting import within

from codemode import CodeModeError, CodeModeToolError, Interrupt
from codemode.stores import (
    ALL_TENANTS,
    RecordExpiredError,
    RecordLostError,
    RecordWithdrawnError,
    RequestSettledError,
    Resumer,
    UnknownRequestError,
)

SCHEMA = {
    "type": "object",
    "properties": {"order": {"type": "string"}, "cents": {"type": "integer"}},
    "required": ["order", "cents"],
    "additionalProperties": False,
}


def through(make, scenario):
    async def run():
        async with make() as store:
            return await scenario(store)

    return within(run())


async def claimed(store, **settings):
    lease = await store.claim(owner="o", tenant=ALL_TENANTS, **settings)
    assert lease is not None
    return lease


async def decided(store, *ids, answer=OK):
    return await store.decide(dict.fromkeys(ids, answer), actor="ana", tenant=ALL_TENANTS)


def test_a_pause_is_kept_with_all_that_was_said_of_it(make):
    async def scenario(store):
        interrupt = paused("a", "b")
        kept = await store.put(
            interrupt,
            tool=Catalog(SCHEMA),
            tenant="acme",
            app="support",
            labels={"agent": "refunds"},
            source="return 1 // \0",
            payload=[{"n": 2**70}],
        )
        record = await store.record(kept, tenant="acme")
        assert (record.state, record.version, record.tenant, record.app) == ("pending", 1, "acme", "support")
        assert (record.outer_tool, record.source, record.payload) == ("codeMode", "return 1 // \0", [{"n": 2**70}])
        assert record.labels == {"agent": "refunds"}
        assert [one.interrupt_ids for one in record.versions] == [("a", "b")]
        first = record.requests[0]
        assert (first.input, first.input_schema) == ({"order": "a", "cents": 2**60}, SCHEMA)
        assert (first.description, first.annotations) == ("Refunds an order.", {"destructiveHint": True})
        assert (await store.get("b", tenant="acme")) == interrupt

    through(make, scenario)


def test_what_comes_from_a_store_says_so_and_its_json_does_not(make):
    async def scenario(store):
        interrupt = paused("a")
        await store.put(interrupt, tenant="acme")
        kept = await store.get("a", tenant="acme")
        await store.decide({"a": OK}, actor="ana", tenant="acme")
        lease = await store.claim(owner="host", tenant="acme")
        assert (interrupt.is_stored, kept.is_stored, lease.interrupt.is_stored) == (False, True, True)
        assert kept == lease.interrupt == interrupt
        assert kept.to_dict() == interrupt.to_dict()

    through(make, scenario)


def test_putting_twice_is_putting_once_and_a_later_pause_is_the_next_version(make):
    async def scenario(store):
        first = paused("a", "b")
        record_id = await store.put(first, tenant="acme", tool=Catalog(SCHEMA))
        assert await store.put(first, tenant="acme") == record_id
        later = paused("b", "c")
        assert await store.put(later, tenant="acme") == record_id
        assert await store.put(first, tenant="acme") == record_id  # an old one changes nothing
        record = await store.record(record_id, tenant="acme")
        assert (record.version, [one.state for one in record.requests]) == (2, ["superseded", "waiting", "waiting"])
        assert record.requests[2].input_schema == SCHEMA  # of the same tool
        assert await store.get("a", tenant="acme") is None
        assert await store.get("c", tenant="acme") == later
        assert len((await store.list(tenant=ALL_TENANTS)).records) == 1

    through(make, scenario)


def test_of_several_who_keep_one_thing_at_once_one_does(make):
    async def scenario(store):
        def put(name, tenant="acme", **more):
            given = {"app": "a", "labels": {"program": "p"}, "alone": "program", **more}
            return store.put(paused(name), tenant=tenant, **given)

        (first,) = set(await asyncio.gather(*(put(f"r{number}") for number in range(8))))
        assert len((await store.list(tenant=ALL_TENANTS)).records) == 1
        others = [{"tenant": "evil"}, {"app": "b"}, {"labels": {"program": "q"}}, {"alone": None}]
        kept = [await put(f"o{number}", **one) for number, one in enumerate(others)]
        assert len({first, *kept}) == 5
        await store.withdraw(kept[-1], actor="ana")
        assert await put("again") == first
        await decided(store, *(one.interrupt_id for one in (await store.record(first, tenant="acme")).requests))
        lease = await claimed(store, record_id=first)
        assert await put("while it goes on") == first
        await store.settle(lease, 1)
        assert await put("afterwards") != first
        with pytest.raises(ValueError, match="one of the labels"):
            await put("x", alone="server")

    through(make, scenario)


def test_what_has_expired_is_no_reason_to_keep_nothing(make, clock):
    async def scenario(store):
        async def put(name):
            return await store.put(paused(name), tenant="acme", labels={"program": "p"}, alone="program")

        first = await put("a")
        assert await put("b") == first
        clock.moved_ms = 31 * HOUR_MS
        assert await put("c") != first

    through(make, scenario)


def test_another_tenant_is_told_nothing(make):
    async def scenario(store):
        record_id = await store.put(paused("a"), tenant="acme")
        texts = set()
        for ask in (
            lambda tenant, one: store.record(one, tenant=tenant),
            lambda tenant, one: store.outcome(one, tenant=tenant, timeout_ms=0),
            lambda tenant, one: store.withdraw(one, actor="x", tenant=tenant),
        ):
            for tenant, one in (("evil", record_id), ("acme", "0" * 32), ("acme", "\0"), ("acme", "\ud800")):
                with pytest.raises(UnknownRequestError) as raised:
                    await ask(tenant, one)
                texts.add(raised.value.message.replace(repr(one), "ID"))
        for tenant, one in (("evil", "a"), ("acme", "b"), (ALL_TENANTS, "\0")):
            with pytest.raises(UnknownRequestError) as raised:
                await store.decide({one: OK}, actor="x", tenant=tenant)
            texts.add(raised.value.message.replace(repr(one), "ID"))
            assert await store.get(one, tenant=tenant) is None
        assert len(texts) == 1
        await store.put(paused("nameless"))
        for tenant in ("evil", "\0", "\ud800"):
            assert (await store.list(tenant=tenant)).records == ()
            assert await store.claim(owner="o", tenant=tenant) is None
        for nobody in (None, 5, True, ("acme",)):
            with pytest.raises(ValueError, match="tenant"):
                await store.list(tenant=nobody)
            with pytest.raises(ValueError, match="tenant"):
                await store.record(record_id, tenant=nobody)

    through(make, scenario)


def test_lists_page_through_what_is_asked_for(make):
    async def scenario(store):
        ids = []
        for number in range(7):
            one = paused(request(f"r{number}", tool=f"tool{number % 2}"))
            ids.append(await store.put(one, tenant="acme", app=f"app{number % 3}", payload=number, source="x"))
        await store.put(paused("other"), tenant="other")
        await store.withdraw(ids[6], actor="ana")
        seen, after = [], None
        while True:
            page = await store.list(tenant="acme", state="pending", after=after, limit=4)
            seen += [one.id for one in page.records]
            assert all((one.source, one.payload) == (None, None) for one in page.records)
            if (after := page.next) is None:
                break
        assert seen == ids[5::-1]
        assert {one.id for one in (await store.list(tenant="acme", app="app1")).records} == {ids[1], ids[4]}
        assert {one.id for one in (await store.list(tenant="acme", tool="tool0")).records} == {ids[0], ids[2], ids[4]}
        assert [one.state for one in (await store.list(tenant="acme", limit=1)).records] == ["withdrawn"]
        for wrong in ({"state": "gone"}, {"limit": 0}, {"limit": 501}, {"after": "x"}, {"after": "-1"}):
            with pytest.raises(ValueError, match=next(iter(wrong))):
                await store.list(tenant="acme", **wrong)

    through(make, scenario)


def test_a_lease_that_nobody_could_hold_is_refused_wherever_one_is_taken(make):
    async def scenario(store):
        await store.put(paused("a"), tenant="acme")
        await store.decide({"a": OK}, actor="ana", tenant=ALL_TENANTS)
        for lease_ms in (0, -1):
            for take in (
                lambda lease_ms=lease_ms: store.claim(owner="o", tenant=ALL_TENANTS, lease_ms=lease_ms),
                lambda lease_ms=lease_ms: store.put_suspended(paused("b"), owner="o", tenant="acme", lease_ms=lease_ms),
            ):
                with pytest.raises(ValueError, match=f"^lease_ms must be at least 1, got {lease_ms}$"):
                    await take()
            with pytest.raises(ValueError, match="lease_ms"):
                store.journal(tenant="acme", app="desk", lease_ms=lease_ms)
            with pytest.raises(ValueError, match="lease_ms"):
                Resumer(store, tenant=ALL_TENANTS, resume=store.claim, lease_ms=lease_ms)
        assert await store.claim(owner="o", tenant=ALL_TENANTS) is not None

    through(make, scenario)


def test_an_outcome_is_waited_for_and_is_what_the_program_ended_with(make):
    async def scenario(store):
        other = make()
        failed = CodeModeToolError("no", details={"tool_name": "t", "x": object()})
        for number, result in enumerate((None, {"n": 2**70}, failed)):
            record_id = await store.put(paused(f"{number}"), tenant="acme")
            waits = asyncio.create_task(other.outcome(record_id, tenant="acme", timeout_ms=60_000))
            with pytest.raises(TimeoutError):
                await store.outcome(record_id, tenant="acme", timeout_ms=1)
            await decided(store, f"{number}")
            await store.settle(await claimed(store), result)
            if not isinstance(result, Exception):
                assert await waits == result
                assert (await store.record(record_id, tenant="acme")).outcome.value == result
                continue
            with pytest.raises(CodeModeToolError, match=r"^no$") as raised:
                await waits
            assert raised.value.details["tool_name"] == "t"
            record = await store.record(record_id, tenant="acme")
            assert (record.state, record.outcome.error) == ("failed", "no")
        await other.aclose()

    through(make, scenario)


def test_ends_that_are_none_of_the_program(make, clock):
    async def scenario(store):
        gone = await store.put(paused("a"))
        lost = await store.put(paused("b"))
        expires = await store.put(paused("c", age_ms=HOUR_MS))
        await store.withdraw(gone, actor="ana", reason="twice")
        with pytest.raises(RecordWithdrawnError, match="twice") as raised:
            await store.outcome(gone, tenant=ALL_TENANTS)
        assert raised.value.details == {"actor": "ana", "reason": "twice"}
        await decided(store, "b")
        lease = await claimed(store)
        with pytest.raises(CodeModeError, match="resuming"):
            await store.withdraw(lost, actor="ana")
        assert await store.mark_lost(lease)
        with pytest.raises(RecordLostError):
            await store.outcome(lost, tenant=ALL_TENANTS)
        with pytest.raises(RecordLostError):
            await decided(store, "b", answer=NO)
        await store.close_lost(lost, actor="ana", reason="looked it up")
        with pytest.raises(RecordLostError, match="looked it up"):
            await store.outcome(lost, tenant=ALL_TENANTS)
        with pytest.raises(RequestSettledError):
            await store.close_lost(lost, actor="bob")
        clock.moved_ms = HOUR_MS
        assert await store.sweep() == 1
        assert await store.sweep() == 0
        with pytest.raises(RecordExpiredError):
            await store.outcome(expires, tenant=ALL_TENANTS)
        for name in "abc":
            assert await store.get(name, tenant=ALL_TENANTS) is None
        clock.moved_ms = 3 * HOUR_MS
        assert await store.purge(timedelta(hours=2, minutes=59)) == 2
        assert [one.id for one in (await store.list(tenant=ALL_TENANTS)).records] == [expires]

    through(make, scenario)


def test_nobody_has_answered_in_time(make, clock):
    async def scenario(store):
        record_id = await store.put(paused("a", request("b", kind="oauth"), age_ms=HOUR_MS))
        assert await store.sweep(deny_before_expiry_ms=60_000) == 0
        clock.moved_ms = HOUR_MS - 59_000
        assert await store.sweep(deny_before_expiry_ms=60_000) == 1
        first, second = (await store.record(record_id, tenant=ALL_TENANTS)).requests
        assert (first.actor, first.decision["approved"], second.state) == ("system", False, "waiting")
        assert (await claimed(store)).resolutions.keys() == {"a"}
        clock.moved_ms = HOUR_MS + 60_000
        assert await store.sweep() == 1
        assert (await store.record(record_id, tenant=ALL_TENANTS)).state == "lost"

    through(make, scenario)


def test_changes_miss_nothing_and_keep_tenants_apart(make):
    async def scenario(store):
        seen = []
        enough = asyncio.Event()

        async def read():
            async for change in make().changes(tenant="acme"):
                seen.append(change)
                if len(seen) == 5:
                    enough.set()

        reader = asyncio.create_task(read())
        first = await store.put(paused("a"), tenant="acme")
        await store.put(paused("x"), tenant="other")
        await decided(store, "a")
        lease = await store.claim(owner="o", tenant="acme")
        await store.settle(lease, paused("b"))
        second = await store.put(paused("c"), tenant="acme")
        await enough.wait()
        reader.cancel()
        await asyncio.wait([reader])
        kinds = [(one.record_id, one.kind) for one in seen]
        assert kinds == [(first, "put"), (first, "decided"), (first, "claimed"), (first, "paused"), (second, "put")]
        assert [one.sequence for one in seen] == sorted({one.sequence for one in seen})
        late = [change async for change in _first(store.changes(tenant="acme", after=seen[2].sequence), 2)]
        assert late == seen[3:]

    through(make, scenario)


def test_changes_are_given_up_to_their_head_to_whoever_does_not_follow(make):
    async def scenario(store):
        assert await store.changes_head() == 0
        assert [one async for one in store.changes(tenant=ALL_TENANTS, follow=False)] == []
        for name in range(3):
            await store.put(paused(str(name)), tenant="acme" if name else "other")
        await store.add_audit_line("signed_in", actor="ana", tenant="acme")  # no change of a record
        head = await make().changes_head()
        every = [one async for one in store.changes(tenant=ALL_TENANTS, follow=False)]
        assert [one.tenant for one in every] == ["other", "acme", "acme"]
        assert every[-1].sequence == head
        own = [one async for one in store.changes(tenant="acme", after=every[1].sequence, follow=False)]
        assert own == every[2:]
        assert [one async for one in store.changes(tenant=ALL_TENANTS, after=head, follow=False)] == []

    through(make, scenario)


async def _first(changes, count):
    async for change in changes:
        yield change
        count -= 1
        if not count:
            await changes.aclose()
            return


def test_an_interrupt_without_a_signature_is_not_kept(make):
    async def scenario(store):
        for continuation in ({}, {"auth": 5}, {"auth": {"nonce": 1, "expiresAtMs": 5}}, {"auth": {"nonce": "n"}}):
            broken = Interrupt(requests=(), outer_tool_call_id="o", continuation=continuation)
            with pytest.raises(CodeModeError, match="not signed"):
                await store.put(broken)
        for continuation in ({"expiresAtMs": 2**70}, {"expiresAtMs": -1}, {"expiresAtMs": True}, {"nonce": None}):
            broken = paused("a")
            broken.continuation["auth"].update(continuation)
            with pytest.raises(CodeModeError, match="not signed"):
                await store.put(broken)
        with pytest.raises(CodeModeError, match="two of its requests have the same id"):
            await store.put(paused("a", "b", "a"))
        for labels in ({"a": "\ud800"}, {"\0": "a"}, {5: "a"}):
            with pytest.raises(ValueError, match="must be a text"):
                await store.put(paused("a"), labels=labels)
        for wrong in ({"tenant": "\0"}, {"app": 5}, {"tool": "\0"}, {"source": 5}):
            with pytest.raises(ValueError, match="must be a text"):
                await store.put(paused("a"), **wrong)
        for name in ("\0", "\ud800"):
            with pytest.raises(ValueError, match="interrupt_id"):
                await store.put(paused(name))
        with pytest.raises(CodeModeError, match="labels"):
            await store.put(paused("a"), labels={"a": "x" * 20_000})
        with pytest.raises(CodeModeError, match="payload"):
            await store.put(paused("a"), payload="x" * ((16 << 20) + 1))
        assert (await store.list(tenant=ALL_TENANTS)).records == ()

    through(make, scenario)


def test_what_is_no_time_deletes_nothing(make):
    async def scenario(store):
        record_id = await store.put(paused("a"), tenant="acme")
        await store.withdraw(record_id, actor="ana")
        for wrong in (30, 0.5, "30 days", None):
            with pytest.raises(ValueError, match=r"^older_than must be a timedelta"):
                await store.purge(wrong)
        assert (await store.record(record_id, tenant="acme")).state == "withdrawn"

    through(make, scenario)


def test_what_cannot_be_meant_is_refused_by_its_name_and_uses_nothing_up(make):
    async def scenario(store):
        record_id = await store.put(paused("a"), tenant="acme")
        record = await store.record(record_id, tenant="acme")
        wrong = [
            ("decisions", lambda: store.decide(["a"], actor="ana", tenant="acme")),
            ("decisions", lambda: store.decide(None, actor="ana", tenant="acme")),
            ("request", lambda: asyncio.to_thread(store.compute_display_digest, record)),
            ("request", lambda: asyncio.to_thread(store.compute_display_digest, "a")),
        ]
        for name, ask in wrong:
            with pytest.raises(ValueError, match=f"^{name} must be"):
                await ask()
        (request,) = (await store.record(record_id, tenant="acme")).requests
        assert (request.state, request.decision) == ("waiting", None)
        await store.withdraw(record_id, actor="ana", reason=None)
        with pytest.raises(RecordWithdrawnError, match=r"^the record was withdrawn$"):
            await store.outcome(record_id, tenant="acme")

    through(make, scenario)


def test_who_has_last_gone_on_with_an_app_is_told_after_it_has_given_back(make, clock):
    async def scenario(store):
        assert await store.last_resumed(tenant="acme", app="shop") is None
        for name in ("a", "b"):
            await store.put(paused(name), tenant="acme", app="shop")
        await store.put(paused("c"), tenant="acme", app="other")
        await store.put(paused("d"), tenant="evil", app="shop")
        assert await store.last_resumed(tenant="acme", app="shop") is None  # nobody has claimed any
        told = []
        for number, (name, tenant) in enumerate([("a", "acme"), ("b", "acme"), ("c", "acme"), ("d", "evil")]):
            clock.moved_ms += 1000
            await decided(store, name)
            lease = await store.claim(owner=f"host {number}", tenant=tenant)
            told.append(await store.last_resumed(tenant="acme", app="shop"))
            if number % 2:
                await store.settle(lease, {"done": True})
            else:
                await store.release(lease)
                await store.withdraw(lease.record.id, actor="ana")
        assert [one.owner for one in told] == ["host 0", "host 1", "host 1", "host 1"]
        assert told[1].at_ms - told[0].at_ms >= 1000
        assert await store.last_resumed(tenant="acme", app="shop") == told[1]
        assert (await store.last_resumed(tenant="acme", app="other")).owner == "host 2"
        assert (await store.last_resumed(tenant="evil", app="shop")).owner == "host 3"
        for nothing in ("\0", "\ud800", "nobody"):
            assert await store.last_resumed(tenant="acme", app=nothing) is None
            assert await store.last_resumed(tenant=nothing, app="shop") is None

    through(make, scenario)


def test_a_claim_that_was_refused_is_not_where_programs_go_on(make, clock):
    async def scenario(store):
        async def refused(name):
            clock.moved_ms += 1000
            lease = await store.claim(owner="no key", tenant="acme", record_id=name)
            assert await store.release(lease, not_resumable="another key")

        only = await store.put(paused("a", "b"), tenant="acme", app="shop")
        await decided(store, "a")
        await refused(only)
        assert await store.last_resumed(tenant="acme", app="shop") is None  # nobody could
        await store.run_again(only, actor="ana")
        lease = await store.claim(owner="better", tenant="acme", record_id=only)
        told = await store.last_resumed(tenant="acme", app="shop")
        assert told.owner == "better"
        assert await store.settle(lease, paused("b"))
        await decided(store, "b")
        for _ in range(2):
            await refused(only)
            assert await store.last_resumed(tenant="acme", app="shop") == told
            await store.run_again(only, actor="ana")
        other = await store.put(paused("c"), tenant="acme", app="shop")
        await decided(store, "c")
        await refused(other)
        assert await store.last_resumed(tenant="acme", app="shop") == told

    through(make, scenario)


def test_a_resumer_says_on_which_host_it_is(make):
    async def scenario(store):
        async def resume(_interrupt, *, resolutions):
            return len(resolutions)

        record_id = await store.put(paused("a"), tenant="acme", app="shop")
        await decided(store, "a")
        async with Resumer(store, tenant="acme", resume=resume):
            assert await store.outcome(record_id, tenant="acme", timeout_ms=20_000) == 1
        found = await store.last_resumed(tenant="acme", app="shop")
        assert found.owner.startswith(f"{socket.gethostname()[:100]} process {os.getpid()} ")

    through(make, scenario)
