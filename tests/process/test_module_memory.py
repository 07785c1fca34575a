"""Modules that run out of memory, wherever that is: it is a limit, and no program is said to wait for nothing."""

from __future__ import annotations

import pytest
from module_servers import HUB, only
from suite import each_row, full_only

MEMORY = {"limits": {"maxMemoryBytes": 16 << 20}}
MANY = "const all = []; for (let i = 0; i < 100000; i++) all.push({}); await Promise.all(all)"
SPENDING = (
    "const all = []; for (;;) all.push({ x: 1 })",
    "let all; for (;;) all = { all }",
    "const all = []; for (;;) { all.push([1]); if (all.length % 1000 === 0) await 0 }",
    "const all = []; try { for (;;) all.push({ x: 1 }) } catch {} await 0; for (;;) all.push({ x: 1 })",
    "const all = []; for (;;) all.push(Promise.resolve(1).then((x) => [x]))",
    "const spend = async () => { const all = []; for (;;) all.push([1]) }; await spend()",
    MANY.format("Promise.reject(Error('x' + i)).catch((e) => e.message).then((x) => [x])"),
    MANY.format("import('nowhere' + i).catch((e) => e.code)"),
    MANY.format("hub.echo(i).catch((e) => e.code)"),
    "const all = []; await hub.echo(1); for (;;) { all.push([1]); if (all.length % 1000 === 0) await 0 }",
    "const all = []; clearTimeout(setTimeout(() => 0, 9e6)); for (;;) { all.push([1]); await 0 }",
    "const all = []; await new Promise(() => setTimeout(() => { for (;;) all.push([1]) }))",
    "const all = []; await new Promise((done) => setTimeout(done)); for (;;) { all.push([1]); await 0 }",
)


@each_row("code", [*SPENDING[::2], *full_only(*SPENDING[1::2])])
def test_memory_that_runs_out_is_a_limit_in_every_turn(code: str):
    said = only("SANDBOX_LIMIT", HUB + code, **MEMORY)
    assert "maxMemoryBytes is 16777216" in said["message"]


# A job for which there is no memory the engine drops without a word; what the loop itself makes may fit for ever.
@pytest.mark.parametrize(
    "code", ["for (;;) Promise.resolve().then(() => {})", "for (;;) { Promise.resolve([1]).then((x) => x) }"]
)
def test_jobs_that_take_all_memory_end_the_program_by_one_limit_or_the_other(code: str):
    said = only("SANDBOX_LIMIT", code, limits={**MEMORY["limits"], "timeoutMs": 2_000})
    assert any(limit in said["message"] for limit in ("maxMemoryBytes is 16777216", "timeoutMs is 2000"))


@pytest.mark.parametrize(
    "code",
    [
        "await new Promise(() => {})",
        "const all = Array(500000).fill(1); await new Promise(() => {})",
        "clearTimeout(setTimeout(() => 0, 9e6)); await new Promise(() => {})",
        "const timer = setTimeout(() => clearTimeout(timer)); await new Promise(() => {})",
        "const other = setTimeout(() => 0, 9e6); setTimeout(() => clearTimeout(other)); await new Promise(() => {})",
        "await hub.echo(1); await new Promise(() => {})",
    ],
)
def test_a_program_that_waits_for_nothing_with_memory_left_is_no_limit(code: str):
    only("DEADLOCK", HUB + code, **MEMORY)
