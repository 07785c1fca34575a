"""Inputs that get far into what is fuzzed, and words that mutations put into them. Runs nothing."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tests.support import invocation_settings
from tests.support.invocation_settings import NOW_MS

from codemode.continuations.sealing import encode_and_sign_continuation
from codemode.interrupts.interrupt import Interrupt, convert_to_pending_requests
from codemode.options.parts import CodeModeOptions
from codemode.protocol.continuation import Continuation, continuation_to_texts
from codemode.protocol.framing import encode_frame
from codemode.protocol.invocation import Invocation
from codemode.workers.image import GuestRuntimeSource, WorkerImage

OPTIONS = CodeModeOptions(continuation={"keys": "0123456789abcdef0123456789abcdef", "max_age_ms": 1 << 50})
SETTINGS = invocation_settings.limited(
    invocation_settings.SETTINGS,
    max_result_bytes=100,
    max_bridge_requests=8,
    max_in_flight_bridge_requests=4,
    max_catalog_requests=2,
    max_console_bytes=100,
    max_ledger_bytes=1 << 16,
)

GUEST_RUNTIME = GuestRuntimeSource((), "kernel")
IMAGE = WorkerImage("engine.so", "1.0", GUEST_RUNTIME, None, ())
ENTRIES = [
    {"kind": "tool", "name": "search", "inputJson": '{"query":"a"}', "toolCallId": "outer:tool-1", "dateNowMs": NOW_MS,
     "status": "fulfilled", "valueJson": "[1]"},
    {"kind": "tool", "name": "pick", "toolCallId": "outer:tool-2", "status": "interrupted", "interruptId": "a",
     "interruptPayloadJson": '{"kind":"ai-sdk-code-mode/tool-approval"}', "attempt": 1, "shownInputJson": "1"},
    {"kind": "tool", "name": "free", "toolCallId": "outer:tool-3", "status": "interrupted", "interruptId": "b",
     "interruptPayloadJson": '{"kind":"code-mode/unknown-outcome"}', "attempt": 2, "waits": 1},
    {"kind": "fetch", "name": "GET", "status": "rejected", "dateNowMs": NOW_MS,
     "error": {"name": "Error", "message": "no", "code": "CODE_MODE_FETCH_ERROR"}},
    {"kind": "tool", "name": "free", "inputBytes": 5000, "toolCallId": "outer:tool-4", "status": "unknown"},
]  # fmt: skip


@cache
def continuation_body() -> dict[str, Any]:
    empty = Continuation.from_ledger("return 1", "1.0", SETTINGS, Invocation(SETTINGS).ledger).to_dict()
    return {**empty, "ledger": ENTRIES, "deliveries": [4, 1]}


def signed_interrupt() -> dict[str, Any]:
    body = continuation_body()
    requests = convert_to_pending_requests(Continuation.from_dict(body).ledger.waiting_entries)
    made = Interrupt(
        requests=requests,
        outer_tool_call_id="outer",
        continuation=encode_and_sign_continuation(continuation_to_texts(body), OPTIONS.continuation, NOW_MS),
    )
    return made.to_dict()


def frame(kind: bytes, /, **body: Any) -> bytes:
    return encode_frame(kind, json.dumps(body).encode())


def call(number: int, name: str, kind: str = "tool", **body: Any) -> bytes:
    return frame(b"C", id=number, kind=kind, name=name, **body)


THREW = {"name": "E", "message": "m", "code": "", "stack": "at <program>:1:2", "origin": "program"}
FACTS = {
    "calls": [
        {"name": "search", "line": 1, "column": 2,
         "input": {"type": "object", "open": False, "keys": {"limit": {"type": "string", "value": "x"}}}},
        {"name": "search", "line": 2, "column": 2, "input": {"type": "object", "open": True, "keys": {}}},
        {"name": "serach", "line": 1, "column": 2},
        {"name": "pick", "line": 3, "column": 1,
         "input": {"type": "array", "items": [{"type": "array", "items": []}, {"type": "number", "value": 1.5}]}},
        {"name": "pick", "line": 4, "column": 1, "input": {"type": "null"}},
    ],
    "modules": [{"kind": "import", "line": 1, "column": 1}, {"kind": "require()", "line": 1, "column": 1}],
    "shadowed": False,
}  # fmt: skip
HELLO = {
    "engine": "1.0",
    "kernel": GUEST_RUNTIME.compute_sha256(),
    "isolation": {"seccomp": "in force", "landlock": "in force: ABI 6"},
}
PROGRAMS = (
    "interface A<T extends B = C> { a?: T; [key: string]: unknown }\nreturn (await tools.search({ limit: 1 }))!",
    "const f = async <T,>(a: T, ...b: number[]): Promise<T> => { await tools['pick']([1]); return a as unknown as T }",
    "class A { private x: number = 1; constructor(readonly y?: string) {} } enum E { a } import x from 'y'; `${tools}`",
    "for (const [a, b] of Object.entries(tools.$search)) { try { throw a satisfies B } catch { label: break } }",
)
WORDS = tuple(
    word.encode()
    for word in ('"kind"', '"tool"', '"catalog"', '"fetch"', '"id"', '"input"', '"bytes"', "null", "true", "-1",
                 "1e999", "9007199254740993", '"\\ud800"', '"\\u0000"', "[[[[", "}}", '{"":{}}', "1.0", "\ufeff")
)  # fmt: skip
SYNTAX = tuple(
    word.encode() for word in ("as ", "<T>", "!", "?.", "=>", "`${", "}`", "/*", "*/", "//", "\n", "tools.", "await ",
                               "abstract ", "declare ", "enum ", "@a ", "😀", "\u2028", "\\u0061", "#a", "/x/v", "<a/>")
)  # fmt: skip
MODULE_SYNTAX = tuple(
    word.encode() for word in ("import ", "export ", "from 'm'", "* as ", "type ", "{a as b}", "import('m')", "with {}",
                               "default ", "$codemode", "impo$_", "<!--", "-->", "#!", "\r", "\r\n", "ns.a()", "try{")
)  # fmt: skip

FRAME_SEEDS = (b"\x03" + frame(b"T", in_flight=0) * 2, b"\0\0\0\0\4T\nTT", b"\0\0\0\0\2ab\0\0\0\1c")
WORKER_SEEDS = (
    b"r"
    + call(1, "search", input='{"query":"a"}')
    + frame(b"T", in_flight=1)
    + frame(b"V", value="[1]", unobserved=[]),
    b"".join(
        (
            b"r" + call(1, "ab") + call(2, "pick", input="1") + call(3, "abcd"),
            *(frame(b"T", in_flight=number) for number in (3, 2, 1)),
        )
    ),
    b"r" + call(1, "abcd", bytes=5000) + frame(b"T", in_flight=1) + frame(b"X", **THREW, request=1),
    b"r" + call(1, "$search", "catalog", input='"a"') + frame(b"T", in_flight=0) + frame(b"X", **THREW),
    b"a" + frame(b"a", js="return 1", facts=FACTS) + frame(b"V", undefined=True, unobserved=[1]),
    b"a" + frame(b"a", problems=[{"message": "m", "line": 1, "column": 1}]),
    b"r" + frame(b"L", level="log", text="a" * 60) * 2 + frame(b"V", bytes=500, unobserved=[]),
    b"r" + frame(b"X", **THREW, limit="max_bridge_requests") + frame(b"F", message="broken"),
)
ANSWERS = ({"a": {"approved": True}, "b": {"value": 1}}, {"b": {"error": {"message": "m"}}}, {"a": {"approved": False}})
CONTINUATION_SEEDS = tuple(json.dumps({**continuation_body(), "answers": given}).encode() for given in ANSWERS)
INTERRUPT_SEEDS = (json.dumps(signed_interrupt()).encode(),)
FACTS_SEEDS = (json.dumps(FACTS).encode(),)
HELLO_SEEDS = (b"!H" + json.dumps(HELLO).encode(), b" H" + json.dumps(HELLO).encode(), b' F{"message":"m"}')
PROGRAM_SEEDS = tuple(program.encode() for program in PROGRAMS)
MODULE_SEEDS = tuple(
    "\n".join(lines).encode()
    for lines in (
        ("import { a, type B as C } from 'm'", "import * as ns from 'n' with { type: 'json' }", "[ns.a(a) as C].map()"),
        (
            "#!x",
            "import d, { 'x y' as e } from 'm';/* é😀 */export * as f from 'n'",
            "`${await import(`m`)}`; export { d }",
        ),
        (
            "const g = await import('m'); try { g.a() } catch { g['b']() / 2 }\r",
            "export interface I { a: 1 } /import/g",
        ),
        (
            "export type { T } from 't'; export default class<A> { static { import(x) } import() {} }",
            "a: for (;;) break a",
        ),
    )
)
