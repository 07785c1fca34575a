"""Remember approvals for a session, or always for one definition of a tool.

The file is shared with other gateways and the command line. It is read for each call, so a revocation counts at once.
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

from codemode.data.json_values import encode_canonical_json
from codemode.host.clock import now_ms
from codemode.host.threads import run_in_single_use_thread

from ..config.model import ServerConfig
from ..config.patterns import needs_approval
from ..gateway.principals import Principal, get_call_or_current_origin
from ..state_files import PrivateDatabase
from ..upstreams.hooks import NeedsApproval

Scope = Literal["session", "always"]

FILE_NAME = "remembered.sqlite"
_MAX_DISPLAYED_TOOLS = 10_000
_MAX_SESSION_ANSWERS = 10_000
_ALWAYS_TABLE = (
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
_SESSION_ANSWER_MS = 30 * 24 * 3_600_000
"""How long the file keeps an answer for a session whose gateway was killed."""

_FORGET_SESSION = "DELETE FROM remembered_in_sessions WHERE session = ?"
_log = logging.getLogger("codemode.mcp")


@dataclass(frozen=True)
class ToolIdentity:
    """A tool as displayed. ``definition_digest`` covers its name, description, schemas and annotations."""

    server: str
    tool: str
    definition_digest: str


@dataclass(frozen=True)
class RememberedAnswer:
    """An approval that always holds, for the tool's definition at ``at_ms`` (Unix time)."""

    principal: str
    server: str
    tool: str
    definition_digest: str
    at_ms: int


