"""The tool `codemode.run`: its description, schemas and execution."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...data.json_values import NOT_GIVEN
from ...data.rich_values import using_rich_values
from ...errors import Resumable
from ...execution.call_context import CallContext
from ...execution.optional_parts import import_and_require_optional_parts
from ...execution.sync_forms import SyncMethodsMixin
from ...host.imports import importing
from ...host.sync import require_outside_temporal_workflow, run_sync
from ...host.threads import run_in_single_use_thread
from ...options.parts import CodeModeOptions
from ...tools.tool_schemas import import_schema_compiler
from ...trace.failures import log_failure
from .declarations import DISCOVERY_DECLARATION, ERRORS_DECLARATION, declare_server
from .description import DescriptionCache
from .options import OUTER_TOOL, RunOptions, build_input_schema, build_output_schema
from .response import build_refusal_response, create_host_failure_diagnostic
from .server_set import ServerIdentities, ServerSet

if TYPE_CHECKING:
    from ...execution.program_library import ProgramLibrary
    from ...stores.durability import StoreLike
    from ...stores.interrupt_store import InterruptStore
    from ...workers.pool import WorkerPool
    from .catalog import ModuleCatalog
    from .executor import ModuleExecutor

_log = logging.getLogger("codemode.tools")


class RunTool(SyncMethodsMixin):
    """One tool that runs ES modules over the tools of servers. Create it with `create_modules_tool`.

    Thread-safe, and usable from several event loops.
    """

    name = OUTER_TOOL

    def __init__(
        self,
        servers: Iterable[Any],
        options: RunOptions | Mapping[str, Any] | None,
        settings: CodeModeOptions | Mapping[str, Any] | None,
        pool: WorkerPool | None,
        store: StoreLike | None = None,
        library: ProgramLibrary | None = None,
    ) -> None:
        self.options = RunOptions.of(options)
        self.settings = CodeModeOptions.of(settings)
        self.store: InterruptStore | None = None
        if store is not None:
            from ...stores.durability import open_store_and_make_options_durable

            self.settings, self.store = open_store_and_make_options_durable(self.settings, store)
        if self.settings.fetch_policy is not None:
            raise ValueError("settings.fetch_policy is not supported by codemode.run: programs have no fetch")
        # Report invalid settings now, not in the first run.
        import_and_require_optional_parts(self.settings)
        if pool is not None:
            from ...workers.pool import require_open_pool

            require_open_pool(pool)
        self._pool = pool
        self._servers = ServerSet(servers)
        has_rich_values = self.settings.execution_policy.values == "rich"
        self._description_cache = DescriptionCache(self._servers, self.options, has_rich_values=has_rich_values)
        self._identities = ServerIdentities(self._servers.sources, self.settings.continuation)
        self.library = library
        if library is not None:
            from ...execution.starting import bind_optional_library_unless_shadowed

            paths = [source.path for source in self._servers.sources]
            self.library = bind_optional_library_unless_shadowed(library, self._servers.get_or_build_catalog(), paths)
        self._executor: ModuleExecutor | None = None

    def __repr__(self) -> str:
        return f"<RunTool over {len(self._servers.sources)} servers>"

    @property
    def description(self) -> str:
        """The description for the model: the form of a program, the limits, the servers and declarations that fit."""
        return self.describe()

    def describe(self, max_characters: int | None = None) -> str:
        """Return the description in at most ``max_characters`` characters; None for the option."""
        library_text = "" if self.library is None else self.library.load_and_describe_programs("@codemode/saved")
        if not library_text:
            return self._description_cache.describe_and_record_shortest(max_characters).text
        max_text_characters = None if max_characters is None else max(max_characters - len(library_text) - 2, 0)
        return f"{self._description_cache.describe_and_record_shortest(max_text_characters).text}\n\n{library_text}"

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of a request. Invalid requests get a response with diagnostics."""
        return build_input_schema(self.options)

    @property
    def output_schema(self) -> dict[str, Any]:
        """The JSON Schema of a response."""
        return build_output_schema()

    @property
    def catalog(self) -> ModuleCatalog:
        """The tools as last listed, by qualified name."""
        return self._servers.get_or_build_catalog()

    @property
    def listing_failures(self) -> dict[str, str]:
        """Why servers could not be listed last time, by host id."""
        return {source.server_id: source.failure for source in self._servers.sources if source.failure is not None}

    @property
    def server_identities(self) -> ServerIdentities:
        """The identities of its servers, as far as they declare them."""
        return self._identities

    @property
    def may_wait_for_person(self) -> bool:
        """True if some call can wait for a person, as far as servers are listed."""
        return self._servers.may_wait_for_person

    def declarations(self, server_id: str | None = None) -> str:
        """Return TypeScript with a ``declare module`` for every module that programs can import, or for one server.

        Uses the last listing. ``server_id``: a path or host id. Raises `ValueError` for an unknown server.
        """
        with using_rich_values(self.settings.execution_policy.values == "rich"):
            return self._format_declarations(server_id)

    def _format_declarations(self, server_id: str | None) -> str:
        if server_id is None:
            return "\n\n".join(
                (
                    DISCOVERY_DECLARATION,
                    ERRORS_DECLARATION,
                    *map(declare_server, self._servers.get_or_build_catalog().servers),
                )
            )
        found = self._servers.find(server_id)
        if found is None:
            similar = self._servers.find_similar_paths(server_id)
            hint = f"; did you mean {' or '.join(map(repr, similar))}?" if similar else ""
            raise ValueError(f"there is no server {server_id!r}{hint}")
        listed_server = self._servers.get_or_build_catalog().get_server(found.path)
        return "" if listed_server is None else declare_server(listed_server)

    async def refresh(self) -> None:
        """List all servers with changeable tools again, concurrently. Running programs keep their tools."""
        await self._servers.refresh()

    async def prepare(self, server_ids: Iterable[str] | None = None) -> None:
        """List all servers, or these, that are unlisted or have changed, as a run would.

        Unknown ids are ignored. Failures are logged and reported to programs that import the server.
        """
        wanted_ids = None if server_ids is None else frozenset(server_ids)
        sources = (source for source in self._servers.sources if wanted_ids is None or source.server_id in wanted_ids)
        await self._servers.load_listings(source for source in sources if not source.is_listing_current)

    async def load(self) -> None:
        """Prepare for the first run: start a worker and import the code that runs programs.

        Does not block the event loop. Raises `CodeModeWorkerError` if no worker can start.
        """
        await self._load_executor_and_catalog()
        from ...execution.starting import get_pool_and_import_execution

        await get_pool_and_import_execution(self._pool, self.settings)

    async def execute(self, program: str | Mapping[str, Any], call: CallContext | None = None) -> Any:
        """Run ``{"code", "limits"?, "requestedCapabilities"?}``. Returns a `RunResponse`, or an `Interrupt` on a pause.

        ``program`` can also be the code itself; ``call`` is the call context. Errors are in the response; only raises
        `RuntimeError`, inside a Temporal workflow.
        """
        try:
            runs = await self._load_executor_and_catalog()
        except OSError as error:
            log_failure(_log, "the code that runs programs cannot be imported", (), error)
            return build_refusal_response([create_host_failure_diagnostic()], error)
        return await runs.execute({"code": program} if isinstance(program, str) else program, call)

    async def resume(
        self,
        interrupt: Resumable | Mapping[str, Any],
        resolution: Any = NOT_GIVEN,
        call: CallContext | None = None,
        *,
        resolutions: Mapping[str, Any] | None = None,
    ) -> Any:
        """Answer pending requests and resume the program with the limits of its request and the current tools.

        Answers are as in `continue_interrupt`. Returns what `execute` returns. Raises `CodeModeProtocolError` for an
        interrupt or answers that cannot be used.
        """
        runs = await self._load_executor_and_catalog()
        return await runs.resume(interrupt, resolution, resolutions, call)

    def refresh_sync(self) -> None:
        """Call `refresh` from sync code."""
        run_sync(self.refresh())

    async def _load_executor_and_catalog(self) -> ModuleExecutor:
        require_outside_temporal_workflow()
        runs = self._executor or await run_in_single_use_thread(self._get_or_create_executor)
        await self._servers.build_catalog_off_loop()
        return runs

    def _get_or_create_executor(self) -> ModuleExecutor:
        import_schema_compiler("dict")  # validates the inputs of server tools
        with importing:
            from .executor import ModuleExecutor

            parts = self._servers, self._description_cache, self._identities
            self._executor = self._executor or ModuleExecutor(
                *parts, self.options, self.settings, self._pool, self.library
            )
        return self._executor


def create_modules_tool(
    servers: Iterable[Any],
    options: RunOptions | Mapping[str, Any] | None = None,
    *,
    settings: CodeModeOptions | Mapping[str, Any] | None = None,
    pool: WorkerPool | None = None,
    store: StoreLike | None = None,
    library: ProgramLibrary | None = None,
) -> RunTool:
    """Turn the tools of many servers into one tool, ``codemode.run``, whose programs are ES modules.

    ``servers``: a list of `ModuleServer`, or of objects with changeable tools: with ``server_id``, ``name``,
    ``version``, ``description``, ``capabilities``, an async method ``tools()`` and a ``revision``. ``settings``:
    approvals, lifecycle, telemetry and continuations, as in `create_code_mode_tool`; ``store`` and ``library`` are as
    there. Only ``options`` sets the limits of requests. Raises `ValueError` for invalid options, settings, pools,
    stores or servers.
    """
    return RunTool(servers, options, settings, pool, store, library)
