"""A host in which another thread has every lock of the package when it forks: its child can do all the same.

Arguments: programs of a worker, start method.
"""

import asyncio
import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path

from codemode import CallContext

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
from forked_children import held_elsewhere, in_a_child

import codemode.stores
from codemode.host import forks
from codemode.tools import adapters

IMAGE = codemode.MediaContent(b"bytes", "image/png")
KEY = secrets.token_bytes(32)


async def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def triple(number: int) -> int:
    """Triple a number."""
    return 3 * number


def picture() -> codemode.MediaContent:
    """Give an image."""
    return IMAGE


class Foreign:
    """A tool object of another framework."""


class Live:
    """A server whose tools change."""

    server_id = "live"

    def __init__(self) -> None:
        self.revision = 0

    async def tools(self) -> list[Callable[..., object]]:
        return [double]


def code_mode() -> None:
    """Run programs in the pool and in a share, and go on with a paused one."""
    calls = "return await Promise.all([tools.double({number: 1}), tools.triple({number: 1})])"
    for one in (tool, of_share):
        assert one.execute_sync({"js": calls}) == [2, 3]
        assert one.execute_sync({"js": "return (await tools.$search('triple')).length"})
        shown = one.execute_sync({"js": "return await tools.picture()"}, call=CallContext(tool_call_id="call"))
        assert one.to_model_output(shown, tool_call_id="call")
        asked = one.execute_sync({"js": "return await tools.careful({number: 4})"})
        assert one.resume_sync(asked, {"approved": True}) == 8
        assert one.execute_sync({"js": "await state.set('a', 1); return await state.get('a')"}) == 1


def journal() -> None:
    """Run a program whose calls are written before they begin, and keep a pause in the store."""
    number = os.getpid()
    journaled = {"journal": store.journal(tenant="t", app="a"), "keys": [KEY], "conversation_id": f"thread-{number}"}
    made = codemode.create_code_mode_tool(TOOLS, {**OPTIONS, "continuation": journaled}, pool=pool)
    assert (
        made.execute_sync(
            {"js": "return await tools.double({number: 2})"}, call=CallContext(tool_call_id=f"call-{number}")
        )
        == 4
    )


def code_call() -> None:
    """Search, describe, run, and put other tools in place of these."""
    assert tool_set.search_sync({"query": "double"})
    assert tool_set.execute_sync({"script": "return await callTool('double', {number: 5})"})["result"] == 10
    tool_set.update([double, triple, picture])
    tool_set.update([double, triple])
    assert "triple" in tool_set


def modules() -> None:
    """List servers and run a module over them."""
    live.revision += 1
    code = (
        'import { double } from "@codemode/servers/live"; globalThis.__codemode_result__ = await double({number: 3});'
    )
    assert run_tool.execute_sync({"code": code})["result"] == 6


def exec_wait() -> None:
    """Run a program of exec, and one that waits."""
    assert (
        pair.exec.execute_sync(
            {"code": "return await tools.double({number: 6})"}, call=CallContext(conversation_id="s")
        )["value"]
        == 12
    )
    registry.clear("nobody")
    assert pair.runs("s") == ()


def foreign() -> None:
    """Meet an object that no plugin knows."""
    try:
        codemode.create_code_mode_tool([Foreign()])
    except ValueError as error:
        assert "Expected a Tool" in str(error)


def anew() -> None:
    """Make, use and close a pool."""
    with codemode.WorkerPool({"max_workers": 1}) as other:
        assert codemode.run_code_mode_sync("return 1", [], pool=other) == 1
    assert asyncio.run(codemode.run_code_mode("return 2", [])) == 2


def everything() -> None:
    for part in (code_mode, journal, code_call, modules, exec_wait, foreign, anew):
        part()
    pool.close()


pool = codemode.WorkerPool(
    {"max_workers": 2, "programs_per_worker": int(sys.argv[1]), "start_method": sys.argv[2], "on_saturation": "wait"}
)
share = pool.share("tenant", max_workers=2)
store = codemode.stores.MemoryInterruptStore()
careful = codemode.Tool.from_function(double, name="careful", needs_approval=True)
TOOLS = {"double": double, "triple": triple, "picture": picture, "careful": careful}
OPTIONS = {"approval": {"mode": "interrupt"}, "state": {}, "model_output": {"include_nested_tool_summary": True}}
tool = codemode.create_code_mode_tool(TOOLS, OPTIONS, pool=pool)
of_share = codemode.create_code_mode_tool(TOOLS, OPTIONS, pool=share)
tool_set = codemode.create_code_call_tools([double, triple], pool=pool)
live = Live()
run_tool = codemode.create_modules_tool([live], pool=pool)
registry = codemode.NamespaceRegistry()
pair = codemode.create_exec_wait_tools([double, triple], pool=pool, namespaces=registry)

for part in (code_mode, journal, code_call, modules, exec_wait, foreign):
    part()
# Forks wait for what loads plugins, and that it is not held is all that they wait for.
locks = [one for one in [*forks._locks, *forks._reentrant_locks] if one is not adapters._loading_lock]
assert len(locks) > 30
with held_elsewhere(locks):
    in_a_child(everything)
everything()
print("ok")
