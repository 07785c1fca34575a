"""A workflow of Temporal that runs a program in its own function, replayed from the record of a run of it.

``main`` prints what each way comes to. For a process of its own: the SDK's threads stay until its end.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from temporalio.converter import default
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

with workflow.unsafe.imports_passed_through():
    from codemode import create_code_mode_tool

RUN = {"js": "return 1"}


@workflow.defn
class Desk:
    """Does what no workflow function may."""

    @workflow.run
    async def run(self, is_sync: bool) -> Any:
        code_mode = create_code_mode_tool([])
        return code_mode.execute_sync(RUN) if is_sync else await code_mode.execute(RUN)


def history(*, is_sync: bool) -> WorkflowHistory:
    """What a server would have kept of a run, up to its first task."""
    kinds = [
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
    ]
    events = [HistoryEvent(event_id=number, event_type=kind) for number, kind in enumerate(kinds, 1)]
    for event in events:
        event.event_time.GetCurrentTime()
    started = events[0].workflow_execution_started_event_attributes
    started.workflow_type.name = "Desk"
    started.task_queue.name = "queue"
    started.original_execution_run_id = started.first_execution_run_id = "run"
    started.input.payloads.extend(default().payload_converter.to_payloads([is_sync]))
    events[1].workflow_task_scheduled_event_attributes.task_queue.name = "queue"
    events[2].workflow_task_started_event_attributes.scheduled_event_id = 2
    events[3].workflow_task_completed_event_attributes.scheduled_event_id = 2
    events[3].workflow_task_completed_event_attributes.started_event_id = 3
    events[4].workflow_execution_completed_event_attributes.workflow_task_completed_event_id = 4
    return WorkflowHistory("desk", events)


async def _replayed() -> dict[str, str]:
    said: dict[str, str] = {}
    for runner in (SandboxedWorkflowRunner(), UnsandboxedWorkflowRunner()):
        for is_sync in (False, True):
            replayer = Replayer(workflows=[Desk], workflow_runner=runner)
            result = await replayer.replay_workflow(history(is_sync=is_sync), raise_on_replay_failure=False)
            said[f"{type(runner).__name__} {is_sync}"] = str(result.replay_failure)
    return said


def main() -> None:
    print("said", json.dumps(asyncio.run(_replayed())), flush=True)
    # A thread of the SDK's core that looks for Python while that is going down ends the process with SIGABRT.
    os._exit(0)
