"""Answers that hold for more than one call: for a session, or always for one tool as it was when it was shown.

One place for all principals of a gateway. What always holds is kept in one file of the state folder, which other
gateways and the command line share: a look at it is made for each call, so that what was revoked asks again at once.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import mcp_types as types

from codemode.data.json_values import canonical_json
from codemode.host.clock import now_ms
from codemode.host.threads import off_loop

from ..config.model import ServerConfig
from ..config.patterns import asks
from ..gateway.principals import Principal, origin_of
from ..state_files import PrivateTables
from ..upstreams.hooks import NeedsApproval

Scope = Literal["session", "always"]

FILE = "remembered.sqlite"
_MOST_SHOWN = 10_000
_MOST_IN_SESSIONS = 10_000
_TABLE = (
    "CREATE TABLE IF NOT EXISTS remembered (principal TEXT NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL,"
    " definition TEXT NOT NULL, at_ms INTEGER NOT NULL, PRIMARY KEY (principal, server, tool)) WITHOUT ROWID"
)
_SESSIONS_TABLE = (
    "CREATE TABLE IF NOT EXISTS remembered_in_sessions (session TEXT NOT NULL, server TEXT NOT NULL,"
    " tool TEXT NOT NULL, definition TEXT NOT NULL, at_ms INTEGER NOT NULL,"
    " PRIMARY KEY (session, server, tool)) WITHOUT ROWID"
)
_REMEMBER = "INSERT OR REPLACE INTO remembered VALUES (?, ?, ?, ?, ?)"
_REMEMBER_IN_SESSION = "INSERT OR REPLACE INTO remembered_in_sessions VALUES (?, ?, ?, ?, ?)"
_SESSION_MS = 30 * 24 * 3_600_000
"""For so long what holds for a session is kept in the file: longer than any lasts whose gateway was killed."""

_FORGET_SESSION = "DELETE FROM remembered_in_sessions WHERE session = ?"
_log = logging.getLogger("codemode.mcp")


@dataclass(frozen=True)
class KnownTool:
    """One tool as it was shown: ``definition`` is the digest of its name, description, schemas and annotations."""

    server: str
    tool: str
    definition: str


@dataclass(frozen=True)
class RememberedAnswer:
    """One answer that always holds, for the tool as it was at ``at_ms``, in Unix time."""

    principal: str
    server: str
    tool: str
    definition: str
    at_ms: int


class Remembered:
    """What is remembered of the answers of all principals. ``folder`` None keeps all of it in memory alone.

    Where its file cannot be read everything is asked; where it cannot be written an answer holds for its session. The
    file is on a disk that may be slow, and others may hold its lock for seconds: what is awaited here looks at it in a
    thread; `always`, `revoke` and `answered_elsewhere` are for those who have no event loop.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._file = None if folder is None else PrivateTables(folder / FILE, _TABLE, _SESSIONS_TABLE)
        self._own = secrets.token_hex(16)
        self._sessions: OrderedDict[tuple[Principal, KnownTool], None] = OrderedDict()
        self._shown: OrderedDict[str, KnownTool] = OrderedDict()

    async def allows(self, principal: Principal, tool: KnownTool) -> bool:
        """Tell whether calls of this very tool were allowed for longer than one call."""
        if (principal, tool) in self._sessions:
            return True
        if self._file is None:
            return False
        return tool.definition in await off_loop(partial(self._definitions, principal, tool))

    def session_of(self, principal: Principal) -> str:
        """Return what names a session of this gateway to those who answer elsewhere; it tells nobody its id."""
        said = canonical_json([self._own, principal.id, principal.session])
        return hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()

    def answered_elsewhere(self, principal_id: str, session: str, tool: KnownTool, scope: Scope) -> None:
        """Keep an answer that was given beside a gateway, for its session (see `session_of`) or always.

        Raises `OSError` where it cannot be kept.
        """
        if scope == "always":
            self._write(_REMEMBER, principal_id, tool.server, tool.tool, tool.definition, now_ms())
        else:
            self._write("DELETE FROM remembered_in_sessions WHERE at_ms < ?", now_ms() - _SESSION_MS)
            self._write(_REMEMBER_IN_SESSION, session, tool.server, tool.tool, tool.definition, now_ms())

    async def remember(self, principal: Principal, tool: KnownTool, scope: Scope) -> None:
        """Keep an answer: for as long as this session lasts, or always."""
        if scope == "always" and await self._written(principal, tool):
            return
        self._sessions[principal, tool] = None
        while len(self._sessions) > _MOST_IN_SESSIONS:
            self._sessions.popitem(last=False)

    async def forget(self, principal: Principal, tool: KnownTool) -> None:
        """Take back what was remembered of one tool. Raises `OSError`."""
        self._sessions.pop((principal, tool), None)
        if self._file is not None:
            await off_loop(partial(self.revoke, principal.id, tool.server, tool.tool))

    async def end_session(self, principal: Principal) -> None:
        """Forget what holds for a session that is over."""
        for key in [key for key in self._sessions if key[0] == principal]:
            del self._sessions[key]
        if self._file is not None:
            forget = partial(self._rows, _FORGET_SESSION, self.session_of(principal))
            with suppress(OSError):  # nobody has that session any more
                await off_loop(forget)

    def always(self, principal_id: str | None = None) -> tuple[RememberedAnswer, ...]:
        """Return the answers that always hold, of one principal or of all. Raises `OSError` for an unreadable file."""
        statement = (
            "SELECT principal, server, tool, definition, at_ms FROM remembered"
            " WHERE principal = COALESCE(?, principal) ORDER BY principal, server, tool"
        )
        return tuple(RememberedAnswer(*row) for row in self._rows(statement, principal_id))

    def revoke(self, principal_id: str, server: str, tool: str | None = None) -> int:
        """Forget what always holds of one tool, or of all tools of a server; return how many answers that were.

        Gateways that run ask again at once. What holds for their sessions stays. Raises `OSError`.
        """
        statement = "DELETE FROM remembered WHERE principal = ? AND server = ? AND tool = COALESCE(?, tool) RETURNING 1"
        return len(self._rows(statement, principal_id, server, tool))

    def was_shown(self, tool_call_id: str, tool: KnownTool) -> None:
        """Keep for a while which definition of a tool it is that a call waits for."""
        self._shown[tool_call_id] = tool
        while len(self._shown) > _MOST_SHOWN:
            self._shown.popitem(last=False)

    def shown(self, tool_call_id: str) -> KnownTool | None:
        """Return the tool of a call about which a person is asked, as it was then; None where that is not known."""
        return self._shown.get(tool_call_id)

    def _definitions(self, principal: Principal, tool: KnownTool) -> list[str]:
        statement = (
            "SELECT definition FROM remembered WHERE principal = ? AND server = ? AND tool = ? UNION ALL"
            " SELECT definition FROM remembered_in_sessions WHERE session = ? AND server = ? AND tool = ?"
        )
        named = tool.server, tool.tool
        try:
            found = self._rows(statement, principal.id, *named, self.session_of(principal), *named)
        except OSError:
            _log.warning("what always holds cannot be read, and is asked", exc_info=True)
            return []
        return [row[0] for row in found]

    async def _written(self, principal: Principal, tool: KnownTool) -> bool:
        if self._file is None:
            return False
        try:
            values = principal.id, tool.server, tool.tool, tool.definition, now_ms()
            await off_loop(partial(self._write, _REMEMBER, *values))
        except OSError:
            _log.warning("an answer that is to hold always cannot be kept: it holds for this session", exc_info=True)
            return False
        return True

    def _write(self, statement: str, *values: Any) -> None:
        if self._file is not None:
            with self._file.open(writes=True) as file:
                file.execute(statement, values)

    def _rows(self, statement: str, *values: Any) -> list[Any]:
        if self._file is None:
            return []
        with self._file.open() as file:
            return file.execute(statement, values).fetchall()


