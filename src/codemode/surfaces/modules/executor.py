"""Run requests of `codemode.run`: parse, list servers, execute, respond."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...data.narrowing import is_mapping, is_object, is_sequence, list_or_empty, mapping_or_empty
from ...errors import CodeModeError, CodeModeProtocolError, CodeModeToolError, Resumable
from ...execution.call_context import CallContext, OuterCallSettings, call_context_or_empty
from ...execution.outcome_texts import WITHOUT_SERVER_HINT
from ...execution.starting import (
    add_saved_programs_to_catalog,
    get_pool_and_import_execution,
    import_execution_module,
    resume_with_answers,
)
from ...host.clock import now_ms
from ...host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from ...options.parts import CodeModeOptions, ContinuationOptions, ExecutionPolicy
from ...records import record
from ...schemas.compiled import get_json_type_name
from ...source.program_input import rename_program_field
from ...tools.prepared import PreparedTool
from ...trace.failures import log_failure
from .catalog import IMPORT_SERVER, ModuleCatalog, build_meta, parse_module_facts, read_import_path
from .declarations import declare_server_if_fits, declare_servers_within, is_declaration_cached
from .description import DescriptionCache
from .diagnostics import (
    add_language_hint,
    build_diagnostics,
    build_response,
    create_error_fields_builder,
    diagnose_error,
    redact_diagnostics,
)
from .module_tools import ListedServer, ModuleTool
from .options import HOST_NAMES, MIN_VALUES, WIRE_NAMES, RunLimits, RunOptions, create_surface_settings
from .response import (
    Diagnostic,
    build_refusal_response,
    create_diagnostic,
    create_host_failure_diagnostic,
    restore_diagnostic,
)
from .server_set import ServerIdentities, ServerSet
from .servers import ServerWithListing

if TYPE_CHECKING:
    from ...data.program_facts import ProgramFacts
    from ...execution.outcome import RunOutcome
    from ...execution.program_library import ProgramLibrary
    from ...workers.pool import WorkerPool
    from .catalog import ModuleCatalog


_MAX_CAPABILITIES = 1_000
_REQUEST_HINT = 'Send {"code": "<an ES module>"}; limits is an object, requestedCapabilities a list of server ids.'
_ADJUSTED_HINT = "Ask for a whole number within what the description of this tool says."


@record
class RunRequest:
    """A parsed request. ``limits`` None means the defaults; ``notes`` describe adjusted values."""

    code: str
    limits: RunLimits | None
    capabilities: tuple[str, ...]
    notes: tuple[Diagnostic, ...]


def parse_request(value: Any, options: RunOptions) -> RunRequest | list[Diagnostic]:
    """Return the parsed request, or the diagnostics of an invalid one."""
    if is_object(value) and len(value) == 1 and isinstance(code_only := value.get("code"), str):
        return RunRequest(code_only, None, (), ())  # the usual request
    value = rename_program_field(value, "code")
    if not is_mapping(value):
        return [_create_request_problem("", f"the input must be an object, got {get_json_type_name(value)}")]
    code, limits, capabilities = value.get("code"), value.get("limits"), value.get("requestedCapabilities")
    problems: list[Diagnostic] = []
    if not isinstance(code, str):
        problem = "is required" if code is None else f"must be a string, got {get_json_type_name(code)}"
        problems.append(_create_request_problem("/code", f"code {problem}"))
    if limits is not None and not is_mapping(limits):
        problems.append(
            _create_request_problem("/limits", f"limits must be an object, got {get_json_type_name(limits)}")
        )
    problem = None if capabilities is None else _find_capabilities_problem(capabilities)
    if problem is not None:
        problems.append(problem)
    if problems or not isinstance(code, str):
        return problems
    if limits is None and capabilities is None:
        return RunRequest(code, None, (), ())
    requested_limits, notes = _clamp_limits(limits if is_mapping(limits) else {}, options)
    ids = tuple(dict.fromkeys(capabilities)) if capabilities is not None else ()
    return RunRequest(code, requested_limits, ids, tuple(notes))


def _find_capabilities_problem(value: Any) -> Diagnostic | None:
    field = "requestedCapabilities"
    if not is_sequence(value):
        return _create_request_problem(
            f"/{field}", f"{field} must be a list of strings, got {get_json_type_name(value)}"
        )
    if len(value) > _MAX_CAPABILITIES:
        return _create_request_problem(
            f"/{field}", f"{field} has {len(value)} entries; at most {_MAX_CAPABILITIES} are allowed"
        )
    for index, item in enumerate(value):
        if not isinstance(item, str):
            return _create_request_problem(
                f"/{field}/{index}",
                f"{field} must be a list of strings, and entry {index} is {get_json_type_name(item)}",
            )
    return None


def _clamp_limits(requested: Mapping[str, Any], options: RunOptions) -> tuple[RunLimits | None, list[Diagnostic]]:
    """Return the limits (None for the defaults) and notes about adjustments. Unknown keys are ignored."""
    values: dict[str, Any] = {}
    notes: list[Diagnostic] = []
    for option, name in WIRE_NAMES.items():
        if name not in requested:
            continue
        default, maximum = getattr(options.limits, option), getattr(options.ceilings, option)
        number = _to_integer(requested[name])
        value = default if number is None else min(max(number, MIN_VALUES[option]), maximum)
        if value != number:
            notes.append(_create_adjustment_diagnostic(name, requested[name], number, value))
        if value != default:
            values[option] = value
    if not values:
        return None, notes
    return RunLimits(**{option: values.get(option) or getattr(options.limits, option) for option in WIRE_NAMES}), notes


def _to_integer(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if isinstance(value, int) or value.is_integer() else None


def _create_adjustment_diagnostic(name: str, requested: Any, number: int | None, applied: int) -> Diagnostic:
    if number is None:
        message = (
            f"limits.{name} must be a whole number, got {get_json_type_name(requested)}: the default {applied} is used"
        )
    else:
        side = "maximum" if number > applied else "minimum"
        message = f"limits.{name} is {_format_number(number)}: the {side} {applied} is used"
    return create_diagnostic("warning", "LIMIT_ADJUSTED", message, hint=_ADJUSTED_HINT, path=f"/limits/{name}")


def _format_number(number: int) -> str:
    return str(number) if abs(number) < 10**20 else "a number of many digits"


def _create_request_problem(path: str, message: str) -> Diagnostic:
    return create_diagnostic("error", "BAD_REQUEST", message, hint=_REQUEST_HINT, path=path)


NOTES_KEY, CAPABILITIES_KEY, LIMITS_KEY, IDENTITIES_KEY = "notes", "capabilities", "limits", "homes"
"""Keys in the data of an invocation, in addition to the imports of its program."""


class RunCatalog:
    """The tools of one run.

    ``notes``: diagnostics to add to the response. ``capabilities``: server paths that the request named. A pause
    restores both, and ``limits``. ``ready_ms``: when all needed servers were listed.
    """

    paths_named_like_javascript_members: tuple[str, ...] = ()  # programs call what they import

    def __init__(
        self,
        servers: ServerSet,
        notes: Sequence[Diagnostic] = (),
        capabilities: Sequence[str] = (),
        *,
        homes: ServerIdentities | None = None,
    ) -> None:
        self.notes = list(notes)
        self.capabilities = list(capabilities)
        self.limits: RunLimits | None = None
        self.ready_ms = 0.0
        self._servers = servers
        self._identities = homes or ServerIdentities(servers.sources, ContinuationOptions())
        self._named_sources: list[ServerWithListing] = []
        self._current = servers.get_or_build_catalog()

    def __len__(self) -> int:
        return len(self._current)

    def __contains__(self, name: object) -> bool:
        return name in self._current

    def __iter__(self) -> Iterator[str]:
        return iter(self._current)

    @property
    def catalog(self) -> ModuleCatalog:
        """The tools of this run."""
        return self._current

    def names(self) -> tuple[str, ...]:
        """All tool names."""
        return self._current.names()

    @property
    def shared_tools(self) -> ModuleCatalog | None:
        """The tools as last listed, unless invocation data contain notes of this run."""
        return None if self.notes else self._current

    @property
    def may_wait_for_person(self) -> bool:
        """True if a call of some tool can wait for a person."""
        return self._current.may_wait_for_person

    def get(self, name: str) -> PreparedTool | None:
        """Return the tool of exactly this name."""
        return self._current.get(name)

    def tool_not_found_error(self, name: str) -> CodeModeToolError:
        """Return the error for an unknown tool."""
        return self._current.tool_not_found_error(name)

    def answer_query(self, name: str, argument: Any) -> Any:
        """Return the answer to a program's question about its tools. A server imported by it counts as named."""
        if name == IMPORT_SERVER:
            self._name_source_and_add_notes(read_import_path(argument))
        return self._current.answer_query(name, argument)

    def for_invocation(self, invocation_data: Mapping[str, Any] | None) -> RunCatalog:  # noqa: ARG002 - required by `ToolCatalog`
        """Return the catalog itself: it belongs to one run."""
        return self

    def build_invocation_data(self, facts: ProgramFacts | None) -> Mapping[str, Any]:
        """Return the modules that a program imports, and the notes and identities that its pauses store."""
        module = parse_module_facts(facts)
        data = dict(self._current.build_invocation_data(facts))
        if self.notes:
            data[NOTES_KEY] = list(self.notes)
        if (
            identities := self._identities.get_all_digests()
            if module.wants_all
            else self._identities.get_digests(module.paths)
        ):
            data[IDENTITIES_KEY] = identities
        return data

    def find_program_error(self, facts: ProgramFacts | None) -> CodeModeError | None:
        """Return the error that a program certainly has in its imports and calls, or None."""
        return self._current.find_program_error(facts)

    def prepare_for_program(
        self, facts: ProgramFacts | None, invocation_data: Mapping[str, Any] | None
    ) -> Awaitable[None] | None:
        """Return a coroutine that lists servers that the program needs and that are unlisted or changed, or None."""
        module = mapping_or_empty(mapping_or_empty(invocation_data).get("module"))
        if module:
            return self._restore_run_data_and_load_listings(mapping_or_empty(invocation_data), module)
        facts_read = parse_module_facts(facts)
        unlisted = self._set_named_and_select_outdated_sources(facts_read.paths, wants_all=facts_read.wants_all)
        if unlisted:
            return self._load_listings_and_use_tools(unlisted, wants_all=facts_read.wants_all)
        self._use_current_tools_and_add_notes(wants_all=facts_read.wants_all)
        return None

    def check_resumed_program(self, invocation_data: Mapping[str, Any] | None, names: Iterable[str]) -> None:
        """Check that the servers of a resumed program are the same, and note those with changed tools.

        Raises `CodeModeProtocolError` for a different server.
        """
        started_servers = mapping_or_empty(
            mapping_or_empty(mapping_or_empty(invocation_data).get("module")).get("servers")
        )
        stored_identities = mapping_or_empty(mapping_or_empty(invocation_data).get(IDENTITIES_KEY))
        called_servers = {name.partition(".")[0] for name in names}
        self._identities.require_same_servers(stored_identities, {*started_servers, *called_servers})
        for path in sorted(called_servers):
            self._name_source_and_add_notes(path)
        for path, entry in started_servers.items():
            source, server = self._servers.get(path), self._current.get_server(path)
            if source is not None and source.failure is not None:
                note = create_unavailable_server_diagnostic(source)
            elif server is None or build_meta(server) != entry:
                note = _build_tools_changed_note(path, "since the program started: it continues with the current ones")
            else:
                continue
            if note not in self.notes:
                self.notes.append(note)

    def diagnose_tool_changes(self) -> list[Diagnostic]:
        """Return notes about servers whose tools changed during the run."""
        notes: list[Diagnostic] = []
        for source in self._named_sources:
            server_in_use = self._current.get_server(source.path)
            if server_in_use is not None and _have_tools_changed(source, server_in_use):
                notes.append(
                    _build_tools_changed_note(source.path, "while the program ran: the next run uses the new ones")
                )
        return notes

    async def _restore_run_data_and_load_listings(
        self, invocation_data: Mapping[str, Any], module: Mapping[Any, Any]
    ) -> None:
        self.notes = [restore_diagnostic(item) for item in list_or_empty(invocation_data.get(NOTES_KEY))]
        self.capabilities = [str(item) for item in list_or_empty(invocation_data.get(CAPABILITIES_KEY))]
        if limits := mapping_or_empty(invocation_data.get(LIMITS_KEY)):
            self.limits = RunLimits.of(limits)
        started_servers = mapping_or_empty(module.get("servers"))
        wants_all = module.get("all") is True
        await self._load_listings_and_use_tools(
            self._set_named_and_select_outdated_sources([*started_servers], wants_all=wants_all), wants_all=wants_all
        )

    def _set_named_and_select_outdated_sources(
        self, paths: Sequence[str], *, wants_all: bool
    ) -> list[ServerWithListing]:
        self._named_sources = []
        outdated: list[ServerWithListing] = []
        for path in paths:
            source = self._servers.get(path)
            if source is not None:
                self._named_sources.append(source)
                if not source.is_listing_current:
                    outdated.append(source)
        if wants_all:
            missing = [
                missing_source
                for missing_source in self._servers.sources
                if missing_source.listed is None or missing_source.failure is not None
            ]
            outdated += [missing_source for missing_source in missing if not missing_source.is_backing_off]
        return outdated

    async def _load_listings_and_use_tools(self, sources: Sequence[ServerWithListing], *, wants_all: bool) -> None:
        await self._servers.load_listings(sources)
        await self._servers.build_catalog_off_loop()
        self._use_current_tools_and_add_notes(wants_all=wants_all)

    def _use_current_tools_and_add_notes(self, *, wants_all: bool) -> None:
        """Use the tools as currently listed."""
        self._current = self._servers.get_or_build_catalog()
        self.ready_ms = float(now_ms())
        for source in self._named_sources:
            self._add_source_notes(source)
        if wants_all:
            self.notes += [
                create_unavailable_server_diagnostic(failed_source)
                for failed_source in self._servers.sources
                if failed_source.failure is not None
            ]

    def _name_source_and_add_notes(self, path: Any) -> None:
        source = self._servers.get(path) if isinstance(path, str) else None
        if source is not None and source not in self._named_sources:
            self._named_sources.append(source)
            self._add_source_notes(source)

    def _add_source_notes(self, source: ServerWithListing) -> None:
        for text in source.notes:
            note = _build_server_note(source.path, text)
            if note not in self.notes:
                self.notes.append(note)


