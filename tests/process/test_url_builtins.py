"""URL, URLSearchParams, TextEncoder and TextDecoder in a worker: the published test data, misuse, and their faces."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from kernel_driver import KernelDriver
from suite import each_row, full_only

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="zygotes are Linux's")
DATA = Path(__file__).parents[1] / "data" / "urltestdata.json"
NAMES = ("URL", "URLSearchParams", "TextEncoder", "TextDecoder")
FACE = {"globals": ["tools", "console", *NAMES]}
PARTS = ("href", "origin", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash")
PARSE_ALL = """
const parts = await tools.parts();
return (await tools.cases()).map(({ input, base }) => {
  try {
    const url = base === null ? new URL(input) : new URL(input, base);
    return Object.fromEntries(parts.map((part) => [part, url[part]]));
  } catch (error) {
    return error instanceof TypeError ? null : String(error);
  }
});
"""


def value(kernel: KernelDriver, js: str, **config: Any) -> Any:
    return kernel.run(js, **FACE, **config).value


def test_published_data(kernel: KernelDriver):
    cases = [case for case in json.loads(DATA.read_text()) if isinstance(case, dict)]
    answers = {"parts": PARTS, "cases": cases}
    parsed = kernel.run(PARSE_ALL, lambda request: {"value": answers[request["name"]]}, **FACE).value
    wrong = [case for case, url in zip(cases, parsed, strict=True) if not agrees(case, url)]
    ascii_only = [case for case in cases if is_ascii(case)]
    assert len(ascii_only) > 800
    assert len([case for case in wrong if is_ascii(case)]) <= len(ascii_only) // 100
    # Everything else is about hosts beyond ASCII, which are refused.
    assert [case["input"] for case in wrong if "failure" in case] == []


def agrees(case: dict[str, Any], url: Any) -> bool:
    if case.get("failure"):
        return url is None
    return isinstance(url, dict) and all(url[part] == case[part] for part in PARTS if part in case)


def is_ascii(case: dict[str, Any]) -> bool:
    return case["input"].isascii() and (case["base"] or "").isascii()


@each_row(
    "js, expected",
    [
        ("new URL('https://ex%41mple.com/a/../b?x=1#y').href", "https://example.com/b?x=1#y"),
        (
            "[URL.canParse('a'), URL.canParse('a', 'b:/c'), URL.parse('x'), URL.parse('b', 'http://a').href]",
            [False, True, None, "http://a/b"],
        ),
        ("JSON.stringify({ u: new URL('http://a') })", '{"u":"http://a/"}'),
        ("String(new URL('http://a')) + Object.prototype.toString.call(new URL('http://a'))", "http://a/[object URL]"),
        ("{ const u = new URL('http://a/?b=1'); u.searchParams.append('c', '2 3'); u.search }", "?b=1&c=2+3"),
        (
            "{ const u = new URL('http://a/?b'), p=u.searchParams; u.search = 'x=y'; [p === u.searchParams, [...p]] }",
            [True, [["x", "y"]]],
        ),
        ("[...new URLSearchParams([['a', '1'], ['b', '2']]).keys()].join()", "a,b"),
        ("new URLSearchParams({ a: 1, b: null }).toString()", "a=1&b=null"),
        ("new URLSearchParams(new URLSearchParams('?a=1')).get('a')", "1"),
        ("[...new TextEncoder().encode('h\\u00e9\\ud800')]", [104, 195, 169, 239, 191, 189]),
        (
            "{ const b = new Uint8Array(4), t = new TextEncoder(); [t.encodeInto('a\\u20acb\\u20ac', b), [...b]] }",
            [{"read": 2, "written": 4}, [97, 226, 130, 172]],
        ),
        ("new TextDecoder().decode(new Uint8Array([239, 187, 191, 97]).buffer)", "a"),
        ("new TextDecoder('utf8', { ignoreBOM: true }).decode(new Uint8Array([239, 187, 191, 97]))", "\ufeffa"),
        ("new TextDecoder().decode(new DataView(new Uint8Array([1, 97, 98, 2]).buffer, 1, 2))", "ab"),
        ("new TextDecoder().decode(new Uint16Array([0x6261, 0x6463]))", "abcd"),
        (
            (
                "{ const d = new TextDecoder(), b = (...a) => new Uint8Array(a);"
                " d.decode(b(226, 130), { stream: true }) + d.decode(b(172)) }"
            ),
            "€",
        ),
        (
            (
                "{ const d = new TextDecoder(), b = (...a) => new Uint8Array(a);"
                " [d.decode(b(226), { stream: true }), d.decode(), d.decode(b(97))] }"
            ),
            ["", "\ufffd", "a"],
        ),
    ],
)
def test_values(kernel: KernelDriver, js: str, expected: Any):
    body = f"const value = (() => {js})();" if not js.startswith("{") else f"const value = {last_of(js)};"
    assert value(kernel, body + " return value;") == expected


def last_of(block: str) -> str:
    """An expression of a block's last one."""
    *statements, last = block.strip("{} ").split("; ") if "; " in block else [block.strip("{} ")]
    return f"(() => {{ {'; '.join(statements)}; return {last}; }})()"


