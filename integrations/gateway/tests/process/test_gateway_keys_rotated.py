"""The steps by which docs/deploy.md has keys rotated, with gateways of which one has taken a step and one not."""

from __future__ import annotations

import asyncio
import re
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from gateway_doors import ANA
from gateway_hosts import BOUND, client_at, hosts, program, said_by, written
from mcp_types import ElicitResult
from postgres_cluster import cluster, new_url
from warm_commands import GATEWAYS

from codemode.stores import ALL_TENANTS, PostgresInterruptStore

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("warm_gateways")]
TOOL = "codemode.run"
OLD, NEW = "the old key of the tests, 32 bytes", "the new key of the tests, 32 bytes"
PAGE = Path(__file__).parents[4] / "docs" / "deploy.md"
STEPS = [
    tuple({"CODEMODE_KEY": OLD, "CODEMODE_NEW_KEY": NEW}[name] for name in re.findall(r"\$\{(\w+)\}", said))
    for said in ("${CODEMODE_KEY}", *re.findall(r"^\| \d \| `(\[.*?\])` \|", PAGE.read_text(), re.MULTILINE))
]
TEXT = "globalThis.__codemode_result__ = await note({ text: '%s' });"


@pytest.fixture(scope="module")
def socket_folder() -> Iterator[str]:
    with cluster() as folder:
        yield folder


@pytest.fixture
def database(socket_folder: str) -> str:
    return new_url(socket_folder, f"t{secrets.token_hex(6)}")


def configured(folder: Path, database: str, keys: tuple[str, ...]) -> Path:
    """A configuration of its own for each list of keys, over one store and one server."""
    own = folder / "-".join("old" if key == OLD else "new" for key in keys)
    own.mkdir(exist_ok=True)
    more: Any = {"store": database, "keys": list(keys), "approvalWaitMs": 0, "journal": True}
    return written(own, f"marks={folder}", server={"approval": "writes"}, **more)


def notes(text: str) -> dict[str, str]:
    return program(TEXT % text, imports="note")


def calls(folder: Path) -> int:
    log = folder / "log"
    return log.read_text().splitlines().count("call note") if log.exists() else 0


async def nobody(_context: Any, _params: Any) -> ElicitResult:
    raise AssertionError("nobody is asked: the test answers by itself")


async def asked(url: str, text: str, **going_on: Any) -> Any:
    """What a client is answered that carries the pause itself."""
    async with client_at(url, elicitation_callback=nobody) as client:
        return await client.session.call_tool(TOOL, notes(text), allow_input_required=True, **going_on)


async def answered(url: str, text: str, paused: Any) -> dict[str, Any]:
    """What it is told where it goes on with its approval."""
    answers = dict.fromkeys(paused.input_requests, ElicitResult(action="accept", content={"decision": "once"}))
    return said_by(await asked(url, text, input_responses=answers, request_state=paused.request_state))


async def told(url: str, **arguments: Any) -> dict[str, Any]:
    """What a client is told that nobody can ask."""
    async with client_at(url, mode="legacy") as client:
        return said_by(await client.call_tool(TOOL, arguments))


async def approve(database: str, record: str) -> None:
    async with PostgresInterruptStore(database, max_connections=1) as store:
        (request,) = (await store.record(record, tenant=ALL_TENANTS)).requests
        await store.decide({request.interrupt_id: {"approved": True}}, actor="ana", tenant=ALL_TENANTS)


async def why_not(database: str, record: str) -> str:
    """Why no host could go on with a record, once one has tried."""
    async with PostgresInterruptStore(database, max_connections=1) as store, asyncio.timeout(BOUND):
        with store.watch() as watch:
            while (kept := await store.record(record, tenant=ALL_TENANTS)).not_resumable is None:
                await watch.wait(0.2)
        assert (kept.state, kept.requests[0].state) == ("pending", "decided")
        return kept.not_resumable


async def ended(url: str, record: str) -> dict[str, Any]:
    async with asyncio.timeout(BOUND):
        while "waiting" in (said := await told(url, resume=record)):
            pass
        return said


