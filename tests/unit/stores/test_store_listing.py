"""Lists by label, by expiry and of several tenants, and counts of what waits: against what a plain filter finds."""

from __future__ import annotations

import asyncio
import itertools
import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_pauses import HOUR_MS, NO, OK, paused, put_as_version_2, request
from test_store_contract import claimed, decided, through
from waiting import within

from codemode.stores import ALL_TENANTS, tables
from codemode.stores.queries import MAX_COUNTED_TOOLS, MAX_LABELS, create_record_filter
from codemode.stores.rows import MAX_TENANTS

TENANTS = ("acme", "globex", "initech")
HOSTILE = (
    "",
    " ",
    "é",
    "\u202e",
    "a" * 5000,
    "'; DROP TABLE codemode_labels --",
    "%",
    "?",
    "<b>",
    "\U0001f4a9",
    "a\nb",
)


async def filled(store):
    """Keep records of all kinds, and return what is known of each: as it was put, in that order."""
    dice, known = random.Random(19), []
    for number in range(36):
        tools = [f"tool{dice.randrange(3)}" for _ in range(dice.randrange(1, 4))]
        labels = {"agent": dice.choice("xy"), **({"more": "z"} if dice.random() < 0.5 else {})}
        at = {"tenant": dice.choice(TENANTS), "app": f"app{dice.randrange(2)}", "labels": labels}
        age_ms = dice.choice((HOUR_MS, 2 * HOUR_MS, 3 * HOUR_MS + number))
        waiting = [request(f"{number}-{place}", tool=tool) for place, tool in enumerate(tools)]
        known.append(await store.put(paused(*waiting, age_ms=age_ms), **at))
        await _happens(store, known[-1], number, dice)
    for number in range(3):
        lease = await store.put_suspended(paused("left"), owner="o", tenant=TENANTS[number], labels={"agent": "x"})
        known.append(lease.record.id)
    return known


async def _happens(store, record_id, number, dice):
    what = dice.choice(("nothing", "nothing", "withdrawn", "decided", "resuming", "lost", "completed", "paused"))
    if what == "withdrawn":
        await store.withdraw(record_id, actor="ana")
    if what in ("nothing", "withdrawn"):
        return
    await decided(store, f"{number}-0", answer=dice.choice((OK, NO)))
    if what == "decided":
        return
    lease = await claimed(store, record_id=record_id)
    if what == "lost":
        await store.mark_lost(lease)
    elif what == "completed":
        await store.settle(lease, "done")
    elif what == "paused":
        await store.settle(lease, paused(request(f"{number}-again", tool="tool1"), age_ms=HOUR_MS + number))


def is_asked(record, tenants=None, app=None, tool=None, state=None, labels=None):
    waiting = [one.tool_name for one in record.requests if one.state == "waiting"]
    return (
        (tenants is None or record.tenant in tenants)
        and app in (None, record.app)
        and (tool is None or tool in waiting)
        and (labels or {}).items() <= record.labels.items()
        and {
            None: record.state != "resting",
            "waiting": bool(waiting) and record.state in ("pending", "resuming"),
        }.get(state, record.state == state)
    )


async def paged(store, limit, **asked):
    """Return the ids of all pages."""
    found, after = [], None
    while True:
        page = await store.list(**asked, after=after, limit=limit)
        assert page.next is None or len(page.records) == limit
        found += [one.id for one in page.records]
        if (after := page.next) is None:
            return found


def test_every_list_is_what_a_plain_filter_finds(make):
    async def scenario(store):
        ids = await filled(store)
        records = [await store.record(one, tenant=ALL_TENANTS) for one in reversed(ids)]
        assert {one.state for one in records} >= {"pending", "resuming", "lost", "completed", "withdrawn", "resting"}
        whose = (("acme", {"acme"}), (frozenset(TENANTS[:2]), set(TENANTS[:2])), (ALL_TENANTS, None), (frozenset(), ()))
        labels = (None, {"agent": "x"}, {"agent": "y", "more": "z"}, {"more": "nowhere", "agent": "x"})
        states = ("newest", None), ("newest", "waiting"), ("newest", "lost"), ("newest", "pending"), ("expiring", None)
        for (tenant, names), tool, some, (order, state) in itertools.product(whose, (None, "tool1"), labels, states):
            for app in (None, "app1"):
                asked = {"app": app, "tool": tool, "state": state, "labels": some}
                found = await paged(store, 7, tenant=tenant, order=order, **asked)
                if order == "expiring":
                    asked["state"] = "waiting"
                expected = [one for one in records if is_asked(one, names, **asked)]
                if order == "expiring":
                    expected = sorted(expected, key=lambda one: (one.expires_at_ms, ids.index(one.id)))
                assert found == [one.id for one in expected], (tenant, order, asked)
        for tenant, names in whose:
            counted = await store.count_waiting_requests(tenant=tenant)
            waiting = [one for one in records if is_asked(one, names, state="waiting")]
            tools = [one.tool_name for some in waiting for one in some.requests if one.state == "waiting"]
            assert counted == {one: tools.count(one) for one in tools}
            assert list(counted.values()) == sorted(counted.values(), reverse=True)
            assert sum((await store.count_waiting_requests(tenant=tenant, app="app1")).values()) <= sum(
                counted.values()
            )

    through(make, scenario)


