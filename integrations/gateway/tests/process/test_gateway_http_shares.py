"""The workers of a gateway among its users: nobody's programs keep anybody else's from running."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from codemode_gateway.gateway.principals import LOCAL, Principal, get_pool_share
from gateway_clients import gateway_over

from codemode import ModuleServer, Tool, WorkerPool

BOUND = 60.0
HOLD = 'import { hold } from "@codemode/servers/desk"; globalThis.__codemode_result__ = await hold({});'
QUICK = "globalThis.__codemode_result__ = 7;"


@pytest.mark.parametrize("most", [1, 2, 3])
def test_programs_of_one_user_leave_room_for_those_of_another(most: int, tmp_path: Path):
    holding, let_go = asyncio.Semaphore(0), asyncio.Event()

    async def hold(_input: Any, _context: Any) -> str:
        holding.release()
        await let_go.wait()
        return "held"

    desk = ModuleServer("desk", [Tool("hold", execute=hold, input_schema={"type": "object"})])

    async def main() -> None:
        with WorkerPool({"max_workers": most}) as pool:
            async with gateway_over([desk], tmp_path, options={"pool": pool}) as gateway:
                ana, bob = [await gateway.get_or_create_workspace(Principal(name)) for name in ("ana", "bob")]
                many = [asyncio.create_task(ana.run_tool.execute({"code": HOLD})) for _ in range(5)]
                for _ in range(max(1, most // 2)):
                    await asyncio.wait_for(holding.acquire(), BOUND)
                if most > 1:
                    assert (await asyncio.wait_for(bob.run_tool.execute({"code": QUICK}), BOUND))["result"] == 7
                let_go.set()
                assert [(await asyncio.wait_for(one, BOUND))["result"] for one in many] == ["held"] * 5
                assert (await asyncio.wait_for(bob.run_tool.execute({"code": QUICK}), BOUND))["result"] == 7

    asyncio.run(main())


def test_the_one_user_of_a_gateway_has_all_workers():
    with WorkerPool({"max_workers": 4}) as pool:
        assert get_pool_share(pool, LOCAL) is pool
        assert get_pool_share(None, LOCAL) is None
        share = get_pool_share(pool, Principal("ana"))
        assert share is get_pool_share(pool, Principal("ana", "a session"))
        assert share is not None
        assert share.options.max_workers == 2
