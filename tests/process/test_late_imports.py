"""A locked worker imports nothing and opens nothing: the filter would kill it, in production and not here.

The same programs run twice: in workers that report the first import or open of a file by name, and locked.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_server import HttpServer, response
from leftovers import nothing_left
from worker_driver import frame

from codemode import CodeModeError, CodeModeOptions, WorkerPool, run_code_mode
from codemode.workers.image import GUEST_RUNTIME, WorkerImage
from codemode.workers.zygote import Zygote

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the lock-down is Linux's")

WATCHER = str(Path(__file__).parent / "late_imports.py")
# What would end the worker before it can say which module it was about to load.
SILENT_LAYERS = ("seccomp", "rlimits")

PROGRAMS = {
    "nothing": "",
    "value": "return { a: [1, 2.5, null, 'x'], b: undefined }",
    "typescript": "interface A { a: number } for (const a of [1] as A['a'][]) { break } return (1 as any)!",
    "syntax error": "return (",
    "typescript that cannot be stripped": "enum Colour { Red }\nnamespace N { export const a = 1 }",
    "imports": "import fs from 'fs'; const a = require('b'); return import('c')",
    "unknown tools": "await tools.nothing({ a: { b: [1, 'two', null, true, -3.5e10] } })",
    "position beyond the first plane": "'😀😀'; /* ü */ await tools.dubble({ number: '😀' })",
    "parser bomb": "!>" * 4000,
    "deep": "(" * 3000 + "1" + ")" * 3000,
    "long": "const a = 1;\n" * 5000,
    "lone surrogate in the result": "return '\\ud800 \\udc00'",
    "NUL and controls": "return '\\0\\x01\\u2028'",
    "large result": "return 'x'.repeat(900000)",
    "result that is too large": "return 'x'.repeat(2000000)",
    "error": "throw new RangeError('ü')",
    "thrown value": "throw { toString() { throw 1 } }",
    "stack overflow": "const f = () => f() + 1; return f()",
    "memory": "const a = []; for (;;) a.push('x'.repeat(100000) + a.length)",
    "memory in a job": "await null; const a = []; for (;;) a.push(new Uint8Array(1 << 20))",
    "deadlock": "await new Promise(() => {})",
    "detached": "tools.double({ number: 1 }); await tools.double({ number: 2 })",
    "calls": "return Promise.all([1, 2, 3].map((number) => tools.double({ number })))",
    "failing call": "try { await tools.refuse() } catch (error) { return [error.name, error.code, error.stack] }",
    "uncaught failing call": "await tools.refuse()",
    "wrong input": "const number = 'x'; await tools.double({ number })",
    "catalog": "return [await tools.$search('double'), await tools.$describe('double')]",
    "console": "console.log('a', 1, { b: [2] }); console.error(new Error('c')); console.table?.([1])",
    "date": "return [Date.now() > 0, new Date(0).toString(), new Date().toLocaleString()]",
    "locale": "return [(1234.5).toLocaleString(), 'ä'.localeCompare('z'), 'ﬁ'.normalize('NFKD')]",
    "random": "return Math.random() < 1",
    "regular expression": "return /\\p{L}+(?<=a)/u.exec('ba').index",
    "bigint": "return String(2n ** 4000n).length",
    "json": "return JSON.parse(JSON.stringify({ a: [1, { b: 2 }] }))",
    "proxies": "return new Proxy({}, { ownKeys: () => { throw 1 } })",
    "fetch": "const got = await fetch('ORIGIN/path'); return [got.status, await got.text()]",
    "refused fetch": "try { await fetch('https://example.com/') } catch (error) { return error.code }",
    "endless": "for (;;);",
}


async def double(number: int) -> int:
    return number * 2


def refuse() -> None:
    raise ValueError("a host secret")


@pytest.fixture
def origin() -> Iterator[str]:
    server = HttpServer()
    server.on("/path", response(b"answered"))
    server.start()
    yield server.origin
    server.stop()


def watched_zygote() -> Zygote:
    return Zygote(WorkerImage.from_installed(GUEST_RUNTIME), skip_layers=SILENT_LAYERS, test_hook_path=WATCHER)


async def endings(pool: WorkerPool, origin: str) -> dict[str, str]:
    policy = {"timeout_ms": 60_000, "memory_limit_bytes": 16 << 20, "max_source_bytes": 1_000_000}
    fetch_policy = {"allowed_origins": [origin]}
    found: dict[str, str] = {}
    for name, program in PROGRAMS.items():
        limits = {**policy, "timeout_ms": 300} if name == "endless" else policy
        options = CodeModeOptions(execution_policy=limits, fetch_policy=fetch_policy)
        try:
            await run_code_mode(program.replace("ORIGIN", origin), [double, refuse], options=options, pool=pool)
        except CodeModeError as error:
            found[name] = f"{type(error).__name__}: {error.message}"
        else:
            found[name] = "returns"
    return found


def run_all(pool: WorkerPool, origin: str) -> dict[str, str]:
    try:
        return asyncio.run(asyncio.wait_for(endings(pool, origin), 120))
    finally:
        pool.close()


def test_no_program_makes_a_worker_import_or_open_anything(origin: str) -> None:
    with nothing_left():
        watched = run_all(WorkerPool({"max_workers": 1}, source=watched_zygote), origin)
    assert {name: end for name, end in watched.items() if "late " in end or "CodeModeWorkerError" in end} == {}
    with nothing_left():
        locked = run_all(WorkerPool({"max_workers": 1}), origin)
    assert {name: end.partition(":")[0] for name, end in locked.items()} == {
        name: end.partition(":")[0] for name, end in watched.items()
    }
    assert sum(end == "returns" for end in locked.values()) >= 15, locked


@pytest.mark.parametrize(("asked", "said"), [("import", "late import: colorsys"), ("open", "late open: /etc/hostname")])
def test_a_late_import_would_be_seen(asked: str, said: str) -> None:
    with nothing_left():
        zygote = watched_zygote()
        worker = zygote.spawn()
        try:
            worker.channel.settimeout(60)
            assert worker.channel.recv(1 << 16)
            worker.channel.sendall(frame(b"?", asked))
            assert said.encode() in worker.channel.recv(1 << 16)
        finally:
            worker.close()
            zygote.kill()


def test_a_host_is_told_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codemode.protocol.messages.RunProgram.to_frame", lambda _message: frame(b"?", "import"))
    pool = WorkerPool({"max_workers": 1}, source=watched_zygote)
    work: Any = run_code_mode("return 'asked to import'", (), pool=pool)
    try:
        with pytest.raises(CodeModeError, match="late import: colorsys"):
            asyncio.run(asyncio.wait_for(work, 60))
    finally:
        pool.close()
