"""The tools that a model sees in place of any number of others: search, describe, execute and, if wanted, invoke."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from ...data.json_values import NOT_GIVEN
from ...errors import CodeModeToolError, Resumable
from ...host.sync import run_sync
from ...host.threads import run_check
from ...run.optional_parts import require_optional_parts
from ...run.starting import load_continuations, load_execution, prepared, started
from ...tools.tool import Tool
from ...workers.pool import WorkerPool, pool_or_default
from .changes import Listener, Listeners, change_of
from .describe import described, read_describe
from .direct_calls import refusal_of
from .index import ToolSet
from .listening import listeners_of_run, question, tell_refused_call
from .meta_tools import meta_tool_as_tool
from .names import META_TOOLS, meta_name, meta_tool_of
from .options import CodeCallOptions
from .profile import profile_of
from .requests import read_execute, read_invoke
from .result import CodeCallResult, refused_call, told
from .search import read_search, searched

_LIMITS_OF_VM = ("timeout_ms", "max_bridge_requests", "max_source_bytes")


class CodeCallToolset:
    """A few tools over any number of them. Make it with `create_code_call_tools`. Safe to use from several threads."""

    def __init__(
        self,
        tools: Mapping[str, Any] | Iterable[Any],
        options: CodeCallOptions | Mapping[str, Any] | None,
        pool: WorkerPool | None,
    ) -> None:
        self.options = CodeCallOptions.of(options)
        settings = self.options.settings
        # What is wrong with options is told of here, not in the first run.
        require_optional_parts(settings)
        if pool is not None:
            pool_or_default(pool)
        self._pool = pool
        self._profile = profile_of(self.options)
        self._settings = settings.having(execution_policy=settings.execution_policy.without(*_LIMITS_OF_VM))
        self._listeners = Listeners()
        self._updating = threading.Lock()
        self._tools = ToolSet.of(tools, self.options)

    def __repr__(self) -> str:
        return f"<CodeCallToolset over {len(self._tools.indexed)} tools>"

    @property
    def version(self) -> int:
        """The number of the set of tools in use; it grows with each `update`."""
        return self._tools.version

    @cached_property
    def tools(self) -> tuple[Tool, ...]:
        """The meta-tools, for whatever takes a `Tool`. An `Interrupt` that one gives is the host's, not the model's."""
        kinds = META_TOOLS if self.options.direct_calls.enabled else META_TOOLS[:-1]
        return tuple(meta_tool_as_tool(kind, self.options, self.call) for kind in kinds)

    def list_tools(self) -> list[Tool]:
        """Return what a client is shown: the meta-tools, then the tools that stay visible."""
        return [*self.tools, *self._tools.listed()]

    def update(self, tools: Mapping[str, Any] | Iterable[Any]) -> None:
        """Put other tools in place of these. A script that runs keeps its own.

        Raises `ValueError` as `create_code_call_tools` does, and then nothing changes.
        """
        with self._updating:
            before = self._tools
            after = ToolSet.of(tools, self.options, before)
            self._tools = after
        change = change_of(before, after)
        if change is not None:
            self._listeners.tell(change)

    def over(self, tools: Mapping[str, Any] | Iterable[Any]) -> CodeCallToolset:
        """Return a set with these options over other tools; this one stays as it is. What both have is indexed once.

        For hosts whose conversations see different tools. Raises `ValueError` as `create_code_call_tools` does.
        """
        own = {"_tools": ToolSet.of(tools, self.options, self._tools), "_listeners": Listeners()}
        other = copy(self)
        other.__dict__.pop("tools", None)
        other.__dict__.update(own, _updating=threading.Lock())
        return other

    def on_tools_changed(self, listener: Listener) -> Callable[[], None]:
        """Let a function hear ``{"version", "added", "removed", "changed"}`` of updates; return what ends that."""
        return self._listeners.add(listener)

    # --- the meta-tools ---

    async def search(self, input: Mapping[str, Any]) -> dict[str, Any]:  # noqa: A002 - the name that frameworks use
        """Return ``{"tools": [...], "totalAvailableTools", "warnings"?}`` for ``{"query", "topK"?, "filter"?}``.

        Raises `CodeModeToolError` for another input.
        """
        request, tools = read_search(self._name_of("search"), input, self.options), self._tools
        async with question(self.options, "search", request.queries) as asked:
            answer = await searched(tools, request)
            asked.result_count = len(answer["tools"])
        return answer

    async def describe(self, input: Mapping[str, Any]) -> dict[str, Any]:  # noqa: A002 - as above
        """Return ``{"tools": [...], "notFound"?, "omitted"?}`` for ``{"tools": [name, ...], "max"?}``.

        Raises `CodeModeToolError` for another input.
        """
        (names, most), tools = read_describe(self._name_of("describe"), input, self.options), self._tools
        async with question(self.options, "describe", names) as asked:
            answer = await run_check(0, partial(described, tools, names, most))
            asked.result_count = len(answer["tools"])
        return answer

    async def execute(
        self,
        input: Mapping[str, Any],  # noqa: A002 - as above
        *,
        tool_call_id: str | None = None,
        messages: Sequence[Any] = (),
        context: Any = None,
        script_context: Mapping[str, Any] | None = None,
        started_at_ms: int | None = None,
        context_binding: str | None = None,
        clock_ms: Callable[[], int] | None = None,
    ) -> Any:
        """Run ``{"script", "allowedTools"?, "context"?}``. Returns a `CodeCallResult`, or an `Interrupt` of a pause.

        ``script_context``, a mapping of at most 64 KiB of JSON, is in the script's ``codecallContext`` over what the
        model gives. The others are those of `CodeModeTool.execute`. Raises `CodeModeToolError` for a wrong input, and
        `CodeModeError` for the host's own trouble; all else is a status.
        """
        request, tools = read_execute(self._name_of("execute"), input, script_context), self._tools
        pool = await prepared(self._pool, self._settings)
        run = load_execution()
        heard = listeners_of_run(self.options)
        outer = run.OuterCall(tool_call_id, messages, context, True, started_at_ms, context_binding, clock_ms, heard)
        given = request.given(tools.catalog)
        execution = run.Execution(self._profile, tools.catalog, self._settings, outer, pool, given=given)
        result = told(await execution.start(request.script))
        return result.noting(request.warnings(tools.catalog)) if isinstance(result, CodeCallResult) else result

    async def invoke(
        self,
        input: Mapping[str, Any],  # noqa: A002 - as above
        *,
        tool_call_id: str | None = None,
        messages: Sequence[Any] = (),
        context: Any = None,
        started_at_ms: int | None = None,
        context_binding: str | None = None,
        clock_ms: Callable[[], int] | None = None,
    ) -> Any:
        """Make the one call ``{"tool", "input"}`` without a script. Returns and raises as `execute` does.

        Raises `CodeModeToolError` where direct calls are not enabled.
        """
        self._require_direct_calls()
        (name, value), tools = read_invoke(self._name_of("invoke"), input), self._tools
        refusal = await refusal_of(tools, name, self.options.direct_calls, pool_or_default(self._pool))
        if refusal is not None:
            await tell_refused_call(self.options, self._profile.host_errors, refusal, name, tool_call_id)
            is_hidden = self._settings.pipeline.before is not None
            return refused_call(refusal, name, NOT_GIVEN if is_hidden else value)
        pool = await prepared(self._pool, self._settings)
        run = load_execution()
        heard = listeners_of_run(self.options)
        outer = run.OuterCall(tool_call_id, messages, context, True, started_at_ms, context_binding, clock_ms, heard)
        given: dict[str, Any] = {"source": "invoke", "context": {}, "allowedTools": [name]}
        profile = replace(self._profile, outer_tool=self._name_of("invoke"))
        execution = run.Execution(profile, tools.catalog, self._settings, outer, pool, given=given)
        return told(await execution.call(name, value))

    async def resume(
        self,
        interrupt: Resumable | Mapping[str, Any],
        resolution: Any = NOT_GIVEN,
        *,
        resolutions: Mapping[str, Any] | None = None,
        messages: Sequence[Any] = (),
        context: Any = None,
        context_binding: str | None = None,
        clock_ms: Callable[[], int] | None = None,
    ) -> Any:
        """Answer pending requests of a script, or of a direct call, and go on. Answers are as in `continue_interrupt`.

        It goes on under the rules with which it began, over the tools there are now. Returns and raises as `execute`
        does, and `CodeModeProtocolError` for an interrupt, or answers, with which nothing can go on.
        """
        pool = await prepared(self._pool, self._settings)
        if not load_continuations.cache_info().currsize:
            await pool.off_loop(load_continuations)
        run, go_on = load_execution(), load_continuations()
        answers_to = partial(go_on.answers_of, resolution=resolution, resolutions=resolutions)
        heard = listeners_of_run(self.options)
        outer = run.OuterCall(None, messages, context, True, None, context_binding, clock_ms, heard)
        catalog = self._tools.catalog
        return told(await go_on.resume(self._profile, interrupt, answers_to, catalog, self._settings, outer, pool))

    async def call(
        self,
        meta_name: str,
        input: Mapping[str, Any],  # noqa: A002 - as above
        *,
        tool_call_id: str | None = None,
        messages: Sequence[Any] = (),
        context: Any = None,
        script_context: Mapping[str, Any] | None = None,
        started_at_ms: int | None = None,
        context_binding: str | None = None,
        clock_ms: Callable[[], int] | None = None,
    ) -> Any:
        """Call a meta-tool by its name: dotted, with a colon or with an underscore. The rest is as `execute` has it.

        Raises `CodeModeToolError` for another name.
        """
        meta_tool = meta_tool_of(meta_name)
        if meta_tool == "search":
            return await self.search(input)
        if meta_tool == "describe":
            return await self.describe(input)
        outer: dict[str, Any] = {
            "tool_call_id": tool_call_id,
            "messages": messages,
            "context": context,
            "started_at_ms": started_at_ms,
            "context_binding": context_binding,
            "clock_ms": clock_ms,
        }
        if meta_tool == "execute":
            return await self.execute(input, script_context=script_context, **outer)
        if meta_tool == "invoke":
            return await self.invoke(input, **outer)
        raise CodeModeToolError(f"there is no meta-tool {meta_name!r}", details={"tool_name": meta_name})

    # --- the same, from code that is not async ---

    def search_sync(self, input: Mapping[str, Any]) -> dict[str, Any]:  # noqa: A002 - as above
        """Do what `search` does, from code that is not async."""
        return run_sync(self.search(input))

    def describe_sync(self, input: Mapping[str, Any]) -> dict[str, Any]:  # noqa: A002 - as above
        """Do what `describe` does, from code that is not async."""
        return run_sync(self.describe(input))

    def execute_sync(
        self,
        input: Mapping[str, Any],  # noqa: A002 - as above
        *,
        tool_call_id: str | None = None,
        messages: Sequence[Any] = (),
        context: Any = None,
        script_context: Mapping[str, Any] | None = None,
        started_at_ms: int | None = None,
        context_binding: str | None = None,
        clock_ms: Callable[[], int] | None = None,
    ) -> Any:
        """Do what `execute` does, from code that is not async."""
        outer = _given(locals())
        started(self._pool)
        return run_sync(self.execute(input, **outer))

    def invoke_sync(
        self,
        input: Mapping[str, Any],  # noqa: A002 - as above
        *,
        tool_call_id: str | None = None,
        messages: Sequence[Any] = (),
        context: Any = None,
        started_at_ms: int | None = None,
        context_binding: str | None = None,
        clock_ms: Callable[[], int] | None = None,
    ) -> Any:
        """Do what `invoke` does, from code that is not async."""
        return run_sync(self.invoke(input, **_given(locals())))

    def call_sync(
        self,
        meta_name: str,
        input: Mapping[str, Any],  # noqa: A002 - as above
        *,
        tool_call_id: str | None = None,
        messages: Sequence[Any] = (),
        context: Any = None,
        script_context: Mapping[str, Any] | None = None,
        started_at_ms: int | None = None,
        context_binding: str | None = None,
        clock_ms: Callable[[], int] | None = None,
    ) -> Any:
        """Do what `call` does, from code that is not async."""
        return run_sync(self.call(meta_name, input, **_given(locals())))

    def resume_sync(
        self,
        interrupt: Resumable | Mapping[str, Any],
        resolution: Any = NOT_GIVEN,
        *,
        resolutions: Mapping[str, Any] | None = None,
        messages: Sequence[Any] = (),
        context: Any = None,
        context_binding: str | None = None,
        clock_ms: Callable[[], int] | None = None,
    ) -> Any:
        """Do what `resume` does, from code that is not async."""
        return run_sync(self.resume(interrupt, resolution, **_given(locals())))

    def _name_of(self, meta_tool: str) -> str:
        return meta_name(meta_tool, self.options.names)

    def _require_direct_calls(self) -> None:
        if not self.options.direct_calls.enabled:
            name = self._name_of("invoke")
            raise CodeModeToolError(f"there is no tool named {name!r}", details={"tool_name": name})


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    positional = ("self", "meta_name", "input", "interrupt", "resolution")
    return {name: value for name, value in arguments.items() if name not in positional}


def create_code_call_tools(
    tools: Mapping[str, Any] | Iterable[Any],
    options: CodeCallOptions | Mapping[str, Any] | None = None,
    *,
    pool: WorkerPool | None = None,
) -> CodeCallToolset:
    """Turn many tools into three or four: search, describe, execute and, where direct calls are enabled, invoke.

    ``tools`` and ``pool`` are as in `create_code_mode_tool`; ``options`` are `CodeCallOptions` or a mapping.
    Raises `ValueError` for wrong options, names, schemas, metadata or pools, for what is no tool, and for a tool whose
    name looks like that of a meta-tool.
    """
    return CodeCallToolset(tools, options, pool)
