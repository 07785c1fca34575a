"""Approvals that hold for later calls of a tool too, given beside the client: at the terminal, or in the console.

The one place that says of which calls they can be, what is kept of them, and what the audit tells, also where one was
taken back. A gateway reads what is kept at its next call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from codemode.data.json_values import well_formed
from codemode.host.threads import off_loop
from codemode.interrupts.interrupt import APPROVAL_KIND
from codemode.trace.visible_text import one_line, visible

from ..gateway.kept_store import APP
from .known_tools import known_tool, session_in
from .remembered import KnownTool, Remembered, RememberedAnswer, Scope

if TYPE_CHECKING:
    from codemode.stores.interrupt_store import InterruptStore
    from codemode.stores.records import Record, StoredRequest

SCOPES: Mapping[Scope, str] = MappingProxyType(
    {"session": "until the client leaves", "always": "always, while the tool stays as it is"}
)
"""For how long such an approval may hold, in words."""
AUDIT_KIND = "later_calls_allowed"
FORGOTTEN_KIND = "later_calls_forgotten"
_MAX_NAME_CHARACTERS = 200


@dataclass(frozen=True)
class LaterCalls:
    """The tools of which later calls are allowed too, to the principal of one record."""

    tools: tuple[KnownTool, ...]
    session: str
    scope: Scope

    @classmethod
    def of(cls, record: Record, requests: Iterable[StoredRequest], scope: Scope) -> LaterCalls:
        """Return those of the tools of these calls.

        Raises `ValueError` where it is not known which ones they were, or where there is no such session.
        """
        session = session_in(record)
        tools: dict[KnownTool, None] = {}
        for one in requests:
            tool = known_tool(record, one)
            if one.kind != APPROVAL_KIND or record.app != APP or tool is None:
                raise ValueError(
                    f"call {visible(one.interrupt_id)} can be answered for itself alone: nothing is kept of how its"
                    " tool was when the call was made"
                )
            tools[tool] = None
        if scope == "session" and session is None:
            raise ValueError("whoever has sent this program has no session for which an answer could hold")
        return cls(tuple(tools), session or "", scope)

    @property
    def words(self) -> str:
        """Say which calls they are, for whoever is asked."""
        named = ", ".join(one_line(f"{one.server}.{one.tool}", _MAX_NAME_CHARACTERS) for one in self.tools)
        return f"later calls of {named} too, {SCOPES[self.scope]}"

    async def keep(
        self, remembered: Remembered, store: InterruptStore, record: Record, *, actor: str, address: str | None = None
    ) -> None:
        """Write it into the audit, and let the gateways of this state folder know. To be done once it was decided.

        Raises `OSError`, and the errors of `InterruptStore.note`.
        """
        for tool in self.tools:
            details = {"server": _named(tool.server), "tool": _named(tool.tool), "holds": self.scope}
            # Told first: nothing is allowed of which the audit does not know.
            await store.note(
                AUDIT_KIND,
                actor=actor,
                tenant=record.tenant,
                address=address,
                details=details,
                record_id=record.id,
            )
            await off_loop(partial(remembered.answered_elsewhere, record.tenant, self.session, tool, scope=self.scope))


async def note_forgotten(answer: RememberedAnswer, store: InterruptStore, *, actor: str) -> None:
    """Write into the audit that an answer which always held was taken back. Raises what `InterruptStore.note` does."""
    details = {"server": _named(answer.server), "tool": _named(answer.tool)}
    await store.note(FORGOTTEN_KIND, actor=actor, tenant=answer.principal, details=details)


def _named(text: str) -> str:
    return well_formed(one_line(text, _MAX_NAME_CHARACTERS))
