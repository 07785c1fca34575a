"""Agents that run programs in a workflow function of Temporal, replayed from the records of runs of it.

For a process of its own: the SDK's threads stay until its end. It prints, as JSON, what each way came to.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from codemode_pydantic_ai import CodeMode, CodeModeToolset, ExecWait, create_code_mode_tool
from pydantic_ai import Agent
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, TemporalDurability
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.toolsets import FunctionToolset
from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from temporalio.converter import default
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

import codemode

asked: list[int] = []
pool = codemode.WorkerPool({"max_workers": 1})


def stock(product: str) -> int:
    """How many of a product are in stock."""
    return len(product)


def respond(messages: Any, _info: Any) -> ModelResponse:
    asked.append(len(messages))
    return ModelResponse(parts=[TextPart("done")])


def agent(**given: Any) -> Agent[None, str]:
    return Agent(FunctionModel(respond), **given)


stocks = FunctionToolset([stock], id="stocks")
durable = TemporalDurability[None](name="desk")
AGENTS = {
    "capability": agent(tools=[stock], capabilities=[CodeMode(pool=pool)]),
    "durable": agent(name="desk", toolsets=[stocks], capabilities=[CodeMode(pool=pool), durable]),
    "pair": agent(tools=[stock], capabilities=[ExecWait(pool=pool)]),
    "toolset": agent(toolsets=[CodeModeToolset(stocks, pool=pool)]),
    "tool": agent(tools=[create_code_mode_tool([stock], pool=pool)]),
}


@workflow.defn(sandboxed=False)
class Desk:
    """Does what no workflow function may."""

    @workflow.run
    async def run(self, name: str) -> str:
        return (await AGENTS[name].run("go")).output


def history(name: str, end: str) -> WorkflowHistory:
    """What a server would have kept of a run that ended in its first task, without a step of any other kind."""
    kinds = ["EXECUTION_STARTED", "TASK_SCHEDULED", "TASK_STARTED", "TASK_COMPLETED", f"EXECUTION_{end}"]
    types = [EventType.Value(f"EVENT_TYPE_WORKFLOW_{kind}") for kind in kinds]
    events = [HistoryEvent(event_id=number, event_type=kind) for number, kind in enumerate(types, 1)]
    for event in events:
        event.event_time.GetCurrentTime()
    started = events[0].workflow_execution_started_event_attributes
    started.workflow_type.name = "Desk"
    started.task_queue.name = "queue"
    started.original_execution_run_id = started.first_execution_run_id = "run"
    started.input.payloads.extend(default().payload_converter.to_payloads([name]))
    events[1].workflow_task_scheduled_event_attributes.task_queue.name = "queue"
    events[2].workflow_task_started_event_attributes.scheduled_event_id = 2
    events[3].workflow_task_completed_event_attributes.scheduled_event_id = 2
    events[3].workflow_task_completed_event_attributes.started_event_id = 3
    if end == "FAILED":
        events[4].workflow_execution_failed_event_attributes.workflow_task_completed_event_id = 4
    else:
        events[4].workflow_execution_completed_event_attributes.workflow_task_completed_event_id = 4
    return WorkflowHistory("desk", events)


async def replayed(name: str, end: str, **settings: Any) -> str | None:
    replayer = Replayer(workflows=[Desk], workflow_runner=UnsandboxedWorkflowRunner(), **settings)
    result = await replayer.replay_workflow(history(name, end), raise_on_replay_failure=False)
    return None if result.replay_failure is None else str(result.replay_failure)


async def main() -> None:
    told = {
        name: {
            "alone": await replayed(name, "FAILED"),
            "with the plugin": await replayed(name, "FAILED", plugins=[PydanticAIPlugin()]),
            "as if it had ended well": await replayed(name, "COMPLETED", plugins=[PydanticAIPlugin()]),
        }
        for name in AGENTS
    }
    print("said", json.dumps({"told": told, "asked": asked, "has_begun": pool.has_started}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
    # A thread of the SDK's core that looks for Python while that is going down ends the process with SIGABRT.
    os._exit(0)
