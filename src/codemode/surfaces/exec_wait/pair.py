"""exec and wait: two tools over a hidden catalog, whose programs can be left waiting."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ...continuations.keys import SIGNING_KEY_VARIABLE, environment_keys, set_keys
from ...data.json_values import NOT_GIVEN
from ...errors import Resumable
from ...execution.call_context import CallContext
from ...options.parts import CodeModeOptions
from ...stores.durability import StoreLike, open_store, with_store
from ...workers.pool import WorkerPool, check_pool
from .catalog import ExecCatalog
from .description import WAIT_DESCRIPTION, describe_exec, exec_schema, wait_schema
from .kinds import EXEC_KIND, WAIT_KIND, Kinds
from .mcp_server import servers_of
from .namespaces import NamespaceRegistry
from .options import CONFIG_PATH, ExecWaitOptions, InvalidConfigError
from .own_loop import OwnLoop
from .pair_tool import PairTool
from .profile import EXEC, OWN_LIMITS, WAIT, profile_of
from .programs import Programs
from .setup import Setup
from .sources import Entry, entries_of
from .telemetry import counts_of
from .waiting_run import RunInfo

if TYPE_CHECKING:
    from ...stores.interrupt_store import InterruptStore
    from ...stores.records import Record
    from .stored import StoredRuns

ResultT = TypeVar("ResultT")


class ExecWaitTools:
    """The pair over a set of tools. Make it with `create_exec_wait_tools`. Safe to use from several threads."""

    name = EXEC

    def __init__(
        self,
        sources: Any,
        options: ExecWaitOptions | Mapping[str, Any] | None,
        settings: CodeModeOptions | Mapping[str, Any] | None,
        pool: WorkerPool | None,
        kept: Kept,
        namespaces: NamespaceRegistry | None = None,
    ) -> None:
        if not isinstance(cast("Any", namespaces), NamespaceRegistry | None):
            raise InvalidConfigError(f"namespaces must be a NamespaceRegistry or None, got {namespaces!r}")
        self.options = ExecWaitOptions.of(options)
        self.settings = kept.settings(_settings(settings))
        check_pool(pool)
        if self.options.approvals == "park" and kept.store is None:
            raise InvalidConfigError(f"{CONFIG_PATH}.approvals 'park' needs a store: that is where the questions go")
        asks = self.settings.approval
        if self.options.approvals == "park" or not (asks.says("mode") or asks.on_approval_required):
            self.settings = self.settings.having(approval=replace(asks, mode="interrupt"))
        self.store = kept.store
        self._counts = counts_of(self.settings.telemetry, (EXEC, WAIT))
        self.catalog = ExecCatalog(entries_of(sources), self.options, self._counts, servers_of(sources))
        self.catalog.prepare()
        self._counts.catalog(self.catalog.by_source)
        stored = kept.runs(self.options, self)
        profile = profile_of(self.options)
        shared = self.catalog, self.options, self.settings, profile, pool, self._counts, stored, namespaces
        setup = Setup(*shared)
        self._programs = Programs(setup)
        self._own_loop = OwnLoop()
        entries, programs = self.catalog.entries, self._programs
        servers = [one.name for one in self.catalog.servers]
        self._namespaces = namespaces
        self._described: tuple[int, str] | None = None
        describe = partial(self._description, entries, servers)
        takes, kind = exec_schema(self.options), Kinds(EXEC_KIND, self.options.languages)
        self.exec = PairTool(EXEC, describe, takes, programs.exec, kind, self.run_sync)
        takes, kind = wait_schema(), Kinds(WAIT_KIND)
        self.wait = PairTool(WAIT, lambda _: WAIT_DESCRIPTION, takes, programs.wait, kind, self.run_sync)

    def __repr__(self) -> str:
        return f"<ExecWaitTools over {len(self.catalog)} tools>"

    @property
    def telemetry(self) -> dict[str, Any]:
        """Counts since the pair was made by name, ``caps`` by code, and ``catalog``: how many tools of each source."""
        return {**self._counts.shown(), "catalog": self.catalog.by_source}

    def _description(self, entries: Sequence[Entry], servers: Sequence[str], context: Any) -> str:
        """Return what a model reads of exec, without a context made anew only where the namespaces have changed."""
        registry, made = self._namespaces, self._described
        if registry is not None and context is not None:
            texts = [one.text(context) for one in registry.visible(entries)]
            return self._describe(entries, servers, texts)
        version = 0 if registry is None else registry.version
        if made is None or made[0] != version:
            texts = [] if registry is None else [one.text() for one in registry.visible(entries)]
            made = self._described = version, self._describe(entries, servers, texts)
        return made[1]

    def _describe(self, entries: Sequence[Entry], servers: Sequence[str], namespaces: Sequence[str]) -> str:
        settings = self.settings
        may_queue = settings.execution_policy.in_flight_limit == "queue"
        return describe_exec(
            entries, self.options, servers, namespaces, has_state=settings.has_state, may_queue=may_queue
        )

    def runs(self, conversation_id: str | None = None) -> tuple[RunInfo, ...]:
        """Return the runs of a conversation in this process: those that run or wait, and recent ones that have ended.

        Ended ones stay for ``snapshot_ttl_seconds``. One that is parked waits, with the tools that a person is asked
        about; what another process has is in the store alone.
        """
        return self._programs.runs.infos(conversation_id or "")

    async def resume(
        self,
        interrupt: Resumable | Mapping[str, Any] | Record,
        resolution: Any = NOT_GIVEN,
        call: CallContext | None = None,
        *,
        resolutions: Mapping[str, Any] | None = None,
    ) -> Any:
        """Answer what a program waits for; return what exec or wait would have.

        Answers are as in `CodeModeTool.resume`; the ``conversation_id`` of ``call`` is that of the exec. Raises
        `CodeModeProtocolError` for an interrupt or an answer that is not valid, or of another conversation, catalog or
        key; nothing has run then.

        A `Record`, as a `Resumer` gives one, knows its own conversation, and its program is continued through every
        rest.
        """
        answers = {"resolution": resolution, "resolutions": resolutions}
        return await self._programs.resume(interrupt, answers, call)

    def resume_sync(
        self,
        interrupt: Resumable | Mapping[str, Any] | Record,
        resolution: Any = NOT_GIVEN,
        call: CallContext | None = None,
        *,
        resolutions: Mapping[str, Any] | None = None,
    ) -> Any:
        """Do what `resume` does, from code that is not async: on the loop that sync callers of this pair share."""
        return self.run_sync(self.resume(interrupt, resolution, call, resolutions=resolutions))

    async def abort(
        self,
        conversation_id: str | None = None,
        *,
        run_id: str | None = None,
        reason: str = "the run was aborted",
        only_in_flight: bool = False,
    ) -> int:
        """End the runs of a conversation, or that one, with their calls; return how many. Their places are free.

        ``only_in_flight``: those that wait with calls in flight, and none that wait for a person or for nothing.
        """
        scope = conversation_id or ""
        return await self._programs.abort(scope, run_id, reason, only_in_flight=only_in_flight)

    def show(self, direct: Sequence[str]) -> None:
        """Note which tools stand visible beside the pair, for telemetry."""
        self._counts.show((EXEC, WAIT, *direct))

    async def aclose(self) -> None:
        """End every run, and the loop that sync callers share. Others may go on with what a store keeps."""
        try:
            await self._programs.aclose()
        finally:
            self._counts.close()
            await self._own_loop.aclose()

    def run_sync(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run something on the loop that sync callers of this pair share."""
        return self._own_loop.run(work)