def _have_tools_changed(source: ServerWithListing, server_in_use: ListedServer) -> bool:
    """Return True if the tools of a server differ from these, or will when it is listed again."""
    listed = source.listed
    if listed is not server_in_use and (listed is None or build_meta(listed) != build_meta(server_in_use)):
        return True
    return source.failure is None and not source.are_tools_unchanged


def create_unavailable_server_diagnostic(source: ServerWithListing) -> Diagnostic:
    """Return the warning about a server that could not be listed."""
    message = f'the server "{source.path}" is not available: {source.failure}'
    return create_diagnostic("warning", "CAPABILITY_UNAVAILABLE", message, hint=WITHOUT_SERVER_HINT)


def _build_server_note(path: str, text: str) -> Diagnostic:
    return create_diagnostic("warning", "TOOLS_CHANGED", f'the server "{path}": {text}', hint="Tell the user.")


def _build_tools_changed_note(path: str, change: str) -> Diagnostic:
    hint = "Look its tools up again before the next program."
    return create_diagnostic(
        "info", "TOOLS_CHANGED", f'the tools of the server "{path}" have changed {change}', hint=hint
    )


_log = logging.getLogger("codemode.tools")
_MAX_SUGGESTIONS = 8
_FEW_TOOLS = 64
_MAX_NAME_CHARACTERS = 100


