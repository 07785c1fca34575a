"""The audit shows its lines, says whether they are as they were written, and is given as a copy."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from codemode_console.pages import audit
from console_houses import AS_JSON, BOB, EVE, House
from console_listeners import listening
from console_visitors import hidden, run
from stored_pauses import OK
from waiting import until

from codemode.stores import ALL_TENANTS, AuditLine, SqliteInterruptStore, StoreUnavailableError

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x07 javascript:alert(1)"


async def lines_of(browser: Any) -> list[Any]:
    answer = await browser.get("/audit/export")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["x-content-type-options"] == "nosniff"
    return [json.loads(line) for line in answer.text.splitlines()]


def test_the_audit_is_shown_with_addresses_and_what_is_in_a_line() -> None:
    async def work() -> None:
        house = House()
        async with house.browser() as ana, house.browser(EVE) as eve:
            record_id = await house.put("a")
            await house.decide("a", OK)
            await house.store.add_audit_line("odd", actor="x", tenant="acme", details={"n": "y" * 5000})
            page = (await ana.get("/audit")).text
            assert f'<a href="/records/{record_id}">{record_id}</a>' in page
            assert "192.0.2.9" in page
            assert "y" * 1500 in page
            assert "y" * 2001 not in page
            assert "signed_in" not in page  # of who sees two tenants: the line is of no tenant
            of_eve = (await eve.get("/audit", headers=AS_JSON)).json()["lines"]
            assert [one["kind"] for one in of_eve][-2:] == ["signed_in", "signed_in"]
            assert of_eve[-1]["address"] == "192.0.2.1"
            for asked, kinds in {
                "kind=decided": ["decided"], "actor=x": ["odd"], f"record={record_id}": ["decided", "put"],
                "tenant=acme&kind=put": ["put"], "tenant=initech": [], "kind=nothing": [],
            }.items():  # fmt: skip
                found = (await ana.get(f"/audit?{asked}", headers=AS_JSON)).json()
                assert [one["kind"] for one in found["lines"]] == kinds, asked

    run(work)


def test_pages_of_the_audit_follow_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MAX_SCANNED_LINES", 60)

    async def work() -> None:
        house = House()
        for number in range(150):
            await house.store.add_audit_line(
                f"k{number % 2}", actor="x", tenant=("acme", "globex", "initech")[number % 3]
            )
        every = [one async for one in house.store.audit(tenant=ALL_TENANTS)]
        async with house.browser() as ana:
            for kind in ("", "k1"):
                seen: list[int] = []
                after: Any = ""
                while after is not None:
                    asked = {"kind": kind, "after": after}
                    found = (await ana.get("/audit", params=asked, headers=AS_JSON)).json()
                    assert len(found["lines"]) <= 50
                    seen += [one["sequence"] for one in found["lines"]]
                    after = found["next"]
                own = [one.sequence for one in every if one.tenant != "initech" and kind in ("", one.kind)]
                assert seen == own[::-1]

    run(work)


def test_a_copy_has_all_lines_that_somebody_may_see_and_is_one_itself(tmp_path: Path) -> None:
    async def work() -> None:
        house = House(SqliteInterruptStore(tmp_path / "a.sqlite"))
        async with house.browser() as ana, house.browser(BOB) as bob, house.browser(EVE) as eve:
            for number in range(310):
                await house.store.add_audit_line("k", actor=HOSTILE, tenant=("acme", "globex", "initech")[number % 3])
            every = [one async for one in house.store.audit(tenant=ALL_TENANTS)]
            for browser, tenants in ((ana, {"acme", "globex"}), (bob, {"initech"})):
                own = [one.sequence for one in every if one.tenant in tenants]
                found = await lines_of(browser)
                assert [one["sequence"] for one in found][: len(own)] == own
                assert {one["tenant"] for one in found} == tenants
            found = await lines_of(eve)
            assert [one["kind"] for one in found[-3:]] == ["audit_exported"] * 3
            assert [one["actor"] for one in found[-3:]] == ["ana", "bob", "eve"]
            assert {one["address"] for one in found[-3:]} == {"192.0.2.1"}
            # Whoever has a copy can check it without the store.
            assert [AuditLine(**{**one, "diff": tuple(one["diff"])}) for one in found[: len(every)]] == every
            text = (await eve.get("/audit/export")).text
            assert text.isascii()
            assert "\x07" not in text
            assert (await eve.get("/audit/export", headers={"sec-fetch-site": "cross-site"})).status_code == 403
            kinds = [one.kind async for one in house.store.audit(tenant=ALL_TENANTS)]
            assert kinds.count("audit_exported") == 4
        await house.store.aclose()

    run(work)


def instead(house: House, audit: Any) -> None:
    """Give other lines than the store's, but for those that are looked for by what they are about."""
    own = type(house.store).audit

    def chosen(**asked: Any) -> Any:
        return own(house.store, **asked) if asked.get("record_id") else audit(**asked)

    house.store.audit = chosen


