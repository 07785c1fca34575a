"""Imports of a module, compared with what there is: every mistake at once, before anything runs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from ...data.similar_names import nearest_names
from ...errors import CodeModeSyntaxError
from ...host import steps
from ...protocol.ending_errors import syntax_error
from .discovery_arguments import USAGE
from .listing import ListedServer
from .module_facts import ImportFact, ModuleFacts
from .names import META, MODULE_OF_DISCOVERY, MODULE_OF_ERRORS, module_of, module_paths, path_of
from .words import CLASSES, IMPORT_FAILURE, TOOL_NOT_FOUND, WITHOUT_SERVER_HINT

if TYPE_CHECKING:
    from ...data.program_facts import ProgramProblem

MAX_PROBLEMS = 32
_MAX_SUGGESTIONS = 8
_MAX_SHOWN_CHARACTERS = 200
_EXPORTS: Mapping[str, frozenset[str]] = {
    MODULE_OF_ERRORS: CLASSES,
    MODULE_OF_DISCOVERY: frozenset((*USAGE, "specVersion")),
}


class Modules:
    """The modules there are. ``unavailable`` says of servers that could not be listed why, by path."""

    def __init__(self, servers: Sequence[ListedServer], unavailable: Mapping[str, str]) -> None:
        self._servers = {one.path: one for one in servers}
        self._unavailable = unavailable
        self._exports: dict[str, frozenset[str]] = {}

    def refusal(self, facts: ModuleFacts) -> CodeModeSyntaxError | None:
        """Return what is certainly wrong with a module that imports this: an error with all its ``problems``."""
        problems = list(islice(self._problems(facts), MAX_PROBLEMS))
        if not problems:
            return None
        problems.sort(key=lambda one: (one["line"], one["column"]))
        return syntax_error(cast("list[ProgramProblem]", problems))

    def _problems(self, facts: ModuleFacts) -> Iterator[dict[str, Any]]:
        suggesting = _Suggesting()
        for one in facts.imports:
            yield from self._of_import(one, suggesting)
        for call in facts.calls:
            steps.take()
            exports = self._exports_of(call.specifier)
            if exports is None or call.name in exports:
                continue
            hint = suggesting.hint(call.name, exports, "Call {}.", "Import @codemode/discovery and look the tool up.")
            message = f"{_quoted(call.specifier)} has no tool {_quoted(call.name)}"
            message += self._why_left_out(call.specifier, call.name)
            yield _problem("TOOL_NOT_FOUND", message, hint, call.place, error_class=TOOL_NOT_FOUND)

    def _of_import(self, one: ImportFact, suggesting: _Suggesting) -> Iterator[dict[str, Any]]:
        steps.take()
        exports = self._exports_of(one.specifier)
        if exports is None:
            yield self._no_module(one, suggesting)
            return
        for name in dict.fromkeys(one.names):
            if name == "*" or name in exports:
                continue
            if name == "default":
                hint = f"Write import * as server from {_quoted(one.specifier)}."
            else:
                own = ", ".join(sorted(_EXPORTS.get(one.specifier, ())))
                else_hint = f"It has {own}." if own else "Import @codemode/discovery and look the tool up."
                hint = suggesting.hint(name, exports, "Import {}.", else_hint)
            message = f"{_quoted(one.specifier)} has no export {_quoted(name)}"
            message += self._why_left_out(one.specifier, name)
            yield _problem(IMPORT_FAILURE, message, hint, one.place_of(name))

    def _no_module(self, one: ImportFact, suggesting: _Suggesting) -> dict[str, Any]:
        specifier, path = one.specifier, path_of(one.specifier)
        if path is not None and path in self._unavailable:
            message = f"the server {_quoted(path)} cannot be imported: {self._unavailable[path]}"
            hint = WITHOUT_SERVER_HINT
        elif path is not None:
            message = f"there is no server {_quoted(path)}"
            hint = self._path_meant(path) or suggesting.hint(
                path.lower(),
                self._servers,
                f"Import {module_of('{}')}.",
                "Import @codemode/discovery and call listServers().",
            )
        else:
            message = f"there is no module {_quoted(specifier)}"
            known = [*_EXPORTS, *map(module_of, self._servers)]
            hint = suggesting.hint(
                module_of(specifier) if specifier in self._servers else specifier,
                known,
                "Import {}.",
                "Import @codemode/discovery, @codemode/errors or @codemode/servers/<serverId>: there are no others.",
            )
        return _problem(IMPORT_FAILURE, message, hint, one.place)

    def _why_left_out(self, specifier: str, name: str) -> str:
        server = self._servers.get(path_of(specifier) or "")
        return "" if server is None else server.why_left_out(name)

    def _path_meant(self, written: str) -> str | None:
        """Return the hint for the id of a server that stands where its path should."""
        meant = next((one.path for one in self._servers.values() if one.server_id == written), None)
        meant = meant or next((path for path in module_paths([written]) if path in self._servers), None)
        return None if meant is None else f"Import {module_of(meant)}."

    def _exports_of(self, specifier: str) -> Collection[str] | None:
        own = _EXPORTS.get(specifier)
        if own is not None:
            return own
        exports = self._exports.get(specifier)
        if exports is None:
            server = self._servers.get(path_of(specifier) or "")
            if server is None:
                return None
            exports = self._exports[specifier] = frozenset((META, *(one.export_name for one in server.tools)))
        return exports


class _Suggesting:
    """The nearest names of a few mistakes; comparing names of all of them would take long."""

    def __init__(self) -> None:
        self._left = _MAX_SUGGESTIONS

    def hint(self, name: str, known: Collection[str], near_hint: str, else_hint: str) -> str:
        """Return what to do, with the nearest names in it where there are any."""
        self._left -= 1
        near = nearest_names(name[:_MAX_SHOWN_CHARACTERS], sorted(known)) if self._left >= 0 else []
        return near_hint.replace("{}", " or ".join(near)) if near else else_hint


def _problem(
    code: str, message: str, hint: str, place: Mapping[str, int], *, error_class: str | None = None
) -> dict[str, Any]:
    return {"code": code, "message": message, "hint": hint, "error_class": error_class, **place}


def _quoted(text: str) -> str:
    return f'"{text[:_MAX_SHOWN_CHARACTERS]}"'