def definition_of(tool: types.Tool, config: ServerConfig | None = None) -> str:
    """Return the digest of what a server says of a tool; with ``config``, of the tool of that very server.

    A server of the same name in another configuration, or with another folder, database or account, is another one.
    """
    said = tool.model_dump(
        mode="json",
        by_alias=True,
        exclude_none=True,
        include={"name", "title", "description", "input_schema", "output_schema", "annotations"},
    )
    whose = [] if config is None else [config.home]
    return hashlib.sha256(canonical_json([said, *whose] if whose else said).encode()).hexdigest()


def approval_hook(remembered: Remembered) -> Callable[[ServerConfig, types.Tool], NeedsApproval]:
    """Return the hook ``approval`` of `UpstreamHooks`: the policy, less what the principal of a call has answered."""

    def approval(config: ServerConfig, tool: types.Tool) -> NeedsApproval:
        if not asks(config, tool):
            return False
        known: KnownTool | None = None

        async def needs_approval(_input: Any, context: Any) -> bool:
            nonlocal known
            if known is None:  # of thousands of tools few are called, and a schema may be large
                definition = await off_loop(partial(definition_of, tool, config))
                known = KnownTool(config.name, tool.name, definition)
            origin = origin_of(context)
            if origin is not None and await remembered.allows(origin.principal, known):
                return False
            remembered.was_shown(context.tool_call_id, known)
            return True

        return needs_approval

    return approval
