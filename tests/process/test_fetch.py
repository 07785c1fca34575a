"""What a program sees of fetch: arguments, responses, bytes (A142, A143, A145)."""

from __future__ import annotations

import json
import random

import pytest
from fetching import echoing, refusal, run_with
from http_server import response

from codemode import CodeModeError


def test_there_is_no_fetch_without_a_policy(run):
    js = "return [typeof fetch, 'fetch' in globalThis]"
    assert run(js) == ["undefined", False]
    assert run_with(js, {"fetch_policy": False}) == ["undefined", False]


def test_fetch_is_a_fixed_global(ask):
    js = """
      const before = fetch;
      for (const change of [() => { globalThis.fetch = 1 }, () => { 'use strict'; fetch.x = 1 },
                            () => Object.defineProperty(globalThis, 'fetch', {value: 1}),
                            () => delete globalThis.fetch])
        try { change() } catch {}
      return [fetch === before, Object.keys(fetch), Object.isFrozen(fetch), 'prototype' in fetch]
    """
    assert ask(js) == [True, [], True, False]


def test_a_response_has_what_programs_read(ask, server):
    server.on("/a", response(b'{"x": [1]}', "201 Made", Content_Type="application/json", X_Two="1", x_two="2"))
    js = """
      const r = await fetch("ORIGIN/a?q=1#hash");
      const read = { ok: r.ok, status: r.status, statusText: r.statusText, url: r.url, redirected: r.redirected };
      const h = r.headers;
      return { ...read, json: await r.json(), used: r.bodyUsed, type: h.get("CONTENT-type"), missing: h.get("x"),
        has: [h.has("X-Two"), h.has("x")], two: h.get("x-two"), tags: [String(r), String(h)] }
    """
    assert ask(js) == {
        "ok": True,
        "status": 201,
        "statusText": "Made",
        "url": server.origin + "/a?q=1",
        "redirected": False,
        "json": {"x": [1]},
        "used": True,
        "type": "application/json",
        "missing": None,
        "has": [True, False],
        "two": "1, 2",
        "tags": ["[object Response]", "[object Headers]"],
    }


def test_headers_can_be_walked_in_every_way(ask, server):
    server.on("/h", response(b"", B="2", a="1"))
    js = """
      const h = (await fetch("ORIGIN/h")).headers, each = [];
      h.forEach((value, name, all) => each.push([name, value, all === h]));
      return [[...h], [...h.entries()], [...h.keys()], [...h.values()], each, Object.fromEntries(h)]
    """
    pairs = [["a", "1"], ["b", "2"], ["connection", "close"], ["content-length", "0"]]
    walked, entries, keys, values, each, as_object = ask(js)
    assert walked == entries == pairs
    assert keys == [name for name, _ in pairs]
    assert values == [value for _, value in pairs]
    assert each == [[*pair, True] for pair in pairs]
    assert as_object == dict(pairs)


def test_cookies_that_the_server_sets_are_not_shown(ask, server):
    server.on("/c", response(b"", Set_Cookie="session=secret", set_cookie2="x"))
    assert "cookie" not in json.dumps(ask('return [...(await fetch("ORIGIN/c")).headers]'))


ALL_BYTES = bytes(range(256))
JPEG = b"\xff\xd8\xff\xe0" + random.Random(1).randbytes(5000)


@pytest.mark.parametrize(
    "body", [b"", b"plain", "ä€\U0001f600\u0000".encode(), ALL_BYTES, JPEG, b"\xef\xbb\xbfx", b"\xed\xa0\x80"]
)
def test_bytes_arrive_exactly(ask, server, body):
    server.on("/b", response(body))
    js = """
      const r = await fetch("ORIGIN/b"), again = r.clone();
      const buffer = await r.arrayBuffer(), bytes = await again.bytes();
      return [buffer instanceof ArrayBuffer, bytes instanceof Uint8Array, [...new Uint8Array(buffer)], [...bytes]]
    """
    assert ask(js) == [True, True, list(body), list(body)]


def test_responses_cannot_be_changed_for_all(ask, server):
    server.on("/x", response(b"real", a="1"))
    js = """
      const r = await fetch("ORIGIN/x");
      for (const object of [r, r.headers])
        for (const target of [object, Object.getPrototypeOf(object)])
          for (const key of ["text", "get", "then", "status", Symbol.iterator])
            try { Object.defineProperty(target, key, { value: () => "forged", configurable: true }) } catch {}
      const fresh = await fetch("ORIGIN/x");
      return [fresh.status, await fresh.text(), fresh.headers.get("a"), Object.isFrozen(fresh.text)]
    """
    assert ask(js) == [200, "real", "1", True]


def test_a_byte_order_mark_is_no_part_of_the_text(ask, server):
    server.on("/bom", response(b'\xef\xbb\xbf{"a":1}'))
    assert ask('const r = await fetch("ORIGIN/bom"); return [await r.clone().text(), await r.json()]') == [
        '{"a":1}',
        {"a": 1},
    ]


