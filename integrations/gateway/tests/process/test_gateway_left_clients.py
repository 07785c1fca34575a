"""Clients that are gone while somebody is asked in their session, or once they have answered: without a good-bye."""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
from gateway_clients import client_over_stdio
from gateway_doors import ANA, bearer
from gateway_hosts import BOUND, client_at, hosts, program, said_by, written
from suite import full_only
from warm_commands import GATEWAYS

from codemode.stores import ALL_TENANTS, SqliteInterruptStore

pytestmark = pytest.mark.usefixtures("warm_gateways")
TOOL = "codemode.run"
NOTE = program('globalThis.__codemode_result__ = await note({ text: "written" });', imports="note")
SLOW = program("globalThis.__codemode_result__ = await slow({});", imports="slow")
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

    with hosts(tmp_path, GATEWAYS.python) as start:
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

    with hosts(tmp_path, GATEWAYS.python) as start:
        asyncio.run(asyncio.wait_for(left(start(config).url), 2 * BOUND))
        assert calls(tmp_path) == 0


class Begun:
    """The log of the quick server as a pipe: who reads it knows when a call has begun."""

    def __init__(self, folder: Path) -> None:
        os.mkfifo(folder / "log")
        self._file = os.open(folder / "log", os.O_RDWR | os.O_NONBLOCK)
        self.said = b""

    def wait(self, line: bytes) -> None:
        while line not in self.said.splitlines():
            assert select.select([self._file], [], [], BOUND)[0], self.said
            self.said += os.read(self._file, 65536)

    def close(self) -> bytes:
        """Return all that was said, until nobody can say anything any more."""
        while select.select([self._file], [], [], 0)[0]:
            self.said += os.read(self._file, 65536)
        os.close(self._file)
        return self.said


def gone_with_an_approved_call_under_way(command: Sequence[str], environment: Mapping[str, str], begun: Begun) -> None:
    """Allow a call over stdio, and close both pipes once it has begun, as the end of a client's process does."""
    gateway = subprocess.Popen([*command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    bound = threading.Timer(BOUND, gateway.kill)
    bound.start()
    try:
        assert gateway.stdin is not None
        assert gateway.stdout is not None

        def send(message: Mapping[str, Any]) -> None:
            gateway.stdin.write(json.dumps(message).encode() + b"\n")
            gateway.stdin.flush()

        who = {"name": "gone", "version": "1"}
        send(request("initialize", 1, protocolVersion=VERSION, capabilities={"elicitation": {}}, clientInfo=who))
        send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        send(request("tools/call", 2, name=TOOL, arguments=SLOW))
        while (asked := json.loads(gateway.stdout.readline())).get("method") != "elicitation/create":
            pass
        allowed = {"action": "accept", "content": {"decision": "once"}}
        send({"jsonrpc": "2.0", "id": asked["id"], "result": allowed})
        begun.wait(b"call slow")
        gateway.stdin.close()
        gateway.stdout.close()
        assert gateway.wait(BOUND) == 0
    finally:
        bound.cancel()
        gateway.kill()
        gateway.wait(BOUND)


@pytest.mark.parametrize("journal", [True, *full_only(False)])
def test_what_it_had_approved_and_is_under_way_over_stdio_is_asked_about_and_not_made_again(
    tmp_path: Path, journal: bool
):
    config = written(tmp_path, f"marks={tmp_path}", server={"approval": "writes"}, approvalWaitMs=200, journal=journal)
    arguments = ["-m", "codemode", "mcp", "--config", str(config)]
    own = {"XDG_STATE_HOME": str(tmp_path)}
    begun = Begun(tmp_path)
    gone_with_an_approved_call_under_way([*GATEWAYS.python, *arguments], {**os.environ, **own}, begun)

    async def asked_about() -> None:
        async with SqliteInterruptStore(tmp_path / "gateway.sqlite") as store:
            record = await kept(store)
            (doubt,) = record.requests
            async with client_over_stdio(arguments, "legacy", python=GATEWAYS.python, environment=own) as other:
                told = said_by(await other.call_tool(TOOL, SLOW))
                assert told["waiting"]["id"] == record.id, told
                assert [one["code"] for one in told["diagnostics"]] == ["OUTCOME_UNKNOWN"]
                await store.decide({doubt.interrupt_id: {"value": "by hand"}}, actor="ana", tenant=ALL_TENANTS)
                await store.outcome(record.id, tenant=ALL_TENANTS, timeout_ms=int(BOUND * 1000))
                told = said_by(await other.call_tool(TOOL, {"resume": record.id}))
                assert told["result"] == "by hand", told

    asyncio.run(asyncio.wait_for(asked_about(), 2 * BOUND))
    assert begun.close().splitlines().count(b"call slow") == 1
