"""Handle calls of the meta-tools: search, describe, execute and invoke."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from ...data.json_values import NOT_GIVEN
from ...errors import CodeModeToolError, Resumable
from ...execution.call_context import CallContext, OuterCallSettings, call_context_or_empty
from ...execution.optional_parts import import_and_require_optional_parts
from ...execution.starting import (
    add_saved_programs_to_catalog,
    bind_optional_library_unless_shadowed,
    get_pool_and_import_execution,
    import_execution_module,
    resume_with_answers,
)
from ...execution.sync_forms import SyncMethodsMixin
from ...host.threads import LARGE_CHARACTERS, InvocationThreads, run_in_thread_if_large_or_slow
from ...signatures.declarations import extract_first_sentence, find_tool_description
from ...stores.durability import StoreLike, open_store_and_make_options_durable
from ...trace.failures import log_tool_failure
from ...workers.pool import WorkerPool, require_open_pool
from .index import RegisteredToolSet
from .names import META_TOOLS, format_meta_tool_name, parse_meta_tool_name
from .options import MAX_LISTED, CodeCallOptions, DirectCallOptions
from .registered_tool import RegisteredTool
from .requests import MetaToolInputReader, find_script, parse_execute_input, parse_invoke_input, parse_off_loop_if_large
from .result import create_surface_settings, to_result_or_raise_host_error

if TYPE_CHECKING:
    from ...errors import CodeModeError
    from ...execution.program_library import ProgramLibrary
    from ...observe.meta_tools import CatalogQueryRecorder
    from ...profile import SurfaceSettings


async def allows_direct_call(tools: RegisteredToolSet, name: str, policy: DirectCallOptions, pool: WorkerPool) -> bool:
    """Return True for a tool in the index that the policy allows. The filter is called last."""
    if name not in tools.indexed or (policy.allowed_tools is not None and name not in policy.allowed_tools):
        return False
    return await _passes_direct_call_filter(tools, name, policy, pool)


async def _passes_direct_call_filter(
    tools: RegisteredToolSet, name: str, policy: DirectCallOptions, pool: WorkerPool
) -> bool:
    if policy.filter is None:
        return True
    import asyncio

    from ...host.cancellation import FAILURES, is_cancelled_from_outside
    from ...tools.running import run_hook

    task = asyncio.current_task()
    info = tools.indexed[name].info
    try:
        return bool(await run_hook(policy.filter, (info,), InvocationThreads(pool.threads), name, ""))
    except FAILURES as error:
        if isinstance(error, asyncio.CancelledError | GeneratorExit) and is_cancelled_from_outside(task):
            raise
        log_tool_failure(f"direct_calls.filter failed for tool {name!r}; the call is refused", error)
        return False


_DESCRIBE_FIELDS = ("tools", "toolNames", "max")
_MAX_NAME_CHARACTERS = 128


def parse_describe_input(meta_tool: str, value: Any, options: CodeCallOptions) -> tuple[tuple[str, ...], int]:
    """Return the requested tool names and the maximum number of definitions. Raises `CodeModeToolError`."""
    reader = MetaToolInputReader(meta_tool, value, _DESCRIBE_FIELDS)
    tools, tool_names = reader.read_strings("tools"), reader.read_strings("toolNames")
    max_definitions = reader.read_clamped_integer("max", options.max_definitions, MAX_LISTED)
    reader.add_problem_if_missing("tools", "toolNames")
    reader.raise_if_problems()
    return tuple(dict.fromkeys((*(tools or ()), *(tool_names or ())))), max_definitions


def answer_describe(tools: RegisteredToolSet, names: tuple[str, ...], max_definitions: int) -> dict[str, Any]:
    """Return at most ``max_definitions`` definitions, the names not found, and the number of omitted tools."""
    found = [tools.indexed[name] for name in names if name in tools.indexed]
    answer: dict[str, Any] = {"tools": [_describe_tool(tool) for tool in found[:max_definitions]]}
    missing = [name[:_MAX_NAME_CHARACTERS] for name in names if name not in tools.indexed]
    if missing:
        answer["notFound"] = missing
    if len(found) > max_definitions:
        answer["omitted"] = len(found) - max_definitions
    return answer


def _describe_tool(tool: RegisteredTool) -> dict[str, Any]:
    definition = deepcopy(tool.definition)  # the caller may change its answer
    description: dict[str, Any] = {"name": definition["name"], "description": definition["description"]}
    if tool.info.app_id is not None:
        description["appId"] = tool.info.app_id
    description |= {"inputSchema": definition["inputSchema"], "outputSchema": definition["outputSchema"]}
    if tool.info.annotations:
        description["annotations"] = dict(tool.info.annotations)
    return {**description, "usageExamples": [dict(example) for example in tool.examples]}


_SEARCH_FIELDS = ("query", "topK", "filter", "queries", "appIds", "excludeToolNames", "minRelevanceScore")
_FILTERS = ("appIds", "tags", "includeOpenApi", "includeInline")
_MAX_QUERIES = 10
MAX_QUERY_CHARACTERS = 10_000
_MAX_LISTED_NAMES = 8
_MAX_LISTED_NAME_CHARACTERS = 40
_NO_MATCH = "No tool fits. Try other words."
_NO_TOOLS = "There are no tools to search."


@dataclass(frozen=True)
class SearchRequest:
    """The input of a search. A filter of None admits all tools."""

    queries: tuple[str, ...]
    reports_queries: bool
    top_k: int
    app_ids: frozenset[str] | None
    tags: frozenset[str] | None
    excluded_sources: frozenset[str]
    excluded_names: frozenset[str]
    min_score: float

    def admits(self, tool: RegisteredTool) -> bool:
        """Return True if the filters include a tool."""
        info = tool.info
        if self.app_ids is not None and info.app_id not in self.app_ids:
            return False
        if self.tags is not None and self.tags.isdisjoint(info.tags):
            return False
        return info.source not in self.excluded_sources and info.name not in self.excluded_names

    @property
    def has_filters(self) -> bool:
        """True if a filter can exclude tools."""
        filters = self.app_ids, self.tags
        return any(value is not None for value in filters) or bool(self.excluded_sources or self.excluded_names)


def parse_search_input(meta_tool: str, value: Any, options: CodeCallOptions) -> SearchRequest:
    """Return the search request. Raises `CodeModeToolError` for invalid input."""
    reader = MetaToolInputReader(meta_tool, value, _SEARCH_FIELDS)
    filters = reader.read_nested("filter", _FILTERS)
    query, queries = reader.read_string("query"), reader.read_strings("queries")
    reader.add_problem_if_missing("query", "queries")
    if queries is not None and not 0 < len(queries) <= _MAX_QUERIES:
        reader.add_problem("queries", f"must be 1 to {_MAX_QUERIES} queries")
    sources = {
        "openapi": filters.read_boolean("includeOpenApi", default=True),
        "inline": filters.read_boolean("includeInline", default=True),
    }
    requested = (*(() if query is None else (query,)), *(queries or ())[:_MAX_QUERIES])
    request = SearchRequest(
        queries=tuple(dict.fromkeys(text[:MAX_QUERY_CHARACTERS] for text in requested)),
        reports_queries=queries is not None,
        top_k=reader.read_clamped_integer("topK", options.top_k, MAX_LISTED),
        app_ids=_intersect_filters(filters.read_strings("appIds"), reader.read_strings("appIds")),
        tags=_intersect_filters(filters.read_strings("tags"), None),
        excluded_sources=frozenset(name for name, is_included in sources.items() if not is_included),
        excluded_names=frozenset(reader.read_strings("excludeToolNames") or ()),
        min_score=reader.read_number("minRelevanceScore") or 0.0,
    )
    reader.raise_if_problems()
    return request


def _intersect_filters(first: Sequence[str] | None, second: Sequence[str] | None) -> frozenset[str] | None:
    # Models write an empty list for "no filter".
    if first and second:
        return frozenset(first).intersection(second)
    return frozenset(first or second or ()) or None


async def answer_search(tools: RegisteredToolSet, request: SearchRequest) -> dict[str, Any]:
    """Return the matching tools, best first, with warnings about the search."""
    registered = list(tools.indexed.values())
    candidates = (
        await run_in_thread_if_large_or_slow(len(registered), partial(_find_admitted_positions, registered, request))
        if request.has_filters
        else None
    )
    scores: dict[int, float] = {}
    matched: dict[int, list[str]] = {}
    warnings: dict[str, None] = {}
    has_any = bool(registered if candidates is None else candidates)
    for query in request.queries if has_any else ():
        found, search_warnings = await tools.search.search_with_warnings(query, request.top_k, candidates)
        warnings |= dict.fromkeys(search_warnings)
        for position, score in found:
            scores[position] = max(score, scores.get(position, 0.0))
            matched.setdefault(position, []).append(query)
    best = sorted(scores, key=lambda position: (-scores[position], position))
    best = [position for position in best if scores[position] >= request.min_score][: request.top_k]
    if not best:
        explain = partial(_explain_no_match, registered, request, candidates, max(scores.values(), default=None))
        warnings |= dict.fromkeys(
            await run_in_thread_if_large_or_slow(len(registered), explain) or ([] if warnings else [_NO_MATCH])
        )
    answer: dict[str, Any] = {
        "tools": [
            _build_search_match(
                registered[position], scores[position], matched[position] if request.reports_queries else None
            )
            for position in best
        ],
        "totalAvailableTools": len(registered),
    }
    return {**answer, "warnings": list(warnings)} if warnings else answer


def _explain_no_match(
    registered: list[RegisteredTool], request: SearchRequest, candidates: set[int] | None, best: float | None
) -> list[str]:
    """Return the reasons for an empty result other than the words of the query."""
    if not registered:
        return [_NO_TOOLS]
    if best is not None:
        return [f"No tool has the score {request.min_score:g}; the best has {best:.2f}."]
    if candidates is None:
        return []
    return [
        f"Filters leave {len(candidates)} of {len(registered)} tools.",
        *_build_unmatched_filter_warnings(registered, request),
    ]


def _build_unmatched_filter_warnings(registered: list[RegisteredTool], request: SearchRequest) -> list[str]:
    """Return a warning for each filter whose values no tool has."""
    apps = {
        registered_tool.info.app_id: None for registered_tool in registered if registered_tool.info.app_id is not None
    }
    tags = {tag: None for registered_tool in registered for tag in registered_tool.info.tags}
    warnings: list[str] = []
    for kind, requested, existing_values in (("app", request.app_ids, apps), ("tag", request.tags, tags)):
        if requested and not existing_values.keys() & requested:
            missing = " or ".join(
                f"{registered_tool[:_MAX_LISTED_NAME_CHARACTERS]!r}"
                for registered_tool in sorted(requested)[:_MAX_LISTED_NAMES]
            )
            has = (
                f"; there are {', '.join(map(repr, list(existing_values)[:_MAX_LISTED_NAMES]))}"
                if existing_values
                else ""
            )
            warnings.append(f"No tool has the {kind} {missing}{has}.")
    return warnings


def _find_admitted_positions(registered: list[RegisteredTool], request: SearchRequest) -> set[int]:
    return {index for index, tool in enumerate(registered) if request.admits(tool)}


def _build_search_match(tool: RegisteredTool, score: float, matched: list[str] | None) -> dict[str, Any]:
    match: dict[str, Any] = {
        "name": tool.info.name,
        "description": extract_first_sentence(find_tool_description(tool.tool)),
    }
    if tool.info.app_id is not None:
        match["appId"] = tool.info.app_id
    if tool.info.source is not None:
        match["source"] = tool.info.source
    match["score"] = score
    return match if matched is None else {**match, "matchedQueries": matched}


# These import asyncio, so they are imported on first use.


def create_notification_listeners(options: CodeCallOptions) -> tuple[Callable[[Any], Any], ...]:
    """Return the listeners of one run: a notifier of ``options.notify`` if it is set."""
    if options.notify is None:
        return ()
    from ...observe.meta_tools import NotificationListener

    return (NotificationListener(options.notify),)


def create_catalog_query_recorder(
    options: CodeCallOptions, operation: Literal["search", "describe"], tool_call_id: str | None
) -> CatalogQueryRecorder:
    """Return an async context manager that reports a catalog query to hooks and telemetry.

    Set its ``queries`` to the queries or tool names.
    """
    from ...observe.meta_tools import CatalogQueryRecorder

    return CatalogQueryRecorder(
        options.settings, format_meta_tool_name(operation, options.names), operation, None, tool_call_id
    )


async def report_invalid_input(
    options: CodeCallOptions,
    profile: SurfaceSettings,
    script: str | None,
    tool_call_id: str | None,
    error: CodeModeError,
) -> None:
    """Report a run with invalid input, which did not start, to hooks and telemetry.

    ``script`` is None for a direct call. ``options.notify`` gets no event, because it reports calls.
    """
    from ...execution.optional_parts import make_telemetry_listeners
    from ...observe.meta_tools import report_failed_start_and_set_trace

    called = profile.direct_tool if script is None else profile.outer_tool
    listeners = make_telemetry_listeners(options.settings, lambda _name: None, called, profile.host_errors)
    await report_failed_start_and_set_trace(options.settings, listeners, script, tool_call_id, error)


_VM_LIMITS = ("timeout_ms", "max_bridge_requests", "max_source_bytes")


class MetaTools(SyncMethodsMixin):
    """The meta-tools over a replaceable set of tools. Thread-safe."""

    def __init__(
        self,
        tools: Mapping[str, Any] | Iterable[Any],
        options: CodeCallOptions | Mapping[str, Any] | None,
        pool: WorkerPool | None,
        store: StoreLike | None = None,
        library: ProgramLibrary | None = None,
    ) -> None:
        code_call_options = CodeCallOptions.of(options)
        settings, self.store = open_store_and_make_options_durable(code_call_options.settings, store)
        self.options = code_call_options if store is None else code_call_options.with_changes(settings=settings)
        # Report invalid options now, not in the first run.
        import_and_require_optional_parts(settings)
        require_open_pool(pool)
        self._pool = pool
        self._profile = create_surface_settings(self.options)
        self._settings = settings.with_parts(execution_policy=settings.execution_policy.with_options_reset(*_VM_LIMITS))
        self._new_run_settings = self._settings.with_default_limits(self._profile.limits)
        self._max_model_characters = settings.model_output.max_model_characters
        self._tools = RegisteredToolSet.from_tools(tools, self.options)
        self.library = bind_optional_library_unless_shadowed(library, self._tools.catalog, self._tools.catalog.names())

    def without_journal(self) -> Self:
        """Return a copy of these tools without a journal, for plugins whose engine records every call itself."""
        copied = copy(self)
        overrides = {
            "_settings": self._settings.without_journal(),
            "_new_run_settings": self._new_run_settings.without_journal(),
        }
        copied.__dict__.update(overrides)
        return copied

    async def search(
        self,
        input: Mapping[str, Any],  # noqa: A002 - the name that frameworks use
        *,
        tool_call_id: str | None = None,
    ) -> dict[str, Any]:
        """Return ``{"tools": [...], "totalAvailableTools", "warnings"?}`` for ``{"query", "topK"?, "filter"?}``.

        Raises `CodeModeToolError` for invalid input.
        """
        name, tools = self._format_meta_tool_name("search"), self._tools
        async with create_catalog_query_recorder(self.options, "search", tool_call_id) as catalog_question:
            request = await parse_off_loop_if_large(input, partial(parse_search_input, name, input, self.options))
            catalog_question.queries = request.queries
            answer = await answer_search(tools, request)
            catalog_question.result_count = len(answer["tools"])
        return answer

    async def describe(
        self,
        input: Mapping[str, Any],  # noqa: A002 - the name that frameworks use
        *,
        tool_call_id: str | None = None,
    ) -> dict[str, Any]:
        """Return ``{"tools": [...], "notFound"?, "omitted"?}`` for ``{"tools": [name, ...], "max"?}``.

        Raises `CodeModeToolError` for invalid input.
        """
        name, tools = self._format_meta_tool_name("describe"), self._tools
        async with create_catalog_query_recorder(self.options, "describe", tool_call_id) as catalog_question:
            names, max_definitions = await parse_off_loop_if_large(
                input, partial(parse_describe_input, name, input, self.options)
            )
            catalog_question.queries = names
            answer = await run_in_thread_if_large_or_slow(
                LARGE_CHARACTERS, partial(answer_describe, tools, names, max_definitions)
            )
            catalog_question.result_count = len(answer["tools"])
        return answer

    async def execute(
        self,
        program: str | Mapping[str, Any],
        call: CallContext | None = None,
        *,
        script_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run ``{"script", "allowedTools"?, "context"?}``. Returns a `CodeCallResult`, or an `Interrupt` if it paused.

        ``program`` can also be the script itself. ``script_context``: a mapping of at most 64 KiB of JSON, which
        overrides the model's ``context`` in ``codecallContext``. ``call``: the call context. Raises `CodeModeToolError`
        for invalid input and `CodeModeError` for failures of the host; other failures are statuses of the result.
        """
        outer = self._create_outer_call(call)
        input = {"script": program} if isinstance(program, str) else program  # noqa: A001 - the name that frameworks use
        catalog = self._tools.catalog
        try:
            script, script_data = await parse_execute_input(
                self._format_meta_tool_name("execute"), input, script_context, catalog
            )
        except CodeModeToolError as error:
            await report_invalid_input(self.options, self._profile, find_script(input), outer.call.tool_call_id, error)
            raise
        pool = await get_pool_and_import_execution(self._pool, self._settings)
        run = import_execution_module()
        rules = self._profile.static_rules
        catalog = add_saved_programs_to_catalog(catalog, self.library, script, outer.call, pool, rules)
        execution = run.Execution(
            self._profile, catalog, self._new_run_settings, outer, pool, invocation_data=script_data
        )
        return to_result_or_raise_host_error(await execution.start(script), self._max_model_characters, script)

    async def invoke(
        self,
        input: Mapping[str, Any],  # noqa: A002 - the name that frameworks use
        call: CallContext | None = None,
    ) -> Any:
        """Call one tool without a script: ``{"tool", "input"}``. Returns and raises as `execute` does.

        Raises `CodeModeToolError` if direct calls are not enabled.
        """
        self._require_direct_calls_enabled()
        tools, outer = self._tools, self._create_outer_call(call)
        try:
            name, text = await parse_invoke_input(self._format_meta_tool_name("invoke"), input)
        except CodeModeToolError as error:
            await report_invalid_input(self.options, self._profile, None, outer.call.tool_call_id, error)
            raise
        pool = await get_pool_and_import_execution(self._pool, self._settings)
        run = import_execution_module()
        # A refused name is called as any other, so that it cannot be told from an unknown name.
        allowed = [name] if await allows_direct_call(tools, name, self.options.direct_calls, pool) else []
        script_data: dict[str, Any] = {"source": "invoke", "context": {}, "allowedTools": allowed}
        execution = run.Execution(
            self._profile, tools.catalog, self._settings, outer, pool, invocation_data=script_data
        )
        return to_result_or_raise_host_error(await execution.call_tool(name, text=text), self._max_model_characters)

    async def resume(
        self,
        interrupt: Resumable | Mapping[str, Any],
        resolution: Any = NOT_GIVEN,
        call: CallContext | None = None,
        *,
        resolutions: Mapping[str, Any] | None = None,
    ) -> Any:
        """Answer pending requests of a script or a direct call, and resume it. Answers are as in `continue_interrupt`.

        The rules in force at the start still apply, to the current tools. Returns and raises as `execute` does; raises
        `CodeModeProtocolError` for an interrupt or answers that cannot be used.
        """
        outer = self._create_outer_call(call)
        catalog = add_saved_programs_to_catalog(self._tools.catalog, self.library, None, outer.call, self._pool)
        outcome = resume_with_answers(
            self._profile, interrupt, resolution, resolutions, catalog, self._settings, outer, self._pool
        )
        return to_result_or_raise_host_error(await outcome, self._max_model_characters)

    async def call(
        self,
        meta_name: str,
        input: Mapping[str, Any],  # noqa: A002 - the name that frameworks use
        call: CallContext | None = None,
        *,
        script_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a meta-tool by its name with a dot, colon or underscore. Parameters are as in `execute`.

        Raises `CodeModeToolError` for any other name.
        """
        meta_tool = parse_meta_tool_name(meta_name)
        if meta_tool in ("search", "describe"):
            tool_call_id = call_context_or_empty(call).tool_call_id
            ask = self.search if meta_tool == "search" else self.describe
            return await ask(input, tool_call_id=tool_call_id)
        if meta_tool == "execute":
            return await self.execute(input, call, script_context=script_context)
        if meta_tool == "invoke":
            return await self.invoke(input, call)
        available_names = ", ".join(
            self._format_meta_tool_name(meta_tool_name)
            for meta_tool_name in META_TOOLS
            if meta_tool_name != "invoke" or self.options.direct_calls.enabled
        )
        shown = meta_name[:_MAX_NAME_CHARACTERS]
        message = f"there is no meta-tool {shown!r}; there are {available_names}"
        raise CodeModeToolError(message, details={"tool_name": shown})

    def _create_outer_call(self, call: CallContext | None) -> OuterCallSettings:
        return OuterCallSettings(
            call=call_context_or_empty(call), is_traced=True, listeners=create_notification_listeners(self.options)
        )

    def _format_meta_tool_name(self, meta_tool: str) -> str:
        return format_meta_tool_name(meta_tool, self.options.names)

    def _require_direct_calls_enabled(self) -> None:
        if not self.options.direct_calls.enabled:
            name = self._format_meta_tool_name("invoke")
            raise CodeModeToolError(f"there is no tool named {name!r}", details={"tool_name": name})
