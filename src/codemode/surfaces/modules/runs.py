"""Runs of one tool: from a request through servers and program to a response."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...data.narrowing import is_mapping, is_object, is_sequence, list_or_empty, mapping_or_empty
from ...errors import CodeModeError, CodeModeProtocolError, CodeModeToolError, Resumable
from ...execution.call_context import CallContext, OuterCall, check_call
from ...execution.outcome_texts import WITHOUT_SERVER_HINT
from ...execution.starting import load_execution, prepared, resume_answered, with_library
from ...host.clock import now_ms
from ...host.threads import LARGE_CHARACTERS, run_check
from ...options.parts import CodeModeOptions, ContinuationOptions, ExecutionPolicy
from ...records import record
from ...schemas.compiled import json_type
from ...source.program_input import fill_program_field
from ...tools.prepared import PreparedTool
from ...trace.failures import log_failure
from .catalog import ModuleCatalog, ModuleFacts, meta_of, read_module_facts
from .declarations import declarations_for, fits_in, is_declared
from .description import Descriptions
from .diagnostics import cleared, diagnostics_of, of_error, response_of, say_other_language, words_of
from .module_tools import ListedServer, ModuleTool
from .options import HOST_NAMES, LEAST, WIRE_NAMES, RunLimits, RunOptions, profile_of
from .response import Diagnostic, diagnostic, host_failed, read_again, refused
from .server_set import Homes, ServerSet
from .servers import Source

if TYPE_CHECKING:
    from ...data.program_facts import Facts
    from ...execution.outcome import RunOutcome
    from ...execution.program_library import ProgramLibrary
    from ...workers.pool import WorkerPool
    from .catalog import ModuleCatalog


_MOST_CAPABILITIES = 1_000
_HINT = 'Send {"code": "<an ES module>"}; limits is an object, requestedCapabilities a list of server ids.'
_ADJUSTED_HINT = "Ask for a whole number within what the description of this tool says."


@record
class RunRequest:
    """What is asked for. ``limits`` None are the defaults; ``notes`` say what of it holds otherwise."""

    code: str
    limits: RunLimits | None
    capabilities: tuple[str, ...]
    notes: tuple[Diagnostic, ...]


def read_request(given: Any, options: RunOptions) -> RunRequest | list[Diagnostic]:
    """Return what is asked for, or the diagnostics of a request that cannot be understood."""
    if is_object(given) and len(given) == 1 and isinstance(only := given.get("code"), str):
        return RunRequest(only, None, (), ())  # as most are
    given = fill_program_field(given, "code")
    if not is_mapping(given):
        return [_wrong("", f"the input must be an object, got {json_type(given)}")]
    code, limits, capabilities = given.get("code"), given.get("limits"), given.get("requestedCapabilities")
    wrong: list[Diagnostic] = []
    if not isinstance(code, str):
        said = "is required" if code is None else f"must be a string, got {json_type(code)}"
        wrong.append(_wrong("/code", f"code {said}"))
    if limits is not None and not is_mapping(limits):
        wrong.append(_wrong("/limits", f"limits must be an object, got {json_type(limits)}"))
    said = None if capabilities is None else _wrong_capabilities(capabilities)
    if said is not None:
        wrong.append(said)
    if wrong or not isinstance(code, str):
        return wrong
    if limits is None and capabilities is None:
        return RunRequest(code, None, (), ())
    asked, notes = _limits(limits if is_mapping(limits) else {}, options)
    ids = tuple(dict.fromkeys(capabilities)) if capabilities is not None else ()
    return RunRequest(code, asked, ids, tuple(notes))


def _wrong_capabilities(given: Any) -> Diagnostic | None:
    field = "requestedCapabilities"
    if not is_sequence(given):
        return _wrong(f"/{field}", f"{field} must be a list of strings, got {json_type(given)}")
    if len(given) > _MOST_CAPABILITIES:
        return _wrong(f"/{field}", f"{field} has {len(given)} entries; at most {_MOST_CAPABILITIES} are allowed")
    for at, one in enumerate(given):
        if not isinstance(one, str):
            return _wrong(f"/{field}/{at}", f"{field} must be a list of strings, and entry {at} is {json_type(one)}")
    return None


def _limits(given: Mapping[str, Any], options: RunOptions) -> tuple[RunLimits | None, list[Diagnostic]]:
    """Return the limits that hold, None for the defaults, and what was adjusted. Unknown keys mean nothing."""
    values: dict[str, Any] = {}
    notes: list[Diagnostic] = []
    for option, name in WIRE_NAMES.items():
        if name not in given:
            continue
        default, most = getattr(options.limits, option), getattr(options.ceilings, option)
        asked = _whole(given[name])
        value = default if asked is None else min(max(asked, LEAST[option]), most)
        if value != asked:
            notes.append(_adjusted(name, given[name], asked, value))
        if value != default:
            values[option] = value
    if not values:
        return None, notes
    return RunLimits(**{option: values.get(option) or getattr(options.limits, option) for option in WIRE_NAMES}), notes


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if isinstance(value, int) or value.is_integer() else None


def _adjusted(name: str, given: Any, asked: int | None, value: int) -> Diagnostic:
    if asked is None:
        message = f"limits.{name} must be a whole number, got {json_type(given)}: {value} holds, the default"
    else:
        side = "most" if asked > value else "least"
        message = f"limits.{name} is {_shown(asked)}: {value} holds, the {side} that is allowed"
    return diagnostic("warning", "LIMIT_ADJUSTED", message, hint=_ADJUSTED_HINT, path=f"/limits/{name}")


def _shown(number: int) -> str:
    return str(number) if abs(number) < 10**20 else "a number of many digits"


def _wrong(path: str, message: str) -> Diagnostic:
    return diagnostic("error", "BAD_REQUEST", message, hint=_HINT, path=path)


NOTES, CAPABILITIES, LIMITS, HOMES = "notes", "capabilities", "limits", "homes"
"""Members of what an invocation is given, beside what its program imports."""


class RunView:
    """The tools of one run, and what it asks of them.

    ``notes`` say what a model should know beside whatever it comes to. ``capabilities`` are the paths that its request
    named. A pause brings its own of both, and its ``limits``. ``ready_ms`` is when all was listed that it needs.
    """

    def __init__(
        self,
        servers: ServerSet,
        notes: Sequence[Diagnostic] = (),
        capabilities: Sequence[str] = (),
        *,
        homes: Homes | None = None,
    ) -> None:
        self.notes = list(notes)
        self.capabilities = list(capabilities)
        self.limits: RunLimits | None = None
        self.ready_ms = 0.0
        self._servers = servers
        self._homes = homes or Homes(servers.sources, ContinuationOptions())
        self._named: list[Source] = []
        self._now = servers.catalog()
        self._module: tuple[Facts | None, ModuleFacts] | None = None  # as they were read last

    def __len__(self) -> int:
        return len(self._now)

    def __contains__(self, name: object) -> bool:
        return name in self._now

    def __iter__(self) -> Iterator[str]:
        return iter(self._now)

    @property
    def catalog(self) -> ModuleCatalog:
        """The tools that this run has."""
        return self._now

    def names(self) -> tuple[str, ...]:
        """All names that lead to tools."""
        return self._now.names()

    @property
    def language_names(self) -> tuple[str, ...]:
        """None: a program calls what it has imported."""
        return ()

    @property
    def may_ask(self) -> bool:
        """True when a call of some tool may wait for a person."""
        return self._now.may_ask

    def get(self, name: str) -> PreparedTool | None:
        """Return the tool of exactly this name."""
        return self._now.get(name)

    def unknown_tool(self, name: str) -> CodeModeToolError:
        """Return the error for a name that leads to no tool."""
        return self._now.unknown_tool(name)

    def ask(self, name: str, argument: Any) -> Any:
        """Return what a program is told that asks of its tools."""
        return self._now.ask(name, argument)

    def under(self, given: Mapping[str, Any] | None) -> RunView:  # noqa: ARG002 - as `ToolCatalog` has it
        """Return itself: it is of one run."""
        return self

    def given_for(self, facts: Facts | None) -> Mapping[str, Any]:
        """Return the modules that a program imports, and what a pause of it must not forget."""
        module = self._read(facts)
        given = dict(self._now.given_for(facts, module))
        if self.notes:
            given[NOTES] = list(self.notes)
        if homes := self._homes.all() if module.wants_all else self._homes.of(module.paths):
            given[HOMES] = homes
        return given

    def refusal(self, facts: Facts | None) -> CodeModeError | None:
        """Return what is certainly wrong with what a program imports and calls."""
        return self._now.refusal(facts, self._read(facts))

    def preparation(self, facts: Facts | None, given: Mapping[str, Any] | None) -> Awaitable[None] | None:
        """List what the program needs and nobody has listed, or what has changed since; None: there is nothing."""
        module = mapping_or_empty(mapping_or_empty(given).get("module"))
        if module:
            return self._continued(mapping_or_empty(given), module)
        read = self._read(facts)
        wanted = self._wanted(read.paths, wants_all=read.wants_all)
        if wanted:
            return self._listed(wanted, wants_all=read.wants_all)
        self._settle(wants_all=read.wants_all)
        return None

    def _read(self, facts: Facts | None) -> ModuleFacts:
        if self._module is None or self._module[0] is not facts:
            self._module = (facts, read_module_facts(facts))
        return self._module[1]

    def going_on(self, given: Mapping[str, Any] | None, names: Iterable[str]) -> None:
        """See that the servers of these tools are those that the program has begun with, and say which have changed.

        Raises `CodeModeProtocolError` for another server.
        """
        had = mapping_or_empty(mapping_or_empty(mapping_or_empty(given).get("module")).get("servers"))
        kept = mapping_or_empty(mapping_or_empty(given).get(HOMES))
        self._homes.require(kept, {*had, *(name.partition(".")[0] for name in names)})
        for path, entry in had.items():
            source, server = self._servers.at(path), self._now.server(path)
            if source is not None and source.failure is not None:
                note = unavailable(source)
            elif server is None or meta_of(server) != entry:
                note = _changed(path, "since the program began: it goes on with those there are now")
            else:
                continue
            if note not in self.notes:
                self.notes.append(note)

    def changed_meanwhile(self) -> list[Diagnostic]:
        """Return what to say of servers whose tools are others by now than this run has."""
        notes: list[Diagnostic] = []
        for source in self._named:
            mine = self._now.server(source.path)
            if mine is not None and _differs(source, mine):
                notes.append(_changed(source.path, "while the program ran: the next run has the new ones"))
        return notes

    async def _continued(self, given: Mapping[str, Any], module: Mapping[Any, Any]) -> None:
        self.notes = [read_again(one) for one in list_or_empty(given.get(NOTES))]
        self.capabilities = [str(one) for one in list_or_empty(given.get(CAPABILITIES))]
        if limits := mapping_or_empty(given.get(LIMITS)):
            self.limits = RunLimits.of(limits)
        had = mapping_or_empty(module.get("servers"))
        wants_all = module.get("all") is True
        await self._listed(self._wanted([*had], wants_all=wants_all), wants_all=wants_all)

    def _wanted(self, paths: Sequence[str], *, wants_all: bool) -> list[Source]:
        self._named = []
        wanted: list[Source] = []
        for path in paths:
            source = self._servers.at(path)
            if source is not None:
                self._named.append(source)
                if not source.is_current:
                    wanted.append(source)
        if wants_all:
            unlisted = [one for one in self._servers.sources if one.listed is None or one.failure is not None]
            wanted += [one for one in unlisted if not one.is_hung]
        return wanted

    async def _listed(self, wanted: Sequence[Source], *, wants_all: bool) -> None:
        await self._servers.list(wanted)
        await self._servers.put_together()
        self._settle(wants_all=wants_all)

    def _settle(self, *, wants_all: bool) -> None:
        """Let this run have the tools as they are listed now."""
        self._now = self._servers.catalog()
        self.ready_ms = float(now_ms())
        for source in self._named:
            for text in source.notes:
                note = _told(source.path, text)
                if note not in self.notes:
                    self.notes.append(note)
        if wants_all:
            self.notes += [unavailable(one) for one in self._servers.sources if one.failure is not None]


def _differs(source: Source, mine: ListedServer) -> bool:
    """Tell whether a server has other tools than those by now, or says that it will have when it is listed."""
    listed = source.listed
    if listed is not mine and (listed is None or meta_of(listed) != meta_of(mine)):
        return True
    return source.failure is None and not source.is_unchanged


def unavailable(source: Source) -> Diagnostic:
    """Return the warning about a server that could not be listed."""
    message = f'the server "{source.path}" is not available: {source.failure}'
    return diagnostic("warning", "CAPABILITY_UNAVAILABLE", message, hint=WITHOUT_SERVER_HINT)


def _told(path: str, text: str) -> Diagnostic:
    return diagnostic("warning", "TOOLS_CHANGED", f'the server "{path}": {text}', hint="Tell the user of it.")


def _changed(path: str, how: str) -> Diagnostic:
    hint = "Look its tools up again before the next program."
    return diagnostic("info", "TOOLS_CHANGED", f'the tools of the server "{path}" have changed {how}', hint=hint)


_log = logging.getLogger("codemode.tools")
_MAX_SUGGESTIONS = 8
_FEW_TOOLS = 64
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
        library: ProgramLibrary | None = None,
    ) -> None:
        self._library = library
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
                cleared([*of_error(error, self._policy(self._options.limits)), *notes], self._options.secrets), error
            )
        except Exception as error:  # noqa: BLE001 - a model is answered whatever happens
            log_failure(_log, "a run of codemode.run failed", (), error)
            return refused([*notes, _failed(error)], error)

    async def _run(self, request: RunRequest, outer: OuterCall) -> Any:
        notes, capabilities = await self._connect(request) if request.capabilities else (list(request.notes), [])
        limits = request.limits or self._options.limits
        profile = self._profile if request.limits is None else profile_of(limits, self._words)
        # A run of the same text over the very catalog is not compared with it again.
        servers = self._servers
        view = servers.catalog() if servers.is_static else RunView(servers, notes, capabilities, homes=self._homes)
        is_plain = request.limits is None and not notes and not capabilities
        given = None if is_plain else _given(notes, capabilities, request.limits)
        pool = await prepared(self._pool, self._settings)
        settings = self._usual if request.limits is None else self._settings
        tools = with_library(view, self._library, request.code, outer.call, pool)
        execution = load_execution().Execution(profile, tools, settings, outer, pool, given=given)
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
        tools = with_library(view, self._library, None, outer.call, self._pool)
        outcome = await resume_answered(
            self._profile, interrupt, resolution, resolutions, tools, self._settings, outer, self._pool
        )
        return await self._told(outcome, view, view.limits or self._options.limits, view.notes, view.capabilities)

    async def _connect(self, request: RunRequest) -> tuple[list[Diagnostic], list[str]]:
        """List the servers that a request names; return what is to be said of it, and the paths of those there are."""
        notes = list(request.notes)
        if not self._descriptions.is_read:
            await run_check(LARGE_CHARACTERS, self._descriptions.take_as_read)
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
        return response_of(outcome, cleared(said, self._options.secrets), declarations, ready_ms)

    async def _declarations(self, view: RunView | ModuleCatalog, capabilities: Sequence[str]) -> str:
        """Return the declarations of those servers that the model has not read in the description."""
        catalog = view.catalog if isinstance(view, RunView) else view

        named = [one for path in capabilities if (one := catalog.server(path)) is not None]

        def declared() -> str:
            known = self._descriptions.read_of
            # Its tools may be others than those that were read of.
            unread = [one for one in named if fits_in(one, len(known.get(one.path, ""))) != known.get(one.path, "")]
            return declarations_for(unread, self._options.max_declarations_characters)

        # Some tens of microseconds for each tool, unless it was done for an earlier run.
        is_little = all(is_declared(one) for one in named) and sum(len(one.tools) for one in named) <= _FEW_TOOLS
        return await run_check(0 if is_little else LARGE_CHARACTERS, declared)

    def _policy(self, limits: RunLimits) -> ExecutionPolicy:
        return self._settings.under(limits.policy()).execution_policy

    def _find(self, name: str) -> ModuleTool | None:
        return self._servers.catalog().find(name)


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
