"""Attacks on who may: other origins, tokens of other forms, headers of proxies that are none, frames."""

from __future__ import annotations

import json
import logging
from typing import Any

import httpx
import pytest
from codemode_console.access_middleware import AccessMiddleware
from codemode_console.auth import ProxyHeaderAuth, TokenAuth, User, new_token, token_hash
from codemode_console.principals import find_decision_refusal
from console_visitors import ANA, EVE, OWN, USERS, Desk, run, sign_in
from starlette.requests import Request
from suite import each_row

from codemode.stores import ALL_TENANTS, MemoryInterruptStore

NOT_OWN: list[dict[str, str]] = [
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "none"},
    {"sec-fetch-site": ""},
    {"sec-fetch-site": "same-origin, cross-site"},
    {"sec-fetch-site": "cross-site", "origin": "https://desk.test"},
    {},
    {"origin": "null"},
    {"origin": ""},
    {"origin": "https://evil.test"},
    {"origin": "https://desk.test.evil.test"},
    {"origin": "https://desk.test:8443"},
    {"origin": "https://desk.test@evil.test"},
    {"origin": "https://evil.test#desk.test"},
    {"origin": "desk.test"},
    {"origin": "file://desk.test"},
    {"origin": "https://evil.test https://desk.test"},
    {"referer": "https://desk.test/"},
    {"origin": "https://evil.test", "x-forwarded-host": "evil.test"},
]


@each_row("headers", NOT_OWN)
def test_a_post_from_elsewhere_does_nothing(headers: dict[str, str]) -> None:
    async def work() -> None:
        desk = Desk()
        async with desk.browser() as browser:
            await sign_in(browser)
            token = (await browser.get("/")).json()["token"]
            form = {"form_token": token, "what": "approve"}
            for method in ("POST", "PUT", "DELETE", "PATCH"):
                assert (await browser.request(method, "/change", data=form, headers=headers)).status_code == 403
            assert desk.sent == []
            assert (await browser.post("/sign-out", data=form, headers=headers)).status_code == 403
            assert (await browser.post("/sign-in", data={"token": EVE}, headers=headers)).status_code == 403
            assert (await browser.get("/")).json()["name"] == "ana"
            assert (await desk.kinds())[1:] == ["request_refused"] * 6

    run(work)


@pytest.mark.parametrize(("headers", "settings"), [
    (OWN, {}),
    ({"origin": "https://desk.test"}, {}),
    ({"origin": "https://desk.test:443"}, {}),
    ({"origin": "https://approvals.acme.com", "host": "10.0.0.7:8822"}, {"base_url": "https://approvals.acme.com/x"}),
])  # fmt: skip
def test_a_post_from_the_own_page_is_taken(headers: dict[str, str], settings: dict[str, str]) -> None:
    async def work() -> None:
        desk = Desk(**settings)
        async with desk.browser() as browser:
            await sign_in(browser)
            token = (await browser.get("/")).json()["token"]
            assert (await browser.post("/change", data={"form_token": token, "what": "x"}, headers=headers)).is_success
            assert desk.sent == ["x"]

    run(work)


def test_a_form_needs_its_own_token_of_its_own_session() -> None:
    async def work() -> None:
        desk = Desk()
        async with desk.browser() as browser, desk.browser() as other, desk.browser() as again:
            for one in (browser, other, again):
                await sign_in(one)
            await sign_in(again)
            token = (await browser.get("/")).json()["token"]
            sign_out = (await browser.get("/sign-in")).text.split('name="form_token" value="')[1].split('"')[0]
            strangers = [(await one.get("/")).json()["token"] for one in (other, again)]
            forged = [None, "", "x", token[:-3], token + "A", token.swapcase(), browser.cookies["codemode_console"]]
            for bad in [*forged, sign_out, *strangers]:
                form = {"what": "x"} if bad is None else {"what": "x", "form_token": bad}
                assert (await browser.post("/change", data=form, headers=OWN)).status_code == 403, bad
            desk.clock.now += 12 * 3600 + 1
            await sign_in(browser)
            replayed = await browser.post("/change", data={"what": "x", "form_token": token}, headers=OWN)
            assert replayed.status_code == 403
            assert desk.sent == []

    run(work)


