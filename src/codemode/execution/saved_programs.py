"""Send saved programs with an invocation, refuse changed ones, and provide `saved`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ..data.narrowing import list_or_empty, mapping_or_empty
from ..data.similar_names import find_nearest_names, format_suggestion
from ..errors import CodeModeError, CodeModeProtocolError, CodeModeSyntaxError, CodeModeToolError
from ..host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from ..options.checked_fields import WrongTypeError
from ..profile import StaticRules
from ..protocol.ending_errors import make_illegal_access_error, make_syntax_error
from ..records import record
from ..source.rules import find_violations
from ..tools.prepared import PreparedTool
from ..tools.tool import Tool
from ..trace.failures import log_failure
from ..workers.pool import WorkerPool
from .call_context import CallContext
from .program_analysis import replace_imports
from .program_library import (
    MAX_DEPTH,
    MAX_SENT_CHARACTERS,
    MAX_SENT_PROGRAMS,
    ProgramLibrary,
    SavedProgramMentions,
    compute_version_digest,
    describe_tool_changes,
    diff_versions,
    find_saved_program_mentions,
    hash_mentioned_tools,
    index_tool_names,
    make_program_declarations,
    may_mention_saved_programs,
    prepare_saved_program_tool,
    to_renamed_tool,
    to_saved_version,
)

if TYPE_CHECKING:
    from ..data.program_facts import ProgramFacts
    from ..tools.catalog import ToolCatalog

_log = logging.getLogger("codemode.tools")
_PREFIX = "saved."
_SERVER_MODULES = "@codemode/servers/"
_SAVED_MODULE = "@codemode/saved"
_MAX_FOUND = 10
_CHARACTERS_PER_NAME = 50  # of a program, which take as long to search
_SAVE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "description": {"type": ["string", "null"]},
        "inputSchema": {"type": ["object", "null"], "description": "JSON Schema of the program's input."},
        "program": {"type": "string"},
    },
    "required": ["name", "program"],
    "additionalProperties": False,
}
_CONFIRMED_SAVE_SCHEMA: dict[str, Any] = {
    **_SAVE_SCHEMA,
    "properties": {
        **_SAVE_SCHEMA["properties"],
        "tools": {"type": "array", "items": {"type": "string"}},
        "difference": {"type": "string"},
        "replaces": {"type": "integer"},
    },
    "required": ["name", "description", "program", "tools", "difference", "replaces"],
}


def add_saved_programs_to_catalog(
    catalog: ToolCatalog[PreparedTool],
    library: ProgramLibrary,
    js: str | None,
    call: CallContext,
    pool: WorkerPool | None,
    rules: StaticRules | None = None,
) -> ToolCatalog[PreparedTool]:
    """Return the tools of a run with its saved programs; the same tools if it names none.

    ``js`` None: the run resumes with the programs it started with. ``rules`` are those of the calling surface.
    """
    if (js is not None and not may_mention_saved_programs(js)) or defines_saved_namespace(catalog.names()):
        return catalog
    return SavedProgramCatalog(catalog, library, js, call, pool, rules)


def defines_saved_namespace(names: Iterable[str]) -> bool:
    """Return True if the host has tools named `saved`, which replace saved programs."""
    return any(name == "saved" or name.startswith(_PREFIX) for name in names)


def bind_library_unless_shadowed(
    library: ProgramLibrary, tools: ToolCatalog[PreparedTool], names: Iterable[str]
) -> ProgramLibrary | None:
    """Return the library for programs over these tools: None, with a warning, if a namespace has its name."""
    if not isinstance(library, ProgramLibrary):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WrongTypeError(f"library must be a ProgramLibrary, got {library!r:.100}")
    if defines_saved_namespace(names):
        _log.warning("tools in a namespace named `saved` take the place of saved programs: library= has no effect")
        return None
    library.set_tools_for_pins(tools)
    return library


@record
class _SentProgram:
    """A saved program sent with one invocation, and the current state of its tools."""

    program: Any
    tools: Mapping[str, Mapping[str, str]]
    changes: tuple[str, ...]
    mentions: SavedProgramMentions
    rule_error: CodeModeError | None


class SavedProgramCatalog:
    """The tools of one run, and under names that begin with ``saved.`` the functions of `saved`.

    The tool of a saved program validates its input and returns it; the guest then runs the text, which was sent
    with the program and is in its continuation.
    """

    shared_tools = None

    def __init__(
        self,
        inner: ToolCatalog[PreparedTool],
        library: ProgramLibrary,
        js: str | None,
        call: CallContext,
        pool: WorkerPool | None,
        rules: StaticRules | None,
        saved_data: Mapping[str, Any] | None = None,
    ) -> None:
        self._inner = inner
        self._library = library
        self._js = js
        self._call = call
        self._pool = pool
        self._rules = rules
        self._saved_data = saved_data
        self._sent_programs: dict[str, _SentProgram] = {}
        self._programs: dict[str, Any] = {}
        self._error: CodeModeError | None = None
        self._owner = ""
        self._schemas: Mapping[str, Any] = {}
        self._tools: dict[str, PreparedTool] = {}
        self._servers: list[str] = []  # that saved programs import
        self._mentions = SavedProgramMentions((), (), has_computed_names=False)
        if saved_data is not None:
            self._restore_owner_and_input_schemas(saved_data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __len__(self) -> int:
        return len(self._inner)

    def __contains__(self, name: object) -> bool:
        return name in self._inner

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner)

    def names(self) -> tuple[str, ...]:
        """The names of the tools, without saved programs."""
        return self._inner.names()

    @property
    def paths_named_like_javascript_members(self) -> tuple[str, ...]:
        """See `ToolCatalog.paths_named_like_javascript_members`."""
        return self._inner.paths_named_like_javascript_members

    @property
    def may_wait_for_person(self) -> bool:
        """True: calls of saved programs always report their location."""
        return True

    def get(self, name: str) -> PreparedTool | None:
        """Return the tool of exactly this name."""
        if not name.startswith(_PREFIX):
            return self._inner.get(name)
        if (
            name not in self._tools
            and (tool := self._make_tool_of_saved_namespace(name.removeprefix(_PREFIX))) is not None
        ):
            self._tools[name] = tool
        return self._tools.get(name)

    def tool_not_found_error(self, name: str) -> CodeModeToolError:
        """Return the error for an unknown tool or a saved program that may not run."""
        return (
            self._make_unavailable_error(name.removeprefix(_PREFIX))
            if name.startswith(_PREFIX)
            else self._inner.tool_not_found_error(name)
        )

    def answer_query(self, name: str, argument: Any) -> Any:
        """See `ToolCatalog.answer_query`."""
        return self._inner.answer_query(name, argument)

    def for_invocation(self, invocation_data: Mapping[str, Any] | None) -> SavedProgramCatalog:
        """Return the tools of an invocation with this data: after a pause with the programs it started with."""
        inner = self._inner.for_invocation(invocation_data)
        saved = mapping_or_empty(invocation_data).get("saved")
        if self._js is not None and inner is self._inner:
            return self
        return SavedProgramCatalog(inner, self._library, self._js, self._call, self._pool, self._rules, saved)

    def build_invocation_data(self, facts: ProgramFacts | None) -> Mapping[str, Any] | None:
        """Return the invocation data of a program, including the texts of its saved programs."""
        catalog_data = self._inner.build_invocation_data(self._merge_facts_of_saved_programs(facts)) or {}
        programs = {
            name: {"js": body["js"], "number": number, "version": sent.program.current.version}
            | {"inputSchema": body["input_schema"]}
            for number, (name, sent) in enumerate(self._list_usable_programs())
            for body in (sent.program.current.body,)
        }
        return {**catalog_data, "saved": {"owner": self._owner, "programs": programs}}

    def find_program_error(self, facts: ProgramFacts | None) -> CodeModeError | None:
        """Return the certain problems of a program and of the saved programs that it names."""
        if self._error is None:
            self._error = self._find_missing_import_error(facts) or self._find_first_refusal_error()
        return self._error or self._inner.find_program_error(self._remove_saved_imports(facts))

    def prepare_for_program(
        self, facts: ProgramFacts | None, invocation_data: Mapping[str, Any] | None
    ) -> Awaitable[None] | None:
        """Read the saved programs, then prepare the tools."""
        if self._saved_data is not None or self._js is None:
            return self._inner.prepare_for_program(facts, invocation_data)
        return self._load_programs_prepare_and_record_pins(facts, invocation_data)

    def check_resumed_program(self, invocation_data: Mapping[str, Any] | None, names: Iterable[str]) -> None:
        """See `ToolCatalog.check_resumed_program`."""
        owner = self._library.owner
        if self._saved_data is not None and isinstance(owner, str) and owner != self._owner:
            raise CodeModeProtocolError(
                "this invocation began with the saved programs of another owner", details={"not_resumable": True}
            )
        self._inner.check_resumed_program(invocation_data, [name for name in names if not name.startswith(_PREFIX)])

    # -- before the program runs

    async def _load_programs_prepare_and_record_pins(
        self, facts: ProgramFacts | None, invocation_data: Mapping[str, Any] | None
    ) -> None:
        try:
            self._owner = self._library.get_owner_of_call(self._call)
            self._programs = {program.name: program for program in await self._library.refresh(self._owner)}
        except CodeModeError as error:
            self._error = CodeModeToolError(f"saved programs cannot be read now: {error.message}")
        except Exception as error:  # noqa: BLE001 - `owner` is host code
            log_failure(_log, "the owner of saved programs is not known", (), error)
            self._error = CodeModeToolError("saved programs cannot be read now")
        weight = len(self._js or "") + sum(len(program.current.body["program"]) for program in self._programs.values())
        selected = await run_in_thread_if_large_or_slow(weight, self._select_programs_and_note_imports)
        preparation = self._inner.prepare_for_program(self._add_server_imports(facts), invocation_data)
        if preparation is not None:
            await preparation
        weight += _CHARACTERS_PER_NAME * len(self._inner)
        self._sent_programs = await run_in_thread_if_large_or_slow(weight, partial(self._make_sent_programs, selected))
        await self._record_changes_and_pins()
        self._schemas = {name: sent.program.current.body["input_schema"] for name, sent in self._list_usable_programs()}

    def _select_programs_and_note_imports(self) -> list[Any]:
        """Return the programs to send: named ones and those they name; all if names are computed."""
        mentions = self._mentions = find_saved_program_mentions(self._js or "")
        selected: dict[str, Any] = {}
        pending = list(mentions.names)
        has_computed_names = mentions.has_computed_names
        while pending:
            name = pending.pop()
            stored = self._programs.get(name)
            if stored is None or name in selected:
                continue
            selected[name] = stored
            mentions_inside = find_saved_program_mentions(stored.current.body["program"])
            pending += mentions_inside.names
            has_computed_names = has_computed_names or mentions_inside.has_computed_names
        if has_computed_names:
            selected |= {name: program for name, program in self._programs.items() if name not in selected}
        remaining, sent = MAX_SENT_CHARACTERS, list[Any]()
        for stored in list(selected.values())[:MAX_SENT_PROGRAMS]:  # named ones first, then the most used
            remaining -= len(stored.current.body["js"])
            if remaining >= 0:
                sent.append(stored)
        self._servers = sorted(
            {path for program in sent for path in _iter_server_paths(program.current.body["program"])}
        )
        return sent

    def _make_sent_programs(self, selected: Iterable[Any]) -> dict[str, _SentProgram]:
        names = index_tool_names(self._inner)
        return {stored.name: self._make_sent_program(stored, names) for stored in selected}

    def _make_sent_program(self, stored: Any, names: Mapping[str, list[str]]) -> _SentProgram:
        body, version = stored.current.body, stored.current
        tools = hash_mentioned_tools(body["program"], self._inner, names)
        changes = [] if version.tools is None else describe_tool_changes(version.tools, tools)
        if compute_version_digest(body) != body.get("digest"):
            changes.insert(0, "its text in the store has changed")
        return _SentProgram(
            stored,
            tools,
            tuple(changes),
            find_saved_program_mentions(body["program"]),
            self._find_rule_error(stored.name, body),
        )

    def _find_rule_error(self, name: str, body: Mapping[str, Any]) -> CodeModeError | None:
        """Return the error of a program that breaks rules of the calling surface."""
        if self._rules is None or not self._rules.refuses_unanalysed:
            return None
        violations_found = find_violations(body["facts"], self._rules, replace_imports(body["program"]))
        if not violations_found:
            return None
        error = make_illegal_access_error(violations_found)
        error.message = f"saved.{name}: {error.message}"
        return error

    def _list_usable_programs(self) -> list[tuple[str, _SentProgram]]:
        return [
            (name, sent)
            for name, sent in self._sent_programs.items()
            if not (sent.changes or sent.program.is_disabled or sent.rule_error is not None)
        ]

    async def _record_changes_and_pins(self) -> None:
        """Record changes in the store for confirmation, and pin first uses."""
        rows, owner = self._library.rows, self._owner
        stale_by_name: dict[str, Any] = {}
        for name, sent in self._sent_programs.items():
            if sent.changes:
                version = sent.program.current.version
                stale = {"version": version, "changes": list(sent.changes), "tools": sent.tools}
                if sent.program.stale != stale:
                    stale_by_name[name] = stale
            elif sent.program.stale is not None:
                stale_by_name[name] = None
        first_uses = [
            (name, sent.program.current.version, sent.tools)
            for name, sent in self._list_usable_programs()
            if sent.program.current.tools is None
        ]
        try:
            if stale_by_name:
                await rows.record_stale_reasons(owner, stale_by_name)
            if first_uses:
                await rows.pin_tool_digests(owner, first_uses)
        except CodeModeError as error:
            log_failure(_log, "a store could not record changes of its saved programs", (), error)
            if first_uses:  # an unpinned program is not trusted
                self._error = CodeModeToolError(f"saved programs cannot be read now: {error.message}")

    def _find_missing_import_error(self, facts: Any) -> CodeModeError | None:
        """Return the error and position of an import of an unknown saved program."""
        module = mapping_or_empty(mapping_or_empty(facts).get("module"))
        imports = map(mapping_or_empty, list_or_empty(module.get("imports")))
        import_fact: Mapping[Any, Any] = next(
            (fact for fact in imports if fact.get("from") == _SAVED_MODULE), mapping_or_empty(None)
        )
        for name in self._mentions.imported_names:
            if name not in self._programs:
                position = {
                    key: value if type(value := import_fact.get(key)) is int else 1 for key in ("line", "column")
                }
                hint = "Find saved programs with saved.$search(words)."
                problem: Any = {
                    "code": "IMPORT_FAILURE",
                    "message": self._make_unavailable_error(name).message,
                    "hint": hint,
                    **position,
                }
                return make_syntax_error([problem])
        return None

    def _find_first_refusal_error(self) -> CodeModeError | None:
        seen: set[tuple[str, int]] = set()
        for name in self._mentions.names:
            error = self._find_refusal_error(name, (), seen)
            if error is not None:
                return error
        return None

    def _find_refusal_error(
        self, name: str, chain: tuple[str, ...], seen: set[tuple[str, int]]
    ) -> CodeModeError | None:
        path = " calls ".join(f"saved.{member}" for member in (*chain, name))
        if name in chain:
            return make_syntax_error([{"message": f"saved programs in a cycle: {path}", "line": 1, "column": 1}])
        if len(chain) >= MAX_DEPTH:
            message = f"saved programs call each other deeper than {MAX_DEPTH}: {path}"
            return make_syntax_error([{"message": message, "line": 1, "column": 1}])
        if (name, len(chain)) in seen:
            return None
        seen.add((name, len(chain)))
        sent = self._sent_programs.get(name)
        if name not in self._programs and not chain:
            return None  # `saved` may be a name of the program; else the call fails on the host
        if sent is None or sent.changes or sent.program.is_disabled:
            return self._make_unavailable_error(name)
        if sent.rule_error is not None:
            return sent.rule_error
        for inner_name in sent.mentions.names:
            error = self._find_refusal_error(inner_name, (*chain, name), seen)
            if error is not None:
                return error
        return None

    def _make_unavailable_error(self, name: str) -> CodeModeToolError:
        stored, sent = self._programs.get(name), self._sent_programs.get(name)
        reason = None
        if name in ("$save", "$prepare"):
            text = "programs cannot save programs here: the host has not allowed it"
        elif stored is None:
            similar_names = find_nearest_names(name[:100], self._programs)
            suggestions = [f"saved.{similar}" for similar in similar_names]
            text = f"there is no saved program {name[:100]!r}.{format_suggestion(suggestions)}"
            reason = "unknown_tool"
        elif stored.is_disabled:
            text = f"saved.{name} is disabled"
        elif sent is not None and sent.changes:
            text = (
                f"saved.{name} is stale and does not run until a person confirms it:"
                f" {'; '.join(sent.changes)} since version {stored.current.version} was saved"
            )
        elif sent is not None and sent.rule_error is not None:
            text = sent.rule_error.message
        else:
            text = f"saved.{name} was not sent with this program: write its name in it, as in saved.{name}(input)"
        error = CodeModeToolError(text, details={"tool_name": _PREFIX + name[:100]})
        if reason is not None:
            error.reason = reason
        return error

    # -- facts of saved programs, added to those of the program

    def _merge_facts_of_saved_programs(self, facts: Any) -> Any:
        facts = self._add_server_imports(facts)
        names = mapping_or_empty(facts).get("names")
        if not names:
            return facts
        bodies = [sent.program.current.body["facts"] for _, sent in self._list_usable_programs()]
        definitions = [
            name for names_in_bodies in (facts, *bodies) for name in list_or_empty(names_in_bodies.get("definitions"))
        ]
        names_in_bodies = {name: at for body in bodies for name, at in mapping_or_empty(body.get("names")).items()}
        return {**facts, "names": {**names_in_bodies, **names}, "definitions": definitions}

    def _add_server_imports(self, facts: Any) -> Any:
        """Return the facts of a module with the server imports of its saved programs."""
        module = mapping_or_empty(mapping_or_empty(facts).get("module"))
        if not module or not self._servers:
            return facts
        dynamic = [*list_or_empty(module.get("dynamic")), *({"from": _SERVER_MODULES + path} for path in self._servers)]
        return {**facts, "module": {**module, "dynamic": dynamic}}

    def _remove_saved_imports(self, facts: Any) -> Any:
        """Return the facts of a module without its imports of saved programs, which are checked here."""
        module = mapping_or_empty(mapping_or_empty(facts).get("module"))
        if not module:
            return facts
        imports = [
            fact for fact in list_or_empty(module.get("imports")) if mapping_or_empty(fact).get("from") != _SAVED_MODULE
        ]
        calls = [
            fact
            for fact in list_or_empty(module.get("namespace_calls"))
            if mapping_or_empty(fact).get("from") != _SAVED_MODULE
        ]
        return {**facts, "module": {**module, "imports": imports, "namespace_calls": calls}}

    # -- the functions of `saved` at run time

    def _restore_owner_and_input_schemas(self, saved_data: Mapping[str, Any]) -> None:
        """Restore the saved programs of a resumed invocation."""
        self._owner = str(saved_data.get("owner", ""))
        programs = mapping_or_empty(saved_data.get("programs"))
        self._schemas = {name: mapping_or_empty(body).get("inputSchema") for name, body in programs.items()}

    def _make_tool_of_saved_namespace(self, name: str) -> PreparedTool | None:
        if name in self._schemas:
            return prepare_saved_program_tool(
                name, self._schemas[name], partial(self._count_use_and_return_input, name)
            )
        if name == "$search":
            return _make_library_function_tool(name, self._search_saved_programs, {"type": "string"})
        if name == "$prepare" and self._library.model_saves:
            return _make_library_function_tool("$save", self._preview_save, _SAVE_SCHEMA)
        if name == "$save" and self._library.model_saves:
            return _make_library_function_tool(
                name, self._save_program, _CONFIRMED_SAVE_SCHEMA, self._needs_approval_after_preview_check
            )
        return None

    async def _count_use_and_return_input(self, name: str, value: Any) -> Any:
        """Return the validated input of a saved program to the guest, and count the use."""
        try:
            await self._library.rows.count_use(self._owner, name)
        except CodeModeError as error:  # a failed count must not fail the call
            log_failure(_log, f"the use of saved.{name} was not counted", (), error)
        return value

    async def _search_saved_programs(self, query: Any) -> list[dict[str, str]]:
        from ..tools.search.index import ToolIndex  # late: few programs search

        programs = await self._library.refresh(self._owner)
        usable = [program for program in programs if not program.is_disabled and program.stale is None]
        index = ToolIndex([(program.name, to_renamed_tool(program)) for program in usable])
        matches = [usable[position] for position, _ in index.search(query, _MAX_FOUND)]
        return [
            {
                "name": program.name,
                "description": program.current.body["description"],
                "declaration": make_program_declarations([program])[0],
            }
            for program in matches
        ]

    async def _preview_save(self, request: Any) -> dict[str, Any]:
        """Return the preview of a program to save, for the approver."""
        displayed, _ = await self._make_save_preview_and_row(request)
        return displayed

    async def _make_save_preview_and_row(self, request: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        name, description, schema = request["name"], request.get("description") or "", request.get("inputSchema")
        try:
            body = await self._library.prepare_version(name, request["program"], description, schema, self._pool)
        except ValueError as error:
            raise CodeModeToolError(str(error)) from error
        except CodeModeSyntaxError as error:  # its position is in the text to save, not in the program that saves it
            raise CodeModeSyntaxError(error.message) from error
        current = next((program for program in await self._library.refresh(self._owner) if program.name == name), None)
        previous = None if current is None else to_saved_version(name, current.current)
        unsaved: Any = _UnsavedVersion(0 if previous is None else previous.version + 1, body)
        displayed = {
            "name": name,
            "description": description,
            "inputSchema": body["input_schema"],
            "program": request["program"],
            "tools": sorted(hash_mentioned_tools(request["program"], self._inner)),
            "difference": await run_in_thread_if_large_or_slow(
                LARGE_CHARACTERS, lambda: diff_versions(previous, to_saved_version(name, unsaved))
            ),
            "replaces": 0 if previous is None else previous.version,
        }
        return displayed, body

    async def _needs_approval_after_preview_check(self, request: Any) -> bool:
        """Return True: a person is asked. Raises `CodeModeToolError` if the preview would be wrong."""
        displayed, _ = await self._make_save_preview_and_row(request)
        if displayed != {"inputSchema": None, **request}:
            raise CodeModeToolError("saved.$save: the preview does not match the program")
        return True

    async def _save_program(self, request: Any) -> dict[str, Any]:
        _, body = await self._make_save_preview_and_row(request)
        body |= {"by": "model", "created_from": self._call.tool_call_id}
        try:
            version = await self._library.store_version(
                self._owner, request["name"], body, request["replaces"], self._inner
            )
        except ValueError as error:
            raise CodeModeToolError(str(error)) from error
        return {"name": version.name, "version": version.version}


@record
class _UnsavedVersion:
    """A version that is not saved yet."""

    version: int
    body: Mapping[str, Any]
    saved_at_ms: int = 0
    tools: None = None
    confirmed_by: None = None
    confirmed_at_ms: None = None


def _make_library_function_tool(
    name: str, execute: Any, schema: dict[str, Any], needs_approval: Any = False
) -> PreparedTool:
    changes_nothing = {"readOnlyHint": needs_approval is False}
    return PreparedTool(
        Tool(
            _PREFIX + name,
            execute=execute,
            input_schema=schema,
            needs_approval=needs_approval,
            annotations=changes_nothing,
        )
    )


def _iter_server_paths(program: str) -> Iterator[str]:
    for part in program.split(_SERVER_MODULES)[1:]:
        path = part.split('"')[0].split("'")[0]
        if len(path) < 256 and path.isprintable():
            yield path


__all__ = ["SavedProgramCatalog", "add_saved_programs_to_catalog", "bind_library_unless_shadowed"]
