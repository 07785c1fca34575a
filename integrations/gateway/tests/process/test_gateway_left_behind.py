"""What calls of a gateway leave behind in its process once they are over: nothing, in either era."""

from __future__ import annotations

import asyncio
import gc
import time
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from approval_world import accept, answer_of
from census import census, left_by
from codemode_gateway import Gateway, GatewayConfig, GatewayOptions, GatewaySettings
from gateway_clients import USUAL_ERAS
from gateway_doors import serving
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_servers.configured import quick
from suite import rounds
from waiting import WAIT_SECONDS, until, within

from codemode import WorkerPool

CALLS = rounds(3, 6)
FEW_CALLS = rounds(2, 3)
PLAIN = "globalThis.__codemode_result__ = 6 * 7;"
ASKS = (
    'import { note } from "@codemode/servers/quick";\n'
    'globalThis.__codemode_result__ = await note({ text: "first" }).catch((error) => error.code);'
)
FAILS = (
    'import { fail, progress } from "@codemode/servers/quick";\n'
    "globalThis.__codemode_result__ = await Promise.allSettled([fail({}), progress({})]);"
)
HANGS = 'import { slow_read } from "@codemode/servers/quick"; await slow_read({});'


async def _called(url: str, mode: Any, code: str) -> Any:
    async def person(_ctx: Any, _params: Any) -> Any:
        return accept()

    async with Client(streamable_http_client(url), mode=mode, elicitation_callback=person) as client:
        going_on: dict[str, Any] = {}
        while True:
            answer: Any = await client.session.call_tool(
                "codemode_run", {"code": code}, allow_input_required=True, **going_on
            )
            if not isinstance(answer, types.InputRequiredResult):
                return answer_of(answer)
            replies = {key: accept() for key in answer.input_requests or {}}
            going_on = {"input_responses": replies, "request_state": answer.request_state}


async def _left(url: str, mode: Any, pool: WorkerPool) -> None:
    """Call, and go away while the program waits for a server."""
    async with Client(streamable_http_client(url), mode=mode) as client:
        call = asyncio.ensure_future(client.session.call_tool("codemode_run", {"code": HANGS}))
        await until(lambda: pool.active)
        call.cancel()
        await asyncio.wait([call])
    await until(lambda: not pool.active)


@pytest.mark.parametrize("mode", USUAL_ERAS)
@pytest.mark.parametrize(
    "code", [pytest.param(PLAIN, id="plain", marks=pytest.mark.full), pytest.param(ASKS, id="asks")]
)
def test_no_call_leaves_anything_behind(tmp_path: Path, code: str, mode: str) -> None:
    async def scenario() -> dict[str, int]:
        gc.freeze()  # what other tests imported is not looked at
        settings = GatewaySettings(state_folder=tmp_path)
        async with (
            Gateway(GatewayConfig((quick(),), settings), GatewayOptions(over_http=True)) as gateway,
            serving(gateway) as url,
        ):
            for _ in range(2):  # whatever is made once
                assert (await _called(url, mode, code))["result"]
            before = census()
            for _ in range(CALLS):
                assert (await _called(url, mode, code))["result"]
            return left_by(CALLS, before, census())

    assert within(scenario()) == {}


@pytest.mark.parametrize("mode", USUAL_ERAS)
def test_no_call_that_fails_and_none_whose_client_leaves_it_leaves_anything_behind(tmp_path: Path, mode: str) -> None:
    async def scenario() -> None:
        gc.freeze()  # what other tests imported is not looked at
        config = GatewayConfig((quick(approval="never"),), GatewaySettings(state_folder=tmp_path))
        async with (
            WorkerPool({"max_workers": 2}) as pool,
            Gateway(config, GatewayOptions(over_http=True, pool=pool)) as gateway,
            serving(gateway) as url,
        ):

            async def call() -> None:
                answer = await _called(url, mode, FAILS)
                assert [one["status"] for one in answer["result"]] == ["rejected", "fulfilled"], answer
                await _left(url, mode, pool)

            for _ in range(2):
                await call()
            before = census()
            for _ in range(FEW_CALLS):
                await call()
            deadline = time.monotonic() + WAIT_SECONDS
            while left := left_by(FEW_CALLS, before, census()):
                assert time.monotonic() < deadline, left
                await asyncio.sleep(0.01)  # of a client that has left the gateway hears a little later

    within(scenario(), 2 * WAIT_SECONDS)
