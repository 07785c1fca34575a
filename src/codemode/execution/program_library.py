"""Keep programs as named functions, with versions, trust and declarations."""

from __future__ import annotations

import difflib
import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

from ..data.json_values import encode_canonical_json
from ..data.narrowing import is_array, is_mapping, mapping_or_empty
from ..errors import CodeModeError, CodeModeSyntaxError
from ..host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from ..options.checked_fields import WrongTypeError
from ..records import record
from ..signatures.declarations import create_call_types_and_aliases, format_name_with_jsdoc
from ..signatures.described_tool import RenamedTool
from ..signatures.literals import fence_typescript
from ..tools.catalog import JAVASCRIPT_NAMES
from ..tools.tool import Tool
from ..workers.pool import WorkerPool
from .call_context import CallContext

if TYPE_CHECKING:
    from ..tools.catalog import ToolCatalog
    from ..tools.prepared import PreparedTool

MAX_PROGRAM_BYTES = 64 << 10
MAX_PROGRAM_LINES = 4000  # the guest numbers saved programs with this line offset
MAX_DECLARED_PROGRAMS = 20
MAX_DEPTH = 4
MAX_SENT_PROGRAMS, MAX_SENT_CHARACTERS = 64, 1 << 20
_MAX_DESCRIPTION_CHARACTERS = 2000
_MAX_SCHEMA_CHARACTERS = 16 << 10
_PROGRAM_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_KEYWORDS = """
arguments async await break case catch class const continue debugger default delete do else enum eval export extends
false finally for function if implements import in instanceof interface let new null package private protected public
return static super switch this throw true try typeof undefined var void while with yield then input saved tools
codemode console hasOwnProperty isPrototypeOf propertyIsEnumerable __proto__ __meta__
"""
_RESERVED_NAMES = JAVASCRIPT_NAMES.union(_KEYWORDS.split())
EXPORT_FORMAT = "codemode-saved-programs"


class _StoredVersion(Protocol):
    version: Any
    saved_at_ms: Any
    body: Any
    tools: Any
    confirmed_by: Any
    confirmed_at_ms: Any


class _ProgramStore(Protocol):
    """The store of a library, such as `InterruptStore.programs`."""

    async def load_programs(self, owner: str) -> Sequence[Any]: ...
    async def list_versions(self, owner: str, name: str) -> Sequence[Any]: ...
    async def add_version_and_make_current(
        self, owner: str, name: str, body: Any, tools: Any, expected: int | None = None
    ) -> int: ...
    async def set_disabled(self, owner: str, name: str, *, is_disabled: bool) -> None: ...
    async def set_current_version(self, owner: str, name: str, version: int) -> None: ...
    async def delete_program(self, owner: str, name: str) -> None: ...
    async def count_use(self, owner: str, name: str) -> None: ...
    async def record_stale_reasons(self, owner: str, stale: Any) -> None: ...
    async def pin_tool_digests(self, owner: str, pins: Iterable[Any], *, by: str | None = None) -> None: ...
    def load_programs_sync(self, owner: str) -> Sequence[Any]: ...


@record
class SavedVersion:
    """One version of a saved program. ``program`` is its original text.

    ``tools`` are the tools that it names, None before its first use; ``confirmed_by`` last confirmed their
    definitions. ``created_from`` is the id of the invocation that it was saved from.
    """

    name: str
    version: int
    program: str
    description: str
    input_schema: Mapping[str, Any] | None
    tools: tuple[str, ...] | None
    saved_by: str
    saved_at_ms: int
    created_from: str | None = None
    confirmed_by: str | None = None
    confirmed_at_ms: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {**dict(_iter_fields(self)), "tools": None if self.tools is None else list(self.tools)}


