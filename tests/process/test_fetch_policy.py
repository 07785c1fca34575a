"""What the fetch policy refuses, and redirects hop by hop (A134 to A140)."""

from __future__ import annotations

import json

import pytest
from fetching import echoing, refusal, run_with
from http_server import HttpServer, redirect, response

from codemode import (
    FetchPolicy,
    create_code_mode_tool,
)
from codemode.fetch.fetcher import describe_fetch


@pytest.fixture
def other():
    running = HttpServer().start()
    yield running
    running.stop()


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ('fetch("/relative")', "is not an absolute http or https URL"),
        ('fetch("ftp://example.com/")', "is not an absolute http or https URL"),
        ('fetch("ORIGIN/x".replace("http://", "http://a:b@"))', "has credentials in it"),
        ('fetch("https://example.com/x?secret")', "fetch may not reach https://example.com/x"),
        ('fetch("ORIGIN/x".replace("127.0.0.1", "127.0.0.2"))', "fetch may not reach"),
        ('fetch("ORIGIN/x", { method: "PATCH" })', "fetch may not use PATCH; allowed are: GET, HEAD, POST"),
        ('fetch("ORIGIN/x", { method: "CONNECT" })', "cannot use the method 'CONNECT'"),
        ('fetch("ORIGIN/x", { method: "GET /y HTTP/1.1\\r\\nA: b" })', "cannot use the method"),
        ('fetch("ORIGIN/x", { headers: { a: "b\\r\\nc: d" } })', "has characters that no header may have"),
        ('fetch("ORIGIN/x", { headers: { a: "\\u20ac" } })', "has characters that no header may have"),
        ('fetch("ORIGIN/x", { headers: { "a b": "c" } })', "has characters that no header may have"),
        ('fetch("ORIGIN/x", { headers: { "": "c" } })', "has characters that no header may have"),
        *((f'fetch("ORIGIN/x", {{ headers: {{ "{name}": "x" }} }})', "cannot be set by a program") for name in (
            "Host", "Content-Length", "Connection", "Transfer-Encoding", "TE", "Upgrade", "Expect", "Keep-Alive",
            "Trailer", "Accept-Encoding", "Proxy-Authorization", "Sec-Fetch-Site", "X-HTTP-Method-Override",
            "X-Original-URL", "X-Forwarded-Host",
        )),
    ],
)  # fmt: skip
def test_the_policy_refuses_and_the_guest_can_catch_it(ask, server, expression, message):
    name, code, text, is_error = ask(refusal(expression))
    assert (name, code, is_error) == ("CodeModeFetchError", "CODE_MODE_FETCH_ERROR", True)
    assert message in text
    assert server.requests == []


def test_by_default_only_get_and_head_are_allowed(run, server):
    server.on("/x", response(b"x"))
    policy = FetchPolicy(allowed_origins=[server.origin])
    js = """
      const out = [];
      for (const method of ["get", "HEAD", "POST"])
        await fetch("ORIGIN/x", { method }).then(() => out.push(method), () => 0);
      return out
    """
    assert run_with(js.replace("ORIGIN", server.origin), {"fetch_policy": policy}) == [
        "get",
        "HEAD",
    ]
    assert server.asked() == ["GET /x", "HEAD /x"]


def test_an_explicit_list_of_methods_replaces_the_default(ask, server):
    assert "may not use GET" in ask(refusal('fetch("ORIGIN/x")'), allowed_methods=["post"])[2]


def test_a_prefix_ends_on_a_path_boundary(ask, server):
    server.on("/api/x", response(b"in"))
    only = {"allowed_origins": (), "allowed_url_prefixes": [server.origin + "/api"]}
    assert ask('return (await fetch("ORIGIN/a/%2e%2e/api/x")).text()', **only) == "in"
    for outside in ("/apix", "/api/../secret", "/api/%2e%2e/secret", "/api/..%2fsecret"):
        assert ask(refusal(f'fetch("ORIGIN{outside}")'), **only)[0] == "CodeModeFetchError"
    assert server.asked() == ["GET /api/x"]


def test_wrong_rules_are_told_of_before_anything_runs(run):
    wrong = {"fetch_policy": {"allowed_url_prefixes": ["https://example.com/a?b"]}}
    with pytest.raises(ValueError, match=r"fetch_policy\.allowed_url_prefixes.*query"):
        run_with("return 1", wrong)
    with pytest.raises(ValueError, match=r"fetch_policy\.allowed_url_prefixes.*query"):
        create_code_mode_tool([], wrong)