def test_a_body_is_read_once(ask, server):
    server.on("/x", response(b"x"))
    js = """
      const r = await fetch("ORIGIN/x"); await r.text();
      const again = [];
      for (const read of [() => r.text(), () => r.json(), () => r.arrayBuffer(), async () => r.clone()])
        await read().catch(e => again.push(e.name));
      return again
    """
    assert ask(js) == ["TypeError"] * 4


def test_the_methods_belong_to_responses_alone(ask, server):
    server.on("/x", response(b"{"))
    js = """
      const r = await fetch("ORIGIN/x"), names = [];
      for (const attempt of [() => r.text.call({}), () => r.json(), async () => r.headers.get.call({}, "a"),
                             async () => r.clone.call(1)])
        await attempt().catch(e => names.push(e.name));
      return names
    """
    assert ask(js) == ["TypeError", "SyntaxError", "TypeError", "TypeError"]


@pytest.mark.parametrize(
    ("arguments", "seen"),
    [
        ('"URL"', {"method": "GET", "body": ""}),
        ('{ url: "URL" }', {"method": "GET"}),
        ('{ url: "URL", method: "put", body: "b", headers: { "X-A": 1 } }', {"method": "PUT", "body": "b", "x-a": "1"}),
        ('{ url: "URL", method: "put", body: "b" }, { method: "POST", body: "c" }', {"method": "POST", "body": "c"}),
        ('"URL", { method: "post", body: "ä€" }', {"body": "ä€", "content-type": "text/plain;charset=UTF-8"}),
        ('"URL", { method: "POST", body: "{}", headers: { "content-type": "a/b" } }', {"content-type": "a/b"}),
        ('"URL", { method: "POST", body: new Uint8Array([104, 105]) }', {"body": "hi", "content-type": None}),
        ('"URL", { method: "POST", body: new Uint8Array([104, 105]).buffer }', {"body": "hi"}),
        ('"URL", { method: "POST", body: new Uint8Array([120, 104, 105, 120]).subarray(1, 3) }', {"body": "hi"}),
        ('"URL", { method: "POST", body: new Uint16Array([26984]) }', {"body": "hi"}),
        ('"URL", { method: "POST", body: new DataView(new Uint8Array([120, 104, 105]).buffer, 1) }', {"body": "hi"}),
        ('"URL", { method: "POST", body: 5 }', {"body": "5"}),
        ('"URL", { method: "GET", body: "dropped" }', {"method": "GET", "body": "", "content-type": None}),
        ('"URL", { method: "DELETE" }', {"method": "DELETE", "body": ""}),
        ('"URL", { headers: [["A", 1], ["a", "2"]] }', {"a": "1, 2"}),
        ('"URL", { headers: new Map([["A", "1"]]) }', {"a": "1"}),
        ('"URL", { headers: { Authorization: "Bearer x", accept: "text/x", "user-agent": "mine", h: " ü " } }',
         {"authorization": "Bearer x", "accept": "text/x", "user-agent": "mine", "h": "ü"}),
        ('"URL", null', {"method": "GET"}),
    ],
)  # fmt: skip
def test_a_request_arrives_as_the_program_wrote_it(ask, server, arguments, seen):
    server.on("/r", echoing)
    got = ask(f"return (await fetch({arguments.replace('URL', 'ORIGIN/r')})).json()")
    flat = {"method": got["method"], "body": got["body"].encode("latin-1").decode(), **got["headers"]}
    assert {key: flat.get(key) for key in seen} == seen
    assert got["headers"]["host"] == server.origin.removeprefix("http://")


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        '"URL", { method: "POST", body: { a: 1 } }',
        '"URL", { method: "POST", body: [1] }',
        '"URL", { headers: "a: b" }',
        '"URL", { headers: ["ab"] }',
        '"URL", { headers: [["a"]] }',
        '"URL", { get method() { throw new TypeError("mine") } }',
        '{ get url() { throw new TypeError("mine") } }',
        '{ toString() { throw new TypeError("mine") } }',
    ],
)
def test_a_wrong_argument_is_a_rejection_and_no_request(ask, server, arguments):
    if not arguments:
        assert ask(refusal("fetch()"))[1] == "CODE_MODE_FETCH_ERROR"
    else:
        assert ask(refusal(f"fetch({arguments.replace('URL', 'ORIGIN/r')})"))[0] == "TypeError"
    assert server.requests == []


def test_a_body_that_is_no_json_gives_no_place_inside_it(ask, server):
    server.on("/bad", response(b"{\n\n  x}"))
    with pytest.raises(CodeModeError) as caught:
        ask('const r = await fetch("ORIGIN/bad");\nconst a = 1;\n\nreturn await r.json()')
    assert caught.value.details["name"] == "SyntaxError"
    assert caught.value.details.get("line") in (None, 4)
