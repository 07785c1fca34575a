"""Answers that hold for later calls of a tool too, given in the terminal: read by the gateway at its next call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..interrupts.interrupt import APPROVAL_KIND
from ..trace.visible_text import visible
from .exits import UsageError
from .mcp_setup import warn

if TYPE_CHECKING:
    from ..mcp.approvals.remembered import KnownTool
    from ..mcp.config.values import GatewayConfig
    from ..stores.values import Record, StoredRequest


@dataclass(frozen=True)
class LaterCalls:
    """The tools of which later calls are allowed too."""

    tools: tuple[KnownTool, ...]
    session: str
    scope: Literal["session", "always"]

    @classmethod
    def of(cls, record: Record, requests: Iterable[StoredRequest], scope: Literal["session", "always"]) -> LaterCalls:
        """Return those of the tools of these calls. Raises `UsageError` where it is not known which ones they were."""
        from ..mcp.approvals.known_tools import known_tool, session_in

        session = session_in(record)
        tools: dict[KnownTool, None] = {}
        for one in requests:
            tool = known_tool(record, one.interrupt_id)
            if one.kind != APPROVAL_KIND or tool is None or session is None:
                raise UsageError(
                    f"call {visible(one.interrupt_id)} can be answered for itself alone: nothing is kept of how its"
                    " tool was when the call was made; leave out --session and --always"
                )
            tools[tool] = None
        return cls(tuple(tools), session or "", scope)

    @property
    def words(self) -> str:
        """Say which calls they are, for whoever is asked."""
        named = ", ".join(visible(f"{one.server}.{one.tool}") for one in self.tools)
        until = "always, while the tool stays as it is" if self.scope == "always" else "until the client leaves"
        return f"later calls of {named} too, {until}"

    def keep(self, config: GatewayConfig, record: Record) -> None:
        """Let the gateways of this state folder know."""
        from ..mcp.approvals.remembered import Remembered
        from ..mcp.gateway.gateway import Gateway

        remembered = Remembered(Gateway(config).folder)
        try:
            for tool in self.tools:
                remembered.answered_elsewhere(record.tenant, self.session, tool, self.scope)
        except OSError as error:
            warn(f"the call was decided, and later ones are asked about again: {error}")