@each_row(
    "js, message",
    [
        ("new URL('nope')", 'Invalid URL: "nope"'),
        ("new URL(Symbol())", "a symbol is no text"),
        ("URL('http://a')", "class constructors must be invoked with 'new'"),
        ("new URL('http://exämple.com')", 'Invalid URL: "http://exämple.com"'),
        ("new URLSearchParams([['a']])", "URLSearchParams: each item must be a pair of name and value"),
        ("new TextDecoder('latin1')", 'TextDecoder: the encoding "latin1" is not available: only utf-8 is'),
        (
            "new TextDecoder('utf-8', { fatal: true }).decode(new Uint8Array([255]))",
            "the encoded data was not valid for encoding utf-8",
        ),
        (
            "new TextDecoder().decode('text')",
            "TextDecoder.decode(input): the input must be an ArrayBuffer or a view of one",
        ),
        ("Object.getOwnPropertyDescriptor(URL.prototype, 'href').get.call({})", ""),
    ],
)
def test_wrong_use(kernel: KernelDriver, js: str, message: str):
    said = value(kernel, f"try {{ return {js}; }} catch (error) {{ return [error.name, error.message]; }}")
    assert isinstance(said, list)
    assert said[0] in ("TypeError", "RangeError")
    assert message in str(said[1])


def test_absent_without_their_names(kernel: KernelDriver):
    js = f"return {list(NAMES)}.filter((name) => name in globalThis);"
    assert kernel.run(js, globals=["tools", "console"]).value == []


def test_nothing_of_them_can_be_changed(kernel: KernelDriver):
    js = f"""
    const open = [];
    const look = (path, object, seen) => {{
      if ((typeof object !== "object" && typeof object !== "function") || object === null || seen.has(object)) return;
      seen.add(object);
      if (!Object.isFrozen(object)) open.push(path);
      for (const key of Reflect.ownKeys(object)) {{
        const own = Object.getOwnPropertyDescriptor(object, key);
        for (const part of [own.value, own.get, own.set]) look(path + "." + String(key), part, seen);
      }}
      look(path + ".[[Prototype]]", Object.getPrototypeOf(object), seen);
    }};
    for (const name of {list(NAMES)}) {{
      look(name, globalThis[name], new Set());
      const own = Object.getOwnPropertyDescriptor(globalThis, name);
      if (own.writable || own.configurable) open.push("globalThis." + name);
    }}
    for (const value of [new URLSearchParams("a=1").entries(), new URLSearchParams("a=1")[Symbol.iterator]()])
      look("iterator", Object.getPrototypeOf(value), new Set());
    return open;
    """
    assert value(kernel, js) == []


def test_hostile_inputs_run_nothing_of_ours(kernel: KernelDriver):
    js = """
    const thrown = [];
    const bad = { toString() { throw new RangeError("mine"); } };
    const odd = { get fatal() { throw new RangeError("mine"); } };
    const endless = { *[Symbol.iterator]() { yield ["a", bad]; } };
    const attempts = [() => new URL(bad), () => new URLSearchParams(endless), () => new TextDecoder("utf-8", odd),
      () => new TextEncoder().encode(bad), () => new URLSearchParams({ get a() { throw new RangeError("mine"); } }),
      () => { const u = new URL("http://a"); u.host = bad; },
      () => new TextDecoder().decode(new Proxy(new Uint8Array(1), {}))];
    for (const attempt of attempts) {
      try { attempt(); thrown.push("nothing"); } catch (error) { thrown.push(error.message); }
    }
    class Mine extends URL { get href() { return "mine"; } }
    thrown.push(new Mine("http://a").href, new Mine("http://a").toString());
    return thrown;
    """
    assert value(kernel, js) == [
        *["mine"] * 6,
        "TextDecoder.decode(input): the input must be an ArrayBuffer or a view of one",
        "mine",
        "http://a/",
    ]


@pytest.mark.full
@each_row(
    "js",
    [
        *full_only("return new URL('http://a/' + 'b/'.repeat(200000)).pathname.length;"),
        "return new URL('http://a/' + '../'.repeat(200000)).pathname.length;",
        "return new URL('http://a/?' + '\\u20ac'.repeat(200000)).search.length;",
        "return new URL('a:' + ' '.repeat(500000) + '#').href.length;",
        "return new URL('http://' + '@'.repeat(500000) + 'h').username.length + 1;",
        "return URL.canParse('http://' + 'xn--' + 'a'.repeat(300000)) ? 1 : 1;",
        "return URL.canParse('http://' + '1.'.repeat(200000)) ? 1 : 1;",
        "return URL.canParse('http://[' + ':'.repeat(200000) + ']') ? 1 : 1;",
        "return new URLSearchParams('a&'.repeat(50000)).toString().length;",
        "return new TextDecoder().decode(new Uint8Array(2000000)).length;",
        "return new TextEncoder().encode('\\u20ac'.repeat(500000)).length;",
    ],
)
def test_large_inputs_end(kernel: KernelDriver, js: str):
    assert value(kernel, js, memory_limit_bytes=256 << 20) > 0
