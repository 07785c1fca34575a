"""The history says who decided what and what they changed, to those whose tenants it is about."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import pytest
from codemode_console.decisions import describe_audit_decision
from codemode_console.pages import audit
from console_houses import AS_JSON, BOB, EVE, House
from console_visitors import run
from stored_pauses import NO, OK
from suite import each_row

from codemode.stores import ALL_TENANTS

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x07 javascript:alert(1)"


def test_what_was_decided_is_told_with_what_was_changed() -> None:
    async def work() -> None:
        house = House()
        first = await house.put("a", given={"order": "A-17", "cents": 90000, "note": "x" * 5000})
        await house.decide("a", {"approved": True, "input": {"order": "A-17", "cents": 9000}, "reason": "too much"})
        second = await house.put("b", tenant="globex", tool="wire")
        await house.decide("b", NO, actor="bob")
        gone = await house.put("c")
        await house.store.withdraw(gone, actor="agent", reason="no longer", tenant="acme")
        async with house.browser() as ana:
            found = (await ana.get("/history")).text
            rows = re.findall("<tr>(.*?)</tr>", found.split("<tbody>")[1], re.DOTALL)
            assert ["agent" in rows[0], "bob" in rows[1], "ana" in rows[2]] == [True, True, True]
            assert f'href="/records/{first}">Approved with changes</a>' in rows[2]
            assert "<li>cents: <del>90000</del> &rarr; <ins>9000</ins></li>" in rows[2]
            assert "<li>note: <del>&#34;xxx" in rows[2]
            assert "x" * 1000 not in found
            assert "too much" in rows[2]
            assert f'href="/records/{second}">Denied</a>' in rows[1]
            assert "wire" in rows[1]
            assert '<time datetime="' in rows[0]
            of_all = (await ana.get("/history", headers=AS_JSON)).json()
            assert [one["decision"] or one["kind"] for one in of_all["decisions"]] == ["withdrawn", "denied", "edited"]
            for asked, count in {
                "tool=wire": 1, "actor=ana": 1, "tenant=globex": 1, "tenant=acme": 2, "tenant=initech": 0,
                "tool=wire&actor=ana": 0, "tenant=%00": 0,
            }.items():  # fmt: skip
                found = (await ana.get(f"/history?{asked}", headers=AS_JSON)).json()
                assert len(found["decisions"]) == count, asked
        async with house.browser(BOB) as bob:
            assert (await bob.get("/history", headers=AS_JSON)).json() == {"decisions": [], "next": None}
            assert first not in (await bob.get("/history?tenant=acme")).text

    run(work)


@each_row("decided, words", [
    ("edited", "approved with changes"), ("approved", "approved"), ("denied", "denied"), ("answered", "answered"),
    ("value", "answered with its value"), ("error", "answered with its error"), ("run_again", "run again"),
    ("withdrawn", "withdrawn"), ("<b>", "<b>"),
])  # fmt: skip
def test_the_history_has_the_words_of_cards(decided: str, words: str) -> None:
    assert describe_audit_decision(decided) == words


@pytest.mark.parametrize("scanned", [1000, 70])
def test_pages_follow_one_another_and_leave_nothing_out(scanned: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MAX_SCANNED_LINES", scanned)

    async def work() -> None:
        house = House()
        decided = []
        for number in range(60):
            name = str(number)
            tenant = ("acme", "globex", "initech")[number % 3]
            await house.put(name, tenant)
            await house.decide(name, OK, actor=name)
            if tenant != "initech":
                decided.append(name)
            await house.store.add_audit_line("noise", actor="x", tenant="acme")
        async with house.browser() as ana, house.browser(EVE) as eve:
            for browser, own in ((ana, decided), (eve, [str(number) for number in range(60)])):
                seen: list[str] = []
                path = "/history"
                for _ in range(9):
                    page = await browser.get(path)
                    assert page.status_code == 200
                    found = (await browser.get(path, headers=AS_JSON)).json()
                    assert len(found["decisions"]) <= 50
                    seen += [one["actor"] for one in found["decisions"]]
                    link = re.search(r'href="(/history\?[^"]+)" rel="next"', page.text)
                    assert (link is None) == (found["next"] is None)
                    if link is None:
                        break
                    path = link[1].replace("&amp;", "&")
                assert seen == own[::-1]
            for wrong in ("x", "-1", "9" * 19, "\u0661", "1 "):
                assert (await ana.get("/history", params={"after": wrong})).status_code == 400

    run(work)


def test_what_models_write_is_text_in_the_history() -> None:
    async def work() -> None:
        house = House()
        given: Any = {HOSTILE: HOSTILE, "b": [HOSTILE]}
        await house.put("a", given=given, tool=HOSTILE)
        edited = {HOSTILE: f"{HOSTILE}!", "b": [f"{HOSTILE}!" * 100]}
        await house.decide("a", {"approved": True, "input": edited, "reason": HOSTILE})
        async with house.browser() as ana:
            for path in (
                "/history",
                f"/history?tool={quote(HOSTILE)}&actor={quote(HOSTILE)}",
                "/audit",
                f"/audit?kind={quote(HOSTILE)}",
            ):
                page = (await ana.get(path)).text
                assert "<script>alert" not in page
                assert "<img" not in page
                assert "\u202e" not in page
                assert "\x07" not in page
                assert "&lt;script&gt;alert(1)" in page
        async with house.client() as nobody:
            for path in ("/history", "/audit", "/audit/export"):
                answer = await nobody.get(path)
                assert (answer.status_code, answer.headers["location"].startswith("/sign-in")) == (303, True)
        assert not [one async for one in house.store.audit(tenant=ALL_TENANTS) if one.kind == "audit_exported"]

    run(work)