def test_without_httpx_and_without_a_function_of_its_own_a_policy_is_an_error(monkeypatch):
    monkeypatch.setattr("codemode.fetch.fetcher.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="httpx"):
        create_code_mode_tool([], {"fetch_policy": {"allowed_origins": ["https://example.com"]}})


# --- redirects ---


def test_a_redirect_is_returned_as_it_is(ask, server):
    server.on("/from", redirect("/to"))
    js = 'const r = await fetch("ORIGIN/from"); return [r.status, r.ok, r.redirected, r.headers.get("location")]'
    assert ask(js) == [302, False, False, "/to"]
    assert server.asked() == ["GET /from"]


def test_a_chain_is_followed_hop_by_hop(ask, server):
    for at in range(5):
        server.on(f"/{at}", redirect(f"../{at + 1}", f"{[301, 302, 303, 307, 308][at]} Moved"))
    server.on("/5", response(b"there"))
    js = 'const r = await fetch("ORIGIN/0"); return [r.url, r.redirected, await r.text()]'
    assert ask(js, allow_redirects=True) == [server.origin + "/5", True, "there"]
    assert server.asked() == [f"GET /{at}" for at in range(6)]


def test_too_many_redirects_name_the_number(ask, server):
    server.on("/loop", redirect("/loop"))
    assert "more than 3 times" in ask(refusal('fetch("ORIGIN/loop")'), allow_redirects=True, max_redirects=3)[2]
    assert len(server.requests) == 4


@pytest.mark.parametrize("answer", [response(b"x", "302 Found"), response(b"x", "304 Not Modified", location="/y"),
                                    response(b"x", "300 Multiple Choices", location="/y")])  # fmt: skip
def test_what_leads_nowhere_is_returned(ask, server, answer):
    server.on("/x", answer)
    status = int(answer.split()[1])
    assert ask('return (await fetch("ORIGIN/x")).status', allow_redirects=True) == status


@pytest.mark.parametrize(
    ("status", "method", "arrives"),
    [
        (301, "POST", ("GET", "", None)),
        (302, "POST", ("GET", "", None)),
        (303, "POST", ("GET", "", None)),
        (303, "PUT", ("GET", "", None)),
        (303, "DELETE", ("GET", "", None)),
        (301, "PUT", ("PUT", "b", "text/x")),
        (302, "PUT", ("PUT", "b", "text/x")),
        (307, "POST", ("POST", "b", "text/x")),
        (308, "PUT", ("PUT", "b", "text/x")),
    ],
)
def test_what_a_redirect_does_to_the_method_and_the_body(ask, server, status, method, arrives):
    server.on("/from", redirect("/to", f"{status} Moved"))
    server.on("/to", echoing)
    init = f'{{ method: "{method}", body: "b", headers: {{ "content-type": "text/x", "x-kept": "1" }} }}'
    got = ask(f'return (await fetch("ORIGIN/from", {init})).json()', allow_redirects=True)
    assert (got["method"], got["body"], got["headers"].get("content-type")) == arrives
    assert got["headers"]["x-kept"] == "1"


def test_a_head_stays_a_head(ask, server):
    server.on("/from", redirect("/to", "303 See Other"))
    ask('return (await fetch("ORIGIN/from", { method: "HEAD" })).status', allow_redirects=True)
    assert server.asked() == ["HEAD /from", "HEAD /to"]


def test_a_method_that_a_redirect_asks_for_must_be_allowed(ask, server):
    server.on("/from", redirect("/to", "303 See Other"))
    js = refusal('fetch("ORIGIN/from", { method: "POST" })')
    assert "may not use GET" in ask(js, allow_redirects=True, allowed_methods=["POST"])[2]
    assert server.asked() == ["POST /from"]


@pytest.mark.parametrize(
    "location", ["http://other.test/", "ftp://x/", "http://a:b@127.0.0.1/", "//[", "\\\\evil", "http://127.1/"]
)
def test_a_redirect_out_of_the_policy_is_refused(ask, server, location):
    server.on("/from", redirect(location))
    assert ask(refusal('fetch("ORIGIN/from")'), allow_redirects=True)[1] == "CODE_MODE_FETCH_ERROR"
    assert server.asked() == ["GET /from"]


def test_another_origin_gets_no_credentials(ask, server, other):
    server.on("/from", redirect(other.on("/to", echoing)))
    init = '{ headers: { authorization: "secret", cookie: "secret", "x-kept": "1" } }'
    js = f'return (await fetch("ORIGIN/from", {init})).json()'
    got = ask(js, allow_redirects=True, allowed_origins=[server.origin, other.origin])
    assert "secret" not in json.dumps(got)
    assert got["headers"]["x-kept"] == "1"
    assert got["headers"]["host"] == other.origin.removeprefix("http://")
    assert ask(refusal('fetch("ORIGIN/from")'), allow_redirects=True)[0] == "CodeModeFetchError"
    assert len(other.requests) == 1


# --- what the model is told ---


def test_the_description_tells_what_fetch_may_do():
    policy = {
        "allowed_origins": ["https://a.test", "https://b.test"],
        "allowed_url_prefixes": ["https://c.test/d"],
        "allowed_methods": ["get", "POST"],
        "max_response_bytes": 5000,
        "allow_redirects": True,
        "max_redirects": 3,
    }
    line = describe_fetch(FetchPolicy(**policy))
    for part in (
        "origins https://a.test, https://b.test and URL prefixes https://c.test/d",
        "methods GET, POST",
        "up to 5000 bytes",
        "redirects are followed up to 3 times",
    ):
        assert part in line
    assert line in create_code_mode_tool([], {"fetch_policy": policy}).description


def test_a_policy_that_allows_nothing_says_so():
    line = describe_fetch(FetchPolicy())
    assert "no origins or URL prefixes allowed" in line
    assert "redirects are returned, not followed" in line
    assert describe_fetch(None) is None
    assert "no `fetch`" in create_code_mode_tool([]).description
