"""Let one invocation call saved programs: which go along, why one is refused, and the tools behind `saved`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ..data.narrowing import list_or_empty, mapping_or_empty
from ..data.similar_names import find_nearest_names, format_suggestion
from ..errors import CodeModeError, CodeModeProtocolError, CodeModeSyntaxError, CodeModeToolError
from ..host.threads import LARGE_CHARACTERS, run_check
from ..options.checked_fields import WrongTypeError
from ..profile import StaticRules
from ..protocol.ending_errors import illegal_access_error, syntax_error
from ..records import record
from ..source.rules import find_violations
from ..tools.prepared import PreparedTool
from ..tools.tool import Tool
from ..trace.failures import log_failure
from ..workers.pool import WorkerPool
from .call_context import CallContext
from .program_analysis import without_imports
from .program_library import (
    MAX_DEPTH,
    MAX_SENT,
    MAX_SENT_CHARACTERS,
    Mentions,
    ProgramLibrary,
    changes_of,
    declarations,
    described,
    difference,
    digest_of,
    may_mention,
    mentions_of,
    names_by_said,
    tools_named,
    validator_of,
    version_of,
)

if TYPE_CHECKING:
    from ..data.program_facts import Facts
    from ..tools.catalog import ToolCatalog

_log = logging.getLogger("codemode.tools")
_PREFIX = "saved."
_SERVERS = "@codemode/servers/"
_MODULE = "@codemode/saved"
_MAX_FOUND = 10
_CHARACTERS_OF_A_NAME = 50  # of a program, which take as long to look through
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
_SHOWN_SCHEMA: dict[str, Any] = {
    **_SAVE_SCHEMA,
    "properties": {
        **_SAVE_SCHEMA["properties"],
        "tools": {"type": "array", "items": {"type": "string"}},
        "difference": {"type": "string"},
        "replaces": {"type": "integer"},
    },
    "required": ["name", "description", "program", "tools", "difference", "replaces"],
}


def with_library(
    catalog: ToolCatalog[PreparedTool],
    library: ProgramLibrary,
    js: str | None,
    call: CallContext,
    pool: WorkerPool | None,
    rules: StaticRules | None = None,
) -> ToolCatalog[PreparedTool]:
    """Return the tools of a run with the saved programs that it may call; the same where it names none.

    ``js`` None: it goes on after a pause, with those it began with. ``rules`` are those of the calling surface.
    """
    if (js is not None and not may_mention(js)) or has_own_saved(catalog.names()):
        return catalog
    return SavedCatalog(catalog, library, js, call, pool, rules)


def has_own_saved(names: Iterable[str]) -> bool:
    """Tell whether tools of the host's are called `saved`: then programs have no saved programs."""
    return any(name == "saved" or name.startswith(_PREFIX) for name in names)


def attach(library: ProgramLibrary, tools: ToolCatalog[PreparedTool], names: Iterable[str]) -> ProgramLibrary | None:
    """Return the library that programs over these tools have: None, with a warning, where a namespace has its name."""
    if not isinstance(library, ProgramLibrary):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WrongTypeError(f"library must be a ProgramLibrary, got {library!r:.100}")
    if has_own_saved(names):
        _log.warning("tools in a namespace named `saved` take the place of saved programs: library= has no effect")
        return None
    library.attach(tools)
    return library


@record
class _Sent:
    """A saved program that goes along with one invocation, and how its tools are now."""

    stored: Any
    tools: Mapping[str, Mapping[str, str]]
    changes: tuple[str, ...]
    mentions: Mentions
    broken: CodeModeError | None