ExecWaitTools.resume.takes_record = True  # pyright: ignore[reportFunctionMemberAccess] - for a `Resumer`


@dataclass(frozen=True)
class Kept:
    """Where runs are kept: a store, and whose they are in it."""

    store: InterruptStore | None = None
    tenant: str = ""
    app: str = ""

    def __post_init__(self) -> None:
        """Check what they are. Raises `InvalidConfigError`, a `ValueError`."""
        for what, value in (("tenant", self.tenant), ("app", self.app)):
            if not isinstance(cast("Any", value), str):
                raise InvalidConfigError(f"{what} must be a string or None, got {value!r}")

    def settings(self, settings: CodeModeOptions) -> CodeModeOptions:
        """Return the settings with guard and journal of the store, unless they have their own."""
        if self.store is None:
            return settings
        try:
            settings, _ = with_store(settings, self.store)
        except ValueError as error:
            raise InvalidConfigError(str(error)) from error
        own = settings.continuation
        keys = own.keys if own.keys is not None or set_keys() else environment_keys()
        if keys is None and not set_keys():  # of a store in memory, whose runs have a journal all the same
            raise InvalidConfigError(
                f"settings.continuation.keys must be set, {SIGNING_KEY_VARIABLE} in the environment, or"
                " set_continuation_signing_key called: with the random key of this process nobody else could go on with"
                " what is in the store"
            )
        journal = own.journal or self.store.journal(tenant=self.tenant, app=self.app)
        return settings.having(continuation=replace(own, keys=keys, journal=journal))

    def runs(self, options: ExecWaitOptions, tool: Any) -> StoredRuns | None:
        """Return what keeps the runs of a pair; None without a store."""
        if self.store is None:
            return None
        from .stored import StoredRuns

        return StoredRuns(self.store, self.tenant, self.app, options.snapshot_ttl_seconds, tool)


def _opened(store: StoreLike | None) -> InterruptStore | None:
    try:
        return None if store is None else open_store(store)
    except ValueError as error:
        raise InvalidConfigError(str(error)) from error


def _settings(given: Any) -> CodeModeOptions:
    try:
        settings = CodeModeOptions.of(given)
    except ValueError as error:
        raise InvalidConfigError(f"settings.{error}") from error
    policy = settings.execution_policy
    if policy.says("clock"):
        raise InvalidConfigError("settings.execution_policy.clock is not for exec and wait: see timeoutMs")
    if settings.fetch_policy is not None:
        raise InvalidConfigError("settings.fetch_policy is not for exec and wait: their programs have no fetch")
    return settings.having(execution_policy=policy.without(*OWN_LIMITS))


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
) -> ExecWaitTools:
    """Turn any number of tools into two: exec runs a program over them, wait goes on with one that had not ended.

    ``sources``: a `ToolSource`, several of them, or tools as `create_code_mode_tool` takes them. ``options`` are those
    of the pair; ``settings``: approvals, pipeline, lifecycle, telemetry, continuations. ``approval.mode`` is
    "interrupt" unless it is said, or there is an ``on_approval_required``. ``namespaces`` are those of the
    application's plugins. With a ``store``, or the URL of one, runs outlive this process, under a key that was set; it
    brings guard and journal, and ``tenant`` and ``app`` say whose the runs are in it. Starts no process and lists no
    server. Raises `InvalidConfigError`, a `ValueError`, and `ValueError` for what is no tool.
    """
    return ExecWaitTools(
        sources,
        options,
        settings,
        pool,
        Kept(_opened(store), "" if tenant is None else tenant, "" if app is None else app),
        namespaces,
    )
