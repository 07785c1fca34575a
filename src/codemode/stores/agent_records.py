"""Records of agents, whatever their framework: whose they are, what they keep, how what they come to is written down.

Knows no framework: a plugin says what goes on, and with what.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias, cast

from ..errors import CodeModeProtocolError
from ..interrupts.agent_pauses import KEPT_BY
from ..interrupts.interrupt import Interrupt
from .protocol import InterruptStore
from .values import ALL_TENANTS, Record, StoredPause, Tenant

ResumeWith: TypeAlias = Callable[[Record], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True)
class ToolForm:
    """What a page needs of one tool, under the names by which a store asks for it."""

    input_json_schema: Any
    description: str = ""
    annotations: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class ToolForms:
    """The tools that a pause asks about, as a store takes them; ``name`` is the tool that paused."""

    name: str
    catalog: Mapping[str, ToolForm]


class AgentRecords:
    """The records of one agent in a store. ``kept_by`` is its framework, ``resume_with`` what a record goes on with."""

    def __init__(
        self,
        store: InterruptStore,
        *,
        kept_by: str,
        tenant: Tenant,
        app: str,
        labels: Mapping[str, str] | None,
        resume_with: ResumeWith | None,
    ) -> None:
        self.store = store
        self.app = app
        self._kept_by = kept_by
        self._tenant: Tenant = tenant
        self._labels = dict(labels or {})
        self._resume_with = resume_with

    def whose(self, tenant: str | None) -> str:
        """Return the tenant of a run. Raises `ValueError` where nobody has said it, or somebody otherwise."""
        if tenant is None and self._tenant is ALL_TENANTS:
            raise ValueError("these pauses are of all tenants: say whose this run is, with tenant=")
        if tenant is not None and self._tenant not in (ALL_TENANTS, tenant):
            raise ValueError(f"these pauses are of {self._tenant!r}, not of {tenant!r}")
        return cast("str", self._tenant) if tenant is None else tenant

    async def put(self, pause: StoredPause, tenant: str, labels: Mapping[str, str] | None) -> str:
        """Keep a pause and return the id of its record."""
        own: dict[str, Any] = {"tenant": tenant, "app": self.app, "labels": {**self._labels, **(labels or {})}}
        return await self.store.put(pause, tool=pause.tool, source=pause.source, payload=pause.payload, **own)

    def payload(self, kept: Mapping[str, Any]) -> dict[str, Any]:
        """Return the payload of a record that keeps this."""
        return {KEPT_BY: self._kept_by, **kept}

    def kept(self, record: Record) -> dict[str, Any]:
        """Return what a record keeps. Raises `CodeModeProtocolError` for one that is not this agent's."""
        payload: Any = record.payload
        refused = {"origin": "continuation", "not_resumable": True}
        if not isinstance(payload, dict) or cast("dict[str, Any]", payload).get(KEPT_BY) != self._kept_by:
            raise CodeModeProtocolError(f"this record is none of {self._kept_by}", details=refused)
        if record.app != self.app or self._tenant not in (ALL_TENANTS, record.tenant):
            raise CodeModeProtocolError("this record is another app's, or another tenant's", details=refused)
        return cast("dict[str, Any]", payload)

    async def still_waiting(self, record: Record) -> StoredPause:
        """Return the pause of a record that answers are missing of: nothing was run with those there are."""
        asked = record.versions[-1].interrupt_ids
        pause = await self.store.get(asked[0], tenant=record.tenant) if asked else None
        if pause is None:
            raise CodeModeProtocolError("the agent has gone on without these answers", details={"superseded": True})
        return stored_pause(pause, waits_for_all=True)

    async def settings_for(self, record: Record) -> dict[str, Any]:
        """Return what a record goes on with."""
        settings: Any = {} if self._resume_with is None else self._resume_with(record)
        return dict(await settings if inspect.isawaitable(settings) else settings)


def stored_pause(pause: Interrupt, **more: Any) -> StoredPause:
    """Return a pause with what its record is to say of it."""
    own = {"requests": pause.requests, "outer_tool_call_id": pause.outer_tool_call_id}
    return StoredPause(**own, continuation=pause.continuation, **more)


def written_end(end: Any) -> dict[str, Any]:
    """Write what a run came to, an output or a `StoredPause`, for whoever asks again or takes over."""
    if not isinstance(end, StoredPause):
        return {"output": end}
    forms: ToolForms = end.tool
    catalog = {name: asdict(form) for name, form in forms.catalog.items()}
    tool = {"name": forms.name, "catalog": catalog}
    return {"pause": end.to_dict(), "tool": tool, "source": end.source, "payload": end.payload}


def read_end(end: Mapping[str, Any]) -> Any:
    """Read what `written_end` wrote."""
    if "output" in end:
        return end["output"]
    catalog = {name: ToolForm(**form) for name, form in end["tool"]["catalog"].items()}
    forms = ToolForms(end["tool"]["name"], catalog)
    return stored_pause(Interrupt.from_dict(end["pause"]), tool=forms, source=end["source"], payload=end["payload"])


def joined_programs(programs: list[str]) -> tuple[str | None, list[int]]:
    """Return programs as one text, and how many lines of it stand before each."""
    if len(programs) < 2:
        return (programs[0] or None if programs else None), [0] * len(programs)
    text, first_lines = "", list[int]()
    for number, one in enumerate(programs, 1):
        text += f"// program {number} of {len(programs)}\n"
        first_lines.append(text.count("\n"))
        text += f"{one}\n"
    return text, first_lines