class ModuleExecutor:
    """Runs modules over a set of servers with the options of one tool. Thread-safe."""

    def __init__(
        self,
        servers: ServerSet,
        description_cache: DescriptionCache,
        homes: ServerIdentities,
        options: RunOptions,
        settings: CodeModeOptions,
        pool: WorkerPool | None,
        library: ProgramLibrary | None = None,
    ) -> None:
        self._library = library
        self._servers = servers
        self._description_cache = description_cache
        self._identities = homes
        self._options = options
        self._pool = pool
        # Limits that a request can set come from it or from the run options.
        policy = settings.execution_policy.with_options_reset(*HOST_NAMES.values())
        self._settings = settings.with_parts(execution_policy=policy)
        self._format_error = create_error_fields_builder(self._find_tool, options.secrets)
        self._profile = create_surface_settings(options.limits, self._format_error)
        # For requests without limits; built once.
        self._default_settings = self._settings.with_default_limits(self._profile.limits)

    async def execute(self, value: Any, call: CallContext | None) -> Any:
        """Return the response to a request, or an `Interrupt`."""
        notes: Sequence[Diagnostic] = ()
        try:
            request = parse_request(value, self._options)
            if not isinstance(request, RunRequest):
                return build_refusal_response(request)
            notes = request.notes
            return await self._run_request(request, _create_outer_call_settings(call))
        except CodeModeError as error:  # nothing of the program ran
            return build_refusal_response(
                redact_diagnostics(
                    [*diagnose_error(error, self._build_policy(self._options.limits)), *notes], self._options.secrets
                ),
                error,
            )
        except Exception as error:  # noqa: BLE001 - the model always gets an answer
            log_failure(_log, "a run of codemode.run failed", (), error)
            return build_refusal_response([*notes, _diagnose_host_failure(error)], error)

    async def _run_request(self, request: RunRequest, outer: OuterCallSettings) -> Any:
        notes, capabilities = (
            await self._load_requested_servers(request) if request.capabilities else (list(request.notes), [])
        )
        limits = request.limits or self._options.limits
        profile = self._profile if request.limits is None else create_surface_settings(limits, self._format_error)
        # The same catalog object avoids checking the same program against it again.
        servers = self._servers
        view = (
            servers.get_or_build_catalog()
            if servers.is_static
            else RunCatalog(servers, notes, capabilities, homes=self._identities)
        )
        is_plain = request.limits is None and not notes and not capabilities
        invocation_data = None if is_plain else _build_invocation_data(notes, capabilities, request.limits)
        pool = await get_pool_and_import_execution(self._pool, self._settings)
        settings = self._default_settings if request.limits is None else self._settings
        tools = add_saved_programs_to_catalog(view, self._library, request.code, outer.call, pool)
        execution = import_execution_module().Execution(
            profile, tools, settings, outer, pool, invocation_data=invocation_data
        )
        outcome = await execution.start(request.code)
        if outcome.error is not None:
            add_language_hint(outcome.error, request.code)
        notes = view.notes if isinstance(view, RunCatalog) else notes
        return await self._build_response_or_interrupt(outcome, view, limits, notes, capabilities)

    async def resume(
        self,
        interrupt: Resumable | Mapping[str, Any],
        resolution: Any,
        resolutions: Mapping[str, Any] | None,
        call: CallContext | None,
    ) -> Any:
        """Resume a program; return what `execute` returns. Raises `CodeModeProtocolError`."""
        catalog, outer = RunCatalog(self._servers, homes=self._identities), _create_outer_call_settings(call)
        tools = add_saved_programs_to_catalog(catalog, self._library, None, outer.call, self._pool)
        outcome = await resume_with_answers(
            self._profile, interrupt, resolution, resolutions, tools, self._settings, outer, self._pool
        )
        return await self._build_response_or_interrupt(
            outcome, catalog, catalog.limits or self._options.limits, catalog.notes, catalog.capabilities
        )

    async def _load_requested_servers(self, request: RunRequest) -> tuple[list[Diagnostic], list[str]]:
        """List the requested servers; return notes about them, and the paths of those available."""
        notes = list(request.notes)
        if not self._description_cache.has_been_read:
            await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, self._description_cache.assume_description_read)
        found = {name: self._servers.find(name) for name in request.capabilities}
        sources = [server_source for server_source in dict.fromkeys(found.values()) if server_source is not None]
        await self._servers.load_listings(
            server_source for server_source in sources if not server_source.is_listing_current
        )
        await self._servers.build_catalog_off_loop()
        if unknown := [name for name, source in found.items() if source is None]:
            notes += await run_in_thread_if_large_or_slow(
                LARGE_CHARACTERS, partial(self._build_missing_server_warnings, unknown)
            )
        notes += [
            create_unavailable_server_diagnostic(server_source)
            for server_source in sources
            if server_source.failure is not None
        ]
        return notes, [server_source.path for server_source in sources if server_source.failure is None]

    def _build_missing_server_warnings(self, names: Sequence[str]) -> list[Diagnostic]:
        """Return warnings about unknown servers, the first of them with suggestions."""
        diagnostics: list[Diagnostic] = []
        for index, name in enumerate(names):
            similar = self._servers.find_similar_paths(name) if index < _MAX_SUGGESTIONS else []
            hint = f"Ask for {' or '.join(similar)}." if similar else "Ask for servers that the description names."
            text = f'there is no server "{name[:_MAX_NAME_CHARACTERS]}"'
            diagnostics.append(create_diagnostic("warning", "CAPABILITY_UNAVAILABLE", text, hint=hint))
        return diagnostics

    async def _build_response_or_interrupt(
        self,
        outcome: RunOutcome,
        view: RunCatalog | ModuleCatalog,
        limits: RunLimits,
        notes: Sequence[Diagnostic],
        capabilities: Sequence[str],
    ) -> Any:
        if outcome.interrupt is not None:
            return outcome.interrupt
        has_notes = outcome.abandoned or outcome.returned_nothing or outcome.warnings or outcome.output_warnings
        if outcome.error is None and not (has_notes or notes or capabilities or isinstance(view, RunCatalog)):
            return build_response(outcome, ())
        policy = self._default_settings.execution_policy if outcome.error is None else self._build_policy(limits)
        diagnostics = [*build_diagnostics(outcome, policy), *notes]
        if isinstance(view, RunCatalog):
            diagnostics += view.diagnose_tool_changes()
        declarations = await self._declare_unread_servers(view, capabilities) if capabilities else ""
        ready_ms = view.ready_ms if isinstance(view, RunCatalog) else 0.0
        return build_response(outcome, redact_diagnostics(diagnostics, self._options.secrets), declarations, ready_ms)

    async def _declare_unread_servers(self, view: RunCatalog | ModuleCatalog, capabilities: Sequence[str]) -> str:
        """Return the declarations of servers that the model has not read in the description."""
        catalog = view.catalog if isinstance(view, RunCatalog) else view

        servers = [server for path in capabilities if (server := catalog.get_server(path)) is not None]

        def declare_unread() -> str:
            known = self._description_cache.known_declarations
            # Its tools may have changed since the description was read.
            unread = [
                server
                for server in servers
                if declare_server_if_fits(server, len(known.get(server.path, ""))) != known.get(server.path, "")
            ]
            return declare_servers_within(unread, self._options.max_declarations_characters)

        # Tens of microseconds per tool unless cached.
        is_little = (
            all(is_declaration_cached(server) for server in servers)
            and sum(len(server.tools) for server in servers) <= _FEW_TOOLS
        )
        return await run_in_thread_if_large_or_slow(0 if is_little else LARGE_CHARACTERS, declare_unread)

    def _build_policy(self, limits: RunLimits) -> ExecutionPolicy:
        return self._settings.with_default_limits(limits.to_policy()).execution_policy

    def _find_tool(self, name: str) -> ModuleTool | None:
        return self._servers.get_or_build_catalog().get_module_tool(name)


def _create_outer_call_settings(call: CallContext | None) -> OuterCallSettings:
    return OuterCallSettings(call=call_context_or_empty(call), is_traced=True)


def _build_invocation_data(
    notes: Sequence[Diagnostic], capabilities: Sequence[str], limits: RunLimits | None
) -> dict[str, Any] | None:
    """Return the data of one invocation, or None."""
    data = {
        NOTES_KEY: notes,
        CAPABILITIES_KEY: capabilities,
        LIMITS_KEY: {} if limits is None else limits.get_non_default_values(),
    }
    return {name: value for name, value in data.items() if value} or None


def _diagnose_host_failure(error: Exception) -> Diagnostic:
    """Return the diagnostic of an error of the host."""
    if isinstance(error, ValueError) and not isinstance(error, CodeModeProtocolError):
        return create_diagnostic("error", "BAD_REQUEST", "the host made this call with invalid arguments")
    return create_host_failure_diagnostic()