async def console_cookie(url: str) -> str:
    base = url.removesuffix("/mcp") + "/console"
    own = {"sec-fetch-site": "same-origin"}
    async with httpx2.AsyncClient(headers=own, timeout=BOUND) as browser:
        page = await browser.post(f"{base}/sign-in", data={"token": ANA})
        assert page.status_code == 303, page.text
        return page.headers["set-cookie"].partition(";")[0]


async def is_signed_in(url: str, cookie: str) -> bool:
    async with httpx2.AsyncClient(headers={"cookie": cookie}, timeout=BOUND) as browser:
        return (await browser.get(url.removesuffix("/mcp") + "/console/")).status_code == 200


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_replica_that_has_taken_a_step_and_one_that_has_not_go_on_with_each_others(
    tmp_path: Path, database: str, step: int
):
    before, after = (configured(tmp_path, database, keys) for keys in STEPS[step - 1 : step + 1])
    with hosts(tmp_path, GATEWAYS.python) as start:
        both = start(before), start(after)
        for one, other in (both, both[::-1]):
            text = f"of {both.index(one)}"
            paused = asyncio.run(asked(one.url, text))
            assert asyncio.run(answered(other.url, text, paused))["result"] == text
            assert asyncio.run(is_signed_in(other.url, asyncio.run(console_cookie(one.url))))
        assert calls(tmp_path) == 2
        kept = asyncio.run(told(both[0].url, **notes("kept")))["waiting"]["id"]
        both[0].end(signal.SIGKILL)
        asyncio.run(approve(database, kept))
        assert asyncio.run(ended(both[1].url, kept))["result"] == "kept"
        assert calls(tmp_path) == 3


def test_what_is_signed_with_a_key_that_a_replica_has_not_waits_for_one_that_has_it(tmp_path: Path, database: str):
    behind, ahead = (configured(tmp_path, database, keys) for keys in ((OLD,), (OLD, NEW)))
    with hosts(tmp_path, GATEWAYS.python) as start:
        one, two = start(ahead), start(behind)
        paused = asyncio.run(asked(one.url, "asked"))
        refused = asyncio.run(answered(two.url, "asked", paused))
        assert [said["code"] for said in refused["diagnostics"]] == ["CONTINUATION_REFUSED"], refused
        assert "codemode.keys" in refused["diagnostics"][0]["message"]
        assert asyncio.run(answered(one.url, "asked", paused))["result"] == "asked"
        kept = asyncio.run(told(one.url, **notes("kept")))["waiting"]["id"]
        one.end(signal.SIGKILL)
        asyncio.run(approve(database, kept))
        assert "signed with a key that this gateway does not have" in asyncio.run(why_not(database, kept))
        two.end(signal.SIGKILL)
        assert calls(tmp_path) == 1
        three = start(ahead)
        assert asyncio.run(ended(three.url, kept))["result"] == "kept"
        assert calls(tmp_path) == 2


def test_what_was_paused_before_the_second_step_is_told_after_the_third_what_would_help(tmp_path: Path, database: str):
    first, second, third = (configured(tmp_path, database, keys) for keys in STEPS[1:])
    with hosts(tmp_path, GATEWAYS.python) as start:
        one = start(first)
        kept = asyncio.run(told(one.url, **notes("kept")))["waiting"]["id"]
        one.end(signal.SIGKILL)
        three = start(third)
        asyncio.run(approve(database, kept))
        assert "codemode.keys" in asyncio.run(why_not(database, kept))
        (said,) = asyncio.run(told(three.url, resume=kept))["diagnostics"]
        assert said["message"].endswith("need the same codemode.keys; put a removed key back before the last one")
        assert "waiting does not help" in said["hint"]
        assert not re.search("set_continuation|continuation=|CODEMODE_SIGNING_KEY", str(said))
        three.end(signal.SIGKILL)  # what it refused again and again is left alone for longer each time
        assert asyncio.run(ended(start(second).url, kept))["result"] == "kept"
        assert calls(tmp_path) == 1
