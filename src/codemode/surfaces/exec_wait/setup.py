"""What all parts of a pair share: its catalog, its rules, and where its runs are kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...execution.call_context import CallContext, OuterCall, state_place
from ...execution.pauses import scope_binding
from ...options.parts import CodeModeOptions
from ...profile import Profile
from .catalog import ExecCatalog
from .kinds import EXEC_KIND
from .namespaces import NamespaceRegistry, Scopes, scopes_of
from .options import ExecWaitOptions
from .telemetry import Counts

if TYPE_CHECKING:
    from ...workers.pool import WorkerPool
    from .stored import StoredRuns
    from .waiting_run import WaitingRun


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

    def outer(self, call: CallContext, one: WaitingRun) -> OuterCall:
        """Return what every part of a run carries, and note where its program keeps values for later ones."""
        scope = call.conversation_id
        bound = replace(call, conversation_id=scope_binding(scope or "") if scope or self.stored is not None else None)
        place = one.place = state_place(self.settings, bound if scope else call)
        return OuterCall(
            call=bound if place is None else replace(bound, state=place),
            wait_ms=self.options.waits_ms,
            takes_output=self.options.approvals == "park",
            tool_kind=EXEC_KIND,
            tool_input_kind=one.language,
        )
