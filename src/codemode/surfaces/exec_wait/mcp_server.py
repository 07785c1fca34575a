"""A server of MCP behind a session: listed once, when a program first needs it. Imports no package of MCP."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...host.threads import check_alone
from ...schemas.patterns import foreign_patterns
from ...tools.server_lists import LISTED_AGAIN, LISTED_DIFFERENTLY, MAX_NOTES, LeftOut, entry_label, log_left_out
from ...trace.failures import log_failure
from .mcp_lookups import PROMPTS, RESOURCES, Lookups, lookups_of
from .mcp_names import server_names, tool_names
from .mcp_session import pages, read, said_by_server
from .mcp_tool import USUAL, Making, McpTool, ServerTool, name_of, tool_of
from .once import Once
from .options import InvalidConfigError
from .sources import MCP, ToolSource, listed

MAX_TOOLS = 2000
_log = logging.getLogger("codemode.tools")


@dataclass(frozen=True)
class _Listing:
    """What a server was listed as. ``digest`` tells it from another listing."""

    tools: tuple[ServerTool, ...]
    lookups: Lookups
    digest: str
    left_out: tuple[str, ...]


_NOTHING = _Listing((), Lookups(), "", ())


class McpServer:
    """What a program sees of one server. ``name`` is its identifier, ``owner`` stands in the ids of its tools.

    Safe to use from several threads and event loops; its session is asked on the loop of whoever lists it.
    """

    def __init__(self, session: Any, owner: str, name: str, making: Making = USUAL) -> None:
        self.owner = owner
        self.name = name
        self.may_ask = making.may_ask
        self.is_listed = False
        self._listing = _NOTHING
        self._failure: str | None = None
        self._by_id: dict[str, McpTool] = {}
        self._session = session
        self._making = making
        self._once = Once(self._list)

    @property
    def tools(self) -> tuple[ServerTool, ...]:
        """Its tools, as far as it has been listed."""
        return self._listing.tools

    @property
    def digest(self) -> str:
        """What tells its tools from others; nothing before it has been listed."""
        return self._listing.digest

    @property
    def has_resources(self) -> bool:
        """True where programs read resources."""
        return RESOURCES in self._listing.lookups.offered

    @property
    def has_prompts(self) -> bool:
        """True where programs get prompts."""
        return PROMPTS in self._listing.lookups.offered

    @property
    def told(self) -> dict[str, Any]:
        """What a program is told of it: the id behind each name."""
        told: dict[str, Any] = {"tools": {name: one.tool.id for one in self.tools for name in one.names}}
        return {**told, **self._listing.lookups.offered}

    @property
    def warning(self) -> str | None:
        """What a model should know of a server that its program uses."""
        if not self.is_listed:
            why = f": {self._failure}" if self._failure else ""
            return f"MCP.{self.name} is not there: the server could not be listed{why}. Try again later."
        if not self._listing.left_out:
            return None
        return f"MCP.{self.name} lacks what its server lists: {'; '.join(self._listing.left_out)}"

    def get(self, name: str) -> McpTool | None:
        """Return the tool or the lookup of an id."""
        return self._by_id.get(name)

    def find(self, name: str) -> ServerTool | None:
        """Return the tool that one of these names means: an identifier, or the server's own."""
        found = next((one for one in self.tools if name in one.names), None)
        return found or next((one for one in self.tools if one.name == name), None)

    def _id(self, what: str) -> str:
        return f"{MCP}:{self.owner}:{what}"

    async def list(self, seconds: float) -> None:
        """List it, or wait for whoever does, unless that is done. What fails is left out, and tried again later."""
        if not self.is_listed:
            await self._once.run(seconds)

    async def _list(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                left_out = LeftOut()
                tools, is_whole = await pages(self._session.list_tools, "tools", most=MAX_TOOLS, left_out=left_out)
                if not is_whole:
                    left_out.note(f"it has more than {MAX_TOOLS} tools; the first are taken")
                lookups = await lookups_of(self._session, self._id, self._making)
            work = partial(self._listed, tools, lookups, left_out.notes)
            made = await check_alone(work)  # schemas may be a stranger's
        except Exception as error:  # noqa: BLE001 - it is host code, and may work the next time
            self._failure = said_by_server(error)
            if isinstance(error, TimeoutError):
                self._failure = f"it did not answer within {seconds:g} s, half of waitTimeoutMs"
            if self._failure is None:
                log_failure(_log, "the tools of server %r cannot be listed", (self.owner,), error)
            else:
                _log.error("the tools of server %r cannot be listed: %s", self.owner, self._failure)
            return
        self._by_id = {**{one.tool.id: one.tool for one in made.tools}, **lookups.tools}
        self._listing = made
        self.is_listed = True
        log_left_out(_log, self.owner, made.left_out)

    def _listed(self, tools: Sequence[Any], lookups: Lookups, notes: Sequence[str]) -> _Listing:
        made: dict[str, McpTool] = {}
        first: dict[str, Any] = {}
        left_out = LeftOut()
        with foreign_patterns():
            for place, one in enumerate(tools, 1):
                name = name_of(one)
                if name is None:
                    why = "no program could call it by its name" if read(one, "name") else "it has no name"
                    left_out.add(why if one is not None else "null, not a tool", entry_label(one, place))
                elif name in made:
                    left_out.add(LISTED_AGAIN if one == first[name] else LISTED_DIFFERENTLY, entry_label(one, place))
                else:
                    made[name] = tool_of(self._session, name, one, self._id(name), self._making)
                    first[name] = one
        names = tool_names(made)
        texts = "\n".join([*(made[name].text for name in sorted(made)), *sorted(lookups.tools)])
        digest = hashlib.sha256(texts.encode("utf-8", "replace")).hexdigest()[:32]
        found = tuple(ServerTool(name, names[name], made[name]) for name in sorted(made))
        return _Listing(found, lookups, digest, (*left_out.notes, *notes)[:MAX_NOTES])


def servers_of(sources: Any) -> tuple[McpServer, ...]:
    """Return the servers among the sources, by owner. Raises `InvalidConfigError` for two of one owner."""
    given = [one for one in listed(sources) if one.source == MCP]
    found = {one.owner or MCP: one for one in given}
    if len(found) < len(given):
        raise InvalidConfigError("sources: two servers of MCP have the same owner; give them owners of their own")
    names = server_names(sorted(found))
    return tuple(McpServer(found[owner].tools, owner, name, _making(found[owner])) for owner, name in names.items())


def _making(source: ToolSource) -> Making:
    return Making(source.needs_approval, source.adapt)
