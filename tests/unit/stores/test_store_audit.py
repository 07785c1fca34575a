"""Who did what: which lines there are, what is in them, who sees them."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta

import pytest
from stored_pauses import HOUR_MS, NO, OK, Catalog, paused, request
from suite import each_row
from test_store_contract import SCHEMA, claimed, decided, through

from codemode import CodeModeError, CodeModeProtocolError, CodeModeToolError
from codemode.errors import CodeModeSerializationError
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.stores import ALL_TENANTS, AlreadyDecidedError, AnswerRefusedError, verify_audit
from codemode.stores.answers import MAX_DIFFERENCES, list_differences
from codemode.stores.audit import STORE_KINDS


async def lines(store, tenant=ALL_TENANTS, **which):
    return [one async for one in store.audit(tenant=tenant, **which)]


async def kinds(store, **which):
    return [one.kind for one in await lines(store, **which)]


def sha256(value):
    return hashlib.sha256(json.dumps(value, separators=(",", ":"), sort_keys=True).encode()).hexdigest()


def test_a_decision_is_told_with_all_that_makes_it_one(make, clock):
    async def scenario(store):
        interrupt = paused("a", "b", request("c", kind="oauth"))
        record_id = await store.put(interrupt, tool=Catalog(SCHEMA), tenant="acme")
        edited = {"order": "a", "cents": 9000}
        clock.moved_ms = 5 * HOUR_MS
        answers = {"a": {"approved": True, "input": edited, "reason": "too much"}, "b": NO, "c": {"code": "s3cret"}}
        before_ms = clock.now_ms()
        made = await store.decide(answers, actor="ana@acme", tenant="acme", address="10.0.0.1")
        put, *told = await lines(store)
        for line in told:
            assert (line.kind, line.actor, line.tenant, line.address) == ("decided", "ana@acme", "acme", "10.0.0.1")
            assert line.tool_name == "refund"
            assert line.record_id == record_id
            assert line.shown == store.compute_display_digest(made[line.interrupt_id])
            assert before_ms <= line.at_ms <= clock.now_ms()
        first, second, third = told
        assert (first.interrupt_id, first.decision, first.reason) == ("a", "edited", "too much")
        assert first.digest == sha256(edited)
        assert first.diff == ({"path": "/cents", "from": 2**60, "to": 9000},)
        assert (second.decision, second.reason, second.digest, second.diff) == ("denied", None, None, ())
        assert (third.decision, third.digest) == ("answered", sha256({"code": "s3cret"}))
        assert "s3cret" not in repr(told)
        assert [one["shown"] for one in put.details["requests"]] == [one.shown for one in told]
        assert (put.kind, put.actor) == ("put", None)
        assert [one.previous for one in (put, *told)] == ["0" * 64, put.hash, first.hash, second.hash]
        assert [one.sequence for one in (put, *told)] == [1, 2, 3, 4]
        assert await verify_audit(store) is None

    through(make, scenario)


def test_what_became_of_a_call_is_told_without_what_it_gave(make):
    async def scenario(store):
        names = ("value", "error", "again")
        await store.put(paused(*(request(name, kind=UNKNOWN_OUTCOME_KIND) for name in names)))
        answers = {"value": {"value": "s3cret"}, "error": {"error": {"message": "s3cret"}}, "again": {"runAgain": True}}
        await store.decide(answers, actor="ana", tenant=ALL_TENANTS)
        _, value, error, again = await lines(store)
        assert (value.decision, value.digest) == ("value", sha256("s3cret"))
        assert (error.decision, error.digest) == ("error", sha256({"message": "s3cret"}))
        assert (again.decision, again.digest) == ("run_again", None)
        assert "s3cret" not in repr((value, error, again))

    through(make, scenario)


def test_an_edit_is_one_where_something_else_runs(make):
    async def scenario(store):
        shown = {"order": "a", "cents": 2**60}
        await store.put(paused(*(request(name, given=shown) for name in "abc")))
        edits = {"a": shown, "b": {"order": "a", "cents": str(2**60)}, "c": {"order": "a", "cents": str(2**60 + 1)}}
        answers = {name: {"approved": True, "input": edit} for name, edit in edits.items()}
        await store.decide(answers, actor="ana", tenant=ALL_TENANTS)
        _, same, as_text, edited = await lines(store)
        for line in (same, as_text):  # a browser writes such integers as text
            assert (line.decision, line.digest, line.diff) == ("approved", sha256(shown), ())
        assert edited.diff == ({"path": "/cents", "from": 2**60, "to": 2**60 + 1},)

    through(make, scenario)


def test_an_answer_that_is_run_at_once_is_told_as_a_decision_and_its_end(make):
    async def scenario(store):
        async def resume(interrupt, resolutions):
            del interrupt
            return resolutions["a"]["approved"]

        await store.put(paused("a"), tenant="acme")
        assert await store.answer("a", OK, resume, actor="ana", tenant="acme", address="10.0.0.1") is True
        _, answered, completed = await lines(store, tenant="acme")
        assert (answered.kind, answered.actor, answered.address) == ("decided", "ana", "10.0.0.1")
        assert (completed.kind, completed.details) == ("completed", {"applied": ["a"]})

        async def refuses(interrupt, resolutions):
            raise CodeModeProtocolError("no such order", details={"origin": "decision"})

        await store.put(paused("b"), tenant="acme")
        with pytest.raises(CodeModeProtocolError):
            await store.answer("b", OK, refuses, actor="bob", tenant="acme")
        *_, again, refused = await lines(store, tenant="acme")
        assert (again.kind, again.interrupt_id, again.actor) == ("decided", "b", "bob")
        assert (refused.kind, refused.reason, refused.details) == ("refused", "no such order", {"decided_by": "bob"})

    through(make, scenario)


def test_every_end_of_a_record_is_told_by_whom_and_why(make, clock):
    async def scenario(store):
        ids = {}
        for name in ("done", "failed", "again", "gone", "lost", "late"):
            ids[name] = await store.put(paused(name, age_ms=(1 if name == "late" else 9) * HOUR_MS), tenant="acme")
        await decided(store, "done")
        await store.settle(await claimed(store), {"n": [1]})
        await decided(store, "failed")
        await store.settle(await claimed(store), CodeModeToolError("card 4111-1111 refused"))
        await decided(store, "again")
        await store.settle(await claimed(store), paused("later"))
        await store.withdraw(ids["gone"], actor="ana", reason="twice", tenant="acme", address="10.0.0.1")
        await decided(store, "lost")
        await store.mark_lost(await claimed(store))
        await store.close_lost(ids["lost"], actor="bob", reason="looked it up", address="10.0.0.2")
        clock.moved_ms = HOUR_MS
        await store.sweep()
        told = {name: await lines(store, record_id=ids[name]) for name in ids}
        ends = {name: (one[-1].kind, one[-1].actor, one[-1].reason, one[-1].outcome) for name, one in told.items()}
        assert ends == {
            "done": ("completed", None, None, "completed"),
            "failed": ("failed", None, None, "failed"),
            "again": ("paused", None, None, "paused"),
            "gone": ("withdrawn", "ana", "twice", "withdrawn"),
            "lost": ("closed", "bob", "looked it up", "failed"),
            "late": ("expired", "system", None, "expired"),
        }
        assert [one.kind for one in told["done"]] == ["put", "decided", "completed"]
        assert told["done"][-1].digest == sha256({"n": [1]})
        assert told["done"][-1].details == {"applied": ["done"]}
        assert told["failed"][-1].details == {
            "applied": ["failed"],
            "error": "CodeModeToolError",
            "code": CodeModeToolError.default_code,
        }
        assert "4111-1111" not in repr(told)
        assert told["again"][-1].details["applied"] == ["again"]
        assert [one["id"] for one in told["again"][-1].details["requests"]] == ["later"]
        assert [one.kind for one in told["lost"]] == ["put", "decided", "lost", "closed"]
        assert (told["gone"][-1].address, told["lost"][-1].address) == ("10.0.0.1", "10.0.0.2")
        assert all(one.tenant == "acme" for of_one in told.values() for one in of_one)
        assert await verify_audit(store) is None

    through(make, scenario)


def test_an_answer_given_back_and_a_denial_by_time_are_told(make, clock):
    async def scenario(store):
        record_id = await store.put(paused("a", "b", age_ms=HOUR_MS))
        await store.decide({"a": OK}, actor="ana", tenant=ALL_TENANTS)
        lease = await claimed(store)
        await store.release(lease, refusals={"a": "no such order \0\ud800", "b": "never given"})
        clock.moved_ms = HOUR_MS - 59_000
        await store.sweep(deny_before_expiry_ms=60_000)
        *_, refused, first, second = await lines(store, record_id=record_id)
        assert (refused.kind, refused.interrupt_id, refused.actor) == ("refused", "a", None)
        assert (refused.reason, refused.details) == ("no such order \0\ufffd", {"decided_by": "ana"})
        (stored, _) = (await store.record(record_id, tenant=ALL_TENANTS)).requests
        assert refused.shown == store.compute_display_digest(stored) == first.shown
        for line in (first, second):
            assert (line.kind, line.actor, line.decision) == ("decided", "system", "denied")
            assert (line.reason, line.tool_name) == ("no decision in time", "refund")
        assert await verify_audit(store) is None

    through(make, scenario)


def test_what_decides_nothing_is_not_told(make):
    async def scenario(store):
        interrupt = paused("a", "b")
        record_id = await store.put(interrupt, tool=Catalog(SCHEMA))
        await decided(store, "a")
        head = await store.audit_head()
        await store.put(interrupt)
        await store.decide({"a": OK}, actor="bob", tenant=ALL_TENANTS)
        with pytest.raises(AlreadyDecidedError):
            await store.decide({"b": OK, "a": NO}, actor="bob", tenant=ALL_TENANTS)
        with pytest.raises(AnswerRefusedError):
            await store.decide({"b": {"approved": True, "input": 5}}, actor="bob", tenant=ALL_TENANTS)
        with pytest.raises(CodeModeError):
            await store.close_lost(record_id, actor="bob")
        lease = await claimed(store)
        await store.renew(lease)
        await store.release(lease)  # however often it is tried again
        await store.sweep()
        await store.purge(timedelta(0))
        assert await store.audit_head() == head
        # An old lease settles nothing.
        assert not await store.settle(lease, 1)
        assert await kinds(store) == ["put", "decided"]

    through(make, scenario)


def test_a_tenant_reads_its_own_lines_and_no_other(make):
    async def scenario(store):
        await store.put(paused("a"), tenant="acme")
        other = await store.put(paused("b"), tenant="other")
        await store.put(paused("c"), tenant="")
        await store.add_audit_line(
            "signed-in", actor="ana", tenant="acme", address="10.0.0.1", details={"how": "token"}
        )
        await store.add_audit_line("sign-in-refused", actor="?", tenant=ALL_TENANTS)
        assert await kinds(store, tenant="acme") == ["put", "signed-in"]
        assert await kinds(store, tenant="other") == ["put"]
        assert await lines(store, tenant="acme", record_id=other) == []
        assert await lines(store, tenant="\0") == await lines(store, tenant="\ud800") == []
        assert [one.tenant for one in await lines(store)] == ["acme", "other", "", "acme", None]
        (_, own) = await lines(store, tenant="acme")
        assert (own.address, own.details, own.record_id) == ("10.0.0.1", {"how": "token"}, None)
        # What the hash before it was made of cannot be guessed: each line has a salt of its own.
        assert len({one.salt for one in await lines(store)}) == 5
        assert await verify_audit(store) is None

    through(make, scenario)


def test_lines_are_read_from_where_somebody_was(make):
    async def scenario(store):
        for number in range(130):  # more than are read at once
            await store.add_audit_line(f"kind-{number}", actor="ana", tenant="t" if number % 2 else "u")
        every = [one.sequence for one in await lines(store)]
        assert every == list(range(1, 131))
        assert [one.sequence for one in await lines(store, after=100)] == list(range(101, 131))
        assert [one.sequence for one in await lines(store, limit=101)] == list(range(1, 102))
        assert [one.sequence for one in await lines(store, newest_first=True)] == every[::-1]
        found = await lines(store, tenant="t", newest_first=True, after=128, limit=3)
        assert [one.sequence for one in found] == [126, 124, 122]
        for wrong in ({"after": -1}, {"after": 1 << 63}, {"limit": 0}):
            with pytest.raises(ValueError, match=next(iter(wrong))):
                await lines(store, **wrong)

    through(make, scenario)


def test_lines_of_several_tenants_are_read_as_one_list(make):
    async def scenario(store):
        for number in range(260):  # more than are read at once, and of no tenant too
            await store.add_audit_line("k", actor="ana", tenant=("t", "u", "v", ALL_TENANTS)[number % 4])
        for names in (set(), {"t"}, {"t", "v"}, frozenset({"t", "u", "v", "none", "\0"})):
            own = [one.sequence for one in await lines(store) if one.tenant in names]
            assert [one.sequence for one in await lines(store, tenant=names)] == own
            backwards = await lines(store, tenant=names, newest_first=True, after=201, limit=7)
            assert [one.sequence for one in backwards] == [one for one in own if one < 201][::-1][:7]
        with pytest.raises(ValueError, match="200"):
            await lines(store, tenant={str(number) for number in range(201)})

    through(make, scenario)


def test_lines_outlive_their_records(make, clock):
    async def scenario(store):
        record_id = await store.put(paused("a"), tenant="acme")
        await store.withdraw(record_id, actor="ana")
        clock.moved_ms = HOUR_MS // 2
        assert await store.purge(timedelta(minutes=1)) == 1
        assert await kinds(store, record_id=record_id) == ["put", "withdrawn"]
        *_, purged = await lines(store)
        assert (purged.kind, purged.tenant, purged.details["records"]) == ("purged", None, 1)
        assert await verify_audit(store) is None

    through(make, scenario)


def test_notes_are_bounded_and_pass_for_no_line_of_the_stores_own(make):
    async def scenario(store):
        for kind in (*sorted(STORE_KINDS), "", "k" * 101, 5):
            with pytest.raises(ValueError, match="kind"):
                await store.add_audit_line(kind, actor="ana", tenant="t")
        for wrong in ({"actor": "\0"}, {"actor": "a" * 1001}, {"address": "\ud800"}, {"address": 5}, {"tenant": None}):
            with pytest.raises(ValueError, match=next(iter(wrong))):
                await store.add_audit_line("k", **{"actor": "ana", "tenant": "t", **wrong})
        with pytest.raises(ValueError, match="details"):
            await store.add_audit_line("k", actor="ana", tenant="t", details=["x"])
        for details in ({"x": "y" * 20_000}, {"x": object()}):
            with pytest.raises(CodeModeSerializationError, match="details"):
                await store.add_audit_line("k", actor="ana", tenant="t", details=details)
        assert await lines(store) == []
        hostile = {"\0": "\ud800", "deep": [[[[None]]]], "n": 2**90, "f": 0.1, "__proto__": {"é": float("nan")}}
        await store.add_audit_line("k", actor="ana", tenant="t", details=hostile)
        (line,) = await lines(store)
        assert line.details["n"] == 2**90
        assert await verify_audit(store) is None

    through(make, scenario)


def test_notes_are_found_by_what_they_are_about(make):
    async def scenario(store):
        kept = await store.put(paused("a"), tenant="acme")
        about = "x:5\U0001f600"
        for record_id in (about, kept, None):
            await store.add_audit_line("odd", actor="ana", tenant="acme", record_id=record_id)
        await store.add_audit_line("odd", actor="bob", tenant=ALL_TENANTS, record_id=about)
        assert [one.actor for one in await lines(make(), record_id=about)] == ["ana", "bob"]
        assert [one.actor for one in await lines(store, tenant="acme", record_id=about)] == ["ana"]
        assert await lines(store, tenant="other", record_id=about) == []
        assert [one.kind for one in await lines(store, record_id=kept)] == ["put", "odd"]
        assert await lines(store, record_id="x:6") == []
        for wrong in ("\0", "\ud800", "x" * 1001, 5):
            with pytest.raises(ValueError, match="record_id"):
                await store.add_audit_line("odd", actor="ana", tenant="acme", record_id=wrong)
        assert await verify_audit(store) is None

    through(make, scenario)


def test_what_is_kept_of_a_huge_edit_is_bounded(make):
    async def scenario(store):
        shown = {"orders": [str(number) for number in range(20_000)], "note": "x" * 100_000}
        edited = {"orders": [f"{number}!" for number in range(20_000)], "note": "y" * 100_000, "k" * 50_000: 1}
        await store.put(paused(request("a", given=shown)))
        answer = {"approved": True, "input": edited, "reason": "é" * 100_000}
        await store.decide({"a": answer}, actor="ana", tenant=ALL_TENANTS)
        *_, line = await lines(store)
        assert line.digest == sha256(edited)
        assert len(line.diff) == MAX_DIFFERENCES + 1
        assert line.diff[-1] == {"more": True}
        assert line.reason.endswith("(100000 characters)")
        assert len(repr(line)) < 10_000
        assert await verify_audit(store) is None

    through(make, scenario)


@each_row("before, after, found", [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": True}, [{"path": "/a", "from": 1, "to": True}]),
        ({"a": 1}, {"a": 1.0}, [{"path": "/a", "from": 1, "to": 1.0}]),
        ({"a": None}, {}, [{"path": "/a", "from": None}]),
        ({}, {"a": None}, [{"path": "/a", "to": None}]),
        ([1, [2]], [1, [2, 3]], [{"path": "/1/1", "to": 3}]),
        ({"a/b": {"~": 1}}, {"a/b": {"~": 2}}, [{"path": "/a~1b/~0", "from": 1, "to": 2}]),
        ({"a": {}}, {"a": []}, [{"path": "/a", "from": {}, "to": []}]),
        (5, {"a": 5}, [{"path": "", "from": 5, "to": {"a": 5}}]),
        ({"b": 1}, {"c": 1}, [{"path": "/b", "from": 1}, {"path": "/c", "to": 1}]),
    ])  # fmt: skip
def test_differences_are_told_by_place(before, after, found):
    assert list_differences(before, after) == found


def test_differences_of_deep_values_are_found():
    before, after = 1, 2
    for _ in range(400):
        before, after = [before], {"k": [after]}["k"]
    (one,) = list_differences(before, after)
    assert (one["from"], one["to"]) == (1, 2)
    assert len(one["path"]) <= 200