class Endless:
    """A store whose audit has no end, and which counts what is read of it."""

    def __init__(self, house: House) -> None:
        self.read, self.closed = 0, asyncio.Event()
        instead(house, self._audit)

    async def _audit(self, **_asked: Any) -> AsyncGenerator[AuditLine]:
        try:
            while True:
                self.read += 1
                yield AuditLine(sequence=self.read, at_ms=0, kind="k")
                await asyncio.sleep(0)
        finally:
            self.closed.set()


def test_a_copy_is_sent_as_it_is_read_and_ends_with_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        house = House()
        async with house.browser() as ana:
            endless = Endless(house)
            for _ in range(3):  # its place is free again
                async with listening(house.app, ana.cookies, path="/audit/export") as listener:
                    await until(lambda: listener.sent)
                    listener.takes.clear()
                    read = endless.read
                    for _ in range(100):
                        await asyncio.sleep(0)
                    assert endless.read <= read + 200  # a batch at the most, for whoever takes nothing
                    listener.takes.set()
                    listener.go()
                    await asyncio.wait_for(endless.closed.wait(), 60)
                    await listener.end()
                    endless.closed.clear()
            async with listening(house.app, ana.cookies, path="/audit/export", method="HEAD") as head:
                assert (head.status, head.sent) == (200, [])

    run(work)


def test_few_copies_are_taken_at_a_time() -> None:
    async def work() -> None:
        house = House()
        async with house.browser() as ana:
            Endless(house)
            path = "/audit/export"
            async with listening(house.app, ana.cookies, path=path), listening(house.app, ana.cookies, path=path):
                refused = await ana.get(path)
                assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")

    run(work)


def test_a_copy_that_breaks_off_does_not_look_whole() -> None:
    async def work() -> None:
        house = House()

        async def breaks(**_asked: Any) -> AsyncGenerator[AuditLine]:
            for number in range(150):
                yield AuditLine(sequence=number, at_ms=0, kind="k")
            raise StoreUnavailableError("gone")

        async with house.browser() as ana:
            instead(house, breaks)
            async with listening(house.app, ana.cookies, path="/audit/export") as listener:
                await listener.end()
                assert listener.status == 200
                assert not listener.is_whole

    run(work)


