"""What all parts of a pair share: its catalog, its rules, and where its runs are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...options.parts import CodeModeOptions
from ...profile import Profile
from ...run.genuine import scope_binding
from ...run.outer_call import OuterCall
from ...run.state_places import StatePlace, place_of
from .catalog import ExecCatalog
from .kinds import EXEC_KIND
from .namespaces import NamespaceRegistry, Scopes, scopes_of
from .options import ExecWaitOptions
from .telemetry import Counts

if TYPE_CHECKING:
    from ...workers.pool import WorkerPool
    from .stored import StoredRuns


@dataclass(frozen=True)
class Setup:
    """Made once with the pair; nothing in it changes, but what is counted."""

    catalog: ExecCatalog
    options: ExecWaitOptions
    settings: CodeModeOptions
    profile: Profile
    pool: WorkerPool | None
    counts: Counts
    stored: StoredRuns | None = None
    namespaces: NamespaceRegistry | None = None

    async def scopes(self, context: Any) -> Scopes | None:
        """Return the namespaces of a program with this context. Raises `InvalidConfigError`."""
        if self.namespaces is None:
            return None
        return await scopes_of(self.namespaces.visible(self.catalog.entries), context)

    def place(self, scope: str) -> StatePlace | None:
        """Return where programs of a scope leave values for each other."""
        binding = scope_binding(scope) if scope else self.settings.continuation.context_binding
        return place_of(self.settings.state, binding) if self.settings.has_state else None

    def outer(
        self, scope: str, tool_call_id: str | None, messages: Sequence[Any], context: Any, language: str | None = None
    ) -> OuterCall:
        """Return what every part of a run carries. ``language`` is known of a program that begins here."""
        return OuterCall(
            tool_call_id,
            messages,
            context,
            context_binding=scope_binding(scope) if scope or self.stored is not None else None,
            state=self.place(scope),
            wait_ms=self.options.waits_ms,
            takes_output=self.options.approvals == "park",
            tool_kind=EXEC_KIND,
            tool_input_kind=language,
        )
