"""The runs of one tool, begun or gone on with: from a request through servers and program to a response."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import CodeModeError, CodeModeProtocolError, Resumable
from ...execution.call_context import CallContext, OuterCall, check_call
from ...execution.starting import load_execution, prepared, resume_answered
from ...host.threads import LARGE_CHARACTERS, run_check
from ...options.parts import CodeModeOptions, ExecutionPolicy
from ...trace.failures import log_failure
from .declarations import declarations_for, fits_in
from .descriptions import Descriptions
from .diagnostic import Diagnostic, diagnostic
from .diagnostics import cleared, diagnostics_of, of_error
from .hints import say_other_language
from .homes import Homes
from .limits import HOST_NAMES, RunLimits
from .listing import ModuleTool
from .options import RunOptions
from .profile import profile_of
from .request import RunRequest, read_request
from .response import host_failed, refused
from .run_view import CAPABILITIES, LIMITS, NOTES, RunView, unavailable
from .server_set import ServerSet
from .told_outcome import response_of
from .words import words_of

if TYPE_CHECKING:
    from ...execution.outcome import RunOutcome
    from ...workers.pool import WorkerPool
    from .catalog import ModuleCatalog

_log = logging.getLogger("codemode.tools")
_MAX_SUGGESTIONS = 8
_MAX_NAME_CHARACTERS = 100


class Runs:
    """Runs modules over a set of servers, under the options of one tool. Safe to use from several threads."""

    def __init__(
        self,
        servers: ServerSet,
        descriptions: Descriptions,
        homes: Homes,
        options: RunOptions,
        settings: CodeModeOptions,
        pool: WorkerPool | None,
    ) -> None:
        self._servers = servers
        self._descriptions = descriptions
        self._homes = homes
        self._options = options
        self._pool = pool
        # A limit that a request may name is its own, or that of the run options.
        policy = settings.execution_policy.without(*HOST_NAMES.values())
        self._settings = settings.having(execution_policy=policy)
        self._words = words_of(self._find, options.secrets)
        self._profile = profile_of(options.limits, self._words)
        # Of requests that name no limits; put together once.
        self._usual = self._settings.under(self._profile.limits)

    async def execute(self, given: Any, call: CallContext | None) -> Any:
        """Return the response to a request, or an `Interrupt`."""
        notes: Sequence[Diagnostic] = ()
        try:
            request = read_request(given, self._options)
            if not isinstance(request, RunRequest):
                return refused(request)
            notes = request.notes
            return await self._run(request, _outer(call))
        except CodeModeError as error:  # nothing of the program ran
            return refused(
                cleared([*of_error(error, self._policy(self._options.limits)), *notes], self._secrets), error
            )
        except Exception as error:  # noqa: BLE001 - a model is answered whatever happens
            log_failure(_log, "a run of codemode.run failed", (), error)
            return refused([*notes, _failed(error)], error)

    async def _run(self, request: RunRequest, outer: OuterCall) -> Any:
        notes, capabilities = await self._connect(request) if request.capabilities else (list(request.notes), [])
        limits = request.limits or self._options.limits
        profile = self._profile if request.limits is None else profile_of(limits, self._words)
        view = self._catalog(notes, capabilities)
        is_plain = request.limits is None and not notes and not capabilities
        given = None if is_plain else _given(notes, capabilities, request.limits)
        pool = await prepared(self._pool, self._settings)
        settings = self._usual if request.limits is None else self._settings
        execution = load_execution().Execution(profile, view, settings, outer, pool, given=given)
        outcome = await execution.start(request.code)
        if outcome.error is not None:
            say_other_language(outcome.error, request.code)
        notes = view.notes if isinstance(view, RunView) else notes
        return await self._told(outcome, view, limits, notes, capabilities)

    async def resume(
        self,
        interrupt: Resumable | Mapping[str, Any],
        resolution: Any,
        resolutions: Mapping[str, Any] | None,
        call: CallContext | None,
    ) -> Any:
        """Return what `execute` does, of a program that goes on. Raises `CodeModeProtocolError`."""
        view, outer = RunView(self._servers, homes=self._homes), _outer(call)
        outcome = await resume_answered(
            self._profile, interrupt, resolution, resolutions, view, self._settings, outer, self._pool
        )
        return await self._told(outcome, view, view.limits or self._options.limits, view.notes, view.capabilities)

    async def _connect(self, request: RunRequest) -> tuple[list[Diagnostic], list[str]]:
        """List the servers that a request names; return what is to be said of it, and the paths of those there are."""
        notes = list(request.notes)
        if not self._descriptions.is_read:
            await run_check(0, self._descriptions.take_as_read)
        found = {name: self._servers.find(name) for name in request.capabilities}
        sources = [one for one in dict.fromkeys(found.values()) if one is not None]
        await self._servers.list(one for one in sources if not one.is_current)
        await self._servers.put_together()
        if unknown := [name for name, source in found.items() if source is None]:
            notes += await run_check(LARGE_CHARACTERS, partial(self._unknown, unknown))
        notes += [unavailable(one) for one in sources if one.failure is not None]
        return notes, [one.path for one in sources if one.failure is None]

    def _unknown(self, names: Sequence[str]) -> list[Diagnostic]:
        """Return the warnings about servers that there are not: to the first, with those that may have been meant."""
        said: list[Diagnostic] = []
        for at, name in enumerate(names):
            near = self._servers.nearest(name) if at < _MAX_SUGGESTIONS else []
            hint = f"Ask for {' or '.join(near)}." if near else "Ask for servers that the description names."
            text = f'there is no server "{name[:_MAX_NAME_CHARACTERS]}"'
            said.append(diagnostic("warning", "CAPABILITY_UNAVAILABLE", text, hint=hint))
        return said

    def _catalog(self, notes: Sequence[Diagnostic], capabilities: Sequence[str]) -> RunView | ModuleCatalog:
        # A run of the same text over the very catalog is not compared with it again.
        return (
            self._servers.catalog()
            if self._servers.is_static
            else RunView(self._servers, notes, capabilities, homes=self._homes)
        )

    async def _told(
        self,
        outcome: RunOutcome,
        view: RunView | ModuleCatalog,
        limits: RunLimits,
        notes: Sequence[Diagnostic],
        capabilities: Sequence[str],
    ) -> Any:
        if outcome.interrupt is not None:
            return outcome.interrupt
        says_more = outcome.abandoned or outcome.returned_nothing or outcome.warnings or outcome.output_warnings
        if outcome.error is None and not (says_more or notes or capabilities or isinstance(view, RunView)):
            return response_of(outcome, ())
        policy = self._usual.execution_policy if outcome.error is None else self._policy(limits)
        said = [*diagnostics_of(outcome, policy), *notes]
        if isinstance(view, RunView):
            said += view.changed_meanwhile()
        declarations = await self._declarations(view, capabilities) if capabilities else ""
        ready_ms = view.ready_ms if isinstance(view, RunView) else 0.0
        return response_of(outcome, cleared(said, self._secrets), declarations, ready_ms)

    async def _declarations(self, view: RunView | ModuleCatalog, capabilities: Sequence[str]) -> str:
        """Return the declarations of those servers that the model has not read in the description."""
        catalog = view.catalog if isinstance(view, RunView) else view

        def declared() -> str:
            known = self._descriptions.read_of
            named = [one for path in capabilities if (one := catalog.server(path)) is not None]
            # Its tools may be others than those that were read of.
            unread = [one for one in named if fits_in(one, len(known.get(one.path, ""))) != known.get(one.path, "")]
            return declarations_for(unread, self._options.max_declarations_characters)

        return await run_check(0, declared)

    def _policy(self, limits: RunLimits) -> ExecutionPolicy:
        return self._settings.under(limits.policy()).execution_policy

    def _find(self, name: str) -> ModuleTool | None:
        return self._servers.catalog().find(name)

    @property
    def _secrets(self) -> tuple[str, ...]:
        return self._options.secrets


def _outer(call: CallContext | None) -> OuterCall:
    return OuterCall(call=check_call(call), is_traced=True)


def _given(notes: Sequence[Diagnostic], capabilities: Sequence[str], limits: RunLimits | None) -> dict[str, Any] | None:
    """Return what one invocation brings along; None for nothing."""
    brought = {NOTES: notes, CAPABILITIES: capabilities, LIMITS: {} if limits is None else limits.differing()}
    return {name: value for name, value in brought.items() if value} or None


def _failed(error: Exception) -> Diagnostic:
    """Return the diagnostic of a request that the host itself got wrong, or could not run."""
    if isinstance(error, ValueError) and not isinstance(error, CodeModeProtocolError):
        return diagnostic("error", "BAD_REQUEST", "the host has made this call with arguments that are not valid")
    return host_failed()
