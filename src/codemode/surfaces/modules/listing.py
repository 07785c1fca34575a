"""Servers and tools as a run sees them: paths, names and tools made ready. Lists nothing itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...cached_property import cached_property

if TYPE_CHECKING:
    from ...tools.prepared import PreparedTool


@dataclass(frozen=True, eq=False)
class ModuleTool:
    """One tool of a server. ``tool_name`` is the server's word for it, ``export_name`` what a program imports.

    ``tool.name`` is what a run knows it by: ``<path>.<tool_name>``.
    """

    tool_name: str
    export_name: str
    tool: PreparedTool


@dataclass(frozen=True, eq=False)
class ListedServer:
    """One server as it was last listed. ``path`` stands in its module's name, ``server_id`` is what the host calls it.

    ``tools`` are in the order of their names. ``left_out`` says which entries of its list are no tools here, and why.
    """

    path: str
    server_id: str
    name: str
    version: str | None
    description: str | None
    capabilities: tuple[str, ...]
    tools: tuple[ModuleTool, ...]
    left_out: tuple[str, ...] = ()

    @cached_property
    def names(self) -> frozenset[str]:
        """All names by which a tool of it is known: the server's, that of its export, and the qualified one."""
        return frozenset(name for one in self.tools for name in (one.tool_name, one.export_name, one.tool.name))

    @cached_property
    def may_ask(self) -> bool:
        """True when a call of some tool may wait for a person."""
        return any(one.tool.may_ask for one in self.tools)

    def why_left_out(self, tool_name: str) -> str:
        """Return what to add to a message about a tool that is not here: why it was left out, where that is known."""
        notes = (note for note in self.left_out if f'"{tool_name}"' in note)
        return next((f" (left out of its list: {note})" for note in notes), "")
