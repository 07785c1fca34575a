"""W14: CodeCall's `execute` against `codeMode` on the same programs.

`python -m benchmarks.code_call [rounds]`. Loops are allowed, for the programs have some; all else is the default.
"""

from __future__ import annotations

import sys
from typing import Any

from codemode import Tool, WorkerPool, create_code_call_tools

from .surfaces import Run, SurfaceUnderTest, show
from .workloads import noop, rows

_LOOPS = {"vm": {"preset": "experimental"}}


def _on(pool: WorkerPool) -> Run:
    toolset = create_code_call_tools([noop, Tool("rows", execute=rows)], _LOOPS, pool=pool)

    async def run(js: str) -> Any:
        return (await toolset.execute({"script": script_of(js)})).get("result")

    return run


def script_of(js: str) -> str:
    """Return a program for `codeMode` as a script."""
    return js.replace("tools.noop(", "callTool('noop', ").replace("tools.rows(", "callTool('rows', ")


CODE_CALL = SurfaceUnderTest("W14", "CodeCall's execute", _on, dict.fromkeys(("W1", "W2", "W2u", "W3", "W4"), 1.1))

if __name__ == "__main__":
    show(CODE_CALL, sys.argv[1:])