@pytest.mark.parametrize("order", ["newest", "expiring"])
def test_no_record_is_left_out_or_shown_twice_while_others_come_and_go(make, order):
    async def scenario(store):
        stay = [await store.put(paused(f"s{n}", age_ms=HOUR_MS * (n % 3 + 1)), tenant=TENANTS[n % 3]) for n in range(9)]
        seen, after, number = [], None, 0
        tenants = frozenset(TENANTS)
        while True:
            page = await store.list(tenant=tenants, order=order, after=after, limit=2)
            seen += [one.id for one in page.records]
            if (after := page.next) is None:
                break
            number += 1
            new = await store.put(paused(f"n{number}", age_ms=HOUR_MS * (number % 4 + 1)), tenant="acme")
            if number % 2:
                await store.withdraw(new, actor="ana")
            if number == 3:
                await store.withdraw(seen[-1], actor="ana")  # the very one that the cursor stands on
                await store.purge(timedelta(0))
        assert len(seen) == len(set(seen))
        assert set(stay) <= set(seen)

    through(make, scenario)


def test_hostile_labels_find_their_own_record_alone(make):
    async def scenario(store):
        ids = {}
        for number, text in enumerate(HOSTILE):
            ids["name", text] = await store.put(paused(f"n{number}"), labels={text: "v"})
            ids["text", text] = await store.put(paused(f"t{number}"), labels={"of": text})
        for (which, text), record_id in ids.items():
            labels = {text: "v"} if which == "name" else {"of": text}
            assert await paged(store, 50, tenant="", labels=labels) == [record_id]
        for labels in ({"\0": "v"}, {"of": "\ud800"}, {"v": "é"}, {"of": "e\u0301"}):
            assert await paged(store, 50, tenant="", labels=labels) == []
        for wrong in ({"a": 1}, {1: "a"}, ["a"], "a", {str(one): "" for one in range(MAX_LABELS + 1)}):
            with pytest.raises(ValueError, match="labels"):
                await store.list(tenant="", labels=wrong)

    through(make, scenario)


def test_other_tenants_are_neither_listed_nor_counted(make):
    async def scenario(store):
        for tenant in (*TENANTS, ""):
            await store.put(paused(request(f"of {tenant}", tool=f"tool of {tenant}")), tenant=tenant, labels={"a": "b"})
        for names in ((), ("acme",), ("acme", "globex"), ("nobody",), ("\0", "\ud800"), ("ACME",)):
            known = [one for one in names if one in TENANTS]
            for order in ("newest", "expiring"):
                for asked in ({}, {"labels": {"a": "b"}}, {"tool": "tool of acme"}, {"tool": "tool of initech"}):
                    page = await store.list(tenant=frozenset(names), order=order, **asked)
                    assert {one.tenant for one in page.records} <= set(known)
            assert set(await store.count_waiting_requests(tenant=frozenset(names))) == {
                f"tool of {one}" for one in known
            }
        many = frozenset(str(one) for one in range(MAX_TENANTS - 1)) | {"acme"}
        for labels in (None, {"a": "b"}):
            assert [one.tenant for one in (await store.list(tenant=many, labels=labels)).records] == ["acme"]
        for wrong in (None, 5, ["acme"], frozenset({5}), {"acme": 1}, many | {"one more"}):
            for ask in (store.list, store.count_waiting_requests):
                with pytest.raises(ValueError, match="tenant"):
                    await ask(tenant=wrong)

    through(make, scenario)


def test_records_are_found_by_their_ids_and_only_the_tenants_own(make):
    async def scenario(store):
        ids = {one: await store.put(paused(one), tenant=one, payload=1, source="x") for one in TENANTS}
        asked = [ids["initech"], "nobody", "\0", ids["acme"], ids["globex"], ids["acme"]]
        for tenant, names in (
            ("acme", ["acme"]),
            (frozenset({"acme", "initech"}), ["initech", "acme"]),
            (ALL_TENANTS, ["initech", "acme", "globex"]),
            (frozenset(), []),
        ):
            found = await store.records(asked, tenant=tenant)
            assert [one.tenant for one in found] == names
            assert all((one.payload, one.source, len(one.requests)) == (None, None, 1) for one in found)
        assert await store.records([], tenant=ALL_TENANTS) == ()
        with pytest.raises(ValueError, match="at most 500"):
            await store.records(map(str, range(501)), tenant="acme")

    through(make, scenario)


