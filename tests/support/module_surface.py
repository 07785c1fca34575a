"""A surface that only tests know: programs that are modules, over one server of plain tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calls import with_call
from strict_surface import View

from codemode import CodeModeOptions, ExecutionPolicy, Interrupt, Tool
from codemode.execution.starting import get_pool_and_import_execution, import_execution_module, import_resume_module
from codemode.profile import GuestSettings, HostErrorRules, SurfaceSettings
from codemode.tools.catalog import Catalog
from codemode.tools.collecting import collect_tools


def words(error: Any, kind: str, name: str, is_raised: bool) -> dict[str, Any]:
    return {"class": "ToolCallError", "message": error.message, "code": error.code, "hint": "Go on.", "kind": kind}


MODULES = SurfaceSettings(
    name="testModules",
    outer_tool="runModule",
    guest=GuestSettings(wrapper="module", globals=("console", "setTimeout", "clearTimeout"), console="stable"),
    request_kinds=frozenset({"tool", "catalog", "timer"}),
    limits=ExecutionPolicy(timeout_ms=10_000),
    host_errors=HostErrorRules(error_fields=words),
    unawaited="abandon",
    shows_run_details=True,
)


class Shop(View):
    """One server, ``shop``, whose tools are called by their own names."""

    def __init__(self, tools: Mapping[str, Any]) -> None:
        named = [Tool(f"shop.{name}", execute=one) if callable(one) else one for name, one in tools.items()]
        super().__init__(Catalog(collect_tools(named)))

    def for_invocation(self, given: Mapping[str, Any] | None) -> Shop:
        return self

    def build_invocation_data(self, facts: Any) -> dict[str, Any]:
        module = facts["module"]
        tools = [{"toolName": name[5:], "exportName": name[5:]} for name in self.names()]
        shop = {"serverId": "shop", "serverName": "shop", "tools": tools}
        imports = [one["from"] for one in module["imports"]]
        told = {"prefix": module["prefix"], "take": module["take"], "imports": imports, "all": False}
        return {"module": {**told, "servers": {"shop": shop}}}


async def run_module(js: str, tools: Mapping[str, Any], options: Any = None, **outer: Any) -> Any:
    """Return the outcome of a module, which finds its tools in ``@codemode/servers/shop``."""
    settings = CodeModeOptions.of(options)
    pool = await get_pool_and_import_execution(None, settings)
    run = import_execution_module()
    return await run.Execution(MODULES, Shop(tools), settings, run.OuterCallSettings(**with_call(outer)), pool).start(
        js
    )


async def go_on(interrupt: Any, tools: Mapping[str, Any], options: Any = None, **answers: Any) -> Any:
    """Return the outcome of a paused module that goes on; ``answers`` are ``resolution`` or ``resolutions``."""
    continuations, run = import_resume_module(), import_execution_module()

    outer = run.OuterCallSettings(is_traced=answers.get("is_traced", False))

    def answers_to(paused: Interrupt) -> dict[str, Any]:
        return continuations.normalize_answers_by_id(
            paused, answers.get("resolution", continuations.NOT_GIVEN), answers.get("resolutions")
        )

    return await continuations.resume_program(MODULES, interrupt, answers_to, Shop(tools), options, outer, None)
