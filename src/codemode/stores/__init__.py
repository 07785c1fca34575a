"""Pauses in a database: for hosts that keep records, for consoles, and for plugins that keep agents' pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..host.imports import late_names

if TYPE_CHECKING:
    from .agent_runs import AgentRecords as AgentRecords
    from .agent_runs import AgentRun as AgentRun
    from .agent_runs import ResumeWith as ResumeWith
    from .agent_runs import ToolForm as ToolForm
    from .durability import StoreLike as StoreLike
    from .durability import open_store as open_store
    from .records import Tenant as Tenant

# Where each name is. The imports above tell type checkers the same; a test compares both.
_LATE = {
    "agent_runs": "AgentRecords AgentRun ResumeWith ToolForm",
    "durability": "StoreLike open_store",
    "records": "Tenant",
}
__all__ = [name for names in _LATE.values() for name in names.split()]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__ = late_names(__name__, _LATE)
