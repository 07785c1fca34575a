"""W15: `codemode.run` against `codeMode` on the same programs: `python -m benchmarks.modules [rounds]`."""

from __future__ import annotations

import sys
from typing import Any

from codemode import ModuleServer, Tool, WorkerPool, create_modules_tool

from .surfaces import Run, SurfaceUnderTest, show
from .workloads import noop, rows

_IMPORT = 'import * as tools from "@codemode/servers/tools";\n'


def _on(pool: WorkerPool) -> Run:
    tool = create_modules_tool([ModuleServer("tools", [noop, Tool("rows", execute=rows)])], pool=pool)

    async def run(js: str) -> Any:
        return (await tool.execute({"code": module_of(js)}))["result"]

    return run


def module_of(js: str) -> str:
    """Return a program for `codeMode` as a module, which imports what it calls."""
    body, _, value = js.rpartition("return ")
    return f"{_IMPORT if 'tools.' in js else ''}{body}globalThis.__codemode_result__ = {value}"


MODULES = SurfaceUnderTest("W15", "codemode.run", _on, {"W1": 1.15, "W2": 1.15, "W2u": 1.4, "W3": 1.15, "W4": 1.15})

if __name__ == "__main__":
    show(MODULES, sys.argv[1:])