@record
class SavedProgram:
    """The current state of a saved program. ``changes`` make it stale: it is refused until `ProgramLibrary.confirm`.

    ``shown`` is the digest of these changes, which a confirmation must name.
    """

    name: str
    current: SavedVersion
    is_disabled: bool
    uses: int
    used_at_ms: int | None
    changes: tuple[str, ...]
    owner: str = ""
    shown: str = ""

    @property
    def is_stale(self) -> bool:
        """True if something that it depends on had changed at its last call."""
        return bool(self.changes)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {**dict(_iter_fields(self)), "current": self.current.to_dict(), "changes": list(self.changes)}


def _iter_fields(value: Any) -> Iterable[tuple[str, Any]]:
    return ((name, getattr(value, name)) for name in value.__match_args__)


class ProgramLibrary:
    """Saved programs of one owner in a store; pass it to a tool as ``library=``.

    ``store`` is an interrupt store, such as `MemoryInterruptStore()` or `SqliteInterruptStore("programs.db")`.
    ``owner`` is a text, or a function of the `CallContext` of a call that returns one. Programs of one owner never
    run for another. With ``model_saves`` programs have ``saved.$save``, which always asks a person. ``pool``
    analyses programs that the host saves. Raises `ValueError` for other values.
    """

    def __init__(
        self,
        store: Any,
        *,
        owner: str | Callable[[CallContext], str] = "",
        model_saves: bool = False,
        pool: WorkerPool | None = None,
    ) -> None:
        rows = getattr(store, "programs", None)
        if not all(
            callable(getattr(rows, name, None))
            for name in (
                "load_programs",
                "list_versions",
                "add_version_and_make_current",
                "pin_tool_digests",
                "count_use",
            )
        ):
            raise WrongTypeError(
                f"ProgramLibrary takes a store such as MemoryInterruptStore() or SqliteInterruptStore(path), got"
                f" {store!r:.100}"
            )
        if not (isinstance(owner, str) or callable(owner)):
            raise WrongTypeError(f"owner must be a text or a function of a CallContext, got {owner!r:.100}")
        self.rows = cast("_ProgramStore", rows)
        self.owner = owner
        self.model_saves = model_saves
        self._pool = pool
        self._tools: ToolCatalog[PreparedTool] | None = None
        self._programs_by_owner: dict[str, Sequence[Any]] = {}

    def for_owner(self, owner: str) -> Self:
        """Return the library of another owner in the same store. Raises `ValueError` if the owner is not text."""
        if not isinstance(owner, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongTypeError(f"for_owner takes the owner as text, got {owner!r:.100}")
        other = copy(self)
        other.owner = owner
        other._programs_by_owner = {}  # noqa: SLF001 - a copy of this object
        return other

    def set_tools_for_pins(self, tools: ToolCatalog[PreparedTool]) -> None:
        """Pin later saves to the definitions of these tools. Surfaces attach their own tools."""
        self._tools = tools

    def get_owner_of_call(self, call: CallContext) -> str:
        """Return the owner of the programs that a call may use. Raises `CodeModeError` if ``owner`` returns no text."""
        if isinstance(self.owner, str):
            return self.owner
        owner: Any = self.owner(call)
        if not isinstance(owner, str):
            raise CodeModeError(f"the owner of saved programs must be a text, got {type(owner).__name__}")
        return owner

    # -- methods of the host

    async def save(
        self,
        name: str,
        program: str,
        *,
        description: str = "",
        input_schema: Mapping[str, Any] | None = None,
        created_from: Any = None,
        by: str = "host",
    ) -> SavedVersion:
        """Save a program as a new version of ``saved.<name>`` and return it. Nothing of it runs.

        ``program`` is the body of an async function with the parameter ``input``, or one function; it calls
        tools like the programs of its surface, and may import from ``@codemode/saved`` and modules of
        `codemode.run`. ``input_schema`` is the JSON Schema of ``input``. ``created_from`` is the trace of a
        completed invocation, or its id; ``by`` names who saves. Raises `ValueError` for a wrong name, a wrong
        schema or a program that is too long, `CodeModeSyntaxError` for a syntax error.
        """
        body = await self.prepare_version(name, program, description, input_schema, self._pool)
        body |= {"by": by, "created_from": _get_completed_invocation_id(created_from)}
        return await self.store_version(self._require_owner(), name, body)

    async def prepare_version(
        self, name: Any, program: Any, description: Any, input_schema: Any, pool: WorkerPool | None
    ) -> dict[str, Any]:
        """Check a program and return its row for the store. Raises as `save` does."""
        from .program_analysis import analyse_and_rewrite_program  # late: it imports the execution of programs

        description = "" if description is None else description
        require_savable_program(name, program, description, input_schema)
        try:
            js, facts = await analyse_and_rewrite_program(program, pool)
        except CodeModeSyntaxError as error:
            error.message = f"saved.{name}: {error.message}"
            error.args = (error.message,)
            raise
        body = {"program": program, "js": js, "facts": facts, "description": description}
        body["input_schema"] = None if input_schema is None else dict(input_schema)
        body["digest"] = compute_version_digest(body)
        return body

    async def store_version(
        self,
        owner: str,
        name: str,
        body: Mapping[str, Any],
        expected: int | None = None,
        tools: ToolCatalog[PreparedTool] | None = None,
    ) -> SavedVersion:
        """Store the result of `prepare_version`. ``expected`` is the version that a person compared it with."""
        catalog = self._tools if tools is None else tools
        pins = None if catalog is None else make_tool_pins(body["program"], catalog)
        version = await self.rows.add_version_and_make_current(owner, name, body, pins, expected)
        await self.refresh(owner)
        return next(candidate for candidate in await self._load_versions(owner, name) if candidate.version == version)

    async def list(self) -> list[SavedProgram]:
        """Return the programs, the most used first."""
        return [to_saved_program(program) for program in await self.refresh(self._require_owner())]

    @staticmethod
    async def list_all(store: Any) -> list[SavedProgram]:
        """Return the programs of all owners in a store, for administration."""
        return [to_saved_program(program) for program in await store.programs.load_all_programs()]

    async def get(self, name: str) -> SavedProgram:
        """Return one program. Raises `LookupError`."""
        program = next((program for program in await self.list() if program.name == name), None)
        if program is None:
            raise LookupError(f"there is no saved program {name!r}")
        return program

    async def history(self, name: str) -> list[SavedVersion]:
        """Return the versions of a program, the newest first. Raises `LookupError`."""
        versions = await self._load_versions(self._require_owner(), name)
        if not versions:
            raise LookupError(f"there is no saved program {name!r}")
        return versions

    async def difference(self, name: str, version: int | None = None) -> str:
        """Return a version's changes to the one before it as a unified diff; None: the newest version."""
        versions = await self.history(name)
        index = (
            0
            if version is None
            else next((i for i, candidate in enumerate(versions) if candidate.version == version), None)
        )
        if index is None:
            raise LookupError(f"there is no version {version} of the saved program {name!r}")
        before = versions[index + 1] if index + 1 < len(versions) else None
        return await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, lambda: diff_versions(before, versions[index]))

    async def disable(self, name: str) -> None:
        """Refuse calls of a program until it is enabled or saved again."""
        await self._apply_change_and_refresh(self.rows.set_disabled(self._require_owner(), name, is_disabled=True))

    async def enable(self, name: str) -> None:
        """Allow calls of a program that was disabled."""
        await self._apply_change_and_refresh(self.rows.set_disabled(self._require_owner(), name, is_disabled=False))

    async def restore(self, name: str, version: int) -> None:
        """Make an earlier version the current one."""
        await self._apply_change_and_refresh(self.rows.set_current_version(self._require_owner(), name, version))

    async def delete(self, name: str) -> None:
        """Delete a program with all its versions."""
        await self._apply_change_and_refresh(self.rows.delete_program(self._require_owner(), name))

    async def confirm(self, name: str, *, by: str, shown: str | None = None) -> SavedProgram:
        """Trust a stale program again, with its recorded changes. ``by`` names who reviewed them.

        ``shown`` is the `SavedProgram.shown` that was reviewed. Raises `ValueError` if there is nothing to
        confirm or the changes are others by now.
        """
        owner = self._require_owner()
        program = next((program for program in await self.rows.load_programs(owner) if program.name == name), None)
        if program is None:
            raise LookupError(f"there is no saved program {name!r}")
        stale = program.stale
        if stale is None or stale["version"] != program.current.version:
            raise ValueError(f"saved.{name} is not stale: there is nothing to confirm")
        if shown not in (None, _hash_stale_changes(stale)):
            raise ValueError(f"saved.{name} has changed again since it was shown: look at it once more")
        if compute_version_digest(program.current.body) != program.current.body.get(
            "digest"
        ):  # its text was changed in the store
            previous = program.current.body
            body = await self.prepare_version(
                name, previous["program"], previous["description"], previous["input_schema"], self._pool
            )
            await self.rows.add_version_and_make_current(
                owner, name, {**body, "by": by, "created_from": None}, stale["tools"]
            )
        else:
            await self.rows.pin_tool_digests(owner, [(name, program.current.version, stale["tools"])], by=by)
        return await self.get(name)

    async def export(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Return all programs, or those named, as plain JSON for `import_`."""
        wanted = None if names is None else {names} if isinstance(names, str) else set(names)
        rows = [
            program
            for program in await self.rows.load_programs(self._require_owner())
            if wanted is None or program.name in wanted
        ]
        if wanted is not None and (missing := wanted - {program.name for program in rows}):
            raise LookupError(f"there is no saved program {min(missing)!r}")
        exported_keys = ("program", "description", "input_schema")
        programs = [
            {
                "name": program.name,
                **{key: program.current.body[key] for key in exported_keys},
                "tools": program.current.tools,
            }
            for program in rows
        ]
        return {"format": EXPORT_FORMAT, "programs": programs}

    async def import_(self, exported: Mapping[str, Any], *, by: str = "import") -> list[SavedVersion]:
        """Save the programs of an export, each as a new version, pinned to its exported tools.

        All are checked before the first is saved. Raises as `save` does.
        """
        items = mapping_or_empty(exported).get("programs")
        if mapping_or_empty(exported).get("format") != EXPORT_FORMAT or not is_array(items):
            raise WrongTypeError(f"this is no export of saved programs: its format must be {EXPORT_FORMAT!r}")
        bodies: list[tuple[str, dict[str, Any], Any]] = []
        for item in map(mapping_or_empty, items):
            name, tools = item.get("name"), item.get("tools")
            fields = (name, item.get("program"), item.get("description", ""), item.get("input_schema"))
            body = await self.prepare_version(*fields, self._pool)
            bodies.append((cast("str", name), body | {"by": by, "created_from": None}, tools))
        owner = self._require_owner()
        numbers = [
            await self.rows.add_version_and_make_current(owner, name, body, _parse_exported_pins(tools))
            for name, body, tools in bodies
        ]
        await self.refresh(owner)
        return [
            next(version for version in await self._load_versions(owner, name) if version.version == number)
            for (name, _, _), number in zip(bodies, numbers, strict=True)
        ]

    async def refresh(self, owner: str | None = None) -> Sequence[Any]:
        """Read the programs again, for later descriptions."""
        owner_name = self._require_owner() if owner is None else owner
        programs = self._programs_by_owner[owner_name] = await self.rows.load_programs(owner_name)
        return programs

    # -- texts for models

    def load_and_describe_programs(self, import_from: str | None = None) -> str:
        """Return the text about saved programs for a tool's description, or ""."""
        if not isinstance(self.owner, str):  # the owner is known only when a program runs
            return _describe_saved_programs([], 0, self.model_saves, import_from, is_known=False)
        if self.owner not in self._programs_by_owner:
            self._programs_by_owner[self.owner] = self.rows.load_programs_sync(self.owner)
        usable = [
            program
            for program in self._programs_by_owner[self.owner]
            if not program.is_disabled and program.stale is None
        ]
        return _describe_saved_programs(usable[:MAX_DECLARED_PROGRAMS], len(usable), self.model_saves, import_from)

    def _require_owner(self) -> str:
        if isinstance(self.owner, str):
            return self.owner
        raise ValueError("this library has an owner per call: use library.for_owner(owner)")

    async def _load_versions(self, owner: str, name: str) -> list[SavedVersion]:
        return [to_saved_version(name, version) for version in await self.rows.list_versions(owner, name)]

    async def _apply_change_and_refresh(self, change: Any) -> None:
        await change
        await self.refresh()


def _describe_saved_programs(
    declared: Sequence[Any], count: int, may_save: bool, import_from: str | None, *, is_known: bool = True
) -> str:
    lines: list[str] = []
    if declared or not is_known:
        import_note = f' (or `import {{ name }} from "{import_from}"`)' if import_from else ""
        lines.append(f"Programs that were saved are functions{import_note}: `await saved.name(input)`.")
    if count > len(declared) or not is_known:
        count_note = f"There are {count - len(declared)} more: " if is_known else ""
        lines.append(f"{count_note}`await saved.$search(words)` finds saved programs with their declarations.")
    if declared:
        lines.append(
            fence_typescript("\n".join(["declare const saved: {", *make_program_declarations(declared), "};"]))
        )
    if may_save:
        lines.append(
            "`await saved.$save({ name, description, inputSchema, program })` asks a person to keep a program that"
            " worked: `program` is the body of an async function that reads `input`."
        )
    return "\n".join(lines)


def make_program_declarations(programs: Iterable[Any]) -> list[str]:
    """Return the declarations of stored programs as members of `saved`."""
    tools = [to_renamed_tool(program) for program in programs]
    calls, aliases = create_call_types_and_aliases(tools)
    del aliases  # each schema stands alone
    lines = [f"{format_name_with_jsdoc(tool)}{call};" for tool, call in zip(tools, calls, strict=True)]
    return ["\n".join(f"  {line}" for line in text.split("\n")) for text in lines]


def to_renamed_tool(stored: Any) -> RenamedTool:
    """Return a stored program in the form of a tool."""
    body = stored.current.body
    return RenamedTool(stored.name, body["description"], body["input_schema"], None, (), {})


def require_savable_program(name: Any, program: Any, description: Any, input_schema: Any) -> None:
    """Raise `ValueError` for a program that cannot be saved."""
    if not isinstance(name, str) or not _PROGRAM_NAME.fullmatch(name) or name in _RESERVED_NAMES:
        raise WrongTypeError(
            "a saved program needs a name of letters, digits and _ that JavaScript does not use itself, got"
            f" {name!r:.80}{_format_name_suggestion(name)}"
        )
    if not isinstance(program, str) or not program.strip():
        raise WrongTypeError(f"saved.{name}: the program must be a text, got {program!r:.80}")
    if len(program.encode("utf-8", "surrogatepass")) > MAX_PROGRAM_BYTES or program.count("\n") >= MAX_PROGRAM_LINES:
        raise WrongTypeError(
            f"saved.{name}: a saved program has at most {MAX_PROGRAM_BYTES} bytes and {MAX_PROGRAM_LINES} lines"
        )
    if not isinstance(description, str) or len(description) > _MAX_DESCRIPTION_CHARACTERS:
        raise WrongTypeError(
            f"saved.{name}: the description must be a text of at most {_MAX_DESCRIPTION_CHARACTERS} characters"
        )
    if input_schema is not None and not is_mapping(input_schema):
        raise WrongTypeError(f"saved.{name}: the input schema must be a JSON Schema object, got {input_schema!r:.80}")
    try:
        schema_text = encode_canonical_json(input_schema)
    except (TypeError, ValueError) as error:
        raise WrongTypeError(f"saved.{name}: the input schema is not JSON: {error}") from error
    if len(schema_text) > _MAX_SCHEMA_CHARACTERS:
        raise WrongTypeError(f"saved.{name}: the input schema has more than {_MAX_SCHEMA_CHARACTERS} characters")
    prepare_saved_program_tool(name, input_schema)


def _format_name_suggestion(name: Any) -> str:
    """Return the end of an error message that suggests a valid name, if one is near."""
    if not isinstance(name, str):
        return ""
    letters = unicodedata.normalize("NFKD", name[:200]).encode("ascii", "ignore").decode()
    suggestion = "_".join(re.findall(r"[A-Za-z0-9_]+", letters))[:64]
    if suggestion in _RESERVED_NAMES:
        suggestion = f"{suggestion}_program"
    return f": use {suggestion!r}, for instance" if _PROGRAM_NAME.fullmatch(suggestion) else ""


def prepare_saved_program_tool(name: str, input_schema: Any, execute: Callable[..., Any] = str) -> PreparedTool:
    """Return the tool that validates the input of a saved program. Raises `ValueError` for a wrong schema."""
    from ..tools.prepared import prepare_tool

    annotations = {"readOnlyHint": True}  # its own calls have annotations of their own
    tool = prepare_tool(Tool(f"saved.{name}", execute=execute, input_schema=input_schema, annotations=annotations))
    tool.compile_schemas()
    return tool


def compute_version_digest(body: Mapping[str, Any]) -> str:
    """Return the digest of a version's text and its analysis."""
    covered_fields = {key: body.get(key) for key in ("program", "js", "facts", "input_schema", "description")}
    return hashlib.sha256(encode_canonical_json(covered_fields).encode("utf-8", "surrogatepass")).hexdigest()


# -- the tools that a program names, and changes of their definitions

# Texts are a model's: each pattern matches unclosed parts to the end, so that no text is read twice.
_COMMENTS = r"//[^\n]*|/\*.*?(?:\*/|\Z)"
_QUOTED = r"\"(?:[^\"\\\n]|\\.)*+(?:\"|(?=\n)|\Z|\\)|'(?:[^'\\\n]|\\.)*+(?:'|(?=\n)|\Z|\\)"
_TOKENS = re.compile(
    rf"{_COMMENTS}|(?P<quoted>{_QUOTED})"
    r"|(?P<chain>[A-Za-z_$][\w$]*(?:\s*\??\.\s*[A-Za-z_$][\w$]*|\s*\[\s*(?:\"[^\"\\\n]*\"|'[^'\\\n]*')\s*\])*)",
    re.DOTALL,
)
_IMPORTED = re.compile(r"import\s*(\{[^{}]*\}|\*\s*as\s+[\w$]+)\s*from\s*[\"']@codemode/servers/([^\"'\n]+)[\"']")
_WORD = re.compile(r"[\w$]+")
_SERVER_GLOBALS = re.compile(r"\b(?:MCP|API)\b")
_MAX_PARTS = 8  # of a name
_ROOTS = ("tools", "MCP", "namespaces")
_LINK = re.compile(r"\s*\??\.\s*|\s*\[\s*[\"']|[\"']\s*\](?:\s*\??\.\s*)?")


def hash_mentioned_tools(
    program: str, tools: ToolCatalog[PreparedTool], names_by_text: Mapping[str, list[str]] | None = None
) -> dict[str, dict[str, str]]:
    """Return the definitions, as digests, of the tools that a program names in its text.

    ``names_by_text`` is the result of `index_tool_names` for these tools.
    """
    index = index_tool_names(tools) if names_by_text is None else names_by_text
    tool_names = sorted({name for text in _find_folded_tool_mentions(program) for name in index.get(text, ())})
    return {name: _hash_definition(tool) for name in tool_names if (tool := tools.get(name)) is not None}


def index_tool_names(tools: ToolCatalog[PreparedTool]) -> dict[str, list[str]]:
    """Return the names of tools by the texts that name them."""
    index: dict[str, list[str]] = {}
    for name in tools.names():
        for text in {_fold_name(name), _fold_name(name.rpartition(":")[2])}:  # the end of exec and wait ids
            index.setdefault(text, []).append(name)
    by_server: Mapping[str, list[str]] = getattr(tools, "program_paths_by_tool_id", {})  # of exec and wait
    for name, aliases in by_server.items():
        for text in map(_fold_name, aliases):
            index.setdefault(text, []).append(name)
    return index


def make_tool_pins(program: str, tools: ToolCatalog[PreparedTool]) -> dict[str, dict[str, str]] | None:
    """Return the pins of a version; None if its servers may not be listed yet: then its first use pins it."""
    paths = {path for _, path in _IMPORTED.findall(program)}
    if _SERVER_GLOBALS.search(program) or any(
        not any(name.startswith(f"{path}.") for name in tools.names()) for path in paths
    ):
        return None
    return hash_mentioned_tools(program, tools)


def _find_folded_tool_mentions(program: str) -> set[str]:
    texts: set[str] = set()
    for match in _TOKENS.finditer(program):
        if (quoted := match["quoted"]) is not None:
            texts.add(_fold_name(quoted[1:-1]))
        elif (chain := match["chain"]) is not None:
            parts = [part for part in _LINK.split(chain, _MAX_PARTS) if part][:_MAX_PARTS]
            texts.update(_fold_name(".".join(parts[:end])) for end in range(2, len(parts) + 1))
            if parts[0] in _ROOTS:
                texts.update(_fold_name(".".join(parts[1:end])) for end in range(2, len(parts) + 1))
    for names, path in _IMPORTED.findall(program):
        if names.startswith("*"):
            alias = _fold_name(names.split()[-1])
            texts |= {_fold_name(path) + text.removeprefix(alias) for text in texts if text.startswith(f"{alias}.")}
        else:
            texts |= {f"{_fold_name(path)}.{_fold_name(word)}" for word in _WORD.findall(names)}
    return texts


def _fold_name(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())


def _hash_definition(tool: PreparedTool) -> dict[str, str]:
    input_text, output_text = tool.schema_texts
    texts = {"description": tool.description, "input schema": input_text, "output schema": output_text}
    return {
        part: hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16] for part, text in texts.items()
    }