def test_nobody_reaches_what_is_behind() -> None:
    async def work() -> None:
        desk = Desk()
        async with desk.browser() as browser:
            assert (await browser.get("/healthz")).status_code == 200
            assert (await browser.post("/healthz", headers=OWN)).status_code == 401
            assert (await browser.post("/change", data={"what": "x"}, headers=OWN)).status_code == 401
            # The application says no by itself to what slips through as a file for all.
            assert (await browser.get("/static/%2e%2e/records")).status_code == 401
            assert (await browser.get("/static/../records")).status_code in (303, 401)
            assert desk.sent == []

    run(work)


def by_proxy(**settings: Any) -> Desk:
    chosen: dict[str, Any] = {"trusted_proxies": ["10.0.0.0/8", "::1"], "users": ["ana@acme.com"], **settings}
    return Desk(ProxyHeaderAuth("X-Forwarded-Email", **chosen))


@pytest.mark.parametrize(("address", "is_heard"), [
    ("10.1.2.3", True), ("::1", True), ("::ffff:10.1.2.3", True), ("192.0.2.1", False), ("127.0.0.1", False),
    ("unix", False), ("11.0.0.1", False),
])  # fmt: skip
def test_the_header_counts_from_a_trusted_proxy_alone(
    address: str, is_heard: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        headers = {"x-forwarded-email": "ana@acme.com", "x-forwarded-for": "10.1.2.3, ::1"}
        async with by_proxy().browser(address, headers=headers) as browser:
            answer = await browser.get("/")
            assert answer.status_code == (200 if is_heard else 401)
            assert ("not a trusted proxy" in caplog.text) is not is_heard

    caplog.set_level(logging.WARNING, "codemode.console")
    run(work)


@each_row("told", [
    ["eve@acme.com"], [""], ["ana@acme.com,eve@acme.com"], ["eve@evil.com", "ana@acme.com"],
    ["ana@acme.com x"], ["@acme.com"],
])  # fmt: skip
def test_only_those_who_are_named_are_let_in(told: list[str]) -> None:
    async def work() -> None:
        headers = httpx.Headers([("x-forwarded-email", one) for one in told])
        async with by_proxy().browser("10.1.2.3", headers=headers) as browser:
            assert (await browser.get("/")).status_code == 401

    run(work)


@each_row("told, is_heard", [
    ("ana@desk.com", True), ("ana@DESK.com", True), ("ana@acme.com", True), ("ana@sub.desk.com", False),
    ("ana@evildesk.com", False), ("ana@evil.com@desk.com", False), ("@desk.com", False), ("desk.com", False),
    ("ana@desk.com, eve@evil.com", False), ("eve@evil.com,ana@desk.com", False), ("ana b@desk.com", False),
    ("<ana@desk.com", False), ("ana@desk.com.", False), ("a" * 1000 + "@desk.com", False),
])  # fmt: skip
def test_a_domain_is_all_that_stands_behind_the_sign(told: str, is_heard: bool) -> None:
    async def work() -> None:
        desk = by_proxy(domains=["@desk.com"], tenants=["acme"])
        async with desk.browser("10.1.2.3", headers={"x-forwarded-email": told}) as browser:
            assert (await browser.get("/")).status_code == (200 if is_heard else 401)

    run(work)


@pytest.mark.parametrize(("headers", "settings", "is_stranger"), [
    ([("x-forwarded-email", "bob@acme.com")], {}, True),
    ([("x-forwarded-email", "bob\x1b[2J" + "x" * 9000)], {}, True),
    ([("x-forwarded-email", "bob@evil.com")], {"users": (), "domains": ["acme.com"]}, True),
    ([("x-forwarded-email", "")], {}, False),
    ([], {}, False),
    ([("x-forwarded-email", "bob@acme.com")] * 2, {}, False),
])  # fmt: skip
def test_whom_a_proxy_has_named_and_nobody_let_in_is_told_so_and_logged(
    headers: list[tuple[str, str]], settings: Any, is_stranger: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        desk = by_proxy(**settings)
        for accept in ("text/html", "application/json"):
            sent = httpx.Headers([*headers, ("accept", accept)])
            async with desk.browser("10.1.2.3", headers=sent) as browser:
                answer = await browser.get("/")
                assert answer.status_code == 401
                assert ("You are not a user of this console" in answer.text) is is_stranger
                assert ("No trusted proxy sent your name" in answer.text) is not is_stranger
            async with desk.browser("192.0.2.1", headers=sent) as browser:
                assert "not a user of this console" not in (await browser.get("/")).text
        told = [one.getMessage() for one in caplog.records if "is not a user" in one.getMessage()]
        assert len(told) == (2 if is_stranger else 0)
        assert all(one.startswith("bob") and one.isprintable() and len(one) < 400 for one in told)

    caplog.set_level(logging.WARNING, "codemode.console")
    run(work)


def test_names_of_a_proxy_are_compared_without_case() -> None:
    async def work() -> None:
        auth = ProxyHeaderAuth(
            "X-Forwarded-Email",
            trusted_proxies=["10.0.0.1"],
            users=["Ana@Acme.com", User("EVE", ["acme"], may_decide=False)],
            domains=["Corp.example"],
        )
        desk = Desk(auth)
        for said, name in {
            "ana@acme.com": "Ana@Acme.com",
            "ANA@ACME.COM": "Ana@Acme.com",
            "eve": "EVE",
            "Bob@CORP.example": "bob@corp.example",
            "bob@corp.example": "bob@corp.example",
        }.items():
            async with desk.browser("10.0.0.1", headers={"x-forwarded-email": said}) as browser:
                assert (await browser.get("/")).json()["name"] == name, said

    run(work)
    with pytest.raises(ValueError, match="'ana' and 'ANA'"):
        ProxyHeaderAuth("x-user", trusted_proxies=["10.0.0.1"], users=["ana", "ANA"])


def test_what_comes_over_a_unix_socket_is_a_proxys_where_that_is_said() -> None:
    async def work() -> None:
        headers = {"x-forwarded-email": "ana@acme.com", "x-forwarded-for": "203.0.113.5"}
        for trusted, address, status in [
            (["unix"], None, 200),
            (["10.0.0.1"], None, 401),
            (["unix"], "192.0.2.1", 401),
        ]:
            async with by_proxy(trusted_proxies=trusted).browser(address, headers=headers) as browser:
                answer = await browser.get("/")
                assert answer.status_code == status
                assert status != 200 or answer.json()["address"] == "203.0.113.5"

    run(work)


def test_behind_a_proxy_a_form_is_bound_to_its_browser_and_its_user() -> None:
    async def work() -> None:
        desk = by_proxy(users=["ana", "eve"])
        async with desk.browser("10.1.2.3") as browser, desk.browser("10.1.2.3") as other:
            ana, eve = ({"x-forwarded-email": name, "x-forwarded-for": "203.0.113.5", **OWN} for name in ("ana", "eve"))
            first = (await browser.get("/", headers=ana)).json()
            assert first["address"] == "203.0.113.5"
            form = {"what": "x", "form_token": first["token"]}
            assert (await other.post("/change", data=form, headers=ana)).status_code == 403
            assert (await browser.post("/change", data=form, headers=eve)).status_code == 403
            form["form_token"] = (await browser.get("/", headers=ana)).json()["token"]
            assert (await browser.post("/change", data=form, headers=ana)).status_code == 200
            assert (await browser.get("/sign-in", headers={"x-forwarded-email": "mallory"})).status_code == 401

    run(work)


def test_a_function_of_the_host_says_who_it_is_and_one_that_fails_lets_nobody_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        async def by_key(request: Request) -> User | None:
            key = request.headers.get("x-key")
            if key == "wrong":
                return "ana"  # type: ignore[return-value]
            if key == "fails":
                raise LookupError("the directory is away: password 123")
            return User(key, ["acme"]) if key else None

        async with Desk(by_key).browser() as browser:
            for key, status in [("", 401), ("ana", 200), ("wrong", 500), ("fails", 500)]:
                answer = await browser.get("/", headers={"x-key": key})
                assert answer.status_code == status
                assert "123" not in answer.text

    run(work)


def test_each_answer_forbids_frames_sniffing_keeping_and_inline_scripts() -> None:
    async def work() -> None:
        async with Desk().browser() as browser:
            answers = [
                await browser.get("/"),
                await browser.get("/sign-in"),
                await browser.get("/healthz"),
                await browser.post("/change"),
                await sign_in(browser, "guess"),
                await sign_in(browser),
                await browser.get("/"),
            ]
            assert {answer.status_code for answer in answers} == {200, 303, 401, 403}
            for answer in answers:
                policy = answer.headers["content-security-policy"]
                assert "default-src 'none'" in policy
                assert "frame-ancestors 'none'" in policy
                assert "unsafe" not in policy
                told = {"x-frame-options": "DENY", "x-content-type-options": "nosniff", "cache-control": "no-store"}
                for name, value in {**told, "referrer-policy": "no-referrer"}.items():
                    assert answer.headers.get_list(name) == [value]

    run(work)


def test_pages_of_named_origins_may_frame_it() -> None:
    async def work() -> None:
        async with Desk(embed_in=["https://desk.acme.com", "https://x.acme.com:8443"]).browser() as browser:
            headers = (await browser.get("/sign-in")).headers
            ancestors = headers["content-security-policy"].split("frame-ancestors ")[1]
            assert ancestors == "https://desk.acme.com https://x.acme.com:8443"
            assert "x-frame-options" not in headers

    run(work)


@each_row("settings", [
    {"auth": None}, {"auth": {}}, {"auth": "token"}, {"embed_in": ["*"]}, {"embed_in": ["https://*.acme.com"]},
    {"embed_in": ["https://a.com; script-src *"]}, {"embed_in": ["https://a.com/x"]}, {"embed_in": "https://a.com"},
    {"embed_in": ["'self'"]}, {"embed_in": ["data:"]}, {"secret": "short"}, {"secret": []}, {"base_url": "desk"},
    {"hosts": "desk.acme.com"}, {"hosts": [""]}, {"hosts": ["https://desk.acme.com"]}, {"hosts": ["a b"]},
    {"trusted_proxies": ["proxy.acme.com"]}, {"trusted_proxies": "10.0.0.1"},
])  # fmt: skip
def test_what_would_leave_it_open_is_refused(settings: dict[str, Any]) -> None:
    made: dict[str, Any] = {"auth": TokenAuth(USERS), **settings}
    with pytest.raises(ValueError):  # noqa: PT011 - each in words of its own
        AccessMiddleware(Desk().app, store=MemoryInterruptStore(), **made)


def one_user(said: str) -> TokenAuth:
    return TokenAuth.from_json(f'{{"{token_hash(ANA)}": {said}}}')


@each_row("made", [
    lambda: TokenAuth({}),
    lambda: TokenAuth({ANA: User("ana", ALL_TENANTS)}),
    lambda: TokenAuth({token_hash(ANA): "ana"}),  # type: ignore[dict-item]
    lambda: TokenAuth.from_json("[]"),
    lambda: TokenAuth.from_json("{"),
    lambda: one_user('{"name": "a", "tenants": "acme"}'),
    lambda: User("a", [str(number) for number in range(201)]),
    lambda: one_user('{"name": "a"}'),
    lambda: one_user('{"name": "a", "tenants": ["a"], "may_decide": "no"}'),
    lambda: one_user('{"name": "a", "tenants": ["a"], "maydecide": false}'),
    lambda: User("", ALL_TENANTS),
    lambda: User("a\u202eb", ALL_TENANTS),
    lambda: User("a", "acme"),
    lambda: User("a", None),  # type: ignore[arg-type]
    lambda: ProxyHeaderAuth("x-user", trusted_proxies=["10.0.0.1"]),
    lambda: ProxyHeaderAuth("x-user", trusted_proxies=[], users=["ana"]),
    lambda: ProxyHeaderAuth("x-user", trusted_proxies=["10.0.0.1"], users="ana"),
    lambda: ProxyHeaderAuth("x user:", trusted_proxies=["10.0.0.1"], users=["ana"]),
])  # fmt: skip
def test_users_that_cannot_be_meant_are_refused(made: Any) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - what it says differs, and never says a token
        made()
    assert ANA not in str(caught.value)


def test_a_file_of_tokens_is_read() -> None:
    token = new_token()
    users = {
        token_hash(token): {"name": "ana", "tenants": "*"},
        token_hash(EVE).removeprefix("sha256:").upper(): {"name": "eve", "tenants": ["acme"], "may_decide": False},
    }
    auth = TokenAuth.from_json(json.dumps(users))
    assert auth.find_by_token(token) == User("ana", ALL_TENANTS)
    assert auth.find_by_token(EVE) == User("eve", ["acme"], may_decide=False)
    assert auth.find_by_token(token_hash(token)) is None
    assert [User("eve", ["acme"]).can_see(one) for one in ("acme", "acm", "")] == [True, False, False]


def test_who_is_in_a_file_may_decide_unless_it_says_otherwise_and_the_refusal_tells() -> None:
    found = one_user('{"name": "ana", "tenants": ["acme"]}').find_by_token(ANA)
    assert found == User("ana", ["acme"], may_decide=True)
    with pytest.raises(ValueError, match="optionally may_decide, got maydecide"):
        one_user('{"name": "a", "tenants": ["a"], "maydecide": false}')


def test_who_sends_no_page_along_is_told_the_headers_that_say_it() -> None:
    async def work() -> None:
        async with Desk().browser() as browser:
            answer = await browser.post("/sign-in", data={"token": ANA}, headers={"accept": "application/json"})
            assert answer.status_code == 403
            for header in ("Sec-Fetch-Site: same-origin", "Origin"):
                assert header in answer.json()["error"]["message"]

    run(work)


def test_a_policy_says_no_in_all_words_but_true() -> None:
    async def work() -> None:
        record: Any = object()
        request: Any = object()
        ana = User("ana", ALL_TENANTS)

        async def later(*_: Any) -> bool:
            return True

        def fails(*_: Any) -> bool:
            raise LookupError

        assert await find_decision_refusal(None, ana, record, request) is None
        assert await find_decision_refusal(later, ana, record, request) is None
        assert await find_decision_refusal(later, User("eve", ["a"], may_decide=False), record, request) is not None
        assert await find_decision_refusal(lambda *_: "four eyes", ana, record, request) == "four eyes"
        refused: list[Any] = [False, "", None, 1, [True]]
        for answer in refused:
            assert await find_decision_refusal(lambda *_, answer=answer: answer, ana, record, request)
        assert await find_decision_refusal(fails, ana, record, request)

    run(work)


@each_row(
    "host, settings, is_own",
    [
        ("desk.acme.com", {"base_url": "https://desk.acme.com/x", "hosts": ["inner"]}, True),
        ("DESK.acme.com:443", {"hosts": ["desk.acme.com"]}, True),
        ("inner:8822", {"base_url": "https://desk.acme.com", "hosts": ["inner"]}, True),
        ("10.0.0.7:8822", {"hosts": ["desk.acme.com"]}, True),
        ("[::1]:8822", {"hosts": ["localhost"]}, True),
        ("inner", {"base_url": "https://desk.acme.com"}, True),  # by a proxy that changes it
        ("evil.test", {"base_url": "https://desk.acme.com", "hosts": ["inner"]}, False),
        ("evil.test:8822", {"hosts": ["localhost"]}, False),
        ("localhost.evil.test", {"hosts": ["localhost"]}, False),
        ("desk.acme.com.evil.test", {"hosts": ["desk.acme.com"]}, False),
        ("desk.acme.com@evil.test", {"hosts": ["desk.acme.com"]}, False),
        ("evil.test/desk.acme.com", {"hosts": ["desk.acme.com"]}, False),
        ("evil.test#.desk.acme.com", {"hosts": ["desk.acme.com"]}, False),
        ("127.0.0.1.evil.test", {"hosts": ["localhost"]}, False),
        ("", {"hosts": ["localhost"]}, False),
    ],
)
def test_a_name_that_is_not_its_own_is_not_answered_to(host: str, settings: dict[str, Any], is_own: bool) -> None:
    async def work() -> None:
        desk = Desk(**settings)
        async with desk.browser() as browser:
            answer = await browser.get("/sign-in", headers={"host": host})
            assert answer.status_code == (200 if is_own else 421)
            own = {**OWN, "host": host}
            signed = await browser.post("/sign-in", data={"token": ANA}, headers=own)
            assert signed.status_code == (303 if is_own else 421)
            health = await browser.get("/healthz", headers={"host": host})
            assert health.status_code == (200 if is_own else 421)

    run(work)


def test_two_names_are_none() -> None:
    async def work() -> None:
        desk = Desk(hosts=["localhost"])
        async with desk.browser() as browser:
            answer = await browser.get("/sign-in", headers=[("host", "localhost"), ("host", "evil.test")])
            assert answer.status_code == 421

    run(work)


def test_pages_of_somebody_else_do_not_fill_the_audit() -> None:
    async def work() -> None:
        desk = by_proxy(domains=["acme.com"])
        settings: Any = {"headers": {"x-forwarded-email": "ana@acme.com", "sec-fetch-site": "cross-site"}}
        async with desk.browser("10.0.0.9", **settings) as victim, desk.browser("10.0.0.9") as nobody:
            for _ in range(40):
                assert (await victim.post("/change")).status_code == 403
                assert (await nobody.post("/change", headers={"sec-fetch-site": "cross-site"})).status_code == 403
            assert await desk.kinds() == ["request_refused"] * 10
            desk.clock.now += 61
            assert (await victim.post("/change")).status_code == 403
            assert len(await desk.kinds()) == 11

    run(work)
