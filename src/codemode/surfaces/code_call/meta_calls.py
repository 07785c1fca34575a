"""What a call of a meta-tool does: the way from its input through search, catalog and run to its answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from functools import partial
from typing import Any, Self

from ...data.json_values import NOT_GIVEN
from ...errors import CodeModeToolError, Resumable
from ...execution.call_context import CallContext, OuterCall, check_call
from ...execution.optional_parts import require_optional_parts
from ...execution.starting import SyncForms, load_execution, prepared, resume_answered
from ...host.threads import run_check
from ...stores.durability import StoreLike, with_store
from ...workers.pool import WorkerPool, check_pool
from .describe import described, read_describe
from .direct_calls import is_direct
from .index import ToolSet
from .inputs import when_read
from .listening import listeners_of_run, question, tell_wrong_input
from .names import META_TOOLS, meta_name, meta_tool_of
from .options import CodeCallOptions
from .profile import profile_of
from .requests import asked_to_execute, asked_to_invoke, script_in
from .result import told
from .search import read_search, searched

_MAX_NAME_CHARACTERS = 128
_LIMITS_OF_VM = ("timeout_ms", "max_bridge_requests", "max_source_bytes")


class MetaCalls(SyncForms):
    """The meta-tools over one set of tools at a time. Safe to use from several threads."""

    def __init__(
        self,
        tools: Mapping[str, Any] | Iterable[Any],
        options: CodeCallOptions | Mapping[str, Any] | None,
        pool: WorkerPool | None,
        store: StoreLike | None = None,
    ) -> None:
        given = CodeCallOptions.of(options)
        settings, self.store = with_store(given.settings, store)
        self.options = given if store is None else given.replaced(settings=settings)
        # What is wrong with options is told of here, not in the first run.
        require_optional_parts(settings)
        check_pool(pool)
        self._pool = pool
        self._profile = profile_of(self.options)
        self._settings = settings.having(execution_policy=settings.execution_policy.without(*_LIMITS_OF_VM))
        self._of_new_runs = self._settings.under(self._profile.limits)
        self._most = settings.model_output.max_model_characters
        self._tools = ToolSet.of(tools, self.options)

    def without_journal(self) -> Self:
        """Return these tools without their journal: for plugins whose engine keeps a record of every call itself."""
        other = copy(self)
        own = {"_settings": self._settings.without_journal(), "_of_new_runs": self._of_new_runs.without_journal()}
        other.__dict__.update(own)
        return other

    async def search(
        self,
        input: Mapping[str, Any],  # noqa: A002 - the name that frameworks use
        *,
        tool_call_id: str | None = None,
    ) -> dict[str, Any]:
        """Return ``{"tools": [...], "totalAvailableTools", "warnings"?}`` for ``{"query", "topK"?, "filter"?}``.

        Raises `CodeModeToolError` for another input.
        """
        name, tools = self._name_of("search"), self._tools
        async with question(self.options, "search", tool_call_id) as asked:
            request = await when_read(input, partial(read_search, name, input, self.options))
            asked.asked = request.queries
            answer = await searched(tools, request)
            asked.result_count = len(answer["tools"])
        return answer

    async def describe(
        self,
        input: Mapping[str, Any],  # noqa: A002 - as above
        *,
        tool_call_id: str | None = None,
    ) -> dict[str, Any]:
        """Return ``{"tools": [...], "notFound"?, "omitted"?}`` for ``{"tools": [name, ...], "max"?}``.

        Raises `CodeModeToolError` for another input.
        """
        name, tools = self._name_of("describe"), self._tools
        async with question(self.options, "describe", tool_call_id) as asked:
            names, most = await when_read(input, partial(read_describe, name, input, self.options))
            asked.asked = names
            answer = await run_check(0, partial(described, tools, names, most))
            asked.result_count = len(answer["tools"])
        return answer

    async def execute(
        self,
        program: str | Mapping[str, Any],
        call: CallContext | None = None,
        *,
        script_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run ``{"script", "allowedTools"?, "context"?}``. Returns a `CodeCallResult`, or an `Interrupt` of a pause.

        ``program`` may also be the script itself. ``script_context``, a mapping of at most 64 KiB of JSON, is in the
        script's ``codecallContext`` over what the model gives; ``call`` says whose call it is. Raises
        `CodeModeToolError` for a wrong input, and `CodeModeError` for the host's own trouble; all else is a status.
        """
        outer = self._outer(call)
        input = {"script": program} if isinstance(program, str) else program  # noqa: A001 - as above
        catalog = self._tools.catalog
        try:
            script, given = await asked_to_execute(self._name_of("execute"), input, script_context, catalog)
        except CodeModeToolError as error:
            await tell_wrong_input(self.options, self._profile, script_in(input), outer.call.tool_call_id, error)
            raise
        pool = await prepared(self._pool, self._settings)
        run = load_execution()
        execution = run.Execution(self._profile, catalog, self._of_new_runs, outer, pool, given=given)
        return told(await execution.start(script), self._most, script)

    async def invoke(
        self,
        input: Mapping[str, Any],  # noqa: A002 - as above
        call: CallContext | None = None,
    ) -> Any:
        """Make the one call ``{"tool", "input"}`` without a script. Returns and raises as `execute` does.

        Raises `CodeModeToolError` where direct calls are not enabled.
        """
        self._require_direct_calls()
        tools, outer = self._tools, self._outer(call)
        try:
            name, text = await asked_to_invoke(self._name_of("invoke"), input)
        except CodeModeToolError as error:
            await tell_wrong_input(self.options, self._profile, None, outer.call.tool_call_id, error)
            raise
        pool = await prepared(self._pool, self._settings)
        run = load_execution()
        # What is refused takes the way of every call: nobody can tell it from a name that leads to no tool.
        allowed = [name] if await is_direct(tools, name, self.options.direct_calls, pool) else []
        given: dict[str, Any] = {"source": "invoke", "context": {}, "allowedTools": allowed}
        execution = run.Execution(self._profile, tools.catalog, self._settings, outer, pool, given=given)
        return told(await execution.call(name, text=text), self._most)

    async def resume(
        self,
        interrupt: Resumable | Mapping[str, Any],
        resolution: Any = NOT_GIVEN,
        call: CallContext | None = None,
        *,
        resolutions: Mapping[str, Any] | None = None,
    ) -> Any:
        """Answer pending requests of a script, or of a direct call, and go on. Answers are as in `continue_interrupt`.

        It goes on under the rules with which it began, over the tools there are now. Returns and raises as `execute`
        does, and `CodeModeProtocolError` for an interrupt, or answers, with which nothing can go on.
        """
        catalog, outer = self._tools.catalog, self._outer(call)
        outcome = resume_answered(
            self._profile, interrupt, resolution, resolutions, catalog, self._settings, outer, self._pool
        )
        return told(await outcome, self._most)

    async def call(
        self,
        meta_name: str,
        input: Mapping[str, Any],  # noqa: A002 - as above
        call: CallContext | None = None,
        *,
        script_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a meta-tool by its name: dotted, with a colon or with an underscore. The rest is as `execute` has it.

        Raises `CodeModeToolError` for another name.
        """
        meta_tool = meta_tool_of(meta_name)
        if meta_tool in ("search", "describe"):
            tool_call_id = check_call(call).tool_call_id
            ask = self.search if meta_tool == "search" else self.describe
            return await ask(input, tool_call_id=tool_call_id)
        if meta_tool == "execute":
            return await self.execute(input, call, script_context=script_context)
        if meta_tool == "invoke":
            return await self.invoke(input, call)
        known = ", ".join(
            self._name_of(one) for one in META_TOOLS if one != "invoke" or self.options.direct_calls.enabled
        )
        shown = meta_name[:_MAX_NAME_CHARACTERS]
        message = f"there is no meta-tool {shown!r}; there are {known}"
        raise CodeModeToolError(message, details={"tool_name": shown})

    def _outer(self, call: CallContext | None) -> OuterCall:
        return OuterCall(call=check_call(call), is_traced=True, listeners=listeners_of_run(self.options))

    def _name_of(self, meta_tool: str) -> str:
        return meta_name(meta_tool, self.options.names)

    def _require_direct_calls(self) -> None:
        if not self.options.direct_calls.enabled:
            name = self._name_of("invoke")
            raise CodeModeToolError(f"there is no tool named {name!r}", details={"tool_name": name})
