"""The tools exec and wait over a catalog, and the event loop of sync callers."""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ...continuations.keys import SIGNING_KEY_VARIABLE, get_configured_keys, read_environment_keys
from ...data.json_values import NOT_GIVEN
from ...data.rich_values import using_rich_values
from ...errors import Resumable
from ...execution.call_context import CallContext
from ...execution.starting import append_library_description, bind_optional_library_unless_shadowed
from ...host.forks import create_fork_safe_lock, never_finalize_in_child, register_fork_reset
from ...host.sync import has_running_loop, require_outside_temporal_workflow, run_sync
from ...options.parts import CodeModeOptions
from ...stores.durability import StoreLike, open_store, open_store_and_make_options_durable
from ...tools.collecting import collect_unprepared_tools
from ...tools.tool import Tool
from ...trace.failures import log_failure
from ...workers.pool import WorkerPool, require_open_pool
from .catalog import ExecCatalog, ExecWaitContext
from .description import WAIT_DESCRIPTION, build_exec_schema, build_wait_schema, describe_exec
from .mcp_server import MAX_TOOLS, create_servers
from .mcp_session import list_paged_items, read_callable_tool_name_or_none
from .namespaces import NamespaceRegistry
from .options import (
    CONFIG_PATH,
    EXEC,
    EXEC_KIND,
    PAIR_LIMITS,
    WAIT,
    WAIT_KIND,
    ExecWaitOptions,
    InvalidConfigError,
    ToolKindMetadata,
    create_surface_settings,
)
from .program_run import RunInfo, create_usage_counts
from .program_runner import ProgramRunner
from .sources import MCP, CatalogEntry, ToolSource, collect_non_server_entries, require_source_tool_name, to_sources

if TYPE_CHECKING:
    from ...execution.program_library import ProgramLibrary
    from ...stores.interrupt_store import InterruptStore
    from ...stores.records import Record
    from ...workers.pool import WorkerPool
    from .stored_runs import StoredRuns


class ExecOrWaitTool:
    """One of the two tools, exec or wait."""

    def __init__(
        self,
        name: str,
        describe: Callable[[Any], str],
        input_schema: dict[str, Any],
        run: Callable[..., Coroutine[Any, Any, Any]],
        kinds: ToolKindMetadata,
        run_sync: Callable[[Coroutine[Any, Any, Any]], Any],
    ) -> None:
        self.name = name
        self._kinds = kinds
        self._describe = describe
        self._input_schema = input_schema
        self._run = run
        self._run_sync = run_sync

    def __repr__(self) -> str:
        return f"<ExecOrWaitTool {self.name!r}>"

    @property
    def description(self) -> str:
        """The description for the model."""
        return self._describe(None)

    def describe(self, context: Any) -> str:
        """Return the description for a context, which is passed to prompts of namespaces that are functions."""
        return self._describe(context)

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the input."""
        return {**self._input_schema, "properties": {**self._input_schema["properties"]}}

    @property
    def metadata(self) -> dict[str, str]:
        """The kind of this tool: ``toolKind``, and ``toolInputKind`` if all inputs have the same.

        Plugins copy it into the metadata of the framework's tool.
        """
        return self._kinds.build_static_metadata()

    def metadata_of(self, input: Any) -> dict[str, str]:  # noqa: A002 - the name that every framework uses
        """Return `metadata` for one call: ``toolInputKind`` is the language in its input, if any."""
        return self._kinds.build_call_metadata(input)

    async def execute(self, program: str | Mapping[str, Any], call: CallContext | None = None) -> Any:
        """Return a result as plain JSON, or an `Interrupt` if the program waits for a person.

        ``program``: ``{code, language?}`` for exec, ``{runId}`` for wait, or the code or run id itself. A result has
        the ``status`` "completed" (with ``value``), "waiting" (with ``runId``, ``reason`` "yield" or "pending_tools",
        and ``pendingToolCalls``) or "failed" (with ``error``, a text, and ``code``). It always has ``telemetry``, and
        ``output`` if there is new output. Only the conversation of ``call.conversation_id`` can continue a run. A
        repeated ``tool_call_id`` with the same input in the same conversation returns the recorded result. Errors of
        the program and the host become results; only `asyncio.CancelledError` is raised.
        """
        return await self._run(self._to_input(program), call)

    def execute_sync(self, program: str | Mapping[str, Any], call: CallContext | None = None) -> Any:
        """Call `execute` from sync code, on an event loop in the background, where runs continue.

        Use `execute` for tools and sessions that belong to another event loop. Raises `RuntimeError` inside a Temporal
        workflow.
        """
        return self._run_sync(self.execute(program, call))

    def _to_input(self, program: str | Mapping[str, Any]) -> Mapping[str, Any]:
        return {next(iter(self._input_schema["properties"])): program} if isinstance(program, str) else program


ResultT = TypeVar("ResultT")


class BackgroundLoop:
    """An event loop in a thread, started on first use. It ends with its owner or the process."""

    def __init__(self) -> None:
        self._lock = create_fork_safe_lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        register_fork_reset(self)

    def after_fork(self) -> None:
        """Drop the loop in a forked child, which does not have its thread."""
        never_finalize_in_child(self._loop)
        self._loop, self._thread = None, None

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine on the loop and wait for it. Raises `RuntimeError` on the loop itself."""
        import asyncio

        try:
            require_outside_temporal_workflow()
            if self._thread is threading.current_thread():
                raise RuntimeError("execute_sync was called on the event loop that it needs: await execute")
            loop = self._get_or_start_loop()
        except BaseException:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def aclose(self) -> None:
        """Stop the loop and its thread."""
        import asyncio

        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None or thread is threading.current_thread():
            return
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.get_running_loop().run_in_executor(None, thread.join)

    def _get_or_start_loop(self) -> asyncio.AbstractEventLoop:
        import asyncio

        with self._lock:
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run_loop, args=(self._loop,), name="codemode-exec-wait", daemon=True
                )
                self._thread.start()
                # Stop the thread when the owner is garbage-collected.
                weakref.finalize(self, _stop_loop, self._loop).atexit = False
            return self._loop