def test_a_check_says_where_a_line_was_changed(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"

    async def work() -> None:
        house = House(SqliteInterruptStore(path))
        async with house.browser() as ana:
            for number in range(5):
                await house.put(str(number))
            token = hidden((await ana.get("/audit")).text.split("audit/verify")[1], "form_token")
            whole = await ana.post("/audit/verify", data={"form_token": token})
            assert (whole.status_code, "All lines are intact" in whole.text) == (200, True)
            head = whole.text.split("Head: ")[1].split("<")[0]
            assert (await ana.post("/audit/verify", data={"form_token": token, "head": head})).status_code == 200
            for wrong in ({"form_token": "x"}, {"head": "x"}):
                assert (await ana.post("/audit/verify", data=wrong)).status_code == 403
            refused = [one async for one in house.store.audit(tenant=ALL_TENANTS) if one.kind == "request_refused"]
            assert [(one.actor, one.address) for one in refused] == [("ana", "192.0.2.1")] * 2
            assert (await ana.post("/audit/verify", data={"form_token": token, "head": "x"})).status_code == 400
            changed(path, "UPDATE codemode_audit SET body = replace(body, '\"kind\":\"put\"', '\"kind\":\"odd\"')"
                    " WHERE sequence = 3")  # fmt: skip
            found = await ana.post("/audit/verify", data={"form_token": token})
            assert 'role="alert">Line 3 was changed.' in found.text
            as_json = (await ana.post("/audit/verify", data={"form_token": token}, headers=AS_JSON)).json()["checked"]
            assert (as_json["isWhole"], as_json["sequence"], as_json["reason"]) == (False, 3, "changed")
            for body in ("{}", "[", "", HOSTILE):
                changed(
                    path, "UPDATE codemode_audit SET body = ?, record_id = ?, tenant = 'acme'", body, "../" + HOSTILE
                )
                page = await ana.get("/audit")
                assert page.status_code == 200
                assert "unreadable" in page.text
                assert "<script>alert" not in page.text
                assert 'href="/records/..' not in page.text
                assert (await ana.get("/history")).status_code == 200
                assert len(await lines_of(ana)) >= 5
        await house.store.aclose()

    run(work)


def test_lines_of_every_shape_are_shown() -> None:
    shapes: list[Any] = [5, None, [], {}, [HOSTILE], {HOSTILE: HOSTILE}, True, 1e308, "x" * 9000, 10**30, HOSTILE]
    of_diff = [[one, {"path": one, "from": one, "to_start": one, "more": one}] for one in shapes]
    said: dict[str, Any] = {"sequence": 7, "at_ms": 0, "kind": "decided"}
    names = [one.name for one in fields(AuditLine) if one.name != "sequence"]
    every = [AuditLine(**{**said, name: one}) for name in names for one in (of_diff if name == "diff" else shapes)]

    async def work() -> None:
        house = House()
        async with house.browser() as ana:
            for begin in range(0, len(every), 40):

                async def some(begin: int = begin, **_asked: Any) -> AsyncGenerator[AuditLine]:
                    for line in every[begin : begin + 40]:
                        yield line

                instead(house, some)
                for page in ("/audit", "/history", f"/audit?kind={quote(HOSTILE)}"):
                    answer = await ana.get(page)
                    assert answer.status_code == 200
                    assert "<script>alert" not in answer.text
                    assert (await ana.get(page, headers=AS_JSON)).status_code == 200
                assert len(await lines_of(ana)) == len(every[begin : begin + 40])

    run(work)


def changed(path: Path, statement: str, *values: Any) -> None:
    """Change lines as somebody who owns the database can."""
    with closing(sqlite3.connect(path)) as connection, connection:
        names = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in names:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(statement, values)


def test_one_check_goes_on_at_a_time_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[asyncio.Timeout] = []

    def timeout(seconds: float) -> asyncio.Timeout:
        limits.append(asyncio.timeout(seconds))
        return limits[-1]

    monkeypatch.setattr(audit, "asyncio", SimpleNamespace(timeout=timeout))

    async def work() -> None:
        house = House()
        begun, asked = asyncio.Event(), []

        async def verify(*_given: Any) -> None:
            asked.append(1)
            begun.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(audit, "verify_audit", verify)
        async with house.browser() as ana:
            token = hidden((await ana.get("/audit")).text.split("audit/verify")[1], "form_token")
            first = asyncio.create_task(ana.post("/audit/verify", data={"form_token": token}))
            await begun.wait()
            second = await ana.post("/audit/verify", data={"form_token": token})
            limits[0].reschedule(asyncio.get_running_loop().time())
            given_up = await first
            assert (second.status_code, given_up.status_code, len(asked)) == (429, 200, 1)
            assert "the check stopped after" in given_up.text

    run(work)