def test_only_so_many_tools_are_counted_those_for_which_most_wait(make):
    async def scenario(store):
        await store.put(paused(*(request(f"a{one}", tool=f"tool {one}") for one in range(MAX_COUNTED_TOOLS + 5))))
        await store.put(paused(*(request(f"b{one}", tool=f"tool {one}") for one in range(90, 95))))
        counted = await store.count_waiting_requests(tenant="")
        assert len(counted) == MAX_COUNTED_TOOLS
        assert list(counted.items())[:6] == [*((f"tool {one}", 2) for one in range(90, 95)), ("tool 0", 1)]

    through(make, scenario)


@given(st.one_of(st.text(max_size=40), st.from_regex(r"-?[0-9]{1,20}(-[0-9]{1,20})?", fullmatch=True)))
def test_a_cursor_that_no_page_has_given_is_a_wrong_value_or_a_place(cursor):
    asked = {"app": None, "tool": None, "state": None, "labels": None, "limit": 1}
    for order, parts in (("newest", 1), ("expiring", 2)):
        numbers = cursor.split("-")
        if len(numbers) == parts and all(one.isascii() and one.isdigit() and len(one) < 19 for one in numbers):
            place = create_record_filter("", order=order, after=cursor, **asked).after
            assert place is not None
            assert all(0 <= one < 1 << 63 for one in place)
        else:
            with pytest.raises(ValueError, match="after must be"):
                create_record_filter("", order=order, after=cursor, **asked)


def test_what_no_list_has_is_a_wrong_value(make):
    async def scenario(store):
        for wrong in ({"order": "oldest"}, {"order": "expiring", "state": "lost"}, {"state": "open"}, {"order": None}):
            with pytest.raises(ValueError, match=r"order|state"):
                await store.list(tenant="", **wrong)

        for order, cursor in (("newest", "1-1"), ("expiring", "1"), ("newest", "9" * 18), ("expiring", "0-0")):
            if (order, cursor) in (("newest", "9" * 18), ("expiring", "0-0")):
                assert (await store.list(tenant="", order=order, after=cursor)).records == ()
            else:
                with pytest.raises(ValueError, match="after"):
                    await store.list(tenant="", order=order, after=cursor)

    through(make, scenario)


def test_what_is_purged_is_found_by_no_label(make):
    async def scenario(store):
        record_id = await store.put(paused("a"), labels={"a": "b"})
        await store.withdraw(record_id, actor="ana")
        await store.purge(timedelta(0))
        count = await store._run_read(lambda session: session.fetch_one("SELECT COUNT(*) FROM codemode_labels"))
        assert count == (0,)

    through(make, scenario)


def test_a_store_of_before_finds_by_label_and_expiry_what_it_had(kind, make, monkeypatch):
    if kind == "memory":
        pytest.skip("the memory store is not persistent")

    async def scenario():
        with monkeypatch.context() as older:
            older.setattr(tables, "UPGRADES", tables.UPGRADES[:2])
            async with make() as store:
                for number, state in enumerate(("pending", "pending", "lost", "resuming")):
                    one = paused(f"q{number}", age_ms=(9 - number) * HOUR_MS)
                    labels = f'{{"number":"{number}","is":"\\u00e9"}}'
                    about = {"number": number, "state": state, "tenant": "acme", "labels": labels}
                    await asyncio.to_thread(
                        lambda one=one, about=about: put_as_version_2(store._database, one, **about)
                    )
        async with make() as store:
            assert await paged(store, 2, tenant="acme", order="expiring") == ["r3", "r1", "r0"]
            assert await paged(store, 2, tenant="acme", labels={"number": "1", "is": "é"}) == ["r1"]
            assert await paged(store, 2, tenant="acme", labels={"is": "é"}, state="waiting") == ["r3", "r1", "r0"]
            assert await store.count_waiting_requests(tenant=frozenset({"acme"})) == {"refund": 3}
            await store.run_again("r2", actor="ana")
            assert await store.count_waiting_requests(tenant="acme") == {"refund": 4}
            await store.withdraw("r0", actor="ana")
            assert await paged(store, 2, tenant="acme", labels={"is": "é"}, order="expiring") == ["r3", "r2", "r1"]

    within(scenario())
