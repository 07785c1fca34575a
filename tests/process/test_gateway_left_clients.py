"""Clients that are gone while somebody is asked in their session: without a good-bye, as a process that was killed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
from gateway_doors import ANA, bearer
from gateway_hosts import BOUND, client_at, hosts, program, said_by, written

from codemode import ALL_TENANTS, SqliteInterruptStore

TOOL = "codemode.run"
NOTE = program('globalThis.__codemode_result__ = await note({ text: "written" });', imports="note")
VERSION = "2025-06-18"
ACCEPTED = {**bearer(ANA), "accept": "application/json, text/event-stream"}


def request(method: str, number: int, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


async def dropped(url: str, arguments: dict[str, str], until: str) -> None:
    """Have a program run in a session that can be asked, and drop the connection with the first line of ``until``."""
    who = {"name": "gone", "version": "1"}
    hello = request("initialize", 1, protocolVersion=VERSION, capabilities={"elicitation": {}}, clientInfo=who)
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    call = request("tools/call", 2, name=TOOL, arguments=arguments, _meta={"progressToken": 1})
    async with httpx2.AsyncClient(timeout=BOUND) as client:
        answer = await client.post(url, json=hello, headers=ACCEPTED)
        session = {**ACCEPTED, "mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": VERSION}
        assert (await client.post(url, json=ready, headers=session)).status_code == 202
        async with client.stream("POST", url, json=call, headers=session) as response:
            async for line in response.aiter_lines():
                if until in line:
                    return
    raise AssertionError("the answer came first")


async def kept(store: SqliteInterruptStore) -> Any:
    """Wait for what is kept, and return it."""
    with store.watch() as watch:
        while not (records := (await store.list(tenant=ALL_TENANTS, state="waiting")).records):
            await watch.wait(1)
    (record,) = records
    return record


def calls(folder: Path) -> int:
    log = folder / "log"
    return log.read_text().splitlines().count("call note") if log.exists() else 0


def test_what_it_was_asked_waits_in_the_store_and_goes_on_once_when_somebody_decides_there(tmp_path: Path):
    config = written(tmp_path, f"marks={tmp_path}", server={"approval": "writes"}, approvalWaitMs=200)

    async def left(url: str) -> None:
        await dropped(url, NOTE, "elicitation/create")
        async with SqliteInterruptStore(tmp_path / "gateway.sqlite") as store:
            record = await kept(store)
            # Whoever sends the same program again is told of the one that waits.
            assert (await said(url, NOTE))["waiting"]["id"] == record.id
            decided = {record.requests[0].interrupt_id: {"approved": True}}
            await store.decide(decided, actor="ana", tenant=ALL_TENANTS)
            await store.outcome(record.id, tenant=ALL_TENANTS, timeout_ms=int(BOUND * 1000))
        told = await said(url, {"resume": record.id})
        assert told["result"] == "written", json.dumps(told)

    async def said(url: str, arguments: dict[str, str]) -> dict[str, Any]:
        async with client_at(url, mode="legacy") as client:
            return said_by(await client.call_tool(TOOL, arguments))

    with hosts(tmp_path) as start:
        host = start(config)
        asyncio.run(asyncio.wait_for(left(host.url), 2 * BOUND))
        assert calls(tmp_path) == 1


def test_who_left_while_a_call_ran_is_not_asked_about_the_next_one(tmp_path: Path):
    """A question for which nobody is there any more waits in the store from the first."""
    config = written(tmp_path, f"marks={tmp_path}", server={"approval": "writes"}, approvalWaitMs=200)
    slow = program(
        "await slow_read({ seconds: 0.5 });", 'globalThis.__codemode_result__ = await note({ text: "late" });',
        imports="slow_read, note",
    )  # fmt: skip

    async def left(url: str) -> None:
        await dropped(url, slow, "notifications/progress")
        async with SqliteInterruptStore(tmp_path / "gateway.sqlite") as store:
            await kept(store)

    with hosts(tmp_path) as start:
        asyncio.run(asyncio.wait_for(left(start(config).url), 2 * BOUND))
        assert calls(tmp_path) == 0
