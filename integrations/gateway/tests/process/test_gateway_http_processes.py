"""Gateways over HTTP as processes: many users, an end, and two hosts over one store."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from gateway_clients import USUAL_ERAS
from gateway_doors import ANA, BOB, bearer
from gateway_hosts import BOUND, Host, client_at, hosts, program, said_by, written
from mcp_types import ElicitResult
from warm_commands import GATEWAYS

pytestmark = pytest.mark.usefixtures("warm_gateways")
TOOL = "codemode.run"
NOTE = program('globalThis.__codemode_result__ = await note({ text: "written" });', imports="note")
ECHO = program('globalThis.__codemode_result__ = await echo({ text: "hello" });', imports="echo")


def calls(marks: Path, name: str) -> int:
    log = marks / "log"
    return 0 if not log.exists() else log.read_text().splitlines().count(f"call {name}")


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("mode", USUAL_ERAS)
def test_two_users_have_servers_of_their_own_and_none_outlives_the_gateway(tmp_path: Path, mode: str):
    config = written(tmp_path, f"marks={tmp_path}")
    ask = program("globalThis.__codemode_result__ = await pid({});", imports="pid")

    async def pid_of(host: Host, token: str) -> int:
        async with client_at(host.url, token=token, mode=mode) as client:
            return said_by(await client.call_tool(TOOL, ask))["result"]["pid"]

    with hosts(tmp_path, GATEWAYS.python) as start:
        host = start(config)
        anas, bobs = asyncio.run(pid_of(host, ANA)), asyncio.run(pid_of(host, BOB))
        assert anas != bobs
        assert asyncio.run(pid_of(host, ANA)) == anas
        assert host.end() == 0, host.told()
        assert not is_alive(anas)
        assert not is_alive(bobs)
        assert "Traceback" not in host.told()


@pytest.mark.full
def test_what_one_host_has_paused_goes_on_at_another_once_after_the_first_was_killed(tmp_path: Path):
    config = written(tmp_path, f"marks={tmp_path}", server={"approval": "writes"})

    async def paused(url: str) -> Any:
        async with client_at(url) as client:
            return await client.session.call_tool(TOOL, NOTE, allow_input_required=True)

    async def approved(url: str, first: Any, token: str = ANA) -> Any:
        said = {"decision": "once"}
        answers = {key: ElicitResult(action="accept", content=said) for key in first.input_requests}
        async with client_at(url, token=token, elicitation_callback=_nobody) as client:
            return await client.session.call_tool(
                TOOL, NOTE, input_responses=answers, request_state=first.request_state, allow_input_required=True
            )

    with hosts(tmp_path, GATEWAYS.python) as start:
        one, other = start(config), start(config)
        first = asyncio.run(with_asking(paused, one.url))
        assert len(first.input_requests) == 1
        one.end(signal.SIGKILL)
        stolen = said_by(asyncio.run(approved(other.url, first, BOB)))
        assert stolen["result"] is None
        assert calls(tmp_path, "note") == 0
        for _ in range(2):
            said = said_by(asyncio.run(approved(other.url, first)))
            assert said["result"] == "written", said
            assert calls(tmp_path, "note") == 1


async def _nobody(_context: Any, _params: Any) -> ElicitResult:
    raise AssertionError("nobody is asked: the test answers by itself")


async def with_asking(paused: Any, url: str) -> Any:
    """Pause as a client that can be asked."""
    async with client_at(url, elicitation_callback=_nobody) as client:
        return await client.session.call_tool(TOOL, NOTE, allow_input_required=True)


@pytest.mark.full
def test_what_nobody_could_be_asked_is_approved_at_another_hosts_console(tmp_path: Path):
    config = written(tmp_path, f"marks={tmp_path}", server={"approval": "writes"}, approvalWaitMs=500)

    async def run(url: str, arguments: dict[str, str], token: str = ANA) -> dict[str, Any]:
        async with client_at(url, mode="legacy", token=token) as client:
            return said_by(await client.call_tool(TOOL, arguments))

    async def approved(url: str, record: str) -> None:
        headers = {"sec-fetch-site": "same-origin", "accept": "application/json"}
        base = url.removesuffix("/mcp") + "/console"
        async with httpx2.AsyncClient(headers=headers, timeout=BOUND) as browser:
            assert (await browser.post(f"{base}/sign-in", data={"token": ANA})).status_code == 200
            shown = (await browser.get(f"{base}/records/{record}")).json()
            (card,) = shown["requests"]
            decision = {
                "decision": "approve",
                "form_token": card["formToken"],
                "version": card["version"],
                "shown": card["shown"],
            }
            answer = await browser.post(f"{base}/records/{record}/requests/{card['id']}", json=decision)
            assert answer.status_code == 200, answer.text

    async def outcome(url: str, record: str) -> dict[str, Any]:
        async with asyncio.timeout(BOUND):
            while True:
                said = await run(url, {"resume": record})
                if "waiting" not in said:
                    return said

    with hosts(tmp_path, GATEWAYS.python) as start:
        one, other = start(config), start(config)
        waiting = asyncio.run(run(one.url, NOTE))["waiting"]
        assert waiting["url"] == one.url.removesuffix("/mcp") + f"/console/records/{waiting['id']}"
        assert asyncio.run(run(one.url, NOTE))["waiting"]["id"] == waiting["id"]
        one.end(signal.SIGKILL)
        stolen = asyncio.run(run(other.url, {"resume": waiting["id"]}, BOB))
        assert stolen["result"] is None
        assert waiting["id"] not in json.dumps(stolen.get("waiting", {}))
        asyncio.run(approved(other.url, waiting["id"]))
        said = asyncio.run(outcome(other.url, waiting["id"]))
        assert said["result"] == "written", said
        assert asyncio.run(outcome(other.url, waiting["id"]))["result"] == "written"
        assert calls(tmp_path, "note") == 1


def test_a_probe_says_whether_it_can_work(tmp_path: Path):
    with hosts(tmp_path, GATEWAYS.python) as start:
        host = start(written(tmp_path))
        base = host.url.removesuffix("/mcp")
        with httpx2.Client(timeout=BOUND) as client:
            assert client.get(f"{base}/healthz").json() == {"status": "ok"}
            deadline = time.monotonic() + BOUND
            while (ready := client.get(f"{base}/readyz")).status_code == 503 and time.monotonic() < deadline:
                time.sleep(0.1)  # a busy machine may start its first worker for longer than a probe waits
            assert (ready.status_code, ready.json()["status"]) == (200, "ready"), ready.text
            assert client.post(host.url, json={}).status_code == 401
            assert client.post(host.url, json={}, headers=bearer(ANA)).status_code in (400, 406)
