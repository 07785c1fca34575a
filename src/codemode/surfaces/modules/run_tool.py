"""The one tool that a model sees in place of any number of servers: what it says of itself, and how it is called."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...data.json_values import NOT_GIVEN
from ...data.rich_values import using_rich_values
from ...errors import Resumable
from ...execution.call_context import CallContext
from ...execution.optional_parts import require_optional_parts
from ...execution.sync_forms import SyncForms
from ...host.imports import importing
from ...host.sync import refuse_in_workflow, run_sync
from ...host.threads import off_loop
from ...options.parts import CodeModeOptions
from ...tools.tool_schemas import load_schema_kind
from ...trace.failures import log_failure
from .declarations import DISCOVERY_DECLARATION, ERRORS_DECLARATION, declare_server
from .description import DescriptionCache
from .options import OUTER_TOOL, RunOptions, build_input_schema, build_output_schema
from .response import host_failure_diagnostic, refusal_response
from .server_set import ServerIdentities, ServerSet

if TYPE_CHECKING:
    from ...execution.program_library import ProgramLibrary
    from ...stores.durability import StoreLike
    from ...stores.interrupt_store import InterruptStore
    from ...workers.pool import WorkerPool
    from .catalog import ModuleCatalog
    from .executor import ModuleExecutor

_log = logging.getLogger("codemode.tools")


class RunTool(SyncForms):
    """One tool that runs ES modules over the tools of servers. Make it with `create_modules_tool`.

    Safe to use from several threads and event loops.
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
            from ...stores.durability import with_store

            self.settings, self.store = with_store(self.settings, store)
        if self.settings.fetch_policy is not None:
            raise ValueError("settings.fetch_policy is not for codemode.run: its programs have no fetch")
        # What is wrong with settings is told of here, not in the first run.
        require_optional_parts(self.settings)
        if pool is not None:
            from ...workers.pool import check_pool

            check_pool(pool)
        self._pool = pool
        self._servers = ServerSet(servers)
        has_rich_values = self.settings.execution_policy.values == "rich"
        self._descriptions = DescriptionCache(self._servers, self.options, has_rich_values=has_rich_values)
        self._identities = ServerIdentities(self._servers.sources, self.settings.continuation)
        self.library = library
        if library is not None:
            from ...execution.starting import attach_library

            paths = [source.path for source in self._servers.sources]
            self.library = attach_library(library, self._servers.catalog(), paths)
        self._executor: ModuleExecutor | None = None

    def __repr__(self) -> str:
        return f"<RunTool over {len(self._servers.sources)} servers>"

    @property
    def description(self) -> str:
        """What the model reads: how a program looks, the limits, the servers, as many declarations as fit."""
        return self.describe()

    def describe(self, max_characters: int | None = None) -> str:
        """Return the description for a model that reads so many characters of it; None is the option's."""
        library_text = "" if self.library is None else self.library.describe("@codemode/saved")
        if not library_text:
            return self._descriptions.read(max_characters).text
        max_text_characters = None if max_characters is None else max(max_characters - len(library_text) - 2, 0)
        return f"{self._descriptions.read(max_text_characters).text}\n\n{library_text}"

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of a request. What is wrong with one is answered like anything else."""
        return build_input_schema(self.options)

    @property
    def output_schema(self) -> dict[str, Any]:
        """The JSON Schema of a response."""
        return build_output_schema()

    @property
    def catalog(self) -> ModuleCatalog:
        """The tools as they were last listed, by the names that pauses have for them."""
        return self._servers.catalog()

    @property
    def failures(self) -> dict[str, str]:
        """Why servers could not be listed when they last were, by the host's own ids."""
        return {source.server_id: source.failure for source in self._servers.sources if source.failure is not None}

    @property
    def homes(self) -> ServerIdentities:
        """Where its servers are, as far as they say so."""
        return self._identities

    @property
    def may_ask(self) -> bool:
        """True when some call may wait for a person, as far as the servers have been listed."""
        return self._servers.may_ask

    def declarations(self, server_id: str | None = None) -> str:
        """Return TypeScript, a ``declare module`` for each module that programs can import, or for that of one server.

        Servers are as they were last listed; ``server_id`` is the path or the host's own id. Raises `ValueError` for
        a server that there is not.
        """
        with using_rich_values(self.settings.execution_policy.values == "rich"):
            return self._declarations(server_id)

    def _declarations(self, server_id: str | None) -> str:
        if server_id is None:
            return "\n\n".join(
                (DISCOVERY_DECLARATION, ERRORS_DECLARATION, *map(declare_server, self._servers.catalog().servers))
            )
        found = self._servers.find(server_id)
        if found is None:
            similar = self._servers.nearest(server_id)
            hint = f"; did you mean {' or '.join(map(repr, similar))}?" if similar else ""
            raise ValueError(f"there is no server {server_id!r}{hint}")
        listed = self._servers.catalog().server(found.path)
        return "" if listed is None else declare_server(listed)

    async def refresh(self) -> None:
        """List the tools of all servers anew whose tools change, all at once. Programs that run keep theirs."""
        await self._servers.refresh()

    async def prepare(self, server_ids: Iterable[str] | None = None) -> None:
        """List the tools of all servers, or of these, that are not known or have changed: as a run of them would.

        Unknown ids mean nothing. What cannot be listed is logged, and told to programs that import it.
        """
        wanted_ids = None if server_ids is None else frozenset(server_ids)
        sources = (source for source in self._servers.sources if wanted_ids is None or source.server_id in wanted_ids)
        await self._servers.list(source for source in sources if not source.is_current)

    async def load(self) -> None:
        """Do what the first run does before its program starts: a worker boots, what runs programs is imported.

        The event loop goes on meanwhile. Raises `CodeModeWorkerError` where no worker can start.
        """
        await self._load()
        from ...execution.starting import prepared

        await prepared(self._pool, self.settings)

    async def execute(self, program: str | Mapping[str, Any], call: CallContext | None = None) -> Any:
        """Run ``{"code", "limits"?, "requestedCapabilities"?}``. Returns a `RunResponse`, or an `Interrupt` of a pause.

        ``program`` may also be the code itself; ``call`` says whose call it is. What goes wrong is in the response;
        raises `RuntimeError` alone, inside a workflow function of Temporal.
        """
        try:
            runs = await self._load()
        except OSError as error:
            log_failure(_log, "what runs programs cannot be imported", (), error)
            return refusal_response([host_failure_diagnostic()], error)
        return await runs.execute({"code": program} if isinstance(program, str) else program, call)

    async def resume(
        self,
        interrupt: Resumable | Mapping[str, Any],
        resolution: Any = NOT_GIVEN,
        call: CallContext | None = None,
        *,
        resolutions: Mapping[str, Any] | None = None,
    ) -> Any:
        """Answer pending requests and go on, with the limits of the request and the tools that there are now.

        Answers are as in `continue_interrupt`. Returns as `execute` does. Raises `CodeModeProtocolError` for an
        interrupt, or answers, with which nothing can go on.
        """
        runs = await self._load()
        return await runs.resume(interrupt, resolution, resolutions, call)

    def refresh_sync(self) -> None:
        """Do what `refresh` does, from code that is not async."""
        run_sync(self.refresh())

    async def _load(self) -> ModuleExecutor:
        refuse_in_workflow()
        runs = self._executor or await off_loop(self._create_executor)
        await self._servers.build_catalog()
        return runs

    def _create_executor(self) -> ModuleExecutor:
        load_schema_kind("dict")  # which checks what the tools of servers are given
        with importing:
            from .executor import ModuleExecutor

            parts = self._servers, self._descriptions, self._identities
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

    ``servers``: a list of `ModuleServer`, or of objects whose tools change: with ``server_id``, ``name``, ``version``,
    ``description`` and ``capabilities``, an async method ``tools()`` and a ``revision``. ``settings``: approvals,
    lifecycle, telemetry, continuations, as `create_code_mode_tool` takes them, and ``store`` and ``library`` as
    there; of the limits of a request the ``options`` alone decide. Raises `ValueError` for wrong options, settings,
    pools or stores, and for what is no server.
    """
    return RunTool(servers, options, settings, pool, store, library)