class SavedCatalog:
    """The tools of one run and, by names that begin with ``saved.``, what is behind `saved` in its program.

    A saved program has a tool that validates its input and returns it; the guest then runs the text, which went along
    with the program and stays in its continuation.
    """

    def __init__(
        self,
        inner: ToolCatalog[PreparedTool],
        library: ProgramLibrary,
        js: str | None,
        call: CallContext,
        pool: WorkerPool | None,
        rules: StaticRules | None,
        given: Mapping[str, Any] | None = None,
    ) -> None:
        self._inner = inner
        self._library = library
        self._js = js
        self._call = call
        self._pool = pool
        self._rules = rules
        self._given = given
        self._sent: dict[str, _Sent] = {}
        self._all: dict[str, Any] = {}
        self._problem: CodeModeError | None = None
        self._owner = ""
        self._schemas: Mapping[str, Any] = {}
        self._tools: dict[str, PreparedTool] = {}
        self._servers: list[str] = []  # that saved programs import
        self._mentions = Mentions((), (), is_open=False)
        if given is not None:
            self._take(given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __len__(self) -> int:
        return len(self._inner)

    def __contains__(self, name: object) -> bool:
        return name in self._inner

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner)

    def names(self) -> tuple[str, ...]:
        """The names of the tools; saved programs are none."""
        return self._inner.names()

    @property
    def language_names(self) -> tuple[str, ...]:
        """See `ToolCatalog.language_names`."""
        return self._inner.language_names

    @property
    def may_ask(self) -> bool:
        """Whether calls say where they are made: those of saved programs always do."""
        return True

    def get(self, name: str) -> PreparedTool | None:
        """Return the tool of exactly this name."""
        if not name.startswith(_PREFIX):
            return self._inner.get(name)
        if name not in self._tools and (made := self._made(name.removeprefix(_PREFIX))) is not None:
            self._tools[name] = made
        return self._tools.get(name)

    def unknown_tool(self, name: str) -> CodeModeToolError:
        """Return the error for a name that leads to no tool, or to no saved program that may run."""
        return self._why_not(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else self._inner.unknown_tool(name)

    def ask(self, name: str, argument: Any) -> Any:
        """See `ToolCatalog.ask`."""
        return self._inner.ask(name, argument)

    def for_invocation(self, given: Mapping[str, Any] | None) -> SavedCatalog:
        """Return the tools of an invocation that was given this: after a pause with the programs it began with."""
        inner = self._inner.for_invocation(given)
        saved = mapping_or_empty(given).get("saved")
        if self._js is not None and inner is self._inner:
            return self
        return SavedCatalog(inner, self._library, self._js, self._call, self._pool, self._rules, saved)

    def invocation_data_for(self, facts: Facts | None) -> Mapping[str, Any] | None:
        """Return what a program is given: the texts of its saved programs too."""
        given = self._inner.invocation_data_for(self._with_all_said(facts)) or {}
        programs = {
            name: {"js": body["js"], "number": number, "version": one.stored.current.version}
            | {"inputSchema": body["input_schema"]}
            for number, (name, one) in enumerate(self._usable())
            for body in (one.stored.current.body,)
        }
        return {**given, "saved": {"owner": self._owner, "programs": programs}}

    def refusal(self, facts: Facts | None) -> CodeModeError | None:
        """Return what is certainly wrong with the saved programs that a program names, or with itself."""
        if self._problem is None:
            self._problem = self._unknown_import(facts) or self._refused()
        return self._problem or self._inner.refusal(self._without_saved(facts))

    def preparation(self, facts: Facts | None, given: Mapping[str, Any] | None) -> Awaitable[None] | None:
        """Read the saved programs, then do what the tools themselves have to do."""
        if self._given is not None or self._js is None:
            return self._inner.preparation(facts, given)
        return self._prepare(facts, given)

    def check_resumed(self, given: Mapping[str, Any] | None, names: Iterable[str]) -> None:
        """See `ToolCatalog.going_on`."""
        owner = self._library.owner
        if self._given is not None and isinstance(owner, str) and owner != self._owner:
            raise CodeModeProtocolError(
                "this invocation began with the saved programs of another owner", details={"not_resumable": True}
            )
        self._inner.check_resumed(given, [name for name in names if not name.startswith(_PREFIX)])

    # -- before the program runs

    async def _prepare(self, facts: Facts | None, given: Mapping[str, Any] | None) -> None:
        try:
            self._owner = self._library.owner_of(self._call)
            self._all = {one.name: one for one in await self._library.refresh(self._owner)}
        except CodeModeError as error:
            self._problem = CodeModeToolError(f"saved programs cannot be read now: {error.message}")
        except Exception as error:  # noqa: BLE001 - `owner` is host code
            log_failure(_log, "the owner of saved programs is not known", (), error)
            self._problem = CodeModeToolError("saved programs cannot be read now")
        weight = len(self._js or "") + sum(len(one.current.body["program"]) for one in self._all.values())
        chosen = await run_check(weight, self._chosen)
        doing = self._inner.preparation(self._with_servers(facts), given)
        if doing is not None:
            await doing
        weight += _CHARACTERS_OF_A_NAME * len(self._inner)
        self._sent = await run_check(weight, partial(self._looked_at, chosen))
        await self._note_changes()
        self._schemas = {name: one.stored.current.body["input_schema"] for name, one in self._usable()}

    def _chosen(self) -> list[Any]:
        """Return the programs that go along: the named ones and what they name; all where names are computed."""
        mentions = self._mentions = mentions_of(self._js or "")
        chosen: dict[str, Any] = {}
        pending = list(mentions.certain)
        is_open = mentions.is_open
        while pending:
            name = pending.pop()
            stored = self._all.get(name)
            if stored is None or name in chosen:
                continue
            chosen[name] = stored
            inner = mentions_of(stored.current.body["program"])
            pending += inner.certain
            is_open = is_open or inner.is_open
        if is_open:
            chosen |= {name: one for name, one in self._all.items() if name not in chosen}
        left, sent = MAX_SENT_CHARACTERS, list[Any]()
        for stored in list(chosen.values())[:MAX_SENT]:  # those that are named first, then the most used
            left -= len(stored.current.body["js"])
            if left >= 0:
                sent.append(stored)
        self._servers = sorted({path for one in sent for path in _servers_of(one.current.body["program"])})
        return sent

    def _looked_at(self, chosen: Iterable[Any]) -> dict[str, _Sent]:
        names = names_by_said(self._inner)
        return {stored.name: self._compared(stored, names) for stored in chosen}

    def _compared(self, stored: Any, names: Mapping[str, list[str]]) -> _Sent:
        body, version = stored.current.body, stored.current
        tools = tools_named(body["program"], self._inner, names)
        changes = [] if version.tools is None else changes_of(version.tools, tools)
        if digest_of(body) != body.get("digest"):
            changes.insert(0, "its text in the store has changed")
        return _Sent(stored, tools, tuple(changes), mentions_of(body["program"]), self._broken(stored.name, body))

    def _broken(self, name: str, body: Mapping[str, Any]) -> CodeModeError | None:
        """Return the error of a program that breaks rules of the calling surface."""
        if self._rules is None or not self._rules.is_in_force:
            return None
        broken = find_violations(body["facts"], self._rules, without_imports(body["program"]))
        if not broken:
            return None
        error = illegal_access_error(broken)
        error.message = f"saved.{name}: {error.message}"
        return error

    def _usable(self) -> list[tuple[str, _Sent]]:
        return [
            (name, one)
            for name, one in self._sent.items()
            if not (one.changes or one.stored.is_disabled or one.broken is not None)
        ]

    async def _note_changes(self) -> None:
        """Tell the store what has changed, for whoever confirms it, and pin first uses."""
        rows, owner = self._library.rows, self._owner
        noted: dict[str, Any] = {}
        for name, one in self._sent.items():
            if one.changes:
                version = one.stored.current.version
                said = {"version": version, "changes": list(one.changes), "tools": one.tools}
                if one.stored.stale != said:
                    noted[name] = said
            elif one.stored.stale is not None:
                noted[name] = None
        first = [
            (name, one.stored.current.version, one.tools)
            for name, one in self._usable()
            if one.stored.current.tools is None
        ]
        try:
            if noted:
                await rows.note_stale(owner, noted)
            if first:
                await rows.pin(owner, first)
        except CodeModeError as error:
            log_failure(_log, "a store does not take notice of its saved programs", (), error)
            if first:  # what is not pinned is not trusted
                self._problem = CodeModeToolError(f"saved programs cannot be read now: {error.message}")

    def _unknown_import(self, facts: Any) -> CodeModeError | None:
        """Return the error of a module that imports what was not saved, with its place."""
        module = mapping_or_empty(mapping_or_empty(facts).get("module"))
        imports = map(mapping_or_empty, list_or_empty(module.get("imports")))
        at: Mapping[Any, Any] = next((one for one in imports if one.get("from") == _MODULE), mapping_or_empty(None))
        for name in self._mentions.imported:
            if name not in self._all:
                place = {key: value if type(value := at.get(key)) is int else 1 for key in ("line", "column")}
                hint = "Find saved programs with saved.$search(words)."
                problem: Any = {"code": "IMPORT_FAILURE", "message": self._why_not(name).message, "hint": hint, **place}
                return syntax_error([problem])
        return None

    def _refused(self) -> CodeModeError | None:
        seen: set[tuple[str, int]] = set()
        for name in self._mentions.certain:
            error = self._refusal_of(name, (), seen)
            if error is not None:
                return error
        return None

    def _refusal_of(self, name: str, chain: tuple[str, ...], seen: set[tuple[str, int]]) -> CodeModeError | None:
        path = " calls ".join(f"saved.{one}" for one in (*chain, name))
        if name in chain:
            return syntax_error([{"message": f"saved programs in a cycle: {path}", "line": 1, "column": 1}])
        if len(chain) >= MAX_DEPTH:
            message = f"saved programs call each other deeper than {MAX_DEPTH}: {path}"
            return syntax_error([{"message": message, "line": 1, "column": 1}])
        if (name, len(chain)) in seen:
            return None
        seen.add((name, len(chain)))
        sent = self._sent.get(name)
        if name not in self._all and not chain:
            return None  # `saved` may be the program's own; else the host says so when it is called
        if sent is None or sent.changes or sent.stored.is_disabled:
            return self._why_not(name)
        if sent.broken is not None:
            return sent.broken
        for inner in sent.mentions.certain:
            error = self._refusal_of(inner, (*chain, name), seen)
            if error is not None:
                return error
        return None

    def _why_not(self, name: str) -> CodeModeToolError:
        stored, sent = self._all.get(name), self._sent.get(name)
        reason = None
        if name in ("$save", "$prepare"):
            text = "programs cannot save programs here: the host has not allowed it"
        elif stored is None:
            near = find_nearest_names(name[:100], self._all)
            text = f"there is no saved program {name[:100]!r}.{format_suggestion([f'saved.{one}' for one in near])}"
            reason = "unknown_tool"
        elif stored.is_disabled:
            text = f"saved.{name} is disabled"
        elif sent is not None and sent.changes:
            text = (
                f"saved.{name} is stale and does not run until a person confirms it:"
                f" {'; '.join(sent.changes)} since version {stored.current.version} was saved"
            )
        elif sent is not None and sent.broken is not None:
            text = sent.broken.message
        else:
            text = f"saved.{name} did not go along with this program: write its name in it, as in saved.{name}(input)"
        error = CodeModeToolError(text, details={"tool_name": _PREFIX + name[:100]})
        if reason is not None:
            error.reason = reason
        return error

    # -- what saved programs say and import, as if the program itself did

    def _with_all_said(self, facts: Any) -> Any:
        facts = self._with_servers(facts)
        names = mapping_or_empty(facts).get("names")
        if not names:
            return facts
        bodies = [one.stored.current.body["facts"] for _, one in self._usable()]
        definitions = [name for said in (facts, *bodies) for name in list_or_empty(said.get("definitions"))]
        said = {name: at for body in bodies for name, at in mapping_or_empty(body.get("names")).items()}
        return {**facts, "names": {**said, **names}, "definitions": definitions}

    def _with_servers(self, facts: Any) -> Any:
        """Return the facts of a module as if it imported what its saved programs import."""
        module = mapping_or_empty(mapping_or_empty(facts).get("module"))
        if not module or not self._servers:
            return facts
        dynamic = [*list_or_empty(module.get("dynamic")), *({"from": _SERVERS + path} for path in self._servers)]
        return {**facts, "module": {**module, "dynamic": dynamic}}

    def _without_saved(self, facts: Any) -> Any:
        """Return the facts of a module without its import of saved programs, which this class has looked at."""
        module = mapping_or_empty(mapping_or_empty(facts).get("module"))
        if not module:
            return facts
        imports = [one for one in list_or_empty(module.get("imports")) if mapping_or_empty(one).get("from") != _MODULE]
        calls = [
            one for one in list_or_empty(module.get("namespace_calls")) if mapping_or_empty(one).get("from") != _MODULE
        ]
        return {**facts, "module": {**module, "imports": imports, "namespace_calls": calls}}

    # -- what is behind `saved` while it runs

    def _take(self, given: Mapping[str, Any]) -> None:
        """Take the saved programs of an invocation that goes on."""
        self._owner = str(given.get("owner", ""))
        programs = mapping_or_empty(given.get("programs"))
        self._schemas = {name: mapping_or_empty(one).get("inputSchema") for name, one in programs.items()}

    def _made(self, name: str) -> PreparedTool | None:
        if name in self._schemas:
            return validator_of(name, self._schemas[name], partial(self._use, name))
        if name == "$search":
            return _ready(name, self._search, {"type": "string"})
        if name == "$prepare" and self._library.model_saves:
            return _ready("$save", self._prepare_save, _SAVE_SCHEMA)
        if name == "$save" and self._library.model_saves:
            return _ready(name, self._save, _SHOWN_SCHEMA, self._asks)
        return None

    async def _use(self, name: str, value: Any) -> Any:
        """Give the guest the validated input of a saved program, and count the use."""
        try:
            await self._library.rows.note_use(self._owner, name)
        except CodeModeError as error:  # a count is worth less than a call
            log_failure(_log, f"the use of saved.{name} was not counted", (), error)
        return value

    async def _search(self, words: Any) -> list[dict[str, str]]:
        from ..tools.search.index import ToolIndex  # late: few programs search

        known = await self._library.refresh(self._owner)
        usable = [one for one in known if not one.is_disabled and one.stale is None]
        index = ToolIndex([(one.name, described(one)) for one in usable])
        found = [usable[position] for position, _ in index.search(words, _MAX_FOUND)]
        return [
            {"name": one.name, "description": one.current.body["description"], "declaration": declarations([one])[0]}
            for one in found
        ]

    async def _prepare_save(self, asked: Any) -> dict[str, Any]:
        """Return what a person is shown of a program that is to be saved."""
        shown, _ = await self._shown(asked)
        return shown

    async def _shown(self, asked: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        name, description, schema = asked["name"], asked.get("description") or "", asked.get("inputSchema")
        try:
            body = await self._library.prepare(name, asked["program"], description, schema, self._pool)
        except ValueError as error:
            raise CodeModeToolError(str(error)) from error
        except CodeModeSyntaxError as error:  # its place is in the text to save, not in the program that saves it
            raise CodeModeSyntaxError(error.message) from error
        kept = next((one for one in await self._library.refresh(self._owner) if one.name == name), None)
        before = None if kept is None else version_of(name, kept.current)
        stored: Any = _Unsaved(0 if before is None else before.version + 1, body)
        shown = {
            "name": name,
            "description": description,
            "inputSchema": body["input_schema"],
            "program": asked["program"],
            "tools": sorted(tools_named(asked["program"], self._inner)),
            "difference": await run_check(LARGE_CHARACTERS, lambda: difference(before, version_of(name, stored))),
            "replaces": 0 if before is None else before.version,
        }
        return shown, body

    async def _asks(self, given: Any) -> bool:
        """Say that a person is asked. Raises `CodeModeToolError` where they would be shown something untrue."""
        shown, _ = await self._shown(given)
        if shown != {"inputSchema": None, **given}:
            raise CodeModeToolError("saved.$save: what is to be shown is not what would be saved")
        return True

    async def _save(self, given: Any) -> dict[str, Any]:
        _, body = await self._shown(given)
        body |= {"by": "model", "created_from": self._call.tool_call_id}
        try:
            kept = await self._library.keep(self._owner, given["name"], body, given["replaces"], self._inner)
        except ValueError as error:
            raise CodeModeToolError(str(error)) from error
        return {"name": kept.name, "version": kept.version}


@record
class _Unsaved:
    """What a version would be."""

    version: int
    body: Mapping[str, Any]
    saved_at_ms: int = 0
    tools: None = None
    confirmed_by: None = None
    confirmed_at_ms: None = None


def _ready(name: str, execute: Any, schema: dict[str, Any], needs_approval: Any = False) -> PreparedTool:
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


def _servers_of(program: str) -> Iterator[str]:
    for piece in program.split(_SERVERS)[1:]:
        path = piece.split('"')[0].split("'")[0]
        if len(path) < 256 and path.isprintable():
            yield path


__all__ = ["SavedCatalog", "attach", "with_library"]
