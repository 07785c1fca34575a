"""Which tools ``codecall.invoke`` calls: those of the index that the policy lets through. Calls none."""

from __future__ import annotations

from ...errors import CodeModeToolError
from ...trace.failures import log_tool_failure
from ...workers.pool import WorkerPool
from .index import ToolSet
from .options import DirectCalls


async def refusal_of(tools: ToolSet, name: str, policy: DirectCalls, pool: WorkerPool) -> CodeModeToolError | None:
    """Return the error for a call that is refused, None for one that may be made.

    A name outside the index is answered as one that nobody has registered, whatever the policy says of it.
    """
    if name not in tools.catalog:
        return tools.catalog.unknown_tool(name)
    if policy.allowed_tools is not None and name not in policy.allowed_tools:
        return tools.catalog.denied_tool(name)
    return None if await _filter_admits(tools, name, policy, pool) else tools.catalog.denied_tool(name)


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
