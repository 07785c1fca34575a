"""Gateways over one Postgres: whoever is killed between a pause, its approval and its resume, the call runs once."""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gateway_hosts import BOUND, client_at, hosts, program, said_by, written
from mcp_types import ElicitResult
from postgres_cluster import cluster, new_url
from warm_commands import GATEWAYS

from codemode.stores import ALL_TENANTS, PostgresInterruptStore, StoredRequest

pytestmark = pytest.mark.usefixtures("warm_gateways")
TOOL = "codemode.run"
NOTE = program('globalThis.__codemode_result__ = await note({ text: "as written" });', imports="note")
EDITED = {"text": "as edited"}


@pytest.fixture(scope="module")
def socket_folder() -> Iterator[str]:
    with cluster() as folder:
        yield folder


@pytest.fixture
def database(socket_folder: str) -> str:
    return new_url(socket_folder, f"t{secrets.token_hex(6)}")


def configured(folder: Path, database: str) -> Path:
    modes = [f"marks={folder}"]
    return written(folder, *modes, server={"approval": "writes"}, store=database, approvalWaitMs=200)


def calls(folder: Path) -> int:
    log = folder / "log"
    return log.read_text().splitlines().count("call note") if log.exists() else 0


async def answer(url: str, **arguments: Any) -> dict[str, Any]:
    """What a client is told that nobody can ask."""
    async with client_at(url, mode="legacy") as client:
        return said_by(await client.call_tool(TOOL, arguments))


async def ended(url: str, record: str) -> dict[str, Any]:
    async with asyncio.timeout(BOUND):
        while "waiting" in (told := await answer(url, resume=record)):
            pass
        return told


async def approved(database: str, record: str) -> StoredRequest:
    async with PostgresInterruptStore(database, max_connections=1) as store:
        (request,) = (await store.record(record, tenant=ALL_TENANTS)).requests
        decided = {request.interrupt_id: {"approved": True, "input": EDITED}}
        return (await store.decide(decided, actor="ana", tenant=ALL_TENANTS))[request.interrupt_id]


@pytest.mark.full
def test_what_is_approved_while_no_host_lives_goes_on_at_the_next_one_once(tmp_path: Path, database: str):
    config = configured(tmp_path, database)
    with hosts(tmp_path, GATEWAYS.python) as start:
        one = start(config)
        waiting = asyncio.run(answer(one.url, **NOTE))["waiting"]
        one.end(signal.SIGKILL)
        asyncio.run(approved(database, waiting["id"]))
        assert calls(tmp_path) == 0
        two = start(config)
        told = [asyncio.run(ended(two.url, waiting["id"])) for _ in range(2)]
        assert [one["result"] for one in told] == ["as edited"] * 2, told
        assert calls(tmp_path) == 1


@pytest.mark.full
def test_what_one_host_has_answered_its_client_goes_on_at_another_with_what_came_of_it(tmp_path: Path, database: str):
    config = configured(tmp_path, database)

    async def nobody(_context: Any, _params: Any) -> ElicitResult:
        raise AssertionError("nobody is asked: the test answers by itself")

    async def asked(url: str, **going_on: Any) -> Any:
        async with client_at(url, elicitation_callback=nobody) as client:
            return await client.session.call_tool(TOOL, NOTE, allow_input_required=True, **going_on)

    with hosts(tmp_path, GATEWAYS.python) as start:
        one, two = start(config), start(config)
        paused = asyncio.run(asked(one.url))
        said = ElicitResult(action="accept", content={"decision": "once", "input": '{"text": "as edited"}'})
        answers = dict.fromkeys(paused.input_requests, said)
        going_on = {"input_responses": answers, "request_state": paused.request_state}
        assert said_by(asyncio.run(asked(one.url, **going_on)))["result"] == "as edited"
        # Its client has lost the answer with it, and asks the other one.
        one.end(signal.SIGKILL)
        assert said_by(asyncio.run(asked(two.url, **going_on)))["result"] == "as edited"
        assert calls(tmp_path) == 1
