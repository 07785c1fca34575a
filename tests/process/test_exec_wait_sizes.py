"""What a program takes at rest: as it is told and compared with its limit, beside what would be kept of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite import each_row
from waiting import within

from codemode import CallContext, CodeModeError, PoolOptions, Tool, WorkerPool, create_exec_wait_tools

# Of the least that is kept: settings, and what shows an interrupt and signs it.
KEPT_OF_NOTHING = 2_000
LARGE = {"maxOutputBytes": 1 << 20, "maxPendingToolCalls": 128, "maxWarmRuns": 0}


def refuse(_value: Any, _context: Any) -> None:
    raise CodeModeError("no", code="NO")


async def stay(_value: Any, _context: Any) -> None:
    await asyncio.Event().wait()


TOOLS = [
    Tool("echo", execute=lambda value, _: value),
    Tool("large", execute=lambda size, _: {"text": "x" * size}),
    Tool("refuse", execute=refuse),
    Tool("stay", execute=stay),
]
PIECES = st.one_of(
    st.integers(1, 100).map(lambda n: f"for (let i = 0; i < {n}; i++) await tools.echo({{a: i, b: 'text'}});"),
    st.integers(1, 100).map(lambda n: f"for (let i = 0; i < {n}; i++) await tools.echo(i);"),
    st.integers(1, 60).map(lambda n: f"await Promise.all(Array.from({{length: {n}}}, (_, i) => tools.echo(i)));"),
    st.integers(1, 300_000).map(lambda n: f"await tools.large({n});"),
    st.integers(1, 300_000).map(lambda n: f"await tools.echo('é'.repeat({n}));"),
    st.integers(1, 20).map(lambda n: f"for (let i = 0; i < {n}; i++) await tools.refuse(i).catch(() => 0);"),
    st.integers(1, 20).map(lambda n: f"for (let i = 0; i < {n}; i++) await tools.search('echo');"),
    st.integers(1, 20).map(lambda n: f"for (let i = 0; i < {n}; i++) await new Promise((r) => setTimeout(r, 0));"),
    st.integers(1, 40).map(lambda n: f"for (let i = 0; i < {n}; i++) tools.stay(i);"),
    st.integers(1, 5_000).map(lambda n: f"// {'source ' * n}\n"),
    st.integers(1, 50_000).map(lambda n: f"text('x'.repeat({n}));"),
    st.just("await yield_control();"),
)


@pytest.fixture(scope="module")
def pool():
    with WorkerPool(PoolOptions(max_workers=1)) as made:
        yield made


async def at_rest(pair: Any, code: str) -> Any:
    """Run a program to its last rest; the run itself, and what `runs` tells of it."""
    result = await pair.exec.execute(
        {"code": code + "; await yield_control('last')"}, call=CallContext(conversation_id="s")
    )
    for _ in range(code.count("yield_control")):
        result = await pair.wait.execute({"runId": result["runId"]}, call=CallContext(conversation_id="s"))
    assert result["status"] == "waiting", result
    (info,) = (one for one in pair.runs("s") if one.state == "waiting")
    return pair._runner.runs.find(info.run_id).execution, info


@settings(max_examples=25, deadline=None)
@given(st.lists(PIECES, max_size=5))
def test_it_is_about_what_would_be_kept(pool, pieces):
    code = "".join(pieces)

    async def main():
        pair = create_exec_wait_tools(TOOLS, {**LARGE, "maxSnapshotBytes": 64 << 20}, pool=pool)
        try:
            run, info = await at_rest(pair, code)
            return info.bytes, len(
                json.dumps((await run.store_content_and_sign_interrupt()).to_dict(), ensure_ascii=False).encode()
            )
        finally:
            await pair.aclose()

    told, kept = within(main())
    assert told <= kept
    assert kept <= 2 * told + KEPT_OF_NOTHING


def test_many_small_calls_are_counted(pool):
    code = "for (let i = 0; i < 64; i++) await tools.echo(i)"

    async def main():
        pair = create_exec_wait_tools(TOOLS, LARGE, pool=pool)
        try:
            _, many = await at_rest(pair, code)
            await pair.abort(conversation_id="s")
            _, none = await at_rest(pair, "")
            return many.bytes - none.bytes
        finally:
            await pair.aclose()

    assert 64 * 150 < within(main()) < 64 * 400


@each_row("warm", [0, 4])
@each_row(
    "code",
    [
        "for (let i = 0; i < 40; i++) await tools.echo(i)",
        "await tools.large(5_000)",
        "await tools.echo('x'.repeat(5_000))",
        "text('x'.repeat(5_000))",
        "json({a: 'x'.repeat(5_000)})",
        "console.log('x'.repeat(5_000))",
        f"// {'x' * 5_000}\n",
        "for (let i = 0; i < 40; i++) tools.stay(i)",
    ],
)
def test_whatever_is_large_is_refused_at_a_rest(pool, code, warm):
    async def main():
        options = {**LARGE, "maxSnapshotBytes": 4_096, "maxWarmRuns": warm}
        pair = create_exec_wait_tools(TOOLS, options, pool=pool)
        try:
            return await pair.exec.execute({"code": f"{code}; await yield_control()"}), pair.runs()
        finally:
            await pair.aclose()

    result, runs = within(main())
    assert (result["status"], result.get("code")) == ("failed", "snapshot_limit_exceeded")
    assert "maxSnapshotBytes is 4096" in result["error"]
    assert runs == ()


def test_small_rests_stay_small_however_often_they_are(pool):
    async def main():
        pair = create_exec_wait_tools(TOOLS, {"maxSnapshotBytes": 4_096, "maxWarmRuns": 0}, pool=pool)
        try:
            code = "for (let i = 0; i < 6; i++) { text('x'.repeat(2_000)); await yield_control() } return 1"
            result, sizes = await pair.exec.execute({"code": code}, call=CallContext(conversation_id="s")), []
            while result["status"] == "waiting":
                sizes += [one.bytes for one in pair.runs("s") if one.state == "waiting"]
                result = await pair.wait.execute({"runId": result["runId"]}, call=CallContext(conversation_id="s"))
            return result, sizes
        finally:
            await pair.aclose()

    result, sizes = within(main())
    assert result["value"] == 1
    assert max(sizes) - min(sizes) < 6 * 200
