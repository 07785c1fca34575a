"""A surface that only tests know: strict programs over a view of the tools, with parameters, and codes of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from calls import with_call

from codemode import CodeModeOptions, CodeModeToolError, ExecutionPolicy, Interrupt
from codemode.execution.starting import get_pool_and_import_execution, import_execution_module, import_resume_module
from codemode.profile import GuestSettings, HostErrorRules, SurfaceSettings
from codemode.tools.catalog import Catalog
from codemode.tools.collecting import collect_tools

CODES = {
    "unknown_tool": "Unknown",
    "access_denied": "Denied",
    "validation": "Wrong",
    "output": "Broken",
    "timeout": "Slow",
    "approval_denied": "No",
    "approval_required": "Nobody",
    "limit": "Full",
    "execution": "Failed",
}


def _restored(parameters: Mapping[str, Any]) -> SurfaceSettings:
    if parameters.keys() - {"max_calls", "detail"}:
        raise ValueError(f"unknown parameters: {', '.join(parameters)}")
    calls, detail = parameters.get("max_calls", 3), parameters.get("detail", "hidden")
    return dataclasses.replace(
        STRICT,
        limits=ExecutionPolicy(max_bridge_requests=calls),
        host_errors=HostErrorRules(codes=CODES, detail=detail),
        parameters=dict(parameters),
    )


STRICT = SurfaceSettings(
    name="strictCalls",
    outer_tool="strict",
    guest=GuestSettings(wrapper="strict", globals=("tools", "callTool", "mcpLog", "mcpNotify", "console")),
    request_kinds=frozenset({"tool"}),
    limits=ExecutionPolicy(max_bridge_requests=3),
    host_errors=HostErrorRules(codes=CODES),
    restored=_restored,
)


def strict(**parameters: Any) -> SurfaceSettings:
    """Return the profile with these parameters."""
    return _restored(parameters)


class View:
    """The tools that ``allowedTools`` names, over all of a catalog; those that begin with ``hidden`` are in none."""

    shared_tools = None

    def __init__(self, catalog: Catalog[Any], given: Mapping[str, Any] | None = None) -> None:
        self._catalog = catalog
        self._allowed = (given or {}).get("allowedTools")

    def _is_shown(self, name: str) -> bool:
        return not name.startswith("hidden") and (self._allowed is None or name in self._allowed)

    def __len__(self) -> int:
        return len(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    @property
    def paths_named_like_javascript_members(self) -> tuple[str, ...]:
        return self._catalog.paths_named_like_javascript_members

    @property
    def may_wait_for_person(self) -> bool:
        return self._catalog.may_wait_for_person

    def names(self) -> tuple[str, ...]:
        return tuple(filter(self._is_shown, self._catalog.names()))

    def get(self, name: str) -> Any:
        return self._catalog.get(name) if self._is_shown(name) else None

    def tool_not_found_error(self, name: str) -> CodeModeToolError:
        is_hidden = name.startswith("hidden") or name not in self._catalog
        error = CodeModeToolError(f"no {name}" if is_hidden else f"{name} is not allowed")
        error.reason = "unknown_tool" if is_hidden else "access_denied"
        return error

    def answer_query(self, name: str, argument: Any) -> Any:
        return self._catalog.answer_query(name, argument)

    def find_program_error(self, facts: Any) -> None:
        """Nothing."""

    def prepare_for_program(self, facts: Any, given: Any) -> None:
        """Nothing."""

    def check_resumed_program(self, given: Mapping[str, Any] | None, names: Iterable[str]) -> None:
        """Nothing."""

    def for_invocation(self, given: Mapping[str, Any] | None) -> View:
        return View(self._catalog, given)

    def build_invocation_data(self, facts: Any) -> dict[str, Any] | None:
        calls = [call["name"] for call in (facts or {}).get("calls", [])]
        return {"named": sorted({name for name in calls if self._is_shown(name)})}


def view_of(tools: Any) -> View:
    return View(Catalog(collect_tools(tools)))


async def execution(
    tools: Any,
    options: Any = None,
    *,
    given: Any = None,
    profile: SurfaceSettings = STRICT,
    pool: Any = None,
    **outer: Any,
) -> Any:
    """Return an `Execution` of this surface."""
    settings = CodeModeOptions.of(options)
    workers = await get_pool_and_import_execution(pool, settings)
    run = import_execution_module()
    return run.Execution(
        profile, view_of(tools), settings, run.OuterCallSettings(**with_call(outer)), workers, invocation_data=given
    )


async def run_strict(js: str, tools: Any, options: Any = None, **more: Any) -> Any:
    """Return the outcome of a program."""
    return await (await execution(tools, options, **more)).start(js)


async def call_strict(name: str, value: Any, tools: Any, options: Any = None, **more: Any) -> Any:
    """Return the outcome of one call without a program."""
    given = {"source": "invoke", "allowedTools": [name]}
    return await (await execution(tools, options, given=given, **more)).call_tool(name, value)


async def go_on_strict(
    interrupt: Any, tools: Any, *answer: Any, options: Any = None, profile: SurfaceSettings = STRICT, **outer: Any
) -> Any:
    """Return the outcome of a paused program that goes on."""
    go_on, run = import_resume_module(), import_execution_module()

    def answers(paused: Interrupt) -> dict[str, Any]:
        return go_on.normalize_answers_by_id(paused, *(answer or (go_on.NOT_GIVEN,)), None)

    return await go_on.resume_program(
        profile, interrupt, answers, view_of(tools), options, run.OuterCallSettings(**with_call(outer)), None
    )
