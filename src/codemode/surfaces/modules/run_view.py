"""The tools as one run sees them, listed for it where they change: from its preparation on they stay as they are."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...data.narrowing import list_or_empty, mapping_or_empty
from ...errors import CodeModeError, CodeModeToolError
from ...host.clock import now_ms
from ...options.parts import ContinuationOptions
from ...tools.prepared import PreparedTool
from .catalog import ModuleCatalog, meta_of
from .diagnostic import Diagnostic, diagnostic, read_again
from .homes import Homes
from .limits import RunLimits
from .listing import ListedServer
from .module_facts import read_module_facts
from .server_set import ServerSet
from .servers import Source
from .words import WITHOUT_SERVER_HINT

if TYPE_CHECKING:
    from ...data.program_facts import Facts

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
        given = self._now.given_for(facts)
        read = read_module_facts(facts)
        homes = self._homes.all() if read.wants_all else self._homes.of(read.paths())
        more = {NOTES: list(self.notes), HOMES: homes}
        return {**given, **{name: said for name, said in more.items() if said}}

    def refusal(self, facts: Facts | None) -> CodeModeError | None:
        """Return what is certainly wrong with what a program imports and calls."""
        return self._now.refusal(facts)

    def preparation(self, facts: Facts | None, given: Mapping[str, Any] | None) -> Awaitable[None] | None:
        """List what the program needs and nobody has listed, or what has changed since; None: there is nothing."""
        module = mapping_or_empty(mapping_or_empty(given).get("module"))
        if module:
            return self._continued(mapping_or_empty(given), module)
        read = read_module_facts(facts)
        wanted = self._wanted(read.paths(), wants_all=read.wants_all)
        if wanted:
            return self._listed(wanted, wants_all=read.wants_all)
        self._settle(wants_all=read.wants_all)
        return None

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
        had = ((one, self._now.server(one.path)) for one in self._named)
        changed = [one.path for one, mine in had if mine is not None and _differs(one, mine)]
        return [_changed(path, "while the program ran: the next run has the new ones") for path in changed]

    async def _continued(self, given: Mapping[str, Any], module: Mapping[Any, Any]) -> None:
        self.notes = [read_again(one) for one in list_or_empty(given.get(NOTES))]
        self.capabilities = [str(one) for one in list_or_empty(given.get(CAPABILITIES))]
        if limits := mapping_or_empty(given.get(LIMITS)):
            self.limits = RunLimits.of(limits)
        had = mapping_or_empty(module.get("servers"))
        wants_all = module.get("all") is True
        await self._listed(self._wanted([*had], wants_all=wants_all), wants_all=wants_all)

    def _wanted(self, paths: Sequence[str], *, wants_all: bool) -> list[Source]:
        self._named = [one for path in paths if (one := self._servers.at(path)) is not None]
        wanted = [one for one in self._named if not one.is_current]
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
        told = [_told(one.path, text) for one in self._named for text in one.notes]
        self.notes += [one for one in told if one not in self.notes]
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
