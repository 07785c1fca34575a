"""Every example that describe gives for real tools runs as it stands, and calls that tool with what it says."""

from __future__ import annotations

import asyncio
from typing import Any

from sample_tools import sample_tools
from waiting import within

from codemode import PoolOptions, WorkerPool, create_code_call_tools


def test_every_example_runs_as_it_stands():
    tools = sample_tools(execute=lambda value: {"given": value})

    async def run_all(pool: WorkerPool) -> list[tuple[str, Any]]:
        code_call = create_code_call_tools(tools, {"vm": {"preset": "locked_down"}}, pool=pool)
        turns = asyncio.Semaphore(4)

        async def one(code: str) -> tuple[str, Any]:
            async with turns:
                return code, await code_call.execute({"script": code})

        described: list[dict[str, Any]] = []
        for at in range(0, len(tools), 50):
            names = [tool.name for tool in tools[at : at + 50]]
            described += (await code_call.describe({"tools": names, "max": 50}))["tools"]
        return await asyncio.gather(*(one(said["code"]) for tool in described for said in tool["usageExamples"]))

    with WorkerPool(PoolOptions(max_workers=4, on_saturation="wait")) as pool:
        answers = within(run_all(pool), 120)
    assert len(answers) > len(tools)
    assert [(code, answer) for code, answer in answers if answer["status"] != "ok"] == []
