"""Hosts that stand still for longer than they may, in the middle of a resume, while another one takes it over."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from leftovers import no_orphan_left, read_line
from postgres_cluster import cluster, new_database
from suite import full_only
from waiting import within

from codemode.stores import ALL_TENANTS, PostgresInterruptStore

pytestmark = pytest.mark.full
HOST = Path(__file__).parent / "hosts" / "stands_still.py"
TOLD = {"guard": ["refunded"], "journal": ["refunded", "noted"]}
DONE = {"guard": ["refund"], "journal": ["note", "refund"]}
UNKNOWN = "code-mode/unknown-outcome"
CLAIMS, ENDS = r"SET state = \S+ owner = ", r"SET state = \S+ outcome = "
IS_GUARDED, IS_TOLD = r"INSERT INTO \w*resumes VALUES", r"resumes SET outcome = "
POINTS = {
    "as it commits its claim": (CLAIMS, "^COMMIT"),
    "behind its claim at the guard": (IS_GUARDED, ""),
    "behind its call": ("after the call",),
    "as the guard is told": (IS_TOLD,),
    "as it commits what it came to": (ENDS, "^COMMIT"),
    "as it claims": (CLAIMS,),
    "behind its claim": (CLAIMS, "^COMMIT", ""),
    "as the guard is asked": (IS_GUARDED,),
    "behind what the guard is told": (IS_TOLD, "", ""),
    "as it settles": (ENDS,),
    "behind it all": (ENDS, "^COMMIT", ""),
}
MODES = ("guard", "journal")
FEW = [("guard", "behind its claim at the guard"), ("journal", "behind its call")]
OTHERS = [one for one in product(MODES, POINTS) if one not in FEW]


@pytest.fixture(scope="module")
def socket_folder() -> Iterator[str]:
    with cluster() as folder:
        yield folder


@contextmanager
def host(*given: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-W", "error", str(HOST), *map(str, given)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def stopped(process: subprocess.Popen[str]) -> None:
    """Wait until a host stands still."""
    pid, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), (pid, status, process.stderr.read() if process.stderr else "")


def left(process: subprocess.Popen[str]) -> str:
    """End a host that must have nothing to say against it, and return what it has told."""
    _, told = process.communicate("end\n", timeout=60)
    assert process.returncode == 0, told
    return told


def lines(effects: Path) -> list[str]:
    return effects.read_text().split() if effects.exists() else []


async def came_to(store: Any, record_id: str, effects: Path) -> Any:
    """What it came to, with a person who has looked whether what is in doubt has happened."""
    with store.watch() as watch:
        while (record := await store.record(record_id, tenant=ALL_TENANTS)).state in ("pending", "resuming"):
            for one in record.requests:
                if one.state == "waiting":
                    assert one.kind == UNKNOWN, one
                    happened = "refund" in lines(effects)
                    answer = {"value": "refunded"} if happened else {"runAgain": True}
                    await store.decide({one.interrupt_id: answer}, actor="ana", tenant=ALL_TENANTS)
            await watch.wait(0.5)
    return await store.outcome(record_id, tenant=ALL_TENANTS, timeout_ms=0)


@pytest.mark.parametrize(("mode", "point"), [*FEW, *full_only(*OTHERS)])
def test_what_another_has_taken_over_meanwhile_happens_once_and_whoever_wakes_up_leaves_it(
    tmp_path: Path, socket_folder: str, mode: str, point: str
):
    database, effects = new_database(socket_folder, f"t{secrets.token_hex(6)}"), tmp_path / "effects"

    async def scenario() -> None:
        store = PostgresInterruptStore(database)
        with host(database, effects, mode, "pause") as pausing:
            record_id = (await asyncio.to_thread(read_line, pausing.stdout)).strip()
            await asyncio.to_thread(left, pausing)
        with host(database, effects, mode, *POINTS[point]) as one:
            assert await asyncio.to_thread(read_line, one.stdout) == "ready\n"
            await asyncio.to_thread(stopped, one)
            with host(database, effects, mode) as other:
                told = await came_to(store, record_id, effects)
                one.send_signal(signal.SIGCONT)
                await asyncio.to_thread(left, one)
                await asyncio.to_thread(left, other)
        record = await store.record(record_id, tenant=ALL_TENANTS)
        assert (record.state, told, record.outcome.value) == ("completed", TOLD[mode], TOLD[mode])
        await store.aclose()

    with no_orphan_left():
        within(scenario(), 120)
    assert sorted(lines(effects)) == DONE[mode]
