"""Calls of the meta-tools: search, describe, execute and invoke, from input to answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from ...data.json_values import NOT_GIVEN
from ...errors import CodeModeToolError, Resumable
from ...execution.call_context import CallContext, OuterCall, check_call
from ...execution.optional_parts import require_optional_parts
from ...execution.starting import attach_library, load_execution, prepared, resume_answered, with_library
from ...execution.sync_forms import SyncForms
from ...host.threads import LARGE_CHARACTERS, InvocationThreads, run_check
from ...signatures.declarations import first_sentence, summary_of
from ...stores.durability import StoreLike, with_store
from ...trace.failures import log_tool_failure
from ...workers.pool import WorkerPool, check_pool
from .index import ToolSet
from .known_tool import KnownTool
from .names import META_TOOLS, meta_name, meta_tool_of
from .options import MAX_LISTED, CodeCallOptions, DirectCalls
from .requests import InputReader, asked_to_execute, asked_to_invoke, script_in, when_read
from .result import profile_of, told

if TYPE_CHECKING:
    from ...errors import CodeModeError
    from ...execution.program_library import ProgramLibrary
    from ...observe.meta_tools import CatalogQuestion
    from ...profile import Profile


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
        return bool(await run_hook(policy.filter, (info,), InvocationThreads(pool.threads), name, ""))
    except FAILURES as error:
        if isinstance(error, asyncio.CancelledError | GeneratorExit) and is_ended_from_outside(task):
            raise
        log_tool_failure(f"direct_calls.filter failed for tool {name!r}, which is refused", error)
        return False


_DESCRIBE_FIELDS = ("tools", "toolNames", "max")
_MAX_NAME_CHARACTERS = 128


def read_describe(meta_tool: str, given: Any, options: CodeCallOptions) -> tuple[tuple[str, ...], int]:
    """Return which tools are asked for, and how many at most. Raises `CodeModeToolError` for a wrong input."""
    reader = InputReader(meta_tool, given, _DESCRIBE_FIELDS)
    asked, also = reader.texts("tools"), reader.texts("toolNames")
    most = reader.count("max", options.max_definitions, MAX_LISTED)
    reader.require("tools", "toolNames")
    reader.finish()
    return tuple(dict.fromkeys((*(asked or ()), *(also or ())))), most


def described(tools: ToolSet, names: tuple[str, ...], most: int) -> dict[str, Any]:
    """Return the definitions of at most so many tools, the names that are none, and how many were left out."""
    found = [tools.indexed[name] for name in names if name in tools.indexed]
    answer: dict[str, Any] = {"tools": [_described(one) for one in found[:most]]}
    missing = [name[:_MAX_NAME_CHARACTERS] for name in names if name not in tools.indexed]
    if missing:
        answer["notFound"] = missing
    if len(found) > most:
        answer["omitted"] = len(found) - most
    return answer


def _described(one: KnownTool) -> dict[str, Any]:
    definition = deepcopy(one.definition)  # an answer is the caller's own
    said: dict[str, Any] = {"name": definition["name"], "description": definition["description"]}
    if one.info.app_id is not None:
        said["appId"] = one.info.app_id
    said |= {"inputSchema": definition["inputSchema"], "outputSchema": definition["outputSchema"]}
    if one.info.annotations:
        said["annotations"] = dict(one.info.annotations)
    return {**said, "usageExamples": [dict(example) for example in one.examples]}


_SEARCH_FIELDS = ("query", "topK", "filter", "queries", "appIds", "excludeToolNames", "minRelevanceScore")
_FILTERS = ("appIds", "tags", "includeOpenApi", "includeInline")
_MAX_QUERIES = 10
MAX_QUERY_CHARACTERS = 10_000  # no more is ever read of one
_MAX_SHOWN = 8
_MAX_CHARACTERS = 40
_NOTHING = "No tool fits. Try other words."
_NO_TOOLS = "There is no tool to find here."


@dataclass(frozen=True)
class SearchRequest:
    """What a search asks for. Filters are None where nothing is filtered."""

    queries: tuple[str, ...]
    tells_queries: bool
    top_k: int
    app_ids: frozenset[str] | None
    tags: frozenset[str] | None
    left_out_sources: frozenset[str]
    excluded: frozenset[str]
    least_score: float

    def admits(self, one: KnownTool) -> bool:
        """Tell whether a tool is among those that are searched."""
        info = one.info
        if self.app_ids is not None and info.app_id not in self.app_ids:
            return False
        if self.tags is not None and self.tags.isdisjoint(info.tags):
            return False
        return info.source not in self.left_out_sources and info.name not in self.excluded

    @property
    def narrows(self) -> bool:
        """True when not every tool may be among them."""
        filters = self.app_ids, self.tags
        return any(one is not None for one in filters) or bool(self.left_out_sources or self.excluded)


def read_search(meta_tool: str, given: Any, options: CodeCallOptions) -> SearchRequest:
    """Return what is asked for. Raises `CodeModeToolError` for a wrong input."""
    reader = InputReader(meta_tool, given, _SEARCH_FIELDS)
    filters = reader.within("filter", _FILTERS)
    query, queries = reader.text("query"), reader.texts("queries")
    reader.require("query", "queries")
    if queries is not None and not 0 < len(queries) <= _MAX_QUERIES:
        reader.wrong("queries", f"must be 1 to {_MAX_QUERIES} queries")
    sources = {
        "openapi": filters.flag("includeOpenApi", default=True),
        "inline": filters.flag("includeInline", default=True),
    }
    asked = (*(() if query is None else (query,)), *(queries or ())[:_MAX_QUERIES])
    request = SearchRequest(
        queries=tuple(dict.fromkeys(one[:MAX_QUERY_CHARACTERS] for one in asked)),
        tells_queries=queries is not None,
        top_k=reader.count("topK", options.top_k, MAX_LISTED),
        app_ids=_both(filters.texts("appIds"), reader.texts("appIds")),
        tags=_both(filters.texts("tags"), None),
        left_out_sources=frozenset(name for name, is_included in sources.items() if not is_included),
        excluded=frozenset(reader.texts("excludeToolNames") or ()),
        least_score=reader.number("minRelevanceScore") or 0.0,
    )
    reader.finish()
    return request


def _both(given: Sequence[str] | None, also: Sequence[str] | None) -> frozenset[str] | None:
    # Models write an empty list where they mean none at all.
    if given and also:
        return frozenset(given).intersection(also)
    return frozenset(given or also or ()) or None


async def searched(tools: ToolSet, request: SearchRequest) -> dict[str, Any]:
    """Return the tools that fit, best first, and warnings where something should be known of that."""
    known = list(tools.indexed.values())
    among = await run_check(len(known), partial(_admitted, known, request)) if request.narrows else None
    scores: dict[int, float] = {}
    matched: dict[int, list[str]] = {}
    warnings: dict[str, None] = {}
    has_any = bool(known if among is None else among)
    for query in request.queries if has_any else ():
        found, told = await tools.search.answer(query, request.top_k, among)
        warnings |= dict.fromkeys(told)
        for position, score in found:
            scores[position] = max(score, scores.get(position, 0.0))
            matched.setdefault(position, []).append(query)
    best = sorted(scores, key=lambda position: (-scores[position], position))
    best = [position for position in best if scores[position] >= request.least_score][: request.top_k]
    if not best:
        why = partial(_why_nothing, known, request, among, max(scores.values(), default=None))
        warnings |= dict.fromkeys(await run_check(len(known), why) or ([] if warnings else [_NOTHING]))
    answer: dict[str, Any] = {
        "tools": [
            _told(known[position], scores[position], matched[position] if request.tells_queries else None)
            for position in best
        ],
        "totalAvailableTools": len(known),
    }
    return {**answer, "warnings": list(warnings)} if warnings else answer


def _why_nothing(
    known: list[KnownTool], request: SearchRequest, among: set[int] | None, best: float | None
) -> list[str]:
    """Return what other than the words leaves a list without a tool."""
    if not known:
        return [_NO_TOOLS]
    if best is not None:
        return [f"No tool has the score {request.least_score:g}; the best has {best:.2f}."]
    if among is None:
        return []
    return [f"Filters leave {len(among)} of {len(known)} tools.", *_unknown(known, request)]


def _unknown(known: list[KnownTool], request: SearchRequest) -> list[str]:
    """Return a warning for each filter that names what no tool has."""
    apps = {one.info.app_id: None for one in known if one.info.app_id is not None}
    tags = {tag: None for one in known for tag in one.info.tags}
    said: list[str] = []
    for what, asked, there in (("app", request.app_ids, apps), ("tag", request.tags, tags)):
        if asked and not there.keys() & asked:
            missing = " or ".join(f"{one[:_MAX_CHARACTERS]!r}" for one in sorted(asked)[:_MAX_SHOWN])
            has = f"; there are {', '.join(map(repr, list(there)[:_MAX_SHOWN]))}" if there else ""
            said.append(f"No tool has the {what} {missing}{has}.")
    return said


def _admitted(known: list[KnownTool], request: SearchRequest) -> set[int]:
    return {at for at, one in enumerate(known) if request.admits(one)}


def _told(one: KnownTool, score: float, matched: list[str] | None) -> dict[str, Any]:
    said: dict[str, Any] = {"name": one.info.name, "description": first_sentence(summary_of(one.tool))}
    if one.info.app_id is not None:
        said["appId"] = one.info.app_id
    if one.info.source is not None:
        said["source"] = one.info.source
    said["score"] = score
    return said if matched is None else {**said, "matchedQueries": matched}


# What they need imports asyncio, and is imported when something is asked.


def listeners_of_run(options: CodeCallOptions) -> tuple[Callable[[Any], Any], ...]:
    """Return what hears one run: it tells ``options.notify``, if there is one."""
    if options.notify is None:
        return ()
    from ...observe.meta_tools import Notifications

    return (Notifications(options.notify),)


def question(
    options: CodeCallOptions, operation: Literal["search", "describe"], tool_call_id: str | None
) -> CatalogQuestion:
    """Return what tells hooks and telemetry of a question to the catalog. ``async with`` it, and say what is asked."""
    from ...observe.meta_tools import CatalogQuestion

    return CatalogQuestion(options.settings, meta_name(operation, options.names), operation, None, tool_call_id)


async def tell_wrong_input(
    options: CodeCallOptions, profile: Profile, script: str | None, tool_call_id: str | None, error: CodeModeError
) -> None:
    """Tell hooks and telemetry of a run that did not begin, for its input was wrong; ``script`` None: of a direct call.

    Whoever is notified hears of calls, and there was none.
    """
    from ...execution.optional_parts import telemetry_listeners
    from ...observe.meta_tools import tell_unbegun

    called = profile.direct_tool if script is None else profile.outer_tool
    listeners = telemetry_listeners(options.settings, lambda _name: None, called, profile.host_errors)
    await tell_unbegun(options.settings, listeners, script, tool_call_id, error)


_LIMITS_OF_VM = ("timeout_ms", "max_bridge_requests", "max_source_bytes")


class MetaCalls(SyncForms):
    """The meta-tools over one set of tools at a time. Safe to use from several threads."""

    def __init__(
        self,
        tools: Mapping[str, Any] | Iterable[Any],
        options: CodeCallOptions | Mapping[str, Any] | None,
        pool: WorkerPool | None,
        store: StoreLike | None = None,
        library: ProgramLibrary | None = None,
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
        self.library = attach_library(library, self._tools.catalog, self._tools.catalog.names())

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
            answer = await run_check(LARGE_CHARACTERS, partial(described, tools, names, most))
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
        rules = self._profile.static_rules
        catalog = with_library(catalog, self.library, script, outer.call, pool, rules)
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
        outer = self._outer(call)
        catalog = with_library(self._tools.catalog, self.library, None, outer.call, self._pool)
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