def _stop_loop(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    import asyncio

    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


class ExecWaitTools:
    """The tools exec and wait over a catalog. Create them with `create_exec_wait_tools`. Thread-safe."""

    name = EXEC

    @staticmethod
    def parse_direct_names(direct: Iterable[Any]) -> tuple[str, ...]:
        """Return the names of tools that the model calls directly. Raises `InvalidConfigError`."""
        if isinstance(direct, str):
            raise InvalidConfigError(f"direct must be a list of names or tools, got {direct!r}")
        names = tuple(dict.fromkeys(_read_direct_name(item) for item in direct))
        if reserved := [item for item in names if item in (EXEC, WAIT)]:
            raise InvalidConfigError(f"direct: the tool name {reserved[0]!r} is reserved")
        return names

    def __init__(
        self,
        sources: Any,
        options: ExecWaitOptions | Mapping[str, Any] | None,
        settings: CodeModeOptions | Mapping[str, Any] | None,
        pool: WorkerPool | None,
        storage: RunStoreConfig,
        namespaces: NamespaceRegistry | None = None,
        library: ProgramLibrary | None = None,
    ) -> None:
        if not isinstance(cast("Any", namespaces), NamespaceRegistry | None):
            raise InvalidConfigError(f"namespaces must be a NamespaceRegistry or None, got {namespaces!r}")
        self.options = ExecWaitOptions.of(options)
        self.settings = storage.apply_to_settings(_parse_settings_and_reset_limits(settings))
        require_open_pool(pool)
        if self.options.approvals == "park" and storage.store is None:
            raise InvalidConfigError(f"{CONFIG_PATH}.approvals 'park' needs a store, which keeps the pending approvals")
        approval = self.settings.approval
        if self.options.approvals == "park" or not (
            approval.is_set_explicitly("mode") or approval.on_approval_required
        ):
            self.settings = self.settings.with_parts(approval=replace(approval, mode="interrupt"))
        self.store = storage.store
        self._counts = create_usage_counts(self.settings.telemetry, (EXEC, WAIT))
        self.catalog = ExecCatalog(
            collect_non_server_entries(sources), self.options, self._counts, create_servers(sources)
        )
        self.catalog.precompute_program_texts()
        self._counts.record_catalog_size(self.catalog.tool_counts_by_source)
        stored_runs = storage.create_stored_runs(self.options, self)
        profile = create_surface_settings(self.options)
        names = [entry.name for entry in self.catalog.entries] + [entry.name for entry in self.catalog.servers]
        self.library = bind_optional_library_unless_shadowed(library, self.catalog.get_program_view(""), names)
        shared = self.catalog, self.options, self.settings, profile, pool, self._counts, stored_runs, namespaces
        context = ExecWaitContext(*shared, self.library)
        self._runner = ProgramRunner(context)
        self._background_loop = BackgroundLoop()
        entries, programs = self.catalog.entries, self._runner
        servers = [entry.name for entry in self.catalog.servers]
        self._namespaces = namespaces
        self._cached_description: tuple[int, str] | None = None
        describe = partial(self._describe_with_library, entries, servers)
        input_schema, kinds = build_exec_schema(self.options), ToolKindMetadata(EXEC_KIND, self.options.languages)
        self.exec = ExecOrWaitTool(EXEC, describe, input_schema, programs.exec, kinds, self.run_sync)
        input_schema, kinds = build_wait_schema(), ToolKindMetadata(WAIT_KIND)
        self.wait = ExecOrWaitTool(WAIT, lambda _: WAIT_DESCRIPTION, input_schema, programs.wait, kinds, self.run_sync)

    def __repr__(self) -> str:
        return f"<ExecWaitTools over {len(self.catalog)} tools>"

    @property
    def telemetry(self) -> dict[str, Any]:
        """Counters by name, ``caps`` by error code, and ``catalog``: the number of tools by source."""
        return {**self._counts.to_dict(), "catalog": self.catalog.tool_counts_by_source}

    def _get_or_build_exec_description(
        self, entries: Sequence[CatalogEntry], servers: Sequence[str], context: Any
    ) -> str:
        """Return the description of exec; without a context it is cached until the namespaces change."""
        registry, described = self._namespaces, self._cached_description
        if registry is not None and context is not None:
            texts = [visible_namespace.describe(context) for visible_namespace in registry.list_visible(entries)]
            return self._build_exec_description(entries, servers, texts)
        version = 0 if registry is None else registry.version
        if described is None or described[0] != version:
            texts = (
                []
                if registry is None
                else [visible_namespace.describe() for visible_namespace in registry.list_visible(entries)]
            )
            described = self._cached_description = version, self._build_exec_description(entries, servers, texts)
        return described[1]

    def _describe_with_library(self, entries: Sequence[CatalogEntry], servers: Sequence[str], context: Any) -> str:
        return append_library_description(self._get_or_build_exec_description(entries, servers, context), self.library)

    def _build_exec_description(
        self, entries: Sequence[CatalogEntry], servers: Sequence[str], namespaces: Sequence[str]
    ) -> str:
        settings = self.settings
        may_queue = settings.execution_policy.in_flight_limit == "queue"
        with using_rich_values(settings.execution_policy.values == "rich"):
            return describe_exec(
                entries, self.options, servers, namespaces, has_state=settings.has_state, may_queue=may_queue
            )

    def runs(self, conversation_id: str | None = None) -> tuple[RunInfo, ...]:
        """Return the active and recently ended runs of a conversation in this process.

        Ended runs are kept for ``snapshot_ttl_seconds``. A run that waits for a decision in the store lists the tools
        to decide on. Runs of other processes are only in the store.
        """
        return self._runner.runs.list_infos(conversation_id or "")

    async def resume(
        self,
        interrupt: Resumable | Mapping[str, Any] | Record,
        resolution: Any = NOT_GIVEN,
        call: CallContext | None = None,
        *,
        resolutions: Mapping[str, Any] | None = None,
    ) -> Any:
        """Answer the pending requests of a program; return what exec or wait would return.

        Answers are as in `CodeModeTool.resume`; ``call`` needs the ``conversation_id`` of the exec. Raises
        `CodeModeProtocolError` before anything runs for an invalid interrupt or answer, or one of another conversation,
        catalog or key.

        A `Record`, as a `Resumer` passes it, knows its conversation; its program runs through all suspensions.
        """
        answers = {"resolution": resolution, "resolutions": resolutions}
        return await self._runner.resume(interrupt, answers, call)

    def resume_sync(
        self,
        interrupt: Resumable | Mapping[str, Any] | Record,
        resolution: Any = NOT_GIVEN,
        call: CallContext | None = None,
        *,
        resolutions: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `resume` from sync code, on the event loop that sync callers share."""
        return self.run_sync(self.resume(interrupt, resolution, call, resolutions=resolutions))

    async def abort(
        self,
        conversation_id: str | None = None,
        *,
        run_id: str | None = None,
        reason: str = "the run was aborted",
        only_in_flight: bool = False,
    ) -> int:
        """Abort the runs of a conversation, or one of them, with their calls; return how many.

        ``only_in_flight``: only runs with calls in flight, not those that wait for a person or only yielded.
        """
        scope = conversation_id or ""
        return await self._runner.abort(scope, run_id, reason, only_in_flight=only_in_flight)

    def record_visible_tools(self, direct: Sequence[str]) -> None:
        """Record the names of the tools that stay visible, for telemetry."""
        self._counts.record_visible_tools((EXEC, WAIT, *direct))

    async def aclose(self) -> None:
        """End all runs and the loop of sync callers. Runs in a store can continue in other processes."""
        try:
            await self._runner.aclose()
        finally:
            self._counts.close()
            await self._background_loop.aclose()

    def run_sync(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine on the event loop that sync callers share."""
        return self._background_loop.run(work)


ExecWaitTools.resume.takes_record = True  # pyright: ignore[reportFunctionMemberAccess] - for a `Resumer`


@dataclass(frozen=True)
class RunStoreConfig:
    """The store for runs, with their tenant and app."""

    store: InterruptStore | None = None
    tenant: str = ""
    app: str = ""

    def __post_init__(self) -> None:
        """Check the types. Raises `InvalidConfigError`, a `ValueError`."""
        for name, value in (("tenant", self.tenant), ("app", self.app)):
            if not isinstance(cast("Any", value), str):
                raise InvalidConfigError(f"{name} must be a string or None, got {value!r}")

    def apply_to_settings(self, settings: CodeModeOptions) -> CodeModeOptions:
        """Return the settings with the store's guard and journal, unless they have their own."""
        if self.store is None:
            return settings
        try:
            settings, _ = open_store_and_make_options_durable(settings, self.store)
        except ValueError as error:
            raise InvalidConfigError(str(error)) from error
        continuation = settings.continuation
        keys = continuation.keys if continuation.keys is not None or get_configured_keys() else read_environment_keys()
        if keys is None and not get_configured_keys():  # a store in memory, whose runs have a journal too
            raise InvalidConfigError(
                f"set settings.continuation.keys or {SIGNING_KEY_VARIABLE}, or call set_continuation_signing_key: with"
                " the random key of this process, no other process could resume programs from the store"
            )
        journal = continuation.journal or self.store.journal(tenant=self.tenant, app=self.app)
        return settings.with_parts(continuation=replace(continuation, keys=keys, journal=journal))

    def create_stored_runs(self, options: ExecWaitOptions, tool: Any) -> StoredRuns | None:
        """Return the stored runs of the tools; None without a store."""
        if self.store is None:
            return None
        from .stored_runs import StoredRuns

        return StoredRuns(self.store, self.tenant, self.app, options.snapshot_ttl_seconds, tool)


def _open_store(store: StoreLike | None) -> InterruptStore | None:
    try:
        return None if store is None else open_store(store)
    except ValueError as error:
        raise InvalidConfigError(str(error)) from error


def _parse_settings_and_reset_limits(options: Any) -> CodeModeOptions:
    try:
        settings = CodeModeOptions.of(options)
    except ValueError as error:
        raise InvalidConfigError(f"settings.{error}") from error
    policy = settings.execution_policy
    if policy.is_set_explicitly("timeout_includes_tools"):
        raise InvalidConfigError(
            "settings.execution_policy.timeout_includes_tools is not supported by exec and wait: use timeout_ms"
        )
    if settings.fetch_policy is not None:
        raise InvalidConfigError("settings.fetch_policy is not supported by exec and wait: programs have no fetch")
    return settings.with_parts(execution_policy=policy.with_options_reset(*PAIR_LIMITS))


def create_exec_wait_tools(
    sources: Any,
    options: ExecWaitOptions | Mapping[str, Any] | None = None,
    *,
    settings: CodeModeOptions | Mapping[str, Any] | None = None,
    namespaces: NamespaceRegistry | None = None,
    pool: WorkerPool | None = None,
    store: StoreLike | None = None,
    tenant: str | None = None,
    app: str | None = None,
    library: ProgramLibrary | None = None,
) -> ExecWaitTools:
    """Turn any number of tools into two: exec runs a program over them, wait continues one that has not ended.

    ``sources``: one or several `ToolSource`, or tools as in `create_code_mode_tool`. ``options``: those of exec and
    wait. ``settings``: approvals, pipeline, lifecycle, telemetry, continuations; ``approval.mode`` defaults to
    "interrupt" unless ``on_approval_required`` is set. ``namespaces``: those of the application's plugins. ``store``:
    an interrupt store or its URL; runs then survive this process, which needs a configured signing key. It provides the
    guard and the journal; ``tenant`` and ``app`` are those of its records. ``library``: saved programs, as in
    `create_code_mode_tool`. Starts no process and lists no server. Raises `InvalidConfigError`, a `ValueError`, and
    `ValueError` for an invalid tool.
    """
    return ExecWaitTools(
        sources,
        options,
        settings,
        pool,
        RunStoreConfig(_open_store(store), "" if tenant is None else tenant, "" if app is None else app),
        namespaces,
        library,
    )


LISTING_SECONDS = 5.0
_log = logging.getLogger("codemode.tools")


@dataclass(frozen=True)
class Surface:
    """The tools that a model sees, and the effective ``options``.

    If ``active``, ``visible`` are exec, wait and the direct tools, and ``pair`` is the `ExecWaitTools`. Otherwise
    ``visible`` are all tool names in order, including those of servers, and ``pair`` is None; a server that cannot be
    listed here appears as ``mcp:<owner>``.
    """

    active: bool
    visible: tuple[str, ...]
    pair: ExecWaitTools | None
    options: ExecWaitOptions


def plan_surface(
    sources: Any,
    config: Any,
    *,
    agent: Any = None,
    direct: Iterable[Any] = (),
    pool: WorkerPool | None = None,
    **more: Any,
) -> Surface:
    """Return what the model sees of these tools with this configuration.

    ``config``: a whole configuration with ``tools.codeMode``, or that value; ``agent`` overrides it. ``direct``: tools,
    or their names, that stay visible and out of the catalog. ``more`` is passed to `create_exec_wait_tools`. If
    inactive, each server is listed for at most five seconds, unless an event loop runs in this thread, because a
    session belongs to the loop that created it. Raises `InvalidConfigError`, a `ValueError`.
    """
    options = ExecWaitOptions.from_config(config, agent)
    names = ExecWaitTools.parse_direct_names(direct)
    tool_sources = to_sources(sources)
    has_tools = any(source.source == MCP for source in tool_sources) or bool(collect_non_server_entries(tool_sources))
    if not options.enabled or not has_tools:
        visible_names = dict.fromkeys(
            (*(name for source in tool_sources for name in _list_tool_names_or_server_label(source)), *names)
        )
        return Surface(active=False, visible=tuple(visible_names), pair=None, options=options)
    pair = create_exec_wait_tools(_exclude_non_server_tools(sources, names), options, pool=pool, **more)
    pair.record_visible_tools(names)
    return Surface(active=True, visible=(EXEC, WAIT, *names), pair=pair, options=options)


def _list_tool_names_or_server_label(source: ToolSource) -> list[str]:
    """Return the tool names of a source, in order."""
    if source.source != MCP:
        return [*collect_unprepared_tools(source.tools, require_source_tool_name)]
    server = f"{MCP}:{source.owner}"
    if has_running_loop():
        return [server]
    try:
        return run_sync(_list_server_tool_names(source.tools))
    except Exception as error:  # noqa: BLE001 - one failing server must not affect the others
        log_failure(_log, "the tools of server %r cannot be listed", (source.owner,), error)
        return [server]


async def _list_server_tool_names(session: Any) -> list[str]:
    page = await asyncio.wait_for(list_paged_items(session.list_tools, "tools", max_items=MAX_TOOLS), LISTING_SECONDS)
    return [name for tool in page[0] if (name := read_callable_tool_name_or_none(tool)) is not None]


def _exclude_non_server_tools(sources: Any, names: Iterable[str]) -> list[ToolSource]:
    """Return the sources without the tools of these names."""
    excluded = frozenset(names)
    grouped: dict[tuple[str, str], dict[str, Tool]] = {}
    for entry in collect_non_server_entries(sources):
        if entry.name not in excluded:
            grouped.setdefault((entry.source, entry.owner), {})[entry.name] = entry.original
    servers = [entry for entry in to_sources(sources) if entry.source == MCP]
    return [*(ToolSource(tools, source, owner) for (source, owner), tools in grouped.items()), *servers]


def _read_direct_name(item: Any) -> str:
    name = item if isinstance(item, str) else getattr(item, "name", None) or getattr(item, "__name__", None)
    if not isinstance(name, str) or not name:
        raise InvalidConfigError(f"direct must be names or tools, got {item!r}")
    return name