def describe_tool_changes(
    pinned: Mapping[str, Mapping[str, str]], current: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Describe the changes of the tools that a version was saved with."""
    changes: list[str] = []
    for name in sorted({*pinned, *current}):
        if name not in current:
            changes.append(f"the tool {name!r} is gone")
        elif name not in pinned:
            changes.append(f"the tool {name!r} was not there")
        else:
            changes += [
                f"the {part} of the tool {name!r} has changed"
                for part in current[name]
                if pinned[name].get(part) != current[name][part]
            ]
    return changes


# -- the saved programs that a program names

_MENTION = re.compile(
    rf"{_COMMENTS}|{_QUOTED}"
    r"|(?<![\w$.])(?P<saved>saved)(?![\w$])(?:\s*(?:\?\.|\.)\s*(?P<member>[A-Za-z_$][\w$]*)"
    r"|\s*(?:\?\.)?\s*\[\s*(?P<quote>[\"'`])(?P<literal>[^\"'`\\\n]*)(?P=quote)\s*\])?",
    re.DOTALL,
)
_SAVED = re.compile(r"(?<![\w$.])saved(?![\w$])")
_SAVED_IMPORT = re.compile(r"(?:import|export)\s*(\{[^{}]*\}|\*\s*as\s+[\w$]+)\s*from\s*[\"']@codemode/saved[\"']")


@record
class SavedProgramMentions:
    """Saved programs that a text calls or imports by ``names``; it may compute further names."""

    names: tuple[str, ...]
    imported_names: tuple[str, ...]
    has_computed_names: bool


def may_mention_saved_programs(program: str) -> bool:
    """Return True if a program may use saved programs."""
    return _SAVED.search(program) is not None or "\\u" in program


def find_saved_program_mentions(program: str) -> SavedProgramMentions:
    """Return the saved programs that a program names."""
    names: dict[str, None] = {}
    imports: dict[str, None] = {}
    has_computed_names = "\\u" in program
    for match in _MENTION.finditer(program):
        if match["saved"] is None:
            continue
        name = match["member"] or match["literal"]
        if name is None:
            has_computed_names = True
        elif not name.startswith("$"):
            names[name] = None
    statements: list[str] = _SAVED_IMPORT.findall(program)
    for clause in statements:
        has_computed_names = has_computed_names or clause.startswith("*")
        parts = () if clause.startswith("*") else clause.strip("{} \n\t").split(",")
        imports |= {word.split()[0]: None for word in parts if word.split() and not word.strip().startswith("$")}
    has_computed_names = has_computed_names or program.count("@codemode/saved") > len(statements)  # `import()` of it
    return SavedProgramMentions(tuple({**names, **imports}), tuple(imports), has_computed_names)


# -- public values


def to_saved_version(name: str, stored: _StoredVersion) -> SavedVersion:
    """Return the public value of a stored version."""
    body = stored.body
    return SavedVersion(
        name=name,
        version=stored.version,
        program=body["program"],
        description=body["description"],
        input_schema=body["input_schema"],
        tools=None if stored.tools is None else tuple(stored.tools),
        saved_by=body.get("by") or "",
        saved_at_ms=stored.saved_at_ms,
        created_from=body.get("created_from"),
        confirmed_by=stored.confirmed_by,
        confirmed_at_ms=stored.confirmed_at_ms,
    )


def to_saved_program(stored: Any) -> SavedProgram:
    """Return the public value of a stored program."""
    stale: Any = stored.stale or {}
    is_of_current = stale.get("version") == stored.current.version
    return SavedProgram(
        name=stored.name,
        current=to_saved_version(stored.name, stored.current),
        is_disabled=stored.is_disabled,
        uses=stored.uses,
        used_at_ms=stored.used_at_ms,
        changes=tuple(stale["changes"]) if is_of_current else (),
        owner=stored.owner,
        shown=_hash_stale_changes(stale) if is_of_current else "",
    )


def _hash_stale_changes(stale: Mapping[str, Any]) -> str:
    return hashlib.sha256(encode_canonical_json(stale).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def diff_versions(before: SavedVersion | None, after: SavedVersion) -> str:
    """Return a version's changes to the one before it as a unified diff, which may be empty."""
    if before is None:
        return ""
    parts: list[str] = []
    for what, old, new in (
        ("description", before.description, after.description),
        ("inputSchema", encode_canonical_json(before.input_schema), encode_canonical_json(after.input_schema)),
        ("program", before.program, after.program),
    ):
        names = (f"{what} of version {before.version}", f"{what} of version {after.version}")
        parts += difflib.unified_diff(old.splitlines(), new.splitlines(), *names, lineterm="")
    return "\n".join(parts)


def _parse_exported_pins(tools: Any) -> dict[str, dict[str, str]] | None:
    if not is_mapping(tools):
        return None
    return {
        name: {part: text for part, text in mapping_or_empty(parts).items() if isinstance(text, str)}
        for name, parts in tools.items()
    }


def _get_completed_invocation_id(created_from: Any) -> str | None:
    """Return the id of an invocation. Raises `ValueError` if it has not completed."""
    if created_from is None or isinstance(created_from, str):
        return created_from
    trace: Any = getattr(created_from, "trace", None) or created_from
    identity: Any = getattr(trace, "invocation_id", None)
    status: Any = getattr(trace, "status", "completed")
    if not isinstance(identity, str):
        raise WrongTypeError(f"created_from must be a Trace or the id of an invocation, got {created_from!r:.80}")
    if status != "completed":
        raise ValueError(f"created_from is an invocation that is {status}: save what has completed")
    return identity