class RememberedAnswers:
    """The remembered answers of all principals. Without ``folder`` they are only in memory.

    If the file cannot be read, every call is asked about; if it cannot be written, an answer holds for its session.
    Async methods read the file in a thread, because the disk may be slow and the lock taken.
    `list_permanent_answers`, `revoke_permanent_answers` and `save_external_answer` are for callers
    without an event loop.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._file = None if folder is None else PrivateDatabase(folder / FILE_NAME, _ALWAYS_TABLE, _SESSIONS_TABLE)
        self._gateway_id = secrets.token_hex(16)
        self._session_answers: OrderedDict[tuple[Principal, ToolIdentity], None] = OrderedDict()
        self._displayed_tools: OrderedDict[str, ToolIdentity] = OrderedDict()

    async def allows(self, principal: Principal, tool: ToolIdentity) -> bool:
        """Return whether an answer allows later calls of exactly this tool."""
        if (principal, tool) in self._session_answers:
            return True
        if self._file is None:
            return False
        return tool.definition_digest in await run_in_single_use_thread(
            partial(self._read_definition_digests, principal, tool)
        )

    def compute_session_digest(self, principal: Principal) -> str:
        """Return a digest that identifies a session outside the gateway without revealing its id."""
        identity = encode_canonical_json([self._gateway_id, principal.id, principal.session])
        return hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()

    def save_external_answer(self, principal_id: str, session: str, tool: ToolIdentity, scope: Scope) -> None:
        """Save an answer that was given outside the gateway, for a session digest or always.

        Raises `OSError` if it cannot be saved.
        """
        if scope == "always":
            self._execute_write(_REMEMBER, principal_id, tool.server, tool.tool, tool.definition_digest, now_ms())
        else:
            self._execute_write("DELETE FROM remembered_in_sessions WHERE at_ms < ?", now_ms() - _SESSION_ANSWER_MS)
            self._execute_write(_REMEMBER_IN_SESSION, session, tool.server, tool.tool, tool.definition_digest, now_ms())

    async def remember(self, principal: Principal, tool: ToolIdentity, scope: Scope) -> None:
        """Save an answer for this session, or always."""
        if scope == "always" and await self._save_permanent_answer(principal, tool):
            return
        self._session_answers[principal, tool] = None
        while len(self._session_answers) > _MAX_SESSION_ANSWERS:
            self._session_answers.popitem(last=False)

    async def forget(self, principal: Principal, tool: ToolIdentity) -> None:
        """Forget the answers about one tool. Raises `OSError`."""
        self._session_answers.pop((principal, tool), None)
        if self._file is not None:
            await run_in_single_use_thread(partial(self.revoke_permanent_answers, principal.id, tool.server, tool.tool))

    async def forget_session_answers(self, principal: Principal) -> None:
        """Forget the answers of an ended session."""
        for key in [key for key in self._session_answers if key[0] == principal]:
            del self._session_answers[key]
        if self._file is not None:
            forget_rows = partial(self._execute_and_fetch, _FORGET_SESSION, self.compute_session_digest(principal))
            with suppress(OSError):  # a leftover answer is harmless: the session has ended
                await run_in_single_use_thread(forget_rows)

    def list_permanent_answers(self, principal_id: str | None = None) -> tuple[RememberedAnswer, ...]:
        """Return the answers that always hold, of one principal or of all. Raises `OSError` if unreadable."""
        statement = (
            "SELECT principal, server, tool, definition, at_ms FROM remembered"
            " WHERE principal = COALESCE(?, principal) ORDER BY principal, server, tool"
        )
        return tuple(RememberedAnswer(*row) for row in self._execute_and_fetch(statement, principal_id))

    def revoke_permanent_answers(self, principal_id: str, server: str, tool: str | None = None) -> int:
        """Revoke the answers that always hold for one tool, or for all tools of a server. Return their number.

        Running gateways ask again at once. Answers for sessions stay. Raises `OSError`.
        """
        statement = "DELETE FROM remembered WHERE principal = ? AND server = ? AND tool = COALESCE(?, tool) RETURNING 1"
        return len(self._execute_and_fetch(statement, principal_id, server, tool))

    def record_displayed_tool(self, tool_call_id: str, tool: ToolIdentity) -> None:
        """Save temporarily which tool definition a pending call was displayed with."""
        self._displayed_tools[tool_call_id] = tool
        while len(self._displayed_tools) > _MAX_DISPLAYED_TOOLS:
            self._displayed_tools.popitem(last=False)

    def get_displayed_tool(self, tool_call_id: str) -> ToolIdentity | None:
        """Return the tool as displayed with a pending call, or None."""
        return self._displayed_tools.get(tool_call_id)

    def _read_definition_digests(self, principal: Principal, tool: ToolIdentity) -> list[str]:
        statement = (
            "SELECT definition FROM remembered WHERE principal = ? AND server = ? AND tool = ? UNION ALL"
            " SELECT definition FROM remembered_in_sessions WHERE session = ? AND server = ? AND tool = ?"
        )
        server_and_tool = tool.server, tool.tool
        try:
            rows = self._execute_and_fetch(
                statement, principal.id, *server_and_tool, self.compute_session_digest(principal), *server_and_tool
            )
        except OSError:
            _log.warning("remembered answers cannot be read; people are asked again", exc_info=True)
            return []
        return [row[0] for row in rows]

    async def _save_permanent_answer(self, principal: Principal, tool: ToolIdentity) -> bool:
        if self._file is None:
            return False
        try:
            values = principal.id, tool.server, tool.tool, tool.definition_digest, now_ms()
            await run_in_single_use_thread(partial(self._execute_write, _REMEMBER, *values))
        except OSError:
            _log.warning("an answer for all sessions cannot be saved; it holds for this session", exc_info=True)
            return False
        return True

    def _execute_write(self, statement: str, *values: Any) -> None:
        if self._file is not None:
            with self._file.open(writes=True) as file:
                file.execute(statement, values)

    def _execute_and_fetch(self, statement: str, *values: Any) -> list[Any]:
        if self._file is None:
            return []
        with self._file.open() as file:
            return file.execute(statement, values).fetchall()


def compute_definition_digest(tool: types.Tool, config: ServerConfig | None = None) -> str:
    """Return the digest of a tool's definition; with ``config``, of the tool at exactly that server.

    A server of the same name with another command, folder, URL or account gives another digest.
    """
    definition = tool.model_dump(
        mode="json",
        by_alias=True,
        exclude_none=True,
        include={"name", "title", "description", "input_schema", "output_schema", "annotations"},
    )
    server_identity = [] if config is None else [config.identity]
    return hashlib.sha256(
        encode_canonical_json([definition, *server_identity] if server_identity else definition).encode()
    ).hexdigest()


def create_approval_hook(remembered: RememberedAnswers) -> Callable[[ServerConfig, types.Tool], NeedsApproval]:
    """Return the hook ``get_approval_rule``: the policy, minus remembered answers of the principal."""

    def get_approval_rule(config: ServerConfig, tool: types.Tool) -> NeedsApproval:
        if not needs_approval(config, tool):
            return False
        identity: ToolIdentity | None = None

        async def check_approval_and_record_tool(_input: Any, context: Any) -> bool:
            nonlocal identity
            if identity is None:  # computed at the first call: few tools are called, and schemas may be large
                digest = await run_in_single_use_thread(partial(compute_definition_digest, tool, config))
                identity = ToolIdentity(config.name, tool.name, digest)
            origin = get_call_or_current_origin(context)
            if origin is not None and await remembered.allows(origin.principal, identity):
                return False
            remembered.record_displayed_tool(context.tool_call_id, identity)
            return True

        return check_approval_and_record_tool

    return get_approval_rule
