"""A person's journey: a program waits at a gateway over HTTP, and somebody edits and approves its call in a browser."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from browsing import Hall, button, paste_token, visiting
from gateway_hosts import Host, client_at, hosts, program, said_by, written

pytestmark = pytest.mark.full

WRITTEN = program('globalThis.__codemode_result__ = await note({ text: "as written" });', imports="note")


@pytest.fixture
def host(hall: Hall, tmp_path: Path) -> Generator[Host]:
    """A gateway for whoever is at this machine, with a token of the console's own."""
    config = written(tmp_path, f"marks={tmp_path}", server={"approval": "writes"}, auth={}, approvalWaitMs=200)
    with hosts(tmp_path) as start:
        yield start(config)


async def told(url: str, arguments: dict[str, str]) -> dict[str, Any]:
    """What a client is told that nobody can ask."""
    async with client_at(url, mode="legacy") as client:
        return said_by(await client.call_tool("codemode_run", arguments))


async def test_what_waits_is_edited_and_approved_on_its_page_and_runs_once(
    hall: Hall, host: Host, tmp_path: Path
) -> None:
    url = await asyncio.to_thread(lambda: host.url)
    waiting = (await told(url, WRITTEN))["waiting"]
    (token,) = re.findall(r"/console/sign-in#token=(\S+)", host.told())
    assert token not in json.dumps(waiting)
    async with visiting(hall, [url.removesuffix("/mcp")]) as visitor:
        page = await visitor.page()
        await paste_token(page, waiting["url"], token)
        home, _, record = waiting["url"].rpartition("/records/")
        await page.wait_for_url(re.compile(rf"{re.escape(home)}/~[^/]+/records/{record}$"))
        await page.get_by_text("JSON text", exact=True).click()
        text = page.locator("textarea[name=json]")
        assert json.loads(await text.input_value()) == {"text": "as written"}
        await text.fill('{"text": "as edited"}')
        await button(page, "Approve with changes").click()
        while "waiting" in (answer := await told(url, {"resume": waiting["id"]})):
            pass
    assert answer["result"] == "as edited", answer
    assert (await told(url, {"resume": waiting["id"]}))["result"] == "as edited"
    assert (tmp_path / "log").read_text().splitlines().count("call note") == 1
