"""Signing in and out, over real requests: what a session is, who gets one, and what ends it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from codemode_console.auth import TokenAuth, User, token_hash
from codemode_console.sign_in import FailureThrottle, sanitize_next_path
from console_houses import House
from console_listeners import listening
from console_visitors import ANA, EVE, OWN, USERS, Desk, hidden, run, sign_in
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode.stores import ALL_TENANTS, SqliteInterruptStore


def test_nobody_is_shown_the_way_to_sign_in_and_then_what_they_came_for() -> None:
    async def work() -> None:
        async with Desk().browser() as browser:
            sent_on = await browser.get("/records/a?tab=json")
            assert sent_on.status_code == 303
            page = await browser.get(sent_on.headers["location"])
            assert hidden(page.text, "next") == "/records/a?tab=json"
            arrived = await sign_in(browser, next=hidden(page.text, "next"))
            assert (arrived.status_code, arrived.headers["location"]) == (303, "/records/a?tab=json")
            assert (await browser.get("/records/a")).json()["name"] == "ana"

    run(work)


def test_a_prefix_is_part_of_every_address_and_of_the_cookie() -> None:
    async def work() -> None:
        async with Desk(prefix="/approvals").browser() as browser:
            sent_on = await browser.get("/approvals/x")
            assert sent_on.headers["location"] == "/approvals/sign-in?next=%2Fapprovals%2Fx"
            page = await browser.get(sent_on.headers["location"])
            assert 'action="/approvals/sign-in"' in page.text
            arrived = await browser.post("/approvals/sign-in", data={"token": ANA}, headers=OWN)
            assert arrived.headers["location"] == "/approvals/"
            assert "Path=/approvals;" in arrived.headers["set-cookie"]
            assert (await browser.get("/approvals/x")).json()["name"] == "ana"

    run(work)


def test_the_cookie_is_for_twelve_hours_and_for_no_script() -> None:
    async def work() -> None:
        desk = Desk()
        async with desk.browser() as browser:
            cookie = (await sign_in(browser)).headers["set-cookie"]
            parts = {part.strip().lower() for part in cookie.split(";")[1:]}
            assert parts >= {"httponly", "samesite=lax", "secure", "path=/", "max-age=43200"}
            assert not any(part.startswith("domain") for part in parts)
            assert ANA not in cookie
            desk.clock.now += 12 * 3600
            assert (await browser.get("/")).status_code == 200
            desk.clock.now += 1
            assert (await browser.get("/")).status_code == 303

    run(work)


@pytest.mark.parametrize(("base", "settings", "is_secure"), [
    ("http://desk.test", {}, False),
    ("http://desk.test", {"base_url": "https://desk.test/approvals"}, True),
])  # fmt: skip
def test_the_cookie_is_for_https_alone_where_browsers_use_that(
    base: str, settings: dict[str, str], is_secure: bool
) -> None:
    async def work() -> None:
        async with Desk(**settings).browser(base=base) as browser:
            assert ("; Secure" in (await sign_in(browser)).headers["set-cookie"]) is is_secure

    run(work)


def test_a_cookie_that_was_changed_or_made_by_somebody_else_is_nobodys() -> None:
    async def work() -> None:
        desk, other = Desk(), Desk()
        async with desk.browser() as browser, other.browser() as elsewhere:
            await sign_in(browser)
            await sign_in(elsewhere)
            name, good = next(iter(browser.cookies.items()))
            changed = [
                good[:place] + ("A" if good[place] != "A" else "B") + good[place + 1 :] for place in range(len(good))
            ]
            head, signature = good.rsplit(".", 1)
            forged = [*changed, elsewhere.cookies[name], head, f"{head}.", f".{signature}", "", "null", good + good]
            for one in forged:
                answer = await httpx_get(desk, {"cookie": f"{name}={one}"})
                # The last character of base64 has bits that nobody reads.
                assert answer.status_code == 303 or one[:-1] == good[:-1], one

    run(work)


async def httpx_get(desk: Desk, headers: dict[str, str]) -> httpx.Response:
    async with desk.browser(headers=headers) as browser:
        return await browser.get("/")


def test_signing_out_ends_the_session_wherever_its_cookie_is() -> None:
    async def work() -> None:
        desk = Desk()
        async with desk.browser() as browser, desk.browser() as tab, desk.browser() as other:
            await sign_in(browser)
            await sign_in(other)
            tab.cookies.update(browser.cookies)
            kept = dict(browser.cookies)
            token = hidden((await browser.get("/sign-in")).text, "form_token")
            refused = await browser.post("/sign-out", data={"form_token": "x"}, headers=OWN)
            assert refused.status_code == 403
            assert (await tab.get("/")).status_code == 200
            gone = await browser.post("/sign-out", data={"form_token": token}, headers=OWN)
            assert gone.status_code == 303
            assert "codemode_console" not in browser.cookies
            assert (await tab.get("/")).status_code == 303
            assert (
                await browser.get("/", headers={"cookie": f"codemode_console={kept['codemode_console']}"})
            ).status_code == 303
            assert (await other.get("/")).status_code == 200
            assert (await desk.kinds())[-1] == "signed_out"

    run(work)


def test_signing_in_again_is_another_session_and_ends_the_one_before() -> None:
    async def work() -> None:
        desk = Desk()
        async with desk.browser() as browser, desk.browser() as tab:
            await sign_in(browser)
            tab.cookies.update(browser.cookies)
            await sign_in(browser, EVE)
            assert browser.cookies["codemode_console"] != tab.cookies["codemode_console"]
            assert (await browser.get("/")).json()["name"] == "eve"
            assert (await tab.get("/")).status_code == 303

    run(work)


def test_who_is_taken_off_the_list_is_nobody_at_once() -> None:
    async def work() -> None:
        before = Desk(secret="a secret of several consoles")
        after = Desk(TokenAuth({token_hash(EVE): User("eve", ["acme"])}), secret="a secret of several consoles")
        async with before.browser() as browser, after.browser() as later:
            await sign_in(browser)
            later.cookies.update(browser.cookies)
            assert (await later.get("/")).status_code == 303

    run(work)


def test_consoles_with_one_secret_know_each_others_sessions() -> None:
    async def work() -> None:
        first, second = (
            Desk(secret=["the new secret of both"]),
            Desk(secret=["the new secret of both", "the newest secret"]),
        )
        async with first.browser() as browser, second.browser() as other:
            await sign_in(browser)
            other.cookies.update(browser.cookies)
            assert (await other.get("/")).json()["name"] == "ana"

    run(work)


def test_after_ten_failures_of_an_address_others_wait_but_the_right_token_is_let_in() -> None:
    async def work() -> None:
        desk = Desk()
        async with desk.browser() as browser, desk.browser("192.0.2.2") as other:
            for _ in range(10):
                assert (await sign_in(browser, "guess")).status_code == 401
                desk.clock.now += 1
            for token in ("guess", "another guess"):
                waits = await sign_in(browser, token)
                assert (waits.status_code, waits.headers["retry-after"]) == (429, "50")
                assert "set-cookie" not in waits.headers
            assert (await sign_in(browser)).status_code == 303
            assert (await sign_in(other)).status_code == 303
            desk.clock.now += 50
            assert (await sign_in(browser)).status_code == 303
            assert (await desk.kinds()).count("sign_in_failed") == 10

    run(work)


def test_one_network_of_ipv6_counts_as_one_address_and_what_proxies_tell_counts_behind_them() -> None:
    async def work() -> None:
        desk = Desk(trusted_proxies=["10.0.0.0/8"])
        for number in range(10):
            async with desk.browser(f"2001:db8::{number:x}") as browser:
                assert (await sign_in(browser, "guess")).status_code == 401
            # Who is no proxy speaks for itself, whatever it says.
            told = {"x-forwarded-for": f"198.51.100.{number}", **OWN}
            async with desk.browser("192.0.2.9") as browser:
                assert (await browser.post("/sign-in", data={"token": "guess"}, headers=told)).status_code == 401
            async with desk.browser("10.1.2.3") as browser:
                told = {"x-forwarded-for": f"192.0.2.{number}, 203.0.113.5, 10.9.9.9", **OWN}
                assert (await browser.post("/sign-in", data={"token": "guess"}, headers=told)).status_code == 401
        async with desk.browser("2001:db8::ffff") as browser:
            assert (await sign_in(browser, "guess")).status_code == 429
        async with desk.browser("192.0.2.9") as browser:
            assert (await sign_in(browser, "guess")).status_code == 429
        async with desk.browser("10.1.2.3") as browser:
            for told, status in [("203.0.113.5", 429), ("203.0.113.6", 401)]:
                answer = await browser.post("/sign-in", data={"token": "x"}, headers={"x-forwarded-for": told, **OWN})
                assert answer.status_code == status

    run(work)


@given(st.lists(st.tuples(st.integers(0, 30), st.floats(0, 20)), max_size=80))
def test_the_throttle_keeps_little_and_forgets_nobody_within_a_minute(steps: list[tuple[int, float]]) -> None:
    throttle, now, seen = FailureThrottle(max_keys=20), 0.0, dict[str, list[float]]()
    for number, passed in steps:
        now += passed
        address = str(number % 15)
        recent = [at for at in seen.get(address, []) if at + 60 > now]
        assert (throttle.compute_wait_seconds(address, now) > 0) == (len(recent) >= 10)
        throttle.count_failure(address, now)
        seen[address] = [*recent, now][-10:]
    for number in range(100):
        throttle.count_failure(f"other {number}", now)
        assert len(throttle) <= 20


def test_a_clock_that_is_set_back_keeps_nobody_out() -> None:
    throttle = FailureThrottle()
    for _ in range(10):
        throttle.count_failure("here", 7200.0)
    assert throttle.compute_wait_seconds("here", 7200.0) == 60
    assert throttle.compute_wait_seconds("here", 3600.0) == 0
    for _ in range(10):
        throttle.count_failure("here", 3600.0)
    assert throttle.compute_wait_seconds("here", 3601.0) == 59


ELSEWHERE = [
    "https://evil.test/", "//evil.test", "///evil.test", "/\\evil.test", "\\\\evil.test", "/\t/evil.test",
    "/\n/evil.test", "javascript:alert(1)", "data:text/html,x", "evil.test", "", " /x", "http:evil.test",
    "/%0d%0aset-cookie:x=1\r\nx: y", "/approvals//evil.test", "/approvals/..//evil.test", "/approvals/../admin",
    "/approvals/%2e%2e/admin", "/approvalsx", "/admin", "/é",
]  # fmt: skip


@each_row("target", ELSEWHERE)
def test_who_has_signed_in_goes_nowhere_else(target: str) -> None:
    async def work() -> None:
        async with Desk(prefix="/approvals").browser() as browser:
            page = await browser.get("/approvals/sign-in", params={"next": target})
            assert hidden(page.text, "next") == "/approvals/"
            arrived = await browser.post("/approvals/sign-in", data={"token": ANA, "next": target}, headers=OWN)
            assert arrived.headers["location"] == "/approvals/"

    run(work)


@given(st.text(alphabet="/\\.:@?#%2eaA \t\n\u2025", max_size=12))
def test_where_to_go_is_always_a_path_of_the_console(target: str) -> None:
    url = httpx.URL("https://desk.test/approvals/sign-in").join(sanitize_next_path(target, "/approvals"))
    assert (url.scheme, url.host) == ("https", "desk.test")
    assert url.path.startswith("/approvals/")


def test_signing_in_needs_a_small_plain_form() -> None:
    async def work() -> None:
        desk = Desk()
        async with desk.browser() as browser:
            plain = {**OWN, "content-type": "application/x-www-form-urlencoded"}
            for headers, content, status in [
                (OWN, b"{}", 400),
                ({**OWN, "content-type": "application/json"}, b'{"token": 1}', 400),
                (plain, b"token=%ff", 400),
                (plain, b"a=1&" * 2100, 400),
                (plain, b"token=" + b"x" * 20_000, 413),
                (plain, b"token=" + b"x" * 9_000, 401),
                (plain, b"", 401),
            ]:
                answer = await browser.post("/sign-in", content=content, headers=headers)
                assert answer.status_code == status, content[:50]
            assert (await browser.put("/sign-in", headers=OWN)).status_code == 405
            assert await desk.kinds() == ["sign_in_failed"] * 2

    run(work)


def test_programs_read_json() -> None:
    async def work() -> None:
        async with Desk().browser(headers={"accept": "application/json"}) as browser:
            nobody = await browser.get("/")
            assert (nobody.status_code, nobody.json()["error"]["status"]) == (401, 401)
            assert (await sign_in(browser, "guess")).json()["error"]["status"] == 401
            assert (await sign_in(browser)).json() == {"signedIn": True}
            assert (await browser.get("/")).json()["name"] == "ana"

    run(work)


@each_row("around, status", [
    ("https://desk.test/sign-in#token={}", 303), (" http://127.0.0.1:8822/sign-in#token={}\n", 303), (" {} ", 303),
    ("https://desk.test/sign-in?token={}", 401), ("https://desk.test/sign-in#token={}x", 401),
    ("#token={}#token=", 401),
])  # fmt: skip
def test_the_printed_url_pasted_whole_is_its_token(around: str, status: int) -> None:
    async def work() -> None:
        async with Desk().browser() as browser:
            token = "256RandomBits_-"
            assert (await sign_in(browser, around.format(token))).status_code == 401
            assert (await sign_in(browser, around.format(ANA))).status_code == status

    run(work)


def test_the_audit_says_who_signed_in_from_where_and_never_a_token() -> None:
    async def work() -> None:
        desk = Desk()
        async with desk.browser("198.51.100.7") as browser:
            await sign_in(browser, "guess")
            await sign_in(browser, EVE)
        lines = [line async for line in desk.store.audit(tenant=ALL_TENANTS)]
        assert [(line.kind, line.actor, line.tenant, line.address) for line in lines] == [
            ("sign_in_failed", "", None, "198.51.100.7"),
            ("signed_in", "eve", "acme", "198.51.100.7"),
        ]
        assert not any(secret in repr(lines) for secret in ("guess", EVE, *USERS))

    run(work)


def test_signing_out_holds_for_all_consoles_on_one_store(tmp_path: Path) -> None:
    async def work() -> None:
        stores = [SqliteInterruptStore(tmp_path / "a.sqlite") for _ in range(2)]
        first, second = [House(store) for store in stores]
        async with first.browser() as ana, second.client() as other, first.browser() as again:
            other.cookies = ana.cookies
            page = await other.get("/")
            assert page.status_code == 200
            copied = dict(ana.cookies)
            async with listening(second.app, copied) as listener:
                await listener.next()
                token = hidden(page.text, "form_token")
                assert (await ana.post("/sign-out", data={"form_token": token})).status_code == 303
                assert (await listener.end())["event"] == "ended"
            async with second.client(cookies=copied) as thief, House(stores[1]).client(cookies=copied) as later:
                for browser in (thief, later):  # a console that was started since knows it too
                    assert (await browser.get("/")).headers["location"].startswith("/sign-in")
                    assert (await browser.post("/sign-out", data={"form_token": token})).status_code == 401
            assert (await again.get("/")).status_code == 200  # the same user's other browser
            # Who signs in anew leaves the session before behind.
            before = dict(again.cookies)
            assert (await again.post("/sign-in", data={"token": EVE})).status_code == 303
            async with second.client(cookies=before) as thief:
                assert (await thief.get("/")).status_code == 303
            lines = [line async for line in stores[0].audit(tenant=ALL_TENANTS) if line.kind == "signed_out"]
            assert [(line.actor, line.address) for line in lines] == [("ana", "192.0.2.1")] * 2
            assert all(cookie not in str(lines) for cookie in (*copied.values(), *before.values()))
        for store in stores:
            await store.aclose()

    run(work)
