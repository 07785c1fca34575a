"""Which tools ``codecall.invoke`` calls: those of the index that the policy lets through. Calls none."""

from __future__ import annotations

from ...trace.failures import log_tool_failure
from ...workers.pool import WorkerPool
from .index import ToolSet
from .options import DirectCalls


async def is_direct(tools: ToolSet, name: str, policy: DirectCalls, pool: WorkerPool) -> bool:
    """Tell whether a tool is in the index and the policy lets it through. The filter is asked last."""
    if name not in tools.indexed or (policy.allowed_tools is not None and name not in policy.allowed_tools):
        return False
    return await _filter_admits(tools, name, policy, pool)


async def _filter_admits(tools: ToolSet, name: str, policy: DirectCalls, pool: WorkerPool) -> bool:
    if policy.filter is None:
        return True
    import asyncio

    from ...host.cancellation import FAILURES, is_ended_from_outside
    from ...tools.running import run_hook

    task = asyncio.current_task()
    info = tools.indexed[name].info
    try:
        return bool(await run_hook(policy.filter, (info,), pool.threads.of_invocation(), name, ""))
    except FAILURES as error:
        if isinstance(error, asyncio.CancelledError | GeneratorExit) and is_ended_from_outside(task):
            raise
        log_tool_failure(f"direct_calls.filter failed for tool {name!r}, which is refused", error)
        return False
